//! What a primary knows of one of its backups: the records that it is to get, and what it has.

use crate::area::{Area, LogAt};
use crate::entry::{Entry, Kind};
use crate::follow::Report;
use crate::mutants::{ActiveMutant, Mutant};
use crate::server::{Part, token};
use crate::store::Store;
use crate::whole::{Position, Tail};
use obol_fabric::{Address, Fabric, Incarnation, Instant, Nanos, Remote};
use std::collections::VecDeque;

/// After so long the primary tries a WRITE to its backup again that has failed, as long as the view
/// names that backup.
const AGAIN_AFTER: Nanos = Nanos::from_micros(100);
/// So many records are on the way while a new backup gets the keys: the rest of the ring is left to
/// PUTs.
const COPY_SHARE: usize = 16;

/// The number of the first record of a backup's log. A region keeps what was written into it in an
/// earlier life of its process, and each life gets one log of each primary at most: so logs have
/// numbers far from each other.
pub(crate) fn first_record(backup: Incarnation, primary: Incarnation, mutant: ActiveMutant) -> u64 {
    if mutant.has(Mutant::LogsAlike) {
        return 1;
    }
    // The finalizer of SplitMix64, which spreads neighbours over all numbers. Half of them, so that
    // counting never overflows.
    let mut mixed = backup.0.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(primary.0);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) >> 1) | 1
}

/// A record that the backup may not have.
struct Record {
    at: LogAt,
    /// The PUT that it stands for, or the one before it.
    put: u64,
    kind: Kind,
    bytes: Vec<u8>,
}

/// What the primary knows of a backup.
pub(crate) struct Backup {
    pub(crate) who: Incarnation,
    at: Address,
    /// It may have a whole state of the primary before: it was there when this one took over, and
    /// has not said how far it is.
    may_go_on: bool,
    /// The ring that it reads; `None` until it has reported.
    ring: Option<u32>,
    /// Records that it is to get, oldest first; the first `posted` of them are on the way.
    records: VecDeque<Record>,
    posted: usize,
    /// The next record, counted from [`first_record`].
    next: u64,
    /// Where the log ends.
    end: LogAt,
    /// What it says it has applied.
    applied: LogAt,
    /// Set while WRITEs fail: nothing is posted before it.
    again_at: Option<Instant>,
    /// What is still to be copied.
    keys: Vec<u64>,
    clients: Vec<u64>,
    /// It was sent everything that there was when it came; it has that.
    is_sent: bool,
    is_whole: bool,
    /// All PUTs up to this one.
    has: u64,
}

/// What a primary began with.
pub(crate) struct Origin {
    pub(crate) position: Option<Position>,
    pub(crate) tail: Tail,
}

