//! The core beside applications: it joins, installs views, renews the lease that `active` reads,
//! watches its neighbours, and represents the programs in its seats. One machine serves agents,
//! embedded apps and lease caches.
//!
//! uKharon, sections 3 and 6: this is the paper's "uKharon Core" without its thread and its
//! sockets.

mod renewal;

use crate::Config;
use crate::adapt::LateRenewals;
use crate::attached_apps::AttachedApps;
use crate::cache::FanOut;
use crate::detectors::{Verdict, deadbeat};
use crate::lease::Lease;
use crate::metrics::Counter;
use crate::mutants::Mutant;
use crate::peer::{MembershipState, Peer, Transition};
use crate::recorder::{EventKind, Record};
use crate::renewal_source::RenewalSource;
use crate::rng::Rng;
use crate::timers::Timer;
use crate::tokens::{Labelled, Part};
use crate::view::{Deciders, Kind, Reason, View};
use crate::wire::{self, Message, Refusal};
use obol_fabric::{Address, Event, Evidence, Fabric, Incarnation, Instant, Machine, Name, Release, ViewId};
use renewal::Lapses;
use std::sync::Arc;

/// The state machine of an agent, an embedded app or a lease cache.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    peer: Peer,
    kind: Kind,
    /// The newest view known to be decided.
    view: Arc<View>,
    /// The newest view announced, and when.
    announced: ViewId,
    announced_at: Instant,
    /// The slot that was found undecided, and since when.
    undecided: Option<(ViewId, Instant)>,
    lease: Lease,
    /// The last view on which the page was seen active: for the flight recorder.
    active: Option<ViewId>,
    lapses: Lapses,
    source: RenewalSource,
    late_renewals: LateRenewals,
    /// Since when a program waits for a confirmation that its view was active: see
    /// [`Event::Confirm`].
    wanted: Option<Instant>,
    /// As a lease cache: the fences requested by leaders.
    fan_out: FanOut,
    apps: AttachedApps,
    /// See [`Member::stall`].
    stalled: bool,
}

impl Member {
    /// A process that will join. See [`crate::Start::member`].
    pub(crate) fn new(config: Config, kind: Kind, name: Name, genesis: Arc<View>, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let state = MembershipState::Joining { token: rng.token(), as_of: genesis.id };
        Self {
            peer: Peer::new(config, name, rng, state, config.timing.renew_every),
            kind,
            announced: genesis.id,
            announced_at: Instant::ZERO,
            undecided: None,
            view: genesis,
            lease: Lease::new(&config.timing, kind, config.mutant),
            active: None,
            lapses: Lapses::default(),
            source: RenewalSource::default(),
            late_renewals: LateRenewals::default(),
            wanted: None,
            fan_out: FanOut::default(),
            apps: AttachedApps::default(),
            stalled: false,
        }
    }

    /// The newest view that this process knows to be decided.
    pub const fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// Replaces the newest known view by an equal copy, so that the machines of one process share
    /// its memory. False if it is another view.
    pub fn share_view(&mut self, same: &Arc<View>) -> bool {
        let equal = self.view == *same;
        if equal {
            self.peer.poll.share_view(&self.view, same);
            self.view = Arc::clone(same);
        }
        equal
    }

    /// The token by which a view will identify this process once it has joined; `None` if it is a
    /// member already.
    pub const fn join_token(&self) -> Option<u64> {
        match self.peer.state {
            MembershipState::Joining { token, .. } => Some(token),
            _ => None,
        }
    }

    /// The incarnation of this process while it is a member.
    pub const fn incarnation(&self) -> Option<Incarnation> {
        self.peer.incarnation()
    }

    /// The release that the cluster speaks, if it does not admit this process for it.
    pub const fn refused_by(&self) -> Option<Release> {
        self.peer.refused_by
    }

    /// Whether this process is not admitted because another member has its name.
    pub const fn is_name_taken(&self) -> bool {
        self.peer.name_taken
    }

    /// Whether this process searches whole rings for the newest view.
    pub const fn reads_rings(&self) -> bool {
        self.peer.poll.reads_rings()
    }

