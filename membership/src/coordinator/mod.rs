//! A coordinator: acceptor by its memory, proposer and, while it is the live coordinator with the
//! lowest number, the leader. It decides views, announces them, ends older leases, and admits
//! newcomers.
//!
//! uKharon, sections 3 and 5. A leader always has one slot prepared, so a change is decided in one
//! round trip; a new leader expects its predecessor's prepared slot and takes it over in one more.
//! The acceptor has no code: it is memory.

mod cliques;
mod datagrams;
mod lead;
mod requests;

use crate::Config;
use crate::adapt::LeaseScaler;
use crate::clearing::Clearing;
use crate::detector::{Detector, Verdict};
use crate::drift::Drift;
use crate::engine::{Engine, Outcome, Phase};
use crate::holdback::HoldBack;
use crate::links::{self, Links};
use crate::log::Log;
use crate::metrics::Counter;
use crate::mutants::Mutant;
use crate::notices::Notices;
use crate::poll::{Found, Poll};
use crate::recorder::{Kind as Event_, Record};
use crate::replace::Vacancies;
use crate::rng::Rng;
use crate::tokens::{self, Part};
use crate::view::{Acceptor, JOIN_WINDOW, Kind, Level, Member, Newcomer, View, coordinator_name};
use crate::wire::Message;
use cliques::Cliques;
use obol_fabric::{Address, Event, Evidence, Fabric, Group, Incarnation, Instant, Machine, Name, ViewId};
use requests::Requests;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Whether the process is a member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum MembershipState {
    /// A member of the newest known view.
    Member(Incarnation),
    /// Restarted or excluded: asks a leader to admit it, and leads by itself if none answers until
    /// `alone`.
    Standby { token: u64, as_of: ViewId, due: Instant, alone: Instant },
    /// Asked to leave; the requests go on until a view lacks it. It leads meanwhile if it is its
    /// turn.
    Leaving { who: Incarnation, due: Instant },
    /// Out, by its own wish. Its memory still is an acceptor.
    Left,
    /// Given up in a recovery: its memory is of a cluster that went on without it.
    Retired,
}

/// Who says that a member is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Accusation {
    accuser: Incarnation,
    level: Level,
}

