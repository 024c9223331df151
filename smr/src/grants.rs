//! The permission switch of Mu as a guard: each replica lets one leader at a time write into its
//! rings, and a successor takes over when a majority of the voters lets it.
//!
//! A replica that is to lead writes its term into a line of the others' memory, the permission
//! requests of Mu (5.2). An owner that finds a term there that is higher than the one that it has
//! granted revokes the permission of the leader before, grants it to this one, and answers with a
//! line of its own. The owners that have answered are Mu's confirmed followers (4.1). These lines lie
//! outside of the rings, where everybody may write at any time: Mu's background plane (3.2).
//!
//! Where this differs from Mu:
//!
//! - With views, the term is the base of a view, so leaders need not read minimum proposal numbers and
//!   choose a higher one (4.1). Without, they do, before they ask: see [`crate::PullScore`]. What an
//!   owner has granted takes the place of these numbers: it grants nothing to a lower term. So the
//!   request for the permission also writes them, which is a round of its own in Mu.
//! - Mu handles requests in the order of the requesters' ids (5.2); here the highest term is granted,
//!   and lower ones never are.
//! - A refused WRITE ends a leader's term, as it makes Mu's abort (4.1), and a term is led once only.
//!   With views, another replica has a later one. Without, the leader begins again, as Mu's does, in a
//!   higher term, if it still considers itself the leader.
//! - A WRITE that fails because its target is dead or cut off aborts nothing: the leader goes on with
//!   a majority, as Mu says for a large set of confirmed followers (4.2).
//! - The confirmed set grows at any time (4.2): the leader asks all replicas of its view until they
//!   have answered, and feeds each from then on.
//! - With views, reads take no round (Mu replicates them): they are answered under the lease. So a leader must not
//!   answer anything before its view was active once, since its predecessor may still answer reads
//!   until then; the permission switch alone ends commits, not answers. Commits and the replies to
//!   commands look at the lease no more after that.

use crate::REPLICAS_MAX;
use crate::area::Area;
use crate::lines::Lines;
use crate::mutants::{ActiveMutant, Mutant};
use crate::position::Term;
use crate::preset::{Guard, Look, Reads, Turn};
use crate::tokens::WAKEUP;
use crate::tokens::{Part, token};
use core::sync::atomic::Ordering;
use obol_fabric::sealed;
use obol_fabric::{Address, Fabric, Incarnation, Instant, LinkError, Nanos, Permission, ViewId, Writers};
use obol_membership::View;
use std::collections::BTreeSet;

/// Interval at which a request without an answer is repeated: lines are lost with their link.
const ASK_EVERY: Nanos = Nanos::from_micros(200);

const LINE_WORDS: usize = 5;

/// What one replica asks of another one, and grants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    who: Incarnation,
    to: Incarnation,
    /// The term in which it is to lead; 0 for none.
    asks: Term,
    /// Differs between a replica's lines, so that a repeated request is answered again.
    turn: u64,
    /// The term whose leader, the receiver, has its permission; 0 for none.
    grants: Term,
}

impl Line {
    const fn words(&self) -> [u64; LINE_WORDS] {
        let Self { who, to, asks, turn, grants } = *self;
        [who.0, to.0, asks.0, turn, grants.0]
    }

    fn of([who, to, asks, turn, grants]: [u64; LINE_WORDS]) -> Self {
        Self { who: Incarnation(who), to: Incarnation(to), asks: Term(asks), turn, grants: Term(grants) }
    }
}

/// Whether another replica asks this one for its permission: they have a preset that needs it.
pub(crate) fn is_asked<F: Fabric>(own: Incarnation, area: Area, fabric: &F) -> bool {
    (0..REPLICAS_MAX).any(|place| {
        let words = fabric.own(area.permission(place), 8 * (LINE_WORDS + 1));
        // Memory that was never written to is all zeros.
        let is_written =
            words.and_then(|words| words.first()).is_some_and(|it| it.load(Ordering::Relaxed) != 0);
        let line = is_written.then(|| sealed::unseal_own::<LINE_WORDS>(words).map(Line::of)).flatten();
        line.is_some_and(|line| line.to == own && line.asks != Term(0))
    })
}

