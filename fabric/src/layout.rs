//! The layout of a region, in bytes. Every region of a cluster has the same layout, so a peer
//! computes any offset from the cluster's [`Limits`]; the header identifies regions of another
//! version, which are rejected. A release may append to a region, which keeps the version: peers of
//! the release before do not look there (`docs/upgrade.md`).
//!
//! ```text
//! 0      Header      who, which layout, doorbell, heartbeat word's home
//! 256    permits     whose WRITEs its owner refuses, over shared memory
//! 512    lease page  sequence-locked lease, fence word on the second cache line
//! 640    seats       seat 0 is the owner: death words, heartbeat, counters, flight recorder
//! ..     histograms  of the owner
//! ..     view        the newest decided view, sequence-locked
//! ..     slots       one word each: the CAS engine's ring
//! ..     values      [slot][proposer] encoded views
//! ..     lanes       one datagram ring per sender
//! ```

#![warn(missing_docs, reason = "others write programs and backends against this")]

use crate::metrics::{COUNTER_WORDS, HISTOGRAM_WORDS, HISTOGRAMS, HistogramSlot};
use crate::{page, recorder};
use core::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The first eight bytes of every region: `obol-mem`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"obol-mem");
/// Changes whenever a reader of an older layout would misread.
pub const VERSION: u32 = 7;

/// The largest datagram in bytes: the maximum MTU of RDMA UD.
pub const DATAGRAM_BYTES_MAX: usize = 4096;
/// Coordinators (acceptors, proposers) a cluster can have.
pub const PROPOSERS_MAX: usize = 7;
/// Death words of a seat: one for each coordinator, then one for any other watcher.
pub const DEATH_WORDS: usize = 15;

/// Words of the bits that announce datagrams: one cache line, in which a receiver sees at once which
/// of its lanes to read. Each lane is on pages of its own.
pub const PENDING_WORDS: usize = 8;

/// The head of a region.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// The owner's member kind.
    pub kind: u32,
    /// The region's length.
    pub bytes: u64,
    /// The cluster's limits, which determine all offsets.
    pub limits: Limits,
    /// The owner's incarnation; 0 before it has joined.
    pub incarnation: u64,
    /// Multicast groups of the owner, see [`crate::Group::bit`].
    pub groups: u32,
    /// The region's number.
    pub region: u32,
    /// Over shared memory, the region into whose value areas the owner is about to WRITE: its number in
    /// the high half, its generation in the low half; 0 for none.
    pub writing: u64,
    /// The coordinators that the owner cannot reach: bit `n - 1` for coordinator `n`. See
    /// [`crate::Fabric::publish_unreachable`].
    pub unreachable: u64,
    /// Spare, zero.
    pub spare: [u64; 5],
    /// Counts rings; the owner's futex.
    pub doorbell: u32,
    /// Not 0 while the owner sleeps, so that a ring needs a wake-up call; 2 if it sleeps on the
    /// members' bell too.
    pub sleeping: u32,
    /// Spare, zero; keeps the doorbell on its own cache line.
    pub spare_line: [u64; 7],
    /// A bit for each lane with datagrams, see [`Layout::pending`].
    pub pending: [u64; PENDING_WORDS],
}

#[cfg(not(loom))]
impl Header {
    /// Of a region without an owner; the owner fills in the rest.
    pub fn of(region: u32, limits: Limits, bytes: u64) -> Self {
        Self { magic: MAGIC, version: VERSION, bytes, limits, region, ..zerocopy::FromZeros::new_zeroed() }
    }
}

/// Exceptions among the permissions of a region.
pub const PERMIT_ENTRIES: usize = 14;

/// Whose WRITEs into a part of the value areas are refused: see [`crate::Fabric::permit`]. Over shared
/// memory writers look here.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Permits {
    /// The part: its first byte in the low half, its end in the high half; 0 for none.
    pub part: u64,
    /// 1 if those without an exception are refused.
    pub refused: u64,
    /// The exceptions: region plus one, whether it is refused (1 bit), generation (32 bits; 0 for all
    /// owners of the region). 0 for none.
    pub entries: [u64; PERMIT_ENTRIES],
}

