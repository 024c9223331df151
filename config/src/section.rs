//! One table while it is read: it remembers which keys were read, so that the rest is rejected.

use crate::name::{bare, is_one_edit, nearest, shortened};
use crate::problem::{Problem, Text};
use crate::problems::Problems;
use crate::value;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Characters of a line of text.
pub const LINE_CHARS_MAX: usize = 200;

/// Whether this is one line of text, not empty, without control characters.
pub fn is_line(text: &str, chars_max: usize) -> bool {
    !text.is_empty() && text.chars().count() <= chars_max && !text.chars().any(char::is_control)
}

/// A value and its byte offset in the file.
pub struct At<T> {
    /// The byte offset.
    pub at: usize,
    pub value: T,
}

/// A table that is being read. Keys that were not read by the end are problems.
pub struct Section<'d, 'i> {
    path: String,
    /// Its byte offset.
    pub at: usize,
    table: &'d DeTable<'i>,
    known: BTreeSet<String>,
    missing: Vec<(String, Problem)>,
    elsewhere: fn(&str) -> Option<&'static str>,
}

impl<'d, 'i> Section<'d, 'i> {
    pub(crate) fn new(path: &str, at: usize, table: &'d DeTable<'i>) -> Self {
        let (known, missing) = (BTreeSet::new(), Vec::new());
        Self { path: path.to_owned(), at, table, known, missing, elsewhere: |_| None }
    }

