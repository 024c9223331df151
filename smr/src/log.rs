//! The log as a replica keeps it: records in order, from the oldest that a peer may still need.

use crate::entry::{Entry, Kind};
use crate::position::{Index, Offset, Point, Term};
use std::collections::VecDeque;

/// An entry in a replica's own memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    pub(crate) index: Index,
    /// The term that came with it: where a log is direct ([`crate::direct`]), that of the leader that
    /// created the entry.
    pub(crate) term: Term,
    pub(crate) at: Offset,
    pub(crate) kind: Kind,
    pub(crate) client: u64,
    pub(crate) number: u64,
    pub(crate) payload: Box<[u8]>,
}

impl Record {
    pub(crate) fn of(entry: &Entry<'_>) -> Self {
        let Entry { index, term, at, kind, client, number, .. } = *entry;
        Self { index, term, at, kind, client, number, payload: entry.payload.into() }
    }

    /// The prefix that ends with it.
    pub(crate) fn end(&self) -> Point {
        Point { index: self.index, at: Offset(self.at.0 + Entry::bytes_of(self.payload.len()) as u64) }
    }

    /// The entry as written by the leader of a term.
    pub(crate) fn entry(&self, term: Term, commit: Index) -> Entry<'_> {
        let Self { index, at, kind, client, number, .. } = *self;
        Entry { index, at, term, kind, commit, client, number, payload: &self.payload }
    }
}

impl Entry<'_> {
    /// Whether it is the entry of this record. The leader that wrote it last does not matter.
    pub(crate) fn is_of(&self, record: &Record) -> bool {
        let same = (self.kind, self.client, self.number) == (record.kind, record.client, record.number);
        same && self.payload == &record.payload[..]
    }
}

/// Consecutive records, after a prefix that is not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Log {
    base: Point,
    records: VecDeque<Record>,
}

impl Log {
    /// The prefix that is not kept.
    pub(crate) const fn base(&self) -> Point {
        self.base
    }

    /// The whole log.
    pub(crate) fn end(&self) -> Point {
        self.records.back().map_or(self.base, Record::end)
    }

    /// The newest record, if any is kept.
    pub(crate) fn last(&self) -> Option<&Record> {
        self.records.back()
    }

    /// A record, if it is kept.
    pub(crate) fn get(&self, index: Index) -> Option<&Record> {
        let nth = usize::try_from(index.0.checked_sub(self.base.index.0 + 1)?).ok()?;
        let record = self.records.get(nth)?;
        assert_eq!(record.index, index, "the log has no holes");
        Some(record)
    }

    /// The prefix up to an entry, if that is kept.
    pub(crate) fn point(&self, index: Index) -> Option<Point> {
        if index == self.base.index { Some(self.base) } else { self.get(index).map(Record::end) }
    }

    /// The records after an index.
    pub(crate) fn after(&self, index: Index) -> impl DoubleEndedIterator<Item = &Record> {
        let skipped = index.0.saturating_sub(self.base.index.0);
        self.records.iter().skip(usize::try_from(skipped).unwrap_or(usize::MAX))
    }

    /// Appends the record that follows.
    pub(crate) fn push(&mut self, record: Record) {
        let end = self.end();
        assert_eq!(record.index, end.index.next(), "the log has no holes");
        assert!(record.at >= end.at, "entries do not overlap");
        self.records.push_back(record);
    }

    /// Drops what follows an index.
    pub(crate) fn truncate(&mut self, index: Index) {
        while self.records.back().is_some_and(|record| record.index > index) {
            self.records.pop_back();
        }
        assert!(self.end().index <= index.max(self.base.index));
    }

    /// Drops the records up to an index.
    pub(crate) fn prune(&mut self, index: Index) {
        while let Some(first) = self.records.front().filter(|record| record.index <= index) {
            assert_eq!(first.index, self.base.index.next(), "the oldest record follows what is not kept");
            self.base = first.end();
            self.records.pop_front();
        }
    }

    /// Begins anew after a prefix.
    pub(crate) fn restart(&mut self, base: Point) {
        self.records.clear();
        self.base = base;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(log: &Log) -> Record {
        let Point { index, at } = log.end();
        Record {
            index: index.next(),
            term: Term(1),
            at,
            kind: Kind::Command,
            client: 1,
            number: 1,
            payload: Box::new([7; 9]),
        }
    }

    #[test]
    fn records_are_found_by_index() {
        let mut log = Log::default();
        log.restart(Point { index: Index(4), at: Offset(100) });
        for _ in 0..5 {
            log.push(record(&log));
        }
        assert_eq!(log.end().index, Index(9));
        log.prune(Index(6));
        assert_eq!(log.get(Index(6)), None);
        assert_eq!(log.get(Index(7)).map(|record| record.index), Some(Index(7)));
        assert_eq!(log.point(Index(6)), Some(log.base()));
        assert_eq!(log.point(Index(5)), None);
        assert_eq!(log.after(Index(8)).count(), 1);
        log.truncate(Index(7));
        assert_eq!(log.end().index, Index(7));
        assert_eq!(log.end().at, Offset(100 + 3 * Entry::bytes_of(9) as u64));
    }
}
