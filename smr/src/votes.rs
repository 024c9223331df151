//! Terms and votes of DARE as a guard (3.2): a server lets the leader write to its log for which it has
//! voted, and a candidate leads when a majority has voted for it.
//!
//! Each server has a line in the memory of all others, outside of the log, where everybody may write at
//! any time (the control data, 3.1.1). A candidate writes its term and the last entry of its log there
//! (the vote request array, 3.2.2), a server whom it has its vote, and a leader its term again and
//! again (the heartbeat array, 4.2.2).
//!
//! Where this differs from DARE:
//!
//! - A line is all of these, so that a WRITE carries each, and counts its WRITEs: a heartbeat is a line
//!   with another count, where DARE would have to clear it after each look.
//! - Votes are not written to the others before they are answered (3.2.3). That is for a server that
//!   fails and recovers in the same term. Here a voter is one life of a process: one that starts again
//!   is another voter, and becomes one by an entry of the log. While the process lives, term and vote
//!   are in its memory, also while no view has it.
//! - A server that did not vote for the leader opens its log when it gets a heartbeat, and says so by
//!   the same answer as for a vote. DARE says that it supports the leader, and not how it learns of it.
//! - A leader that sees a higher term, in a line, in a term that it READs, or by a refused WRITE, is
//!   outdated. So a server that gets a heartbeat of a lower term only writes its line to the sender.
//! - A server with a hole in its log does not vote: it knows only a part of what it had.

#[cfg(test)]
mod model;

use crate::area::Area;
use crate::direct::Last;
use crate::grants::change;
use crate::lines::Lines;
use crate::mutants::{ActiveMutant, Mutant};
use crate::position::{Index, Term};
use crate::preset::{Election, Guard, Leadership, Look, Reads, Turn};
use crate::tokens::WAKEUP;
use crate::tokens::{Part, token};
use core::sync::atomic::Ordering;
use obol_fabric::sealed::word;
use obol_fabric::{Address, Fabric, Incarnation, Instant, LinkError, Nanos, Permission, Remote, Writers};
use obol_membership::View;
use std::collections::BTreeSet;

const LINE_WORDS: usize = 7;
/// Higher terms are not those of any leader: an entry has 48 bits for it.
const TERM_MAX: Term = Term((1 << 48) - 2);
/// Pause after terms that could not be READ.
const RETRY_AFTER: Nanos = Nanos::from_micros(100);

/// What one server says to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    who: Incarnation,
    to: Incarnation,
    term: Term,
    /// It asks for a vote in that term, or for access if it leads.
    stands: bool,
    /// It leads that term: this is a heartbeat.
    leads: bool,
    /// Differs between a server's lines.
    turn: u64,
    /// The term in which the receiver may write to its log; 0 for none.
    grants: Term,
    /// The last entry of its log, if it stands.
    last: Last,
}

impl Line {
    fn words(&self) -> [u64; LINE_WORDS] {
        let Self { who, to, term, stands, leads, turn, grants, last } = *self;
        let turn = turn << 2 | u64::from(stands) << 1 | u64::from(leads);
        [who.0, to.0, term.0, turn, grants.0, last.term.0, last.index.0]
    }

    fn of([who, to, term, turn, grants, last_term, last_index]: [u64; LINE_WORDS]) -> Self {
        Self {
            who: Incarnation(who),
            to: Incarnation(to),
            term: Term(term),
            stands: turn & 2 != 0,
            leads: turn & 1 != 0,
            turn: turn >> 2,
            grants: Term(grants),
            last: Last { term: Term(last_term), index: Index(last_index) },
        }
    }
}

/// A candidate or a leader, in a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Chief {
    term: Term,
    who: Incarnation,
    at: Address,
    /// Others have elected it.
    leads: bool,
    last: Last,
}

/// Who can write to the own log (DARE, 3.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Access {
    /// Nobody was excluded yet: it has no log.
    #[default]
    Everyone,
    Nobody,
    Leader(Term, Address),
}

/// What a server does before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// It closes its log.
    Revokes,
    /// It compares the logs (3.2.3): nobody else can write to its own.
    Decides,
    /// It opens its log.
    Grants,
}