    /// The full path of a key.
    pub fn key(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// The value of a key.
    pub fn value(&mut self, key: &str) -> Option<&'d Spanned<DeValue<'i>>> {
        self.known.insert(key.to_owned());
        self.table.get(key)
    }

    /// The byte offset of a key, or of the table if the key is not there.
    pub fn place(&self, key: &str) -> usize {
        self.table.get_key_value(key).map_or(self.at, |(name, _)| name.span().start)
    }

    /// All keys that were not read so far, for tables with free keys.
    pub fn entries(&mut self) -> Vec<(&'d str, &'d Spanned<DeValue<'i>>)> {
        let entries = self.table.iter().map(|(name, value)| (name.get_ref().as_ref(), value));
        let entries: Vec<_> = entries.filter(|(name, _)| !self.known.contains(*name)).collect();
        self.accept(entries.iter().map(|(name, _)| *name));
        entries
    }

    /// Whether a key is present, with any value.
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Whether there is a key that was neither read nor accepted: what seems to be missing may be there under
    /// that name.
    pub fn has_unknown(&self) -> bool {
        self.table.iter().any(|(name, _)| !self.known.contains(name.get_ref().as_ref()))
    }

    /// Whether a key that was neither read nor accepted is probably meant to be this one.
    pub fn is_misspelt(&self, key: &str) -> bool {
        self.table.iter().map(|(name, _)| name.get_ref().as_ref()).any(|written: &str| {
            !self.known.contains(written)
                && nearest(written, self.known.iter().map(String::as_str)) == Some(key)
        })
    }

    /// Where else a key exists that this table does not have, for a hint.
    pub fn hint(&mut self, elsewhere: fn(&str) -> Option<&'static str>) {
        self.elsewhere = elsewhere;
    }

    /// Requires a key. Reported at the end, unless a similar key is present.
    pub fn need<T>(&mut self, key: &str, wanted: &str, value: Option<T>) -> Option<T> {
        if value.is_none() && !self.has(key) {
            let problem = Problem::MissingKey { key: self.key(key).into(), wanted: wanted.to_owned() };
            self.missing.push((key.to_owned(), problem));
        }
        value
    }

    /// Reads a value by `take`, which returns `None` for another type.
    pub fn take<T>(
        &mut self,
        key: &str,
        wanted: &str,
        problems: &mut Problems,
        take: impl FnOnce(&str, &'d DeValue<'i>) -> Option<Result<T, Problem>>,
    ) -> Option<At<T>> {
        let value = self.value(key)?;
        let (at, path) = (value.span().start, self.key(key));
        match take(&path, value.get_ref()) {
            Some(read) => problems.take(at, read).map(|value| At { at, value }),
            None => {
                problems.wrong_type(at, &path, value.get_ref(), wanted);
                None
            }
        }
    }

    /// The schema of the file. If it is another one, that is the only problem that is reported.
    pub fn schema(&mut self, known: u32, problems: &mut Problems) {
        let wanted = format!("the number {known}");
        let read = self.take("schema", &wanted, problems, |_, value| {
            let written = value.as_integer()?.to_string();
            let found = shortened(&written);
            Some(if value::to_u32(value) == Some(known) {
                Ok(())
            } else {
                Err(Problem::Schema { found, known })
            })
        });
        self.need("schema", &wanted, read);
    }

    pub fn span<T: From<Duration> + Into<Duration>>(
        &mut self,
        key: &str,
        bounds: (T, T),
        problems: &mut Problems,
    ) -> Option<At<T>> {
        self.take(key, "a duration such as \"20ms\"", problems, |path, value| {
            value::span(path, value, bounds)
        })
    }

    /// A whole number.
    pub fn number(&mut self, key: &str, bounds: (u32, u32), problems: &mut Problems) -> Option<At<u32>> {
        self.take(key, "a whole number", problems, |path, value| value::number(path, value, bounds))
    }

    /// `true` or `false`.
    pub fn flag(&mut self, key: &str, problems: &mut Problems) -> Option<bool> {
        self.take(key, "true or false", problems, |_, value| value.as_bool().map(Ok)).map(|at| at.value)
    }

    /// A line of text without control characters.
    pub fn line(&mut self, key: &str, problems: &mut Problems) -> Option<At<String>> {
        let wanted = format!("a line of 1 to {LINE_CHARS_MAX} characters");
        self.take(key, &wanted, problems, |_, value| {
            let text = value.as_str().filter(|text| is_line(text, LINE_CHARS_MAX))?;
            Some(Ok(text.to_owned()))
        })
    }

    /// A text of several lines, without other control characters.
    pub fn text(&mut self, key: &str, chars_max: usize, problems: &mut Problems) -> Option<At<String>> {
        let wanted = format!("a text of 1 to {chars_max} characters");
        self.take(key, &wanted, problems, |_, value| {
            let text = value.as_str()?;
            let odd = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
            let fits = !text.is_empty() && text.chars().count() <= chars_max && !text.chars().any(odd);
            fits.then(|| Ok(text.to_owned()))
        })
    }

    /// Any text that is not empty.
    pub fn string(&mut self, key: &str, problems: &mut Problems) -> Option<At<String>> {
        self.take(key, "a text in quotes", problems, |_, value| {
            value.as_str().filter(|text| !text.is_empty()).map(|text| Ok(text.to_owned()))
        })
    }

    /// A text that is parsed as `T`.
    pub fn parsed<T: FromStr<Err: Display>>(
        &mut self,
        key: &str,
        wanted: &str,
        problems: &mut Problems,
    ) -> Option<At<T>> {
        self.take(key, wanted, problems, |path, value| {
            let invalid = |error: T::Err| Problem::Invalid(path.to_owned().into(), error.to_string());
            Some(value.as_str()?.parse().map_err(invalid))
        })
    }

    /// A list of texts, each read by `read`, which gets the key and the text.
    pub fn list<T>(
        &mut self,
        key: &str,
        wanted: &str,
        problems: &mut Problems,
        read: impl Fn(&str, &str) -> Result<T, Problem>,
    ) -> Option<Vec<At<T>>> {
        let value = self.value(key)?;
        let path = self.key(key);
        let Some(items) = value.get_ref().as_array() else {
            problems.wrong_type(value.span().start, &path, value.get_ref(), wanted);
            return None;
        };
        let mut list = Vec::new();
        for item in items.iter() {
            let at = item.span().start;
            match item.get_ref().as_str() {
                Some(text) => list.extend(problems.take(at, read(&path, text)).map(|value| At { at, value })),
                None => problems.wrong_type(at, &path, item.get_ref(), wanted),
            }
        }
        Some(list)
    }

    /// The same, at least one.
    pub fn some_list<T>(
        &mut self,
        key: &str,
        wanted: &str,
        problems: &mut Problems,
        read: impl Fn(&str, &str) -> Result<T, Problem>,
    ) -> Option<Vec<At<T>>> {
        if let Some(value) = self.value(key) {
            self.some(key, value, wanted, problems);
        }
        self.list(key, wanted, problems, read)
    }

    /// An array of tables, `[[key]]`, at least one.
    pub fn tables(&mut self, key: &str, problems: &mut Problems) -> Option<Vec<Section<'d, 'i>>> {
        let value = self.value(key)?;
        let path = self.key(key);
        let wanted = format!("one table or several, [[{path}]]");
        self.some(key, value, &wanted, problems);
        let Some(items) = value.get_ref().as_array() else {
            problems.wrong_type(value.span().start, &path, value.get_ref(), wanted);
            return None;
        };
        Some(items.iter().filter_map(|item| Self::of(&path, item, &wanted, problems)).collect())
    }

    /// One of these options.
    pub fn choice<T: Copy>(
        &mut self,
        key: &str,
        options: &[(&'static str, T)],
        problems: &mut Problems,
    ) -> Option<At<T>> {
        let names: Vec<&str> = options.iter().map(|(name, _)| *name).collect();
        self.take(key, &format!("one of {}", names.join(", ")), problems, |path, value| {
            Some(value::chosen(path, value.as_str()?, options))
        })
    }

    /// Reads the table by `read`, and checks its keys whatever the outcome, so that no unknown key
    /// is ignored silently.
    pub fn read<T>(mut self, problems: &mut Problems, read: impl FnOnce(&mut Self, &mut Problems) -> T) -> T {
        let found = read(&mut self, problems);
        self.finish(problems);
        found
    }

    /// Accepts these keys without reading them: which of them are valid depends on a key that is
    /// missing or wrong.
    pub fn accept<'k>(&mut self, keys: impl IntoIterator<Item = &'k str>) {
        self.known.extend(keys.into_iter().map(str::to_owned));
    }

    pub(crate) fn accept_all(&mut self) {
        self.entries();
    }

    /// Rejects an empty array where at least one item is required.
    fn some(&self, key: &str, value: &Spanned<DeValue<'_>>, wanted: &str, problems: &mut Problems) {
        if value.get_ref().as_array().is_some_and(|items| items.is_empty()) {
            problems.wrong(value.span().start, &self.key(key), "an empty array", wanted);
        }
    }

    /// One text or several, at least one.
    pub fn some_texts(&mut self, key: &str, problems: &mut Problems) -> Option<Vec<At<String>>> {
        if let Some(value) = self.value(key) {
            self.some(key, value, "a text, or an array of at least one", problems);
        }
        self.texts(key, problems)
    }

    /// One table or several, at least one.
    pub fn some_sections(&mut self, key: &str, problems: &mut Problems) -> Vec<Section<'d, 'i>> {
        if let Some(value) = self.value(key) {
            self.some(key, value, "a table, or an array of at least one", problems);
        }
        self.sections(key, problems)
    }

    /// One text or several, or none.
    pub fn texts(&mut self, key: &str, problems: &mut Problems) -> Option<Vec<At<String>>> {
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
            let wanted = "a text, or an array of texts";
            problems.wrong_type(value.span().start, &path, value.get_ref(), wanted);
        }
        texts
    }

    /// A table inside this one.
    pub fn section(&mut self, key: &str, problems: &mut Problems) -> Option<Section<'d, 'i>> {
        let wanted = format!("a table, [{}]", self.key(key));
        self.section_as(key, &wanted, problems)
    }

    /// The same with its own description for errors.
    pub fn section_as(
        &mut self,
        key: &str,
        wanted: &str,
        problems: &mut Problems,
    ) -> Option<Section<'d, 'i>> {
        let value = self.value(key)?;
        Self::of(&self.key(key), value, wanted, problems)
    }

    /// A table inside this one that must be there.
    pub fn needed_section(&mut self, key: &str, problems: &mut Problems) -> Option<Section<'d, 'i>> {
        let section = self.section(key, problems);
        if section.is_none() && !self.has(key) {
            self.missing.push((key.to_owned(), Problem::MissingTable(self.key(key))));
        }
        section
    }

    /// One table, or an array of tables.
    pub fn sections(&mut self, key: &str, problems: &mut Problems) -> Vec<Section<'d, 'i>> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let path = self.key(key);
        let wanted = format!("a table, [[{path}]]");
        match value.get_ref() {
            DeValue::Array(items) => {
                items.iter().filter_map(|item| Self::of(&path, item, &wanted, problems)).collect()
            }
            _ => Self::of(&path, value, &wanted, problems).into_iter().collect(),
        }
    }

