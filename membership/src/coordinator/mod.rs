//! A coordinator: an acceptor by its memory, a proposer and, while it is the live coordinator with
//! the lowest number, the leader. It decides views, announces them, ends older leases, and admits
//! newcomers.
//!
//! uKharon, sections 3 and 5. A leader always has one slot prepared, so a change is decided in one
//! round trip. A new leader predicts its predecessor's prepared slot and takes it over in one more.
//! The acceptor has no code: it is memory.

mod cliques;
mod datagrams;
mod lead;
mod newcomers;
mod prepared;
mod requests;
mod suspicions;

use crate::Config;
use crate::adapt::LeaseScaler;
use crate::clearing::Clearing;
use crate::consensus::{Consensus, Engine, Phase};
use crate::detectors::Verdict;
use crate::detectors::deadbeat::Deadbeat;
use crate::log::Log;
use crate::metrics::Counter;
use crate::mutants::Mutant;
use crate::peer::{MembershipState, Peer, Transition};
use crate::poll::Found;
use crate::reach::Accusers;
use crate::recorder::{EventKind, Record};
use crate::replace::Vacancies;
use crate::rng::Rng;
use crate::timers::Timer;
use crate::tokens::{Labelled, Part};
use crate::view::{Acceptor, JOIN_WINDOW, Kind, Member, Newcomer, Reason, View, coordinator_name};
use crate::wire::Message;
use cliques::Cliques;
use obol_fabric::{Address, Event, Evidence, Fabric, Incarnation, Instant, Machine, Release, ViewId};
use prepared::Prepared;
use requests::Requests;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use suspicions::Suspicion;

/// The accuser of a member, and its detector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Accusation {
    accuser: Incarnation,
    reason: Reason,
}

/// The state machine of a coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Coordinator {
    peer: Peer,
    me: u16,
    log: Log,
    suspects: BTreeMap<Incarnation, Suspicion>,
    /// Members that are proved dead and that a view with a possible lease names.
    proofs: BTreeSet<Incarnation>,
    requests: Requests,
    lease_scaler: LeaseScaler,
    vacancies: Vacancies,
    /// The latest base with a CLEAR sent or received.
    cleared: ViewId,
    clearing: Option<Clearing>,
    /// The fences of a proposal whose slot is not decided yet.
    early: Option<Clearing>,
    clearing_round: u32,
    /// The newest view, framed, while its announcement is deferred until its CLEAR.
    held: Option<Arc<[u8]>>,
    engine: Engine,
    leading: bool,
    aborts: u32,
    /// Too few acceptors could be reached, and none of them has answered a READ since. An attempt
    /// uses up a proposal number at the reachable ones, so it waits for the others.
    lost_quorum: bool,
    proposed: Instant,
    /// The last proposal.
    proposal: Option<Arc<View>>,
    prepared: Prepared,
    deadbeat: Deadbeat,
    cliques: Cliques,
    /// It leads in place of coordinators that reach no majority: see [`Cliques`].
    stands_in: bool,
    accusers: Accusers,
}

impl Coordinator {
    /// See [`crate::Start::coordinator`].
    pub(crate) fn new(config: Config, me: u16, genesis: Arc<View>, seed: u64) -> Self {
        let own = genesis.members.iter().find(|m| m.proposer == me);
        let state = if genesis.retired.contains(me) {
            MembershipState::Retired
        } else {
            MembershipState::Member(own.map(|m| m.incarnation).unwrap_or_default())
        };
        let name = own.map_or_else(|| coordinator_name(me), |m| m.name);
        let mut peer = Peer::new(config, name, Rng::new(seed), state, config.timing.poll_every);
        peer.timers.set(Timer::Retry, Instant::ZERO);
        Self {
            peer,
            me,
            cleared: genesis.cleared,
            log: Log::new(genesis, Instant::NEVER),
            suspects: BTreeMap::new(),
            proofs: BTreeSet::new(),
            requests: Requests::default(),
            lease_scaler: LeaseScaler::default(),
            vacancies: Vacancies::default(),
            clearing: None,
            early: None,
            clearing_round: 0,
            held: None,
            engine: Engine::new(me, config.layout, config.mutant),
            leading: false,
            aborts: 0,
            lost_quorum: false,
            proposed: Instant::ZERO,
            proposal: None,
            prepared: Prepared::default(),
            deadbeat: Deadbeat::default(),
            cliques: Cliques::default(),
            stands_in: false,
            accusers: Accusers::default(),
        }
    }

