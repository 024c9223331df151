//! How far a replica is, from a copy of its memory: what an observer shows. The replica takes no
//! part, so it works as well for one that is frozen.

use crate::area::{Area, PLACES};
use crate::direct::{self, Pointers};
use crate::entry::{ENTRY_BYTES_MAX, Entry, Expected};
use crate::follow::{Activity, Head, Header};
use crate::log::Record;
use crate::mutants::ActiveMutant;
use crate::position::{Index, Offset, Point, Term};
use crate::presets::Preset;
use crate::snapshot::Transfer;

/// What a replica says of itself in the few bytes of [`Area::brief`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Brief {
    /// What it does.
    pub activity: Activity,
    /// The log's identity; 0 if it has none.
    pub log: u64,
    /// It has all that follows its state, and loads no snapshot.
    pub whole: bool,
    /// How many voters there should be; 0 if it does not know.
    pub target: u8,
}

impl Brief {
    /// From the bytes of [`Area::brief`] of a replica's region; `None` if they are torn, or those of no
    /// replica.
    pub fn of(memory: &[u8]) -> Option<Self> {
        let Header { log, gap, activity, target, .. } = Header::decode(memory)?;
        Some(Self { activity, log, whole: log != 0 && !gap, target })
    }
}

/// What a replica's memory says of its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Standing {
    /// The log's identity.
    pub log: u64,
    /// The term of the newest leader that wrote here; 0 before there was one.
    pub term: Term,
    /// The term whose leader may write here; 0 if the preset restricts no one, or there was none yet.
    pub granted: Term,
    /// The newest entry of that leader that is here, without a hole before it.
    pub accepted: Index,
    /// The newest entry that is known here to be committed.
    pub committed: Index,
    /// The newest entry that was applied.
    pub applied: Index,
    /// Bytes of the log up to the end of `accepted`, and of `applied`: the same at all replicas.
    pub accepted_bytes: u64,
    /// See [`Standing::accepted_bytes`].
    pub applied_bytes: u64,
    /// Entries up to this one were given up: a replica that lacks one of them needs a snapshot.
    pub pruned: Index,
    /// It lacks entries that were given up, and loads a snapshot.
    pub needs_snapshot: bool,
    /// The snapshot that is made here for another replica.
    pub serves: Option<Transfer>,
    /// Bytes of the ring of that leader that were not applied yet.
    pub ring_used: u64,
    /// Sessions in the state.
    pub sessions: u64,
}

impl Standing {
    /// From the bytes of [`Area::shared`] of a replica's region, copied in ascending order, so that
    /// the rings are not older than the header; `None` if there is no log, or the header was torn.
    pub fn of(area: &Area, memory: &[u8]) -> Option<Self> {
        let Header {
            log,
            applied,
            gap,
            may_bootstrap: _,
            sessions,
            activity: _,
            granted,
            failed: _,
            target: _,
        } = Header::decode(memory)?;
        let heads = (0..PLACES).filter_map(|place| {
            let head = Head::decode(memory.get(Area::head_in_heads(place)..)?)?;
            (head.log == log || log == 0).then_some((place, head))
        });
        let newest = heads.max_by_key(|(_, head)| head.term);
        let log = if log == 0 { newest.map_or(0, |(_, head)| head.log) } else { log };
        let head = newest.map_or_else(Head::default, |(_, head)| head);
        if Preset::of(log) == Some(Preset::Dare) {
            return Self::direct(area, memory, newest);
        }
        let begin = if gap { head.begin } else { applied };
        let mut end = begin;
        let mut committed = applied.index.max(head.commit);
        while let Some((place, _)) = newest
            && let Some((next, commit)) = following(area, memory, place, &head, end)
        {
            (end, committed) = (next, committed.max(commit));
        }
        (log != 0).then_some(Self {
            log,
            term: head.term,
            granted,
            accepted: end.index,
            committed,
            applied: applied.index,
            accepted_bytes: end.at.0,
            applied_bytes: applied.at.0,
            pruned: head.low,
            needs_snapshot: gap,
            serves: Transfer::of(area, memory.get(area.chunk_in_shared()..)?),
            ring_used: end.at.0.saturating_sub(begin.at.0),
            sessions,
        })
    }
}

