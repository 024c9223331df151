//! A region's file: how its owner creates or renews it, and how peers and observers map it.
//!
//! A coordinator's file outlives its process, because it holds acceptor memory. All other owners
//! create a new file, so that a predecessor's memory is never reinitialised under pending
//! operations.

use crate::host::cluster::Cluster;
use crate::host::error::HostError;
use crate::host::file::remove_if_present;
use crate::host::map::{self, Access, Mapping};
use crate::host::numbers::{FIRST_FREE, REGIONS};
use crate::host::process::Process;
use crate::host::reader::Reader;
use crate::host::table::{Claim, Role};
use crate::host::{clock, futex};
use crate::layout::{self, Header, Layout, Seat};
use crate::memory;
use crate::metrics::{COUNTER_WORDS, HISTOGRAM_WORDS, HistogramSlot};
use crate::page::{self, Page};
use crate::types::{Incarnation, Nanos};
use crate::version::{Release, Version};
use core::mem::offset_of;
use core::ops::Deref;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use obol_deaths::Stage;
use std::io::ErrorKind;
use std::sync::Arc;
use zerocopy::IntoBytes as _;

/// How often a process that can wait on one word alone looks for what coordinators have stated.
const NEWS_INTERVAL: Nanos = Nanos::from_millis(5);

/// A mapped region. Clones share the mapping.
#[derive(Clone, Debug)]
pub struct Region {
    map: Arc<Mapping>,
    layout: Layout,
}

impl Deref for Region {
    type Target = [AtomicU64];
    fn deref(&self) -> &[AtomicU64] {
        &self.map
    }
}

/// What a ring has to do so that a region's owner polls. The word `sleeping` of its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Sleep {
    /// It polls by itself.
    Awake = 0,
    /// It sleeps on its doorbell.
    Alone = 1,
    /// It sleeps on its doorbell and on the members' bell, see [`Table::bell`].
    WithMembers = 2,
}

/// Bytes that the release of this process appends to a region. This one appends none; one that a
/// test takes for a later one appends a line, which the others have to ignore.
fn appended() -> usize {
    if Release::own() > Release::THIS { 64 } else { 0 }
}

impl Cluster {
    /// Whether a coordinator has used memory under this number that no longer exists: the number is
    /// not used again.
    pub fn has_lost_memory(&self, number: u32) -> bool {
        number < FIRST_FREE && self.table.is_used(number) && matches!(Region::kept(self, number), Ok(None))
    }
}

/// A region that is mapped read-only, as by the console.
#[derive(Clone, Debug)]
pub struct Observed(Region);

impl Observed {
    /// Maps a region of the cluster, whether its owner is alive or not.
    pub fn open(cluster: &Cluster, region: u32) -> Result<Self, HostError> {
        Region::map(cluster, region, Access::ReadOnly)?.of_known_release(cluster).map(Self)
    }

    /// A reader of its contents.
    pub fn reader(&self) -> Reader<'_> {
        self.0.reader()
    }

    /// Releases the memory through which it was read, until the next read: for observers of many
    /// regions that must stay small. Costs a page fault or two at the next read.
    pub fn release(&self) {
        self.0.map.release();
    }
}

impl Region {
    /// Maps a region of the cluster, whether its owner is alive or not.
    pub fn open(cluster: &Cluster, region: u32) -> Result<Self, HostError> {
        Self::map(cluster, region, Access::ReadWrite)?.of_known_release(cluster)
    }

    /// The region, if its newest owner is of a release that this one works with.
    fn of_known_release(self, cluster: &Cluster) -> Result<Self, HostError> {
        let owner = self.reader().seat(0).map(|seat| seat.version.release()).unwrap_or_default();
        if owner == Release::default() || owner.works_with(Release::own()) {
            return Ok(self);
        }
        let path = cluster.region_path(self.reader().header().region);
        Err(HostError::Release { path, advice: Release::own().advice(owner) })
    }

    /// Prefaults the parts that the owner uses: a process that acts in a failover must not fault
    /// then. Excludes the lanes, most of which are never used, and the values, which only acceptors
    /// have. Not for programs in seats: the kernel has to unmap prefaulted pages when they die.
    pub(crate) fn prefault(&self, is_acceptor: bool) {
        self.map.prefault(0..self.layout.slots().end as usize);
        self.prefault_values(is_acceptor);
    }