    /// The newest view that this process knows to be decided.
    pub fn view(&self) -> &Arc<View> {
        &self.log.newest().view
    }

    pub fn share_view(&mut self, same: &Arc<View>) -> bool {
        let own = Arc::clone(self.view());
        let equal = own == *same;
        if equal {
            self.peer.poll.share_view(&own, same);
            self.log.share_newest(same);
        }
        equal
    }

    /// Whether this process considers itself the leader.
    pub const fn is_leading(&self) -> bool {
        self.leading
    }

    /// Whether this process waits for more acceptors before it tries to lead again.
    pub const fn has_lost_quorum(&self) -> bool {
        self.lost_quorum
    }

    /// The slot in which this process has proposed a view whose decision it does not know of yet.
    pub fn proposes(&self) -> Option<ViewId> {
        (self.engine.phase() == Phase::Accepting).then(|| self.engine.slot())
    }

    /// Whether this process searches whole rings for the newest view.
    pub const fn reads_rings(&self) -> bool {
        self.peer.poll.reads_rings()
    }

    /// Whether caches failed to raise the requested fences in time, so that this leader raises them
    /// itself.
    pub fn caches_timed_out(&self) -> bool {
        self.clearing.as_ref().is_some_and(Clearing::caches_timed_out)
    }

    /// The incarnation of this process while it is a member.
    pub const fn incarnation(&self) -> Option<Incarnation> {
        self.peer.incarnation()
    }

    /// Whether this process has left at its own request.
    pub const fn has_left(&self) -> bool {
        self.peer.has_left()
    }

    /// The release that the cluster speaks, if it does not admit this process for it.
    pub const fn refused_by(&self) -> Option<Release> {
        self.peer.refused_by
    }

    /// Whether this process was retired by a recovery. It is inert then, and its process has to
    /// end.
    pub const fn is_retired(&self) -> bool {
        matches!(self.peer.state, MembershipState::Retired)
    }

