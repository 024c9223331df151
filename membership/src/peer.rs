//! The common part of coordinators and members: a process that joins and leaves, polls the
//! acceptors, runs the failure detectors, measures clocks and spreads death notices.
//! [`Coordinator`] and [`Member`] each hold one.
//!
//! [`Coordinator`]: crate::Coordinator
//! [`Member`]: crate::Member

use crate::Config;
use crate::detectors::{Detector, Detectors, Scope, Verdict, links};
use crate::drift::Drift;
use crate::holds::JoinHolds;
use crate::metrics::Counter;
use crate::mutants::Mutant;
use crate::notices::Notices;
use crate::poll::Poll;
use crate::reach;
use crate::recorder::{EventKind, Record};
use crate::rng::Rng;
use crate::timers::{Timer, Timers};
use crate::view::{Acceptor, Kind, Newcomer, Reason, View};
use crate::wire::Message;
use obol_fabric::{
    Address, Completion, Fabric, Group, Incarnation, Instant, LinkError, Name, Nanos, Release, SeatStatus,
    Token, ViewId,
};
use std::sync::Arc;

/// Whether the process is a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MembershipState {
    /// Requests admission; `as_of` is the newest view when the token was drawn.
    Joining { token: u64, as_of: ViewId },
    /// A member of the newest known view.
    Member(Incarnation),
    /// Asked to leave; requests are repeated until a view lacks it.
    Leaving(Incarnation),
    /// Left at its own request. An earlier join may still be decided.
    Left { token: u64 },
    /// A coordinator retired by a recovery: its memory is of a cluster that went on without it.
    Retired,
}

/// How a view changed the membership of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transition {
    /// It is a member now.
    Joined,
    /// It was removed, and requests admission with a new token.
    Excluded,
    /// Its join was decided and its member removed in views that it has not seen. It requests
    /// admission with a new token.
    Departed,
    /// It has left, as requested.
    Left,
}

/// One process's part in the cluster; see the module documentation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Peer {
    pub(crate) config: Config,
    pub(crate) name: Name,
    pub(crate) rng: Rng,
    pub(crate) state: MembershipState,
    pub(crate) timers: Timers,
    pub(crate) poll: Poll,
    /// The interval between polls.
    poll_every: Nanos,
    /// When a majority last confirmed the view; zero if none has since the start, or if the view is
    /// known to be old.
    pub(crate) contact: Instant,
    /// The earliest time of the next query for the deciders.
    lost_due: Instant,
    pub(crate) detectors: Detectors,
    pub(crate) drift: Drift,
    pub(crate) notices: Notices,
    /// Names whose members fail repeatedly.
    pub(crate) holds: JoinHolds,
    /// Newcomers that a leader has this process read.
    pub(crate) asks: reach::Asks,
    /// The newest view is installed, but detectors and watches do not use it yet. They switch on
    /// the next tick, so that they delay neither an announcement nor a lease.
    pub(crate) view_pending: bool,
    /// The first poll has ended.
    pub(crate) booted: bool,
    /// The cluster speaks this release and does not admit this process.
    pub(crate) refused_by: Option<Release>,
    /// The last answer to its join is that another member has its name.
    pub(crate) name_taken: bool,
}

impl Peer {
    pub(crate) fn new(
        config: Config,
        name: Name,
        rng: Rng,
        state: MembershipState,
        poll_every: Nanos,
    ) -> Self {
        let mut config = config;
        if config.mutant.has(Mutant::HoldUnbounded) {
            config.timing.join_hold_max = Nanos(u64::MAX);
        }
        let mut timers = Timers::default();
        timers.set(Timer::Poll, Instant::ZERO);
        Self {
            config,
            name,
            rng,
            state,
            timers,
            poll: Poll::default(),
            poll_every,
            contact: Instant::ZERO,
            lost_due: Instant::ZERO,
            detectors: Detectors::default(),
            drift: Drift::default(),
            notices: Notices::default(),
            holds: JoinHolds::default(),
            asks: reach::Asks::default(),
            view_pending: false,
            booted: false,
            refused_by: None,
            name_taken: false,
        }
    }

    /// The incarnation of this process while it is a member.
    pub(crate) const fn incarnation(&self) -> Option<Incarnation> {
        match self.state {
            MembershipState::Member(who) | MembershipState::Leaving(who) => Some(who),
            MembershipState::Joining { .. } | MembershipState::Left { .. } | MembershipState::Retired => None,
        }
    }

    /// Whether this process is a member and has not asked to leave.
    pub(crate) const fn is_member(&self) -> bool {
        matches!(self.state, MembershipState::Member(_))
    }

    pub(crate) const fn has_left(&self) -> bool {
        matches!(self.state, MembershipState::Left { .. })
    }

    /// Whether this process has asked to leave.
    pub(crate) const fn leaves(&self) -> bool {
        matches!(self.state, MembershipState::Leaving(_) | MembershipState::Left { .. })
    }

