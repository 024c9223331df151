//! The backup: applies its log, and reports its state to the primary.
//!
//! For each new primary a backup begins a new log in a ring of its own, because a previous primary
//! may still write into the old one when it wakes up. First it waits until the old primary can no
//! longer answer, and applies the rest of the old log. The new primary writes nothing before it has
//! received the backup's first report.

use crate::area::{Area, LogAt, RING_BYTES};
use crate::completeness::{Position, Provenance, Tail};
use crate::entry::{ENTRY_BYTES, Entry, Kind, first_record};
use crate::mutants::{ActiveMutant, Mutant};
use crate::store::Store;
use crate::tokens::{Part, token};
use obol_fabric::sealed;
use obol_fabric::{Address, Fabric, Incarnation, Instant, Nanos, Remote};

/// A backup reports when it has applied this much of its log: the primary needs it only when the
/// ring is full.
const REPORT_BYTES: u64 = RING_BYTES / 4;
/// Interval of reports in any case, because a report may be lost. Shorter ones would dominate the
/// traffic of an idle cache.
const REPORT_EVERY: Nanos = Nanos::from_millis(20);
/// First report interval until the primary has begun the log; it doubles.
const REPORT_FIRST: Nanos = Nanos::from_micros(100);
const REPORT_FIRST_MAX: Nanos = Nanos::from_millis(2);
/// Records to apply before the next report, which lets the primary overwrite them.
const APPLIED_MAX: u32 = 128;

pub(crate) const REPORT_WORDS: usize = 7;

/// A backup's report to its primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) who: Incarnation,
    /// The primary that it is for.
    pub(crate) to: Incarnation,
    /// The ring that it reads.
    pub(crate) ring: u32,
    /// Up to where the ring may be overwritten.
    pub(crate) applied: LogAt,
    /// The position of its state, if that is complete.
    pub(crate) position: Option<Position>,
    /// Set by a server without a state: it has sent no answer, and yields to the addressee.
    pub(crate) yields: bool,
}

impl Report {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let of = self.position.map_or(Incarnation::NONE, |position| position.of);
        let number = self.position.map_or(0, |position| position.number);
        let ring = u64::from(self.ring);
        sealed::seal(
            [self.who.0, self.to.0, ring, self.applied.0, of.0, number, u64::from(self.yields)],
            out,
        );
    }

    /// The report in this server's memory, if it is complete and addressed to this server.
    pub(crate) fn read<F: Fabric>(slot: u32, own: Incarnation, fabric: &F) -> Option<Self> {
        let words = fabric.own(slot, 8 * (REPORT_WORDS + 1))?;
        let [who, to, ring, applied, of, number, yields] = sealed::unseal_own::<REPORT_WORDS>(Some(words))?;
        let (who, to, of) = (Incarnation(who), Incarnation(to), Incarnation(of));
        let position = (of != Incarnation::NONE).then_some(Position { of, number });
        let ring = u32::try_from(ring).ok()?;
        (to == own).then_some(Self { who, to, ring, applied: LogAt(applied), position, yields: yields != 0 })
    }
}

/// A server's state.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) store: Store,
    /// Set while its state is complete.
    pub(crate) position: Option<Position>,
    pub(crate) tail: Tail,
    /// Set for the state of an earlier life, which is the newest only if the oldest server has none
    /// and yields.
    pub(crate) carried: Option<Provenance>,
}

/// A backup's progress in its log.
#[derive(Debug, Default)]
pub(crate) struct Follow {
    /// The writer of the log.
    pub(crate) primary: Incarnation,
    ring: u32,
    /// The next record.
    next: u64,
    /// Its offset.
    at: LogAt,
    /// The primary has begun it.
    is_begun: bool,
    /// The last report, and when the next one is due.
    reported: LogAt,
    report_at: Instant,
    report_in: Nanos,
    /// [`Part::Drain`] is outstanding.
    pub(crate) draining: bool,
    /// The record that is being applied.
    record: Vec<u8>,
}

