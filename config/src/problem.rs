//! The errors of a file, each with its position and a remedy. A file is checked completely: all its
//! problems are reported at once.

use crate::name::nearest;
use serde::{Serialize, Serializer};
use std::borrow::Cow;

/// Why a file of this format, or a built-in text, cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// There is no built-in text of that name.
    #[error(
        "there is no built-in {kind} {name:?}{} The built-in ones are {}; a path has a '/' or ends in .toml",
        or_meant(.name, .built_in),
        .built_in.join(", ")
    )]
    Unknown {
        /// The kind of text, such as a profile.
        kind: &'static str,
        /// The name given.
        name: String,
        /// The existing names.
        built_in: Vec<&'static str>,
    },
    /// The file cannot be read.
    #[error("{path}: {reason}")]
    Unreadable {
        path: String,
        /// The operating system's error, or that it is not text or too long.
        reason: String,
    },
    /// The text has problems.
    #[error("{}", listed(.origin, .problems))]
    Refused {
        /// The origin of the text, such as its path.
        origin: String,
        /// All problems, in the order of the file. Never empty.
        problems: Vec<PlacedProblem>,
    },
}

/// A problem and its position. As JSON, the problem is its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlacedProblem {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    #[serde(rename = "text", serialize_with = "as_text")]
    pub problem: Problem,
}

fn as_text<S: Serializer>(problem: &Problem, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(problem)
}

impl FileError {
    /// The problems of a text. None if it could not be read at all: the error says why.
    pub fn problems(&self) -> &[PlacedProblem] {
        match self {
            Self::Refused { problems, .. } => problems,
            Self::Unknown { .. } | Self::Unreadable { .. } => &[],
        }
    }
}

/// A name, possibly from a file.
pub type Text = Cow<'static, str>;

/// What is wrong. `key` is a full path such as `lease.duration`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Not TOML, with the parser's message.
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
        /// The probable intention.
        nearest: Option<Text>,
    },
    /// No such table.
    #[error("unknown table [{table}]{}", did_you_mean_table(.nearest.as_deref()))]
    UnknownTable {
        /// As written.
        table: String,
        /// The probable intention.
        nearest: Option<Text>,
    },
    /// A required key is missing.
    #[error("missing key {key}, {wanted}")]
    MissingKey {
        key: Text,
        /// Its required value.
        wanted: String,
    },
    /// A required table is missing.
    #[error("missing table [{0}]")]
    MissingTable(String),
    /// A value of another type.
    #[error("{key} is {found}, but must be {wanted}")]
    WrongType {
        /// The key or table.
        key: Text,
        /// The actual value.
        found: String,
        /// The required value.
        wanted: String,
    },
    /// A text that its parser refuses, and why.
    #[error("{0}: {1}")]
    Invalid(Text, String),
    /// A text that is not among the key's choices.
    #[error(
        "{key} is {found:?}, but must be one of {}{}",
        .options.join(", "),
        did_you_mean(.nearest.as_deref())
    )]
    Choice {
        key: Text,
        /// The value.
        found: String,
        /// The choices.
        options: Vec<Text>,
        /// The probable intention.
        nearest: Option<Text>,
    },
    /// A value that is too small or too large.
    #[error("{key} is {found}, but must lie in {low}..={high}")]
    Bounds {
        key: Text,
        /// The value.
        found: String,
        /// The minimum.
        low: String,
        /// The maximum.
        high: String,
    },
    /// A key that does not apply with the current value of another.
    #[error("{key} applies only with {other} = {needed:?}; remove it, or change {other}")]
    Inapplicable {
        key: &'static str,
        /// The key that it depends on.
        other: &'static str,
        /// The required value of the other key.
        needed: &'static str,
    },
    /// Values that are valid individually but not together.
    #[error("{rule}; here {found}")]
    Conflict {
        /// The violated rule and its reason.
        rule: &'static str,
        /// The violation.
        found: String,
    },
    /// A problem that only one kind of file has, as text.
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

/// A line for each problem:
/// `profiles/mine.toml:12:1: unknown key lease.durration; did you mean lease.duration?`
fn listed(origin: &str, problems: &[PlacedProblem]) -> String {
    let line = |PlacedProblem { line, column, problem }: &PlacedProblem| {
        format!("{origin}:{line}:{column}: {problem}")
    };
    problems.iter().map(line).collect::<Vec<_>>().join("\n")
}
