//! One table of a drill file while it is parsed: tracks which keys were read, so that the rest is
//! rejected.

use obol_fabric::{Name, Nanos};
use obol_profiles::document::{Faults, bare, found, nearest, number, span};
use obol_profiles::{Fault, Text};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The JSON Schema of a duration.
pub(crate) fn span_schema() -> Value {
    json!({ "type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?(ns|us|ms|s|m)$" })
}

/// The shortest duration.
pub(crate) const SPAN_MIN: Nanos = Nanos::from_micros(1);
/// Characters of a line of text.
pub(crate) const LINE_CHARS_MAX: usize = 200;
/// Characters of a drill's name.
pub(crate) const ID_CHARS_MAX: usize = 64;

/// A value and its byte offset in the file.
pub(crate) struct At<T> {
    pub(crate) at: usize,
    pub(crate) value: T,
}

/// A table that is being parsed. Keys that were not read by the end are errors.
pub struct Section<'d, 'i> {
    path: String,
    /// Its byte offset.
    pub(crate) at: usize,
    table: &'d DeTable<'i>,
    known: BTreeSet<&'static str>,
    missing: Vec<(&'static str, String)>,
}

impl<'d, 'i> Section<'d, 'i> {
    pub(crate) fn new(path: &str, at: usize, table: &'d DeTable<'i>) -> Self {
        Self { path: path.to_owned(), at, table, known: BTreeSet::new(), missing: Vec::new() }
    }

    /// The full path of a key.
    pub(crate) fn key(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// The value of a key.
    pub(crate) fn value(&mut self, key: &'static str) -> Option<&'d Spanned<DeValue<'i>>> {
        self.known.insert(key);
        self.table.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value)
    }

    /// The names of all keys, for tables with free keys.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'d str, &'d Spanned<DeValue<'i>>)> + use<'d, 'i> {
        self.table.iter().map(|(name, value)| (name.get_ref().as_ref(), value))
    }

