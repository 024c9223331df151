//! Permissions over shared memory: see [`crate::Fabric::permit`] and, for the design under every order
//! of accesses, `orders/revocations.rs`.
//!
//! A process that maps a region can store into it whenever it runs. So a writer announces in a word of its
//! own region where it is about to WRITE, looks at the permissions in the target's region, stores, and
//! withdraws the word. An owner that revokes a permission changes the words of its own region, and the
//! change is in force when each writer that it concerns was seen not to write here, or is dead.
//!
//! Each side stores and then loads what the other has stored, so both need a full fence in between.
//! The owner's is a `membarrier`, which has all processes that registered execute one; theirs, on the
//! path of each WRITE, then only binds the compiler.
//!
//! A gateway WRITEs for processes of other hosts. It announces these WRITEs in its own word, and looks
//! at the permissions of the process for which it WRITEs. So an owner that revokes a permission waits
//! for the gateway as well as for the process that it names.
//!
//! Only WRITEs into value areas are announced, and only by one thread of a process, because the word
//! holds one WRITE: the thread that runs the machine, and of a gateway the one that executes
//! operations. No other thread makes any.

use crate::contract::{LinkError, Token};
use crate::host::clock;
use crate::host::kernel;
use crate::host::mapped::MappedRegions;
use crate::host::numbers::{PER_HOST, REGIONS};
use crate::host::occupancy::Phase;
use crate::host::region::Region;
use crate::host::table::GATEWAY_FLAG;
use crate::layout::{PERMIT_ENTRIES, Permits as Words};
use crate::memory;
use crate::rights::{Change, Entry, PartPermissions, Permission, Writers};
use crate::types::{Instant, Nanos, RegionOwner};
use core::mem::offset_of;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering, compiler_fence, fence};
use std::collections::VecDeque;

/// Poll interval for a writer caught in mid-WRITE; it may be descheduled for long.
const POLL_INTERVAL: Nanos = Nanos::from_micros(20);
const POLL_INTERVAL_MAX: Nanos = Nanos::from_millis(1);

/// A word of the permissions in a region.
fn word(of: &Region, offset: usize) -> &AtomicU64 {
    of.word(of.layout().permits() as usize + offset)
}

/// The words of processes that differ from the rest.
fn entries(of: &Region) -> &[AtomicU64] {
    of.part(of.layout().permits() + offset_of!(Words, entries) as u32, PERMIT_ENTRIES * 8)
}

/// The word of an entry. Never 0.
const fn word_of(Entry { region, generation, refused }: Entry) -> u64 {
    (region as u64 + 1) << 33 | (refused as u64) << 32 | generation as u64
}

const fn entry_of(word: u64) -> Option<Entry> {
    match (word >> 33) as u32 {
        0 => None,
        region => Some(Entry { region: region - 1, generation: word as u32, refused: word >> 32 & 1 != 0 }),
    }
}

/// Whether this process may write to these bytes now.
fn allows(of: &Region, writer: RegionOwner, offset: u32, bytes: u32) -> bool {
    let part = word(of, offset_of!(Words, part)).load(Ordering::Acquire);
    let (begin, end) = (part as u32, (part >> 32) as u32);
    if begin == end || offset >= end || u64::from(offset) + u64::from(bytes) <= u64::from(begin) {
        return true;
    }
    let known = entries(of).iter().filter_map(|word| entry_of(word.load(Ordering::Acquire)));
    let of_it = known.filter(|it| it.is_for(writer));
    // One for this process says more than one for all owners of its region.
    let said = of_it.max_by_key(|it| it.generation).map(|it| it.refused);
    // After the entries: an owner changes this before it removes any.
    !said.unwrap_or_else(|| word(of, offset_of!(Words, refused)).load(Ordering::Acquire) != 0)
}

/// The side that WRITEs, with the word of its own region.
pub(crate) struct Writer {
    own: Region,
    /// A `membarrier` of an owner has this process execute a fence.
    is_registered: bool,
}