    /// Whether this process has left at its own request.
    pub const fn has_left(&self) -> bool {
        self.peer.has_left()
    }

    /// Requests a graceful leave. The lease ends at once: no work continues under it after the
    /// request.
    pub fn leave<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.peer.leave(now);
        self.lease.drop_lease();
        fabric.publish_page(self.lease.page());
        self.note_active(now, fabric);
    }

    /// The application of an embedded core broke its promise of progress: the core shares its fate
    /// and reports itself. It does not rejoin before [`Member::resume`].
    pub fn stall<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        if core::mem::replace(&mut self.stalled, true) {
            return;
        }
        if let MembershipState::Member(who) = self.peer.state {
            fabric.count(Reason::Progress.suspicions(), 1);
            let reason = Reason::Progress;
            fabric.record(Record { kind: EventKind::Suspect, reason: reason as u8, a: who.0, b: 0 });
            self.raise_notice(who, reason, now);
        }
    }

    /// The application makes progress again.
    pub fn resume(&mut self, now: Instant) {
        if !core::mem::take(&mut self.stalled) {
            return;
        }
        match self.peer.state {
            MembershipState::Member(who) => self.peer.notices.retract(who),
            MembershipState::Joining { .. } => self.peer.timers.set(Timer::Join, now),
            MembershipState::Leaving(_) | MembershipState::Left { .. } | MembershipState::Retired => {}
        }
    }

    fn rejoin(&mut self, due: Instant) {
        self.peer.rejoin(self.view.id, due);
        self.wait_while_stalled();
    }

    fn wait_while_stalled(&mut self) {
        if self.stalled {
            self.peer.timers.stop(Timer::Join);
        }
    }

    /// Installs a decided view. `jump`: the views in between are skipped on purpose.
    fn install<F: Fabric>(
        &mut self,
        view: Arc<View>,
        frame: &[u8],
        jump: bool,
        now: Instant,
        fabric: &mut F,
    ) {
        let late = view.id <= self.view.id;
        if late && !(self.peer.config.mutant.has(Mutant::AcceptLateView) && view.id < self.view.id) {
            return;
        }
        self.peer.note_view(view.id, jump, now, fabric);
        self.peer.holds.follow(&self.view, &view, &self.peer.config, now);
        self.view = view;
        self.announced = self.announced.max(self.view.id);
        fabric.publish_view(self.view.id, frame);
        match self.peer.update_membership(&self.view, now, fabric) {
            Some(Transition::Excluded) => {
                self.wait_while_stalled();
                self.lease.drop_lease();
                fabric.publish_page(self.lease.page());
                self.note_active(now, fabric);
                if self.peer.config.mutant.has(Mutant::ReinitialisePage) {
                    let fence = self.peer.config.layout.fence();
                    let fence = obol_fabric::Remote { at: fabric.address(), offset: fence };
                    fabric.write(fence, &[0; 8], obol_fabric::Token(0));
                }
            }
            Some(Transition::Departed) => self.wait_while_stalled(),
            Some(Transition::Joined | Transition::Left) => {}
            None => self.leave_after_all(now),
        }
        let carries = self.incarnation().is_some() && self.lease.learn(&self.view, now);
        self.peer.view_pending = true;
        if carries {
            fabric.publish_page(self.lease.page());
            self.note_active(now, fabric);
        }
        // Otherwise it is renewed when the lease before it would have been. What is pending is a
        // question about the view before.
        let is_pending = self.peer.poll.is_busy() || self.source.is_busy();
        self.source.cancel();
        if !carries || is_pending || self.announced > self.view.id {
            self.peer.poll_acceptors(&self.view, now, fabric);
        }
    }

    /// An abandoned join may be decided nevertheless.
    fn leave_after_all(&mut self, now: Instant) {
        if let MembershipState::Left { token } = self.peer.state
            && let Some(member) = self.view.by_token(token)
        {
            self.peer.state = MembershipState::Leaving(member.incarnation);
            self.peer.timers.set(Timer::Join, now);
        }
    }

    /// Work for a new view that the lease does not wait for. Done on the next tick.
    fn follow<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        let me = self.incarnation();
        let patience = now + self.peer.config.timing.join_every;
        self.apps.follow(&self.view, me.unwrap_or_default(), patience, fabric);
        let promises: Vec<_> = self.apps.promises().collect();
        self.peer.follow(&self.view, &promises, now);
        match me {
            Some(me) if self.kind != Kind::LeaseCache => self.source.follow(&self.view, me, fabric),
            Some(_) => {}
            None => {
                self.peer.notices.clear();
                self.source.clear(fabric);
            }
        }
    }

    fn datagram<F: Fabric>(&mut self, from: Address, bytes: &[u8], now: Instant, fabric: &mut F) {
        fabric.count(Counter::DatagramsReceived, 1);
        let Ok(message) = Message::decode(bytes) else {
            return fabric.count(Counter::DatagramsRefused, 1);
        };
        match message {
            Message::View { frame, cleared } => self.on_view(frame, cleared, now, fabric),
            Message::Step { id: _, cleared, step } => self.on_step(step, cleared, now, fabric),
            Message::Decided(id) => {
                self.note_announced(id, now);
                self.catch_up(now, fabric);
            }
            Message::Clear(base) => self.clear(base, now, fabric),
            Message::JoinReply { token, outcome: Err(refusal) } => match self.peer.state {
                MembershipState::Joining { token: own, .. } if own == token => {
                    self.refused(refusal, now, fabric);
                }
                _ => self.apps.refused(token, refusal, &self.peer.config.timing, now, fabric),
            },
            Message::Vouched { nonce, newest, vouched } => {
                self.vouched(nonce, newest, vouched, now, fabric);
            }
            Message::Vouch { nonce, view } if self.kind == Kind::LeaseCache => {
                self.vouch(from, nonce, view, now, fabric);
            }
            Message::Raise { nonce, chunk, base, pages } if self.kind == Kind::LeaseCache => {
                self.fan_out.begin(from, (nonce, chunk), base, pages, &self.peer.config, now, fabric);
            }
            Message::Deciders { id, acceptors } if id > self.view.id => {
                self.note_announced(id, now);
                self.peer.poll_others(wire::acceptors(acceptors), &self.view, now, fabric);
            }
            Message::Heartbeat(_)
            | Message::Unheard(_)
            | Message::Reach(_)
            | Message::ClockRequest { .. }
            | Message::ClockReply { .. } => {
                self.peer.datagram(from, &message, now, fabric);
            }
            // A view supersedes a reply; the rest is for coordinators or caches.
            Message::JoinReply { .. }
            | Message::Notice { .. }
            | Message::Join { .. }
            | Message::Leave(_)
            | Message::Settle(_)
            | Message::SetLease(_)
            | Message::LeaseTooShort(_)
            | Message::SetAcceptor { .. }
            | Message::WhoDecides(_)
            | Message::Links { .. }
            | Message::Reached { .. }
            | Message::Deciders { .. }
            | Message::Vouch { .. }
            | Message::Raise { .. }
            | Message::Raised { .. } => {}
        }
    }

    /// A datagram with a decided view.
    fn on_view<F: Fabric>(&mut self, frame: &[u8], cleared: bool, now: Instant, fabric: &mut F) {
        let Some(view) = View::from_frame_for(&self.peer.config.layout, frame) else {
            return fabric.count(Counter::DatagramsRefused, 1);
        };
        if !view.can_follow(&self.view) {
            return fabric.count(Counter::DatagramsRefused, 1);
        }
        let base = view.base;
        let next = view.id == self.view.id.next();
        let careless = self.peer.config.mutant.has(Mutant::SkipSilently)
            || self.peer.config.mutant.has(Mutant::AcceptLateView) && view.id < self.view.id;
        if next || careless {
            self.note_announced(view.id, now);
            self.install(Arc::new(view), frame, false, now, fabric);
        } else {
            self.follow_announced(Deciders::of(&view), now, fabric);
        }
        if cleared {
            self.clear(base, now, fabric);
        }
    }

    /// A datagram with what differs in a decided view from its predecessor.
    fn on_step<F: Fabric>(&mut self, step: &[u8], cleared: ViewId, now: Instant, fabric: &mut F) {
        let deciders = wire::deciders_of_step(step).filter(|deciders| deciders.can_follow(&self.view));
        let Some(deciders) = deciders else {
            return fabric.count(Counter::DatagramsRefused, 1);
        };
        let applied = wire::apply_step(&self.view, step);
        if let Some((view, frame)) = applied.filter(|(v, _)| v.fits(&self.peer.config.layout)) {
            self.note_announced(view.id, now);
            self.install(Arc::new(view), &frame, false, now, fabric);
        } else {
            self.follow_announced(deciders, now, fabric);
        }
        if cleared > ViewId::GENESIS {
            self.clear(cleared, now, fabric);
        }
    }

    /// A view was announced that is not the next one: reads later ones. Nothing is taken from a set
    /// that a recovery gave up, whatever the number of its view.
    fn follow_announced<F: Fabric>(&mut self, announced: Deciders, now: Instant, fabric: &mut F) {
        if !announced.can_follow(&self.view) {
            return fabric.count(Counter::DatagramsRefused, 1);
        }
        self.note_announced(announced.id, now);
        if announced.id > self.view.id && announced.acceptors != self.view.acceptors {
            self.peer.poll_others(announced.acceptors, &self.view, now, fabric);
        } else if announced.id > self.view.id {
            self.catch_up(now, fabric);
        }
    }

    fn request_membership_change<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        let message = match self.peer.state {
            MembershipState::Joining { token, as_of } => Message::Join {
                newcomer: self.peer.newcomer(self.kind, token, 0, fabric),
                as_of,
                proved: true,
            },
            MembershipState::Leaving(who) => Message::Leave(who),
            MembershipState::Member(_) | MembershipState::Left { .. } | MembershipState::Retired => return,
        };
        self.peer.timers.set(Timer::Join, now + self.peer.config.timing.join_every);
        if self.peer.detectors.links.are_proved() || matches!(message, Message::Leave(_)) {
            Peer::send_to_acceptors(&self.view, 0, &message, fabric);
        }
    }

    /// This process's join was refused.
    fn refused<F: Fabric>(&mut self, refusal: Refusal, now: Instant, fabric: &mut F) {
        let timing = &self.peer.config.timing;
        self.peer.name_taken = refusal == Refusal::NameTaken;
        match refusal {
            Refusal::Full | Refusal::Unreachable | Refusal::NameTaken => {}
            Refusal::Release(spoken) => self.peer.refused_by = Some(spoken),
            Refusal::OnHold(left) => {
                let due = self.peer.timers.at(Timer::Join).max(now + left.min(timing.join_hold_max));
                self.peer.timers.set(Timer::Join, due);
                self.peer.publish_hold(left, now, fabric);
            }
            Refusal::Stale | Refusal::Departed | Refusal::NoHost => self.rejoin(now + timing.join_every),
        }
    }

    /// Records the announcement of a later view.
    pub(super) const fn note_announced(&mut self, view: ViewId, now: Instant) {
        if view.0 > self.announced.0 {
            self.announced = view;
            self.announced_at = now;
        }
    }

    fn clear<F: Fabric>(&mut self, base: ViewId, now: Instant, fabric: &mut F) {
        if self.lease.clear(base, now) {
            fabric.count(Counter::ClearsUsed, 1);
            fabric.publish_page(self.lease.page());
            self.note_active(now, fabric);
        }
    }

    fn raise_notice(&mut self, who: Incarnation, reason: Reason, now: Instant) {
        self.peer.notices.raise(who, reason, Evidence::Suspicion, now);
    }
}

