//! A leader's peer: which part of the log its memory has, and what is on the way there.
//!
//! Entries are WRITEs into the leader's ring there, in order, on one link. A head goes before an
//! entry that overwrites what an earlier head did not give up.

mod direct;

use crate::area::Area;
use crate::entry::{Entry, Expected, TERM_AT, term_word};
use crate::follow::{Head, Header, Report};
use crate::log::Log;
use crate::mutants::{ActiveMutant, Mutant};
use crate::position::{Index, Offset, Point, Term};
use crate::tokens::{Part, token};
use direct::Direct;
use obol_fabric::{Address, Fabric, Instant, LinkError, Nanos, Remote};
use std::collections::{BTreeSet, VecDeque};

/// WRITEs on the way to a peer, at most.
const IN_FLIGHT_MAX: usize = 16;
/// Bytes of entries in one WRITE, at most, unless one entry is longer.
const BATCH_BYTES: u64 = 4096;
/// Pause after a WRITE that failed.
const RETRY_AFTER: Nanos = Nanos::from_micros(100);

/// What a leader sends: its log as bytes, and what it announces with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Source {
    pub(crate) area: Area,
    /// The log's identity.
    pub(crate) id: u64,
    pub(crate) term: Term,
    /// Its ring.
    pub(crate) place: u8,
    pub(crate) commit: Index,
    /// Entries up to this one are needed by no peer that is fed.
    pub(crate) low: Point,
    /// The ring as it is at peers that have everything. An entry is encoded once a term, so writing
    /// it again changes no byte.
    image: Vec<u8>,
    /// The newest commit index that is part of an entry.
    piggybacked: Index,
    /// The log is one for all leaders, and entries keep their terms ([`crate::direct`]).
    is_direct: bool,
    mutant: ActiveMutant,
}

impl Source {
    /// Of the leader of a term, which writes into the rings of this place.
    pub(crate) fn new(area: Area, id: u64, term: Term, place: u8, mutant: ActiveMutant) -> Self {
        let image = vec![0; area.ring_bytes() as usize];
        let (commit, low, piggybacked) = (Index(0), Point::default(), Index(0));
        Self { area, id, term, place, commit, low, image, piggybacked, is_direct: false, mutant }
    }

    /// The same with the logs of DARE.
    pub(crate) const fn direct(mut self) -> Self {
        self.is_direct = true;
        self
    }

    /// Whether it writes to the logs of DARE.
    pub(crate) const fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Encodes an entry of the log.
    pub(crate) fn encode(&mut self, record: &crate::log::Record) {
        let mut bytes = Vec::with_capacity(Entry::bytes_of(record.payload.len()));
        let term = if self.is_direct { record.term } else { self.term };
        record.entry(term, self.commit).encode(self.id, &mut bytes);
        let begin = self.area.in_ring(record.at);
        self.image[begin..begin + bytes.len()].copy_from_slice(&bytes);
        self.piggybacked = self.commit;
    }
}

/// What a peer's memory has of the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// Nothing is known, or it does not get anything at present.
    Unfed,
    /// Its ring is READ.
    Surveyed {
        from: Point,
        whole: bool,
    },
    Fed,
}

/// A replica to which the leader sends its log, itself included.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Peer {
    pub(crate) at: Address,
    /// Distinguishes completions of this feed from those of earlier ones.
    pub(crate) id: u32,
    /// It is in the newest view. Only such a peer holds places back.
    pub(crate) in_view: bool,
    pub(crate) leaves: bool,
    stage: Stage,
    /// It has all of the log up to `acked`, in its state or its ring.
    pub(crate) whole: bool,
    begin: Point,
    /// Sent.
    next: Point,
    /// In its memory.
    pub(crate) acked: Index,
    /// Up to here its ring may be overwritten.
    pub(crate) freed: Point,
    /// Up to where it was sent the log when it was woken up to free places.
    woken: Offset,
    /// What its newest head says.
    low_sent: Offset,
    commit_sent: Index,
    head_due: bool,
    /// Entries that the ring has already, as written in an earlier term: only their terms are
    /// replaced.
    present: BTreeSet<Index>,
    /// The prefixes that its memory has when WRITEs complete.
    in_flight: VecDeque<Index>,
    retry_at: Instant,
    direct: Direct,
}

impl Peer {
    pub(crate) fn new(at: Address, id: u32) -> Self {
        Self {
            at,
            id,
            in_view: false,
            leaves: false,
            stage: Stage::Unfed,
            whole: false,
            begin: Point::default(),
            next: Point::default(),
            acked: Index(0),
            freed: Point::default(),
            woken: Offset(0),
            low_sent: Offset(0),
            commit_sent: Index(0),
            head_due: false,
            present: BTreeSet::new(),
            in_flight: VecDeque::new(),
            retry_at: Instant::ZERO,
            direct: Direct::default(),
        }
    }

