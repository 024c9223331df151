//! Reads a region for observers: snapshots of its parts, each checked for torn data of a writer
//! that died or still runs.

use crate::host::seat_words::{Answer, Request};
use crate::layout::{Header, Layout, Seat, ViewHead};
use crate::memory;
use crate::metrics::{self, COUNTER_WORDS, HISTOGRAM_WORDS, HISTOGRAMS, HistogramSlot};
use crate::page::{self, Page};
use crate::recorder::{self, EventCode, Stamped};
use crate::types::{Incarnation, Instant, Name, ViewId};
use crate::version::Version;
use crate::view_area;
use core::sync::atomic::{AtomicU64, Ordering, fence};
use obol_deaths::Detection;
use zerocopy::FromBytes;

/// Reads a region.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    words: &'a [AtomicU64],
    layout: &'a Layout,
    /// The parts that a copy contains; `None` for the whole region.
    held: Option<&'a Held>,
}

/// The parts that a copy contains besides the header, the fence, and the id of the view. Other
/// parts may be of another region, so a [`Reader`] reports them as absent.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// The lease page.
    pub(crate) page: bool,
    pub(crate) view: bool,
    /// The slot ring.
    pub(crate) slots: bool,
    /// For each histogram, the range of its copied buckets.
    pub(crate) buckets: [(usize, usize); HISTOGRAMS],
    /// The taken seats, each with its counters and the number of recorded events.
    pub(crate) seats: Vec<u16>,
    /// Those of them whose flight recorders are included.
    pub(crate) recorders: Vec<u16>,
}

/// Per histogram.
pub(crate) const EVERY_BUCKET: [(usize, usize); HISTOGRAMS] = [(0, HISTOGRAM_WORDS); HISTOGRAMS];

