//! Regions read through their files into reusable memory. This is for an observer of hundreds of
//! regions: as mappings they would all count as its memory, and their page faults would dominate
//! its cost.
//!
//! A snapshot copies what an observer reads each time; views, histograms and flight recorders only
//! on request or when they have changed. Data under a sequence lock is copied again until the lock
//! is the same before and after.

use crate::host::cluster::Cluster;
use crate::host::error::HostError;
use crate::host::reader::{EVERY_BUCKET, Held, Reader};
use crate::layout::{Layout, Seat, ViewHead};
use crate::memory;
use crate::metrics::{COUNTER_WORDS, HISTOGRAM_WORDS, HISTOGRAMS, HistogramSlot};
use crate::page::{self, TORN_READS_MAX};
use crate::types::ViewId;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};
use nix::fcntl::OFlag;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// The interval, in snapshots, at which rarely changing parts are read; they are also read with
/// every new view, which names every newcomer.
const ALL_EVERY: u32 = 8;
/// A lease page up to its end, within one cache line.
const PAGE_BYTES: usize = (page::END + 1) * 8;
/// A seat's fixed part, its counters and the head of its flight recorder lie side by side.
const SEAT_BYTES: usize = size_of::<Seat>() + COUNTER_WORDS * 8 + 8;

/// A taken seat, as it was when its flight recorder was read last.
#[derive(Clone, Copy, Debug)]
struct KnownSeat {
    seat: u16,
    /// Its occupant, as [`RegionSnapshot::who`] has it.
    who: u64,
    /// The number of recorded events.
    noted: u64,
}

impl KnownSeat {
    /// One whose flight recorder was not read yet.
    const fn new(seat: u16) -> Self {
        Self { seat, who: 0, noted: 0 }
    }
}

/// A region's file, and what is known of its contents.
#[derive(Debug)]
pub struct RegionFile {
    file: File,
    region: u32,
    snapshots: u32,
    view: Option<ViewId>,
    /// For each histogram, the buckets from the first to the last non-empty one, and as many again
    /// on either side.
    buckets: [(usize, usize); HISTOGRAMS],
    /// The number of snapshots of histograms.
    distributions: u32,
    /// The taken seats, the owner's first.
    seats: Vec<KnownSeat>,
}

impl RegionFile {
    /// Opens the file of a region.
    pub fn open(cluster: &Cluster, region: u32) -> Result<Self, HostError> {
        let path = cluster.region_path(region);
        // Recording access times costs a tenth of the work. Only the file's owner may disable it.
        let quiet = OpenOptions::new().read(true).custom_flags(OFlag::O_NOATIME.bits()).open(&path);
        let file = quiet.or_else(|_| File::open(&path)).map_err(HostError::io("open", path))?;
        let buckets = [(0, 0); HISTOGRAMS];
        Ok(Self { file, region, snapshots: 0, view: None, buckets, distributions: 0, seats: Vec::new() })
    }
}

/// Which buckets of a histogram are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buckets {
    /// Those in which samples usually fall, and occasionally all: other samples are seen later.
    Usual,
    All,
}

/// The parts to read besides seats and counters.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotParts {
    /// Its lease page; a coordinator has none.
    pub page: bool,
    pub histograms: Option<Buckets>,
    /// Its slot ring, which is meaningful only for a coordinator.
    pub slots: bool,
    /// The owner's flight recorder from its oldest event on; otherwise only after new events.
    pub recorder: bool,
}

/// Reusable memory for a copy of one region.
pub struct RegionSnapshot {
    words: Box<[AtomicU64]>,
    layout: Layout,
    raw: Vec<u8>,
    /// The copied parts of the last region.
    held: Held,
}

impl RegionSnapshot {
    /// For the regions of one cluster.
    pub fn new(layout: &Layout) -> Self {
        // Observers do not read what follows the slots.
        let words = memory::zeroed(layout.slots().end as usize);
        Self { words, layout: *layout, raw: Vec::new(), held: Held::default() }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        &self.words[offset / 8]
    }

    fn copy(&mut self, from: &File, offset: u32, bytes: usize) -> io::Result<()> {
        if self.raw.len() < bytes {
            self.raw.resize(bytes, 0);
        }
        let raw = &mut self.raw[..bytes];
        from.read_exact_at(raw, u64::from(offset))?;
        memory::copy_in(&self.words[offset as usize / 8..], raw);
        Ok(())
    }

