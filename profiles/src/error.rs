//! What can be wrong with a file, each with its place in the file and what to do next. A file is
//! judged to its end: all its faults are told at once.

use crate::document::nearest;
use crate::duration::DurationError;
use obol_fabric::layout::LimitError;
use obol_fabric::types::NameError;
use std::borrow::Cow;

/// Why a file of this format, or a text of it that is built in, can not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// Nothing of that name is built in.
    #[error(
        "no {kind} {name:?} is built in{} Built in are {}; a path has a '/' or ends in .toml",
        or_meant(.name, .built_in),
        .built_in.join(", ")
    )]
    Unknown {
        /// What was asked for, such as a profile.
        kind: &'static str,
        /// The name given.
        name: String,
        /// The names that there are.
        built_in: Vec<&'static str>,
    },
    /// The file can not be read.
    #[error("{path}: {reason}")]
    Unreadable {
        /// Its path.
        path: String,
        /// What the operating system says, or that it is no text or too long.
        reason: String,
    },
    /// The text was read and has faults.
    #[error("{}", listed(.origin, .problems))]
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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Not TOML, in the words of its parser.
    #[error("syntax: {0}")]
    Syntax(String),
    /// The file follows a schema that this program does not know.
    #[error(
        "schema is {found}, but this obol reads schema {known} only; take the obol that the file was \
         written for, or rewrite it for schema {known}"
    )]
    Schema {
        /// The schema that it names.
        found: String,
        /// The schema that this program reads.
        known: u32,
    },
    /// No such key.
    #[error("unknown key {key}{}", did_you_mean(.nearest.as_deref()))]
    UnknownKey {
        /// As written.
        key: String,
        /// What was probably meant.
        nearest: Option<Text>,
    },
    /// No such table.
    #[error("unknown table [{table}]{}", did_you_mean_table(.nearest.as_deref()))]
    UnknownTable {
        /// As written.
        table: String,
        /// What was probably meant.
        nearest: Option<Text>,
    },
    /// A key that must be there is not.
    #[error("missing key {key}, {wanted}")]
    MissingKey {
        /// Which.
        key: Text,
        /// What it wants to be.
        wanted: String,
    },
    /// A table that must be there is not.
    #[error("missing table [{0}]")]
    MissingTable(&'static str),
    /// A value of another type.
    #[error("{key} is {found}, but must be {wanted}")]
    WrongType {
        /// Which key or table.
        key: Text,
        /// What is there.
        found: String,
        /// What must be there.
        wanted: String,
    },
    /// A text that is no duration.
    #[error("{0}: {1}")]
    Duration(Text, DurationError),
    /// A text that is no name.
    #[error("{0}: {1}")]
    Name(Text, NameError),
    /// A text that is none of those that the key takes.
    #[error(
        "{key} is {found:?}, but must be one of {}{}",
        .options.join(", "),
        did_you_mean(.nearest.as_deref())
    )]
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
    #[error("{key} is {found}, but must lie in {low}..={high}")]
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
    #[error(transparent)]
    Limit(LimitError),
    /// A key that means nothing beside the value of another.
    #[error("{key} means something only with {other} = {needed:?}; remove it, or change {other}")]
    Inapplicable {
        /// Which key.
        key: &'static str,
        /// The key that it depends on.
        other: &'static str,
        /// The value that the other key would need.
        needed: &'static str,
    },
    /// Values that are fine each by itself and do not work together.
    #[error("{rule}; here {found}")]
    Conflict {
        /// The rule that they break and its reason.
        rule: &'static str,
        /// What the values make.
        found: String,
    },
    /// What only one kind of file has, in words.
    #[error("{0}")]
    Other(String),
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or(String::new(), |name| format!("; did you mean {name}?"))
}

fn did_you_mean_table(nearest: Option<&str>) -> String {
    nearest.map_or(String::new(), |name| format!("; did you mean [{name}]?"))
}

fn or_meant(name: &str, built_in: &[&str]) -> String {
    nearest(name, built_in.iter().copied()).map_or(".".to_owned(), |name| did_you_mean(Some(name)))
}

/// A line for each fault:
/// `profiles/mine.toml:12:1: unknown key lease.durration; did you mean lease.duration?`
fn listed(origin: &str, problems: &[Problem]) -> String {
    let line = |Problem { line, column, fault }: &Problem| format!("{origin}:{line}:{column}: {fault}");
    problems.iter().map(line).collect::<Vec<_>>().join("\n")
}
