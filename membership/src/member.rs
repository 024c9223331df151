//! The core beside applications: it joins, follows the views, renews the lease that `active` reads, watches its
//! neighbours, and speaks for the programs in its seats. One machine serves agents and embedded apps.
//!
//! uKharon, sections 3 and 6: everything here is the paper's "uKharon Core" without its thread and its sockets.

use crate::Config;
use crate::detector::{Detector, Verdict};
use crate::lease::{Lease, Renewed};
use crate::mutants::Mutant;
use crate::notices::Notices;
use crate::poll::{Found, Poll};
use crate::rng::Rng;
use crate::tokens::{self, Part};
use crate::view::{Kind, Level, Newcomer, View};
use crate::ward::Wards;
use crate::wire::{Message, Refusal};
use obol_fabric::metrics::{Counter, Histogram};
use obol_fabric::recorder::{Kind as Event_, Record};
use obol_fabric::{Event, Evidence, Fabric, Incarnation, Instant, Machine, Name, ViewId};
use std::sync::Arc;

/// Whether the process is a member yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Standing {
    /// Asking to join; `as_of` is the newest view when the token was drawn.
    Joining { token: u64, as_of: ViewId, due: Instant },
    /// A member of the newest known view.
    Member(Incarnation),
    /// Asked to leave; the requests go on until a view lacks it.
    Leaving { who: Incarnation, due: Instant },
    /// Out, by its own wish. A join that was asked for before may still be decided; then it has to leave after all.
    Left { token: u64 },
}

/// The machine of an agent or an embedded app.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    config: Config,
    kind: Kind,
    name: Name,
    rng: Rng,
    standing: Standing,
    /// The newest view that is known to be decided.
    view: Arc<View>,
    /// The newest view that was heard of.
    heard: ViewId,
    lease: Lease,
    /// The view that the page was last seen active on: for the flight recorder.
    active: Option<ViewId>,
    /// When that changes next if nothing else happens.
    turn: Instant,
    poll: Poll,
    poll_due: Instant,
    /// When a majority last confirmed what is known.
    contact: Instant,
    detector: Detector,
    notices: Notices,
    wards: Wards,
    /// The newest view has been installed but not followed yet: see [`Member::follow`].
    unfollowed: bool,
    booted: bool,
}

impl Member {
    /// A process that will join. `genesis` is the cluster's first view; `seed` must differ between processes.
    #[must_use]
    pub fn new(config: Config, kind: Kind, name: Name, genesis: Arc<View>, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let token = rng.token();
        Self {
            config,
            kind,
            name,
            rng,
            standing: Standing::Joining { token, as_of: genesis.id, due: Instant::NEVER },
            heard: genesis.id,
            view: genesis,
            lease: Lease::new(&config.timing, config.plant),
            active: None,
            turn: Instant::NEVER,
            poll: Poll::new(),
            poll_due: Instant::ZERO,
            contact: Instant::ZERO,
            detector: Detector::default(),
            notices: Notices::default(),
            wards: Wards::default(),
            unfollowed: false,
            booted: false,
        }
    }

    /// The newest view that this process knows to be decided.
    #[must_use]
    pub const fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// The own incarnation while this process is a member.
    #[must_use]
    pub const fn incarnation(&self) -> Option<Incarnation> {
        match self.standing {
            Standing::Member(who) | Standing::Leaving { who, .. } => Some(who),
            Standing::Joining { .. } | Standing::Left { .. } => None,
        }
    }

    /// Whether this process has left, as it asked.
    #[must_use]
    pub const fn has_left(&self) -> bool {
        matches!(self.standing, Standing::Left { .. })
    }