/// The machine of a coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Coordinator {
    config: Config,
    me: u16,
    name: Name,
    rng: Rng,
    state: MembershipState,
    log: Log,
    suspects: BTreeMap<Incarnation, Accusation>,
    /// Members that are proved dead, as long as some view that may hold a lease names them.
    proofs: BTreeSet<Incarnation>,
    requests: Requests,
    /// Names whose members fail again and again.
    hold_back: HoldBack,
    /// Before this no view is decided only because somebody joins: others may join in the same.
    joins_from: Option<Instant>,
    lease_scaler: LeaseScaler,
    vacancies: Vacancies,
    /// When the leader has to look again whether a coordinator is to be replaced.
    replace_due: Instant,
    /// The latest base whose CLEAR was sent or heard.
    cleared: ViewId,
    clearing: Option<Clearing>,
    clearing_round: u32,
    /// The newest view, sealed, if it is not announced yet so that CLEAR can go with it; and until
    /// when.
    held: Option<(Instant, Arc<[u8]>)>,
    engine: Engine,
    leading: bool,
    /// When an aborted attempt is tried again.
    retry: Instant,
    aborts: u32,
    /// Too few acceptors could be reached, and none of them has answered a READ since. An attempt
    /// uses up a proposal number at those that can, so it waits for the others.
    lost_quorum: bool,
    proposed: Instant,
    /// What was proposed last.
    proposal: Option<Arc<View>>,
    poll: Poll,
    poll_due: Instant,
    /// When a majority answered last; zero if none has since the start, or if the view is known to
    /// be old.
    contact: Instant,
    detector: Detector,
    links: Links,
    cliques: Cliques,
    drift: Drift,
    notices: Notices,
    /// When it may be asked again who decides.
    lost_due: Instant,
    /// Who is watched, and whether lazily.
    watched: BTreeMap<Address, bool>,
    /// The newest view has been installed but not followed yet: see [`Coordinator::follow`].
    view_pending: bool,
    booted: bool,
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
        Self {
            config,
            me,
            name: own.map_or_else(|| coordinator_name(me), |m| m.name),
            rng: Rng::new(seed),
            state,
            cleared: genesis.cleared,
            log: Log::new(genesis, Instant::NEVER),
            suspects: BTreeMap::new(),
            proofs: BTreeSet::new(),
            requests: Requests::default(),
            hold_back: HoldBack::default(),
            joins_from: None,
            lease_scaler: LeaseScaler::default(),
            vacancies: Vacancies::default(),
            replace_due: Instant::NEVER,
            clearing: None,
            clearing_round: 0,
            held: None,
            engine: Engine::new(me, config.layout, config.mutant),
            leading: false,
            retry: Instant::ZERO,
            aborts: 0,
            lost_quorum: false,
            proposed: Instant::ZERO,
            proposal: None,
            poll: Poll::new(),
            poll_due: Instant::ZERO,
            contact: Instant::ZERO,
            detector: Detector::default(),
            links: Links::default(),
            cliques: Cliques::default(),
            drift: Drift::default(),
            notices: Notices::default(),
            lost_due: Instant::ZERO,
            watched: BTreeMap::new(),
            view_pending: false,
            booted: false,
        }
    }

    /// The newest view that this process knows to be decided.
    #[must_use]
    pub fn view(&self) -> &Arc<View> {
        &self.log.newest().view
    }

    /// See [`crate::Member::share_view`].
    pub fn share_view(&mut self, same: &Arc<View>) -> bool {
        let own = Arc::clone(self.view());
        let equal = own == *same;
        if equal {
            self.poll.share_view(&own, same);
            self.log.share_newest(same);
        }
        equal
    }

    /// Whether this process thinks that it leads.
    #[must_use]
    pub const fn is_leading(&self) -> bool {
        self.leading
    }

    /// Whether this process waits for more acceptors before it tries again to lead.
    #[must_use]
    pub const fn has_lost_quorum(&self) -> bool {
        self.lost_quorum
    }

    /// The slot in which this process has proposed a view that is not decided yet, as far as it
    /// knows.
    #[must_use]
    pub fn proposes(&self) -> Option<ViewId> {
        (self.engine.phase() == Phase::Accepting).then(|| self.engine.slot())
    }

    /// Whether this process looks for the newest view in whole rings.
    #[must_use]
    pub const fn reads_rings(&self) -> bool {
        self.poll.reads_rings()
    }

    /// Whether caches have not raised the fences in time that this leader asked them to, so that it
    /// does so itself.
    #[must_use]
    pub fn outruns_caches(&self) -> bool {
        self.clearing.as_ref().is_some_and(Clearing::outruns_caches)
    }

    /// The own incarnation while this process is a member.
    #[must_use]
    pub const fn incarnation(&self) -> Option<Incarnation> {
        match self.state {
            MembershipState::Member(who) | MembershipState::Leaving { who, .. } => Some(who),
            MembershipState::Standby { .. } | MembershipState::Left | MembershipState::Retired => None,
        }
    }

    /// Whether this process has left, as it asked.
    #[must_use]
    pub const fn has_left(&self) -> bool {
        matches!(self.state, MembershipState::Left)
    }

    /// Whether this process has learned that it was given up in a recovery. Then it takes part in
    /// nothing any more, and its process has to end.
    #[must_use]
    pub const fn is_retired(&self) -> bool {
        matches!(self.state, MembershipState::Retired)
    }

    /// Asks to leave gracefully: the next coordinator leads at once, and nobody takes it for a
    /// failure.
    pub fn leave<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.state = match self.state {
            MembershipState::Member(who) => MembershipState::Leaving { who, due: now },
            MembershipState::Standby { .. } => MembershipState::Left,
            ref other => other.clone(),
        };
        self.ask_to_leave(now, fabric);
        self.drive(now, fabric);
    }

    fn ask_to_leave<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        let MembershipState::Leaving { who, due } = &mut self.state else { return };
        if now < *due {
            return;
        }
        *due = now + self.config.timing.join_every;
        let (who, view) = (*who, Arc::clone(self.view()));
        self.requests.leave(who, &view);
        let leave = Message::Leave(who).encode();
        for acceptor in view.acceptors.iter().filter(|a| a.proposer != self.me) {
            fabric.send(acceptor.address, &leave);
        }
    }

    /// Who leads of those that are not suspected; the own incarnation is not.
    fn leader(&self) -> Option<&Member> {
        let me = self.incarnation();
        self.view().leader(|m| Some(m.incarnation) == me || !self.suspects.contains_key(&m.incarnation))
    }

    fn stand_by(&mut self, now: Instant) {
        self.state = MembershipState::Standby {
            token: self.rng.token(),
            as_of: self.view().id,
            due: now,
            alone: now + self.config.timing.standby,
        };
    }

    /// A join that has become too old would be refused for ever: as a newcomer, or as a leader that
    /// admits itself.
    fn renew_join(&mut self, now: Instant) {
        let newest = self.view().id;
        if let MembershipState::Standby { token, as_of, due, .. } = &mut self.state
            && as_of.0.saturating_add(JOIN_WINDOW) < newest.0
        {
            *token = self.rng.token();
            *as_of = newest;
            *due = now;
        }
    }

    /// A later life of a process proves that the earlier one at its seat is gone, whether or not it
    /// is admitted itself.
    fn suspect_former_life(&mut self, of: Address) {
        let former = self.view().earlier_life(of).map(|m| m.incarnation);
        if let Some(accuser) = former {
            let by = Accusation { accuser, level: Level::Replaced };
            self.suspects.entry(accuser).or_insert(by);
        }
    }

    fn newcomer<F: Fabric>(&self, token: u64, fabric: &F) -> Newcomer {
        Newcomer {
            kind: Kind::Coordinator,
            name: self.name,
            address: fabric.address(),
            host: Incarnation::NONE,
            token,
            proposer: self.me,
        }
    }

    /// Learns that a view is decided, whoever decided it.
    fn install<F: Fabric>(&mut self, view: &Arc<View>, sealed: &[u8], now: Instant, fabric: &mut F) {
        if view.id <= self.view().id {
            return;
        }
        self.announce_held(fabric);
        let jump = view.id != self.view().id.next();
        fabric.record(Record::new(Event_::ViewReceived, view.id.0, u64::from(jump)));
        fabric.count(if jump { Counter::ViewJumps } else { Counter::ViewsInstalled }, 1);
        fabric.publish_view(view.id, sealed);
        self.contact = now;
        self.learn_clear(view.cleared, fabric);
        self.follow_joins(view, now, fabric);
        self.vacancies.follow(&self.log.newest().view, view, now);
        self.log.push(Arc::clone(view), now);
        self.suspects.retain(|who, _| view.member(*who).is_some());
        self.suspect_former_life(fabric.address());
        self.requests.settle(view, fabric);
        match self.state {
            MembershipState::Member(who) if view.member(who).is_none() => {
                fabric.record(Record::new(Event_::Excluded, who.0, view.id.0));
                fabric.count(Counter::Exclusions, 1);
                fabric.publish_incarnation(Incarnation::NONE);
                self.links.prove(&self.config);
                self.stand_by(now);
            }
            MembershipState::Standby { token, .. } => {
                if let Some(member) = view.by_token(token) {
                    self.state = MembershipState::Member(member.incarnation);
                    fabric.publish_incarnation(member.incarnation);
                    fabric.record(Record::new(Event_::Joined, member.incarnation.0, view.id.0));
                } else if view.departed.iter().any(|d| d.token == token) {
                    self.stand_by(now);
                }
            }
            MembershipState::Leaving { who, .. } if view.member(who).is_none() => {
                fabric.record(Record::new(Event_::Left, who.0, view.id.0));
                fabric.publish_incarnation(Incarnation::NONE);
                self.state = MembershipState::Left;
            }
            MembershipState::Member(_)
            | MembershipState::Leaving { .. }
            | MembershipState::Left
            | MembershipState::Retired => {}
        }
        if view.retired.contains(self.me) {
            self.state = MembershipState::Retired;
            fabric.publish_incarnation(Incarnation::NONE);
        }
        self.renew_join(now);
        self.view_pending = true;
        if self.engine.slot() <= view.id {
            let stale = self.config.mutant.has(Mutant::StaleAcceptors);
            let acceptors = if stale { view.deciders() } else { view.acceptors.clone() };
            self.engine.open(view.id.next(), &acceptors, None);
            self.aborts = 0;
            self.lost_quorum = false;
            self.retry = now;
        }
    }

    /// What a new view asks for that survivors do not wait for: watches, and forgetting. Done on
    /// the next tick, so that it delays neither a decision's announcement nor CLEAR.
    fn follow<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.view_pending = false;
        let view = Arc::clone(self.view());
        let view = &*view;
        self.notices.settle(view);
        self.drift.follow(view);
        self.forget_proofs();
        // Whoever may hold a lease that is not cleared is watched on: its death may still have to
        // be proved. The leader has to act on any death, the others only on a coordinator's.
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
        for gone in self.watched.keys().filter(|address| !wanted.contains_key(address)) {
            fabric.unwatch(*gone);
        }
        for (&address, &lazy) in
            wanted.iter().filter(|(address, lazy)| self.watched.get(address) != Some(lazy))
        {
            if lazy {
                fabric.watch_lazily(address);
            } else {
                fabric.watch(address);
            }
        }
        self.watched = wanted;
        self.links.follow(view, self.incarnation(), &self.config, now);
        self.cliques.follow(view);
        match self.incarnation() {
            Some(who) => self.detector.follow(view, who, core::iter::empty(), &self.config, now),
            None => {
                self.detector.clear();
                self.cliques = Cliques::default();
            }
        }
    }

    /// Proofs are of use while a view that is not cleared names the dead.
    fn forget_proofs(&mut self) {
        let Some(entries) = self.log.range(self.cleared, ViewId(u64::MAX)) else { return };
        let named: BTreeSet<Incarnation> =
            entries.flat_map(|e| e.view.members.iter().map(|m| m.incarnation)).collect();
        self.proofs.retain(|who| named.contains(who));
    }

    /// Somebody died, or may have.
    fn accuse<F: Fabric>(
        &mut self,
        accused: Incarnation,
        by: Accusation,
        evidence: Evidence,
        now: Instant,
        fabric: &mut F,
    ) {
        let proof = evidence == Evidence::Proof || self.config.mutant.has(Mutant::SuspicionIsProof);
        if proof
            && self.proofs.insert(accused)
            && let Some(clearing) = &mut self.clearing
        {
            clearing.proved(&self.proofs, &self.config, fabric);
        }
        if self.suspect(accused, by, fabric) {
            let due = now + self.config.timing.notice_after;
            self.notices.raise(accused, by.level, evidence, due);
        }
    }

    /// Takes a member for one that has to go; false if it is none, or this process.
    fn suspect<F: Fabric>(&mut self, accused: Incarnation, by: Accusation, fabric: &mut F) -> bool {
        if self.view().member(accused).is_none() || Some(accused) == self.incarnation() {
            return false;
        }
        if self.suspects.insert(accused, by).is_none() {
            let record =
                Record { kind: Event_::Notice, level: by.level as u8, a: accused.0, b: by.accuser.0 };
            fabric.record(record);
        }
        true
    }

    fn accuse_address<F: Fabric>(&mut self, who: Address, evidence: Evidence, now: Instant, fabric: &mut F) {
        // A member that was removed already may still be one whose page has to be cleared.
        let newest = self.log.newest().view.id;
        let from = self.cleared.0.max(newest.0.saturating_sub(crate::log::LOG_VIEWS_MAX as u64 - 1));
        let accused: Vec<Incarnation> = (from..=newest.0)
            .filter_map(|id| self.log.get(ViewId(id)))
            .flat_map(|entry| entry.view.members.iter())
            .filter(|m| m.address == who)
            .map(|m| m.incarnation)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let by = Accusation { accuser: self.incarnation().unwrap_or_default(), level: Level::Deadbeat };
        for accused in accused {
            self.accuse(accused, by, evidence, now, fabric);
        }
    }

    /// Looks for decided views that were missed.
    fn ask<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.poll_due = now + self.config.timing.poll_every;
        let view = Arc::clone(self.view());
        if self.poll.is_busy() {
            // Whoever is asked again and again before the answer can come never hears one.
            return;
        }
        let silent = now.since(self.contact) > self.config.timing.resync_after;
        if silent || self.contact == Instant::ZERO {
            self.poll.snapshot(&view, &self.config, now, fabric);
        } else {
            self.poll.ask(&view, &self.config, now, fabric);
        }
    }

    /// Asks those who are said to decide now: of those who did, perhaps no majority is left.
    fn ask_others<F: Fabric>(&mut self, acceptors: Vec<Acceptor>, now: Instant, fabric: &mut F) {
        self.poll_due = now + self.config.timing.poll_every;
        let view = Arc::clone(self.view());
        self.poll.snapshot_of(acceptors, &view, &self.config, now, fabric);
    }

    fn fetched<F: Fabric>(&mut self, view: &Arc<View>, now: Instant, fabric: &mut F) {
        fabric.count(Counter::ViewsFetched, 1);
        let sealed = view.seal();
        self.install(view, &sealed, now, fabric);
        // There may be more.
        self.poll_due = now;
    }

    /// CLEAR holds for ever, so it may come from anywhere and at any time. A process that knows it
    /// can lead without waiting for what its predecessor has cleared.
    pub(super) fn learn_clear<F: Fabric>(&mut self, base: ViewId, fabric: &mut F) {
        if base > self.cleared {
            self.cleared = base;
            self.view_pending = true;
            fabric.publish_cleared(base);
        }
        if self.clearing.as_ref().is_some_and(|c| c.base() <= base) {
            self.clearing = None;
        }
    }

    fn found<F: Fabric>(&mut self, found: Found, now: Instant, fabric: &mut F) {
        if self.lost_quorum && found == Found::Failed {
            self.poll_due = self.poll_due.min(now + self.config.timing.backoff_max);
        } else {
            self.lost_quorum = false;
        }
        match found {
            Found::Empty { posted, .. } => {
                self.contact = now;
                self.poll.answered(now.since(posted), &self.config);
            }
            Found::NothingNewer(cleared) => {
                self.contact = now;
                self.learn_clear(cleared, fabric);
            }
            Found::Next(view) => self.fetched(&view, now, fabric),
            Found::Newer(view, cleared) => {
                self.learn_clear(cleared, fabric);
                self.fetched(&view, now, fabric);
            }
            Found::Undecided(slot) => {
                self.contact = now;
                if slot == self.view().id.next() {
                    self.requests.settle_slot();
                }
                if !self.leading {
                    // Whoever leads settles it. If it has done so already, the acceptors that are
                    // left may hold it under several numbers, and only a snapshot tells.
                    self.poll.snapshot(&Arc::clone(self.view()), &self.config, now, fabric);
                }
            }
            Found::Failed if self.lost_due <= now => {
                self.lost_due = now + self.config.timing.join_every;
                fabric.multicast(Group::Coordinators, &Message::Lost(self.view().id).encode());
            }
            Found::Failed => {}
        }
    }
}

