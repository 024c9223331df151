//! The cluster's table of region owners, in one mapped file.
//!
//! ```text
//! 0     header   magic, layout version, limits, nonce, cluster name, namespaces
//! 128   changes  counts changes of any entry
//! 192   impaired how many entries have links that a drill impairs
//! 256   bell     wakes all sleeping members of the cluster on this host
//! 320   news     wakes all programs that wait for a view
//! 512   entries  64 bytes each: state, generation, kind and groups, name, impairment and delay of its links
//! ```
//!
//! An entry is claimed by one CAS on its state. Its other words are written by the claimant alone,
//! before it makes the entry live, so they do not change while the state stays the same.

use crate::host::error::HostError;
use crate::host::futex;
use crate::host::impair::Impairment;
use crate::host::map::{self, Access, Mapping};
use crate::host::namespace::Namespace;
use crate::host::numbers::{FIRST_FREE, PER_HOST, REGIONS};
use crate::host::occupancy::{Occupancy, Phase};
use crate::host::process::Process;
use crate::layout::{self, Layout, Limits};
use crate::types::Name;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::path::{Path, PathBuf};
use zerocopy::{FromBytes, IntoBytes};

/// The number of region numbers that a host assigns before it reuses one: enough to read recently
/// dead processes, few enough to use little memory.
const UNUSED_FIRST: u32 = 16;
/// A flag beside the groups of a region's owner: it delivers datagrams of other hosts' processes.
pub const GATEWAY_FLAG: u32 = 1 << 8;
/// The same: members may WRITE the value areas of its region.
pub const MAILBOX_FLAG: u32 = 1 << 9;

const MAGIC: u64 = u64::from_le_bytes(*b"obol-tab");
const HEADER_VERSION: usize = 1;
const HEADER_LIMITS: usize = 2;
const HEADER_NONCE: usize = 6;
const HEADER_NAME: usize = 7;
const HEADER_HOST: usize = 10;
const HEADER_FIRST: usize = 11;
const HEADER_NAMESPACES: usize = 12;
const CHANGES: usize = 16;
const IMPAIRED: usize = 24;
const BELL: usize = 32;
const NEWS: usize = 40;
const ENTRIES: usize = 64;
const ENTRY_WORDS: usize = 8;
const WORDS: usize = ENTRIES + REGIONS as usize * ENTRY_WORDS;

const STATE: usize = 0;
const GENERATION: usize = 1;
const ROLE: usize = 2;
const NAME: usize = 3;
/// A flag in the word of the generation: the region's memory has been used.
const USED: u64 = 1 << 32;
const IMPAIRMENT: usize = 6;
const DELAY: usize = 7;

const _: () = assert!(size_of::<Limits>() == (HEADER_NONCE - HEADER_LIMITS) * 8);

/// The identity of a cluster, and of this host in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The same on all hosts of the cluster, and of no other cluster, including earlier ones of the
    /// same name.
    pub nonce: u64,
    /// This host's number, from 1 to [`HOST_MAX`](crate::host::numbers::HOST_MAX); 0 if the cluster stays within this host.
    pub host: u8,
}

/// A region owner's self-description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Role {
    pub(crate) kind: u32,
    /// The multicast groups, by bit, and flags such as [`MAILBOX_FLAG`].
    pub groups: u32,
    pub(crate) name: Name,
}

/// An entry, read whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub(crate) occupancy: Occupancy,
    /// Distinguishes the owner from its predecessors.
    pub generation: u32,
    /// As the owner has described itself.
    pub role: Role,
}

impl Entry {
    /// Whether its owner is active: it has not released the region, and its process is not dead.
    pub fn is_alive(&self) -> bool {
        self.occupancy.phase == Phase::Live && !self.occupancy.process.is_dead()
    }
}

/// Which process owns which region.
#[derive(Debug)]
pub struct Table {
    map: Mapping,
    path: PathBuf,
    pub(crate) layout: Layout,
    pub(crate) name: Name,
}

