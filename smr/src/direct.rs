//! The log of a server of DARE: one for all leaders, in the first ring, with pointers that the leader
//! sets (DARE, 3.1.1). What is after the tail is not in the log. Only the leader for which a server
//! has voted, or which it supports, can write to its log: see [`crate::Votes`].
//!
//! ```text
//! 0   tail     the last entry of the log
//! 8   commit   the newest entry that is known here to be committed
//! 16  begin    the entries of the log continue this prefix: index and offset, with their checksum
//! ```
//!
//! Tail and commit are one word each, which is never torn. Where this differs from DARE:
//!
//! - The pointers name entries, by index. The places of entries follow from their offsets. The pointer
//!   `apply` is in the header, and `head` is the `begin` here, or what the heads give up.
//! - `begin` is for a server that lacks entries which all others have given up: it loads a snapshot.
//! - An entry keeps its index, offset and term when a later leader writes it. Its checksum covers the
//!   commit index of its writer, so the bytes may differ: logs are compared by index and term, as in
//!   the paper.

#[cfg(test)]
mod figure8;

use crate::area::Area;
use crate::entry::{ENTRY_BYTES_MAX, Entry, Expected};
use crate::log::{Log, Record};
use crate::mutants::{ActiveMutant, Mutant};
use crate::position::{Index, Offset, Point, Term};
use crate::replicated::Replicated;
use crate::service::Service;
use core::sync::atomic::Ordering;
use obol_fabric::Fabric;
use obol_fabric::sealed::{self, word};

pub(crate) const POINTERS_BYTES: u32 = 40;
/// Offset of `commit` in the pointers.
pub(crate) const COMMIT_AT: u32 = 8;
/// Offset of `begin` in the pointers.
pub(crate) const BEGIN_AT: u32 = 16;
/// The ring that is the log.
pub(crate) const PLACE: u8 = 0;

/// The pointers of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Pointers {
    pub(crate) tail: Index,
    pub(crate) commit: Index,
    /// `None` while it is being written, and before it was.
    pub(crate) begin: Option<Point>,
}

impl Pointers {
    /// Those in own memory.
    pub(crate) fn own<F: Fabric>(area: Area, fabric: &F) -> Self {
        let Some(words) = fabric.own(area.pointers(), POINTERS_BYTES as usize) else {
            return Self::default();
        };
        let load = |at: u32| words.get(at as usize / 8).map_or(0, |word| word.load(Ordering::Acquire));
        // In the order that is the reverse of the leader's: a commit index that follows a newer
        // beginning is not seen without it.
        let commit = Index(load(COMMIT_AT));
        let tail = Index(load(0));
        let begin = sealed::unseal_own::<2>(words.get(BEGIN_AT as usize / 8..)).map(point);
        Self { tail, commit, begin }
    }

    /// From bytes that were READ.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let begin = bytes.get(BEGIN_AT as usize..).and_then(sealed::unseal::<2>).map(point);
        Some(Self { tail: Index(word(bytes, 0)?), commit: Index(word(bytes, 1)?), begin })
    }

    /// The encoded beginning.
    pub(crate) fn encode_begin(begin: Point) -> Vec<u8> {
        let mut bytes = Vec::new();
        sealed::seal([begin.index.0, begin.at.0], &mut bytes);
        bytes
    }
}

fn point([index, at]: [u64; 2]) -> Point {
    Point { index: Index(index), at: Offset(at) }
}

/// What a server knows of its log beside the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    pub(crate) log: u64,
    /// The part that is in its state, or was taken from the ring.
    pub(crate) end: Point,
    /// The term of the last entry of that.
    pub(crate) term: Term,
    /// It lacks nothing before that.
    pub(crate) whole: bool,
    pub(crate) mutant: ActiveMutant,
}

impl Prefix {
    pub(crate) fn of<S: Service>(replicated: &Replicated<S>) -> Self {
        let term = replicated.log.last().map_or(replicated.state.floor, |record| record.term);
        let whole = replicated.state.log != 0 && !replicated.gap;
        Self {
            log: replicated.state.log,
            end: replicated.log.end(),
            term,
            whole,
            mutant: replicated.state.mutant,
        }
    }

    /// The index and the term of the last entry of the own log (DARE, 3.2.2).
    pub(crate) fn last<F: Fabric>(&self, area: Area, fabric: &F) -> Last {
        let records = rest(area, self, fabric);
        records.last().map_or(Last { term: self.term, index: self.end.index }, |record| Last {
            term: record.term,
            index: record.index,
        })
    }
}