    /// Whether a key is present, with any value.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.iter().any(|(name, _)| name.get_ref() == key)
    }

    /// Requires a key. Reported at the end, unless a similar key is present.
    pub(crate) fn need<T>(&mut self, key: &'static str, wanted: &str, value: Option<T>) -> Option<T> {
        if value.is_none() && !self.has(key) {
            self.missing.push((key, wanted.to_owned()));
        }
        value
    }

    /// Reads a value by `take`, which returns `None` for another type.
    fn take<T>(
        &mut self,
        key: &'static str,
        wanted: &str,
        faults: &mut Faults,
        take: impl FnOnce(&str, &'d DeValue<'i>) -> Option<Result<T, Fault>>,
    ) -> Option<At<T>> {
        let value = self.value(key)?;
        let (at, path) = (value.span().start, self.key(key));
        match take(&path, value.get_ref()) {
            Some(Ok(value)) => Some(At { at, value }),
            Some(Err(fault)) => {
                faults.add(at, fault);
                None
            }
            None => {
                faults.add(at, wrong_type(&path, value.get_ref(), wanted));
                None
            }
        }
    }

    /// A duration.
    pub(crate) fn span(
        &mut self,
        key: &'static str,
        bounds: (Nanos, Nanos),
        faults: &mut Faults,
    ) -> Option<At<Nanos>> {
        self.take(key, "a duration such as \"20ms\"", faults, |path, value| span(path, value, bounds))
    }

    /// A whole number.
    pub(crate) fn number(
        &mut self,
        key: &'static str,
        bounds: (u32, u32),
        faults: &mut Faults,
    ) -> Option<At<u32>> {
        self.take(key, "a whole number", faults, |path, value| number(path, value, bounds))
    }

    /// `true` or `false`.
    pub(crate) fn flag(&mut self, key: &'static str, faults: &mut Faults) -> Option<bool> {
        self.take(key, "true or false", faults, |_, value| value.as_bool().map(Ok)).map(|at| at.value)
    }

    /// A line of text without control characters.
    pub(crate) fn line(&mut self, key: &'static str, faults: &mut Faults) -> Option<At<String>> {
        let wanted = format!("a line of 1 to {LINE_CHARS_MAX} characters");
        self.take(key, &wanted, faults, |_, value| {
            let text = value.as_str()?;
            let fits = !text.is_empty()
                && text.chars().count() <= LINE_CHARS_MAX
                && !text.chars().any(char::is_control);
            fits.then(|| Ok(text.to_owned()))
        })
    }

    /// A text of several lines, without other control characters.
    pub(crate) fn text(
        &mut self,
        key: &'static str,
        chars_max: usize,
        faults: &mut Faults,
    ) -> Option<At<String>> {
        let wanted = format!("a text of 1 to {chars_max} characters");
        self.take(key, &wanted, faults, |_, value| {
            let text = value.as_str()?;
            let odd = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
            let fits = !text.is_empty() && text.chars().count() <= chars_max && !text.chars().any(odd);
            fits.then(|| Ok(text.to_owned()))
        })
    }

    /// A drill's id: 1 to 64 of `A-Z a-z 0-9 . _ + -`, the first a letter or digit.
    pub(crate) fn id(&mut self, key: &'static str, faults: &mut Faults) -> Option<String> {
        let wanted = format!("1 to {ID_CHARS_MAX} of A-Z a-z 0-9 . _ + -, the first a letter or digit");
        let read = self.take(key, &wanted, faults, |_, value| {
            let text = value.as_str()?;
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '+' | '-');
            let fits = text.len() <= ID_CHARS_MAX && text.chars().all(plain);
            (fits && text.starts_with(|c: char| c.is_ascii_alphanumeric())).then(|| Ok(text.to_owned()))
        });
        read.map(|at| at.value)
    }

    /// A [`Name`].
    pub(crate) fn name(&mut self, key: &'static str, faults: &mut Faults) -> Option<Name> {
        let read = self.take(key, "a name", faults, |path, value| {
            let text = value.as_str()?;
            Some(Name::new(text).map_err(|error| Fault::Name(path.to_owned().into(), error)))
        });
        read.map(|at| at.value)
    }

    /// One of these options.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        options: &[(&'static str, T)],
        faults: &mut Faults,
    ) -> Option<At<T>> {
        let names: Vec<&str> = options.iter().map(|(name, _)| *name).collect();
        self.take(key, &format!("one of {}", names.join(", ")), faults, |path, value| {
            Some(chosen(path, value.as_str()?, options))
        })
    }

    /// Parses a table by `read`, and checks its keys whatever the outcome, so that no unknown key
    /// is ignored silently.
    pub(crate) fn read<T>(
        mut self,
        faults: &mut Faults,
        read: impl FnOnce(&mut Self, &mut Faults) -> T,
    ) -> T {
        let found = read(&mut self, faults);
        self.finish(faults);
        found
    }

    /// Accepts these keys without reading them: which of them are valid depends on a key that is
    /// missing or wrong.
    pub(crate) fn spare(&mut self, keys: impl IntoIterator<Item = &'static str>) {
        self.known.extend(keys);
    }

    /// Rejects an empty array where at least one item is required.
    fn some(&self, key: &str, value: &Spanned<DeValue<'_>>, wanted: &str, faults: &mut Faults) {
        if value.get_ref().as_array().is_some_and(|items| items.is_empty()) {
            let (key, found) = (self.key(key).into(), "an empty array".to_owned());
            faults.add(value.span().start, Fault::WrongType { key, found, wanted: wanted.to_owned() });
        }
    }

    /// One text or several, at least one.
    pub(crate) fn some_texts(&mut self, key: &'static str, faults: &mut Faults) -> Option<Vec<At<String>>> {
        if let Some(value) = self.value(key) {
            self.some(key, value, "a text, or an array of at least one", faults);
        }
        self.texts(key, faults)
    }

    /// One table or several, at least one.
    pub(crate) fn some_sections(&mut self, key: &'static str, faults: &mut Faults) -> Vec<Section<'d, 'i>> {
        if let Some(value) = self.value(key) {
            self.some(key, value, "a table, or an array of at least one", faults);
        }
        self.sections(key, faults)
    }

    /// One text or several, or none.
    pub(crate) fn texts(&mut self, key: &'static str, faults: &mut Faults) -> Option<Vec<At<String>>> {
        let value = self.value(key)?;
        let path = self.key(key);
        let one = |value: &Spanned<DeValue<'_>>| {
            value.get_ref().as_str().map(|text| At { at: value.span().start, value: text.to_owned() })
        };
        let texts = match value.get_ref() {
            DeValue::Array(items) => items.iter().map(one).collect(),
            _ => one(value).map(|text| vec![text]),
        };
        if texts.is_none() {
            faults
                .add(value.span().start, wrong_type(&path, value.get_ref(), "a text, or an array of texts"));
        }
        texts
    }

    /// A table inside this one.
    pub(crate) fn section(&mut self, key: &'static str, faults: &mut Faults) -> Option<Section<'d, 'i>> {
        let value = self.value(key)?;
        let path = self.key(key);
        Self::of(&path, value, faults)
    }

    /// One table, or an array of tables.
    pub(crate) fn sections(&mut self, key: &'static str, faults: &mut Faults) -> Vec<Section<'d, 'i>> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let path = self.key(key);
        match value.get_ref() {
            DeValue::Array(items) => items.iter().filter_map(|item| Self::of(&path, item, faults)).collect(),
            _ => Self::of(&path, value, faults).into_iter().collect(),
        }
    }

    /// A value that must be a table.
    pub(crate) fn of(path: &str, value: &'d Spanned<DeValue<'i>>, faults: &mut Faults) -> Option<Self> {
        match value.get_ref() {
            DeValue::Table(table) => Some(Section::new(path, value.span().start, table)),
            other => {
                faults.add(value.span().start, wrong_type(path, other, "a table"));
                None
            }
        }
    }

    /// Reports unknown and missing keys.
    fn finish(self, faults: &mut Faults) {
        let mut meant = BTreeSet::new();
        for (name, value) in self.table {
            if self.known.contains(name.get_ref().as_ref()) {
                continue;
            }
            let near = nearest(name.get_ref(), self.known.iter().copied());
            meant.extend(near);
            let written = self.key(&bare(name.get_ref()));
            let near: Option<Text> = near.map(|near| self.key(near).into());
            faults.add(
                name.span().start,
                match value.get_ref() {
                    DeValue::Table(_) if self.path.is_empty() => {
                        Fault::UnknownTable { table: written, nearest: near }
                    }
                    _ => Fault::UnknownKey { key: written, nearest: near },
                },
            );
        }
        for (key, wanted) in &self.missing {
            if !meant.contains(key) {
                faults.add(self.at, Fault::MissingKey { key: self.key(key).into(), wanted: wanted.clone() });
            }
        }
    }
}

fn wrong_type(path: &str, value: &DeValue<'_>, wanted: &str) -> Fault {
    Fault::WrongType { key: path.to_owned().into(), found: found(value), wanted: wanted.to_owned() }
}

/// The option of this name.
pub(crate) fn chosen<T: Copy>(path: &str, text: &str, options: &[(&'static str, T)]) -> Result<T, Fault> {
    let names = || options.iter().map(|(name, _)| *name);
    options.iter().find(|(name, _)| *name == text).map(|(_, option)| *option).ok_or_else(|| Fault::Choice {
        key: path.to_owned().into(),
        found: obol_profiles::document::shortened(text),
        options: names().map(Into::into).collect(),
        nearest: nearest(text, names()).map(Into::into),
    })
}