    /// Asks to leave gracefully. The lease ends at once: nothing runs under it that outlives the request.
    pub fn leave<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.standing = match self.standing {
            Standing::Member(who) => Standing::Leaving { who, due: now },
            Standing::Joining { token, .. } => Standing::Left { token },
            ref other => other.clone(),
        };
        self.lease.drop_lease();
        fabric.publish_page(self.lease.page());
        self.note_active(now, fabric);
    }

    fn rejoin(&mut self, now: Instant) {
        self.standing = Standing::Joining { token: self.rng.token(), as_of: self.view.id, due: now };
    }

    /// Learns that a view is decided. `jump` tells that the views in between are skipped on purpose.
    fn install<F: Fabric>(
        &mut self,
        view: Arc<View>,
        sealed: &[u8],
        jump: bool,
        now: Instant,
        fabric: &mut F,
    ) {
        let late = view.id <= self.view.id;
        if late && !(self.config.plant.has(Mutant::AcceptLateView) && view.id < self.view.id) {
            return;
        }
        fabric.record(Record::new(Event_::ViewReceived, view.id.0, u64::from(jump)));
        fabric.count(if jump { Counter::ViewJumps } else { Counter::ViewsInstalled }, 1);
        self.contact = now;
        self.view = view;
        self.heard = self.heard.max(self.view.id);
        fabric.publish_view(self.view.id, sealed);
        match self.standing {
            Standing::Joining { token, .. } => {
                if let Some(member) = self.view.by_token(token) {
                    self.standing = Standing::Member(member.incarnation);
                    fabric.publish_incarnation(member.incarnation);
                    fabric.record(Record::new(Event_::Joined, member.incarnation.0, self.view.id.0));
                } else if self.view.departed.iter().any(|d| d.token == token) {
                    self.rejoin(now);
                }
            }
            Standing::Member(who) if self.view.member(who).is_none() => {
                fabric.record(Record::new(Event_::Excluded, who.0, self.view.id.0));
                fabric.count(Counter::Exclusions, 1);
                fabric.publish_incarnation(Incarnation::NONE);
                self.lease.drop_lease();
                fabric.publish_page(self.lease.page());
                self.note_active(now, fabric);
                if self.config.plant.has(Mutant::ReinitialisePage) {
                    let fence =
                        obol_fabric::Remote { at: fabric.address(), offset: self.config.layout.fence() };
                    fabric.write(fence, &[0; 8], obol_fabric::Token(0));
                }
                self.rejoin(now);
            }
            Standing::Leaving { who, .. } if self.view.member(who).is_none() => {
                self.standing = Standing::Left { token: 0 };
                fabric.publish_incarnation(Incarnation::NONE);
            }
            Standing::Left { token } => {
                if let Some(member) = self.view.by_token(token) {
                    self.standing = Standing::Leaving { who: member.incarnation, due: now };
                }
            }
            Standing::Member(_) | Standing::Leaving { .. } => {}
        }
        if self.incarnation().is_some() {
            self.lease.learn(&self.view, now);
        }
        self.unfollowed = true;
        self.ask(now, fabric);
    }

    /// What a new view asks for that the lease does not wait for. Done on the next tick.
    fn follow<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.unfollowed = false;
        let me = self.incarnation().unwrap_or_default();
        self.wards.follow(&self.view, me, now + self.config.timing.join_every, fabric);
        match self.incarnation() {
            Some(who) => {
                self.detector.follow(&self.view, who, &self.config, now);
                self.notices.settle(&self.view);
            }
            None => {
                self.detector.clear();
                self.notices.clear();
            }
        }
    }

    /// Asks whether the newest known view still is the newest; after a long silence, which one is.
    fn ask<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.poll_due = now + self.config.timing.renew_every;
        if now.since(self.contact) > self.config.timing.resync_after {
            self.poll.snapshot(&self.view, &self.config, now, fabric);
        } else {
            self.poll.ask(&self.view, &self.config, now, fabric);
        }
    }

    fn found<F: Fabric>(&mut self, found: Found, now: Instant, fabric: &mut F) {
        match found {
            Found::Empty { view, posted } => {
                self.contact = now;
                self.renewed(view, posted, now, fabric);
                if self.heard > self.view.id {
                    // Somebody knows more; its multicast may have overtaken the slot's CASes at our majority.
                    self.poll_due = now;
                }
            }
            Found::Next(view) => {
                fabric.count(Counter::ViewsFetched, 1);
                let sealed = view.seal();
                self.install(view, &sealed, false, now, fabric);
            }
            Found::Newer(view, _) => {
                let sealed = view.seal();
                self.install(view, &sealed, true, now, fabric);
            }
            Found::NothingNewer(_) => {
                self.contact = now;
                self.ask(now, fabric);
            }
            Found::Undecided(slot) if self.heard >= slot => {
                // It is decided, but the acceptors that are left hold it under several numbers, or none of them whole.
                self.contact = now;
                self.poll.snapshot(&self.view, &self.config, now, fabric);
            }
            Found::Undecided(slot) => {
                self.contact = now;
                let nudge = Message::Nudge(slot).encode();
                for acceptor in &self.view.acceptors {
                    fabric.send(acceptor.address, &nudge);
                }
            }
            Found::Failed => {
                if self.incarnation().is_some() {
                    fabric.count(Counter::RenewalsFailed, 1);
                }
            }
        }
    }

    fn renewed<F: Fabric>(&mut self, view: ViewId, posted: Instant, now: Instant, fabric: &mut F) {
        if self.view.id != view || !matches!(self.standing, Standing::Member(_)) {
            return;
        }
        let before = self.lease.page().end;
        match self.lease.renewed(view, posted, now) {
            Renewed::Outdated => return,
            Renewed::First => {}
            Renewed::OnTime => {
                fabric.count(Counter::RenewalsOnTime, 1);
                fabric.observe(Histogram::Margin, before.since(now));
            }
            Renewed::Late => fabric.count(Counter::RenewalsLate, 1),
        }
        fabric.observe(Histogram::Renewal, now.since(posted));
        fabric.publish_page(self.lease.page());
        if self.config.plant.has(Mutant::RenewalLowersFence) {
            let fence = obol_fabric::Remote { at: fabric.address(), offset: self.config.layout.fence() };
            fabric.write(fence, &[0; 8], obol_fabric::Token(0));
        }
        self.note_active(now, fabric);
    }

    /// Notes in the flight recorder when the page becomes active, and when its lease runs out.
    fn note_active<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        let page = self.lease.page();
        let is = page.start <= now && now < page.end && page.view == self.view.id;
        let active = is.then_some(page.view);
        if let Some(view) = active
            && active != self.active
        {
            fabric.record(Record::new(Event_::Active, view.0, 0));
        } else if let Some(view) = self.active
            && !is
            && page.end <= now
        {
            fabric.record(Record::new(Event_::LeaseLost, view.0, 0));
        }
        self.active = active;
        self.turn = match active {
            Some(_) => page.end,
            None if now < page.start && page.start < page.end => page.start,
            None => Instant::NEVER,
        };
    }

    fn datagram<F: Fabric>(&mut self, bytes: &[u8], now: Instant, fabric: &mut F) {
        fabric.count(Counter::DatagramsReceived, 1);
        match Message::decode(bytes) {
            Ok(Message::View(sealed)) => {
                let Some(view) = View::unseal(sealed) else {
                    fabric.count(Counter::DatagramsRefused, 1);
                    return;
                };
                self.heard = self.heard.max(view.id);
                let next = view.id == self.view.id.next();
                let careless = self.config.plant.has(Mutant::SkipSilently)
                    || self.config.plant.has(Mutant::AcceptLateView) && view.id < self.view.id;
                if next || careless {
                    self.install(Arc::new(view), sealed, false, now, fabric);
                } else if view.id > self.view.id {
                    self.catch_up(now, fabric);
                }
            }
            Ok(Message::Decided(id)) => {
                self.heard = self.heard.max(id);
                self.catch_up(now, fabric);
            }
            Ok(Message::Clear(base)) => {
                if self.lease.clear(base, now) {
                    fabric.count(Counter::ClearsUsed, 1);
                    fabric.publish_page(self.lease.page());
                    self.note_active(now, fabric);
                }
            }
            Ok(Message::JoinReply { token, outcome: Err(refusal) }) => match self.standing {
                Standing::Joining { token: mine, .. } if mine == token => {
                    if refusal != Refusal::Full {
                        self.rejoin(now + self.config.timing.join_every);
                    }
                }
                _ if refusal == Refusal::Full => {}
                _ => self.wards.refused(token, fabric),
            },
            // A view tells more than a reply, and notices are the coordinators'.
            Ok(
                Message::JoinReply { .. }
                | Message::Notice { .. }
                | Message::Join { .. }
                | Message::Leave(_)
                | Message::Nudge(_)
                | Message::SetLease(_),
            ) => {}
            Err(_) => fabric.count(Counter::DatagramsRefused, 1),
        }
    }

    /// Fetches the views that were heard of but not received.
    fn catch_up<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        if self.heard > self.view.id && !self.poll.is_busy() && !self.config.plant.has(Mutant::NoPoll) {
            self.ask(now, fabric);
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
        self.contact = now;
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
                if part == Part::Heartbeat {
                    match self.detector.complete(peer, round, &result, &self.config, now) {
                        Some(Verdict::Suspect(who, level)) => {
                            fabric.count(Counter::HeartbeatSuspicions, 1);
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
                let found = self.poll.complete(part, peer, round, &result, &self.config, fabric);
                if let Some(found) = found {
                    let first = !core::mem::replace(&mut self.booted, true);
                    self.found(found, now, fabric);
                    if let Standing::Joining { as_of, due, .. } = &mut self.standing
                        && first
                    {
                        // The token is younger than what the snapshot told: that is the view to date it by.
                        *as_of = self.view.id;
                        *due = now;
                    }
                }
            }
            Event::Datagram { bytes, .. } => self.datagram(bytes, now, fabric),
            Event::Death { who, evidence } => {
                if let Some(accused) = self.wards.at(who) {
                    let due = now + self.config.timing.notice_after;
                    self.notices.raise(accused, Level::Deadbeat, evidence, due);
                }
            }
            Event::Seat { seat, request } => self.wards.ask(seat, request, &self.view, now, fabric),
        }
    }

    fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        if self.unfollowed {
            self.follow(now, fabric);
        }
        if self.poll.is_busy() && self.poll.posted() + self.config.timing.renew_timeout <= now {
            self.poll.cancel();
            self.found(Found::Failed, now, fabric);
            self.poll_due = now;
        }
        if !self.poll.is_busy() && self.poll_due <= now {
            if self.config.plant.has(Mutant::NoPoll) && self.incarnation().is_none() {
                self.poll_due = now + self.config.timing.renew_every;
            } else {
                self.ask(now, fabric);
            }
        }
        let acceptors = || self.view.acceptors.iter().map(|a| a.address);
        match &mut self.standing {
            Standing::Joining { token, as_of, due } if *due <= now => {
                *due = now + self.config.timing.join_every;
                let newcomer = Newcomer {
                    kind: self.kind,
                    name: self.name,
                    address: fabric.address(),
                    host: Incarnation::NONE,
                    token: *token,
                    proposer: 0,
                };
                let join = Message::Join { newcomer, as_of: *as_of }.encode();
                acceptors().for_each(|to| fabric.send(to, &join));
            }
            Standing::Leaving { who, due } if *due <= now => {
                *due = now + self.config.timing.join_every;
                let leave = Message::Leave(*who).encode();
                acceptors().for_each(|to| fabric.send(to, &leave));
            }
            _ => {}
        }
        let me = self.incarnation().unwrap_or_default();
        self.detector.tick(&self.config, now, fabric);
        self.notices.tick(me, &self.view, &self.config, now, fabric);
        self.wards.tick(me, &self.view, &self.config, now, fabric);
        self.note_active(now, fabric);
    }

    fn deadline(&self) -> Instant {
        if self.unfollowed {
            return Instant::ZERO;
        }
        let poll = if self.poll.is_busy() {
            self.poll.posted() + self.config.timing.renew_timeout
        } else {
            self.poll_due
        };
        let standing = match self.standing {
            Standing::Joining { due, .. } | Standing::Leaving { due, .. } => due,
            Standing::Member(_) | Standing::Left { .. } => Instant::NEVER,
        };
        poll.min(standing)
            .min(self.turn)
            .min(self.detector.deadline())
            .min(self.notices.deadline())
            .min(self.wards.deadline())
    }
}
