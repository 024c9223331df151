//! What can be wrong with a file, each with its place in the file and what to do next. A file is
//! judged to its end: all its faults are told at once.

use crate::document::nearest;
use crate::duration::DurationError;
use core::fmt;
use obol_fabric::layout::LimitError;
use obol_fabric::types::NameError;
use std::borrow::Cow;

/// Why a file of this format, or a text of it that is built in, can not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileError {
    /// Nothing of that name is built in.
    Unknown {
        /// What was asked for, such as a profile.
        kind: &'static str,
        /// The name given.
        name: String,
        /// The names that there are.
        built_in: Vec<&'static str>,
    },
    /// The file can not be read.
    Unreadable {
        /// Its path.
        path: String,
        /// What the operating system says, or that it is no text or too long.
        reason: String,
    },
    /// The text was read and has faults.
    Refused {
        /// Where the text is from, such as its path.
        origin: String,
        /// All faults, in the order of the file. Never empty.
        problems: Vec<Problem>,
    },
}

/// One fault and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub fault: Fault,
}

/// A name that may come from a file.
pub type Text = Cow<'static, str>;

/// What is wrong. `key` is a full path such as `lease.duration`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Not TOML, in the words of its parser.
    Syntax(String),
    /// The file follows a schema that this program does not know.
    Schema {
        /// The schema that it names.
        found: String,
        /// The schema that this program reads.
        known: u32,
    },
    /// No such key.
    UnknownKey {
        /// As written.
        key: String,
        /// What was probably meant.
        nearest: Option<Text>,
    },
    /// No such table.
    UnknownTable {
        /// As written.
        table: String,
        /// What was probably meant.
        nearest: Option<Text>,
    },
    /// A key that must be there is not.
    MissingKey {
        /// Which.
        key: Text,
        /// What it wants to be.
        wanted: String,
    },
    /// A table that must be there is not.
    MissingTable(&'static str),
    /// A value of another type.
    WrongType {
        /// Which key or table.
        key: Text,
        /// What is there.
        found: String,
        /// What must be there.
        wanted: String,
    },
    /// A text that is no duration.
    Duration(Text, DurationError),
    /// A text that is no name.
    Name(Text, NameError),
    /// A text that is none of those that the key takes.
    Choice {
        /// Which key.
        key: Text,
        /// The value.
        found: String,
        /// What it takes.
        options: Vec<Text>,
        /// What was probably meant.
        nearest: Option<Text>,
    },
    /// A value that is too small or too large.
    Bounds {
        /// Which key.
        key: Text,
        /// The value.
        found: String,
        /// The smallest that works.
        low: String,
        /// The largest that works.
        high: String,
    },
    /// A limit that the layout of a region does not allow.
    Limit(LimitError),
    /// A key that means nothing beside the value of another.
    Inapplicable {
        /// Which key.
        key: &'static str,
        /// The key that it depends on.
        other: &'static str,
        /// The value that the other key would need.
        needed: &'static str,
    },
    /// Values that are fine each by itself and do not work together.
    Conflict {
        /// The rule that they break and its reason.
        rule: &'static str,
        /// What the values make.
        found: String,
    },
    /// What only one kind of file has, in words.
    Other(String),
}

struct DidYouMean<'a>(Option<&'a str>);

impl fmt::Display for DidYouMean<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |name| write!(f, "; did you mean {name}?"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(text) => write!(f, "syntax: {text}"),
            Self::Schema { found, known } => write!(
                f,
                "schema is {found}, but this obol reads schema {known} only; take the obol that the file was \
                 written for, or rewrite it for schema {known}"
            ),
            Self::UnknownKey { key, nearest } => {
                write!(f, "unknown key {key}{}", DidYouMean(nearest.as_deref()))
            }
            Self::UnknownTable { table, nearest: None } => write!(f, "unknown table [{table}]"),
            Self::UnknownTable { table, nearest: Some(nearest) } => {
                write!(f, "unknown table [{table}]; did you mean [{nearest}]?")
            }
            Self::MissingKey { key, wanted } => write!(f, "missing key {key}, {wanted}"),
            Self::MissingTable(table) => write!(f, "missing table [{table}]"),
            Self::WrongType { key, found, wanted } => write!(f, "{key} is {found}, but must be {wanted}"),
            Self::Duration(key, error) => write!(f, "{key}: {error}"),
            Self::Name(key, error) => write!(f, "{key}: {error}"),
            Self::Choice { key, found, options, nearest } => write!(
                f,
                "{key} is {found:?}, but must be one of {}{}",
                options.join(", "),
                DidYouMean(nearest.as_deref())
            ),
            Self::Bounds { key, found, low, high } => {
                write!(f, "{key} is {found}, but must lie in {low}..={high}")
            }
            Self::Limit(error) => error.fmt(f),
            Self::Inapplicable { key, other, needed } => write!(
                f,
                "{key} means something only with {other} = {needed:?}; remove it, or change {other}"
            ),
            Self::Conflict { rule, found } => write!(f, "{rule}; here {found}"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// A line for each fault:
/// `profiles/mine.toml:12:1: unknown key lease.durration; did you mean lease.duration?`
impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { kind, name, built_in } => write!(
                f,
                "no {kind} {name:?} is built in{} Built in are {}; a path has a '/' or ends in .toml",
                nearest(name, built_in.iter().copied())
                    .map_or(".".to_owned(), |name| format!("; did you mean {name}?")),
                built_in.join(", "),
            ),
            Self::Unreadable { path, reason } => write!(f, "{path}: {reason}"),
            Self::Refused { origin, problems } => {
                for (n, Problem { line, column, fault }) in problems.iter().enumerate() {
                    let newline = if n > 0 { "\n" } else { "" };
                    write!(f, "{newline}{origin}:{line}:{column}: {fault}")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for FileError {}
