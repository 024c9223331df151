//! A line of a log, and its two forms: text and JSON.
//!
//! ```text
//! 2026-11-25T02:14:07.120394811Z warn  node-2  membership  excluded: node-2 (7), by view 8 | view=8 incarnation=7 event=excluded
//! {"time":"2026-11-25T02:14:07.120394811Z","level":"warn","process":"node-2","module":"membership","text":"excluded: ...","view":8,...}
//! ```

use crate::levels::Severity;
use jiff::Timestamp;
use obol_fabric::Name;
use obol_observe::calendar;
use obol_term::plain;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt::Write as _;

/// The longest text of a line, in characters; the rest is cut.
const TEXT_CHARS_MAX: usize = 2000;
/// Between the text and the fields.
const FIELDS: &str = " | ";
/// The format of a time: nanoseconds, as flight recorders have them.
const TIME: &str = "%FT%T.%9fZ";

/// How lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When, in nanoseconds since 1970.
    pub unix: u64,
    /// How much it matters.
    pub severity: Severity,
    /// The process that it is about.
    pub process: Name,
    /// The part of it that wrote it.
    pub module: Cow<'static, str>,
    /// What happened.
    pub text: String,
    /// Names and values for scripts: `view`, `incarnation`, `event`, `who`, ...
    pub fields: Vec<(Cow<'static, str>, String)>,
}

impl Line {
    /// A line without fields.
    pub fn new(
        unix: u64,
        severity: Severity,
        process: Name,
        module: impl Into<Cow<'static, str>>,
        text: impl Into<String>,
    ) -> Self {
        Self { unix, severity, process, module: module.into(), text: text.into(), fields: Vec::new() }
    }

    /// Adds a field.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "numbers and texts are given alike")]
    pub fn with(mut self, name: impl Into<Cow<'static, str>>, value: impl ToString) -> Self {
        self.fields.push((name.into(), value.to_string()));
        self
    }

    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Whether it concerns a process: it is its own line, or names it.
    pub fn is_about(&self, name: &str) -> bool {
        let named = |field| self.field(field) == Some(name);
        // As members are shown, with the incarnation behind the name.
        let said = |(at, _): (usize, &str)| {
            let before = self.text[..at].chars().next_back();
            let after = &self.text[at + name.len()..];
            let ends = after.starts_with(" (")
                || !after.starts_with(|c: char| c.is_ascii_alphanumeric() || "._-".contains(c));
            ends && !before.is_some_and(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        };
        self.process.as_str() == name
            || named("who")
            || named("by")
            || !name.is_empty() && self.text.match_indices(name).any(said)
    }

    /// The text on one line, harmless to a terminal.
    fn shown(&self) -> String {
        let text: String = self.text.chars().take(TEXT_CHARS_MAX).collect();
        plain::line(&text).into_owned()
    }

    /// One line without its end.
    pub fn write(&self, format: Format) -> String {
        match format {
            Format::Text => self.to_text(),
            Format::Json => self.to_json().to_string(),
        }
    }

    pub fn to_text(&self) -> String {
        let Self { unix, severity, process, module, fields, .. } = self;
        let time = calendar::utc(*unix, TIME);
        let mut line = format!("{time} {severity:<5} {process:<10} {module:<10} {}", self.shown());
        for (n, (name, value)) in fields.iter().enumerate() {
            let before = if n == 0 { FIELDS } else { " " };
            // Writing to a string cannot fail.
            let _ = match is_bare(value) {
                true => write!(line, "{before}{name}={value}"),
                // The last separator is the one before the fields.
                false => {
                    let quoted = Value::from(value.as_str()).to_string();
                    write!(line, "{before}{name}={}", quoted.replace('|', "\\u007c"))
                }
            };
        }
        if fields.is_empty() && self.text.contains(FIELDS) {
            line.push_str(FIELDS.trim_end());
        }
        plain::line(&line).into_owned()
    }

    /// As JSON. Values that are numbers become numbers.
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        object.insert("time".to_owned(), calendar::utc(self.unix, TIME).into());
        object.insert("level".to_owned(), self.severity.name().into());
        object.insert("process".to_owned(), self.process.as_str().into());
        object.insert("module".to_owned(), self.module.as_ref().into());
        object.insert("text".to_owned(), self.shown().into());
        for (name, value) in &self.fields {
            // A field cannot replace a part of the line.
            object
                .entry(name.as_ref())
                .or_insert_with(|| number(value).map_or(Value::from(value.as_str()), Value::from));
        }
        Value::Object(object)
    }

    /// Reads a line of either form.
    pub fn parse(line: &str) -> Option<Self> {
        if line.starts_with('{') { Self::of_json(line) } else { Self::of_text(line) }
    }