    /// Prefaults the parts that peers' machines use, in their mapping: page, death words and
    /// heartbeats, the view and the slots. Excludes parts that only observers read.
    pub(crate) fn prefault_as_peer(&self, is_acceptor: bool) {
        for seat in 0..self.layout.limits().seats {
            let at = self.layout.seat(seat as u16) as usize;
            let from = if seat == 0 { 0 } else { at };
            self.map.prefault(from..at + size_of::<Seat>());
        }
        self.map.prefault(self.layout.view() as usize..self.layout.slots().end as usize);
        self.prefault_values(is_acceptor);
    }

    fn prefault_values(&self, is_acceptor: bool) {
        if is_acceptor {
            let values = self.layout.values();
            self.map.prefault(values.start as usize..values.end as usize);
        }
    }

    fn map(cluster: &Cluster, region: u32, access: Access) -> Result<Self, HostError> {
        if region == 0 || region >= REGIONS {
            return Err(HostError::NoSuchRegion { region, max: REGIONS - 1 });
        }
        let path = cluster.region_path(region);
        let corrupt = |fault| HostError::Corrupt { path: path.clone(), fault };
        let layout = *cluster.layout();
        let found = Self { map: Arc::new(map::open(&path, Some(layout.bytes()), access)?), layout };
        if access == Access::ReadWrite {
            // Reading a page maps its neighbours as well, which are not needed.
            found.map.prefault(0..size_of::<layout::Header>());
        }
        let header = found.reader().header();
        if found.word(0).load(Ordering::Acquire) != layout::MAGIC {
            return Err(corrupt("is not a region, or not a finished one"));
        }
        if header.version != layout::VERSION {
            return Err(HostError::Version { path, found: header.version, wanted: layout::VERSION });
        }
        // A later release may append to a region.
        if header.limits != *layout.limits() || header.bytes < layout.bytes() as u64 {
            return Err(corrupt("has other limits than its cluster"));
        }
        if header.region != region {
            return Err(corrupt("is another region's"));
        }
        Ok(found)
    }

    /// Creates or renews the file of a region that the calling process has claimed. The death words
    /// are written by [`crate::host::death::register`].
    pub(crate) fn prepare(
        cluster: &Cluster,
        claim: &Claim<'_>,
        role: &Role,
        me: Process,
    ) -> Result<Self, HostError> {
        let number = claim.region;
        let region = match Self::kept(cluster, number)? {
            Some(region) => region,
            // With empty memory the acceptor would seem to have promised nothing.
            None if number < FIRST_FREE && claim.is_used() => {
                return Err(HostError::MemoryLost { path: cluster.region_path(number), number });
            }
            None => Self::fresh(cluster, number, claim.generation)?,
        };
        region.prefault(number < FIRST_FREE);
        region.renew(claim.generation, role, me);
        claim.note_used();
        region.word(0).store(layout::MAGIC, Ordering::Release);
        Ok(region)
    }

    /// The file of a coordinator's predecessor, if it was finished.
    fn kept(cluster: &Cluster, number: u32) -> Result<Option<Self>, HostError> {
        if number >= FIRST_FREE {
            return Ok(None);
        }
        // Whatever the release of its predecessor: the layout is the same, but for what later releases
        // append.
        match Self::map(cluster, number, Access::ReadWrite) {
            Ok(region) => Ok(Some(region)),
            Err(HostError::Io { error, .. }) if error.kind() == ErrorKind::NotFound => Ok(None),
            // The magic is written last: a file without it was never used. Any other fault of
            // acceptor memory is for the operator to handle.
            Err(error) => {
                let path = cluster.region_path(number);
                let is_empty = std::fs::metadata(&path).is_ok_and(|meta| meta.len() == 0);
                let is_unfinished = || {
                    map::open(&path, Some(cluster.layout().bytes()), Access::ReadOnly)
                        .is_ok_and(|map| map[0].load(Ordering::Relaxed) == 0)
                };
                if is_empty || is_unfinished() { Ok(None) } else { Err(error) }
            }
        }
    }

