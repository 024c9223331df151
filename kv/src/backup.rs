//! The primary's state of one backup: records to send, and what the backup has.

use crate::area::{Area, LogAt};
use crate::completeness::{Position, Tail};
use crate::entry::{Entry, Kind};
use crate::follow::Report;
use crate::mutants::{ActiveMutant, Mutant};
use crate::store::Store;
use crate::tokens::{Part, token};
use obol_fabric::{Address, Fabric, Incarnation, Instant, Nanos, Remote};
use std::collections::VecDeque;

/// Backoff before a failed WRITE to a backup is retried, as long as the view names that backup.
const RETRY_AFTER: Nanos = Nanos::from_micros(100);
/// Records outstanding while a new backup receives the keys: the rest of the ring is left to PUTs.
const COPY_SHARE: usize = 16;

/// A record that the backup may not have.
struct Record {
    at: LogAt,
    /// The PUT that it contains, or the one before it.
    put: u64,
    kind: Kind,
    bytes: Vec<u8>,
}

/// The primary's state of a backup.
pub(crate) struct Backup {
    pub(crate) who: Incarnation,
    at: Address,
    /// It may have a complete state of the previous primary: it existed at takeover, and has not
    /// reported yet.
    may_go_on: bool,
    /// The ring that it reads; `None` until it has reported.
    ring: Option<u32>,
    /// Records to send, oldest first; the first `posted` of them are outstanding.
    records: VecDeque<Record>,
    posted: usize,
    /// The next record, counted from [`crate::entry::first_record`].
    next: u64,
    end: LogAt,
    /// What it has applied, by its report.
    applied: LogAt,
    /// Set while WRITEs fail: nothing is posted earlier.
    retry_at: Option<Instant>,
    /// Keys of a table of the store and clients that are still to be copied, and the table after it.
    keys: Vec<u64>,
    table: usize,
    clients: Vec<u64>,
    /// It has all that existed when it joined.
    is_sent: bool,
    is_complete: bool,
    /// It has all PUTs up to this one.
    has: u64,
}

/// The state with which a primary began.
pub(crate) struct Origin {
    pub(crate) position: Option<Position>,
    pub(crate) tail: Tail,
}

impl Backup {
    /// `may_go_on`: it existed at takeover, and has at least these PUTs if it has a state.
    pub(crate) const fn new(who: Incarnation, at: Address, next: u64, may_go_on: bool, has: u64) -> Self {
        Self {
            who,
            at,
            may_go_on,
            ring: None,
            records: VecDeque::new(),
            posted: 0,
            next,
            end: LogAt(0),
            applied: LogAt(0),
            retry_at: None,
            keys: Vec::new(),
            table: 0,
            clients: Vec::new(),
            is_sent: false,
            is_complete: false,
            has,
        }
    }

    /// Whether answers wait for it, so that it can take over.
    pub(crate) const fn counts(&self) -> bool {
        self.may_go_on || self.is_sent
    }

    pub(crate) const fn has(&self) -> u64 {
        self.has
    }

    /// Whether it has all that existed when it joined.
    pub(crate) const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Whether it has everything.
    pub(crate) fn is_redundant(&self) -> bool {
        self.is_complete && self.records.is_empty()
    }

    /// Whether records have to be sent, or a report is due.
    pub(crate) fn is_behind(&self) -> bool {
        self.ring.is_none() || !self.is_sent || self.posted < self.records.len()
    }

    /// Handles its report; the first one begins its log. The backup keeps its state if that is a
    /// prefix of the primary's initial state and the tail holds the rest.
    pub(crate) fn on_report(
        &mut self,
        report: &Report,
        number: u64,
        origin: &Origin,
        store: &Store,
        mutant: ActiveMutant,
    ) {
        if self.ring.is_some() {
            if self.ring == Some(report.ring) && report.applied <= self.end {
                self.applied = report.applied.max(self.applied);
                assert!(self.applied <= self.end, "a backup applies what it was sent");
            }
            return;
        }
        self.ring = Some(report.ring);
        let missing = origin.position.zip(report.position).and_then(|(own, its)| {
            let missing = own.number.checked_sub(its.number)?;
            (self.may_go_on && own.of == its.of && missing <= origin.tail.len()).then_some(missing)
        });
        match (missing, origin.position) {
            (Some(missing), Some(own)) => {
                self.is_sent = true;
                let missing = if mutant.has(Mutant::TailForgotten) { 0 } else { missing };
                let has = own.number - missing;
                self.has = has;
                self.push(has, &Entry::bare(Kind::Resume));
                for (put, of) in (has + 1..).zip(origin.tail.newest(missing)) {
                    self.push(put, &Entry::put(of.key, of.client, of.request, &of.value));
                }
            }
            _ => {
                self.clients = store.clients();
                self.push(number, &Entry::bare(Kind::Reset));
            }
        }
    }