    pub(crate) fn is_fed(&self) -> bool {
        self.stage == Stage::Fed
    }

    pub(crate) fn is_unfed(&self) -> bool {
        self.stage == Stage::Unfed
    }

    /// What its memory has, if that counts towards a majority.
    pub(crate) fn counted(&self) -> Index {
        if self.is_fed() && self.whole { self.acked } else { Index(0) }
    }

    /// Where to begin, and whether the peer has all before that: after what it has applied, if the
    /// log reaches back so far, or it has to load a snapshot.
    pub(crate) fn plan(applied: Index, gap: bool, low: Point, log: &Log) -> (Point, bool) {
        let is_here = !gap && applied >= low.index;
        match log.point(applied).filter(|_| is_here) {
            Some(point) => (point, true),
            None => (low, false),
        }
    }

    /// Begins to feed it, given what its ring has.
    pub(crate) fn feed(&mut self, from: Point, whole: bool, ring: &[u8], source: &Source, log: &Log) {
        (self.stage, self.whole) = (Stage::Fed, whole);
        (self.begin, self.next, self.acked, self.freed) = (from, from, from.index, from);
        (self.woken, self.low_sent, self.head_due) = (from.at, Offset(0), true);
        self.in_flight.clear();
        self.present = present(from, ring, source, log);
    }

    /// Begins to feed it: its ring is READ first.
    pub(crate) fn survey<F: Fabric>(
        &mut self,
        header: &Header,
        source: &Source,
        log: &Log,
        id: u32,
        fabric: &mut F,
    ) {
        let (from, whole) = Self::plan(header.applied.index, header.gap, source.low, log);
        (self.stage, self.id) = (Stage::Surveyed { from, whole }, id);
        let from = Remote { at: self.at, offset: source.area.entry(source.place, Offset(0)) };
        fabric.read(from, source.area.ring_bytes(), token(Part::Survey, id));
    }

    /// Its ring was READ.
    pub(crate) fn on_surveyed(&mut self, ring: Result<&[u8], LinkError>, source: &Source, log: &Log) {
        let Stage::Surveyed { from, whole } = self.stage else { return };
        match ring {
            // What it lacks may have been given up meanwhile.
            Ok(ring) if log.point(from.index) == Some(from) => self.feed(from, whole, ring, source, log),
            _ => self.stage = Stage::Unfed,
        }
    }

    /// Handles a report for this term.
    pub(crate) fn on_report(&mut self, report: &Report, source: &Source) {
        let is_whole = !report.gap && report.freed.index >= self.begin.index;
        if !self.whole && is_whole && source.area.fits(self.next.at, report.freed.at) {
            // A state that reaches the beginning of what it was sent has no hole. What it took from
            // its ring before it had that state, and has not applied, is still there for others.
            (self.whole, self.freed) = (true, report.freed);
        }
        if self.whole == is_whole {
            self.freed = self.freed.max(report.freed);
        }
    }

    /// Up to where places of entries have been used again in its ring.
    pub(crate) fn overwritten(&self, source: &Source) -> Offset {
        Offset(self.next.at.0.saturating_sub(u64::from(source.area.ring_bytes())))
    }

    /// Whether it was sent the log up to here.
    pub(crate) fn has_been_sent(&self, end: Point) -> bool {
        self.next == end
    }

    /// Whether it is to look now, to free places: half of its ring is in use, or more, and it was
    /// sent a quarter since it was woken up.
    pub(crate) fn is_to_free(&mut self, source: &Source) -> bool {
        let ring = u64::from(source.area.ring_bytes());
        let since = |before: Offset| self.next.at.0.saturating_sub(before.0);
        let is_due = self.is_fed() && since(self.freed.at) > ring / 2 && since(self.woken) > ring / 4;
        if is_due {
            self.woken = self.next.at;
        }
        is_due
    }

    /// Sends what it lacks, as far as its ring has room. `announces`: also the commit index, if it
    /// was sent everything.
    pub(crate) fn send<F: Fabric>(
        &mut self,
        now: Instant,
        source: &Source,
        log: &Log,
        announces: bool,
        fabric: &mut F,
    ) {
        if source.is_direct {
            self.update(now, source, log, fabric);
            return;
        }
        if !self.is_fed() || now < self.retry_at {
            return;
        }
        if self.next.index < log.base().index {
            // It was away for too long.
            self.stop();
            return;
        }
        while self.in_flight.len() < IN_FLIGHT_MAX {
            let Some(first) = log.get(self.next.index.next()) else { break };
            let end = first.end();
            let in_haste = self.whole && source.mutant.has(Mutant::RecycleByMajority);
            if !source.area.fits(end.at, self.freed.at) && !in_haste {
                if !self.in_view {
                    self.stop();
                }
                return;
            }
            if self.head_due || !source.area.fits(end.at, self.low_sent) {
                self.send_head(source, fabric);
            }
            if self.present.contains(&first.index) {
                let word = term_word(source.id, first.index, first.at, source.term);
                let offset = source.area.entry(source.place, first.at) + TERM_AT;
                self.post(offset, &word.to_le_bytes(), end, source, fabric);
                continue;
            }
            let end = self.batch_end(first, source, log);
            let begin = source.area.in_ring(first.at);
            let len = (end.at.0 - first.at.0) as usize;
            let offset = source.area.entry(source.place, first.at);
            self.post(offset, &source.image[begin..begin + len], end, source, fabric);
        }
        let is_idle = announces && self.next == log.end() && self.in_flight.is_empty();
        if self.head_due || is_idle && source.commit > self.commit_sent {
            self.send_head(source, fabric);
        }
    }