impl Table {
    /// Writes a new table to `path`, which no other process knows yet.
    pub(crate) fn create(path: &Path, name: Name, limits: Limits, origin: Origin) -> Result<(), HostError> {
        let map = map::create(path, WORDS * 8)?;
        map[0].store(MAGIC, Ordering::Relaxed);
        map[HEADER_VERSION].store(u64::from(layout::VERSION), Ordering::Relaxed);
        crate::memory::copy_in(&map[HEADER_LIMITS..HEADER_NONCE], limits.as_bytes());
        map[HEADER_NONCE].store(origin.nonce, Ordering::Relaxed);
        map[HEADER_HOST].store(u64::from(origin.host), Ordering::Relaxed);
        map[HEADER_FIRST].store(u64::from(first_generation(origin.host)), Ordering::Relaxed);
        store_name(&map[HEADER_NAME..], name);
        for (word, namespace) in map[HEADER_NAMESPACES..].iter().zip(Namespace::ALL) {
            word.store(namespace.inode(), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether the calling process opened it, and is not a forked child of that process.
    pub(crate) fn is_here(&self) -> bool {
        self.map.is_here()
    }

    pub(crate) fn open(path: &Path) -> Result<Self, HostError> {
        let corrupt = |fault| HostError::Corrupt { path: path.into(), fault };
        let map = map::open(path, None, Access::ReadWrite)?;
        if map[0].load(Ordering::Relaxed) != MAGIC {
            return Err(corrupt("is not the table of a cluster"));
        }
        let found = map[HEADER_VERSION].load(Ordering::Relaxed) as u32;
        if found != layout::VERSION {
            return Err(HostError::Version { path: path.into(), found, wanted: layout::VERSION });
        }
        // A later release may append to the table.
        if map.len() < WORDS {
            return Err(corrupt("does not have the length of a table"));
        }
        for (word, namespace) in map[HEADER_NAMESPACES..].iter().zip(Namespace::ALL) {
            if word.load(Ordering::Relaxed) != namespace.inode() {
                return Err(HostError::Namespace { path: path.into(), namespace });
            }
        }
        let mut raw = [0; size_of::<Limits>()];
        crate::memory::copy_out(&map[HEADER_LIMITS..HEADER_NONCE], &mut raw);
        let limits = Limits::read_from_bytes(&raw).map_err(|_| corrupt("holds no limits"))?;
        let layout = Layout::new(limits)?;
        let name = load_name(&map[HEADER_NAME..]).ok_or_else(|| corrupt("holds no valid name"))?;
        Ok(Self { map, path: path.into(), layout, name })
    }

    /// Distinguishes this cluster from earlier and later ones of the same name.
    pub(crate) fn nonce(&self) -> u64 {
        self.map[HEADER_NONCE].load(Ordering::Relaxed)
    }

    /// This host's number; 0 if there is only one host.
    pub(crate) fn host(&self) -> u8 {
        self.map[HEADER_HOST].load(Ordering::Relaxed) as u8
    }

    /// The numbers assigned by this host.
    fn own_numbers(&self) -> core::ops::Range<u32> {
        match u32::from(self.host()) {
            0 => FIRST_FREE..REGIONS,
            host => host * PER_HOST..((host + 1) * PER_HOST).min(REGIONS),
        }
    }

    /// The number of changes of entries, for readers that cache them.
    pub(crate) fn changes(&self) -> u64 {
        self.map[CHANGES].load(Ordering::Acquire)
    }

    fn entry(&self, region: u32) -> Option<&[AtomicU64]> {
        if region == 0 || region >= REGIONS {
            return None;
        }
        self.map.get(ENTRIES + region as usize * ENTRY_WORDS..)?.get(..ENTRY_WORDS)
    }

    /// The newest generation of a region, 0 if it never had an owner.
    #[inline]
    pub(crate) fn generation(&self, region: u32) -> u32 {
        self.entry(region).map_or(0, |e| e[GENERATION].load(Ordering::Acquire) as u32)
    }

    /// Whether a finished region file of this number existed: see [`Claim::note_used`].
    pub(crate) fn is_used(&self, region: u32) -> bool {
        self.entry(region).is_some_and(|e| e[GENERATION].load(Ordering::Acquire) & USED != 0)
    }

    /// Whether any links are impaired. Almost never; an operation pays for this check only.
    #[inline]
    pub(crate) fn has_impaired(&self) -> bool {
        self.map[IMPAIRED].load(Ordering::Relaxed) != 0
    }

    /// A futex on which members sleep beside their own doorbells.
    pub(crate) fn bell(&self) -> &AtomicU32 {
        crate::memory::low_half(&self.map[BELL])
    }

    /// Wakes all members that sleep. The caller has rung the doorbells of those that have work.
    pub(crate) fn wake_members(&self) {
        self.bell().fetch_add(1, Ordering::SeqCst);
        futex::wake(self.bell(), u32::MAX);
    }

    /// A futex on which programs sleep beside the changes that their agents announce.
    pub(crate) fn news(&self) -> &AtomicU32 {
        crate::memory::low_half(&self.map[NEWS])
    }

    /// Wakes all programs that wait for a view. The caller has published one, and its CLEAR.
    pub(crate) fn wake_programs(&self) {
        // A program counts before it reads what was published, and sleeps only on the same count.
        self.news().fetch_add(1, Ordering::SeqCst);
        futex::wake(self.news(), u32::MAX);
    }

    /// The impairment of a region's newest owner.
    pub(crate) fn impairment(&self, region: u32) -> Impairment {
        self.entry(region).map_or(Impairment::default(), |entry| {
            let words = [IMPAIRMENT, DELAY].map(|word| entry[word].load(Ordering::Relaxed));
            Impairment::of(words, self.generation(region))
        })
    }

    /// Impairs the links of a region's owner, or restores them. `false` if the owner has changed.
    /// Only one process may do so at a time, which the lock of drills ensures.
    pub(crate) fn impair(&self, region: u32, generation: u32, what: Impairment) -> bool {
        let Some(entry) = self.entry(region) else { return false };
        if self.generation(region) != generation {
            return false;
        }
        let whole = |what: Impairment| what == Impairment::default();
        let words = if whole(what) { [0; 2] } else { what.words(generation) };
        let was_whole = whole(self.impairment(region));
        entry[IMPAIRMENT].store(words[0], Ordering::Relaxed);
        entry[DELAY].store(words[1], Ordering::Relaxed);
        if whole(what) {
            // Counted anew: impairments end with their owners.
            let impaired = (1..REGIONS).filter(|region| !whole(self.impairment(*region)));
            self.map[IMPAIRED].store(impaired.count() as u64, Ordering::Release);
        } else if was_whole {
            self.map[IMPAIRED].fetch_add(1, Ordering::Release);
        }
        true
    }

    /// The entry of a region; `None` if it is free, does not exist, or is changing.
    pub fn get(&self, region: u32) -> Option<Entry> {
        let entry = self.entry(region)?;
        let state = entry[STATE].load(Ordering::Acquire);
        let generation = entry[GENERATION].load(Ordering::Acquire) as u32;
        let role = entry[ROLE].load(Ordering::Relaxed);
        let name = load_name(&entry[NAME..]);
        fence(Ordering::Acquire);
        let stable = entry[STATE].load(Ordering::Relaxed) == state
            && entry[GENERATION].load(Ordering::Relaxed) as u32 == generation;
        let occupancy = Occupancy::of(state);
        if !stable || occupancy.phase == Phase::Free {
            return None;
        }
        let role = Role { kind: role as u32, groups: (role >> 32) as u32, name: name.unwrap_or_default() };
        Some(Entry { occupancy, generation, role })
    }

    /// Claims a region: the given one, or any that is not a coordinator's. The claim has to be made
    /// live or given back.
    pub(crate) fn claim(&self, region: Option<u32>, me: Process) -> Result<Claim<'_>, HostError> {
        if let Some(region) = region {
            let entry = self.entry(region).ok_or(HostError::NoSuchRegion { region, max: REGIONS - 1 })?;
            return self.try_claim(region, entry, me).map_err(|pid| HostError::RegionTaken { region, pid });
        }
        for region in self.candidates() {
            if let Some(entry) = self.entry(region)
                && let Ok(claim) = self.try_claim(region, entry, me)
            {
                return Ok(claim);
            }
        }
        Err(HostError::TableFull { path: self.path.clone(), regions: self.own_numbers().len() })
    }

    /// This host's numbers in order of preference. A recently dead process should stay readable, so
    /// [`UNUSED_FIRST`] numbers are assigned before one is reused, and then the one with the fewest
    /// owners. Numbers with unused memory come last, so that a cluster with short-lived processes
    /// does not use ever more memory.
    fn candidates(&self) -> impl Iterator<Item = u32> {
        let was_used = |region: &u32| self.generation(*region) != 0;
        let (mut used, unused): (Vec<u32>, Vec<u32>) = self.own_numbers().partition(was_used);
        used.sort_by_key(|region| self.generation(*region));
        let first = (UNUSED_FIRST as usize).saturating_sub(used.len()).min(unused.len());
        let rest = unused[first..].to_vec();
        unused.into_iter().take(first).chain(used).chain(rest)
    }

    /// The claim, or the pid of the live holder.
    fn try_claim<'a>(&'a self, region: u32, entry: &'a [AtomicU64], me: Process) -> Result<Claim<'a>, u32> {
        let found = entry[STATE].load(Ordering::Acquire);
        let holder = Occupancy::of(found);
        if !holder.is_open() {
            return Err(holder.process.pid);
        }
        // A dead process does not come back, so a free state does not reappear with the same word.
        // The exception is `Closed` of a live process; it is free nevertheless.
        let claimed = Occupancy::word(Phase::Claimed, me);
        entry[STATE]
            .compare_exchange(found, claimed, Ordering::AcqRel, Ordering::Acquire)
            .map_err(|word| Occupancy::of(word).process.pid)?;
        let word = entry[GENERATION].load(Ordering::Relaxed);
        let next = match word as u32 {
            // The first view names coordinators by their first life. A coordinator that has lost
            // its memory has no later life.
            0 if region < FIRST_FREE => 1,
            0 => self.map[HEADER_FIRST].load(Ordering::Relaxed) as u32,
            last => last.checked_add(1).unwrap_or(1),
        };
        entry[GENERATION].store(word & USED | u64::from(next), Ordering::Release);
        self.changed();
        Ok(Claim { table: self, region, generation: next, me })
    }

    fn changed(&self) {
        self.map[CHANGES].fetch_add(1, Ordering::AcqRel);
    }

    /// Releases a region held by `me`.
    pub(crate) fn close(&self, region: u32, me: Process) {
        if let Some(entry) = self.entry(region) {
            entry[STATE].store(Occupancy::word(Phase::Closed, me), Ordering::Release);
            self.changed();
        }
    }
}

/// The generation of a region's first owner, except for coordinators. A host that has lost its
/// table in a reboot must not reuse values that other hosts know, so it starts from the time in
/// seconds: no region changes owners once per second in the long run.
fn first_generation(host: u8) -> u32 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    match host {
        0 => 1,
        _ => since.map_or(1, |span| (span.as_secs() as u32).max(1)),
    }
}

/// A region number claimed by the calling process. No other process writes its entry.
pub(crate) struct Claim<'a> {
    table: &'a Table,
    pub(crate) region: u32,
    pub(crate) generation: u32,
    me: Process,
}