    /// Copies header, lease page and the owner's seat. A page that stays torn is left torn.
    ///
    /// The page is whole if a second copy is identical: a publication changes the sequence before
    /// and after the rest, so two equal copies with an even sequence exclude a publication in
    /// between.
    fn copy_head(&mut self, from: &File, page: bool, torn: &mut u64) -> io::Result<()> {
        let bytes = self.layout.seat(0) as usize + SEAT_BYTES;
        let at = self.layout.page() as usize;
        for _ in 0..TORN_READS_MAX {
            self.copy(from, 0, bytes)?;
            let mut again = [0; PAGE_BYTES];
            if page {
                from.read_exact_at(&mut again, at as u64)?;
            }
            if !page || again[0] & 1 == 0 && self.raw[at..at + PAGE_BYTES] == again {
                return Ok(());
            }
            *torn += 1;
        }
        self.word(at).store(1, Ordering::Relaxed);
        Ok(())
    }

    /// Copies the view; one that stays torn is left torn.
    fn copy_view(&mut self, from: &File, torn: &mut u64) -> io::Result<()> {
        let at = self.layout.view();
        let sequence = || {
            let mut raw = [0; 8];
            from.read_exact_at(&mut raw, u64::from(at)).map(|()| u64::from_le_bytes(raw))
        };
        for _ in 0..TORN_READS_MAX {
            let before = sequence()?;
            self.copy(from, at, self.layout.view_bytes() as usize)?;
            if before & 1 == 0 && sequence()? == before {
                self.word(at as usize).store(before, Ordering::Relaxed);
                return Ok(());
            }
            *torn += 1;
        }
        self.word(at as usize).store(1, Ordering::Relaxed);
        Ok(())
    }

    /// Copies the slot ring. Coordinators swap its words meanwhile, so it counts once two copies
    /// are equal; otherwise the last copy is kept.
    fn copy_slots(&mut self, from: &File, torn: &mut u64) -> io::Result<()> {
        let ring = self.layout.slots();
        let bytes = (ring.end - ring.start) as usize;
        self.copy(from, ring.start, bytes)?;
        for _ in 0..TORN_READS_MAX {
            let before = self.raw[..bytes].to_vec();
            self.copy(from, ring.start, bytes)?;
            if self.raw[..bytes] == before {
                break;
            }
            *torn += 1;
        }
        Ok(())
    }