/// The last entry of a log. One that is greater is more recent (DARE, 3.2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Last {
    pub(crate) term: Term,
    pub(crate) index: Index,
}

/// The entries of the own log after a prefix, up to its tail.
pub(crate) fn rest<F: Fabric>(area: Area, prefix: &Prefix, fabric: &F) -> Vec<Record> {
    let tail = Pointers::own(area, fabric).tail;
    let (mut end, mut records, mut buffer) = (prefix.end, Vec::new(), Vec::new());
    while end.index < tail
        && let Some(record) = next(area, prefix.log, end, prefix.mutant, &mut buffer, fabric)
    {
        end = record.end();
        records.push(record);
    }
    records
}

/// The entry that follows in the own log.
pub(crate) fn next<F: Fabric>(
    area: Area,
    log: u64,
    after: Point,
    mutant: ActiveMutant,
    buffer: &mut Vec<u8>,
    fabric: &F,
) -> Option<Record> {
    let at = area.begin(after.at);
    let place = fabric.own(area.entry(PLACE, at), ENTRY_BYTES_MAX)?;
    let expected = Expected { log, index: after.index.next(), at, mutant };
    Entry::read(place, &expected, buffer).map(|entry| Record::of(&entry))
}

/// Up to where another log is that of the leader (DARE, 3.3.1, log adjustment): the entries from the
/// first that differs on are to be removed. Both are the same up to `from`.
pub(crate) fn matching(area: Area, id: u64, from: Point, tail: Index, ring: &[u8], log: &Log) -> Point {
    let is_there = |record: &&Record| {
        let expected = Expected { log: id, index: record.index, at: record.at, mutant: ActiveMutant::NONE };
        let bytes = ring.get(area.in_ring(record.at)..);
        let entry = bytes.and_then(|bytes| Entry::decode(bytes, &expected));
        record.index <= tail && entry.is_some_and(|entry| entry.term == record.term)
    };
    log.after(from.index).take_while(is_there).last().map_or(from, Record::end)
}

/// Up to where a log is kept that a leader adjusts (DARE, 3.3.1). The log's commit index cannot serve:
/// it is sent lazily, so the log can have committed entries after it.
pub(crate) fn kept(
    area: Area,
    id: u64,
    from: Point,
    pointers: Pointers,
    ring: &[u8],
    log: &Log,
    mutant: ActiveMutant,
) -> Point {
    if mutant.has(Mutant::AdjustToCommit) {
        return log.point(pointers.commit).unwrap_or(from).max(from);
    }
    matching(area, id, from, pointers.tail, ring, log)
}

/// What is committed, given what a majority has and the leader's first entry of its own term.
///
/// DARE commits whatever a majority has (3.3.1). A later leader can lack an entry of an earlier term
/// that a majority has (Raft, figure 8), so here counting commits entries of the own term only, and
/// with them all before.
pub(crate) fn committed(replicated: Index, blank: Option<Index>, mutant: ActiveMutant) -> Index {
    let is_own = blank.is_some_and(|blank| replicated >= blank);
    if is_own || mutant.has(Mutant::CommitOldTerm) { replicated } else { Index(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_more_recent_by_its_term_and_then_by_its_length() {
        let last = |term, index| Last { term: Term(term), index: Index(index) };
        let all = [last(0, 0), last(1, 5), last(2, 3), last(2, 4), last(3, 1)];
        assert!(all.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn counting_commits_entries_of_the_own_term_only() {
        let none = ActiveMutant::NONE;
        assert_eq!(committed(Index(6), None, none), Index(0));
        assert_eq!(committed(Index(6), Some(Index(7)), none), Index(0));
        assert_eq!(committed(Index(7), Some(Index(7)), none), Index(7));
        assert_eq!(committed(Index(9), Some(Index(7)), none), Index(9));
    }

    #[test]
    fn pointers_without_a_whole_beginning_have_none() {
        let begin = Point { index: Index(3), at: Offset(240) };
        let mut bytes = [5_u64, 4].map(u64::to_le_bytes).concat();
        assert_eq!(Pointers::decode(&bytes).map(|it| it.begin), Some(None));
        bytes.extend_from_slice(&Pointers::encode_begin(begin));
        assert_eq!(bytes.len(), POINTERS_BYTES as usize);
        let all = Pointers { tail: Index(5), commit: Index(4), begin: Some(begin) };
        assert_eq!(Pointers::decode(&bytes), Some(all));
        bytes[20] ^= 1;
        assert_eq!(Pointers::decode(&bytes), Some(Pointers { begin: None, ..all }));
        assert_eq!(Pointers::decode(&bytes[..12]), None);
    }
}
