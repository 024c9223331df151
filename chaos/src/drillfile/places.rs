//! Lines of a drill file's tables, for tools that annotate the file.

use obol_config::line;
use toml::de::{DeTable, DeValue};

/// Lines, from 1, of the tables of a valid drill file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The line of `[drill]`.
    pub drill: usize,
    expect: Vec<usize>,
    steady: Vec<usize>,
    step: Vec<usize>,
}

impl Places {
    /// Finds them in a text.
    pub fn of(text: &str) -> Self {
        let (document, _) = DeTable::parse_recoverable(text);
        let tables = |name: &str| -> Vec<usize> {
            let table = document.get_ref().iter().find(|(key, _)| key.get_ref() == name);
            let Some((_, value)) = table else { return Vec::new() };
            match value.get_ref() {
                DeValue::Array(items) => items.iter().map(|item| line(text, item.span().start)).collect(),
                _ => vec![line(text, value.span().start)],
            }
        };
        Self {
            drill: tables("drill").first().copied().unwrap_or(1),
            expect: tables("expect"),
            steady: tables("steady"),
            step: tables("step"),
        }
    }

    /// The line of the bound with this index.
    pub fn expect(&self, at: usize) -> usize {
        self.expect.get(at).copied().unwrap_or(self.drill)
    }

    /// The line of the steady state with this index.
    pub fn steady(&self, at: usize) -> usize {
        self.steady.get(at).copied().unwrap_or(self.drill)
    }

    /// The line of the step with this index.
    pub fn step(&self, at: usize) -> usize {
        self.step.get(at).copied().unwrap_or(self.drill)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_found_in_either_form() {
        let text = "steady = [{ probe = \"a\" },\n  { probe = \"b\" }]\n# x\n[drill]\nid = \"a\"\n\n[[expect]]\nmetric = \"x\"\n[[expect]]\nmetric = \"y\"\n[[step]]\nname = \"s\"\n";
        let places = Places::of(text);
        assert_eq!((places.drill, places.expect(0), places.expect(1)), (4, 7, 9));
        assert_eq!((places.steady(0), places.steady(1), places.step(0)), (1, 2, 11));
        assert_eq!((places.step(7), Places::of("").drill), (4, 1));
    }
}