/// A leader and the term in which it may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Grant {
    term: Term,
    who: Incarnation,
    at: Address,
}

/// How far a switch of permissions is: one change follows the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Revokes,
    Grants,
}

/// The permission switch. `VIEWS`: views say who leads (`mu+views`), not the replicas themselves
/// (`mu`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Grants<const VIEWS: bool = true> {
    view: ViewId,
    lines: Lines,
    /// The term that it leads or is to lead.
    term: Option<Term>,
    /// Those who have granted it their permission in that term.
    confirmed: BTreeSet<Address>,
    ask_at: Instant,
    /// Its view was active in that term.
    was_active: bool,
    /// As an owner: who may write.
    granted: Option<Grant>,
    switching: Option<(Grant, Step)>,
    /// The highest request that waits.
    wanted: Option<Grant>,
    is_unsupported: bool,
    mutant: ActiveMutant,
}

impl<const VIEWS: bool> Grants<VIEWS> {
    fn on_line<F: Fabric>(&mut self, line: &Line, area: Area, fabric: &mut F) {
        let who = line.who;
        let Some(at) = self.lines.address(who) else { return };
        if self.term == Some(line.grants) {
            self.confirmed.insert(at);
        }
        if line.asks == Term(0) {
            return;
        }
        let grant = Grant { term: line.asks, who, at };
        if self.granted == Some(grant) {
            self.send(who, at, area, fabric);
        } else {
            self.want(grant);
        }
    }

    /// A replica asks for the permission (Mu, 5.2). The highest term has it: see [`crate::grants`].
    fn want(&mut self, grant: Grant) {
        let before = [self.granted, self.switching.map(|(to, _)| to), self.wanted];
        if before.iter().flatten().all(|known| grant.term > known.term) {
            self.wanted = Some(grant);
        }
    }

    /// Begins the next switch: revoke, then grant, then answer (Mu, 5.2).
    fn switch<F: Fabric>(&mut self, area: Area, fabric: &mut F) {
        if self.switching.is_some() || self.is_unsupported {
            return;
        }
        let Some(grant) = self.wanted.take() else { return };
        let is_later = self.granted.is_none_or(|before| before.term < grant.term);
        assert!(is_later, "a permission goes to the leader of a later term");
        if self.mutant.has(Mutant::GrantWithoutRevoke) {
            self.switching = Some((grant, Step::Grants));
            change(Writers::Process(grant.at), Permission::Granted, area, fabric);
            return;
        }
        // Before it has granted anything, all could write.
        let before = self.granted.map_or(Writers::Everyone, |before| Writers::Process(before.at));
        self.switching = Some((grant, Step::Revokes));
        change(before, Permission::Revoked, area, fabric);
        if self.mutant.has(Mutant::AnswerBeforePermit) {
            self.granted = Some(grant);
            self.confirm(grant, area, fabric);
        }
    }

    /// Answers a request that was granted.
    fn confirm<F: Fabric>(&mut self, grant: Grant, area: Area, fabric: &mut F) {
        if Some(grant.who) == self.lines.own() {
            if self.term == Some(grant.term) {
                self.confirmed.insert(grant.at);
            }
        } else {
            self.send(grant.who, grant.at, area, fabric);
        }
    }

    /// Writes the line for another replica.
    fn send<F: Fabric>(&mut self, to: Incarnation, at: Address, area: Area, fabric: &mut F) {
        let Some((who, turn)) = self.lines.next_line() else { return };
        let asks = self.term.filter(|_| !self.confirmed.contains(&at)).unwrap_or_default();
        let of_it = self.granted.filter(|grant| (grant.who, grant.at) == (to, at));
        let grants = of_it.map(|grant| grant.term).unwrap_or_default();
        self.lines.write(at, Line { who, to, asks, turn, grants }.words(), area, fabric);
    }
}

