//! Keys and what belongs to each, in no particular order.
//!
//! A hash table that grows moves all of its entries at once, which would stop a leader of a million
//! keys for longer than its lease. So there are many tables, each with a part of the keys. For the same
//! reason they are saved one by one while keys change, and dropped one by one. They are made in groups,
//! when the first key of a group comes, so that all of them are replaced by none at once.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

/// Each has some 150 entries when ten million keys are stored: about as many are moved at once, and a save
/// writes one table at a time.
const TABLES: usize = GROUPS * GROUP;
const GROUPS: usize = 256;
const GROUP: usize = 256;
/// The bits of a key's place in the order of all; the highest of them say which table it is in.
pub(super) const PLACE_BITS: u32 = 36;
const TABLE_FROM: u32 = PLACE_BITS - TABLES.ilog2();
/// Tables that [`Table::scan`] looks into, at most.
const SCANNED_TABLES: usize = 8192;
/// Keys that [`Table::tidy`] drops, at least, if there are as many; and tables that it looks at, at most.
const DROPPED_KEYS: usize = 64;
const DROPPED_TABLES: usize = 256;

/// Hashes within a table are keyed at random, so that no client can choose keys that collide. All tables of
/// a process have the same key, so that it simulates a seed again as before.
static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::new);

type Part<V> = HashMap<Box<[u8]>, V, RandomState>;

/// The tables of each group; a group without a key may have none.
#[derive(Clone, Debug)]
struct Groups<V>(Vec<Vec<Part<V>>>);

impl<V> Groups<V> {
    fn new() -> Self {
        Self((0..GROUPS).map(|_| Vec::new()).collect())
    }

    fn get(&self, table: usize) -> Option<&Part<V>> {
        self.0[table / GROUP].get(table % GROUP)
    }

    fn get_mut(&mut self, table: usize) -> Option<&mut Part<V>> {
        self.0[table / GROUP].get_mut(table % GROUP)
    }

    fn made(&mut self, table: usize, state: &RandomState) -> &mut Part<V> {
        let group = &mut self.0[table / GROUP];
        if group.is_empty() {
            group.resize_with(GROUP, || HashMap::with_hasher(state.clone()));
        }
        &mut group[table % GROUP]
    }

    /// The groups that have tables.
    fn into_made(self) -> impl Iterator<Item = Vec<Part<V>>> {
        self.0.into_iter().filter(|group| !group.is_empty())
    }
}

/// Keyed by what it begins with: a seed.
fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// All keys.
#[derive(Clone, Debug)]
pub(super) struct Table<V> {
    state: RandomState,
    /// What the places of keys follow from, besides the keys: at random, so that no client can choose keys
    /// that share a table, but the same on all replicas. 0 for none.
    seed: u64,
    groups: Groups<V>,
    len: usize,
    save: Option<Save<V>>,
    /// Tables that are not needed any more. To drop all at once would take longer than a lease.
    dropped: Vec<Vec<Part<V>>>,
    /// What was kept for saves that are not needed any more.
    dropped_changes: Vec<Changes<V>>,
    #[cfg(feature = "mutants")]
    saves_late: bool,
}

/// The keys of some tables that were changed, with what belonged to them before.
type Changes<V> = BTreeMap<usize, Part<Option<V>>>;

/// A save that is under way, of the keys as they were when it began.
#[derive(Clone, Debug)]
struct Save<V> {
    /// The table that is written next.
    next: usize,
    /// What was changed in tables that are not written yet.
    changed: Changes<V>,
    /// The tables with all others, if all keys were removed since.
    cleared: Option<Groups<V>>,
}

impl<V: Clone> Save<V> {
    /// Keeps what belongs to a key that is about to change.
    fn keep(&mut self, table: usize, key: &[u8], state: &RandomState, of: &Groups<V>) {
        if table < self.next || self.cleared.is_some() {
            return;
        }
        let changed = self.changed.entry(table).or_insert_with(|| HashMap::with_hasher(state.clone()));
        if !changed.contains_key(key) {
            changed.insert(key.into(), of.get(table).and_then(|table| table.get(key)).cloned());
        }
    }
}

