//! What a list shows: words that must be there, words that must not, and labels.
//!
//! `app` keeps rows that hold "app"; `!app` those that do not; `-l kind=agent` those whose label `kind` starts with
//! "agent". Several words must all hold. Case does not matter.

/// A filter as it was typed, and what it means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    text: String,
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    inverse: bool,
    label: Option<String>,
    word: String,
}

impl Filter {
    /// Understands any text; an empty one keeps everything.
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
            let word = word.to_lowercase();
            let (label, word) = match word.split_once('=') {
                Some((label, value)) if labelled => (Some(label.to_owned()), value.to_owned()),
                _ => (None, word),
            };
            labelled = false;
            if !word.is_empty() {
                terms.push(Term { inverse, label, word });
            }
        }
        Self { text: text.trim().to_owned(), terms }
    }

    /// What was typed.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether it keeps everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether a row with these labels is kept. A word is looked for in all of them.
    pub(crate) fn keeps(&self, labels: &[(&str, &str)]) -> bool {
        self.terms.iter().all(|term| {
            let found = labels.iter().any(|(label, value)| match &term.label {
                Some(wanted) => label == wanted && value.to_lowercase().starts_with(&term.word),
                None => value.to_lowercase().contains(&term.word),
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
    }
}