    /// The last of the entries that are sent in one WRITE: they lie side by side.
    fn batch_end(&self, first: &crate::log::Record, source: &Source, log: &Log) -> Point {
        let mut end = first.end();
        for record in log.after(first.index) {
            let next = record.end();
            let is_beside = record.at == end.at && source.area.in_ring(record.at) > 0;
            let is_short = next.at.0 - first.at.0 <= BATCH_BYTES;
            let is_free =
                source.area.fits(next.at, self.freed.at) && source.area.fits(next.at, self.low_sent);
            if !is_beside || !is_short || !is_free || self.present.contains(&record.index) {
                break;
            }
            end = next;
        }
        end
    }

    fn post<F: Fabric>(&mut self, offset: u32, bytes: &[u8], end: Point, source: &Source, fabric: &mut F) {
        assert!(self.is_fed() && self.next.index < end.index, "entries are sent in order");
        assert!(
            source.area.fits(end.at, self.freed.at) || source.mutant.has(Mutant::RecycleByMajority),
            "no entry is overwritten that the peer still needs"
        );
        fabric.write(Remote { at: self.at, offset }, bytes, token(Part::Feed, self.id));
        self.in_flight.push_back(end.index);
        assert!(self.in_flight.len() <= IN_FLIGHT_MAX + 1, "a head may go with the last entry");
        self.next = end;
        self.commit_sent = self.commit_sent.max(source.piggybacked);
    }

    fn send_head<F: Fabric>(&mut self, source: &Source, fabric: &mut F) {
        let bytes = self.head(source);
        let offset = source.area.head(source.place);
        fabric.write(Remote { at: self.at, offset }, &bytes, token(Part::Feed, self.id));
        self.in_flight.push_back(self.next.index);
    }

    /// Its next head.
    fn head(&mut self, source: &Source) -> Vec<u8> {
        let &Source { id, term, commit, low, .. } = source;
        let mut bytes = Vec::new();
        Head { log: id, term, commit, low: low.index, begin: self.begin }.encode(&mut bytes);
        assert!(self.low_sent <= low.at, "what was given up stays given up");
        (self.low_sent, self.commit_sent, self.head_due) = (low.at, commit, false);
        bytes
    }

    /// A WRITE completed. After a failure all is sent again that may not have arrived.
    pub(crate) fn on_written(&mut self, now: Instant, well: bool, id: u32, is_direct: bool, log: &Log) {
        if is_direct {
            self.on_updated(now, well, id);
            return;
        }
        let Some(has) = self.in_flight.pop_front() else { return };
        if well {
            self.acked = self.acked.max(has);
            assert!(self.acked <= self.next.index, "a peer has only what it was sent");
            return;
        }
        (self.id, self.retry_at, self.head_due) = (id, now + RETRY_AFTER, true);
        self.in_flight.clear();
        self.low_sent = Offset(0);
        match log.point(self.acked) {
            Some(point) => self.next = point,
            None => self.stop(),
        }
    }

    /// Sends nothing more until it reports.
    fn stop(&mut self) {
        (self.stage, self.whole) = (Stage::Unfed, false);
        self.in_flight.clear();
        self.direct = Direct::default();
    }
}

/// The entries of the log after a prefix that a ring has as they are, in whatever term.
fn present(from: Point, ring: &[u8], source: &Source, log: &Log) -> BTreeSet<Index> {
    if source.mutant.has(Mutant::RewriteInPlace) {
        return BTreeSet::new();
    }
    let is_there = |record: &&crate::log::Record| {
        let (log, index, at) = (source.id, record.index, record.at);
        let expected = Expected { log, index, at, mutant: ActiveMutant::NONE };
        let bytes = ring.get(source.area.in_ring(at)..);
        bytes.and_then(|bytes| Entry::decode(bytes, &expected)).is_some_and(|entry| entry.is_of(record))
    };
    log.after(from.index).filter(is_there).map(|record| record.index).collect()
}