impl<V> Default for Table<V> {
    fn default() -> Self {
        Self {
            state: STATE.clone(),
            seed: 0,
            groups: Groups::new(),
            len: 0,
            save: None,
            dropped: Vec::new(),
            dropped_changes: Vec::new(),
            #[cfg(feature = "mutants")]
            saves_late: false,
        }
    }
}

impl<V: PartialEq + Clone> PartialEq for Table<V> {
    fn eq(&self, other: &Self) -> bool {
        (self.len, self.seed) == (other.len, other.seed)
            && self.iter().all(|(key, value)| other.get(key) == Some(value))
    }
}

impl<V: Eq + Clone> Eq for Table<V> {}

/// Equal for equal tables, in whatever order they are.
impl<V: Hash + Clone> Hash for Table<V> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.iter().map(|entry| hash(&entry)).fold(self.seed, u64::wrapping_add));
    }
}

impl<V: Clone> Table<V> {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Gives the order of keys its seed, if it has none and there is no key.
    pub(super) const fn seed(&mut self, seed: u64) {
        if self.len == 0 && self.seed == 0 {
            self.seed = seed;
        }
    }

    /// The seed; 0 for none.
    pub(super) const fn seeded(&self) -> u64 {
        self.seed
    }

    /// A few bits by which one order is told from another one.
    pub(super) fn check(&self) -> u64 {
        hash(&(self.seed, "order")) >> 48
    }

    /// The place of a key in the order of all.
    #[inline]
    fn place(&self, key: &[u8]) -> u64 {
        hash(&(self.seed, key)) >> (u64::BITS - PLACE_BITS)
    }

    /// The table of a key.
    #[inline]
    fn table(&self, key: &[u8]) -> usize {
        (self.place(key) >> TABLE_FROM) as usize
    }

