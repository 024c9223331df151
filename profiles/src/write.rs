//! The written forms of a profile and of the table of keys.

use crate::check::RULES;
use crate::keys::{KEYS, Key};
use crate::{BUILTIN, Profile};
use serde::Serialize;
use std::fmt::Write as _;

/// The width of a comment.
const COLUMNS: usize = 110;

impl Profile {
    /// The profile as TOML, each key with its meaning, unit and bounds. Parsing it gives the same
    /// profile.
    pub fn to_toml(&self) -> String {
        let mut profile = self.clone();
        let mut text = String::new();
        let mut table = None;
        for key in KEYS {
            if !key.is_written(&profile) {
                continue;
            }
            let Some(value) = key.kind.write(&mut profile) else { continue };
            let gap = if text.is_empty() { "" } else { "\n" };
            text.push_str(gap);
            if key.table() != table {
                table = key.table();
                let _ = writeln!(text, "[{}]", table.unwrap_or_default());
            }
            let _ = writeln!(text, "{}{} = {value}", comment(key), key.name());
        }
        text
    }

    /// All keys as a Markdown table: values of the built-in profiles, type, unit, bounds, meaning.
    pub fn reference() -> String {
        let mut text = String::from("| key | ");
        for name in BUILTIN {
            let _ = write!(text, "{name} | ");
        }
        text.push_str("value | meaning |\n|---|");
        text.push_str(&"---|".repeat(BUILTIN.len() + 2));
        let mut profiles: Vec<_> = BUILTIN.iter().filter_map(|name| Self::builtin(name).ok()).collect();
        for key in KEYS {
            let _ = write!(text, "\n| `{}` | ", key.path);
            for profile in &mut profiles {
                let value = key.kind.write(profile).map_or(String::new(), |value| format!("`{value}`"));
                let _ = write!(text, "{value} | ");
            }
            let _ = write!(text, "{} | {} |", wanted(key), key.doc);
        }
        text.push_str("\n\nRules between keys:\n\n");
        for rule in Self::rules() {
            let _ = writeln!(text, "- {rule}");
        }
        text
    }

    /// All keys, as the reference has them.
    pub fn keys() -> Vec<KeyMeaning> {
        KEYS.iter().map(|key| KeyMeaning { key: key.path, wanted: wanted(key), meaning: key.doc }).collect()
    }

    /// The rules between keys, one sentence each.
    pub fn rules() -> Vec<String> {
        RULES.iter().map(|rule| sentence(rule.must)).collect()
    }
}

/// Meaning, type with unit and bounds, and rules of a key as comment lines; each starts on a new
/// line.
pub(crate) fn comment(key: &Key) -> String {
    let rules = RULES.iter().filter(|rule| rule.keys.first() == Some(&key.path));
    let rules = rules.map(|rule| sentence(rule.must));
    let sentences = [key.doc.to_owned(), wanted(key)].into_iter().chain(rules);
    sentences.map(|sentence| wrapped(&sentence)).collect()
}

fn wrapped(sentence: &str) -> String {
    let mut lines = String::from("#");
    let mut column = 1;
    for word in sentence.split(' ') {
        if column + 1 + word.len() > COLUMNS {
            lines.push_str("\n#");
            column = 1;
        }
        lines.push(' ');
        lines.push_str(word);
        column += 1 + word.len();
    }
    lines + "\n"
}

/// Adds a capital, unless the text begins with a key, and a full stop.
fn sentence(text: &str) -> String {
    let starts_with_key = text.split(' ').next().is_some_and(|word| word.contains('.'));
    let mut chars = text.chars();
    match chars.next() {
        Some(first) if !starts_with_key => format!("{}{}.", first.to_uppercase(), chars.as_str()),
        _ => format!("{text}."),
    }
}

/// Type, unit, bounds and condition of a key as a sentence.
fn wanted(key: &Key) -> String {
    let mut wanted = key.kind.wanted();
    if let Some((other, needed)) = key.condition() {
        let _ = write!(wanted, ", only with {other} = {needed:?}");
    }
    sentence(&wanted)
}

/// A key as the reference has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyMeaning {
    /// Its table and name, such as `lease.duration`.
    pub key: &'static str,
    /// Type, unit and bounds, as a sentence.
    pub wanted: String,
    pub meaning: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the built-in files repeat the table's documentation.
    #[test]
    fn the_built_in_files_explain_every_key_and_value() {
        for (name, file) in crate::load::FILES {
            let mut profile = Profile::builtin(name).expect("it is built in");
            let mut end_of_last = 0;
            for key in KEYS {
                if !key.is_written(&profile) {
                    continue;
                }
                let Some(value) = key.kind.write(&mut profile) else { continue };
                let comment = comment(key);
                let start = file[end_of_last..]
                    .find(&comment)
                    .unwrap_or_else(|| panic!("{name}.toml does not say before {}:\n{comment}", key.path));
                let after = &file[end_of_last + start + comment.len()..];
                let line = format!("\n{} = {value}\n", key.name());
                let reason = if let Some(end) = after.find(&line) {
                    end_of_last = file.len() - after.len() + end;
                    &after[..end]
                } else {
                    assert!(after.starts_with(&line[1..]), "{name}.toml: {} is not {value}", key.path);
                    ""
                };
                assert!(
                    reason.lines().all(|line| line.starts_with('#')),
                    "{name}.toml, {}: {reason}",
                    key.path
                );
                assert!(
                    key.table().is_none() || reason.starts_with("# Here: "),
                    "{name}.toml gives no reason for {}",
                    key.path
                );
            }
            assert!(file.lines().all(|line| line.chars().count() <= COLUMNS), "{name}.toml has a long line");
        }
    }

    #[test]
    fn the_reference_lists_every_key_with_all_its_columns() {
        let text = Profile::reference();
        let (table, rules) = text.split_once("\n\n").expect("a table, then the rules");
        let rows: Vec<_> = table.lines().skip(2).collect();
        assert_eq!(rows.len(), KEYS.len());
        for (key, row) in KEYS.iter().zip(rows) {
            assert!(row.starts_with(&format!("| `{}` | ", key.path)), "{row}");
            assert_eq!(row.matches('|').count(), BUILTIN.len() + 4, "{row}");
            assert!(row.ends_with(&format!("{} |", key.doc)), "{row}");
        }
        assert_eq!(rules.matches("- ").count(), RULES.len());
    }
}