impl Machine for Coordinator {
    fn start<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        let generation = fabric.address().generation;
        fabric.record(Record::new(Event_::Started, u64::from(generation), 0));
        let genesis = Arc::clone(self.view());
        // It may have been decided this very moment, and its predecessor's leases run on.
        let undated = self.config.mutant.has(Mutant::StartLongAgo);
        self.log = Log::new(Arc::clone(&genesis), if undated { Instant::ZERO } else { now });
        self.vacancies = Vacancies::begin(&genesis, now);
        if generation <= 1 {
            // In a later life the region tells of a later view. If a majority forgot theirs at once
            // and the ring has moved on, nobody could find out any more what was decided.
            fabric.publish_view(genesis.id, &genesis.seal());
        }
        self.poll_due = now + self.config.timing.poll_every;
        if !self.is_retired() && (generation > 1 || self.incarnation() == Some(Incarnation::NONE)) {
            // A later life, whose incarnation was somebody else's; or a coordinator that has come
            // to a running cluster.
            self.stand_by(now);
        }
        self.suspect_former_life(fabric.address());
        fabric.publish_incarnation(self.incarnation().unwrap_or_default());
        self.follow(now, fabric);
        self.engine.open(genesis.id.next(), &genesis.acceptors, None);
        self.poll.snapshot(&genesis, &self.config, now, fabric);
    }

    fn handle<F: Fabric>(&mut self, now: Instant, event: Event<'_>, fabric: &mut F) {
        match event {
            Event::Completion { token, result } => {
                if result.is_err() {
                    fabric.count(Counter::LinkErrors, 1);
                }
                let Some((part, peer, round)) = tokens::unpack(token) else { return };
                match part {
                    Part::EngineCas | Part::EngineWrite | Part::EngineRead => {
                        let outcome = self.engine.complete(part, peer, round, &result, fabric);
                        self.outcome(outcome, now, fabric);
                    }
                    Part::PollWord | Part::PollValue | Part::PollView => {
                        let found = self.poll.complete(part, peer, round, &result, &self.config, fabric);
                        if let Some(found) = found {
                            self.booted = true;
                            self.found(found, now, fabric);
                        }
                    }
                    Part::Fence => {
                        if let Some(clearing) = &mut self.clearing {
                            clearing.complete(peer, round, &result, &self.config, fabric);
                        }
                    }
                    Part::Link => {
                        let turn = self.links.complete(round, &result, &self.config, now);
                        links::record(turn, fabric);
                    }
                    Part::Heartbeat => {
                        let accuser = self.incarnation().unwrap_or_default();
                        match self.detector.complete(peer, round, &result, &self.config, now) {
                            // Who has to go then is to be seen from everybody's links.
                            Some(Verdict::Suspect(who, Level::Timeout))
                                if links::are_watched(&self.config) =>
                            {
                                self.links.doubt(who, now);
                            }
                            Some(Verdict::Suspect(who, level)) => {
                                fabric.count(level.suspicions(), 1);
                                fabric.record(Record {
                                    kind: Event_::Suspect,
                                    level: level as u8,
                                    a: who.0,
                                    b: 0,
                                });
                                let by = Accusation { accuser, level };
                                self.accuse(who, by, Evidence::Suspicion, now, fabric);
                            }
                            Some(Verdict::Retract(who)) => {
                                fabric.record(Record::new(Event_::Retract, who.0, 0));
                                fabric.count(Counter::FalseSuspicions, 1);
                                self.notices.retract(who);
                            }
                            None => {}
                        }
                    }
                }
            }
            Event::Datagram { from, bytes } => self.datagram(from, bytes, now, fabric),
            Event::Death { who, evidence } => self.accuse_address(who, evidence, now, fabric),
            Event::Seat { .. } | Event::Confirm { .. } => {}
        }
        self.drive(now, fabric);
    }

    fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        if self.view_pending {
            self.follow(now, fabric);
        }
        if self.poll.deadline(&self.config) <= now {
            self.booted = true;
            let found = self.poll.expire();
            self.found(found, now, fabric);
        }
        if self.poll_due <= now {
            self.ask(now, fabric);
        }
        let (is_proved, is_led) = (self.links.are_proved(), self.links.see_coordinator());
        if let MembershipState::Standby { token, as_of, due, alone } = &mut self.state
            && *due <= now
            && self.booted
        {
            *due = now + self.config.timing.join_every;
            if is_led {
                *alone = (*alone).max(now + self.config.timing.standby);
            }
            let (token, as_of) = (*token, *as_of);
            let newcomer = self.newcomer(token, fabric);
            let join = Message::Join { newcomer, as_of, proved: is_proved }.encode();
            if self.leading {
                self.admit_itself(fabric);
            }
            // Whoever decides asks in any case: see [`Coordinator::needs`].
            let asks = is_proved || self.view().acceptor(self.me).is_some();
            for acceptor in self.view().acceptors.clone() {
                if acceptor.proposer != self.me && asks {
                    fabric.send(acceptor.address, &join);
                }
            }
        }
        self.ask_to_leave(now, fabric);
        let me = self.incarnation().unwrap_or_default();
        self.detector.tick(&self.config, now, fabric);
        let view = Arc::clone(self.view());
        self.links.tick(self.incarnation(), &view, &self.config, now, fabric);
        self.judge_links(&view, now, fabric);
        if self.incarnation().is_some() {
            self.drift.tick(&view, me, (&mut self.rng, &self.config), now, fabric);
        }
        if self.leading {
            if let Some(lease) = self.lease_scaler.shrink(&view, &self.config, now) {
                self.requests.set_lease(lease);
            }
            // Nobody has to be told: the next view will.
            self.notices.clear();
        }
        self.notices.tick(me, &view, &self.config, now, fabric);
        if let Some(clearing) = &mut self.clearing {
            clearing.tick(&self.config, now, fabric);
        }
        self.drive(now, fabric);
    }

    fn deadline(&self) -> Instant {
        if self.view_pending {
            return Instant::ZERO;
        }
        let poll = if self.poll.is_busy() {
            self.poll_due.min(self.poll.deadline(&self.config))
        } else {
            self.poll_due
        };
        let state = match self.state {
            MembershipState::Standby { due, alone, .. } if self.booted => {
                due.min(if self.leading { due } else { alone })
            }
            MembershipState::Leaving { due, .. } => due,
            MembershipState::Standby { .. }
            | MembershipState::Member(_)
            | MembershipState::Left
            | MembershipState::Retired => Instant::NEVER,
        };
        let clearing = self.clearing.as_ref().map_or(Instant::NEVER, Clearing::deadline);
        let held = self.held.as_ref().map_or(Instant::NEVER, |(until, _)| *until);
        let drift = if self.incarnation().is_some() { self.drift.deadline() } else { Instant::NEVER };
        let lease_scaler =
            if self.leading { self.lease_scaler.due(&self.config.timing) } else { Instant::NEVER };
        let cliques = self.links_due();
        poll.min(state)
            .min(cliques)
            .min(self.links.deadline())
            .min(lease_scaler)
            .min(self.replace_due)
            .min(clearing)
            .min(held)
            .min(drift)
            .min(self.retry_deadline())
            .min(self.joins_due())
            .min(self.detector.deadline())
            .min(self.notices.deadline())
    }
}

/// What [`Engine`] told, for the leader's part of the machine.
type Told = Option<Outcome>;