impl Claim<'_> {
    /// Describes the owner; readers see it once the entry is live.
    pub(crate) fn describe(&self, role: &Role) {
        if let Some(entry) = self.table.entry(self.region) {
            entry[ROLE].store(u64::from(role.kind) | u64::from(role.groups) << 32, Ordering::Relaxed);
            store_name(&entry[NAME..], role.name);
        }
    }

    /// Whether an earlier owner's file was finished, so that peers may have used it.
    pub(crate) fn is_used(&self) -> bool {
        self.table.is_used(self.region)
    }

    /// Records, before the region's file is finished, that it exists. The record outlives the file:
    /// a coordinator whose file is gone must not start with an empty one.
    pub(crate) fn note_used(&self) {
        if let Some(entry) = self.table.entry(self.region) {
            entry[GENERATION].fetch_or(USED, Ordering::AcqRel);
        }
    }

    /// Peers may use the region from now on.
    pub(crate) fn go_live(self) {
        if let Some(entry) = self.table.entry(self.region) {
            entry[STATE].store(Occupancy::word(Phase::Live, self.me), Ordering::Release);
            self.table.changed();
        }
    }

    /// Releases the number after a failure.
    pub(crate) fn give_back(self) {
        self.table.close(self.region, self.me);
    }
}

fn store_name(words: &[AtomicU64], name: Name) {
    for (to, word) in words.iter().zip(name.to_words()) {
        to.store(word, Ordering::Relaxed);
    }
}