    /// Starts to leave.
    pub(crate) const fn leave(&mut self, now: Instant) {
        self.state = match self.state {
            MembershipState::Member(who) => {
                self.timers.set(Timer::Join, now);
                MembershipState::Leaving(who)
            }
            MembershipState::Joining { token, .. } => {
                self.timers.stop(Timer::Join);
                MembershipState::Left { token }
            }
            other => other,
        };
    }

    /// Makes this process inert.
    pub(crate) const fn retire(&mut self) {
        self.state = MembershipState::Retired;
        self.timers.stop(Timer::Join);
    }

    /// Requests admission with a new token, from `due` on.
    pub(crate) fn rejoin(&mut self, as_of: ViewId, due: Instant) {
        assert!(!self.has_left() && self.state != MembershipState::Retired, "who has left stays out");
        self.state = MembershipState::Joining { token: self.rng.token(), as_of };
        self.timers.set(Timer::Join, due);
    }

    /// This process, as the next view should name it.
    pub(crate) fn newcomer<F: Fabric>(&self, kind: Kind, token: u64, proposer: u16, fabric: &F) -> Newcomer {
        let release = self.config.release;
        Newcomer { proposer, release, ..Newcomer::new(kind, self.name, fabric.address(), token) }
    }

    /// Shows that the join of this process is on hold for that time.
    pub(crate) fn publish_hold<F: Fabric>(&self, left: Nanos, now: Instant, fabric: &mut F) {
        let until = now + left.min(self.config.timing.join_hold_max);
        fabric.publish_seat(0, SeatStatus::OnHold { until });
    }

    /// Sends a message to all acceptors but this process.
    pub(crate) fn send_to_acceptors<F: Fabric>(view: &View, but: u16, message: &Message<'_>, fabric: &mut F) {
        let bytes = message.encode();
        for acceptor in view.acceptors.iter().filter(|a| a.proposer != but) {
            fabric.send(acceptor.address, &bytes);
        }
    }

    /// Records that a view was learned. `jump`: those in between are skipped.
    pub(crate) fn note_view<F: Fabric>(&mut self, view: ViewId, jump: bool, now: Instant, fabric: &mut F) {
        fabric.record(Record::new(EventKind::ViewReceived, view.0, u64::from(jump)));
        fabric.count(if jump { Counter::ViewJumps } else { Counter::ViewsInstalled }, 1);
        self.contact = now;
    }

    /// Learns from a new view whether this process is a member.
    pub(crate) fn update_membership<F: Fabric>(
        &mut self,
        view: &View,
        now: Instant,
        fabric: &mut F,
    ) -> Option<Transition> {
        match self.state {
            MembershipState::Joining { token, as_of } => {
                assert!(
                    as_of < view.id || self.config.mutant.has(Mutant::AcceptLateView),
                    "a join is older than the view that decides it"
                );
                if let Some(member) = view.by_token(token) {
                    self.state = MembershipState::Member(member.incarnation);
                    self.name_taken = false;
                    self.timers.stop(Timer::Join);
                    fabric.publish_incarnation(member.incarnation);
                    fabric.record(Record::new(EventKind::Joined, member.incarnation.0, view.id.0));
                    return Some(Transition::Joined);
                }
                if !view.departed.iter().any(|d| d.token == token) {
                    return None;
                }
                self.rejoin(view.id, now);
                Some(Transition::Departed)
            }
            MembershipState::Member(who) if view.member(who).is_none() => {
                fabric.record(Record::new(EventKind::Excluded, who.0, view.id.0));
                fabric.count(Counter::Exclusions, 1);
                fabric.publish_incarnation(Incarnation::NONE);
                self.detectors.links.prove(&self.config);
                self.rejoin(view.id, now);
                Some(Transition::Excluded)
            }
            MembershipState::Leaving(who) if view.member(who).is_none() => {
                self.state = MembershipState::Left { token: 0 };
                self.timers.stop(Timer::Join);
                fabric.record(Record::new(EventKind::Left, who.0, view.id.0));
                fabric.publish_incarnation(Incarnation::NONE);
                Some(Transition::Left)
            }
            MembershipState::Member(_)
            | MembershipState::Leaving(_)
            | MembershipState::Left { .. }
            | MembershipState::Retired => None,
        }
    }

    /// Whether no majority has confirmed the view for `Timing::resync_after`.
    pub(crate) fn is_out_of_touch(&self, now: Instant) -> bool {
        self.contact == Instant::ZERO || now.since(self.contact) > self.config.timing.resync_after
    }

    pub(crate) fn schedule_poll(&mut self, now: Instant) {
        self.timers.set(Timer::Poll, now + self.poll_every);
    }

    /// Asks the acceptors whether the view is still the newest; after a long silence, which view
    /// is. Drops pending READs.
    pub(crate) fn poll_acceptors<F: Fabric>(&mut self, view: &Arc<View>, now: Instant, fabric: &mut F) {
        self.schedule_poll(now);
        if self.is_out_of_touch(now) {
            self.poll.snapshot(view, &self.config, now, fabric);
        } else {
            self.poll.check(view, &self.config, now, fabric);
        }
    }