/// A seat's fixed part.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Seat {
    /// A `SeatState` of the backend.
    pub state: u64,
    /// Counts occupants.
    pub generation: u32,
    /// The occupant's process id.
    pub pid: u32,
    /// Start time of that process in clock ticks since boot, as in `/proc/PID/stat`: detects a
    /// reused pid.
    pub started: u64,
    /// The occupant's incarnation, 0 if it is not a member.
    pub incarnation: u64,
    /// Token of the occupant's join.
    pub token: u64,
    /// The occupant's request to the owner; a futex in its low half.
    pub request: u64,
    /// The owner's answer, a futex, in its low half; the occupant's version in the upper.
    pub status: u64,
    /// Advanced by the occupant as long as it runs.
    pub heartbeat: u64,
    /// Advanced by the application when it makes progress (opt-in).
    pub progress: u64,
    /// The occupant's name, see `Name::to_words`.
    pub name: [u64; 3],
    /// The period in nanoseconds in which the application promised progress; 0 for no promise.
    pub progress_within: u64,
    /// The mechanism that reports the occupant's death first: see [`obol_deaths::Detection`];
    /// with eBPF its slot is in the upper half.
    pub detection: u64,
    /// The tokens of its notices of dying and of being dead, see [`crate::notice`]; 0 for none.
    pub tokens: [u64; 2],
    /// Robust futexes: the low half holds the occupant's thread id until the kernel marks its owner
    /// dead.
    pub deaths: [u64; DEATH_WORDS],
    /// The end of the hold on the occupant's join, by the clock of its host: valid while that is
    /// the owner's answer.
    pub held_until: u64,
}

/// The fixed part of the view area; the encoded view follows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ViewHead {
    /// Odd while the view is being written.
    pub sequence: u64,
    /// The view's id plus one; 0 before there is one.
    pub id_plus_one: u64,
    /// Its length in bytes.
    pub len: u64,
    /// The latest base with a CLEAR known to the owner. Not under the sequence lock: it is valid
    /// with any view.
    pub cleared: u64,
}

/// The fixed part of a lane: a ring from one sender to the region's owner.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Lane {
    /// The sender: its region in the high half, its generation in the low half; 0 if the lane is
    /// free.
    pub owner: u64,
    /// Datagrams ever put in.
    pub head: u64,
    /// Datagrams lost because the lane was full.
    pub lost: u64,
    /// Keeps the consumer's word on its own cache line.
    pub spare: [u64; 5],
    /// Datagrams ever taken out.
    pub tail: u64,
    /// Spare, zero.
    pub spare_tail: [u64; 7],
}

/// Bytes before a datagram in a lane: its length.
pub const DATAGRAM_HEAD_BYTES: usize = 8;
/// Room for the sender of a datagram from another host, which its gateway puts before the bytes.
pub const SENDER_BYTES: usize = 32;

const _: () = assert!(size_of::<Header>() == 256 && size_of::<Seat>() == 256);
const _: () = assert!(size_of::<ViewHead>() == 32 && size_of::<Lane>() == 128);
const _: () = assert!(offset_of!(Header, doorbell) == 128 && offset_of!(Header, pending) == 192);

const PERMITS_AT: usize = size_of::<Header>();
const PAGE_AT: usize = 512;
const _: () = assert!(PERMITS_AT + size_of::<Permits>() <= PAGE_AT);
const SEATS_AT: usize = PAGE_AT + page::WORDS * 8;

/// The dimensions of a cluster's regions. Part of a profile, the same for all processes of a
/// cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Limits {
    /// Seats of a region, the owner's included.
    pub seats: u32,
    /// Slots of the ring.
    pub slots: u32,
    /// Coordinators, at most [`PROPOSERS_MAX`].
    pub proposers: u32,
    /// Bytes of one encoded view; a multiple of 64.
    pub value_bytes: u32,
    /// Senders whose datagrams a region can receive.
    pub lanes: u32,
    /// Datagrams queued in a lane before more are lost.
    pub lane_slots: u32,
    /// Largest datagram in bytes; a multiple of 64.
    pub datagram_bytes: u32,
    /// Events that a seat's flight recorder keeps.
    pub recorder_events: u32,
}