impl Writer {
    pub(crate) fn new(own: Region) -> Self {
        let is_registered = kernel::take_part_in_barriers().is_ok();
        Self { own, is_registered }
    }

    /// WRITEs for a process to these words at an offset of a region, if its owner permits that process
    /// to.
    pub(crate) fn write(
        &self,
        writer: RegionOwner,
        to: (&Region, RegionOwner),
        offset: u32,
        words: &[AtomicU64],
        bytes: &[u8],
    ) -> Result<(), LinkError> {
        let (region, RegionOwner { region: number, generation }) = to;
        let values = region.layout().values();
        let (len, end) = (bytes.len() as u32, u64::from(offset) + bytes.len() as u64);
        if offset >= values.end || end <= u64::from(values.start) {
            memory::write(words, bytes);
            return Ok(());
        }
        let writing = self.own.writing();
        writing.store(u64::from(number) << 32 | u64::from(generation), Ordering::Relaxed);
        if self.is_registered {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
        let may = allows(region, writer, offset, len);
        if may {
            memory::write(words, bytes);
        }
        writing.store(0, Ordering::Release);
        if may { Ok(()) } else { Err(LinkError::Denied) }
    }
}

/// A change that is not in force yet.
struct Pending {
    change: Change,
    token: Token,
    /// Those that may still execute what it forbids; `None` before it was begun.
    writers: Option<Vec<RegionOwner>>,
}

/// The owner's side.
pub(crate) struct Permits {
    own: Region,
    me: RegionOwner,
    /// The part that was named, and the permissions on it.
    part: Range<u32>,
    given: PartPermissions,
    pending: VecDeque<Pending>,
    look_at: Instant,
    look_in: Nanos,
}

impl Permits {
    pub(crate) fn new(own: Region, me: RegionOwner) -> Self {
        let (pending, given) = (VecDeque::new(), PartPermissions::default());
        Self { own, me, part: 0..0, given, pending, look_at: Instant::NEVER, look_in: POLL_INTERVAL }
    }

    pub(crate) fn post(&mut self, change: Change, token: Token) {
        self.pending.push_back(Pending { change, token, writers: None });
        (self.look_at, self.look_in) = (Instant::ZERO, POLL_INTERVAL);
    }

    /// When [`Permits::poll`] is due.
    pub(crate) const fn due(&self) -> Instant {
        self.look_at
    }

    /// Begins changes, one after the other; `done` gets those that are in force.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        regions: &mut MappedRegions,
        mut done: impl FnMut(Token, Result<(), LinkError>),
    ) {
        if now < self.look_at {
            return;
        }
        self.look_at = Instant::NEVER;
        while let Some(Pending { change, token, writers }) = self.pending.pop_front() {
            let begun = writers.map_or_else(|| self.begin(&change, regions), Ok);
            let mut writers = match begun {
                Ok(writers) => writers,
                Err(error) => {
                    done(token, Err(error));
                    continue;
                }
            };
            writers.retain(|writer| self.may_write_still(*writer, regions));
            if writers.is_empty() {
                self.look_in = POLL_INTERVAL;
                done(token, Ok(()));
                continue;
            }
            self.pending.push_front(Pending { change, token, writers: Some(writers) });
            self.look_at = clock::now() + self.look_in;
            self.look_in = self.look_in.saturating_mul(2).min(POLL_INTERVAL_MAX);
            return;
        }
    }

