//! Two schedules with five servers of DARE, with the codec, the comparison of logs, the adjustment and
//! the commit rule that ship. Raft's figure 8: an entry of an earlier term that a majority has, and that
//! a later leader overwrites. Committed by counting, as DARE says (3.3.1), it is lost. And a leader that
//! fails when it has adjusted logs: what it has cut off must not have been committed.

use super::{Last, Pointers, committed, kept, matching};
use crate::area::Area;
use crate::entry::Kind;
use crate::log::{Log, Record};
use crate::mutants::ActiveMutant;
use crate::position::{Index, Point, Term};
use obol_fabric::{Layout, Limits};

const SERVERS: usize = 5;
const LOG: u64 = 7;

/// The memory of a server, which stays while it does not run.
struct Server {
    ring: Vec<u8>,
    tail: Index,
    /// The newest commit index that is known here: only at the leader that committed.
    commit: Index,
    log: Log,
    /// The term that it knows.
    term: Term,
}

struct Servers {
    area: Area,
    all: Vec<Server>,
    mutant: ActiveMutant,
    /// The entries that some leader has committed, with their terms.
    committed: Vec<(Index, Term)>,
}

impl Servers {
    fn new(mutant: ActiveMutant) -> Self {
        let limits = Limits { slots: 8, proposers: 7, value_bytes: 1536, ..Limits::LEAST };
        let area = Area::of(&Layout::new(limits).expect("in bounds")).expect("there is room");
        let server = || Server {
            ring: vec![0; area.ring_bytes() as usize],
            tail: Index(0),
            commit: Index(0),
            log: Log::default(),
            term: Term(0),
        };
        Self { area, all: (0..SERVERS).map(|_| server()).collect(), mutant, committed: Vec::new() }
    }

    fn last(&self, server: usize) -> Last {
        let last = self.all[server].log.last();
        last.map_or_else(Last::default, |record| Last { term: record.term, index: record.index })
    }

    /// A server asks for votes. Returns whether a majority of all votes for it.
    fn elect(&mut self, candidate: usize, term: u64, running: &[usize]) -> bool {
        let last = self.last(candidate);
        let mut votes = 1;
        self.all[candidate].term = Term(term);
        for &voter in running {
            if self.all[voter].term >= Term(term) {
                continue;
            }
            self.all[voter].term = Term(term);
            votes += u32::from(last >= self.last(voter));
        }
        let majority = SERVERS / 2 + 1;
        let is_elected = votes as usize >= majority;
        if is_elected {
            for &(index, of) in &self.committed {
                let has = self.all[candidate].log.get(index).is_some_and(|record| record.term == of);
                assert!(has, "lost: the entry {index} of term {of}, which was committed");
            }
        }
        is_elected
    }

    /// A leader appends an entry of its term to its own log.
    fn append(&mut self, leader: usize) -> Index {
        let (area, server) = (self.area, &mut self.all[leader]);
        let (Point { index, at }, term) = (server.log.end(), server.term);
        let (index, at, kind, client) = (index.next(), area.begin(at), Kind::Blank, 0);
        server.log.push(Record { index, term, at, kind, client, number: term.0, payload: Box::new([]) });
        self.copy(leader, leader, index);
        index
    }

    /// A leader adjusts a log, and fails or goes on.
    fn adjust(&mut self, leader: usize, to: usize) -> Index {
        let Server { ring, tail, commit, .. } = &self.all[to];
        let pointers = Pointers { tail: *tail, commit: *commit, begin: None };
        let log = &self.all[leader].log;
        let same = kept(self.area, LOG, Point::default(), pointers, ring, log, self.mutant).index;
        let target = &mut self.all[to];
        target.log.truncate(same);
        target.tail = same;
        same
    }

    /// A leader adjusts a log, and writes its own up to an entry.
    fn copy(&mut self, leader: usize, to: usize, upto: Index) {
        let records: Vec<Record> = self.all[leader].log.after(Index(0)).cloned().collect();
        let same = if to == leader { self.all[to].tail } else { self.adjust(leader, to) };
        let target = &mut self.all[to];
        for record in records.iter().filter(|it| it.index > same && it.index <= upto) {
            let mut bytes = Vec::new();
            record.entry(record.term, Index(0)).encode(LOG, &mut bytes);
            let begin = self.area.in_ring(record.at);
            target.ring[begin..begin + bytes.len()].copy_from_slice(&bytes);
            if to != leader {
                target.log.push(record.clone());
            }
        }
        target.tail = upto;
    }

