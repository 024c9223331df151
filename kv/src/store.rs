//! The state of a server: the keys, and the newest PUT of each client, so that a resent one is not
//! executed again.

use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Keys of a cache at most.
pub(crate) const KEYS_MAX: usize = 1 << 20;
/// Clients whose newest PUT is kept, at most.
pub(crate) const CLIENTS_MAX: usize = 1 << 12;

/// A key's value.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) value: Box<[u8]>,
    /// The number of the PUT that wrote it; 0 if every server that counts has it.
    pub(crate) written: u64,
}

/// Keys and clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    cells: FxHashMap<u64, Cell>,
    /// The newest PUT of each client.
    seen: BTreeMap<u64, u64>,
}

impl Store {
    pub(crate) fn get(&self, key: u64) -> Option<&Cell> {
        self.cells.get(&key)
    }

    /// Writes a key; `false` if there is no room for another.
    pub(crate) fn put(&mut self, key: u64, value: &[u8], written: u64) -> bool {
        if let Some(cell) = self.cells.get_mut(&key) {
            cell.written = written;
            // Most values of a key have the same length.
            if cell.value.len() == value.len() {
                cell.value.copy_from_slice(value);
            } else {
                cell.value = value.into();
            }
            return true;
        }
        if self.cells.len() >= KEYS_MAX {
            return false;
        }
        self.cells.insert(key, Cell { value: value.into(), written });
        true
    }

    /// Marks a key's value as possibly not replicated: it was written by this PUT.
    pub(crate) fn mark(&mut self, key: u64, written: u64) {
        if let Some(cell) = self.cells.get_mut(&key) {
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
    }

    pub(crate) fn newest_of(&self, client: u64) -> Option<u64> {
        self.seen.get(&client).copied()
    }

    pub(crate) fn keys(&self) -> Vec<u64> {
        self.cells.keys().copied().collect()
    }

    pub(crate) fn clients(&self) -> Vec<u64> {
        self.seen.keys().copied().collect()
    }
}