/// A limit that is out of its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "limits.{name} is {value}, but must lie in {}..={}{}", .bounds.0, .bounds.1,
    if .name.ends_with("bytes") { " and be a multiple of 64" } else { "" }
)]
pub struct LimitError {
    /// The limit.
    pub name: &'static str,
    /// The value given.
    pub value: u32,
    /// The minimum and the maximum.
    pub bounds: (u32, u32),
}

impl Limits {
    /// Bounds of each limit: `(name, smallest, largest)`, in the order of the fields.
    pub const BOUNDS: [(&'static str, u32, u32); 8] = [
        ("seats", 1, 256),
        ("slots", 4, 1024),
        ("proposers", 1, PROPOSERS_MAX as u32),
        ("value_bytes", 512, 1 << 20),
        ("lanes", 4, 4096),
        ("lane_slots", 2, 1024),
        ("datagram_bytes", 512, DATAGRAM_BYTES_MAX as u32),
        ("recorder_events", 16, 1 << 20),
    ];

    /// The minimum of every limit.
    pub const LEAST: Self = {
        let [seats, slots, proposers, value_bytes, lanes, lane_slots, datagram_bytes, recorder_events] =
            Self::BOUNDS;
        Self {
            seats: seats.1,
            slots: slots.1,
            proposers: proposers.1,
            value_bytes: value_bytes.1,
            lanes: lanes.1,
            lane_slots: lane_slots.1,
            datagram_bytes: datagram_bytes.1,
            recorder_events: recorder_events.1,
        }
    };

    const fn values(&self) -> [u32; 8] {
        [
            self.seats,
            self.slots,
            self.proposers,
            self.value_bytes,
            self.lanes,
            self.lane_slots,
            self.datagram_bytes,
            self.recorder_events,
        ]
    }
}

/// Offsets in a region, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    limits: Limits,
    histograms: usize,
    view: usize,
    slots: usize,
    values: usize,
    lanes: usize,
    bytes: usize,
}

const fn align(n: usize) -> usize {
    n.div_ceil(64) * 64
}

impl Layout {
    /// The layout for these limits, or the first limit that is out of bounds.
    pub fn new(limits: Limits) -> Result<Self, LimitError> {
        for ((name, low, high), value) in Limits::BOUNDS.into_iter().zip(limits.values()) {
            let fits =
                (low..=high).contains(&value) && (!name.ends_with("bytes") || value.is_multiple_of(64));
            if !fits {
                return Err(LimitError { name, value, bounds: (low, high) });
            }
        }
        let n = |x: u32| x as usize;
        let histograms = SEATS_AT + n(limits.seats) * Self::seat_bytes(&limits);
        let view = align(histograms + HISTOGRAMS * HISTOGRAM_WORDS * 8);
        let slots = align(view + size_of::<ViewHead>() + n(limits.value_bytes));
        let values = align(slots + n(limits.slots) * 8);
        let lanes = align(values + n(limits.slots) * n(limits.proposers) * n(limits.value_bytes));
        let bytes = lanes + n(limits.lanes) * Self::lane_bytes(&limits);
        if bytes > u32::MAX as usize {
            return Err(LimitError {
                name: "value_bytes",
                value: limits.value_bytes,
                bounds: (512, 1 << 16),
            });
        }
        Ok(Self { limits, histograms, view, slots, values, lanes, bytes })
    }

    const fn seat_bytes(limits: &Limits) -> usize {
        align(size_of::<Seat>() + COUNTER_WORDS * 8 + recorder::words(limits.recorder_events as usize) * 8)
    }

