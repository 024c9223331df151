//! Keys and what belongs to each, in no particular order.
//!
//! A hash table that grows moves all of its entries at once, which would stop a leader of a million
//! keys for longer than its lease. So there are many tables, each with a part of the keys.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher};

/// One of them moves some thousand entries when a million keys are stored.
const TABLES: usize = 256;
/// The bits of a key's hash that choose the table: neither the lowest nor the highest ones, which a table
/// uses itself.
const TABLE_FROM: u32 = 32;

/// All keys.
#[derive(Clone, Debug)]
pub(super) struct Table<V> {
    /// Hashes are keyed at random, so that no client can choose keys that share a table or collide.
    state: RandomState,
    tables: Vec<HashMap<Box<[u8]>, V>>,
    len: usize,
}

impl<V> Default for Table<V> {
    fn default() -> Self {
        let state = RandomState::new();
        let tables = (0..TABLES).map(|_| HashMap::with_hasher(state.clone())).collect();
        Self { state, tables, len: 0 }
    }
}

impl<V: PartialEq> PartialEq for Table<V> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().all(|(key, value)| other.get(key) == Some(value))
    }
}

impl<V: Eq> Eq for Table<V> {}

/// Equal for equal tables, in whatever order they are.
impl<V: Hash> Hash for Table<V> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let one = |entry: (&[u8], &V)| {
            let mut hasher = DefaultHasher::new();
            entry.hash(&mut hasher);
            hasher.finish()
        };
        state.write_u64(self.iter().map(one).fold(0, u64::wrapping_add));
    }
}

impl<V> Table<V> {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The table of a key.
    fn table(&self, key: &[u8]) -> usize {
        (self.state.hash_one(key) >> TABLE_FROM) as usize % TABLES
    }

    #[inline]
    pub(super) fn get(&self, key: &[u8]) -> Option<&V> {
        self.tables[self.table(key)].get(key)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: &[u8]) -> Option<&mut V> {
        let table = self.table(key);
        self.tables[table].get_mut(key)
    }

    /// Adds a key, or replaces what belongs to it.
    pub(super) fn insert(&mut self, key: &[u8], value: V) {
        let table = self.table(key);
        let before = self.tables[table].insert(key.into(), value);
        self.len += usize::from(before.is_none());
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> Option<V> {
        let table = self.table(key);
        let removed = self.tables[table].remove(key);
        self.len -= usize::from(removed.is_some());
        removed
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &V)> {
        self.tables.iter().flatten().map(|(key, value)| (&key[..], value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn hash(table: &Table<u64>) -> u64 {
        let mut hasher = DefaultHasher::new();
        table.hash(&mut hasher);
        hasher.finish()
    }

    #[test]
    fn a_table_is_a_map_whatever_the_order_of_its_changes() {
        let (mut table, mut model) = (Table::default(), BTreeMap::new());
        let key = |n: u64| format!("key:{:04}", n * 7919 % 500).into_bytes();
        for n in 0..3000_u64 {
            if n % 3 == 2 {
                assert_eq!(table.remove(&key(n / 2)), model.remove(&key(n / 2)));
            } else {
                table.insert(&key(n), n);
                model.insert(key(n), n);
            }
            assert_eq!(table.len(), model.len());
            assert_eq!(table.get(&key(n + 1)), model.get(&key(n + 1)));
        }
        let mut other = Table::default();
        model.iter().rev().for_each(|(key, value)| other.insert(key, *value));
        assert_eq!((&other, hash(&other)), (&table, hash(&table)));
        assert!(table.iter().all(|(key, value)| model.get(key) == Some(value)));
        other.insert(b"one more", 1);
        assert_ne!((&other, hash(&other)), (&table, hash(&table)));
        other.clear();
        assert_eq!(other, Table::default());
    }

    #[test]
    fn keys_are_spread_over_the_tables() {
        let forms = [
            |n: u32| format!("key:{n:012}"),
            |n: u32| n.to_string(),
            |n: u32| format!("user:{n}:followers"),
            |n: u32| format!("{n:08x}-0000-4000-8000-000000000000"),
        ];
        for form in forms {
            let mut table = Table::default();
            (0..25_600).for_each(|n| table.insert(form(n).as_bytes(), n));
            let counts = table.tables.iter().map(HashMap::len);
            let (least, most) = (counts.clone().min(), counts.max());
            assert!(least >= Some(40) && most <= Some(200), "{}: {least:?} to {most:?}", form(1));
        }
    }
}
