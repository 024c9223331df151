//! The leader's part of a coordinator: take over, propose, decide, announce, clear.

use super::{Accusation, Coordinator, requests};
use crate::clearing::{Clearing, Known};
use crate::consensus::{Abort, Consensus, Outcome, Phase};
use crate::metrics::{Counter, Histogram};
use crate::mutants::Mutant;
use crate::peer::MembershipState;
use crate::recorder::{EventKind, Record};
use crate::timers::Timer;
use crate::view::{Change, Kind, Member, Newcomer, View};
use crate::wire::{self, Message, Refusal};
use obol_fabric::{Fabric, Group, Instant, Nanos, ViewId};
use std::sync::Arc;

/// A contending leader's pause doubles at most this often.
const BACKOFF_DOUBLINGS_MAX: usize = 10;

impl Coordinator {
    fn should_lead(&self, now: Instant) -> bool {
        match self.peer.state {
            MembershipState::Member(_) | MembershipState::Leaving(_) => {
                self.leader().is_some_and(|m| m.proposer == self.me) && self.peer.booted
            }
            MembershipState::Left { .. } | MembershipState::Retired => false,
            // A newcomer that does not decide yet never takes over by itself.
            MembershipState::Joining { .. } => {
                let alone = self.peer.timers.is_due(Timer::LeadAlone, now);
                let unled = alone && !self.peer.detectors.links.reaches_coordinator();
                self.peer.booted && unled && self.view().acceptor(self.me).is_some()
            }
        }
    }

    /// Whether it has raised fences for a slot that is not decided yet. Their holders are active
    /// again only in the view of that slot, so it must be decided, whatever has become of the
    /// reason to propose one. If this member dies or is cut off before, its removal decides it.
    fn owes_slot(&self) -> bool {
        let owes = self.early.as_ref().is_some_and(|early| early.base() > self.view().id);
        owes && self.incarnation().is_some()
    }

    /// Whether it prepares again when that timer expires.
    pub(super) fn may_retry(&self) -> bool {
        self.leading && self.engine.phase() == Phase::Idle && !self.lost_quorum
    }