fn load_name(words: &[AtomicU64]) -> Option<Name> {
    Name::from_words(core::array::from_fn(|i| words.get(i).map_or(0, |w| w.load(Ordering::Relaxed))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::numbers::HOST_MAX;
    use crate::host::test::{LIMITS, Root, name};

    fn table(root: &Root) -> Table {
        table_of(root, 0)
    }

    fn table_of(root: &Root, host: u8) -> Table {
        std::fs::create_dir(&**root).expect("made");
        let path = root.join("table");
        Table::create(&path, name("c"), LIMITS, Origin { nonce: 7, host }).expect("made");
        Table::open(&path).expect("opened")
    }

    const DEAD: Process = Process { pid: 0, started: 1 };

    #[test]
    fn a_table_of_another_namespace_is_refused() {
        let root = Root::new();
        let table = table(&root);
        for (n, namespace) in Namespace::ALL.into_iter().enumerate() {
            let word = &table.map[HEADER_NAMESPACES + n];
            let own = word.fetch_add(1, Ordering::Relaxed);
            let refused = Table::open(&table.path).map(drop);
            assert!(
                matches!(refused, Err(HostError::Namespace { namespace: of, .. }) if of == namespace),
                "{refused:?}"
            );
            word.store(own, Ordering::Relaxed);
        }
        Table::open(&table.path).expect("its own");
    }

    #[test]
    fn numbers_are_given_out_until_the_table_is_full() {
        let root = Root::new();
        let table = table(&root);
        let me = Process::current().expect("alive");
        for region in FIRST_FREE..REGIONS {
            let claim = table.claim(None, me).map(|c| c.region);
            assert_eq!(claim.expect("free"), region);
        }
        let full = table.claim(None, me).map(|c| c.region).expect_err("full");
        assert!(matches!(full, HostError::TableFull { regions: 1016, .. }), "{full}");
        assert_eq!(table.claim(Some(3), me).map(|c| c.generation).expect("a coordinator's"), 1);
        for region in [0, REGIONS, u32::MAX] {
            let refused = table.claim(Some(region), me).map(|c| c.region);
            assert!(matches!(refused, Err(HostError::NoSuchRegion { max: 1023, .. })));
        }
        table.close(100, me);
        let again = table.claim(None, me).map(|c| (c.region, c.generation));
        assert_eq!(again.expect("one was let go"), (100, 2));
    }

    #[test]
    fn processes_that_come_and_go_take_no_more_memory_and_the_dead_can_be_read_for_long() {
        let root = Root::new();
        let table = table(&root);
        let me = Process::current().expect("alive");
        let stays = table.claim(None, me).map(|c| c.region).expect("free");
        let mut given = Vec::new();
        for _ in 0..10 * UNUSED_FIRST {
            let claim = table.claim(None, DEAD).map(|c| c.region).expect("the dead make room");
            assert!(claim != stays && claim < FIRST_FREE + UNUSED_FIRST, "{claim}");
            let since = given.iter().rev().position(|region| *region == claim);
            assert!(
                since.is_none_or(|others| others + 2 >= UNUSED_FIRST as usize),
                "{claim} after {since:?}"
            );
            given.push(claim);
        }
    }

    #[test]
    fn a_host_gives_out_its_own_numbers_and_no_other_hosts() {
        let root = Root::new();
        let table = table_of(&root, HOST_MAX);
        let me = Process::current().expect("alive");
        let first = u32::from(HOST_MAX) * PER_HOST;
        for region in first..first + PER_HOST {
            assert_eq!(table.claim(None, me).map(|c| c.region).expect("free"), region);
        }
        let full = table.claim(None, me).map(|c| c.region).expect_err("full");
        assert!(matches!(full, HostError::TableFull { regions: 32, .. }), "{full}");
        let coordinator = table.claim(Some(2), me).map(|c| (c.region, c.generation));
        assert_eq!(coordinator.expect("a coordinator's"), (2, 1), "the first view names this life");
        assert!(table.generation(first) > 1, "what other hosts know is not given out again");
    }

    #[test]
    fn what_a_dead_process_held_is_claimed_again_in_any_phase() {
        let root = Root::new();
        let table = table(&root);
        let me = Process::current().expect("alive");
        let role = Role { kind: 1, groups: 2, name: name("a") };
        for (n, phase) in [Phase::Claimed, Phase::Live, Phase::Closed].into_iter().enumerate() {
            let entry = table.entry(9).expect("an entry");
            entry[STATE].store(Occupancy::word(phase, DEAD), Ordering::Relaxed);
            let claim = table.claim(Some(9), me).map_err(|e| e.to_string()).map(|claim| {
                let generation = claim.generation;
                claim.describe(&role);
                claim.go_live();
                generation
            });
            assert_eq!(claim, Ok(n as u32 + 1));
            let found = table.get(9).expect("live");
            assert_eq!((found.role, found.occupancy.process), (role, me));
            assert!(matches!(table.claim(Some(9), me).map(|c| c.region), Err(HostError::RegionTaken { .. })));
        }
        assert_eq!(table.changes(), 6);
    }
}
