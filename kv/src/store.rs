//! The state of a server: the keys, and the newest PUT of each client, so that a resent one is not
//! executed again.
//!
//! The thread of the server keeps its lease, so no step may take long, however many keys there are. A
//! hash table that grows moves all of its entries at once. So there are many tables, each with a part of
//! the keys; a new backup is sent one after the other, and they are dropped one by one.

use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Keys of a cache at most.
pub(crate) const KEYS_MAX: usize = 1 << 20;
/// Clients whose newest PUT is kept, at most.
pub(crate) const CLIENTS_MAX: usize = 1 << 12;
/// Tables of the keys: each has about 256 when there are as many keys as there may be.
const TABLES: usize = 1 << 12;

/// A key's value.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) value: Box<[u8]>,
    /// The number of the PUT that wrote it; 0 if every server that counts has it.
    pub(crate) written: u64,
}

type Cells = FxHashMap<u64, Cell>;

/// Keys and clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    /// [`TABLES`] of them; none before the first key.
    tables: Vec<Cells>,
    len: usize,
    /// The newest PUT of each client.
    seen: BTreeMap<u64, u64>,
    /// Tables that are not needed any more.
    dropped: Vec<Vec<Cells>>,
}

/// The table of a key.
fn table(key: u64) -> usize {
    // Both halves of the product, so that keys that differ in any bits are spread. The high half alone
    // chooses the shard, and a table has a multiplier of its own.
    let product = u128::from(key) * 0x9e37_79b9_7f4a_7c15;
    ((product >> 64) as u64 ^ product as u64) as usize >> 20 & (TABLES - 1)
}

impl Store {
    pub(crate) fn get(&self, key: u64) -> Option<&Cell> {
        self.tables.get(table(key))?.get(&key)
    }

    fn get_mut(&mut self, key: u64) -> Option<&mut Cell> {
        self.tables.get_mut(table(key))?.get_mut(&key)
    }

    /// Writes a key; `false` if there is no room for another.
    pub(crate) fn put(&mut self, key: u64, value: &[u8], written: u64) -> bool {
        if let Some(cell) = self.get_mut(key) {
            cell.written = written;
            // Most values of a key have the same length.
            if cell.value.len() == value.len() {
                cell.value.copy_from_slice(value);
            } else {
                cell.value = value.into();
            }
            return true;
        }
        if self.len >= KEYS_MAX {
            return false;
        }
        if self.tables.is_empty() {
            self.tables.resize_with(TABLES, Cells::default);
        }
        self.tables[table(key)].insert(key, Cell { value: value.into(), written });
        self.len += 1;
        assert!(self.len <= KEYS_MAX);
        true
    }

    /// Marks a key's value as possibly not replicated: it was written by this PUT.
    pub(crate) fn mark(&mut self, key: u64, written: u64) {
        if let Some(cell) = self.get_mut(key) {
            cell.written = written;
        }
    }

    /// Whether this PUT of a client, or a later one, was executed already.
    pub(crate) fn is_executed(&self, client: u64, request: u64) -> bool {
        self.seen.get(&client).is_some_and(|newest| request <= *newest)
    }

    /// Records the newest PUT of a client. With too many clients, the one with the lowest (random)
    /// id is dropped.
    pub(crate) fn record_put(&mut self, client: u64, request: u64) {
        let newest = self.seen.entry(client).or_default();
        *newest = request.max(*newest);
        if self.seen.len() > CLIENTS_MAX {
            let lowest = self.seen.keys().copied().find(|id| *id != client);
            lowest.and_then(|id| self.seen.remove(&id));
        }
        assert!(self.seen.len() <= CLIENTS_MAX && self.seen.contains_key(&client));
    }

    pub(crate) fn newest_of(&self, client: u64) -> Option<u64> {
        self.seen.get(&client).copied()
    }

    /// The keys of a table; `None` if there is no such table, and none after it.
    pub(crate) fn keys(&self, table: usize) -> Option<Vec<u64>> {
        self.tables.get(table).map(|table| table.keys().copied().collect())
    }

    /// Takes a store that is not needed any more, to drop its keys later.
    pub(crate) fn discard(&mut self, other: Self) {
        let Self { tables, dropped, .. } = other;
        self.dropped.extend(dropped);
        self.dropped.extend(Some(tables).filter(|tables| !tables.is_empty()));
    }

    /// Drops a table that is not needed any more. Returns whether there are others.
    pub(crate) fn tidy(&mut self) -> bool {
        let Some(tables) = self.dropped.last_mut() else { return false };
        drop(tables.pop());
        if tables.is_empty() {
            self.dropped.pop();
        }
        !self.dropped.is_empty()
    }

    pub(crate) fn clients(&self) -> Vec<u64> {
        self.seen.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_any_form_are_spread_over_the_tables() {
        let forms: [fn(u64) -> u64; 5] =
            [|n| n, |n| n << 32, |n| n << 48, |n| n.wrapping_mul(1 << 12), |n| n.wrapping_mul(0x9e37_79b9)];
        for (form, of) in forms.into_iter().enumerate() {
            let mut counts = vec![0; TABLES];
            (0..16 * TABLES as u64).for_each(|n| counts[table(of(n))] += 1);
            let most = counts.iter().max();
            assert!(most < Some(&64), "form {form}: {most:?} of 16");
        }
        // Nor do the keys of one shard share a few tables.
        let of_shard = (0..).filter(|key| crate::Shard::of_key(*key, 8).index() == 3);
        let mut counts = vec![0; TABLES];
        of_shard.take(16 * TABLES).for_each(|key| counts[table(key)] += 1);
        assert!(counts.iter().max() < Some(&64), "{:?}", counts.iter().max());
    }

    #[test]
    fn a_store_has_every_key_in_one_table_and_drops_them_in_steps() {
        let mut store = Store::default();
        assert_eq!(store.keys(0), None);
        let count = 40 * TABLES as u64;
        (0..count).for_each(|key| assert!(store.put(key, &key.to_le_bytes(), 1)));
        assert!(store.put(7, b"again", 2));
        let mut keys: Vec<u64> = (0..).map_while(|table| store.keys(table)).flatten().collect();
        keys.sort_unstable();
        assert!(keys.into_iter().eq(0..count));
        assert_eq!(store.get(7).map(|cell| &cell.value[..]), Some(&b"again"[..]));
        let before = std::mem::take(&mut store);
        store.discard(before);
        assert!(store.get(7).is_none());
        let mut steps = 1;
        while store.tidy() {
            steps += 1;
        }
        assert!(steps > TABLES / 2 && store.dropped.is_empty(), "{steps}");
    }

    #[test]
    fn a_store_takes_no_more_keys_than_it_may_have() {
        let mut store = Store::default();
        assert!((0..KEYS_MAX as u64).all(|key| store.put(key, &[], 0)));
        assert!(!store.put(KEYS_MAX as u64, &[], 0) && store.put(0, b"changed", 0));
    }
}