/// The state of a seat at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatInfo {
    pub seat: u16,
    /// Counts occupants.
    pub generation: u32,
    /// The occupant's process.
    pub process: super::Process,
    /// Its name; empty if the words are not a valid one.
    pub name: Name,
    /// Its incarnation, [`Incarnation::NONE`] if it is not a member.
    pub incarnation: Incarnation,
    /// Its heartbeat counter.
    pub heartbeat: u64,
    /// The application's progress counter, if it uses it.
    pub progress: u64,
    /// Whether the kernel has reported the end of its thread.
    pub dead: bool,
    /// Whether it left the cluster at its own request, and has not rejoined. Meaningless for a
    /// region's owner: see its flight recorder.
    pub left: bool,
    /// The end of the hold on its join, by its host's clock, if its join is on hold.
    pub held_until: Option<Instant>,
    /// The version that it runs.
    pub version: Version,
    /// The mechanism that reports its death first.
    pub detection: Detection,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(words: &'a [AtomicU64], layout: &'a Layout) -> Self {
        Self { words, layout, held: None }
    }

    /// For a copy that contains only these parts.
    pub(crate) fn of(words: &'a [AtomicU64], layout: &'a Layout, held: &'a Held) -> Self {
        Self { words, layout, held: Some(held) }
    }

    fn holds(&self, part: impl Fn(&Held) -> bool) -> bool {
        self.held.is_none_or(part)
    }

    /// Whether there is such a seat, and it is included.
    fn holds_seat(&self, seat: u16) -> bool {
        u32::from(seat) < self.layout.limits().seats && self.holds(|held| held.seats.contains(&seat))
    }

    fn part(&self, offset: u32, bytes: usize) -> &'a [AtomicU64] {
        memory::span(self.words, offset, bytes).unwrap_or_default()
    }

    /// The header. Its parts may be of different moments.
    pub fn header(&self) -> Header {
        let mut raw = [0; size_of::<Header>()];
        memory::copy_out(self.words, &mut raw);
        fence(Ordering::Acquire);
        zerocopy::transmute!(raw)
    }

    /// The owner's incarnation.
    pub fn incarnation(&self) -> Incarnation {
        let word = self.words.get(core::mem::offset_of!(Header, incarnation) / 8);
        Incarnation(word.map_or(0, memory::relaxed))
    }

    /// A seat's fixed part; `None` if there is no such seat or it was never used.
    pub fn seat(&self, seat: u16) -> Option<SeatInfo> {
        if !self.holds_seat(seat) {
            return None;
        }
        let part = self.part(self.layout.seat(seat), size_of::<Seat>());
        // Most seats of most regions are empty.
        part.get(core::mem::offset_of!(Seat, pid) / 8).filter(|word| memory::relaxed(word) >> 32 != 0)?;
        let mut raw = [0; size_of::<Seat>()];
        memory::copy_out(part, &mut raw);
        fence(Ordering::Acquire);
        let found = Seat::read_from_bytes(&raw).ok()?;
        if found.pid == 0 {
            return None;
        }
        Some(SeatInfo {
            seat,
            generation: found.generation,
            process: super::Process { pid: found.pid, started: found.started },
            name: Name::from_words(found.name).unwrap_or_default(),
            incarnation: Incarnation(found.incarnation),
            heartbeat: found.heartbeat,
            progress: found.progress,
            dead: found.deaths[0] as u32 & super::futex::TID_MASK == 0,
            left: Answer::of(found.status as u32).is_left_since(Request::of(found.request)),
            // The owner's own seat has no status.
            held_until: (seat == 0 || Answer::of(found.status as u32).is_on_hold())
                .then_some(Instant(found.held_until)),
            version: Version::of((found.status >> 32) as u32),
            detection: Detection::of(found.detection),
        })
    }

    /// The whole lease page; `None` if it is not included, or its holder stopped in the middle of a
    /// publication.
    pub fn page(&self) -> Option<Page> {
        self.page_counted(&mut 0)
    }

    /// As [`Reader::page`]; adds the number of repeated reads to `torn`.
    #[must_use]
    pub fn page_counted(&self, torn: &mut u64) -> Option<Page> {
        let page = self.page_words().filter(|_| self.holds(|held| held.page));
        page::load_counted(page?, torn)
    }

    pub fn fence(&self) -> ViewId {
        self.page_words().map_or(ViewId::GENESIS, page::fenced)
    }

    fn page_words(&self) -> Option<&'a [AtomicU64; page::WORDS]> {
        self.part(self.layout.page(), page::WORDS * 8).first_chunk()
    }

    /// The newest decided view, whole; `None` if there is none yet, it is not included, or its
    /// owner stopped in the middle of a publication.
    pub fn view(&self) -> Option<(ViewId, Vec<u8>)> {
        let mut bytes = Vec::new();
        self.view_into(&mut bytes).map(|id| (id, bytes))
    }

    /// As [`Reader::view`], into a reusable buffer.
    pub fn view_into(&self, bytes: &mut Vec<u8>) -> Option<ViewId> {
        self.view_counted(bytes, &mut 0)
    }

    /// The id of the newest decided view, without reading the view; `None` if there is none yet or
    /// it is being written.
    #[inline]
    pub fn view_id(&self) -> Option<ViewId> {
        view_area::id(self.part(self.layout.view(), size_of::<ViewHead>()))
    }

    /// The latest base with a CLEAR that the owner, a coordinator, knows; [`ViewId::GENESIS`] if it
    /// knows none, or the view is not included.
    #[inline]
    pub fn cleared(&self) -> ViewId {
        if !self.holds(|held| held.view) {
            return ViewId::GENESIS;
        }
        view_area::cleared(self.part(self.layout.view(), size_of::<ViewHead>()))
    }

    /// As [`Reader::view_into`]; adds the number of repeated reads to `torn`.
    pub fn view_counted(&self, bytes: &mut Vec<u8>, torn: &mut u64) -> Option<ViewId> {
        if !self.holds(|held| held.view) {
            return None;
        }
        view_area::load(self.part(self.layout.view(), self.layout.view_bytes() as usize), bytes, torn)
    }

    /// The words of the slot ring, each atomic by itself; empty if they are not included.
    pub fn slots(&self) -> impl Iterator<Item = u64> + use<'a> {
        let ring = self.layout.slots();
        let words = self.part(ring.start, (ring.end - ring.start) as usize);
        let words = if self.holds(|held| held.slots) { words } else { &[] };
        words.iter().map(memory::relaxed)
    }

    /// Copies a part of the space of the slots' values in ascending order, each word atomic by
    /// itself. False if it is not included, or lies elsewhere.
    pub fn values(&self, part: core::ops::Range<u32>, out: &mut Vec<u8>) -> bool {
        let space = self.layout.values();
        let is_held = self.held.is_none() && part.start >= space.start && part.end <= space.end;
        let len = part.end.saturating_sub(part.start) as usize;
        let words = memory::span(self.words, part.start, len).filter(|_| is_held);
        let Some(words) = words else { return false };
        out.resize(len, 0);
        memory::copy_out(words, out);
        fence(Ordering::Acquire);
        true
    }

    /// A seat's counters by slot, including unused ones; empty if there is no such seat, or it is
    /// not included.
    pub fn counters(&self, seat: u16) -> Vec<u64> {
        if !self.holds_seat(seat) {
            return Vec::new();
        }
        metrics::snapshot(self.part(self.layout.counters(seat), COUNTER_WORDS * 8))
    }

    /// The non-empty buckets of one of the owner's histograms: their indices and counts.
    pub fn buckets(&self, which: HistogramSlot) -> impl Iterator<Item = (u16, u64)> + use<'a> {
        let words = self.part(self.layout.histogram(which), HISTOGRAM_WORDS * 8);
        let (first, end) =
            self.held.map_or((0, HISTOGRAM_WORDS), |held| held.buckets[usize::from(which.number())]);
        let words = words.get(first..end).unwrap_or_default();
        let each = (first as u16..).zip(words).map(|(bucket, word)| (bucket, memory::relaxed(word)));
        each.filter(|(_, n)| *n > 0)
    }

    /// A seat's events from number `from` on, oldest first; `None` if there is no such seat, or
    /// requested events are not included.
    pub fn events<K: TryFrom<EventCode>>(&self, seat: u16, from: u64) -> Option<Vec<Stamped<K>>> {
        if !self.holds_seat(seat) {
            return None;
        }
        let recorder = self.part(self.layout.recorder(seat), self.layout.recorder_bytes());
        if self.holds(|held| held.recorders.contains(&seat)) {
            return Some(recorder::read(recorder, from));
        }
        // A recorder is not read if it has no new events.
        recorder.first().filter(|noted| memory::relaxed(noted) <= from).map(|_| Vec::new())
    }

    /// A copy of any part, possibly torn; `None` if it is misaligned, outside, or not all of the
    /// region is included.
    pub fn bytes(&self, offset: u32, len: usize) -> Option<Vec<u8>> {
        if self.held.is_some() {
            return None;
        }
        let mut out = vec![0; len];
        memory::copy_out(memory::span(self.words, offset, len)?, &mut out);
        fence(Ordering::Acquire);
        Some(out)
    }
}