    /// Whether it has reported, so that records can be appended.
    pub(crate) const fn is_begun(&self) -> bool {
        self.ring.is_some()
    }

    /// Appends a record to its log.
    pub(crate) fn push(&mut self, put: u64, entry: &Entry<'_>) {
        self.push_into(put, entry, Vec::new());
    }

    /// The same into a used buffer.
    pub(crate) fn push_into(&mut self, put: u64, entry: &Entry<'_>, mut bytes: Vec<u8>) {
        let (number, kind) = (self.next, entry.kind);
        self.next += 1;
        Entry { number, ..entry.clone() }.encode(&mut bytes);
        let at = self.end.begin();
        self.end = at.after(bytes.len());
        assert!(self.end > at && self.applied <= self.end, "records follow each other");
        assert!(self.records.back().is_none_or(|last| last.put <= put && last.at < at));
        self.records.push_back(Record { at, put, kind, bytes });
    }

    /// Continues the copy for a backup that joined later.
    pub(crate) fn copy(&mut self, number: u64, store: &Store) {
        if self.ring.is_none() {
            return;
        }
        while !self.is_sent && self.records.len() < COPY_SHARE {
            if let Some(key) = self.keys.pop() {
                let Some(cell) = store.get(key) else { continue };
                self.push(number, &Entry { key, value: &cell.value, ..Entry::bare(Kind::Copy) });
            } else if let Some(keys) = store.keys(self.table) {
                // Those that were added since it joined, too, which does no harm.
                (self.keys, self.table) = (keys, self.table + 1);
            } else if let Some(client) = self.clients.pop() {
                let Some(request) = store.newest_of(client) else { continue };
                self.push(number, &Entry { client, request, ..Entry::bare(Kind::ClientSeq) });
            } else {
                self.is_sent = true;
                self.has = self.has.max(self.acknowledged(number));
                self.push(number, &Entry { key: number, ..Entry::bare(Kind::Synced) });
            }
        }
    }

    /// The newest PUT before all outstanding ones.
    fn acknowledged(&self, number: u64) -> u64 {
        let oldest = self.records.iter().find(|record| record.kind == Kind::Put);
        oldest.map_or(number, |record| record.put - 1)
    }

    /// Writes as many records as fit into its ring, of PUTs that the backups before it have.
    pub(crate) fn replicate<F: Fabric>(&mut self, now: Instant, limit: u64, area: Area, fabric: &mut F) {
        let Some(ring) = self.ring else { return };
        if self.retry_at.is_some_and(|at| now < at || self.posted > 0) {
            return;
        }
        self.retry_at = None;
        while let Some(record) = self.records.get(self.posted) {
            if record.put > limit || !record.at.after(record.bytes.len()).fits(self.applied) {
                return;
            }
            let to = Remote { at: self.at, offset: area.record(ring, record.at) };
            // Identifies the backup in the completion.
            fabric.write(to, &record.bytes, token(Part::Record, self.who.0 as u32));
            self.posted += 1;
            assert!(self.posted <= self.records.len(), "a record is posted once");
        }
    }

    /// Whether the ring has no room for the next record.
    pub(crate) fn is_full(&self) -> bool {
        self.ring.is_none() || !self.end.fits(self.applied)
    }

    /// A WRITE to it completed, in posting order. Returns the buffer if it is free.
    pub(crate) fn on_written(&mut self, now: Instant, well: bool) -> Option<Vec<u8>> {
        self.posted = self.posted.checked_sub(1)?;
        if !well {
            // Those that were posted after it fail, too; all are written again.
            self.retry_at = Some(now + RETRY_AFTER);
            return None;
        }
        if self.retry_at.is_some() {
            return None;
        }
        let record = self.records.pop_front()?;
        match record.kind {
            // From now on it is like a new one, or known to have a prefix of the primary's state.
            Kind::Reset => self.may_go_on = false,
            Kind::Resume => (self.may_go_on, self.is_complete) = (false, true),
            Kind::Synced => self.is_complete = true,
            _ => {}
        }
        self.has = self.has.max(record.put);
        assert!(self.posted <= self.records.len(), "what is posted was not acknowledged");
        Some(record.bytes)
    }
}