impl Follow {
    pub(crate) fn of(own: Incarnation, primary: Incarnation, ring: u32, mutant: ActiveMutant) -> Self {
        let next = first_record(own, primary, mutant);
        Self { primary, ring, next, report_in: REPORT_FIRST, ..Self::default() }
    }

    /// Offset of the READ of own memory that makes all earlier WRITEs visible.
    pub(crate) const fn place(&self, area: Area) -> u32 {
        area.record(self.ring, self.at.begin())
    }

    /// Applies available records, at most [`APPLIED_MAX`]. Returns whether there may be more.
    pub(crate) fn apply<F: Fabric>(&mut self, area: Area, state: &mut State, fabric: &F) -> bool {
        for _ in 0..APPLIED_MAX {
            let (number, at) = (self.next, self.at.begin());
            let Some(place) = fabric.own(area.record(self.ring, at), ENTRY_BYTES) else { return false };
            let Some(record) = Entry::decode(place, number, &mut self.record) else { return false };
            (self.next, self.at) = (number + 1, at.after(record.bytes()));
            match record.kind {
                Kind::Put => {
                    state.write(&record);
                    state.store.record_put(record.client, record.request);
                    state.tail.push(record.key, record.client, record.request, record.value);
                    if let Some(position) = &mut state.position {
                        position.number += 1;
                    }
                }
                Kind::Copy => state.write(&record),
                Kind::ClientSeq => state.store.record_put(record.client, record.request),
                Kind::Synced => state.position = Some(Position { of: self.primary, number: record.key }),
                Kind::Reset => {
                    self.is_begun = true;
                    state.replace(State::default());
                }
                Kind::Resume => {
                    self.is_begun = true;
                    state.carried = None;
                    if let Some(position) = &mut state.position {
                        // The primary has matched the numbers.
                        position.of = self.primary;
                    }
                }
                Kind::Get => {}
            }
        }
        true
    }

    /// Reports to the primary how much of the log it may overwrite, and the state of this server.
    pub(crate) fn report<F: Fabric>(
        &mut self,
        now: Instant,
        own: Incarnation,
        state: &State,
        to: Address,
        slot: u32,
        fabric: &mut F,
    ) {
        if self.at.0 - self.reported.0 < REPORT_BYTES && now < self.report_at {
            return;
        }
        let report_in = if self.is_begun { REPORT_EVERY } else { self.report_in };
        (self.reported, self.report_at) = (self.at, now + report_in);
        self.report_in = self.report_in.saturating_mul(2).min(REPORT_FIRST_MAX);
        let (primary, ring, applied, position) = (self.primary, self.ring, self.at, state.position);
        let report = Report { who: own, to: primary, ring, applied, position, yields: false };
        report.encode(&mut self.record);
        fabric.write_unsignaled(Remote { at: to, offset: slot }, &self.record, token(Part::Send, 0));
    }

    /// A view may move its reports to another place.
    pub(crate) const fn reset_report(&mut self) {
        (self.report_at, self.report_in) = (Instant::ZERO, REPORT_FIRST);
    }

    /// When a report is due: the primary waits for the first one to begin the log.
    pub(crate) const fn report_at(&self) -> Instant {
        if self.is_begun { Instant::NEVER } else { self.report_at }
    }
}

impl State {
    /// Replaces the state. The keys of the one before are dropped later ([`Store::tidy`]).
    pub(crate) fn replace(&mut self, next: Self) {
        let before = std::mem::replace(self, next);
        self.store.discard(before.store);
    }

    fn write(&mut self, record: &Entry<'_>) {
        // The primary had room for it, so there is room.
        let written = self.store.put(record.key, record.value, 0);
        debug_assert!(written, "as many keys as the primary");
    }

    /// Whether it certainly has everything that was ever answered.
    pub(crate) const fn is_certainly_complete(&self) -> bool {
        self.position.is_some() && self.carried.is_none()
    }

    /// Whether it may serve.
    pub(crate) fn is_usable(&self, mutant: ActiveMutant) -> bool {
        self.is_certainly_complete() || mutant.has(Mutant::ServeWithHoles)
    }
}