/// Changes who may write into the rings.
pub(crate) fn change<F: Fabric>(whom: Writers, permission: Permission, area: Area, fabric: &mut F) {
    fabric.permit(whom, area.permitted(), permission, token(Part::Permit, 0));
}

impl<const VIEWS: bool> Guard for Grants<VIEWS> {
    const KIND: u8 = if VIEWS { 1 } else { 2 };
    const REVOKES: bool = true;
    const READS: Reads = if VIEWS { Reads::Leased } else { Reads::Logged };

    fn install(&mut self, view: &View, own: Option<Incarnation>) {
        self.view = view.id;
        self.lines.install(view, own);
        self.ask_at = Instant::ZERO;
    }

    /// Requests are sent with the next poll.
    fn seize<F: Fabric>(&mut self, term: Term, _fabric: &mut F) {
        self.release();
        (self.term, self.ask_at) = (Some(term), Instant::ZERO);
    }

    fn release(&mut self) {
        self.term = None;
        self.confirmed.clear();
        self.was_active = false;
    }

    fn poll<F: Fabric>(&mut self, now: Instant, turn: &Turn, fabric: &mut F) {
        let Some(own) = self.lines.own() else { return };
        self.lines.set_log(turn.prefix.log);
        let area = turn.area;
        let lines = self.lines.changed(area, fabric).into_iter().map(Line::of);
        lines.for_each(|line| self.on_line(&line, area, fabric));
        if let Some(term) = self.term {
            let at = fabric.address();
            if !self.confirmed.contains(&at) {
                self.want(Grant { term, who: own, at });
            }
            if now >= self.ask_at {
                let is_first = self.ask_at == Instant::ZERO;
                self.ask_at = now + ASK_EVERY;
                for (who, at) in self.lines.others() {
                    if !self.confirmed.contains(&at) {
                        self.send(who, at, area, fabric);
                        if is_first {
                            // An owner that is idle does not look at its lines.
                            fabric.send(at.owner(), WAKEUP);
                        }
                    }
                }
            }
        }
        self.switch(area, fabric);
    }

    fn on_permit<F: Fabric>(&mut self, result: Result<(), LinkError>, area: Area, fabric: &mut F) {
        let Some((grant, step)) = self.switching.take() else { return };
        if result.is_err() {
            self.is_unsupported = true;
            return;
        }
        match step {
            Step::Revokes => {
                self.switching = Some((grant, Step::Grants));
                change(Writers::Process(grant.at), Permission::Granted, area, fabric);
            }
            Step::Grants => {
                assert!(self.granted.is_none_or(|before| before.term <= grant.term), "and never back");
                self.granted = Some(grant);
                self.confirm(grant, area, fabric);
            }
        }
        self.switch(area, fabric);
    }

    fn seized<F: Fabric>(&self, at: Address, _fabric: &F) -> bool {
        self.confirmed.contains(&at)
    }

    fn may_feed(&self, at: Address) -> bool {
        self.confirmed.contains(&at)
    }

    fn look<F: Fabric>(&mut self, reads: bool, fabric: &F) -> Look {
        if !VIEWS {
            // Whatever it answers, reads as well, follows from an entry that a majority has.
            return Look::all(true);
        }
        let is_active = (reads || !self.was_active) && fabric.is_active(self.view);
        self.was_active |= is_active;
        let answer = self.was_active || self.mutant.has(Mutant::AnswerBeforeActive);
        // A WRITE that completed was executed before its target let another leader write, which
        // READs the log there after that.
        Look { commit: true, answer, read: is_active }
    }

    fn granted(&self) -> Term {
        self.granted.map(|grant| grant.term).unwrap_or_default()
    }

    fn is_supported(&self) -> bool {
        !self.is_unsupported
    }

    #[cfg(feature = "mutants")]
    fn plant(&mut self, mutant: Mutant) {
        self.mutant = ActiveMutant::new(mutant);
    }
}