    /// Copies a region and reads the copy: snapshots can be read in no other way, so that data of
    /// another region is never mixed in. `knows` says whether a view need not be copied again. Adds
    /// the number of repeated copies to `torn`.
    pub fn take(
        &mut self,
        source: &mut RegionFile,
        wanted: SnapshotParts,
        knows: impl Fn(ViewId) -> bool,
        torn: &mut u64,
    ) -> io::Result<Reader<'_>> {
        self.held = Held { page: wanted.page, ..Held::default() };
        // Staggered over regions.
        let all = source.snapshots == 0 || (source.snapshots + source.region).is_multiple_of(ALL_EVERY);
        self.copy_head(&source.file, wanted.page, torn)?;
        let view = self.layout.view();
        let leased = wanted
            .page
            .then(|| self.word(self.layout.page() as usize + page::VIEW * 8).load(Ordering::Relaxed));
        if all || leased != source.view.map(|view| view.0) {
            self.copy(&source.file, view, size_of::<ViewHead>())?;
        } else if let Some(known) = source.view {
            // An owner that renews its lease on a known view has no newer one; otherwise the view
            // is read a little later.
            self.word(view as usize).store(0, Ordering::Relaxed);
            self.word(view as usize + offset_of!(ViewHead, id_plus_one))
                .store(known.0 + 1, Ordering::Relaxed);
        }
        let id = Reader::of(&self.words, &self.layout, &self.held).view_id();
        if id.is_none_or(|id| !knows(id)) {
            self.copy_view(&source.file, torn)?;
            self.held.view = true;
        }
        if all || id != source.view {
            self.find_seats(source)?;
        } else {
            // The owner's was copied with the head.
            for n in 1..source.seats.len() {
                self.copy(&source.file, self.layout.seat(source.seats[n].seat), SEAT_BYTES)?;
            }
        }
        (source.snapshots, source.view) = (source.snapshots % ALL_EVERY + 1, id);
        self.held.seats.extend(source.seats.iter().map(|known| known.seat));
        self.copy_recorders(source, wanted.recorder)?;
        if wanted.slots {
            self.copy_slots(&source.file, torn)?;
            self.held.slots = true;
        }
        if let Some(buckets) = wanted.histograms {
            self.copy_histograms(source, buckets)?;
        }
        Ok(Reader::of(&self.words, &self.layout, &self.held))
    }

    /// Copies histograms. They only grow, so samples outside the copied buckets are seen later.
    fn copy_histograms(&mut self, source: &mut RegionFile, buckets: Buckets) -> io::Result<()> {
        let all = buckets == Buckets::All
            || source.distributions == 0
            || (source.distributions + source.region).is_multiple_of(ALL_EVERY);
        source.distributions = source.distributions % ALL_EVERY + 1;
        for (which, usual) in HistogramSlot::ALL.iter().zip(&mut source.buckets) {
            let at = self.layout.histogram(*which);
            if all {
                self.copy(&source.file, at, HISTOGRAM_WORDS * 8)?;
                let whole = Reader::new(&self.words, &self.layout);
                let used = || whole.buckets(*which).map(|(bucket, _)| usize::from(bucket));
                let [first, last] = [used().next(), used().last()].map(|bucket| bucket.unwrap_or(0));
                let around = last - first + 1;
                *usual = (first.saturating_sub(around), (last + around).min(HISTOGRAM_WORDS));
                continue;
            }
            let (first, end) = *usual;
            self.copy(&source.file, at + 8 * first as u32, 8 * (end - first))?;
        }
        self.held.buckets = if all { EVERY_BUCKET } else { source.buckets };
        Ok(())
    }

    /// Reads all seats but the owner's.
    fn find_seats(&mut self, source: &mut RegionFile) -> io::Result<()> {
        let mut found = Vec::new();
        for seat in 1..self.layout.limits().seats as u16 {
            self.copy(&source.file, self.layout.seat(seat), SEAT_BYTES)?;
            if self.who(seat) >> 32 != 0 {
                let known = source.seats.iter().find(|known| known.seat == seat);
                found.push(known.copied().unwrap_or(KnownSeat::new(seat)));
            }
        }
        let owner = source.seats.first().copied().filter(|known| known.seat == 0);
        found.insert(0, owner.unwrap_or(KnownSeat::new(0)));
        source.seats = found;
        Ok(())
    }

    /// Generation and pid of a seat's occupant in one word.
    fn who(&self, seat: u16) -> u64 {
        self.word(self.layout.seat(seat) as usize + offset_of!(Seat, generation)).load(Ordering::Relaxed)
    }

    /// Copies the flight recorders with new events since the last snapshot, and the owner's on
    /// request.
    fn copy_recorders(&mut self, source: &mut RegionFile, owners: bool) -> io::Result<()> {
        for n in 0..source.seats.len() {
            let KnownSeat { seat, who, noted } = source.seats[n];
            let at = self.layout.recorder(seat);
            let now = (self.who(seat), self.word(at as usize).load(Ordering::Relaxed));
            if now != (who, noted) || owners && seat == 0 {
                self.copy(&source.file, at, self.layout.recorder_bytes())?;
                let noted = self.word(at as usize).load(Ordering::Relaxed);
                source.seats[n] = KnownSeat { seat, who: now.0, noted };
                self.held.recorders.push(seat);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Endpoint;
    use crate::endpoint::{Owner, Wait};
    use crate::host::reader::publish_view;
    use crate::host::test::{LIMITS, made, name};
    use crate::host::{Observed, Region};
    use crate::recorder::{self, EventCode, Record};
    use crate::types::Instant;
    use crate::{Page, metrics};

    /// What a snapshot shows is what a mapping shows.
    fn same(a: Reader<'_>, observed: &Observed) {
        let b = observed.reader();
        assert_eq!((a.page(), a.fence(), a.view()), (b.page(), b.fence(), b.view()));
        assert!(a.slots().eq(b.slots()));
        for seat in 0..LIMITS.seats as u16 {
            assert_eq!(a.seat(seat), b.seat(seat));
            if a.seat(seat).is_some() {
                assert_eq!(
                    (a.counters(seat), a.events::<EventCode>(seat, 0)),
                    (b.counters(seat), b.events(seat, 0))
                );
            }
        }
        for which in HistogramSlot::ALL {
            let [a, b] = [a, b].map(|reader| reader.buckets(which).collect::<Vec<_>>());
            assert_eq!(a, b);
        }
    }

    #[test]
    fn a_snapshot_shows_what_a_mapping_shows() {
        let (_root, cluster) = made();
        let owner = Owner { kind: 3, name: name("a"), region: Some(8), groups: 0 };
        let _owner = Endpoint::open(&cluster, owner, Wait::Block).expect("opened");
        let region = Region::open(&cluster, 8).expect("mapped");
        let observed = Observed::open(&cluster, 8).expect("mapped");
        let layout = *region.layout();
        let mut source = RegionFile::open(&cluster, 8).expect("opened");
        let mut snapshot = RegionSnapshot::new(&layout);
        let wanted =
            SnapshotParts { page: true, histograms: Some(Buckets::Usual), slots: true, recorder: true };
        let recorder = region.part(layout.recorder(0), layout.recorder_bytes());
        for n in 1..10u64 {
            page::publish(region.page(), &Page { view: ViewId(n), end: Instant(n), ..Page::default() });
            metrics::add(region.word(layout.counters(0) as usize), n);
            metrics::add(region.word(layout.histogram(HistogramSlot::new(3)) as usize + 80), n);
            recorder::write(recorder, Instant(n), Record::new(EventCode::new(3), n, 0));
            region.word(layout.slot(n) as usize).store(n << 32 | 1 << 18, Ordering::Relaxed);
            assert!(publish_view(&region, &layout, ViewId(n), format!("view {n}").as_bytes()));
            if n == 5 {
                region.occupy(2, 1, name("b"), crate::host::Process { pid: 1, started: 2 });
            }
            let mut torn = 0;
            let taken = snapshot.take(&mut source, wanted, |_| false, &mut torn).expect("read");
            if taken.seat(2).is_some() == observed.reader().seat(2).is_some() {
                // A newly taken seat shows with the next view, or a little later.
                same(taken, &observed);
            }
            assert_eq!(torn, 0);
        }
    }

    #[test]
    fn between_whole_copies_each_region_has_its_own_window() {
        let (_root, cluster) = made();
        // A thread owns one region at most.
        let at = [(8u32, 100usize), (9, 700)];
        std::thread::scope(|scope| {
            // Dropping them ends the owners, also when a test fails.
            let held = at.map(|(number, _)| {
                let ((opened, is_open), (release, released)) =
                    (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
                let cluster = &cluster;
                scope.spawn(move || {
                    let owner = Owner { kind: 3, name: name("a"), region: Some(number), groups: 0 };
                    let _owner = Endpoint::open(cluster, owner, Wait::Block).expect("opened");
                    opened.send(()).expect("awaited");
                    let _ = released.recv();
                });
                is_open.recv().expect("opened");
                release
            });
            let regions = at.map(|(number, bucket)| {
                let region = Region::open(&cluster, number).expect("mapped");
                let source = RegionFile::open(&cluster, number).expect("opened");
                (region, source, bucket)
            });
            let layout = *regions[0].0.layout();
            let mut snapshot = RegionSnapshot::new(&layout);
            let wanted =
                SnapshotParts { page: true, histograms: Some(Buckets::Usual), slots: false, recorder: false };
            let mut regions = regions;
            for n in 1..30u64 {
                for (region, source, bucket) in &mut regions {
                    for which in HistogramSlot::ALL {
                        metrics::add(region.word(layout.histogram(which) as usize + *bucket * 8), 1);
                    }
                    let taken = snapshot.take(source, wanted, |_| false, &mut 0).expect("read");
                    for which in HistogramSlot::ALL {
                        let shown: Vec<_> = taken.buckets(which).collect();
                        assert_eq!(shown, [(*bucket as u16, n)], "look {n}");
                    }
                }
            }
            drop(held);
        });
    }

    #[test]
    fn whoever_wants_all_buckets_gets_one_that_is_far_from_the_usual_ones() {
        let (_root, cluster) = made();
        let owner = Owner { kind: 3, name: name("a"), region: Some(8), groups: 0 };
        let _owner = Endpoint::open(&cluster, owner, Wait::Block).expect("opened");
        let region = Region::open(&cluster, 8).expect("mapped");
        let which = HistogramSlot::new(1);
        let count = |bucket: u32| {
            metrics::add(region.word((region.layout().histogram(which) + 8 * bucket) as usize), 1);
        };
        let mut source = RegionFile::open(&cluster, 8).expect("opened");
        let mut snapshot = RegionSnapshot::new(region.layout());
        let mut shown = |buckets| {
            let wanted =
                SnapshotParts { page: true, histograms: Some(buckets), slots: false, recorder: false };
            let taken = snapshot.take(&mut source, wanted, |_| false, &mut 0).expect("read");
            taken.buckets(which).collect::<Vec<_>>()
        };
        count(100);
        assert_eq!(shown(Buckets::Usual), [(100, 1)]);
        count(700);
        assert_eq!(shown(Buckets::All), [(100, 1), (700, 1)]);
    }

    #[test]
    fn what_stays_torn_is_shown_as_torn() {
        let (_root, cluster) = made();
        let owner = Owner { kind: 3, name: name("a"), region: Some(8), groups: 0 };
        let _owner = Endpoint::open(&cluster, owner, Wait::Block).expect("opened");
        let region = Region::open(&cluster, 8).expect("mapped");
        region.page()[0].store(3, Ordering::Relaxed);
        let mut source = RegionFile::open(&cluster, 8).expect("opened");
        let mut snapshot = RegionSnapshot::new(region.layout());
        let mut torn = 0;
        let wanted = SnapshotParts { page: true, histograms: None, slots: false, recorder: false };
        let taken = snapshot.take(&mut source, wanted, |_| true, &mut torn).expect("read");
        assert_eq!((taken.page(), torn), (None, u64::from(TORN_READS_MAX)));
    }
}