    const fn lane_bytes(limits: &Limits) -> usize {
        let slot = DATAGRAM_HEAD_BYTES + SENDER_BYTES + limits.datagram_bytes as usize;
        align(size_of::<Lane>() + limits.lane_slots as usize * slot)
    }

    /// The limits that this layout follows.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Bytes of a region.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whose WRITEs are refused.
    pub const fn permits(&self) -> u32 {
        PERMITS_AT as u32
    }

    /// The lease page.
    pub const fn page(&self) -> u32 {
        PAGE_AT as u32
    }

    /// The fence word.
    pub const fn fence(&self) -> u32 {
        (PAGE_AT + page::FENCE * 8) as u32
    }

    /// A seat's fixed part.
    pub fn seat(&self, seat: u16) -> u32 {
        assert!(u32::from(seat) < self.limits.seats, "seat {seat} of {}", self.limits.seats);
        (SEATS_AT + usize::from(seat) * Self::seat_bytes(&self.limits)) as u32
    }

    /// The word that a seat's application advances when it makes progress.
    pub fn progress(&self, seat: u16) -> u32 {
        self.seat(seat) + offset_of!(Seat, progress) as u32
    }

    /// A seat's heartbeat word.
    pub fn heartbeat(&self, seat: u16) -> u32 {
        self.seat(seat) + offset_of!(Seat, heartbeat) as u32
    }

    /// The word that names the coordinators which the owner cannot reach.
    pub const fn unreachable(&self) -> u32 {
        offset_of!(Header, unreachable) as u32
    }

    /// A seat's counters.
    pub fn counters(&self, seat: u16) -> u32 {
        self.seat(seat) + size_of::<Seat>() as u32
    }

    /// A seat's flight recorder.
    pub fn recorder(&self, seat: u16) -> u32 {
        self.counters(seat) + (COUNTER_WORDS * 8) as u32
    }

    /// Bytes of a flight recorder.
    pub const fn recorder_bytes(&self) -> usize {
        recorder::words(self.limits.recorder_events as usize) * 8
    }

    /// One of the owner's histograms.
    pub const fn histogram(&self, which: HistogramSlot) -> u32 {
        (self.histograms + which.number() as usize * HISTOGRAM_WORDS * 8) as u32
    }

    /// The view area's head; the encoded view follows it.
    pub const fn view(&self) -> u32 {
        self.view as u32
    }

    /// Bytes of the view area, head included.
    pub const fn view_bytes(&self) -> u32 {
        size_of::<ViewHead>() as u32 + self.limits.value_bytes
    }

    /// The word of the slot that decides view `id`.
    pub const fn slot(&self, id: u64) -> u32 {
        self.slots as u32 + (id % self.limits.slots as u64) as u32 * 8
    }

    /// The area of proposer `proposer` (from 1) for its value of slot `id`.
    pub fn value(&self, id: u64, proposer: u16) -> u32 {
        assert!(
            proposer >= 1 && u32::from(proposer) <= self.limits.proposers,
            "proposer {proposer} of {}",
            self.limits.proposers
        );
        let slot = (id % u64::from(self.limits.slots)) as u32;
        let index = slot * self.limits.proposers + u32::from(proposer) - 1;
        self.values as u32 + index * self.limits.value_bytes
    }

    /// The whole slot ring.
    pub const fn slots(&self) -> core::ops::Range<u32> {
        self.slots as u32..self.slots as u32 + self.limits.slots * 8
    }

    /// All value areas.
    pub const fn values(&self) -> core::ops::Range<u32> {
        let bytes = self.limits.slots * self.limits.proposers * self.limits.value_bytes;
        self.values as u32..self.values as u32 + bytes
    }