    /// A leader whose first own entry is `blank` commits what a majority has.
    fn commit(&mut self, leader: usize, blank: Index) -> Index {
        let log = &self.all[leader].log;
        let has = |server: &Server| {
            matching(self.area, LOG, Point::default(), server.tail, &server.ring, log).index
        };
        let mut all: Vec<Index> = self.all.iter().map(has).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        let upto = committed(all[SERVERS / 2], Some(blank), self.mutant);
        for record in log.after(Index(0)).filter(|record| record.index <= upto) {
            if !self.committed.contains(&(record.index, record.term)) {
                self.committed.push((record.index, record.term));
            }
        }
        self.all[leader].commit = self.all[leader].commit.max(upto);
        upto
    }

    /// Up to the figure's (c): what the first server has committed as the leader of term 4, which has
    /// written an entry of term 2 to a third server.
    fn run_to_c(&mut self) -> Index {
        // Before (a): the entry 1 is everywhere.
        assert!(self.elect(0, 1, &[1, 2, 3, 4]));
        let first = self.append(0);
        (1..SERVERS).for_each(|to| self.copy(0, to, first));
        assert_eq!(self.commit(0, first), first);
        // (a) The first server leads term 2, and its entry is at one other.
        assert!(self.elect(0, 2, &[1, 2, 3, 4]));
        let second = self.append(0);
        self.copy(0, 1, second);
        // (b) It does not run. The last one leads term 3, and has another entry there.
        assert!(self.elect(4, 3, &[2, 3]), "those that lack the entry of term 2");
        assert_eq!(self.append(4), second);
        // (c) That one does not run. The first leads term 4, and goes on with its entry of term 2.
        assert!(self.elect(0, 4, &[1, 2]));
        let blank = self.append(0);
        self.copy(0, 2, second);
        self.commit(0, blank)
    }
}

impl Servers {
    /// The first server commits an entry that two others have, and fails before it says so to them. The
    /// second one leads then, adjusts the logs of both, and fails before it has written anything.
    fn adjust_and_fail(&mut self) {
        assert!(self.elect(0, 1, &[1, 2, 3, 4]));
        let first = self.append(0);
        (1..3).for_each(|to| self.copy(0, to, first));
        assert_eq!(self.commit(0, first), first);
        assert!(self.elect(1, 2, &[0, 2, 3, 4]));
        self.append(1);
        for to in [0, 2] {
            self.adjust(1, to);
        }
    }
}

#[test]
fn an_adjustment_cuts_off_nothing_that_may_be_committed() {
    let mut servers = Servers::new(ActiveMutant::NONE);
    servers.adjust_and_fail();
    assert!(!servers.elect(3, 3, &[0, 2, 4]), "it lacks the entry");
    assert!(servers.elect(2, 4, &[0, 3, 4]));
}

/// The first server knows that the entry is committed, so it is not cut off there.
#[cfg(feature = "mutants")]
#[test]
#[should_panic(expected = "lost: the entry 1 of term 1, which was committed")]
fn mutants_adjust_to_commit_loses_an_entry() {
    let mut servers = Servers::new(ActiveMutant::new(crate::Mutant::AdjustToCommit));
    servers.adjust_and_fail();
    servers.elect(3, 3, &[2, 4]);
}

/// (d): the last server wins, and what a majority had is overwritten. It was not committed.
#[test]
fn an_entry_of_an_earlier_term_is_not_committed_by_counting() {
    let mut servers = Servers::new(ActiveMutant::NONE);
    assert_eq!(servers.run_to_c(), Index(0), "nothing more than before");
    assert!(servers.elect(4, 5, &[1, 2, 3]));
    let blank = servers.append(4);
    (0..SERVERS - 1).for_each(|to| servers.copy(4, to, blank));
    assert_eq!(servers.commit(4, blank), blank);
    assert_eq!(servers.committed, [(Index(1), Term(1)), (Index(2), Term(3)), (Index(3), Term(5))]);
}

/// (e): with an entry of its own term at a majority, the first server commits both, and the last one
/// cannot win.
#[test]
fn an_entry_of_an_earlier_term_is_committed_under_one_of_the_own() {
    let mut servers = Servers::new(ActiveMutant::NONE);
    servers.run_to_c();
    let blank = Index(3);
    (1..3).for_each(|to| servers.copy(0, to, blank));
    assert_eq!(servers.commit(0, blank), blank);
    assert!(!servers.elect(4, 5, &[1, 2, 3]));
    assert!(servers.elect(1, 6, &[2, 3, 4]));
}

#[cfg(feature = "mutants")]
#[test]
#[should_panic(expected = "lost: the entry 2 of term 2, which was committed")]
fn mutants_commit_old_term_loses_an_entry() {
    let mut servers = Servers::new(ActiveMutant::new(crate::Mutant::CommitOldTerm));
    assert_eq!(servers.run_to_c(), Index(2));
    servers.elect(4, 5, &[1, 2, 3]);
}
