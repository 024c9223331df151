//! The core beside applications: it joins, follows the views, renews the lease that `active` reads,
//! watches its neighbours, and speaks for the programs in its seats. One machine serves agents,
//! embedded apps and lease caches.
//!
//! uKharon, sections 3 and 6: everything here is the paper's "uKharon Core" without its thread and
//! its sockets.

mod renewal;

use crate::Config;
use crate::adapt::LateRenewals;
use crate::attached_apps::AttachedApps;
use crate::cache::FanOut;
use crate::detector::{Detector, Verdict};
use crate::drift::Drift;
use crate::holdback::HoldBack;
use crate::lease::Lease;
use crate::links::{self, Links};
use crate::metrics::Counter;
use crate::mutants::Mutant;
use crate::notices::Notices;
use crate::poll::Poll;
use crate::recorder::{Kind as Event_, Record};
use crate::renewal_source::RenewalSource;
use crate::rng::Rng;
use crate::tokens::{self, Part};
use crate::view::{Kind, Level, Newcomer, View};
use crate::wire::{self, Message, Refusal};
use obol_fabric::{Address, Event, Evidence, Fabric, Incarnation, Instant, Machine, Name, ViewId};
use renewal::Lapses;
use std::sync::Arc;

/// Whether the process is a member yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum MembershipState {
    /// Asking to join; `as_of` is the newest view when the token was drawn.
    Joining { token: u64, as_of: ViewId, due: Instant },
    /// A member of the newest known view.
    Member(Incarnation),
    /// Asked to leave; the requests go on until a view lacks it.
    Leaving { who: Incarnation, due: Instant },
    /// Out, by its own wish. A join that was asked for before may still be decided; then it has to
    /// leave after all.
    Left { token: u64 },
}

/// The machine of an agent, an embedded app or a lease cache.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    config: Config,
    kind: Kind,
    name: Name,
    rng: Rng,
    state: MembershipState,
    /// The newest view that is known to be decided.
    view: Arc<View>,
    /// The newest view that was heard of, and when.
    heard: ViewId,
    heard_at: Instant,
    lease: Lease,
    /// The view that the page was last seen active on: for the flight recorder.
    active: Option<ViewId>,
    lapses: Lapses,
    /// When that changes next if nothing else happens.
    turn: Instant,
    poll: Poll,
    poll_due: Instant,
    /// When it may be asked again who decides.
    lost_due: Instant,
    source: RenewalSource,
    late_renewals: LateRenewals,
    /// Since when a program wants to know that its view was active, and has no answer: see
    /// [`Event::Confirm`].
    wanted: Option<Instant>,
    /// As a lease cache: the fences that leaders asked for.
    fan_out: FanOut,
    /// When a majority last confirmed what is known.
    contact: Instant,
    detector: Detector,
    links: Links,
    drift: Drift,
    notices: Notices,
    apps: AttachedApps,
    /// Names whose programs die again and again.
    hold_back: HoldBack,
    /// The newest view has been installed but not followed yet: see [`Member::follow`].
    view_pending: bool,
    booted: bool,
    /// See [`Member::stall`].
    stalled: bool,
}

impl Member {
    /// A process that will join. See [`crate::Start::member`].
    pub(crate) fn new(config: Config, kind: Kind, name: Name, genesis: Arc<View>, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let token = rng.token();
        Self {
            config,
            kind,
            name,
            rng,
            state: MembershipState::Joining { token, as_of: genesis.id, due: Instant::NEVER },
            heard: genesis.id,
            heard_at: Instant::ZERO,
            view: genesis,
            lease: Lease::new(&config.timing, kind, config.mutant),
            active: None,
            lapses: Lapses::default(),
            turn: Instant::NEVER,
            poll: Poll::new(),
            poll_due: Instant::ZERO,
            lost_due: Instant::ZERO,
            source: RenewalSource::default(),
            late_renewals: LateRenewals::default(),
            wanted: None,
            fan_out: FanOut::default(),
            contact: Instant::ZERO,
            detector: Detector::default(),
            links: Links::default(),
            drift: Drift::default(),
            notices: Notices::default(),
            apps: AttachedApps::default(),
            hold_back: HoldBack::default(),
            view_pending: false,
            booted: false,
            stalled: false,
        }
    }

