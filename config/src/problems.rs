//! The problems of a text, and where they are.

use crate::problem::{FileError, PlacedProblem, Problem};
use crate::value::found;
use std::ops::Range;
use toml::de::DeValue;

/// The problems of a text, each with its byte offset.
#[derive(Debug, Default)]
pub struct Problems {
    found: Vec<(usize, Problem)>,
    /// What the syntax errors may affect.
    shadows: Vec<Range<usize>>,
}

impl Problems {
    /// Adds a syntax error.
    pub(crate) fn syntax(&mut self, text: &str, at: usize, message: String) {
        self.shadows.push(shadow(text, at));
        self.add(at, Problem::Syntax(message));
    }

    pub fn add(&mut self, at: usize, problem: Problem) {
        self.found.push((at, problem));
    }

    /// Adds one that only this kind of file has.
    pub fn other(&mut self, at: usize, problem: impl Into<String>) {
        self.add(at, Problem::Other(problem.into()));
    }

    /// Adds a value of another type than `wanted`.
    pub fn wrong_type(&mut self, at: usize, key: &str, value: &DeValue<'_>, wanted: impl Into<String>) {
        self.wrong(at, key, found(value), wanted);
    }

    /// Adds a value that is `found`, but must be `wanted`.
    pub fn wrong(&mut self, at: usize, key: &str, found: impl Into<String>, wanted: impl Into<String>) {
        let (key, found, wanted) = (key.to_owned().into(), found.into(), wanted.into());
        self.add(at, Problem::WrongType { key, found, wanted });
    }

    /// Adds a missing key.
    pub fn missing(&mut self, at: usize, key: &str, wanted: impl Into<String>) {
        self.add(at, Problem::MissingKey { key: key.to_owned().into(), wanted: wanted.into() });
    }

    /// The value, or `None` and its problem added.
    pub fn take<T>(&mut self, at: usize, read: Result<T, Problem>) -> Option<T> {
        read.map_err(|problem| self.add(at, problem)).ok()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.found.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Whether the text has syntax errors: keys may lack that were written.
    pub fn has_syntax(&self) -> bool {
        !self.shadows.is_empty()
    }

    /// The result if there is no problem, otherwise all problems in the order of the text, and what is
    /// missing after the others.
    pub(crate) fn judge<T>(mut self, read: Option<T>, text: &str, origin: &str) -> Result<T, FileError> {
        if let Some(read) = read.filter(|_| self.is_empty()) {
            return Ok(read);
        }
        let lacks =
            |problem: &Problem| matches!(problem, Problem::MissingKey { .. } | Problem::MissingTable(_));
        if self.found.iter().any(|(_, problem)| matches!(problem, Problem::Schema { .. })) {
            // Other apparent problems may be valid in that schema.
            self.found.retain(|(_, problem)| matches!(problem, Problem::Schema { .. }));
        } else if self.has_syntax() {
            let follows = |at: &usize| self.shadows.iter().any(|shadow| shadow.contains(at));
            self.found.retain(|(at, problem)| {
                matches!(problem, Problem::Syntax(_)) || !(lacks(problem) || follows(at))
            });
        }
        // What is missing may be there under a name with a mistake, which is a problem of its own.
        self.found.sort_by_key(|(at, problem)| (lacks(problem), *at));
        let problems =
            self.found.into_iter().map(|(at, problem)| PlacedProblem::at(text, at, problem)).collect();
        Err(FileError::Refused { origin: origin.to_owned(), problems })
    }
}

impl PlacedProblem {
    /// A problem at a byte offset of its text.
    pub fn at(text: &str, at: usize, problem: Problem) -> Self {
        let (line, column) = place(text, at);
        Self { line, column, problem }
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
fn shadow(text: &str, at: usize) -> Range<usize> {
    let start = text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |newline| newline + 1);
    let rest = text.get(at..).unwrap_or("");
    let lines = rest.match_indices('\n').map(|(newline, _)| newline + 1);
    let next = lines.into_iter().find(|line| rest[*line..].trim_start_matches([' ', '\t']).starts_with('['));
    start..next.map_or(usize::MAX, |line| at + line)
}