impl Backup {
    /// `may_go_on`: it was there when the primary took over, with these PUTs at least if it has
    /// any.
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
            again_at: None,
            keys: Vec::new(),
            clients: Vec::new(),
            is_sent: false,
            is_whole: false,
            has,
        }
    }

    /// Whether nothing is answered that it has not: it may be the next to serve.
    pub(crate) const fn counts(&self) -> bool {
        self.may_go_on || self.is_sent
    }

    pub(crate) const fn has(&self) -> u64 {
        self.has
    }

    /// Whether it has everything that there was when it came.
    pub(crate) const fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Whether it has everything.
    pub(crate) fn is_redundant(&self) -> bool {
        self.is_whole && self.records.is_empty()
    }

    /// Whether there is something that it was not sent, or that it is to say.
    pub(crate) fn is_behind(&self) -> bool {
        self.ring.is_none() || !self.is_sent || self.posted < self.records.len()
    }

    /// Takes note of what it says, and begins its log when it is heard for the first time. It goes
    /// on with what it has if that is a beginning of what this primary began with, and what is
    /// missing is in the tail.
    pub(crate) fn hear(
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
            }
            return;
        }
        self.ring = Some(report.ring);
        let missing = origin.position.zip(report.whole).and_then(|(own, its)| {
            let missing = own.number.checked_sub(its.number)?;
            (self.may_go_on && own.of == its.of && missing <= origin.tail.len()).then_some(missing)
        });
        match (missing, origin.position) {
            (Some(missing), Some(own)) => {
                self.is_sent = true;
                let missing = if mutant.has(Mutant::TailForgotten) { 0 } else { missing };
                let has = own.number - missing;
                self.has = has;
                self.push(has, &Entry::bare(Kind::Goes));
                for (put, of) in (has + 1..).zip(origin.tail.newest(missing)) {
                    self.push(put, &Entry::put(of.key, of.client, of.request, &of.value));
                }
            }
            _ => {
                self.keys = store.keys();
                self.clients = store.clients();
                self.push(number, &Entry::bare(Kind::Anew));
            }
        }
    }

    /// Whether it was heard, so that records can be appended.
    pub(crate) const fn is_begun(&self) -> bool {
        self.ring.is_some()
    }

    /// Appends a record to its log.
    pub(crate) fn push(&mut self, put: u64, entry: &Entry<'_>) {
        self.push_into(put, entry, Vec::new());
    }

    /// The same into a buffer that was used before.
    pub(crate) fn push_into(&mut self, put: u64, entry: &Entry<'_>, mut bytes: Vec<u8>) {
        let (number, kind) = (self.next, entry.kind);
        self.next += 1;
        Entry { number, ..entry.clone() }.encode(&mut bytes);
        let at = self.end.begin();
        self.end = at.after(bytes.len());
        self.records.push_back(Record { at, put, kind, bytes });
    }

    /// Goes on with the copy for one that joined later.
    pub(crate) fn copy(&mut self, number: u64, store: &Store) {
        if self.ring.is_none() {
            return;
        }
        while !self.is_sent && self.records.len() < COPY_SHARE {
            if let Some(key) = self.keys.pop() {
                let Some(cell) = store.get(key) else { continue };
                self.push(number, &Entry { key, value: &cell.value, ..Entry::bare(Kind::Copy) });
            } else if let Some(client) = self.clients.pop() {
                let Some(request) = store.newest_of(client) else { continue };
                self.push(number, &Entry { client, request, ..Entry::bare(Kind::Seen) });
            } else {
                self.is_sent = true;
                self.has = self.has.max(self.acknowledged(number));
                self.push(number, &Entry { key: number, ..Entry::bare(Kind::Synced) });
            }
        }
    }

    /// The newest PUT before all those that are on the way.
    fn acknowledged(&self, number: u64) -> u64 {
        let oldest = self.records.iter().find(|record| record.kind == Kind::Put);
        oldest.map_or(number, |record| record.put - 1)
    }

    /// Writes as many records as its ring has room for, of PUTs that those before it have.
    pub(crate) fn replicate<F: Fabric>(&mut self, now: Instant, limit: u64, area: Area, fabric: &mut F) {
        let Some(ring) = self.ring else { return };
        if self.again_at.is_some_and(|at| now < at || self.posted > 0) {
            return;
        }
        self.again_at = None;
        while let Some(record) = self.records.get(self.posted) {
            if record.put > limit || !record.at.after(record.bytes.len()).fits(self.applied) {
                return;
            }
            let to = Remote { at: self.at, offset: area.record(ring, record.at) };
            // Tells a completion of this backup's from one of another's.
            fabric.write(to, &record.bytes, token(Part::Record, self.who.0 as u32));
            self.posted += 1;
        }
    }

    /// Whether the ring has no room for what is to be written next.
    pub(crate) fn is_full(&self) -> bool {
        self.ring.is_none() || !self.end.fits(self.applied)
    }

    /// A WRITE to it ended. They end in the order in which they were posted. Gives back what is not
    /// needed any more.
    pub(crate) fn on_written(&mut self, now: Instant, well: bool) -> Option<Vec<u8>> {
        self.posted = self.posted.checked_sub(1)?;
        if !well {
            // Those that were posted after it fail, too; all are written again.
            self.again_at = Some(now + AGAIN_AFTER);
            return None;
        }
        if self.again_at.is_some() {
            return None;
        }
        let record = self.records.pop_front()?;
        match record.kind {
            // From now on it is as new, or known to have a beginning of what this primary has.
            Kind::Anew => self.may_go_on = false,
            Kind::Goes => (self.may_go_on, self.is_whole) = (false, true),
            Kind::Synced => self.is_whole = true,
            _ => {}
        }
        self.has = self.has.max(record.put);
        Some(record.bytes)
    }
}