/// Publishes a view for [`Reader::view`]. Only the owner may call this. `false` if it does not fit.
pub fn publish_view(words: &[AtomicU64], layout: &Layout, id: ViewId, bytes: &[u8]) -> bool {
    let area = memory::span(words, layout.view(), layout.view_bytes() as usize);
    view_area::publish(area.unwrap_or_default(), id, bytes)
}

/// Publishes a CLEAR beside the view, for [`Reader::cleared`]. It never goes back.
pub(crate) fn publish_cleared(words: &[AtomicU64], layout: &Layout, base: ViewId) {
    let area = memory::span(words, layout.view(), size_of::<ViewHead>());
    view_area::publish_cleared(area.unwrap_or_default(), base);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::test::LIMITS;

    #[test]
    fn a_view_is_read_whole_or_not_at_all() {
        let layout = Layout::new(LIMITS).expect("in bounds");
        let words = memory::zeroed(layout.bytes());
        let reader = Reader::new(&words, &layout);
        assert_eq!((reader.view(), reader.cleared()), (None, ViewId::GENESIS), "there is none yet");
        publish_cleared(&words, &layout, ViewId(3));
        publish_cleared(&words, &layout, ViewId(2));
        assert!(publish_view(&words, &layout, ViewId(4), b"four"));
        assert_eq!(reader.view(), Some((ViewId(4), b"four".to_vec())));
        assert_eq!((reader.view_id(), reader.cleared()), (Some(ViewId(4)), ViewId(3)));
        assert!(!publish_view(&words, &layout, ViewId(5), &vec![0; LIMITS.value_bytes as usize + 1]));
        let head = layout.view() as usize / 8;
        words[head].fetch_add(1, Ordering::Relaxed);
        let mut torn = 0;
        assert_eq!(reader.view_counted(&mut Vec::new(), &mut torn), None, "its writer died");
        assert_eq!(torn, u64::from(page::TORN_READS_MAX));
        assert_eq!(reader.view_id(), None);
        words[head].fetch_add(1, Ordering::Relaxed);
        words[head + 2].store(u64::MAX, Ordering::Relaxed);
        assert_eq!(reader.view(), None, "a length that lies outside");
    }
}
