//! How a leader of DARE writes to another log (DARE, 3.3.1): it adjusts the log in two accesses, then
//! writes entries, the tail when they are there, and the commit index lazily.
//!
//! Where this differs from DARE: the first access READs the header and the whole log at once, since
//! one READ of a known length is one access; and the own log is written like the others.

use super::{Peer, RETRY_AFTER, Source, Stage};
use crate::area::Area;
use crate::direct::{BEGIN_AT, COMMIT_AT, PLACE, POINTERS_BYTES, Pointers, kept};
use crate::follow::Header;
use crate::log::Log;
use crate::mutants::Mutant;
use crate::position::{Index, Offset, Point};
use crate::tokens::{Part, token};
use obol_fabric::{Fabric, Instant, LinkError, Remote};
use std::collections::VecDeque;

/// WRITEs on the way to a log, at most.
const IN_FLIGHT_MAX: usize = 16;

/// A WRITE on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Posted {
    /// Entries up to here.
    Entries(Index),
    Tail(Index),
    Other,
}

/// How far another log is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Direct {
    /// Its entries up to this one are there.
    written: Index,
    tail_sent: Index,
    commit_sent: Index,
    posted: VecDeque<Posted>,
}

/// The bytes that an adjustment READs: from the header to the pointers.
const fn survey_bytes(area: Area) -> u32 {
    area.pointers() + POINTERS_BYTES - area.header()
}

impl Peer {
    /// Begins to adjust its log: the first access.
    pub(crate) fn read_log<F: Fabric>(&mut self, now: Instant, source: &Source, id: u32, fabric: &mut F) {
        if now < self.retry_at {
            return;
        }
        (self.stage, self.id) = (Stage::Surveyed { from: Point::default(), whole: false }, id);
        let from = Remote { at: self.at, offset: source.area.header() };
        fabric.read(from, survey_bytes(source.area), token(Part::Survey, id));
    }

    /// Its log was READ: the second access sets its tail to the last entry that is the leader's too.
    pub(crate) fn adjust<F: Fabric>(
        &mut self,
        now: Instant,
        bytes: Result<&[u8], LinkError>,
        source: &Source,
        log: &Log,
        fabric: &mut F,
    ) {
        if !matches!(self.stage, Stage::Surveyed { .. }) {
            return;
        }
        let at = |offset: u32| bytes.ok()?.get((offset - source.area.header()) as usize..);
        let header = bytes.ok().and_then(Header::decode);
        let header = header.filter(|header| header.log == 0 || header.log == source.id);
        let found = header.zip(at(source.area.pointers()).and_then(Pointers::decode));
        let (Some((header, pointers)), Some(ring)) = (found, at(source.area.rings())) else {
            // Torn, lost, or of another log.
            (self.stage, self.retry_at) = (Stage::Unfed, now + RETRY_AFTER);
            return;
        };
        let gap = header.gap || header.log == 0;
        let (from, whole) = Self::plan(header.applied.index, gap, source.low, log);
        let ring = ring.get(..source.area.ring_bytes() as usize).unwrap_or_default();
        let end =
            if whole { kept(source.area, source.id, from, pointers, ring, log, source.mutant) } else { from };
        self.begin_at(from, end, whole, source, fabric);
    }

    /// Begins to feed its log: cuts it off at `end`, up to where it equals the leader's.
    pub(crate) fn begin_at<F: Fabric>(
        &mut self,
        from: Point,
        end: Point,
        whole: bool,
        source: &Source,
        fabric: &mut F,
    ) {
        (self.stage, self.whole) = (Stage::Fed, whole);
        (self.begin, self.next, self.freed) = (from, end, from);
        self.acked = from.index;
        (self.woken, self.low_sent, self.head_due) = (from.at, Offset(0), true);
        self.direct = Direct { written: end.index, ..Direct::default() };
        let begin = Pointers::encode_begin(from);
        self.write_log(source.area.pointers() + BEGIN_AT, &begin, Posted::Other, fabric);
        self.write_tail(end.index, source, fabric);
    }

    fn write_log<F: Fabric>(&mut self, offset: u32, bytes: &[u8], what: Posted, fabric: &mut F) {
        fabric.write(Remote { at: self.at, offset }, bytes, token(Part::Feed, self.id));
        self.direct.posted.push_back(what);
    }

    fn write_tail<F: Fabric>(&mut self, tail: Index, source: &Source, fabric: &mut F) {
        self.direct.tail_sent = tail;
        self.write_log(source.area.pointers(), &tail.0.to_le_bytes(), Posted::Tail(tail), fabric);
    }

    /// Continues (DARE, 3.3.1, direct log update): entries, the tail of those that are there, and the
    /// commit index, for which nothing waits.
    pub(crate) fn update<F: Fabric>(&mut self, now: Instant, source: &Source, log: &Log, fabric: &mut F) {
        if !self.is_fed() || now < self.retry_at {
            return;
        }
        if self.next.index < log.base().index {
            // It was away for too long.
            self.stop();
            return;
        }
        let in_haste = source.mutant.has(Mutant::TailBeforeEntries);
        if in_haste && log.end().index > self.direct.tail_sent {
            self.write_tail(log.end().index, source, fabric);
        }
        // The bug counts the tail as if the entries were there.
        if !in_haste || self.acked >= self.direct.tail_sent {
            self.write_entries(source, log, fabric);
        }
        if !self.is_fed() {
            return;
        }
        if self.direct.written > self.direct.tail_sent {
            self.write_tail(self.direct.written, source, fabric);
        }
        // It never passes the tail.
        let commit = source.commit.min(self.direct.tail_sent);
        if commit > self.direct.commit_sent {
            self.direct.commit_sent = commit;
            let offset = source.area.pointers() + COMMIT_AT;
            self.write_log(offset, &commit.0.to_le_bytes(), Posted::Other, fabric);
        }
        if self.head_due {
            self.write_head(source, fabric);
        }
    }

    fn write_entries<F: Fabric>(&mut self, source: &Source, log: &Log, fabric: &mut F) {
        while self.direct.posted.len() < IN_FLIGHT_MAX {
            let Some(first) = log.get(self.next.index.next()) else { return };
            if !source.area.fits(first.end().at, self.freed.at) {
                if !self.in_view {
                    self.stop();
                }
                return;
            }
            if self.head_due || !source.area.fits(first.end().at, self.low_sent) {
                self.write_head(source, fabric);
            }
            let end = self.batch_end(first, source, log);
            let begin = source.area.in_ring(first.at);
            let len = (end.at.0 - first.at.0) as usize;
            let offset = source.area.entry(PLACE, first.at);
            self.write_log(offset, &source.image[begin..begin + len], Posted::Entries(end.index), fabric);
            self.next = end;
        }
    }

    fn write_head<F: Fabric>(&mut self, source: &Source, fabric: &mut F) {
        let bytes = self.head(source);
        self.write_log(source.area.head(source.place), &bytes, Posted::Other, fabric);
    }

    /// A WRITE completed. After a failure its log is adjusted again.
    pub(crate) fn on_updated(&mut self, now: Instant, well: bool, id: u32) {
        let Some(posted) = self.direct.posted.pop_front() else { return };
        if !well {
            (self.id, self.retry_at) = (id, now + RETRY_AFTER);
            self.stop();
            return;
        }
        match posted {
            Posted::Entries(end) => self.direct.written = self.direct.written.max(end),
            Posted::Tail(tail) => self.acked = self.acked.max(tail),
            Posted::Other => {}
        }
    }
}