    fn fresh(cluster: &Cluster, number: u32, generation: u32) -> Result<Self, HostError> {
        let path = cluster.region_path(number);
        remove_if_present(&path).map_err(HostError::io("replace", &path))?;
        let layout = *cluster.layout();
        let bytes = layout.bytes() + appended();
        let region = Self { map: Arc::new(map::create(&path, bytes)?), layout };
        let limits = *layout.limits();
        // The magic is written last: see `kept`.
        let header = Header { magic: 0, ..Header::of(number, limits, bytes as u64) };
        memory::copy_in(&region, header.as_bytes());
        // A seat's generation includes the region's in its high half, so that a seat of a
        // predecessor's file is distinguishable from one of this file.
        for seat in 1..limits.seats {
            let at = region.layout.seat(seat as u16) as usize / 8 + offset_of!(Seat, generation) / 8;
            memory::low_half(&region[at]).store(generation << 16, Ordering::Relaxed);
        }
        Ok(region)
    }

    /// Sets the parts that belong to the process: seat 0 with its counters and recorder,
    /// histograms, and its part of the header. The page is voided: a successor never inherits a
    /// lease. The fence and acceptor memory are kept.
    fn renew(&self, generation: u32, role: &Role, me: Process) {
        let layout = &self.layout;
        memory::high_half(self.word(offset_of!(Header, kind) & !7)).store(role.kind, Ordering::Relaxed);
        self.word(offset_of!(Header, incarnation)).store(0, Ordering::Relaxed);
        memory::low_half(self.word(offset_of!(Header, groups))).store(role.groups, Ordering::Relaxed);
        self.sleeping().store(0, Ordering::Relaxed);
        self.clear(layout.counters(0), COUNTER_WORDS * 8);
        self.clear(layout.recorder(0), layout.recorder_bytes());
        for histogram in HistogramSlot::ALL {
            self.clear(layout.histogram(histogram), HISTOGRAM_WORDS * 8);
        }
        page::publish(self.page(), &Page::default());
        self.writing().store(0, Ordering::Relaxed);
        self.clear(layout.permits(), size_of::<layout::Permits>());
        self.occupy(0, generation, role.name, me);
    }

    /// Writes a seat's occupant. The seat's state and death words are unchanged.
    pub(crate) fn occupy(&self, seat: u16, generation: u32, name: crate::types::Name, me: Process) {
        let at = self.layout.seat(seat) as usize;
        // After its parts were cleared. Pairs with the fence of a reader of seats.
        fence(Ordering::Release);
        let set = |offset, value| self.word(at + offset).store(value, Ordering::Relaxed);
        set(offset_of!(Seat, generation), u64::from(generation) | u64::from(me.pid) << 32);
        set(offset_of!(Seat, started), me.started);
        for offset in [
            offset_of!(Seat, incarnation),
            offset_of!(Seat, token),
            offset_of!(Seat, request),
            offset_of!(Seat, heartbeat),
            offset_of!(Seat, progress),
            offset_of!(Seat, progress_within),
            offset_of!(Seat, detection),
            offset_of!(Seat, tokens),
            offset_of!(Seat, tokens) + 8,
        ] {
            set(offset, 0);
        }
        // No answer yet, and the version.
        set(offset_of!(Seat, status), u64::from(Version::own().word()) << 32);
        for (i, word) in name.to_words().into_iter().enumerate() {
            set(offset_of!(Seat, name) + i * 8, word);
        }
        fence(Ordering::Release);
    }