    /// Polls the announced deciders: the previous ones may no longer have a majority.
    pub(crate) fn poll_others<F: Fabric>(
        &mut self,
        acceptors: Vec<Acceptor>,
        view: &View,
        now: Instant,
        fabric: &mut F,
    ) {
        self.schedule_poll(now);
        self.poll.snapshot_of(acceptors, view, &self.config, now, fabric);
    }

    /// No majority answered a poll: asks every coordinator who decides now.
    pub(crate) fn query_deciders<F: Fabric>(&mut self, view: ViewId, now: Instant, fabric: &mut F) {
        if self.lost_due <= now {
            self.lost_due = now + self.config.timing.join_every;
            fabric.multicast(Group::Coordinators, &Message::WhoDecides(view).encode());
        }
    }

    /// Switches detectors and drift measurement to the newest view.
    pub(crate) fn follow(&mut self, view: &View, promises: &[(Incarnation, Nanos)], now: Instant) {
        self.view_pending = false;
        self.notices.settle(view);
        self.drift.follow(view);
        let me = self.incarnation();
        self.detectors.follow(&Scope { view, me, promises, config: &self.config }, now);
        self.notices.retract_unwatched(&self.detectors.heartbeat);
    }

    /// Updates the progress detector with changed promises.
    pub(crate) fn follow_promises(&mut self, view: &View, promises: &[(Incarnation, Nanos)], now: Instant) {
        let me = self.incarnation();
        self.detectors.progress.follow(&Scope { view, me, promises, config: &self.config }, now);
    }

    /// Posts the detectors' probes that are due.
    pub(crate) fn tick_detectors<F: Fabric>(&mut self, view: &View, now: Instant, fabric: &mut F) {
        let me = self.incarnation();
        self.detectors.tick(&Scope { view, me, promises: &[], config: &self.config }, now, fabric);
    }

    /// As a member, requests another one's clock when that is due.
    pub(crate) fn tick_drift<F: Fabric>(&mut self, view: &View, now: Instant, fabric: &mut F) {
        if let Some(me) = self.incarnation() {
            self.drift.tick(view, me, &mut self.rng, &self.config, now, fabric);
        }
    }

    /// Sends the death notices that are due: only proofs while this process is not a member.
    pub(crate) fn tick_notices<F: Fabric>(&mut self, view: &View, now: Instant, fabric: &mut F) {
        if self.incarnation().is_none() {
            self.notices.retract_all();
        }
        let me = self.incarnation().unwrap_or_default();
        self.notices.tick(me, view, &self.config, now, fabric);
    }

    /// Handles the completion of a detector's probe; returns what it says about a suspicion.
    pub(crate) fn probed<F: Fabric>(
        &mut self,
        token: Token,
        result: Result<Completion<'_>, LinkError>,
        now: Instant,
        fabric: &mut F,
    ) -> Option<Verdict> {
        let timeout = |kind, who: Incarnation| Record { kind, reason: Reason::Timeout as u8, a: who.0, b: 0 };
        match self.detectors.complete(token, result, &self.config, now)? {
            // The leader decides from all reports which members go.
            Verdict::Suspect(who, Reason::Timeout) if links::are_watched(&self.config) => {
                self.detectors.links.recheck(who, now);
            }
            Verdict::Suspect(who, reason) => {
                fabric.count(reason.suspicions(), 1);
                fabric.record(Record { kind: EventKind::Suspect, reason: reason as u8, a: who.0, b: 0 });
                return Some(Verdict::Suspect(who, reason));
            }
            Verdict::Retract(who) => {
                fabric.record(Record::new(EventKind::Retract, who.0, 0));
                fabric.count(Counter::FalseSuspicions, 1);
                self.notices.retract(who);
                return Some(Verdict::Retract(who));
            }
            Verdict::LinkDown(who) => {
                fabric.count(Counter::LinksLost, 1);
                fabric.record(timeout(EventKind::Suspect, who));
            }
            Verdict::LinkUp(who) => fabric.record(timeout(EventKind::Retract, who)),
        }
        None
    }

    /// Handles the datagrams that are common to both machines.
    pub(crate) fn datagram<F: Fabric>(
        &mut self,
        from: Address,
        message: &Message<'_>,
        now: Instant,
        fabric: &mut F,
    ) {
        match *message {
            Message::Heartbeat(who) => self.detectors.links.on_heartbeat(who, now),
            Message::Unheard(who) => self.detectors.links.recheck(who, now),
            Message::Reach(at) => self.asks.take(at, from, &self.config, fabric),
            Message::ClockRequest { nonce } => Drift::answer(from, nonce, now, fabric),
            Message::ClockReply { nonce, clock } => {
                self.drift.on_reply(nonce, clock, &self.config, now, fabric);
            }
            _ => {}
        }
    }

    /// Its own timers, and those of its parts.
    pub(crate) fn timers(&self) -> Timers {
        let mut timers = self.timers;
        timers.set(Timer::PollTimeout, self.poll.deadline(&self.config));
        timers.set(Timer::Detectors, self.detectors.deadline());
        timers.set(Timer::Notices, self.notices.deadline());
        if self.incarnation().is_some() {
            timers.set(Timer::Drift, self.drift.deadline());
        }
        timers
    }
}