    /// The newest view that this process knows to be decided.
    #[must_use]
    pub const fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// Takes an equal copy of the newest known view for the own one, so that many machines in one
    /// process need one. False if it is another view.
    pub fn share_view(&mut self, same: &Arc<View>) -> bool {
        let equal = self.view == *same;
        if equal {
            self.poll.share_view(&self.view, same);
            self.view = Arc::clone(same);
        }
        equal
    }

    /// By what a view will know this process once it has joined; none if it is a member already.
    #[must_use]
    pub const fn join_token(&self) -> Option<u64> {
        match self.state {
            MembershipState::Joining { token, .. } => Some(token),
            _ => None,
        }
    }

    /// The own incarnation while this process is a member.
    #[must_use]
    pub const fn incarnation(&self) -> Option<Incarnation> {
        match self.state {
            MembershipState::Member(who) | MembershipState::Leaving { who, .. } => Some(who),
            MembershipState::Joining { .. } | MembershipState::Left { .. } => None,
        }
    }

    /// Whether this process looks for the newest view in whole rings.
    #[must_use]
    pub const fn reads_rings(&self) -> bool {
        self.poll.reads_rings()
    }

    /// Whether this process has left, as it asked.
    #[must_use]
    pub const fn has_left(&self) -> bool {
        matches!(self.state, MembershipState::Left { .. })
    }

