//! Filters of lists: required words, excluded words, and labels.
//!
//! `app` keeps rows that contain "app"; `!app` those that do not; `-l kind=agent` those whose label
//! `kind` starts with "agent"; `~^app-[12]$` those with a label that matches the regular
//! expression, `-l name=~^app` those whose `name` matches. All terms must match, ignoring case.

use regex_lite::{Regex, RegexBuilder};

/// A filter as typed and as parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    text: String,
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    inverse: bool,
    label: Option<String>,
    word: Word,
}

/// What is searched for.
#[derive(Clone, Debug)]
enum Word {
    Text(String),
    Pattern(Regex),
}

impl PartialEq for Word {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::Pattern(a), Self::Pattern(b)) => a.as_str() == b.as_str(),
            _ => false,
        }
    }
}

impl Eq for Word {}

/// Larger compiled patterns are rejected.
const PATTERN_BYTES_MAX: usize = 64 << 10;

impl Word {
    /// Parses any word: an invalid (perhaps unfinished) pattern is searched for literally.
    fn new(word: &str) -> Self {
        let pattern = word.strip_prefix('~').filter(|pattern| !pattern.is_empty()).and_then(|pattern| {
            RegexBuilder::new(pattern).case_insensitive(true).size_limit(PATTERN_BYTES_MAX).build().ok()
        });
        pattern.map_or_else(|| Self::Text(word.trim_start_matches('~').to_lowercase()), Self::Pattern)
    }

    fn is_empty(&self) -> bool {
        matches!(self, Self::Text(text) if text.is_empty())
    }
}

impl Filter {
    /// Keeps everything.
    pub(crate) const fn none() -> Self {
        Self { text: String::new(), terms: Vec::new() }
    }

    /// Parses any text; an empty one keeps everything.
    pub(crate) fn new(text: &str) -> Self {
        let mut terms = Vec::new();
        let mut labelled = false;
        for word in text.split_whitespace() {
            if word == "-l" {
                labelled = true;
                continue;
            }
            let (inverse, word) = match word.strip_prefix('!') {
                Some(rest) => (true, rest),
                None => (false, word),
            };
            let (label, word) = match word.split_once('=') {
                // The former name of that label.
                Some(("level", value)) if labelled => (Some("detector".to_owned()), value),
                Some((label, value)) if labelled => (Some(label.to_lowercase()), value),
                _ => (None, word),
            };
            let word = Word::new(word);
            labelled = false;
            if !word.is_empty() {
                terms.push(Term { inverse, label, word });
            }
        }
        Self { text: text.trim().to_owned(), terms }
    }

    /// The typed text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether it keeps everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether a row with these labels is kept. A word is searched for in all of them.
    pub(crate) fn keeps(&self, labels: &[(&str, &str)]) -> bool {
        self.terms.iter().all(|term| {
            let found = labels.iter().any(|(label, value)| match (&term.label, &term.word) {
                (Some(wanted), _) if label != wanted => false,
                (_, Word::Pattern(pattern)) => pattern.is_match(value),
                (Some(_), Word::Text(text)) => value.to_lowercase().starts_with(text),
                (None, Word::Text(text)) => value.to_lowercase().contains(text),
            });
            found != term.inverse
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_keeps_what_it_says() {
        let row = [("name", "app-2"), ("kind", "app"), ("state", "Frozen")];
        let keeps = |text| Filter::new(text).keeps(&row);
        assert!(keeps(""));
        assert!(keeps("APP"));
        assert!(keeps("app frozen"));
        assert!(!keeps("app down"));
        assert!(!keeps("!frozen"));
        assert!(keeps("!down"));
        assert!(keeps("-l kind=app"));
        assert!(!keeps("-l kind=agent"));
        assert!(!keeps("-l name=frozen"));
        assert!(keeps("-l !kind=agent"));
        assert!(keeps("!"), "an unfinished word does not hide everything");
        assert!(keeps("~^APP-[12]$"));
        assert!(!keeps("~^pp"));
        assert!(keeps("!~^pp"));
        assert!(keeps("-l name=~2$ -l kind=app"));
        assert!(!keeps("-l kind=~2$"));
        assert!(keeps("~") && keeps("-l name=~"), "an unfinished pattern does not either");
        assert!(!keeps("~app-["), "what is not a pattern is looked for as it stands");
        let event = [("event", "notice"), ("detector", "deadbeat")];
        assert!(["-l detector=dead", "-l level=dead"].iter().all(|text| Filter::new(text).keeps(&event)));
    }
}