impl Machine for Member {
    fn start<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        fabric.record(Record::new(EventKind::Started, u64::from(fabric.address().generation), 0));
        self.peer.schedule_poll(now);
        self.peer.poll.snapshot(&self.view, &self.peer.config, now, fabric);
    }

    fn handle<F: Fabric>(&mut self, now: Instant, event: Event<'_>, fabric: &mut F) {
        match event {
            Event::Completion { token, result } => {
                if result.is_err() {
                    fabric.count(Counter::LinkErrors, 1);
                }
                let Some(done) = Labelled::new(token, result) else { return };
                if done.part == Part::Probe {
                    if let Some(Verdict::Suspect(who, reason)) = self.peer.probed(token, result, now, fabric)
                    {
                        self.raise_notice(who, reason, now);
                    }
                    return;
                }
                if done.part == Part::Reach {
                    self.peer.asks.complete(done.round, &result, fabric);
                    return;
                }
                if done.part == Part::Fence {
                    self.fan_out.complete(done, &self.peer.config, fabric);
                    return;
                }
                if let Some(found) = self.peer.poll.complete(done, &self.peer.config, fabric) {
                    let first = !core::mem::replace(&mut self.peer.booted, true);
                    self.found(found, now, fabric);
                    if let MembershipState::Joining { as_of, .. } = &mut self.peer.state
                        && first
                    {
                        // The token is younger than the view of the snapshot, so it is dated by
                        // that view.
                        *as_of = self.view.id;
                        self.peer.timers.set(Timer::Join, now);
                    }
                }
            }
            Event::Datagram { from, bytes } => self.datagram(from, bytes, now, fabric),
            Event::Death { who, evidence } => {
                if let Some(accused) = self.apps.at(who) {
                    let due = now + self.peer.config.timing.notice_after;
                    let reason = deadbeat::reason(evidence);
                    self.peer.notices.raise(accused, reason, evidence.max(Evidence::Suspicion), due);
                } else if self.apps.died(who, fabric) {
                    // The dead process was a program that is not a member yet.
                } else if self.source.died(who, &self.peer.config, now, fabric) {
                    self.peer.poll_acceptors(&self.view, now, fabric);
                }
            }
            Event::Confirm { since } => self.confirm(since.min(now), now, fabric),
            Event::Seat { seat, request } => {
                if self.apps.request(seat, request, &self.view, now, fabric) {
                    let promises: Vec<_> = self.apps.promises().collect();
                    self.peer.follow_promises(&self.view, &promises, now);
                }
            }
        }
    }

    fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        if self.peer.view_pending {
            self.follow(now, fabric);
        }
        if self.peer.poll.deadline(&self.peer.config) <= now {
            let found = self.peer.poll.expire();
            self.found(found, now, fabric);
            self.peer.timers.set(Timer::Poll, now);
        }
        self.expire_cache(now, fabric);
        self.fan_out.tick(&self.peer.config, now, fabric);
        if !self.peer.poll.is_busy() && !self.source.is_pending() && self.peer.timers.is_due(Timer::Poll, now)
        {
            if self.peer.config.mutant.has(Mutant::NoPoll) && self.incarnation().is_none() {
                self.peer.schedule_poll(now);
            } else {
                self.poll_newest(now, fabric);
            }
        }
        if self.peer.timers.is_due(Timer::Join, now) {
            self.request_membership_change(now, fabric);
        }
        self.peer.tick_detectors(&self.view, now, fabric);
        self.peer.tick_notices(&self.view, now, fabric);
        let me = self.incarnation().unwrap_or_default();
        self.apps.tick(me, &self.view, &self.peer.holds, &self.peer.config, now, fabric);
        self.peer.tick_drift(&self.view, now, fabric);
        self.note_active(now, fabric);
    }

    fn deadline(&self) -> Instant {
        if self.peer.view_pending {
            return Instant::ZERO;
        }
        let mut timers = self.peer.timers();
        if self.peer.poll.is_busy() || self.source.is_pending() {
            timers.stop(Timer::Poll);
        }
        timers.set(Timer::Apps, self.apps.deadline());
        timers.set(Timer::CacheTimeout, self.source.deadline(&self.peer.config));
        timers.set(Timer::FanOut, self.fan_out.deadline());
        timers.next()
    }
}