/// The terms of other voters, to find out whether a leader is outdated (DARE, 3.3).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Check {
    /// Rounds that were begun, and the newest that found no higher term.
    begun: u64,
    confirmed: u64,
    /// Those of the running one that are read, whose READs are under way, and how many it needs.
    lower: usize,
    outstanding: usize,
    needed: usize,
    retry_at: Instant,
}

/// Terms and votes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Votes {
    lines: Lines,
    term: Term,
    /// The highest term of others by which it, as a candidate or leader, is outdated.
    higher: Term,
    /// The term that it leads or wants to lead.
    stands: Option<Term>,
    leads: bool,
    /// Its last entry, once nobody else can write to its log.
    last: Option<Last>,
    /// Who has given it a vote, or opened its log, in that term.
    confirmed: BTreeSet<Address>,
    access: Access,
    task: Option<(Chief, Step)>,
    /// The change of permissions that was posted for the task has not ended.
    is_changing: bool,
    wanted: Option<Chief>,
    election: Election,
    check: Check,
    send_at: Instant,
    is_unsupported: bool,
    mutant: ActiveMutant,
}

impl Votes {
    fn on_line<F: Fabric>(&mut self, line: &Line, turn: &Turn, fabric: &mut F) {
        let who = line.who;
        let Some(at) = self.lines.address(who) else { return };
        let chief = Chief { term: line.term, who, at, leads: line.leads, last: line.last };
        if let Some(stands) = self.stands {
            if line.grants == stands {
                self.confirmed.insert(at);
            }
            // It stands or leads no more when the detector has seen this. Another one may have won the
            // same term.
            if line.term > self.term {
                self.higher = self.higher.max(line.term);
            }
        }
        if line.leads && line.term < self.term {
            // It is outdated (DARE, 4.2.2).
            self.election.stale += 1;
            self.send(who, at, turn.area, fabric);
        } else if line.leads {
            self.election.beats += 1;
            self.election.leader = Some(Leadership { leader: who, at, term: line.term });
        }
        if self.access == Access::Leader(chief.term, at) && self.term == chief.term {
            if line.stands {
                self.send(who, at, turn.area, fabric);
            }
        } else if self.stands.is_none() {
            self.want(chief, line.stands, turn.trusts);
        }
    }

    /// A candidate asks for the vote, or a leader is to be supported. Servers that are aware of a leader
    /// do not vote (DARE, 3.2.3).
    fn want(&mut self, chief: Chief, stands: bool, trusts: bool) {
        self.election.ignored += u64::from(stands && trusts && !chief.leads && chief.term > self.term);
        let may = chief.leads || stands && !trusts;
        let is_newest = self.wanted.is_none_or(|wanted| chief.term > wanted.term || chief.leads);
        if may && is_newest && is_considered(self.term, chief.term, chief.leads, self.mutant) {
            self.wanted = Some(chief);
        }
    }

    /// Enters a term. Everybody can READ it from now on, before anything is answered.
    fn enter<F: Fabric>(&mut self, term: Term, area: Area, fabric: &F) {
        self.term = self.term.max(term);
        if let Some([word]) = fabric.own(area.counter(), 8) {
            word.store(self.term.0, Ordering::Release);
        }
    }

    /// Closes the log, decides, opens it, and answers (DARE, 3.2.2 and 3.2.3).
    fn work<F: Fabric>(&mut self, own: Incarnation, turn: &Turn, fabric: &mut F) {
        if self.is_changing || self.is_unsupported {
            return;
        }
        if self.task.is_none() {
            let Some(chief) = self.wanted.take() else { return };
            // It may have voted for another one since.
            let is_due = is_considered(self.term, chief.term, chief.leads, self.mutant);
            if !is_due || self.access == Access::Leader(chief.term, chief.at) {
                return;
            }
            self.enter(chief.term, turn.area, fabric);
            let before = match self.access {
                Access::Everyone => Some(Writers::Everyone),
                Access::Leader(_, at) => Some(Writers::Process(at)),
                Access::Nobody => None,
            };
            self.task = Some((chief, Step::Revokes));
            match before.filter(|_| !self.mutant.has(Mutant::VoteWithOpenLog)) {
                Some(before) => {
                    self.is_changing = true;
                    change(before, Permission::Revoked, turn.area, fabric);
                    return;
                }
                None => self.task = Some((chief, Step::Decides)),
            }
        }
        if let Some((chief, Step::Decides)) = self.task {
            if self.votes_for(own, &chief, turn, fabric) {
                self.task = Some((chief, Step::Grants));
                self.is_changing = true;
                change(Writers::Process(chief.at), Permission::Granted, turn.area, fabric);
            } else {
                self.task = None;
            }
        }
    }