    /// Changes the words of the own region. Returns who may be writing.
    fn begin(&mut self, change: &Change, regions: &MappedRegions) -> Result<Vec<RegionOwner>, LinkError> {
        let Change { whom, part, permission } = change;
        let values = self.own.layout().values();
        let part = part.start.max(values.start)..part.end.min(values.end).max(part.start.max(values.start));
        let is_free = self.given == PartPermissions::default();
        let mut given = self.given.clone();
        given.set(*whom, *permission);
        // There is room for one part and some exceptions.
        let has_room = (is_free || part == self.part) && given.entries().len() <= PERMIT_ENTRIES;
        if !has_room || !kernel::has_barriers() {
            return Err(LinkError::Unsupported);
        }
        // The writers of the last change are gone by now, so nothing depends on the part any more.
        if is_free {
            self.part = part.clone();
            let word = u64::from(part.end) << 32 | u64::from(part.start);
            self.set(offset_of!(Words, part), word);
        }
        self.given = given;
        self.publish();
        if *permission == Permission::Granted {
            return Ok(Vec::new());
        }
        // Writers that look from here on see the change, and those that have looked before are seen.
        fence(Ordering::SeqCst);
        kernel::barrier().map_err(|_| LinkError::Unsupported)?;
        Ok(writers(*whom, regions))
    }

    fn set(&self, offset: usize, value: u64) {
        word(&self.own, offset).store(value, Ordering::Release);
    }

    /// Writes the permissions, in an order in which every look is one at those before or after.
    fn publish(&self) {
        self.set(offset_of!(Words, refused), u64::from(self.given.refuses_others()));
        let (slots, wanted) = (entries(&self.own), self.given.entries());
        let key = |it: Entry| (it.region, it.generation);
        let held = |slot: &AtomicU64| entry_of(slot.load(Ordering::Relaxed)).map(key);
        // What is dropped first agrees with the rest, or was replaced by one for all owners.
        let stays =
            |slot: &&AtomicU64| held(slot).is_some_and(|held| wanted.iter().any(|it| key(*it) == held));
        let all_owners = |it: &&Entry| it.generation == 0;
        for &it in wanted.iter().filter(all_owners).chain(wanted.iter().filter(|it| !all_owners(it))) {
            let same = slots.iter().find(|slot| held(slot) == Some(key(it)));
            let free = || slots.iter().find(|slot| held(slot).is_none() || !stays(slot));
            if let Some(slot) = same.or_else(free) {
                slot.store(word_of(it), Ordering::Release);
            }
        }
        for slot in slots.iter().filter(|slot| held(slot).is_some() && !stays(slot)) {
            slot.store(0, Ordering::Release);
        }
    }

    /// Whether a process may be in the middle of a WRITE into the own region that it has begun before
    /// the change.
    fn may_write_still(&self, writer: RegionOwner, regions: &mut MappedRegions) -> bool {
        let target = u64::from(self.me.region) << 32 | u64::from(self.me.generation);
        let found = regions.get(writer.region).map(|(region, generation)| {
            (generation == writer.generation).then(|| region.writing().load(Ordering::Acquire))
        });
        match found {
            // A region has a later owner only when the earlier one is dead.
            Ok(word) => word == Some(target) && !is_dead(writer, regions),
            Err(_) => !is_dead(writer, regions),
        }
    }
}

/// The processes that may be WRITing what a change concerns, without those that are dead.
fn writers(whom: Writers, regions: &MappedRegions) -> Vec<RegionOwner> {
    let table = &regions.cluster.table;
    let live = |region| {
        let entry = table.get(region)?;
        let is_live = matches!(entry.occupancy.phase, Phase::Claimed | Phase::Live);
        let owner = RegionOwner { region, generation: entry.generation };
        is_live.then_some((owner, entry.role.groups & GATEWAY_FLAG != 0))
    };
    match whom {
        Writers::Everyone => (1..REGIONS).filter_map(live).map(|(owner, _)| owner).collect(),
        Writers::Process(at) => {
            let is_it = |it: RegionOwner| {
                it.region == at.region && (at.generation == 0 || it.generation == at.generation)
            };
            // The gateway WRITEs for it if it is of another host. One that was replaced may not be dead
            // yet.
            let of_host = u32::from(regions.cluster.host()) * PER_HOST;
            let may_be_gateways = if of_host == 0 { 0..0 } else { of_host..of_host + PER_HOST };
            let is_of_host = may_be_gateways.contains(&at.region);
            let known = may_be_gateways.chain((!is_of_host).then_some(at.region));
            let concerned = |&(owner, is_gateway): &(RegionOwner, bool)| is_gateway || is_it(owner);
            known.filter_map(live).filter(concerned).map(|(owner, _)| owner).collect()
        }
    }
}