    /// Requests a graceful leave: the next coordinator leads at once, and no failure is recorded.
    pub fn leave<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.peer.leave(now);
        self.request_leave(now, fabric);
        self.drive(now, fabric);
    }

    fn request_leave<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        let MembershipState::Leaving(who) = self.peer.state else { return };
        if !self.peer.timers.is_due(Timer::Join, now) {
            return;
        }
        self.peer.timers.set(Timer::Join, now + self.peer.config.timing.join_every);
        let view = Arc::clone(self.view());
        self.requests.leave(who, &view);
        Peer::send_to_acceptors(&view, self.me, &Message::Leave(who), fabric);
    }

    fn request_join<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        let MembershipState::Joining { token, as_of } = self.peer.state else { return };
        if !self.peer.booted || !self.peer.timers.is_due(Timer::Join, now) {
            return;
        }
        let timing = self.peer.config.timing;
        self.peer.timers.set(Timer::Join, now + timing.join_every);
        let links = &self.peer.detectors.links;
        let proved = links.are_proved();
        if links.reaches_coordinator() {
            self.await_leader(now);
        }
        let join = Message::Join { newcomer: self.newcomer(token, fabric), as_of, proved };
        if self.leading {
            self.admit_itself(now, fabric);
        }
        // A decider sends it in any case: see [`Coordinator::needs`].
        if proved || self.view().acceptor(self.me).is_some() {
            Peer::send_to_acceptors(self.view(), self.me, &join, fabric);
        }
    }

    /// Whether it waits for a leader, and leads alone when that timer expires.
    const fn awaits_leader(&self) -> bool {
        let joins = matches!(self.peer.state, MembershipState::Joining { .. });
        joins && self.peer.booted && !self.leading
    }

    /// There is a leader, or soon will be: it is asked again before this process leads alone.
    fn await_leader(&mut self, now: Instant) {
        let timing = &self.peer.config.timing;
        let alone = self.peer.timers.at(Timer::LeadAlone).max(now + timing.join_every + timing.standby);
        self.peer.timers.set(Timer::LeadAlone, alone);
    }

    /// The leader among those that are not suspected. This process never suspects itself.
    fn leader(&self) -> Option<&Member> {
        let me = self.incarnation();
        if self.stands_in {
            return self.view().member(me?);
        }
        self.view().leader(|m| Some(m.incarnation) == me || !self.suspects.contains_key(&m.incarnation))
    }

    /// Requests admission with a new token, and leads alone if no leader answers within
    /// `Timing::standby`.
    fn stand_by(&mut self, now: Instant) {
        self.peer.rejoin(self.view().id, now);
        self.peer.detectors.links.seek_leader(&self.peer.config);
        self.peer.view_pending = true;
        self.peer.timers.set(Timer::LeadAlone, now + self.peer.config.timing.standby);
    }

    /// Renews a join that is too old and would be refused for ever. This concerns newcomers, and
    /// leaders that admit themselves.
    fn renew_join(&mut self, now: Instant) {
        let newest = self.view().id;
        if let MembershipState::Joining { as_of, .. } = self.peer.state
            && as_of.0.saturating_add(JOIN_WINDOW) < newest.0
        {
            self.peer.rejoin(newest, now);
        }
    }

    fn newcomer<F: Fabric>(&self, token: u64, fabric: &F) -> Newcomer {
        self.peer.newcomer(Kind::Coordinator, token, self.me, fabric)
    }

    /// Installs a view, decided here or elsewhere.
    fn install<F: Fabric>(&mut self, view: &Arc<View>, frame: &[u8], now: Instant, fabric: &mut F) {
        if view.id > self.view().id {
            fabric.publish_view(view.id, frame);
            self.follow_published(view, now, fabric);
        }
    }

    /// Installs a view that is published already.
    fn follow_published<F: Fabric>(&mut self, view: &Arc<View>, now: Instant, fabric: &mut F) {
        assert!(view.id > self.view().id, "views are installed in order");
        self.announce_held(fabric);
        let jump = view.id != self.view().id.next();
        self.peer.note_view(view.id, jump, now, fabric);
        self.learn_clear(view.cleared, fabric);
        self.follow_joins(view, now, fabric);
        self.accusers.follow(&self.log.newest().view, view, &self.peer.config);
        self.vacancies.follow(&self.log.newest().view, view, &self.peer.config, now);
        self.lease_scaler.follow(&self.log.newest().view, view, &self.peer.config, now);
        self.log.push(Arc::clone(view), now);
        assert_eq!(self.view().id, view.id);
        self.suspects.retain(|who, _| view.member(*who).is_some());
        self.suspect_former_life(fabric.address());
        let is_suspected = |who| self.suspects.contains_key(&who);
        self.requests.settle(view, jump, is_suspected, fabric);
        match self.peer.update_membership(view, now, fabric) {
            Some(Transition::Excluded | Transition::Departed) => {
                self.forget_suspicions();
                self.peer.timers.set(Timer::LeadAlone, now + self.peer.config.timing.standby);
            }
            Some(Transition::Joined | Transition::Left) | None => {}
        }
        if view.retired.contains(self.me) {
            self.peer.retire();
            fabric.publish_incarnation(Incarnation::NONE);
        }
        self.renew_join(now);
        self.peer.view_pending = true;
        self.early = self.early.take().filter(|early| early.base() >= view.id);
        if self.engine.slot() <= view.id {
            let stale = self.peer.config.mutant.has(Mutant::StaleAcceptors);
            let acceptors = if stale { view.deciders() } else { view.acceptors.clone() };
            self.engine.open(view.id.next(), &acceptors, None);
            assert!(self.engine.phase() == Phase::Idle, "the next slot begins anew");
            self.aborts = 0;
            self.lost_quorum = false;
            self.peer.timers.set(Timer::Retry, now);
        }
    }

    /// Work for a new view that survivors do not wait for: watches and cleanup. Done on the next
    /// tick, so that it delays neither the announcement of a decision nor CLEAR.
    fn follow<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        let view = Arc::clone(self.view());
        let view = &*view;
        self.peer.follow(view, &[], now);
        self.retract_unwatched();
        self.forget_proofs();
        // A possible holder of an uncleared lease stays watched: its death may still have to be
        // proved. The leader has to act on any death, the others only on a coordinator's.
        let own = fabric.address().owner();
        let members = |entry: &crate::log::Entry| entry.view.members.clone();
        let uncleared = self.log.range(self.cleared, ViewId(u64::MAX));
        let uncleared = uncleared.map(|entries| entries.flat_map(members).collect::<Vec<_>>());
        let wanted: BTreeMap<Address, bool> = uncleared
            .unwrap_or_else(|| view.members.clone())
            .into_iter()
            .filter(|m| m.address.owner() != own)
            .map(|m| (m.address, !self.leading && m.kind != Kind::Coordinator))
            .collect();
        self.deadbeat.watch(wanted, fabric);
        self.cliques.follow(view);
        if self.incarnation().is_none() {
            self.cliques = Cliques::default();
        }
    }

    /// A proof is needed only while a view that is not cleared names the dead member.
    fn forget_proofs(&mut self) {
        let Some(entries) = self.log.range(self.cleared, ViewId(u64::MAX)) else { return };
        let named: BTreeSet<Incarnation> =
            entries.flat_map(|e| e.view.members.iter().map(|m| m.incarnation)).collect();
        self.proofs.retain(|who| named.contains(who));
    }

    /// Polls for decided views that were missed.
    fn poll_views<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        if self.peer.poll.is_busy() {
            // Restarting a poll before its answer arrives would postpone the answer for ever.
            self.peer.schedule_poll(now);
        } else {
            let view = Arc::clone(self.view());
            self.peer.poll_acceptors(&view, now, fabric);
        }
    }

    fn poll_others<F: Fabric>(&mut self, acceptors: Vec<Acceptor>, now: Instant, fabric: &mut F) {
        let view = Arc::clone(self.view());
        self.peer.poll_others(acceptors, &view, now, fabric);
    }

    fn fetched<F: Fabric>(&mut self, view: &Arc<View>, now: Instant, fabric: &mut F) {
        fabric.count(Counter::ViewsFetched, 1);
        let frame = view.to_frame();
        self.install(view, &frame, now, fabric);
        // Later views may exist.
        self.peer.timers.set(Timer::Poll, now);
    }

    /// CLEAR holds for ever, so it is valid from any sender at any time. A process that knows it
    /// can lead without waiting for leases that its predecessor has cleared.
    pub(super) fn learn_clear<F: Fabric>(&mut self, base: ViewId, fabric: &mut F) {
        if base > self.cleared {
            self.cleared = base;
            self.peer.view_pending = true;
            fabric.publish_cleared(base);
        }
        if self.clearing.as_ref().is_some_and(|c| c.base() <= base) {
            self.clearing = None;
        }
    }

    fn found<F: Fabric>(&mut self, found: Found, now: Instant, fabric: &mut F) {
        if self.lost_quorum && found == Found::Failed {
            self.peer.timers.set_by(Timer::Poll, now + self.peer.config.timing.backoff_max);
        } else {
            self.lost_quorum = false;
        }
        match found {
            Found::Empty { view, posted } => {
                if view == self.view().id {
                    self.vacancies.confirm(posted);
                }
                self.peer.contact = now;
                self.peer.poll.answered(now.since(posted), &self.peer.config);
            }
            Found::NothingNewer(cleared) => {
                self.peer.contact = now;
                self.learn_clear(cleared, fabric);
            }
            Found::Next(view) => self.fetched(&view, now, fabric),
            Found::Newer(view, cleared) => {
                self.learn_clear(cleared, fabric);
                self.fetched(&view, now, fabric);
            }
            Found::Undecided(slot) => {
                self.peer.contact = now;
                if slot == self.view().id.next() {
                    self.requests.settle_slot();
                }
                if !self.leading {
                    // The leader settles it. If it already has, the remaining acceptors may hold it
                    // under several numbers, and only a snapshot gives the answer.
                    self.peer.poll.snapshot(&Arc::clone(self.view()), &self.peer.config, now, fabric);
                }
            }
            Found::Failed => self.peer.query_deciders(self.view().id, now, fabric),
        }
    }
}