    fn of_json(line: &str) -> Option<Self> {
        let Value::Object(mut object) = serde_json::from_str(line).ok()? else { return None };
        let mut text = |name: &str| match object.remove(name)? {
            Value::String(text) => Some(text),
            _ => None,
        };
        let unix = unix(&text("time")?)?;
        let severity = text("level")?.parse().ok()?;
        let process = Name::new(&text("process")?).ok()?;
        let module = Cow::Owned(text("module")?);
        let text = text("text")?;
        let value = |value: Value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let fields = object.into_iter().map(|(name, found)| (Cow::Owned(name), value(found))).collect();
        Some(Self { unix, severity, process, module, text, fields })
    }

    fn of_text(line: &str) -> Option<Self> {
        let mut rest = line;
        let mut word = || {
            let (word, after) = rest.trim_start().split_once(' ')?;
            rest = after;
            Some(word)
        };
        let unix = unix(word()?)?;
        let severity = word()?.parse().ok()?;
        let process = Name::new(word()?).ok()?;
        let module = Cow::Owned(word()?.to_owned());
        let rest = rest.trim_start();
        let (text, fields) = match rest.strip_suffix(FIELDS.trim_end()) {
            Some(text) => (text, ""),
            None => rest.rsplit_once(FIELDS).unwrap_or((rest, "")),
        };
        Some(Self { unix, severity, process, module, text: text.to_owned(), fields: fields_of(fields)? })
    }
}

/// The fields behind a line; `None` if the text does not consist of fields.
fn fields_of(mut text: &str) -> Option<Vec<(Cow<'static, str>, String)>> {
    let mut fields = Vec::new();
    while !text.is_empty() {
        let (name, rest) = text.split_once('=')?;
        let value;
        if rest.starts_with('"') {
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<String>();
            value = values.next()?.ok()?;
            text = &rest[values.byte_offset()..];
        } else {
            let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
            value = word.to_owned();
            text = after;
        }
        fields.push((Cow::Owned(name.trim_start().to_owned()), value));
        text = text.trim_start();
    }
    Some(fields)
}

/// Whether a value needs no quotes.
fn is_bare(value: &str) -> bool {
    !value.is_empty() && value.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '"' | '=' | '|' | '\\'))
}

/// A number that is written as it would be printed.
fn number(value: &str) -> Option<u64> {
    value.parse::<u64>().ok().filter(|number| number.to_string() == value)
}

fn unix(time: &str) -> Option<u64> {
    u64::try_from(time.parse::<Timestamp>().ok()?.as_nanosecond()).ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn line(text: &str) -> Line {
        let process = Name::new("node-2").expect("a name");
        Line::new(1_795_572_847_120_394_811, Severity::Warn, process, "membership", text)
    }

    #[test]
    fn a_line_is_read_back_from_both_forms() {
        let lines = [
            line("excluded: node-2 (7), by view 8")
                .with("view", 8)
                .with("incarnation", 7)
                .with("event", "excluded"),
            line("plain"),
            line("a | b"),
            line("a | b").with("path", "/tmp/a b").with("empty", "").with("quote", "x\"y=z | \\"),
        ];
        for line in lines {
            for format in [Format::Text, Format::Json] {
                let written = line.write(format);
                let mut read = Line::parse(&written).expect("read");
                let mut wanted = line.clone();
                // JSON has no order.
                read.fields.sort();
                wanted.fields.sort();
                assert_eq!(read, wanted, "{written}");
            }
        }
    }

    #[test]
    fn a_line_is_one_line_and_harmless() {
        let hostile = line("a\nb\x1b[2J").with("c", "d\r\ne");
        for format in [Format::Text, Format::Json] {
            let written = hostile.write(format);
            assert!(!written.chars().any(plain::is_hostile), "{written:?}");
        }
        assert!(line(&"x".repeat(5000)).to_text().len() < 2200);
    }

    #[test]
    fn other_text_is_no_line() {
        for text in ["", "obol: something", "{}", "{\"time\":1}", "2026-11-25T02:14:07Z", "2026 info a b c"] {
            assert_eq!(Line::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_line_is_about_its_process_and_those_that_it_names() {
        let said = Line { process: Name::new("coord-1").expect("a name"), ..line("node-2 (7) failed") };
        assert!(said.is_about("coord-1") && said.is_about("node-2"));
        assert!(!said.is_about("node") && !said.is_about("node-21") && !said.is_about("de-2"));
        let named = Line { text: "suspect".to_owned(), ..said }.with("who", "app-2");
        assert!(named.is_about("app-2") && !named.is_about("node-2"));
    }
}