    /// Differs between layouts that two processes must not mix by mistake. No protection against an
    /// adversary (FNV-1a).
    pub fn digest(&self) -> u64 {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        let limits = self.limits.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step);
        VERSION.to_le_bytes().iter().fold(limits, step)
    }

    /// The offset of the word, and the bit in it, that announce datagrams in a lane. With more lanes
    /// than bits, several share one.
    pub const fn pending(lane: u32) -> (u32, u64) {
        let bit = lane % (PENDING_WORDS as u32 * 64);
        (offset_of!(Header, pending) as u32 + bit / 64 * 8, 1 << (bit % 64))
    }

    /// A lane's fixed part; its datagrams follow.
    pub fn lane(&self, lane: u32) -> u32 {
        assert!(lane < self.limits.lanes, "lane {lane} of {}", self.limits.lanes);
        (self.lanes + lane as usize * Self::lane_bytes(&self.limits)) as u32
    }

    /// The offset of datagram number `n` in a lane: its length word, then its bytes.
    pub fn datagram(&self, lane: u32, n: u64) -> u32 {
        let slot = (DATAGRAM_HEAD_BYTES + SENDER_BYTES) as u32 + self.limits.datagram_bytes;
        let index = (n % u64::from(self.limits.lane_slots)) as u32;
        self.lane(lane) + size_of::<Lane>() as u32 + index * slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        seats: 9,
        slots: 8,
        proposers: 3,
        value_bytes: 4096,
        lanes: 32,
        lane_slots: 8,
        datagram_bytes: 4096,
        recorder_events: 256,
    };

    #[test]
    fn the_layout_of_this_version_does_not_move() {
        assert_eq!(VERSION, 7);
        assert_eq!(offset_of!(Header, limits), 24);
        assert_eq!(offset_of!(Header, incarnation), 56);
        assert_eq!(offset_of!(Header, groups), 64);
        assert_eq!(offset_of!(Header, sleeping), 132);
        assert_eq!(Layout::pending(0), (192, 1));
        assert_eq!(Layout::pending(65), (200, 2));
        assert_eq!(Layout::pending(511), (248, 1 << 63));
        assert_eq!(Layout::pending(4095), Layout::pending(511));
        assert_eq!(offset_of!(Seat, generation), 8);
        assert_eq!(offset_of!(Seat, heartbeat), 56);
        assert_eq!(offset_of!(Seat, name), 72);
        assert_eq!(offset_of!(Seat, deaths), 128);
        assert_eq!(offset_of!(Seat, held_until), 248);
        assert_eq!(offset_of!(Lane, tail), 64);
        let layout = Layout::new(LIMITS).expect("in bounds");
        assert_eq!((layout.page(), layout.fence(), layout.seat(0)), (512, 576, 640));
        assert_eq!(layout.seat(1) - layout.seat(0), 9024);
    }

    /// Every offset that a peer computes.
    fn offsets() -> Vec<(String, Vec<u8>)> {
        let layout = Layout::new(LIMITS).expect("in bounds");
        let mut all = vec![
            ("version", VERSION),
            ("header.limits", offset_of!(Header, limits) as u32),
            ("header.incarnation", offset_of!(Header, incarnation) as u32),
            ("header.groups", offset_of!(Header, groups) as u32),
            ("header.region", offset_of!(Header, region) as u32),
            ("header.doorbell", offset_of!(Header, doorbell) as u32),
            ("header.sleeping", offset_of!(Header, sleeping) as u32),
            ("header.pending", offset_of!(Header, pending) as u32),
            ("header.writing", offset_of!(Header, writing) as u32),
            ("permits.refused", layout.permits() + offset_of!(Permits, refused) as u32),
            ("permits.entries", layout.permits() + offset_of!(Permits, entries) as u32),
            ("seat.state", offset_of!(Seat, state) as u32),
            ("seat.generation", offset_of!(Seat, generation) as u32),
            ("seat.pid", offset_of!(Seat, pid) as u32),
            ("seat.started", offset_of!(Seat, started) as u32),
            ("seat.incarnation", offset_of!(Seat, incarnation) as u32),
            ("seat.token", offset_of!(Seat, token) as u32),
            ("seat.request", offset_of!(Seat, request) as u32),
            ("seat.status", offset_of!(Seat, status) as u32),
            ("seat.heartbeat", offset_of!(Seat, heartbeat) as u32),
            ("seat.progress", offset_of!(Seat, progress) as u32),
            ("seat.name", offset_of!(Seat, name) as u32),
            ("seat.progress_within", offset_of!(Seat, progress_within) as u32),
            ("seat.detection", offset_of!(Seat, detection) as u32),
            ("seat.tokens", offset_of!(Seat, tokens) as u32),
            ("seat.deaths", offset_of!(Seat, deaths) as u32),
            ("seat.held_until", offset_of!(Seat, held_until) as u32),
            ("view.id_plus_one", offset_of!(ViewHead, id_plus_one) as u32),
            ("view.len", offset_of!(ViewHead, len) as u32),
            ("view.cleared", offset_of!(ViewHead, cleared) as u32),
            ("lane.head", offset_of!(Lane, head) as u32),
            ("lane.tail", offset_of!(Lane, tail) as u32),
            ("page", layout.page()),
            ("fence", layout.fence()),
            ("view", layout.view()),
            ("slots", layout.slots().start),
            ("bytes", layout.bytes() as u32),
        ];
        for seat in 0..2 {
            let name = ["seat-0", "seat-1"][usize::from(seat)];
            all.push((name, layout.seat(seat)));
            all.push((name, layout.counters(seat)));
            all.push((name, layout.recorder(seat)));
            all.push(("lane", layout.lane(seat.into())));
            all.push(("datagram", layout.datagram(0, seat.into())));
            all.push(("value", layout.value(0, 1 + seat)));
        }
        all.extend(HistogramSlot::ALL.map(|which| ("histogram", layout.histogram(which))));
        all.into_iter().map(|(name, at)| (name.to_owned(), at.to_le_bytes().to_vec())).collect()
    }

    /// Processes of neighbouring releases use each other's regions. A later release may append.
    #[test]
    fn offsets_are_those_of_this_release_and_all_earlier_ones() {
        let folder = [env!("CARGO_MANIFEST_DIR"), "testdata/layout"].iter().collect::<std::path::PathBuf>();
        let now = offsets();
        for old in obol_fuzz::recorded::check(&folder, env!("CARGO_PKG_VERSION"), &now) {
            assert!(now.contains(&(old.name.clone(), old.bytes.clone())), "{old:?}");
        }
    }

    #[test]
    fn no_two_parts_overlap() {
        let layout = Layout::new(LIMITS).expect("in bounds");
        let mut parts = vec![
            (0, 256),
            (layout.permits(), 128),
            (layout.page(), 128),
            (layout.view(), layout.view_bytes()),
        ];
        for seat in 0..9 {
            parts.push((layout.seat(seat), 256));
            parts.push((layout.counters(seat), 512));
            parts.push((layout.recorder(seat), layout.recorder_bytes() as u32));
        }
        for h in HistogramSlot::ALL {
            parts.push((layout.histogram(h), (HISTOGRAM_WORDS * 8) as u32));
        }
        for id in 0..8 {
            parts.push((layout.slot(id), 8));
            parts.extend((1..=3).map(|p| (layout.value(id, p), 4096)));
        }
        for lane in 0..32 {
            parts.push((layout.lane(lane), 128));
            parts.extend((0..8).map(|n| (layout.datagram(lane, n), 4096 + 32 + 8)));
        }
        parts.sort_unstable();
        for pair in parts.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
            assert!(pair[1].0 % 8 == 0, "{pair:?}");
        }
        let last = parts.last().expect("there are parts");
        assert!((last.0 + last.1) as usize <= layout.bytes());
    }

    #[test]
    fn a_limit_out_of_bounds_is_named() {
        let refused = Layout::new(Limits { proposers: 8, ..LIMITS }).expect_err("8 proposers");
        assert_eq!(refused.to_string(), "limits.proposers is 8, but must lie in 1..=7");
        let refused = Layout::new(Limits { value_bytes: 1000, ..LIMITS }).expect_err("no multiple of 64");
        assert_eq!(refused.name, "value_bytes");
    }
}