    /// Asks to leave gracefully. The lease ends at once: nothing runs under it that outlives the
    /// request.
    pub fn leave<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.state = match self.state {
            MembershipState::Member(who) => MembershipState::Leaving { who, due: now },
            MembershipState::Joining { token, .. } => MembershipState::Left { token },
            ref other => other.clone(),
        };
        self.lease.drop_lease();
        fabric.publish_page(self.lease.page());
        self.note_active(now, fabric);
    }

    /// The application of an embedded core broke its promise of progress: the core shares its fate
    /// and accuses itself. It does not join again before [`Member::resume`].
    pub fn stall<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        if core::mem::replace(&mut self.stalled, true) {
            return;
        }
        if let MembershipState::Member(who) = self.state {
            fabric.count(Level::Progress.suspicions(), 1);
            self.suspect(who, Level::Progress, now, fabric);
        }
    }

    /// The application makes progress again.
    pub fn resume(&mut self, now: Instant) {
        if !core::mem::take(&mut self.stalled) {
            return;
        }
        match &mut self.state {
            MembershipState::Member(who) => self.notices.retract(*who),
            MembershipState::Joining { due, .. } => *due = now,
            MembershipState::Leaving { .. } | MembershipState::Left { .. } => {}
        }
    }

    fn rejoin(&mut self, now: Instant) {
        let due = if self.stalled { Instant::NEVER } else { now };
        self.state = MembershipState::Joining { token: self.rng.token(), as_of: self.view.id, due };
    }

    /// Learns that a view is decided. `jump` tells that the views in between are skipped on
    /// purpose.
    fn install<F: Fabric>(
        &mut self,
        view: Arc<View>,
        sealed: &[u8],
        jump: bool,
        now: Instant,
        fabric: &mut F,
    ) {
        let late = view.id <= self.view.id;
        if late && !(self.config.mutant.has(Mutant::AcceptLateView) && view.id < self.view.id) {
            return;
        }
        fabric.record(Record::new(Event_::ViewReceived, view.id.0, u64::from(jump)));
        fabric.count(if jump { Counter::ViewJumps } else { Counter::ViewsInstalled }, 1);
        self.contact = now;
        self.hold_back.follow(&self.view, &view, &self.config, now);
        self.view = view;
        self.heard = self.heard.max(self.view.id);
        fabric.publish_view(self.view.id, sealed);
        match self.state {
            MembershipState::Joining { token, .. } => {
                if let Some(member) = self.view.by_token(token) {
                    self.state = MembershipState::Member(member.incarnation);
                    fabric.publish_incarnation(member.incarnation);
                    fabric.record(Record::new(Event_::Joined, member.incarnation.0, self.view.id.0));
                } else if self.view.departed.iter().any(|d| d.token == token) {
                    self.rejoin(now);
                }
            }
            MembershipState::Member(who) if self.view.member(who).is_none() => {
                fabric.record(Record::new(Event_::Excluded, who.0, self.view.id.0));
                fabric.count(Counter::Exclusions, 1);
                fabric.publish_incarnation(Incarnation::NONE);
                self.lease.drop_lease();
                fabric.publish_page(self.lease.page());
                self.note_active(now, fabric);
                if self.config.mutant.has(Mutant::ReinitialisePage) {
                    let fence =
                        obol_fabric::Remote { at: fabric.address(), offset: self.config.layout.fence() };
                    fabric.write(fence, &[0; 8], obol_fabric::Token(0));
                }
                self.links.prove(&self.config);
                self.rejoin(now);
            }
            MembershipState::Leaving { who, .. } if self.view.member(who).is_none() => {
                self.state = MembershipState::Left { token: 0 };
                fabric.record(Record::new(Event_::Left, who.0, self.view.id.0));
                fabric.publish_incarnation(Incarnation::NONE);
            }
            MembershipState::Left { token } => {
                if let Some(member) = self.view.by_token(token) {
                    self.state = MembershipState::Leaving { who: member.incarnation, due: now };
                }
            }
            MembershipState::Member(_) | MembershipState::Leaving { .. } => {}
        }
        if self.incarnation().is_some() {
            self.lease.learn(&self.view, now);
        }
        self.view_pending = true;
        self.source.cancel();
        self.ask_acceptors(now, fabric);
    }

    /// What a new view asks for that the lease does not wait for. Done on the next tick.
    fn follow<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.view_pending = false;
        let me = self.incarnation().unwrap_or_default();
        self.apps.follow(&self.view, me, now + self.config.timing.join_every, fabric);
        self.links.follow(&self.view, self.incarnation(), &self.config, now);
        match self.incarnation() {
            Some(who) => {
                let promises = self.apps.promises();
                self.detector.follow(&self.view, who, promises, &self.config, now);
                self.notices.settle(&self.view);
                self.drift.follow(&self.view);
                if self.kind != Kind::LeaseCache {
                    self.source.follow(&self.view, who, fabric);
                }
            }
            None => {
                self.detector.clear();
                self.notices.clear();
                self.source.clear(fabric);
            }
        }
    }

    fn datagram<F: Fabric>(&mut self, from: Address, bytes: &[u8], now: Instant, fabric: &mut F) {
        fabric.count(Counter::DatagramsReceived, 1);
        match Message::decode(bytes) {
            Ok(Message::View { sealed, cleared }) => {
                let Some(view) = View::unseal_for(&self.config.layout, sealed) else {
                    fabric.count(Counter::DatagramsRefused, 1);
                    return;
                };
                let base = view.base;
                self.hear(view.id, now);
                let next = view.id == self.view.id.next();
                let careless = self.config.mutant.has(Mutant::SkipSilently)
                    || self.config.mutant.has(Mutant::AcceptLateView) && view.id < self.view.id;
                if next || careless {
                    self.install(Arc::new(view), sealed, false, now, fabric);
                } else if view.id > self.view.id && view.acceptors != self.view.acceptors {
                    self.ask_others(view.acceptors, now, fabric);
                } else if view.id > self.view.id {
                    self.catch_up(now, fabric);
                }
                if cleared {
                    self.clear(base, now, fabric);
                }
            }
            Ok(Message::Step { id, cleared, step }) => {
                self.hear(id, now);
                if let Some((view, sealed)) =
                    wire::apply_step(&self.view, step).filter(|(v, _)| v.fits(&self.config.layout))
                {
                    self.install(Arc::new(view), &sealed, false, now, fabric);
                } else if id > self.view.id {
                    self.catch_up(now, fabric);
                }
                if cleared > ViewId::GENESIS {
                    self.clear(cleared, now, fabric);
                }
            }
            Ok(Message::Decided(id)) => {
                self.hear(id, now);
                self.catch_up(now, fabric);
            }
            Ok(Message::Clear(base)) => self.clear(base, now, fabric),
            Ok(Message::JoinReply { token, outcome: Err(refusal) }) => match self.state {
                MembershipState::Joining { token: mine, ref mut due, .. } if mine == token => match refusal {
                    Refusal::Full => {}
                    Refusal::HeldBack(left) => {
                        *due = (*due).max(now + left.min(self.config.timing.join_hold_max));
                    }
                    Refusal::Stale | Refusal::Departed | Refusal::NoHost => {
                        self.rejoin(now + self.config.timing.join_every);
                    }
                },
                _ => self.apps.refused(token, refusal, &self.config.timing, now, fabric),
            },
            Ok(Message::Vouched { nonce, newest, vouched }) => {
                self.vouched((nonce, newest, vouched), now, fabric);
            }
            Ok(Message::Vouch { nonce, view }) if self.kind == Kind::LeaseCache => {
                self.vouch(from, nonce, view, now, fabric);
            }
            Ok(Message::Raise { nonce, chunk, base, pages }) if self.kind == Kind::LeaseCache => {
                self.fan_out.begin(from, (nonce, chunk), base, pages, &self.config, now, fabric);
            }
            Ok(Message::Deciders { id, acceptors }) if id > self.view.id => {
                self.hear(id, now);
                self.ask_others(wire::acceptors(acceptors), now, fabric);
            }
            Ok(Message::Alive(who)) => self.links.heard(who, now),
            Ok(Message::Clock { nonce }) => Drift::answer(from, nonce, now, fabric),
            Ok(Message::ClockIs { nonce, clock }) => {
                self.drift.heard((nonce, clock), &self.config, now, fabric);
            }
            // A view tells more than a reply; the rest is for coordinators or caches.
            Ok(
                Message::JoinReply { .. }
                | Message::Notice { .. }
                | Message::Join { .. }
                | Message::Leave(_)
                | Message::Nudge(_)
                | Message::SetLease(_)
                | Message::Strained(_)
                | Message::SetAcceptor { .. }
                | Message::Lost(_)
                | Message::Links { .. }
                | Message::Deciders { .. }
                | Message::Vouch { .. }
                | Message::Raise { .. }
                | Message::Raised { .. },
            ) => {}
            Err(_) => fabric.count(Counter::DatagramsRefused, 1),
        }
    }

    /// A later view is said to be there.
    pub(super) const fn hear(&mut self, view: ViewId, now: Instant) {
        if view.0 > self.heard.0 {
            self.heard = view;
            self.heard_at = now;
        }
    }

    fn clear<F: Fabric>(&mut self, base: ViewId, now: Instant, fabric: &mut F) {
        if self.lease.clear(base, now) {
            fabric.count(Counter::ClearsUsed, 1);
            fabric.publish_page(self.lease.page());
            self.note_active(now, fabric);
        }
    }

    fn suspect<F: Fabric>(&mut self, who: Incarnation, level: Level, now: Instant, fabric: &mut F) {
        fabric.record(Record { kind: Event_::Suspect, level: level as u8, a: who.0, b: 0 });
        self.notices.raise(who, level, Evidence::Suspicion, now);
    }
}