    /// The check of 3.2.3.
    fn votes_for<F: Fabric>(&mut self, own: Incarnation, chief: &Chief, turn: &Turn, fabric: &F) -> bool {
        let last = turn.prefix.last(turn.area, fabric);
        if chief.who == own {
            self.last = Some(last);
            return true;
        }
        let votes = turn.prefix.whole && chief.last >= last || self.mutant.has(Mutant::VoteWithoutLogCheck);
        // It gets time to become the leader (4.2.2).
        self.election.votes += u64::from(votes);
        chief.leads || votes
    }

    /// The log is open: the answer follows.
    fn answer<F: Fabric>(&mut self, chief: Chief, area: Area, fabric: &mut F) {
        self.access = Access::Leader(chief.term, chief.at);
        if Some(chief.who) != self.lines.own() {
            self.send(chief.who, chief.at, area, fabric);
        } else if self.stands == Some(chief.term) {
            self.confirmed.insert(chief.at);
        }
    }

    /// Writes the line for another server.
    fn send<F: Fabric>(&mut self, to: Incarnation, at: Address, area: Area, fabric: &mut F) {
        let Some((who, turn)) = self.lines.next_line() else { return };
        let grants = match self.access {
            Access::Leader(term, leader) if leader == at && term == self.term => term,
            _ => Term(0),
        };
        let (term, leads, last) = (self.term, self.leads, self.last.unwrap_or_default());
        let asks = self.last.is_some() && self.stands == Some(term);
        let stands = asks && !self.confirmed.contains(&at);
        let line = Line { who, to, term, stands, leads, turn, grants, last };
        self.lines.write(at, line.words(), area, fabric);
    }
}

/// Whether a server of a term deals with a candidate or leader of another one: it votes only in terms
/// above its own (DARE, 3.2.3), so once in each, and supports the leader of its own as well.
fn is_considered(own: Term, of: Term, leads: bool, mutant: ActiveMutant) -> bool {
    of > own || of == own && (leads || mutant.has(Mutant::VoteTwice))
}

impl Guard for Votes {
    const KIND: u8 = 3;
    const REVOKES: bool = true;
    const DIRECT: bool = true;
    const READS: Reads = Reads::Confirmed;

    fn install(&mut self, view: &View, own: Option<Incarnation>) {
        self.lines.install(view, own);
        self.send_at = Instant::ZERO;
    }

    /// Becomes a candidate (DARE, 3.2.2): it closes its own log first.
    fn seize<F: Fabric>(&mut self, term: Term, fabric: &mut F) {
        self.release();
        let Some(who) = self.lines.own() else { return };
        self.stands = Some(term);
        let (at, last) = (fabric.address(), Last::default());
        self.wanted = Some(Chief { term, who, at, leads: false, last });
        self.send_at = Instant::ZERO;
    }

    fn release(&mut self) {
        if let Some(stands) = self.stands.take() {
            let own = self.lines.own();
            self.wanted = self.wanted.filter(|wanted| Some(wanted.who) != own || wanted.term != stands);
        }
        (self.leads, self.last, self.higher) = (false, None, Term(0));
        self.confirmed.clear();
        // Queries of another term are gone, and what is under way for them says nothing.
        self.check = Check { begun: self.check.begun + 1, ..Check::default() };
    }

    fn elected(&mut self) {
        self.leads = true;
        self.send_at = Instant::ZERO;
    }