    pub(crate) fn clear(&self, offset: u32, bytes: usize) {
        for word in self.part(offset, bytes) {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// The words of a part of the layout, which lies within the mapping.
    pub fn part(&self, offset: u32, bytes: usize) -> &[AtomicU64] {
        memory::span(&self.map, offset, bytes).unwrap_or_default()
    }

    /// The word at a byte offset of the own layout.
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        &self.map[offset / 8]
    }

    /// A word of a seat's fixed part.
    pub(crate) fn seat_word(&self, seat: u16, offset: usize) -> &AtomicU64 {
        self.word(self.layout.seat(seat) as usize + offset)
    }

    /// The low half of a death word: the occupant's thread id until the kernel marks it dead.
    /// `index` is below [`crate::layout::DEATH_WORDS`].
    pub fn death_word(&self, seat: u16, index: usize) -> &AtomicU32 {
        assert!(index < crate::layout::DEATH_WORDS, "death word {index}");
        memory::low_half(self.seat_word(seat, offset_of!(Seat, deaths) + index * 8))
    }

    /// The high half of a death word: who waits on it.
    pub(crate) fn death_claim(&self, seat: u16, index: usize) -> &AtomicU32 {
        memory::high_half(self.seat_word(seat, offset_of!(Seat, deaths) + index * 8))
    }

    /// Whether the calling process mapped it. A forked child finds it empty, and its writes are
    /// private.
    #[inline]
    pub fn is_here(&self) -> bool {
        self.map.is_here()
    }

    /// Whether the kernel has reported the end of the occupant's thread, or there never was one.
    #[inline]
    pub(crate) fn is_dead(&self, seat: u16) -> bool {
        // Word 0 is the first that the kernel marks.
        self.death_word(seat, 0).load(Ordering::Acquire) & futex::TID_MASK == 0
    }

    /// The token of an occupant's death notice; 0 if it has none.
    pub(crate) fn token(&self, seat: u16, stage: Stage) -> &AtomicU64 {
        let which = match stage {
            Stage::Dying => 0,
            Stage::Dead => 8,
        };
        self.seat_word(seat, offset_of!(Seat, tokens) + which)
    }

    /// The owner's incarnation, [`Incarnation::NONE`] before it has joined.
    #[inline]
    pub fn incarnation(&self) -> Incarnation {
        Incarnation(self.word(offset_of!(Header, incarnation)).load(Ordering::Acquire))
    }

    /// The generation of the seat's occupant in this file.
    pub(crate) fn generation(&self, seat: u16) -> u32 {
        self.seat_word(seat, offset_of!(Seat, generation)).load(Ordering::Acquire) as u32
    }

    /// The process of a seat's occupant.
    pub(crate) fn process(&self, seat: u16) -> Process {
        let pid = (self.seat_word(seat, offset_of!(Seat, generation)).load(Ordering::Acquire) >> 32) as u32;
        Process { pid, started: self.seat_word(seat, offset_of!(Seat, started)).load(Ordering::Acquire) }
    }

    /// Into whose value areas the owner is about to WRITE.
    pub(crate) fn writing(&self) -> &AtomicU64 {
        self.word(offset_of!(Header, writing))
    }

    pub(crate) fn doorbell(&self) -> &AtomicU32 {
        memory::low_half(self.word(offset_of!(Header, doorbell)))
    }

    fn sleeping(&self) -> &AtomicU32 {
        memory::high_half(self.word(offset_of!(Header, doorbell)))
    }

    /// Notes how the owner is about to sleep. It must compare the doorbell after that.
    pub(crate) fn set_sleep(&self, sleep: Sleep) {
        self.sleeping().store(sleep as u32, Ordering::SeqCst);
    }

    /// Rings the owner to poll its lanes and seats, and wakes it if it sleeps.
    pub fn ring(&self) {
        if self.count_ring() != Sleep::Awake {
            self.wake();
        }
    }

    /// Rings the owner, which the caller wakes if it sleeps.
    pub(crate) fn count_ring(&self) -> Sleep {
        // Dekker with the sleeper: it sets `sleeping` before the kernel compares the doorbell. The
        // second of the two sees the other's write. The flag is not cleared here, so that a ringer
        // that dies before its wake-up call hinders no other.
        self.doorbell().fetch_add(1, Ordering::SeqCst);
        match self.sleeping().load(Ordering::SeqCst) {
            0 => Sleep::Awake,
            2 => Sleep::WithMembers,
            _ => Sleep::Alone,
        }
    }

    /// Wakes the owner, which was rung.
    pub(crate) fn wake(&self) {
        futex::wake(self.doorbell(), 1);
    }

    /// Notifies attached programs of a changed page or view, and wakes the waiters.
    pub(crate) fn announce(&self) {
        let word = &self.page()[page::CHANGED];
        memory::low_half(word).fetch_add(1, Ordering::SeqCst);
        // Dekker as in `ring`: a waiter raises the high half before the kernel compares the low
        // one.
        if memory::high_half(word).swap(0, Ordering::SeqCst) != 0 {
            futex::wake(memory::low_half(word), u32::MAX);
        }
    }

    /// Requests that the owner confirms its view with the acceptors: see [`page::want`]. `since` is
    /// a time of this host's clock.
    pub fn want_confirmed(&self, since: crate::types::Instant) {
        page::want(self.page(), since);
        self.ring();
    }

    /// The number of changes of lease page and view, as the owner announces them, and of what
    /// coordinators of the host have stated; for [`Region::wait_changed`].
    pub fn changes(&self, cluster: &Cluster) -> u32 {
        let announced = page::changed(self.page()).load(Ordering::Acquire);
        announced.wrapping_add(cluster.table.news().load(Ordering::Acquire))
    }

    /// Waits until there have been changes since `last_seen`; returns the count, also after a
    /// timeout.
    pub fn wait_changed(&self, cluster: &Cluster, last_seen: u32, timeout: Nanos) -> u32 {
        let until = clock::now() + timeout;
        let (word, news) = (&self.page()[page::CHANGED], cluster.table.news());
        loop {
            // Dekker with `announce`.
            memory::high_half(word).store(1, Ordering::SeqCst);
            let counts = [memory::low_half(word), news].map(|count| (count, count.load(Ordering::SeqCst)));
            let changes = counts.iter().fold(0, |sum: u32, (_, count)| sum.wrapping_add(*count));
            let left = until.since(clock::now());
            if changes != last_seen || left == Nanos::ZERO {
                return changes;
            }
            if !futex::waitv(&counts.map(|(count, seen)| futex::waiter(count, seen)), left) {
                let [(announced, seen), _] = counts;
                futex::wait(announced, seen, Some(left.min(NEWS_INTERVAL)));
            }
        }
    }

    /// The lease page.
    #[inline]
    pub fn page(&self) -> &[AtomicU64; page::WORDS] {
        match self.map.get(self.layout.page() as usize / 8..).and_then(<[AtomicU64]>::first_chunk) {
            Some(page) => page,
            // The mapping has the length of its layout, and the page is a part of that.
            None => unreachable!("a region without a page"),
        }
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// A reader of its contents.
    pub fn reader(&self) -> Reader<'_> {
        Reader::new(&self.map, &self.layout)
    }
}

/// Ends an endpoint's wait from another thread.
#[derive(Clone, Debug)]
pub struct Waker(pub(crate) Region);

impl Waker {
    /// Makes the loop turn once, now.
    pub fn wake(&self) {
        self.0.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Endpoint;
    use crate::endpoint::{Owner, Wait};
    use crate::host::test::{LIMITS, Root, name};

    fn owner(region: u32) -> Owner {
        Owner { kind: 3, name: name("a"), region: Some(region), groups: 2 }
    }

    /// A cluster whose regions 1 and 8 were left by owners that are gone.
    fn left(root: &Root) -> Cluster {
        let cluster = Cluster::create(root, name("c"), LIMITS).expect("made");
        for number in [1, 8] {
            Endpoint::open(&cluster, owner(number), Wait::Block).expect("opened");
        }
        cluster
    }

    #[test]
    fn a_process_that_can_wait_on_one_word_alone_sleeps_until_there_is_news() {
        let root = Root::new();
        let cluster = Cluster::create(&root, name("c"), LIMITS).expect("made");
        let agent = Endpoint::open(&cluster, owner(8), Wait::Block).expect("opened");
        let (region, seen) = (agent.region(), agent.region().changes(&cluster));
        let sleeps = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").expect("there");
            let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            line.expect("a count").trim().parse::<u64>().expect("a number")
        };
        let (told, tells) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let (region, cluster) = (&region, &cluster);
            let waiter = scope.spawn(move || {
                futex::test::refuse_waitv();
                let before = sleeps();
                assert_eq!(region.wait_changed(cluster, seen, NEWS_INTERVAL), seen, "there is none");
                assert!(sleeps() > before, "it spins");
                told.send(()).expect("heard");
                region.wait_changed(cluster, seen, Nanos::from_secs(1000))
            });
            tells.recv().expect("it has waited");
            region.announce();
            assert_eq!(waiter.join().expect("no panic"), seen + 1);
        });
    }

    fn damage(cluster: &Cluster, number: u32, change: impl FnOnce(&mut Vec<u8>)) {
        let path = cluster.region_path(number);
        let mut raw = std::fs::read(&path).expect("read");
        change(&mut raw);
        std::fs::write(path, raw).expect("written");
    }

    #[test]
    fn observers_see_the_header_and_the_owner() {
        let root = Root::new();
        let cluster = left(&root);
        let observed = Observed::open(&cluster, 1).expect("mapped");
        let header = observed.reader().header();
        assert_eq!((header.version, header.kind, header.groups, header.region), (layout::VERSION, 3, 2, 1));
        let seat = observed.reader().seat(0).expect("an owner");
        assert_eq!((seat.name, seat.process.pid, seat.dead), (name("a"), std::process::id(), true));
        assert_eq!((observed.reader().seat(1), observed.reader().seat(999)), (None, None));
        let info = cluster.region_info(1).expect("listed");
        assert_eq!((info.alive, info.generation, info.kind), (false, 1, 3));
    }

    #[test]
    fn a_coordinators_file_that_was_never_finished_is_made_anew() {
        let root = Root::new();
        let cluster = left(&root);
        let unfinished = vec![0; cluster.layout().bytes()];
        for (number, raw) in [(2, unfinished), (3, Vec::new())] {
            std::fs::write(cluster.region_path(number), raw).expect("written");
            assert!(matches!(Region::open(&cluster, number), Err(HostError::Corrupt { .. })));
            Endpoint::open(&cluster, owner(number), Wait::Block).expect("made anew");
            Region::open(&cluster, number).expect("whole");
        }
    }

    #[test]
    fn a_coordinator_whose_file_was_there_and_is_gone_does_not_begin_with_an_empty_one() {
        let root = Root::new();
        let cluster = left(&root);
        assert!(!cluster.has_lost_memory(1) && !cluster.has_lost_memory(2), "neither used nor lost");
        let reopen = |number| Endpoint::open(&cluster, owner(number), Wait::Block).map(drop);
        for change in [|raw: &mut Vec<u8>| raw[..8].fill(0), Vec::clear] {
            damage(&cluster, 1, change);
            let refused = reopen(1).expect_err("its memory is lost");
            assert!(matches!(refused, HostError::MemoryLost { number: 1, .. }), "{refused}");
        }
        std::fs::remove_file(cluster.region_path(1)).expect("removed");
        for _ in 0..2 {
            let refused = reopen(1).expect_err("its memory is lost, however often it is tried");
            assert!(refused.to_string().contains("`obol coordinator replace 1`"), "{refused}");
            assert!(cluster.has_lost_memory(1) && !cluster.region_path(1).exists());
        }
        std::fs::remove_file(cluster.region_path(8)).expect("removed");
        reopen(8).expect("no other region holds what must not be forgotten");
        reopen(2).expect("a number that was never used");
    }

    #[test]
    fn a_file_of_another_version_or_cluster_is_refused_and_a_coordinators_is_kept() {
        let root = Root::new();
        let cluster = left(&root);
        for number in [1, 8] {
            damage(&cluster, number, |raw| raw[8] += 1);
            let refused = Region::open(&cluster, number).map(drop);
            let newer = layout::VERSION + 1;
            assert!(matches!(refused, Err(HostError::Version { found, .. }) if found == newer));
        }
        let refused = Endpoint::open(&cluster, owner(1), Wait::Block).map(drop);
        assert!(matches!(refused, Err(HostError::Version { .. })), "acceptor memory is not thrown away");
        damage(&cluster, 1, |raw| raw.truncate(128));
        let refused = Endpoint::open(&cluster, owner(1), Wait::Block).map(drop);
        assert!(matches!(refused, Err(HostError::Corrupt { .. })));
        Endpoint::open(&cluster, owner(8), Wait::Block).expect("its file is replaced anyway");
        damage(&cluster, 8, |raw| raw[24] += 1);
        assert!(matches!(Region::open(&cluster, 8), Err(HostError::Corrupt { .. })));
    }
}