impl Machine for Member {
    fn start<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        fabric.record(Record::new(Event_::Started, u64::from(fabric.address().generation), 0));
        self.poll_due = now + self.config.timing.renew_every;
        self.poll.snapshot(&self.view, &self.config, now, fabric);
    }

    fn handle<F: Fabric>(&mut self, now: Instant, event: Event<'_>, fabric: &mut F) {
        match event {
            Event::Completion { token, result } => {
                if result.is_err() {
                    fabric.count(Counter::LinkErrors, 1);
                }
                let Some((part, peer, round)) = tokens::unpack(token) else { return };
                if part == Part::Link {
                    links::record(self.links.complete(round, &result, &self.config, now), fabric);
                    return;
                }
                if part == Part::Heartbeat {
                    match self.detector.complete(peer, round, &result, &self.config, now) {
                        // Who has to go then is the leader's to see from everybody's links.
                        Some(Verdict::Suspect(who, Level::Timeout)) if links::are_watched(&self.config) => {
                            self.links.doubt(who, now);
                        }
                        Some(Verdict::Suspect(who, level)) => {
                            fabric.count(level.suspicions(), 1);
                            self.suspect(who, level, now, fabric);
                        }
                        Some(Verdict::Retract(who)) => {
                            fabric.record(Record::new(Event_::Retract, who.0, 0));
                            fabric.count(Counter::FalseSuspicions, 1);
                            self.notices.retract(who);
                        }
                        None => {}
                    }
                    return;
                }
                if part == Part::Fence {
                    self.fan_out.complete(peer, round, &result, &self.config, fabric);
                    return;
                }
                let found = self.poll.complete(part, peer, round, &result, &self.config, fabric);
                if let Some(found) = found {
                    let first = !core::mem::replace(&mut self.booted, true);
                    self.found(found, now, fabric);
                    if let MembershipState::Joining { as_of, due, .. } = &mut self.state
                        && first
                    {
                        // The token is younger than what the snapshot told: that is the view to
                        // date it by.
                        *as_of = self.view.id;
                        *due = now;
                    }
                }
            }
            Event::Datagram { from, bytes } => self.datagram(from, bytes, now, fabric),
            Event::Death { who, evidence } => {
                if let Some(accused) = self.apps.at(who) {
                    let due = now + self.config.timing.notice_after;
                    self.notices.raise(accused, Level::Deadbeat, evidence, due);
                } else if self.apps.died(who, fabric) {
                    // It is no member.
                } else if self.source.died(who, &self.config, now, fabric) {
                    self.ask_acceptors(now, fabric);
                }
            }
            Event::Confirm { since } => self.confirm(since.min(now), now, fabric),
            Event::Seat { seat, request } => self.apps.ask(seat, request, &self.view, now, fabric),
        }
    }

    fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        if self.view_pending {
            self.follow(now, fabric);
        }
        if self.poll.deadline(&self.config) <= now {
            let found = self.poll.expire();
            self.found(found, now, fabric);
            self.poll_due = now;
        }
        self.give_up_cache(now, fabric);
        self.fan_out.tick(&self.config, now, fabric);
        if !self.poll.is_busy() && !self.source.is_asking() && self.poll_due <= now {
            if self.config.mutant.has(Mutant::NoPoll) && self.incarnation().is_none() {
                self.poll_due = now + self.config.timing.renew_every;
            } else {
                self.ask(now, fabric);
            }
        }
        let acceptors = || self.view.acceptors.iter().map(|a| a.address);
        let is_proved = self.links.are_proved();
        match &mut self.state {
            MembershipState::Joining { token, as_of, due } if *due <= now => {
                *due = now + self.config.timing.join_every;
                let newcomer = Newcomer {
                    kind: self.kind,
                    name: self.name,
                    address: fabric.address(),
                    host: Incarnation::NONE,
                    token: *token,
                    proposer: 0,
                };
                let join = Message::Join { newcomer, as_of: *as_of, proved: true }.encode();
                acceptors().filter(|_| is_proved).for_each(|to| fabric.send(to, &join));
            }
            MembershipState::Leaving { who, due } if *due <= now => {
                *due = now + self.config.timing.join_every;
                let leave = Message::Leave(*who).encode();
                acceptors().for_each(|to| fabric.send(to, &leave));
            }
            _ => {}
        }
        let me = self.incarnation().unwrap_or_default();
        self.detector.tick(&self.config, now, fabric);
        self.links.tick(self.incarnation(), &self.view, &self.config, now, fabric);
        self.notices.tick(me, &self.view, &self.config, now, fabric);
        self.apps.tick(me, &self.view, &self.hold_back, &self.config, now, fabric);
        if let Some(me) = self.incarnation() {
            self.drift.tick(&self.view, me, (&mut self.rng, &self.config), now, fabric);
        }
        self.note_active(now, fabric);
    }

    fn deadline(&self) -> Instant {
        if self.view_pending {
            return Instant::ZERO;
        }
        let poll = if self.poll.is_busy() {
            self.poll.deadline(&self.config)
        } else if self.source.is_asking() {
            Instant::NEVER
        } else {
            self.poll_due
        };
        let state = match self.state {
            MembershipState::Joining { due, .. } | MembershipState::Leaving { due, .. } => due,
            MembershipState::Member(_) | MembershipState::Left { .. } => Instant::NEVER,
        };
        poll.min(state)
            .min(self.turn)
            .min(self.detector.deadline())
            .min(self.notices.deadline())
            .min(self.links.deadline())
            .min(self.apps.deadline())
            .min(if self.incarnation().is_some() { self.drift.deadline() } else { Instant::NEVER })
            .min(self.source.deadline(&self.config))
            .min(self.fan_out.deadline())
    }
}