/// Whether no thread of a process runs any more. A death word is not enough: it says so of one thread.
fn is_dead(writer: RegionOwner, regions: &MappedRegions) -> bool {
    let entry = regions.cluster.table.get(writer.region);
    entry.is_none_or(|entry| entry.generation != writer.generation || entry.occupancy.process.is_dead())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Endpoint;
    use crate::Fabric;
    use crate::endpoint::{Owner, Wait};
    use crate::host::test::{LIMITS, Root, name};
    use crate::host::{Cluster, Origin};
    use crate::types::Address;
    use std::sync::mpsc;

    /// A region's owner, and another one with a thread of its own, which ends with this.
    struct Pair {
        own: Endpoint,
        peer: Peer,
        regions: MappedRegions,
        permits: Permits,
        _root: Root,
    }

    struct Peer {
        at: Address,
        region: Region,
        _ends: mpsc::Sender<()>,
    }

    impl Peer {
        fn open(cluster: &Cluster, groups: u32) -> Self {
            let (tx, rx) = mpsc::channel();
            let (ends, ended) = mpsc::channel::<()>();
            let cluster = cluster.clone();
            std::thread::spawn(move || {
                let endpoint = open(&cluster, "peer", groups);
                tx.send((endpoint.address(), endpoint.region().clone())).expect("received");
                // Until the other end is dropped.
                let _ = ended.recv();
            });
            let (at, region) = rx.recv().expect("opened");
            Self { at, region, _ends: ends }
        }
    }

    fn open(cluster: &Cluster, text: &str, groups: u32) -> Endpoint {
        let owner = Owner { kind: 1, name: name(text), region: None, groups };
        Endpoint::open(cluster, owner, Wait::Block).expect("opened")
    }

    fn owner_of(at: Address) -> RegionOwner {
        RegionOwner { region: at.region, generation: at.generation }
    }

    impl Pair {
        fn new() -> Self {
            Self::with(0, 0)
        }

        /// On a host of this number, with a peer in these groups.
        fn with(host: u8, groups: u32) -> Self {
            let root = Root::new();
            let origin = Origin { nonce: 1, host };
            let cluster = Cluster::create_on(&root, name("c"), LIMITS, origin).expect("made");
            let (own, peer) = (open(&cluster, "own", 0), Peer::open(&cluster, groups));
            let me = owner_of(own.address());
            let regions = MappedRegions::new(cluster.clone(), me, own.region().clone());
            let permits = Permits::new(own.region().clone(), me);
            Self { own, peer, regions, permits, _root: root }
        }

        fn post(&mut self, whom: Writers, permission: Permission) {
            let part = self.own.region().layout().values();
            self.permits.post(Change { whom, part, permission }, Token(1));
        }

        /// Those changes that have ended.
        fn poll(&mut self) -> Vec<Result<(), LinkError>> {
            let mut ended = Vec::new();
            self.permits.poll(Instant::NEVER, &mut self.regions, |_, result| ended.push(result));
            ended
        }

        fn allows(&self, writer: RegionOwner) -> bool {
            allows(self.own.region(), writer, self.own.region().layout().values().start, 8)
        }
    }

    #[test]
    fn a_writer_in_the_middle_of_a_write_holds_up_its_revocation_and_what_follows() {
        use Permission::{Granted, Revoked};
        let mut pair = Pair::new();
        let (me, writer) = (owner_of(pair.own.address()), owner_of(pair.peer.at));
        let here = u64::from(me.region) << 32 | u64::from(me.generation);
        // It is about to write elsewhere.
        pair.peer.region.writing().store(here + 1, Ordering::Relaxed);
        pair.post(Writers::Process(pair.peer.at), Revoked);
        assert_eq!(pair.poll(), [Ok(())]);
        assert!(!pair.allows(writer) && pair.allows(me));
        pair.post(Writers::Process(pair.peer.at), Granted);
        assert_eq!(pair.poll(), [Ok(())]);
        // It is about to write here.
        pair.peer.region.writing().store(here, Ordering::Relaxed);
        pair.post(Writers::Everyone, Revoked);
        pair.post(Writers::Process(pair.peer.at), Granted);
        assert_eq!(pair.poll(), []);
        assert!(!pair.allows(writer) && !pair.allows(me) && pair.permits.due() < Instant::NEVER);
        pair.peer.region.writing().store(0, Ordering::Relaxed);
        assert_eq!(pair.poll(), [Ok(()), Ok(())]);
        assert!(pair.allows(writer) && !pair.allows(me) && pair.permits.due() == Instant::NEVER);
    }

    #[test]
    fn a_gateway_in_the_middle_of_a_write_holds_up_the_revocation_of_a_process_of_another_host() {
        let elsewhere = Address { generation: 1, ..Address::region(2 * PER_HOST) };
        for (groups, holds_up) in [(GATEWAY_FLAG, true), (0, false)] {
            let mut pair = Pair::with(1, groups);
            let me = owner_of(pair.own.address());
            let here = u64::from(me.region) << 32 | u64::from(me.generation);
            pair.peer.region.writing().store(here, Ordering::Relaxed);
            pair.post(Writers::Process(elsewhere), Permission::Revoked);
            assert_eq!(pair.poll().is_empty(), holds_up);
            // Every process refuses to WRITE for it. What the gateway WRITEs for others is executed.
            assert!(!pair.allows(owner_of(elsewhere)) && pair.allows(owner_of(pair.peer.at)));
            pair.peer.region.writing().store(0, Ordering::Relaxed);
            assert_eq!(pair.poll().len(), usize::from(holds_up));
        }
    }

    #[test]
    fn what_there_is_no_room_for_is_refused_and_changes_nothing() {
        let mut pair = Pair::new();
        let process = |n: usize| Address { generation: 1, ..Address::region(100 + n as u32) };
        let writer = |n| RegionOwner { region: process(n).region, generation: 1 };
        pair.post(Writers::Everyone, Permission::Revoked);
        for n in 0..=PERMIT_ENTRIES {
            pair.post(Writers::Process(process(n)), Permission::Granted);
        }
        let mut ended = pair.poll();
        assert_eq!(ended.pop(), Some(Err(LinkError::Unsupported)));
        assert!(ended.iter().all(Result::is_ok) && ended.len() == PERMIT_ENTRIES + 1, "{ended:?}");
        assert!((0..PERMIT_ENTRIES).all(|n| pair.allows(writer(n))) && !pair.allows(writer(PERMIT_ENTRIES)));
        // One that agrees with the rest needs no room.
        pair.post(Writers::Process(process(0)), Permission::Revoked);
        pair.post(Writers::Process(process(PERMIT_ENTRIES)), Permission::Granted);
        assert_eq!(pair.poll(), [Ok(()), Ok(())]);
        assert!(!pair.allows(writer(0)) && pair.allows(writer(PERMIT_ENTRIES)));
        // A second part.
        let change = Change { whom: Writers::Everyone, part: 0..u32::MAX, permission: Permission::Granted };
        pair.permits
            .post(Change { part: 0..pair.own.region().layout().values().end - 8, ..change }, Token(2));
        assert_eq!(pair.poll(), [Err(LinkError::Unsupported)]);
    }
}