impl Standing {
    /// The same for the logs of DARE, whose pointers say what is in them.
    fn direct(area: &Area, memory: &[u8], newest: Option<(u8, Head)>) -> Option<Self> {
        let header = Header::decode(memory)?;
        let head = newest.map_or_else(Head::default, |(_, head)| head);
        let log = if header.log == 0 { head.log } else { header.log };
        let pointers = Pointers::decode(memory.get(area.pointers_in_shared()..)?)?;
        let begin = if header.gap { pointers.begin.unwrap_or_default() } else { header.applied };
        let mut end = begin;
        while end.index < pointers.tail
            && let Some(next) = at(area, memory, direct::PLACE, log, end)
        {
            end = Record::of(&next).end();
        }
        Some(Self {
            log,
            term: head.term,
            granted: header.granted,
            accepted: end.index,
            committed: header.applied.index.max(pointers.commit),
            applied: header.applied.index,
            accepted_bytes: end.at.0,
            applied_bytes: header.applied.at.0,
            pruned: head.low,
            needs_snapshot: header.gap,
            serves: Transfer::of(area, memory.get(area.chunk_in_shared()..)?),
            ring_used: end.at.0.saturating_sub(begin.at.0),
            sessions: header.sessions,
        })
    }

    /// The preset of its replicas; `None` for one that this version does not know.
    pub fn preset(&self) -> Option<Preset> {
        Preset::of(self.log)
    }
}

/// The end of the entry that follows in a ring, and the commit index that came with it.
fn following(area: &Area, memory: &[u8], place: u8, head: &Head, after: Point) -> Option<(Point, Index)> {
    let entry = at(area, memory, place, head.log, after).filter(|entry| entry.term == head.term)?;
    Some((Record::of(&entry).end(), entry.commit))
}

/// The entry that follows in a ring, of whatever term.
fn at<'a>(area: &Area, memory: &'a [u8], place: u8, log: u64, after: Point) -> Option<Entry<'a>> {
    let at: Offset = area.begin(after.at);
    let from = area.entry_in_shared(place, at);
    let bytes = memory.get(from..memory.len().min(from + ENTRY_BYTES_MAX))?;
    Entry::decode(bytes, &Expected { log, index: after.index.next(), at, mutant: ActiveMutant::NONE })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Kind;
    use obol_fabric::sealed;
    use obol_fabric::{Layout, Limits};

    const LIMITS: Limits = Limits { slots: 8, proposers: 7, value_bytes: 4096, ..Limits::LEAST };
    const LOG: u64 = 77;

    fn put(memory: &mut [u8], at: usize, bytes: &[u8]) {
        memory[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn entry(index: u64, at: Offset, term: u64) -> Entry<'static> {
        let (index, commit) = (Index(index), Index(index - 1));
        Entry {
            index,
            term: Term(term),
            at,
            kind: Kind::Command,
            commit,
            client: 1,
            number: 1,
            payload: b"x",
        }
    }

    /// A replica that has applied 4 entries, with the head of term 3 in place 2, and more entries.
    fn memory(area: &Area, entries: &[Entry<'_>]) -> Vec<u8> {
        let mut memory = vec![0; area.shared().len()];
        let mut bytes = Vec::new();
        sealed::seal([LOG, 4, 400, 0, 9, 3], &mut bytes);
        put(&mut memory, 0, &bytes);
        for (place, term) in [(1, 2), (2, 3)] {
            let begin = Point { index: Index(1), at: Offset(0) };
            let (commit, low) = (Index(3), Index(2));
            Head { log: LOG, term: Term(term), commit, low, begin }.encode(&mut bytes);
            put(&mut memory, Area::head_in_heads(place), &bytes);
        }
        for entry in entries {
            let mut bytes = Vec::new();
            entry.encode(LOG, &mut bytes);
            put(&mut memory, area.entry_in_shared(2, entry.at), &bytes);
        }
        memory
    }

    #[test]
    fn entries_of_the_newest_leader_count_up_to_the_first_that_is_missing() {
        let area = Area::of(&Layout::new(LIMITS).expect("in bounds")).expect("there is room");
        let len = Entry::bytes_of(1) as u64;
        let place = |n: u64| Offset(400 + n * len);
        let entries = [
            entry(5, place(0), 3),
            entry(6, place(1), 3),
            entry(7, place(2), 2), // of an earlier leader
            entry(8, place(3), 3),
        ];
        let standing = Standing::of(&area, &memory(&area, &entries)).expect("there is a log");
        let expected = Standing {
            log: LOG,
            term: Term(3),
            granted: Term(3),
            accepted: Index(6),
            committed: Index(5),
            applied: Index(4),
            accepted_bytes: 400 + 2 * len,
            applied_bytes: 400,
            pruned: Index(2),
            needs_snapshot: false,
            serves: None,
            ring_used: 2 * len,
            sessions: 9,
        };
        assert_eq!(standing, expected);
    }

    #[test]
    fn memory_without_a_log_or_cut_off_is_no_standing() {
        let area = Area::of(&Layout::new(LIMITS).expect("in bounds")).expect("there is room");
        assert_eq!(Standing::of(&area, &vec![0; area.shared().len()]), None);
        let whole = memory(&area, &[]);
        for len in [0, 8, 40, 64, 576, 2000] {
            // Whatever is missing: no panic, and nothing that was not there.
            assert_eq!(Standing::of(&area, &whole[..len]), None, "{len} bytes");
        }
    }
}