    /// Calls a function with the keys from a place of the order on, all of one place at once, until it
    /// returns false. Returns the place from which to go on: that of the keys that it has not taken, or
    /// where the call ends because it has looked into many tables; `None` at the end.
    pub(super) fn scan<'a>(
        &'a self,
        from: u64,
        mut each: impl FnMut(&[(&'a [u8], &'a V)]) -> bool,
    ) -> Option<u64> {
        let (mut table, mut looked) = ((from >> TABLE_FROM) as usize, 0);
        while table < TABLES && looked < SCANNED_TABLES {
            let Some(part) = self.groups.get(table) else {
                // Behind the group, which has no tables.
                table = (table | (GROUP - 1)) + 1;
                continue;
            };
            let placed = part.iter().map(|(key, value)| (self.place(key), (&key[..], value)));
            let mut keys: Vec<_> = placed.filter(|(place, _)| *place >= from).collect();
            keys.sort_unstable_by_key(|(place, _)| *place);
            for group in keys.chunk_by(|(one, _), (other, _)| one == other) {
                let one_place: Vec<_> = group.iter().map(|(_, entry)| *entry).collect();
                if !each(&one_place) {
                    return Some(group[0].0);
                }
            }
            (table, looked) = (table + 1, looked + 1);
        }
        (table < TABLES).then_some((table as u64) << TABLE_FROM)
    }

    /// A key in this table is about to change.
    #[inline]
    fn on_change(&mut self, table: usize, key: &[u8]) {
        #[cfg(feature = "mutants")]
        if self.saves_late {
            return;
        }
        if let Some(save) = &mut self.save {
            save.keep(table, key, &self.state, &self.groups);
        }
    }

    #[inline]
    pub(super) fn get(&self, key: &[u8]) -> Option<&V> {
        self.groups.get(self.table(key))?.get(key)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: &[u8]) -> Option<&mut V> {
        let table = self.table(key);
        self.on_change(table, key);
        self.groups.get_mut(table)?.get_mut(key)
    }

    /// Adds a key, or replaces what belongs to it.
    pub(super) fn insert(&mut self, key: &[u8], value: V) {
        let table = self.table(key);
        self.on_change(table, key);
        let before = self.groups.made(table, &self.state).insert(key.into(), value);
        self.len += usize::from(before.is_none());
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> Option<V> {
        let table = self.table(key);
        self.on_change(table, key);
        let removed = self.groups.get_mut(table)?.remove(key);
        self.len -= usize::from(removed.is_some());
        removed
    }

    /// Removes all keys. [`Table::tidy`] drops them later.
    pub(super) fn clear(&mut self) {
        let cleared = core::mem::replace(&mut self.groups, Groups::new());
        self.len = 0;
        match &mut self.save {
            Some(save) if save.cleared.is_none() => save.cleared = Some(cleared),
            _ => self.dropped.extend(cleared.into_made()),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &V)> {
        self.groups.0.iter().flatten().flatten().map(|(key, value)| (&key[..], value))
    }

    /// Begins a save of the keys as they are now.
    pub(super) fn begin_save(&mut self) {
        self.end_save();
        self.save = Some(Save { next: 0, changed: BTreeMap::new(), cleared: None });
    }

    /// Calls a function with each key of the next table, as it was when the save began. Returns whether
    /// it was the last one, which ends the save; `None` without a save.
    pub(super) fn save_part(&mut self, mut each: impl FnMut(&[u8], &V)) -> Option<bool> {
        let save = self.save.as_mut()?;
        let groups = save.cleared.as_ref().unwrap_or(&self.groups);
        let changed = save.changed.remove(&save.next);
        let group = &groups.0[save.next / GROUP];
        if group.is_empty() && changed.is_none() && save.changed.is_empty() {
            // To the last one of a group that has no tables.
            save.next |= GROUP - 1;
        }
        let table = group.get(save.next % GROUP);
        for (key, value) in table.into_iter().flatten() {
            if changed.as_ref().is_none_or(|changed| !changed.contains_key(key)) {
                each(key, value);
            }
        }
        for (key, value) in changed.into_iter().flatten() {
            if let Some(value) = value {
                each(&key, &value);
            }
        }
        save.next += 1;
        let is_last = save.next == TABLES;
        if is_last {
            self.end_save();
        }
        Some(is_last)
    }

    /// Ends a save that is not needed any more.
    pub(super) fn end_save(&mut self) {
        let Some(Save { changed, cleared, .. }) = self.save.take() else { return };
        self.dropped.extend(cleared.into_iter().flat_map(Groups::into_made));
        self.dropped_changes.extend(Some(changed).filter(|changed| !changed.is_empty()));
    }

    /// Takes the keys of a table that is not needed any more, to drop them later.
    pub(super) fn discard(&mut self, mut other: Self) {
        other.end_save();
        self.dropped.append(&mut other.dropped);
        self.dropped_changes.append(&mut other.dropped_changes);
        self.dropped.extend(other.groups.into_made());
    }

    /// Drops some keys that are not needed any more. Returns whether there are others.
    pub(super) fn tidy(&mut self) -> bool {
        let mut dropped = 0;
        for _ in 0..DROPPED_TABLES {
            if dropped >= DROPPED_KEYS {
                break;
            }
            dropped += if let Some(group) = self.dropped.last_mut() {
                let keys = group.pop().map_or(0, |part| part.len());
                if group.is_empty() {
                    self.dropped.pop();
                }
                keys
            } else if let Some(changes) = self.dropped_changes.last_mut() {
                let keys = changes.pop_first().map_or(0, |(_, part)| part.len());
                if changes.is_empty() {
                    self.dropped_changes.pop();
                }
                keys
            } else {
                break;
            };
        }
        !self.dropped.is_empty() || !self.dropped_changes.is_empty()
    }

    /// Has saves see what is changed after they began.
    #[cfg(feature = "mutants")]
    pub(super) const fn save_late(&mut self) {
        self.saves_late = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

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
        assert_eq!((&other, super::hash(&other)), (&table, super::hash(&table)));
        assert!(table.iter().all(|(key, value)| model.get(key) == Some(value)));
        other.insert(b"one more", 1);
        assert_ne!((&other, super::hash(&other)), (&table, super::hash(&table)));
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
            let table = Table::<u32>::default();
            let mut counts = vec![0; TABLES];
            (0..20 * TABLES as u32).for_each(|n| counts[table.table(form(n).as_bytes())] += 1);
            let most = counts.iter().max();
            assert!(most <= Some(&60), "{}: {most:?} of 20", form(1));
        }
    }

    /// Writes all parts that are left.
    fn rest(table: &mut Table<u64>, to: &mut BTreeMap<Vec<u8>, u64>) {
        let mut put = |key: &[u8], value: &u64| assert_eq!(to.insert(key.to_vec(), *value), None, "once");
        while table.save_part(&mut put) == Some(false) {}
    }

    #[test]
    fn a_save_has_the_keys_as_they_were_when_it_began() {
        let key = |n: u64| (n * 7919 % 3000).to_string().into_bytes();
        for clears in [0, 1, 2] {
            let mut table = Table::default();
            (0..2000).for_each(|n| table.insert(&key(n), n));
            let before: BTreeMap<Vec<u8>, u64> = table.iter().map(|(key, n)| (key.to_vec(), *n)).collect();
            table.begin_save();
            let mut saved = BTreeMap::new();
            for part in 0.. {
                let n = 3 * (part / 16);
                table.insert(&key(n), 10_000 + n);
                table.remove(&key(n + 1));
                table.get_mut(&key(n + 2)).into_iter().for_each(|value| *value += 1);
                if part % 16_000 == 8000 && part / 16_000 < clears {
                    table.clear();
                }
                let put = |key: &[u8], value: &u64| assert_eq!(saved.insert(key.to_vec(), *value), None);
                if table.save_part(put) == Some(true) {
                    break;
                }
            }
            assert_eq!(saved, before, "{clears} times cleared");
            assert_eq!(table.save_part(|_, _| ()), None, "the save has ended");
        }
    }

    #[test]
    fn a_save_that_is_given_up_keeps_nothing() {
        let mut table = Table::default();
        (0..1000_u64).for_each(|n| table.insert(&n.to_le_bytes(), n));
        table.begin_save();
        table.clear();
        table.insert(b"a", 1);
        table.begin_save();
        let mut saved = BTreeMap::new();
        rest(&mut table, &mut saved);
        assert_eq!(saved, [(b"a".to_vec(), 1)].into());
        while table.tidy() {}
        assert!(table.dropped.is_empty() && table.dropped_changes.is_empty());
        assert!(table.save.is_none() && table.len() == 1);
    }

    #[test]
    fn keys_are_dropped_in_steps() {
        let mut table = Table::default();
        let count = 4 * TABLES as u64;
        (0..count).for_each(|n| table.insert(&n.to_le_bytes(), n));
        // What a save has kept is dropped in steps, too.
        table.begin_save();
        (0..1000).for_each(|n| table.insert(&u64::to_le_bytes(n), 0));
        table.end_save();
        let largest = table.groups.0.iter().flatten().map(HashMap::len).max().unwrap_or_default();
        let mut other = Table::default();
        other.discard(table);
        let mut steps = 0;
        loop {
            let left = |table: &Table<u64>| {
                let kept = table.dropped_changes.iter().flat_map(BTreeMap::values).map(HashMap::len);
                table.dropped.iter().flatten().map(HashMap::len).chain(kept).sum::<usize>()
            };
            let before = left(&other);
            let has_more = other.tidy();
            steps += 1;
            assert!(before - left(&other) < DROPPED_KEYS + largest, "one step");
            if !has_more {
                break;
            }
        }
        assert!(steps > count as usize / (DROPPED_KEYS + largest), "{steps} steps");
        assert_eq!(other.len(), 0);
    }
}