    /// A value that must be a table.
    pub fn of(
        path: &str,
        value: &'d Spanned<DeValue<'i>>,
        wanted: &str,
        problems: &mut Problems,
    ) -> Option<Self> {
        match value.get_ref() {
            DeValue::Table(table) => Some(Section::new(path, value.span().start, table)),
            other => {
                problems.wrong_type(value.span().start, path, other, wanted);
                None
            }
        }
    }

    /// Reports unknown and missing keys.
    fn finish(self, problems: &mut Problems) {
        let mut meant: BTreeSet<String> = BTreeSet::new();
        for (name, value) in self.table {
            let written = name.get_ref().as_ref();
            if self.known.contains(written) {
                continue;
            }
            // A short name is not similar to others, but one that is missing is probably meant.
            let missing = || self.missing.iter().map(|(key, _)| key.as_str());
            let near = nearest(written, self.known.iter().map(String::as_str))
                .or_else(|| missing().find(|key| is_one_edit(written, key)));
            meant.extend(near.map(str::to_owned));
            let (key, nearest) = (self.key(&bare(written)), near.map(|near| Text::from(self.key(near))));
            let is_table = match value.get_ref() {
                DeValue::Table(_) => true,
                DeValue::Array(items) => items.iter().any(|item| item.get_ref().is_table()),
                _ => false,
            };
            let problem = if is_table {
                Problem::UnknownTable { table: key, nearest }
            } else {
                let elsewhere = || (self.elsewhere)(written).map(Into::into);
                Problem::UnknownKey { key, nearest: nearest.or_else(elsewhere) }
            };
            problems.add(name.span().start, problem);
        }
        for (key, problem) in self.missing {
            if !meant.contains(key.as_str()) {
                problems.add(self.at, problem);
            }
        }
    }
}
