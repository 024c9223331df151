//! Reads a text into a profile, or into all of its errors.
//!
//! The parser recovers from syntax errors line by line, so the rest of such a file is checked as
//! well. Excluded are possible consequences of the error: values up to the next table header,
//! missing keys, and rules between keys.

use crate::Profile;
use crate::check::RULES;
use crate::document::{Faults, bare, nearest};
use crate::error::{Fault, FileError};
use crate::keys::{KEYS, OPTIONAL_TABLES, tables};
use crate::kind::not_a_table;
use std::collections::{BTreeMap, BTreeSet};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// Reads `text`; every fault is reported with its line and column in `origin`.
pub(crate) fn read(text: &str, origin: &str) -> Result<Profile, FileError> {
    let (document, syntax) = DeTable::parse_recoverable(text);
    let mut reader = Reader::default();
    reader.sort(document.get_ref());
    let future = reader.values();
    if let Some(future) = future {
        // Other apparent errors may be valid in that schema.
        reader.faults = Faults::default();
        reader.fault(future.0, future.1);
    } else if syntax.is_empty() {
        reader.missing();
        reader.rules();
    } else {
        reader.faults.with_syntax(text, &syntax);
    }
    reader.faults.judge(Some(reader.profile), text, origin)
}

type Entry<'d, 'i> = (&'d Spanned<DeString<'i>>, &'d Spanned<DeValue<'i>>);

struct Reader<'d, 'i> {
    profile: Profile,
    faults: Faults,
    /// The document's values by path.
    entries: BTreeMap<&'static str, Entry<'d, 'i>>,
    /// The position of each table.
    tables: BTreeMap<&'static str, usize>,
    /// Names already suggested for a misspelt key: not reported as missing.
    suggested: BTreeSet<&'static str>,
    /// The keys that were read.
    good: BTreeSet<&'static str>,
}

impl Default for Reader<'_, '_> {
    fn default() -> Self {
        Self {
            profile: Profile::blank(),
            faults: Faults::default(),
            entries: BTreeMap::new(),
            tables: BTreeMap::new(),
            suggested: BTreeSet::new(),
            good: BTreeSet::new(),
        }
    }
}

impl<'d, 'i> Reader<'d, 'i> {
    fn fault(&mut self, at: usize, fault: Fault) {
        self.faults.add(at, fault);
    }

    /// Sorts the document into known keys and unknown ones.
    fn sort(&mut self, document: &'d DeTable<'i>) {
        for (name, value) in document {
            let at = name.span().start;
            if let Some(table) = tables().find(|table| table == name.get_ref()) {
                self.tables.insert(table, at);
                match value.get_ref() {
                    DeValue::Table(keys) => {
                        keys.iter().for_each(|(name, value)| self.sort_one(Some(table), name, value));
                    }
                    other => {
                        self.fault(value.span().start, not_a_table(table, other));
                        self.suggested
                            .extend(KEYS.iter().filter(|k| k.table() == Some(table)).map(|k| k.path));
                    }
                }
            } else {
                self.sort_one(None, name, value);
            }
        }
    }

    fn sort_one(
        &mut self,
        table: Option<&'static str>,
        name: &'d Spanned<DeString<'i>>,
        value: &'d Spanned<DeValue<'i>>,
    ) {
        let known = KEYS.iter().find(|key| key.table() == table && key.name() == name.get_ref());
        if let Some(key) = known {
            self.entries.insert(key.path, (name, value));
            return;
        }
        let prefix = table.map_or(String::new(), |table| format!("{table}."));
        let written = prefix + &bare(name.get_ref());
        let is_table = match value.get_ref() {
            DeValue::Table(_) => true,
            DeValue::Array(items) => items.iter().any(|item| item.get_ref().is_table()),
            _ => false,
        };
        let (nearest, fault) = if is_table {
            let nearest = nearest(name.get_ref(), tables().filter(|_| table.is_none()));
            (nearest, Fault::UnknownTable { table: written, nearest: nearest.map(Into::into) })
        } else {
            let nearest = nearest_key(table, name.get_ref());
            (nearest, Fault::UnknownKey { key: written, nearest: nearest.map(Into::into) })
        };
        self.suggested.extend(nearest);
        self.fault(name.span().start, fault);
    }

    /// Reads the existing keys. Returns the fault of an unknown schema.
    fn values(&mut self) -> Option<(usize, Fault)> {
        for key in KEYS {
            let Some(&(name, value)) = self.entries.get(key.path) else { continue };
            if let Some((other, needed)) = key.condition()
                && self.good.contains(other)
                && !key.kind.applies(&mut self.profile)
            {
                self.fault(name.span().start, Fault::Inapplicable { key: key.path, other, needed });
                continue;
            }
            match key.kind.read(key.path, value.get_ref(), &mut self.profile) {
                Ok(()) => {
                    self.good.insert(key.path);
                }
                Err(fault @ Fault::Schema { .. }) => return Some((value.span().start, fault)),
                Err(fault) => self.fault(value.span().start, fault),
            }
        }
        None
    }

    /// Reports missing keys: at the head of their table, or of the file.
    fn missing(&mut self) {
        for table in tables().filter(|table| !OPTIONAL_TABLES.contains(table)) {
            if !self.tables.contains_key(table) && !self.suggested.contains(table) {
                self.fault(0, Fault::MissingTable(table));
            }
        }
        for key in KEYS {
            let at = match key.table() {
                None => 0,
                Some(table) => match self.tables.get(table) {
                    Some(at) => *at,
                    None => continue,
                },
            };
            let there = self.entries.contains_key(key.path) || self.suggested.contains(key.path);
            if !there && key.kind.applies(&mut self.profile) {
                self.fault(at, Fault::MissingKey { key: key.path.into(), wanted: key.kind.wanted() });
            }
        }
    }

    /// Checks the rules between keys that were all read.
    fn rules(&mut self) {
        for rule in RULES {
            let Some(blamed) = rule.keys.first().and_then(|key| self.entries.get(key)) else { continue };
            if rule.keys.iter().all(|key| self.good.contains(key))
                && let Some(found) = (rule.broken)(&self.profile)
            {
                self.fault(blamed.1.span().start, Fault::Conflict { rule: rule.must, found });
            }
        }
    }
}

/// The probable intention: a key with a similar name in the same table, or with the same name in
/// another.
fn nearest_key(table: Option<&'static str>, name: &str) -> Option<&'static str> {
    let (same, others): (Vec<_>, Vec<_>) = KEYS.iter().partition(|key| key.table() == table);
    let meant = nearest(name, same.iter().map(|key| key.name()));
    let similar = same.iter().find(|key| Some(key.name()) == meant);
    similar.or_else(|| others.iter().find(|key| key.name() == name)).map(|key| key.path)
}