impl Machine for Coordinator {
    fn start<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        let generation = fabric.address().generation;
        fabric.record(Record::new(EventKind::Started, u64::from(generation), 0));
        let genesis = Arc::clone(self.view());
        // It may have been decided just now, with leases of its predecessor still running.
        let undated = self.peer.config.mutant.has(Mutant::StartLongAgo);
        self.log = Log::new(Arc::clone(&genesis), if undated { Instant::ZERO } else { now });
        self.vacancies = Vacancies::begin(&genesis, now);
        if generation <= 1 {
            // In a later life, the region of this process publishes a later view. If a majority
            // lost theirs at once and the ring has moved on, no process could find out what
            // was decided.
            fabric.publish_view(genesis.id, &genesis.to_frame());
        }
        self.peer.schedule_poll(now);
        if !self.is_retired() && (generation > 1 || self.incarnation() == Some(Incarnation::NONE)) {
            // A later life, with the incarnation of an earlier one; or a coordinator new to a
            // running cluster.
            self.stand_by(now);
        }
        self.suspect_former_life(fabric.address());
        fabric.publish_incarnation(self.incarnation().unwrap_or_default());
        self.follow(now, fabric);
        self.engine.open(genesis.id.next(), &genesis.acceptors, None);
        self.peer.poll.snapshot(&genesis, &self.peer.config, now, fabric);
    }

    fn handle<F: Fabric>(&mut self, now: Instant, event: Event<'_>, fabric: &mut F) {
        match event {
            Event::Completion { token, result } => {
                if result.is_err() {
                    fabric.count(Counter::LinkErrors, 1);
                }
                let Some(done) = Labelled::new(token, result) else { return };
                match done.part {
                    Part::EngineCas | Part::EngineWrite | Part::EngineRead => {
                        let Labelled { part, peer, round, .. } = done;
                        let outcome = self.engine.complete(part, peer, round, &result, fabric);
                        self.outcome(outcome, now, fabric);
                    }
                    Part::PollWord | Part::PollValue | Part::PollView => {
                        if let Some(found) = self.peer.poll.complete(done, &self.peer.config, fabric) {
                            self.peer.booted = true;
                            self.found(found, now, fabric);
                        }
                    }
                    Part::Fence => {
                        for clearing in self.clearing.iter_mut().chain(&mut self.early) {
                            clearing.complete(done, &self.peer.config, fabric);
                        }
                    }
                    Part::Newcomer => self.newcomer_read(done.round, &result, fabric),
                    Part::Reach => self.peer.asks.complete(done.round, &result, fabric),
                    Part::Probe => match self.peer.probed(token, result, now, fabric) {
                        Some(Verdict::Suspect(who, reason)) => {
                            let by = Accusation { accuser: self.incarnation().unwrap_or_default(), reason };
                            self.accuse(who, by, Evidence::Suspicion, now, fabric);
                        }
                        Some(Verdict::Retract(who)) => self.retract(who),
                        Some(Verdict::LinkDown(_) | Verdict::LinkUp(_)) | None => {}
                    },
                }
            }
            Event::Datagram { from, bytes } => self.datagram(from, bytes, now, fabric),
            Event::Death { who, evidence } => self.report_death(who, evidence, now, fabric),
            Event::Seat { .. } | Event::Confirm { .. } => {}
        }
        self.advance(now, fabric);
    }

    fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        if self.peer.view_pending {
            self.follow(now, fabric);
        }
        if self.peer.poll.deadline(&self.peer.config) <= now {
            self.peer.booted = true;
            let found = self.peer.poll.expire();
            self.found(found, now, fabric);
        }
        if self.peer.timers.is_due(Timer::Poll, now) {
            if self.engine.phase() == Phase::Prepared(false) && !self.has_work(now) {
                self.prepare_view();
            }
            self.poll_views(now, fabric);
        }
        self.request_join(now, fabric);
        self.request_leave(now, fabric);
        let view = Arc::clone(self.view());
        self.peer.tick_detectors(&view, now, fabric);
        self.forget_unrepeated(now);
        self.judge_links(&view, now, fabric);
        self.peer.tick_drift(&view, now, fabric);
        if self.leading {
            if let Some(lease) = self.lease_scaler.shrink(&view, &self.peer.config, now) {
                let until = now + self.peer.config.timing.lease_calm;
                self.requests.adapt_lease(lease, &view, until);
            }
        } else {
            // A leader announces nothing: the next view has it.
            self.peer.tick_notices(&view, now, fabric);
        }
        for clearing in self.clearing.iter_mut().chain(&mut self.early) {
            clearing.tick(&self.peer.config, now, fabric);
        }
        self.advance(now, fabric);
    }

    fn deadline(&self) -> Instant {
        if self.peer.view_pending {
            return Instant::ZERO;
        }
        let mut timers = self.peer.timers();
        if matches!(self.peer.state, MembershipState::Joining { .. }) && !self.peer.booted {
            timers.stop(Timer::Join);
        }
        if !self.awaits_leader() {
            timers.stop(Timer::LeadAlone);
        }
        if !self.may_retry() {
            timers.stop(Timer::Retry);
        }
        if !self.leading || !self.requests.has_joins(self.view()) {
            timers.stop(Timer::Joins);
        }
        if self.leading {
            timers.set(Timer::LeaseScale, self.lease_scaler.due(&self.peer.config.timing));
            timers.stop(Timer::Notices);
        }
        timers.set(Timer::Cliques, self.links_due());
        timers.set(Timer::Suspicions, self.unrepeated_due());
        let clearings = self.clearing.iter().chain(&self.early);
        timers.set(Timer::Clearing, clearings.map(Clearing::deadline).min().unwrap_or(Instant::NEVER));
        timers.next()
    }
}
