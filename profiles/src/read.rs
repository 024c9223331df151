//! Reads a text into a profile, or into all of its errors.
//!
//! The parser recovers from syntax errors line by line, so the rest of such a file is checked as
//! well, except for the rules between keys.

use crate::Profile;
use crate::check::RULES;
use crate::keys::{KEYS, OPTIONAL_TABLES, tables};
use crate::kind::SCHEMA;
use obol_config::{FileError, Problem, Problems, Section};
use std::collections::BTreeMap;

/// Reads `text`; every problem is reported with its line and column in `origin`.
pub(crate) fn read(text: &str, origin: &str) -> Result<Profile, FileError> {
    obol_config::recover(text, origin, |top, problems| {
        let mut reader = Reader { profile: Profile::blank(), good: BTreeMap::new() };
        reader.keys(None, top, problems);
        for table in tables() {
            let section = match OPTIONAL_TABLES.contains(&table) {
                true => top.section(table, problems),
                false => top.needed_section(table, problems),
            };
            if let Some(section) = section {
                section.read(problems, |section, problems| reader.keys(Some(table), section, problems));
            }
        }
        if !problems.has_syntax() {
            reader.rules(problems);
        }
        Some(reader.profile)
    })
}

struct Reader {
    profile: Profile,
    /// The keys that were read, and the positions of their values.
    good: BTreeMap<&'static str, usize>,
}

impl Reader {
    /// Reads the keys of one table.
    fn keys(&mut self, table: Option<&'static str>, section: &mut Section<'_, '_>, problems: &mut Problems) {
        section.hint(|name| KEYS.iter().find(|key| key.name() == name).map(|key| key.path));
        for key in KEYS.iter().filter(|key| key.table() == table) {
            if key.path == "schema" {
                section.schema(SCHEMA, problems);
                continue;
            }
            let applies = key.kind.applies(&mut self.profile);
            let Some(value) = section.value(key.name()) else {
                if applies {
                    section.need(key.name(), &key.kind.wanted(), None::<()>);
                }
                continue;
            };
            if let Some((other, needed)) = key.condition()
                && self.good.contains_key(other)
                && !applies
            {
                problems
                    .add(section.place(key.name()), Problem::Inapplicable { key: key.path, other, needed });
                continue;
            }
            let at = value.span().start;
            let read = key.kind.read(key.path, value.get_ref(), &mut self.profile);
            self.good.extend(problems.take(at, read).map(|()| (key.path, at)));
        }
    }

    /// Checks the rules between keys that were all read.
    fn rules(&self, problems: &mut Problems) {
        for rule in RULES {
            let Some(blamed) = rule.keys.first().and_then(|key| self.good.get(key)) else { continue };
            if rule.keys.iter().all(|key| self.good.contains_key(key))
                && let Some(found) = (rule.broken)(&self.profile)
            {
                problems.add(*blamed, Problem::Conflict { rule: rule.must, found });
            }
        }
    }
}