    fn poll<F: Fabric>(&mut self, now: Instant, turn: &Turn, fabric: &mut F) {
        let Some(own) = self.lines.own() else { return };
        self.lines.set_log(turn.prefix.log);
        for line in self.lines.changed(turn.area, fabric).into_iter().map(Line::of) {
            if line.term <= TERM_MAX {
                self.on_line(&line, turn, fabric);
            }
        }
        self.work(own, turn, fabric);
        let speaks = self.leads || self.last.is_some() && self.stands == Some(self.term);
        if speaks && now >= self.send_at {
            let is_first = self.send_at == Instant::ZERO;
            self.send_at = now + turn.every;
            for (who, at) in self.lines.others() {
                let asks = !self.confirmed.contains(&at);
                if self.leads || asks {
                    self.send(who, at, turn.area, fabric);
                    if is_first && asks {
                        // A server that is idle does not look at its lines.
                        fabric.send(at.owner(), WAKEUP);
                    }
                }
            }
        }
    }

    fn on_permit<F: Fabric>(&mut self, result: Result<(), LinkError>, area: Area, fabric: &mut F) {
        self.is_changing = false;
        let Some((chief, step)) = self.task else { return };
        if result.is_err() {
            self.is_unsupported = true;
            return;
        }
        match step {
            Step::Revokes => {
                self.access = Access::Nobody;
                self.task = Some((chief, Step::Decides));
            }
            Step::Grants => {
                self.task = None;
                self.answer(chief, area, fabric);
            }
            Step::Decides => {}
        }
    }

    fn seized<F: Fabric>(&self, at: Address, _fabric: &F) -> bool {
        self.confirmed.contains(&at)
    }

    fn may_feed(&self, at: Address) -> bool {
        self.confirmed.contains(&at)
    }

    fn look<F: Fabric>(&mut self, _reads: bool, _fabric: &F) -> Look {
        // Reads are not even prepared before they are confirmed, and nothing else of a leader depends
        // on who leads now.
        Look::all(true)
    }

    fn ticket(&self) -> u64 {
        if self.mutant.has(Mutant::ReadWithoutTerms) { 0 } else { self.check.begun + 1 }
    }

    fn confirmed(&self) -> u64 {
        self.check.confirmed
    }

    /// READs the terms of a majority (DARE, 3.3, read requests): once for all queries that have come
    /// before.
    fn confirm<F: Fabric>(&mut self, now: Instant, voters: &[Address], area: Area, fabric: &mut F) {
        let check = &mut self.check;
        if check.outstanding > 0 || now < check.retry_at || !self.leads {
            return;
        }
        check.begun += 1;
        // Its own term is not higher: otherwise it would not lead.
        (check.lower, check.needed) = (0, voters.len() / 2 + 1);
        for &at in voters {
            if at == fabric.address() {
                check.lower += 1;
                continue;
            }
            check.outstanding += 1;
            let from = Remote { at, offset: area.counter() };
            fabric.read(from, 8, token(Part::Terms, check.begun as u32));
        }
        check.conclude();
    }

    fn on_read(&mut self, now: Instant, argument: u32, result: Result<&[u8], LinkError>) {
        let check = &mut self.check;
        if argument != check.begun as u32 || check.outstanding == 0 {
            return;
        }
        check.outstanding -= 1;
        match result.ok().and_then(|bytes| word(bytes, 0)) {
            Some(term) if term <= self.term.0 => check.lower += 1,
            Some(term) => self.higher = self.higher.max(Term(term).min(TERM_MAX)),
            None => {}
        }
        check.conclude();
        if check.outstanding == 0 && check.lower < check.needed {
            check.retry_at = now + RETRY_AFTER;
        }
    }

    fn granted(&self) -> Term {
        match self.access {
            Access::Leader(term, _) => term,
            // It was closed after that of an earlier term.
            Access::Everyone | Access::Nobody => self.term,
        }
    }

    fn election(&self) -> Election {
        Election { term: self.term.max(self.higher), ..self.election }
    }

    fn is_supported(&self) -> bool {
        !self.is_unsupported
    }

    #[cfg(feature = "mutants")]
    fn plant(&mut self, mutant: Mutant) {
        self.mutant = ActiveMutant::new(mutant);
    }
}

impl Check {
    fn conclude(&mut self) {
        if self.lower >= self.needed {
            // What else is under way says nothing more.
            (self.confirmed, self.outstanding) = (self.begun, 0);
        }
    }
}