    /// Takes all actions that the current state requires. Called after every event.
    pub(super) fn drive<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.requests.expire(now);
        self.forget_unrepeated(now);
        if self.peer.timers.is_due(Timer::Joins, now) {
            self.peer.timers.stop(Timer::Joins);
        }
        let lead = self.should_lead(now) || self.owes_slot();
        if lead && !self.leading {
            self.take_over(now, fabric);
        }
        self.peer.view_pending |= self.leading != lead;
        self.leading = lead;
        self.peer.timers.stop(Timer::Replace);
        if !lead {
            self.announce_held(fabric);
            self.clearing = None;
            return;
        }
        if self.may_retry() && self.peer.timers.is_due(Timer::Retry, now) {
            let outcome = self.engine.prepare(fabric);
            self.outcome(outcome, now, fabric);
        }
        if self.engine.phase() == Phase::Prepared(false) && self.has_work(now) {
            self.propose(now, fabric);
        }
        if self.replaces() {
            let lives = |m: &Member| self.seems_alive(m);
            let due = self.vacancies.due(self.view(), &self.peer.config, now, lives);
            self.peer.timers.set(Timer::Replace, due);
        }
        self.clear(now, fabric);
    }

    /// uKharon 5.3.1: the old leader has probably prepared the next slot; predicting its word saves
    /// a round trip.
    fn take_over<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        let view = Arc::clone(self.view());
        fabric.record(Record::new(EventKind::Takeover, view.id.0, 0));
        fabric.count(Counter::Takeovers, 1);
        assert!(self.engine.slot() <= view.id.next(), "no slot is opened before its predecessor is known");
        let predecessor = view.leader(|m| m.proposer != self.me).map(|m| m.proposer);
        self.engine.open(view.id.next(), &view.acceptors, predecessor);
        self.aborts = 0;
        self.lost_quorum = false;
        self.peer.timers.set(Timer::Retry, now);
        self.proposed = now;
        self.admit_itself(now, fabric);
        // Everything since the last known CLEAR is outstanding. (Protocol, section 5.)
        if self.peer.config.mutant.has(Mutant::TrustTakeover) {
            self.cleared = view.base;
            fabric.multicast(Group::Everyone, &Message::Clear(view.base).encode());
        } else if self.cleared < view.base {
            self.begin_clearing(now, fabric);
        } else {
            // Its sender may have died before all processes received it.
            fabric.multicast(Group::Everyone, &Message::Clear(view.base).encode());
        }
    }

    /// A leader outside the view requests its own admission. If the view has no room, or its name is
    /// on hold, it leads without and tries again.
    pub(super) fn admit_itself<F: Fabric>(&mut self, now: Instant, fabric: &F) {
        let MembershipState::Joining { token, as_of } = self.peer.state else { return };
        let newcomer = self.newcomer(token, fabric);
        let (from, obstacle, newest) = (fabric.address(), self.obstacle(&newcomer, now), self.log.newest());
        let refused = self.requests.join(newcomer, as_of, from, obstacle, newest, &self.peer.config);
        // `install` draws a new token when this join is too old or settled.
        debug_assert!(
            matches!(refused, None | Some(Err(Refusal::Full | Refusal::OnHold(_) | Refusal::NameTaken))),
            "{refused:?}"
        );
    }

    pub(super) fn has_work(&self, now: Instant) -> bool {
        // A join makes no view of its own before that time, but is included in any earlier one:
        // joins may share a view.
        let joins = !self.peer.timers.is_set(Timer::Joins) && self.requests.has_joins(self.view());
        joins
            || self.owes_slot()
            || !self.suspects.is_empty()
            || !self.requests.is_empty()
            || self.wanted_acceptor(now).is_some()
    }

    /// Updates from a new view which names failed repeatedly, and when joins alone may make another
    /// view.
    pub(super) fn follow_joins<F: Fabric>(&mut self, view: &View, now: Instant, fabric: &mut F) {
        let before = Arc::clone(self.view());
        let holds = self.peer.holds.follow(&before, view, &self.peer.config, now);
        for hold in holds.iter().filter(|_| self.leading) {
            fabric.count(Counter::JoinHolds, 1);
            fabric.record(Record::new(EventKind::JoinHeld, hold.who.0, hold.word()));
        }
        if !holds.is_empty() {
            let left =
                |newcomer: &Newcomer| self.peer.holds.left(newcomer.name, &self.peer.config.timing, now);
            for (to, refusal) in self.requests.refuse_on_hold(left).into_iter().filter(|_| self.leading) {
                fabric.send(to, &refusal.encode());
            }
        }
        if view.changes.iter().any(|change| matches!(change, Change::Joined(_))) {
            self.peer.timers.set(Timer::Joins, now + self.peer.config.timing.join_pause);
        }
    }

    /// Why a newcomer is not admitted now, although its join is valid.
    pub(super) fn obstacle(&self, newcomer: &Newcomer, now: Instant) -> Option<Refusal> {
        let left = self.hold_left(newcomer, now);
        let is_suspected = |who| self.suspects.contains_key(&who);
        if left > Nanos::ZERO {
            Some(Refusal::OnHold(left))
        } else {
            let is_taken = self.requests.is_name_taken(newcomer, self.view(), is_suspected);
            is_taken.then_some(Refusal::NameTaken)
        }
    }

    /// How long a newcomer still has to wait. A coordinator that this leader needs does not wait:
    /// without it there may be nothing decided any more.
    fn hold_left(&self, newcomer: &Newcomer, now: Instant) -> Nanos {
        if newcomer.kind == Kind::Coordinator && self.needs(newcomer.proposer) {
            return Nanos::ZERO;
        }
        self.peer.holds.left(newcomer.name, &self.peer.config.timing, now)
    }

    fn seems_alive(&self, member: &Member) -> bool {
        !self.suspects.contains_key(&member.incarnation)
    }

    /// Whether this leader replaces coordinators automatically. A leader outside of the view counts
    /// as missing itself. Requests of operators take precedence.
    fn replaces(&self) -> bool {
        self.peer.is_member() && !self.requests.has_acceptor_request()
    }

    fn wanted_acceptor(&self, now: Instant) -> Option<Change> {
        let lives = |m: &Member| self.seems_alive(m);
        if !self.replaces() {
            return self.requests.acceptor(self.view(), &self.peer.config, lives);
        }
        let change = self.vacancies.change(self.view(), &self.peer.config, now, lives);
        change.filter(|change| requests::has_room(self.view(), *change, &self.peer.config))
    }

    /// The next view that this leader will propose, and its frame.
    fn wanted(&self, now: Instant) -> (Arc<View>, Arc<[u8]>) {
        let view = self.view();
        let remove = self
            .suspects
            .iter()
            .map(|(&accused, known)| {
                let Accusation { accuser, reason } = known.by;
                Change::Failed { accused, accuser, reason }
            })
            .collect();
        let edit = self.requests.edit(remove, self.wanted_acceptor(now), view, &self.peer.config);
        self.successor(&edit)
    }

    fn propose<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        let (next, frame) = self.wanted(now);
        assert_eq!(next.id, self.engine.slot(), "a view is proposed for its own slot");
        assert_eq!(next.id, self.view().id.next(), "a view follows the newest one");
        fabric.record(Record::new(EventKind::Propose, next.id.0, 0));
        self.note_proposed(now);
        self.proposal = Some(Arc::clone(&next));
        let (early, config) = (self.early_clearing(&next, now), self.peer.config);
        // Those of an earlier proposal for the slot are posted.
        let begun = early.map(|early| self.early.insert(early));
        let raise = |fabric: &mut F| begun.into_iter().for_each(|early| early.raise_all(&config, fabric));
        let outcome = self.engine.accept(frame, raise, fabric);
        self.outcome(outcome, now, fabric);
    }

    /// The fences to raise while a view is decided, if leases on older views have to end for it.
    /// Only a member raises them early: the death of another leader before the decision would
    /// change no view, and so leave the slot undecided.
    fn early_clearing(&mut self, next: &View, now: Instant) -> Option<Clearing> {
        if next.base != next.id || self.incarnation().is_none() {
            return None;
        }
        self.clearing_round = self.clearing_round.wrapping_add(1);
        let suspected = |who| self.suspects.contains_key(&who);
        let (log, cleared, proofs) = (&self.log, self.cleared, &self.proofs);
        let known = Known { log, cleared, proofs, suspected: &suspected };
        let (round, config) = (self.clearing_round, &self.peer.config);
        let base = if config.mutant.has(Mutant::FenceUndecided) { next.id.next() } else { next.id };
        assert!(base > self.view().id, "fences precede the decision of a later view only");
        Clearing::prepare(&known, base, round, config, now)
    }

    /// With the planted bug, the time of the takeover is kept in place of the time of the proposal.
    fn note_proposed(&mut self, now: Instant) {
        if !self.peer.config.mutant.has(Mutant::TimerFromTakeover) {
            self.proposed = now;
        }
    }

    /// Handles the result of an engine step.
    pub(super) fn outcome<F: Fabric>(&mut self, outcome: Option<Outcome>, now: Instant, fabric: &mut F) {
        match outcome {
            None | Some(Outcome::Prepared) => {}
            Some(Outcome::Adopted) => {
                fabric.count(Counter::Adoptions, 1);
                self.note_proposed(now);
                let own = if self.peer.config.mutant.has(Mutant::AnnounceOwnValue) {
                    self.wanted(now).1
                } else {
                    Arc::from([])
                };
                let outcome = self.engine.accept(own, |_| {}, fabric);
                self.outcome(outcome, now, fabric);
            }
            Some(Outcome::Decided { value, adopted }) => self.decided(&value, adopted, now, fabric),
            Some(Outcome::Aborted(reason)) => self.aborted(reason, now, fabric),
        }
    }

    fn decided<F: Fabric>(&mut self, frame: &Arc<[u8]>, adopted: bool, now: Instant, fabric: &mut F) {
        let slot = self.engine.slot();
        let view = if adopted {
            View::from_frame_for(&self.peer.config.layout, frame).map(Arc::new)
        } else {
            self.proposal.take()
        };
        let Some(view) = view.filter(|view| view.id == slot) else {
            // Adopted bytes passed their checksum but do not decode to a view: a coordinator of
            // another version wrote them.
            self.aborted(Abort::Unreadable, now, fabric);
            return;
        };
        assert_eq!(slot, self.view().id.next(), "what is decided follows the newest view");
        fabric.record(Record::new(EventKind::Decide, slot.0, u64::from(adopted)));
        fabric.publish_view(view.id, frame);
        let incompatible = view.base == view.id;
        let is_early = |early: &mut Clearing| early.base() == slot && early.is_done(now, &self.peer.config);
        let cleared = self.early.take_if(|early| incompatible && is_early(early));
        if let Some(early) = &cleared {
            // Programs go on first: they do not need what this process has yet to do.
            self.state_clear(&view, early.fenced(), fabric);
        }
        fabric.count(Counter::Decisions, 1);
        fabric.observe(Histogram::Decide, now.since(self.proposed));
        for change in &view.changes {
            let counter = match change {
                Change::Joined(_) => Counter::Joins,
                Change::Left(_) => Counter::Leaves,
                Change::Failed { .. } => Counter::Failures,
                Change::AcceptorAdded(_) | Change::AcceptorRemoved(_) => Counter::AcceptorChanges,
                Change::Lease | Change::Settled | Change::Recovered(_) => continue,
            };
            fabric.count(counter, 1);
        }
        self.announce_replacement(&view, fabric);
        self.follow_published(&view, now, fabric);
        assert_eq!(self.view().id, slot, "what is decided is installed");
        // The slowest action goes first: fences, unless members have to fetch the view after its
        // announcement.
        let announcement = self.announcement(&view, frame);
        let is_whole = !matches!(Message::decode(&announcement), Ok(Message::Decided(_)));
        if incompatible && is_whole && cleared.is_none() {
            self.held = Some(Arc::clone(frame));
            self.peer.timers.set(Timer::Announce, now + self.peer.config.timing.announce_hold);
        } else {
            fabric.multicast(Group::Everyone, &announcement);
        }
        if cleared.is_some() {
            self.announce_clear(view.base, now, is_whole, fabric);
        } else if incompatible {
            self.begin_clearing(now, fabric);
            self.clear(now, fabric);
        }
    }

    /// Announces an automatic change of acceptors. Requests of operators are known to every
    /// coordinator.
    fn announce_replacement<F: Fabric>(&self, view: &View, fabric: &mut F) {
        for change in &view.changes {
            match *change {
                Change::AcceptorAdded(new) if !self.requests.has_requested(new.proposer, true) => {
                    fabric.record(Record::new(EventKind::Replacing, u64::from(new.proposer), view.id.0));
                }
                Change::AcceptorRemoved(old) if !self.requests.has_requested(old.proposer, false) => {
                    fabric.record(Record::new(EventKind::Replaced, u64::from(old.proposer), view.id.0));
                    fabric.count(Counter::Replacements, 1);
                }
                _ => {}
            }
        }
    }

    /// The datagram that announces a view: the step from its predecessor, because a short datagram
    /// arrives sooner; or the view itself, if it admits somebody, who knows no predecessor. What does
    /// not fit is replaced by the other one, or by the view's number.
    pub(super) fn announcement(&self, view: &View, frame: &[u8]) -> Vec<u8> {
        let cleared = self.cleared >= view.base || self.peer.config.mutant.has(Mutant::AnnounceAsCleared);
        let room = self.peer.config.layout.limits().datagram_bytes as usize;
        let fitting = |datagram: Vec<u8>| Some(datagram).filter(|datagram| datagram.len() <= room);
        let whole = || fitting(Message::View { frame, cleared }.encode());
        let step = || {
            let before = self.log.get(ViewId(view.id.0.checked_sub(1)?))?;
            let step = wire::encode_step(&before.view, view, frame);
            let cleared = if cleared { view.base } else { ViewId::GENESIS };
            fitting(Message::Step { id: view.id, cleared, step: &step }.encode())
        };
        let admits = view.changes.iter().any(|change| matches!(change, Change::Joined(_)));
        let announcement = if admits { whole().or_else(step) } else { step().or_else(whole) };
        announcement.unwrap_or_else(|| Message::Decided(view.id).encode())
    }

    /// Announces the newest view if it was deferred. Returns whether it was.
    pub(super) fn announce_held<F: Fabric>(&mut self, fabric: &mut F) -> bool {
        let Some(frame) = self.held.take() else { return false };
        assert!(self.peer.timers.is_set(Timer::Announce), "a deferred announcement has its timer");
        self.peer.timers.stop(Timer::Announce);
        fabric.multicast(Group::Everyone, &self.announcement(self.view(), &frame));
        true
    }

    fn aborted<F: Fabric>(&mut self, reason: Abort, now: Instant, fabric: &mut F) {
        fabric.record(Record {
            kind: EventKind::Abort,
            reason: reason as u8,
            a: self.engine.slot().0,
            b: u64::from(self.aborts),
        });
        fabric.count(Counter::Aborts, 1);
        self.aborts += 1;
        // Each abort corrects a prediction. After as many aborts as there are acceptors, another
        // proposer must be active (uKharon, A.5); only then does stepping aside help.
        let correcting = self.aborts as usize <= self.view().acceptors.len();
        let pause = match reason {
            Abort::Mispredicted | Abort::Contended if correcting => obol_fabric::Nanos::ZERO,
            Abort::Behind => {
                self.peer.contact = Instant::ZERO;
                self.peer.timers.set(Timer::Poll, now);
                self.peer.config.timing.backoff_max
            }
            _ => {
                let half = obol_fabric::Nanos(self.backoff(reason).0 / 2);
                let drawn = half.0 / 2 + self.peer.rng.below(half).0;
                let equal = self.peer.config.mutant.has(Mutant::EqualBackoff);
                obol_fabric::Nanos(if equal { self.peer.config.timing.backoff_max.0 / 2 } else { drawn })
            }
        };
        self.peer.timers.set(Timer::Retry, now + pause);
        if self.peer.config.mutant.has(Mutant::NoRetry) {
            self.peer.timers.stop(Timer::Retry);
        }
        self.lost_quorum = reason == Abort::NoMajority;
        if reason == Abort::NoMajority || reason == Abort::Contended {
            // The decision of another proposer should arrive before the next attempt.
            self.peer.timers.set_by(Timer::Poll, now + pause);
        }
    }

    /// The longest pause before the next attempt. Two leaders that retry faster than one attempt
    /// takes block each other for ever. How long an attempt takes depends on the fabric, so a
    /// leader that is outbid repeatedly pauses longer.
    fn backoff(&self, reason: Abort) -> obol_fabric::Nanos {
        let doublings = match reason {
            Abort::Mispredicted | Abort::Contended => {
                let rounds = self.aborts as usize / self.view().acceptors.len().max(1);
                rounds.saturating_sub(1).min(BACKOFF_DOUBLINGS_MAX)
            }
            _ => 0,
        };
        self.peer.config.timing.backoff_max.saturating_mul(1 << doublings)
    }

    fn begin_clearing<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.clearing_round = self.clearing_round.wrapping_add(1);
        let suspected = |who| self.suspects.contains_key(&who);
        let (log, cleared, proofs) = (&self.log, self.cleared, &self.proofs);
        let known = Known { log, cleared, proofs, suspected: &suspected };
        let (round, nonce) = (self.clearing_round, self.peer.rng.next());
        let base = self.view().base;
        assert!(base <= self.view().id);
        let early = self.early.take_if(|early| early.base() == base);
        let mut clearing = Clearing::begin(&known, early, round, nonce, &self.peer.config, now, fabric);
        if self.peer.config.mutant.has(Mutant::TimerFromTakeover) {
            clearing.backdate(self.proposed, log, &self.peer.config);
        }
        self.clearing = Some(clearing);
    }

    /// Sends CLEAR once every holder of an older lease is clear, together with a held announcement:
    /// each receiver is woken once for both.
    fn clear<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.clear_if_done(now, fabric);
        let fences = self.clearing.as_ref().is_some_and(|clearing| clearing.awaits_fences(&self.peer.config));
        if self.held.is_some() && (!fences || self.peer.timers.is_due(Timer::Announce, now)) {
            self.announce_held(fabric);
        }
    }

    fn clear_if_done<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        let Some(clearing) = &self.clearing else { return };
        let base = clearing.base();
        if base != self.view().base {
            self.clearing = None;
            return;
        }
        if !clearing.is_done(now, &self.peer.config) {
            return;
        }
        let (began, fenced) = (clearing.began(), clearing.fenced());
        assert!(began <= now);
        self.state_clear(&Arc::clone(self.view()), fenced, fabric);
        let is_announced = self.announce_held(fabric);
        self.announce_clear(base, began, is_announced, fabric);
    }

    /// States that all leases before the run of a view are over, by which the programs of this host go
    /// on, and wakes them.
    fn state_clear<F: Fabric>(&mut self, view: &View, fenced: usize, fabric: &mut F) {
        let base = view.base;
        // Stamped before the first of them can be active.
        fabric.record(Record::new(EventKind::Fenced, base.0, fenced as u64));
        fabric.record(Record::new(EventKind::Clear, base.0, 0));
        self.learn_clear(base, fabric);
        assert!(self.cleared >= base && self.clearing.is_none(), "a base is cleared once");
        fabric.wake_programs(view.of_kind(Kind::App).map(|program| program.address));
    }

    /// Sends CLEAR, unless the announcement of its view says that, and counts it.
    fn announce_clear<F: Fabric>(
        &mut self,
        base: ViewId,
        began: Instant,
        is_announced: bool,
        fabric: &mut F,
    ) {
        // All fences may have been raised in the turn that decided. After the stamp, so that no
        // phase of a flight recorder is longer than the histogram's sample.
        fabric.observe_since(Histogram::Clear, began);
        if !is_announced {
            fabric.multicast(Group::Everyone, &Message::Clear(base).encode());
        }
        fabric.count(Counter::ClearsSent, 1);
    }
}
