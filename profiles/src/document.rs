//! The common part of all files of this format: errors with line and column, values with bounds,
//! and the nearest known name for a wrong one.

use crate::error::{Fault, FileError, Problem};
use crate::{duration, file};
use obol_fabric::Nanos;
use std::borrow::Cow;
use std::path::Path;
use toml::de::DeValue;

/// The size limit of a file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Whether a name, of a built-in text or a file, is a path.
fn is_path(name_or_path: &str) -> bool {
    name_or_path.contains('/') || name_or_path.ends_with(".toml")
}

/// The built-in texts of one kind.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn {
    /// The kind, in the singular, such as profile.
    pub kind: &'static str,
    /// Their folder in the sources.
    pub folder: &'static str,
    /// Each name and its text.
    pub texts: &'static [(&'static str, &'static str)],
}

/// The names of these texts.
pub(crate) const fn names<const N: usize>(texts: &[(&'static str, &'static str); N]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut n = 0;
    while n < N {
        names[n] = texts[n].0;
        n += 1;
    }
    names
}

impl BuiltIn {
    /// The text of this name, and its origin for errors.
    pub fn text(&self, name: &str) -> Result<(&'static str, String), FileError> {
        match self.texts.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => Ok((text, format!("{}/{name}.toml", self.folder))),
            None => Err(FileError::Unknown {
                kind: self.kind,
                name: name.to_owned(),
                built_in: self.texts.iter().map(|(known, _)| *known).collect(),
            }),
        }
    }

    /// The text of this name or, if it has a `/` or ends in `.toml`, of this file; and its origin
    /// for errors.
    pub fn load(&self, name_or_path: &str) -> Result<(Cow<'static, str>, String), FileError> {
        if !is_path(name_or_path) {
            return self.text(name_or_path).map(|(text, origin)| (text.into(), origin));
        }
        let path = name_or_path.to_owned();
        match text(&path, self.kind) {
            Ok(text) => Ok((text.into(), path)),
            Err(reason) => Err(FileError::Unreadable { path, reason }),
        }
    }
}

/// The text of a file that should be a `kind`, or the reason why it cannot be read.
pub fn text(path: impl AsRef<Path>, kind: &str) -> Result<String, String> {
    file::text(path.as_ref(), FILE_BYTES_MAX, kind).map_err(|error| error.to_string())
}

/// The faults of a text, each with its byte offset.
#[derive(Debug, Default)]
pub struct Faults(Vec<(usize, Fault)>);

impl Faults {
    /// Adds one.
    pub fn add(&mut self, at: usize, fault: Fault) {
        self.0.push((at, fault));
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces faults that may be consequences of a syntax error by the syntax errors themselves.
    pub fn with_syntax(&mut self, text: &str, errors: &[toml::de::Error]) {
        let at = |error: &toml::de::Error| error.span().map_or(0, |span| span.start);
        let shadows: Vec<_> = errors.iter().map(|error| shadow(text, at(error))).collect();
        self.0.retain(|(at, _)| !shadows.iter().any(|shadow| shadow.contains(at)));
        self.0.extend(
            errors.iter().map(|error| (at(error), Fault::Syntax(error.message().replace('\n', ", ")))),
        );
    }

    /// The result if there is no fault, otherwise all faults in the order of the text, and what is missing
    /// after the others.
    pub fn judge<T>(mut self, read: Option<T>, text: &str, origin: &str) -> Result<T, FileError> {
        if let Some(read) = read.filter(|_| self.0.is_empty()) {
            return Ok(read);
        }
        // What is missing may be there under a name with a mistake, which is a fault of its own.
        let lacks = |fault: &Fault| matches!(fault, Fault::MissingKey { .. } | Fault::MissingTable(_));
        self.0.sort_by_key(|(at, fault)| (lacks(fault), *at));
        let placed = |(at, fault)| {
            let (line, column) = place(text, at);
            Problem { line, column, fault }
        };
        let problems = self.0.into_iter().map(placed).collect();
        Err(FileError::Refused { origin: origin.to_owned(), problems })
    }
}

/// The line of a byte offset, from 1.
pub fn line(text: &str, at: usize) -> usize {
    place(text, at).0
}

/// Line and column of a byte offset, both from 1; columns count characters.
fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// The range that a syntax error at this byte may affect: from its line to the next table header.
fn shadow(text: &str, at: usize) -> std::ops::Range<usize> {
    let start = text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |newline| newline + 1);
    let rest = text.get(at..).unwrap_or("");
    let lines = rest.match_indices('\n').map(|(newline, _)| newline + 1);
    let next = lines.into_iter().find(|line| rest[*line..].trim_start_matches([' ', '\t']).starts_with('['));
    start..next.map_or(usize::MAX, |line| at + line)
}

/// A value's description for an error: its type, and the value if that is short.
pub fn found(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("the string {:?}", shortened(text)),
        DeValue::Integer(number) => format!("the integer {}", shortened(&number.to_string())),
        DeValue::Float(number) => format!("the float {}", shortened(&number.to_string())),
        DeValue::Boolean(flag) => format!("the boolean {flag}"),
        DeValue::Datetime(_) => "a date or time".to_owned(),
        DeValue::Array(_) => "an array".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// The duration in a value; `None` if it has another type.
pub fn span(key: &str, value: &DeValue<'_>, (low, high): (Nanos, Nanos)) -> Option<Result<Nanos, Fault>> {
    let span = match duration::parse(value.as_str()?) {
        Ok(span) => span,
        Err(error) => return Some(Err(Fault::Duration(key.to_owned().into(), error))),
    };
    if (low..=high).contains(&span) {
        return Some(Ok(span));
    }
    let [found, low, high] = [span, low, high].map(duration::print);
    Some(Err(Fault::Bounds { key: key.to_owned().into(), found, low, high }))
}

/// The whole number in a value; `None` if it has another type.
pub fn number(key: &str, value: &DeValue<'_>, (low, high): (u32, u32)) -> Option<Result<u32, Fault>> {
    let written = value.as_integer()?;
    let number = to_u32(value).filter(|number| (low..=high).contains(number));
    Some(number.ok_or_else(|| Fault::Bounds {
        key: key.to_owned().into(),
        found: shortened(&written.to_string()),
        low: low.to_string(),
        high: high.to_string(),
    }))
}

pub(crate) fn to_u32(value: &DeValue<'_>) -> Option<u32> {
    let written = value.as_integer()?;
    u32::from_str_radix(written.as_str(), written.radix()).ok()
}

/// A key in TOML: bare, or quoted if necessary.
pub fn bare(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let short = shortened(name);
    if !name.is_empty() && name.chars().all(plain) { short } else { format!("{short:?}") }
}

/// The maximum length of file contents quoted in an error.
const QUOTE_CHARS_MAX: usize = 40;

/// User text, shortened for an error.
pub fn shortened(text: &str) -> String {
    match text.char_indices().nth(QUOTE_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// The maximum edit distance of a suggested name.
const DISTANCE_MAX: usize = 3;

/// The candidate most similar to `given`, if one is similar enough: at most `DISTANCE_MAX` edits,
/// and fewer than half of the name, as otherwise any short name would match.
pub fn nearest<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(given, name), name))
        .filter(|(distance, name)| *distance <= DISTANCE_MAX && distance * 2 < name.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}
