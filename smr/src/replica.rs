//! A replica: its role in the newest view, and what it does in it.

use crate::REPLICAS_MAX;
use crate::area::{Area, Caller};
use crate::config::{Config, Voter};
use crate::direct::{self, Prefix};
use crate::entry::Kind;
use crate::follow::{Activity, Follow, Header, Replicated, Report};
use crate::lead::Lead;
use crate::log::{Index, Log, Term};
use crate::mutants::Mutant;
use crate::preset::{Active, Detector, Guard, Known, Others, Turn, Views, Work};
use crate::service::{Service, sort_freed};
use crate::snapshot::{Loader, Provider};
use crate::state::{self, NotLoaded, State};
use crate::takeover::{Adopted, Progress, Reader, Takeover, config_of};
use crate::time::LogTime;
use crate::tokens::{Part, bytes_of};
use obol_fabric::{Address, Completion, Evidence, Fabric, Incarnation, Instant, LinkError, Nanos};
use obol_membership::View;
use std::collections::BTreeSet;

/// Polls of a replica that polls without a pause between two rounds of other work.
const POLLS_PER_TICK: u32 = 32;

/// Interval of the steps of work that its service has put off. Without a pause, the replicas of a host
/// that all drop their keys keep the cores from leaders and clients; a step takes about a third of it.
const WORK_EVERY: Nanos = Nanos::from_micros(250);

/// State of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplicaState {
    /// It is not a member. Its log remains, and its memory may still count.
    Out,
    /// It follows the leader.
    Following {
        /// It has all of the log: it could lead.
        whole: bool,
    },
    /// It is to lead, and collects what may have been committed.
    TakingOver,
    /// It leads.
    Leading {
        /// It serves.
        ready: bool,
        /// Voters that have all of the log in memory.
        redundancy: usize,
    },
    /// It is the oldest replica and has no log: it waits for one that has.
    Waiting,
    /// It is the oldest replica and cannot lead, because another one has the log, or it has no place in
    /// the configuration. It has to end and to start again, so that another one becomes the oldest.
    /// Nothing is lost.
    Yields,
    /// The leader has another log than this replica: one of them was begun anew by mistake.
    Misfit,
    /// The fabric cannot change permissions, which the preset needs.
    Unsupported,
    /// Its service refuses the state of the other replicas. Without it, it cannot follow.
    Refuses,
}

/// A replica that does not vote leaves when it has reported that to the leader for this long.
const LEAVE_AFTER: Nanos = Nanos::from_millis(5);

/// What becomes of the store when a replica leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Departure {
    /// The others continue, or this replica had nothing.
    Left,
    /// No other replica has the store.
    Last,
    /// The others cannot continue, at least not yet.
    Pending,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Role {
    Following,
    TakingOver {
        takeover: Takeover,
        /// It lacks the log up to here.
        behind: Option<Index>,
    },
    Leading(Box<Lead>),
    Waiting,
    Yields,
}

/// Since when a replica that is to lead lacks a majority of the voters, and does not get on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Stall {
    /// How far it is, and since when.
    since: Option<(u64, Instant)>,
    /// For so long that it does not get on by itself.
    is_lasting: bool,
}

impl Stall {
    /// `progress` changes while it gets on; `None` if it lacks nothing.
    fn look(&mut self, now: Instant, progress: Option<u64>, patience: Nanos) {
        let since = |progress| match self.since {
            Some((before, since)) if before == progress => (progress, since),
            _ => (progress, now),
        };
        self.since = progress.map(since);
        self.is_lasting = self.since.is_some_and(|(_, since)| now.since(since) >= patience);
    }
}

/// How often a replica looks into its memory, and how long it waits for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pace {
    /// Poll interval while something is expected; zero keeps a core busy.
    pub poll_every: Nanos,
    /// Poll interval while nothing is: whoever needs a look sooner sends a wakeup, which may be lost.
    pub idle_every: Nanos,
    /// How long a replica that sends no chunk of a snapshot may take before another one is asked.
    pub patience: Nanos,
    /// How often a detector that reads the memory of others does so, at most.
    pub look_every: Nanos,
}

/// A replica of a service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Replica<S, D = Views, G = Active> {
    area: Area,
    pace: Pace,
    /// It may begin a log of this identity, for so many voters.
    founds: Option<(u64, u32)>,
    unreplicated: bool,
    time: LogTime,
    of: Replicated<S>,
    follow: Follow,
    provider: Provider,
    loader: Loader<S>,
    detector: D,
    guard: G,
    /// Its service has refused the state of the others.
    refuses: bool,
    /// The newest term in which it was excluded while it led. It leads a term once: what it wrote at
    /// an index may be in some memory, and must not be followed by another entry of the same term.
    lost: Term,
    /// The turns of its replication plane, and whether it has none at present.
    turns: u64,
    is_held: bool,
    own: Option<Incarnation>,
    /// Its place among the replicas of the view.
    at: usize,
    replicas: Vec<(Incarnation, Address)>,
    clients: Vec<Caller>,
    /// Replicas of earlier views whose deaths are proved.
    dead: BTreeSet<Address>,
    /// Its ring at others, once it has voted.
    place: Option<u8>,
    /// Its address, once it was a member.
    address: Option<Address>,
    /// It is to leave.
    retires: bool,
    /// Since when it reports that to this leader, and whether that was long enough.
    told: Option<(Incarnation, Instant)>,
    is_known: bool,
    /// It is to continue alone, as a log of this identity.
    alone: Option<u64>,
    /// Since when it lacks a majority of the voters.
    stall: Stall,
    /// The newest of the numbers that the WRITEs of this replica as a leader are known by: completions of
    /// an earlier term must not count for a peer of this one.
    ids: u32,
    role: Role,
    published: Option<Header>,
    poll_at: Instant,
    /// When the next step of the work that its service has put off is due; zero if none was left.
    work_at: Instant,
}

impl<S: Service, D: Detector, G: Guard> Replica<S, D, G> {
    /// A replica without a log, with the service's initial state.
    pub fn new(area: Area, pace: Pace, service: S) -> Self {
        let state = State::new(service, G::KIND);
        let of = Replicated { state, log: Log::default(), gap: false, lags: false };
        Self {
            area,
            pace,
            founds: None,
            unreplicated: false,
            time: LogTime::default(),
            of,
            follow: Follow::default(),
            provider: Provider::default(),
            loader: Loader::default(),
            detector: D::default(),
            guard: G::default(),
            refuses: false,
            lost: Term(0),
            turns: 0,
            is_held: false,
            own: None,
            at: 0,
            replicas: Vec::new(),
            clients: Vec::new(),
            dead: BTreeSet::new(),
            place: None,
            address: None,
            retires: false,
            told: None,
            is_known: false,
            alone: None,
            stall: Stall::default(),
            ids: 0,
            role: Role::Following,
            published: None,
            poll_at: Instant::ZERO,
            work_at: Instant::ZERO,
        }
    }

    /// The same, which may begin a log when it is the oldest replica: the first one of a new store.
    /// `id` is random, for the log's identity; `voters` is how many there should be.
    #[must_use]
    pub fn founding(mut self, id: u64, voters: u32) -> Self {
        self.founds = Some((self.of.state.identity(id), voters));
        self
    }

    /// The same without copies, as a baseline: it answers at once, and what it answered is lost with
    /// it. Other replicas get nothing from it.
    #[must_use]
    pub const fn unreplicated(mut self) -> Self {
        self.unreplicated = true;
        self
    }

    /// The same with a bug.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn with_mutant(mut self, mutant: crate::Mutant) -> Self {
        self.of.state.mutant = crate::mutants::ActiveMutant::new(mutant);
        self.of.state.service.plant(mutant);
        self.guard.plant(mutant);
        self.detector.plant(mutant);
        self
    }

    /// Takes all turns from its replication plane (Mu, 3.1), or gives them back: what was begun goes on,
    /// and the detector and the permissions go on. For tests of fate sharing.
    #[doc(hidden)]
    pub const fn hold_replication(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// It is to leave: the leader first takes it out of the voters, so that the others can go on without
    /// it, also if several leave at once. [`Replica::departure`] says when that is done.
    pub fn retire(&mut self) {
        if !core::mem::replace(&mut self.retires, true) {
            self.follow.report_again();
            self.poll_at = Instant::ZERO;
        }
        if let Role::Leading(lead) = &mut self.role {
            lead.retire();
        }
    }

    /// What becomes of the store if it leaves now.
    pub fn departure(&self) -> Departure {
        let (Some(own), true) = (self.address, self.of.state.log != 0) else { return Departure::Left };
        if let Role::Leading(lead) = &self.role {
            return lead.departure();
        }
        // It may vote by an entry that it has not applied.
        let unapplied = self.of.log.after(self.of.state.applied.index);
        let (config, _) = config_of(unapplied, &self.of.state.config);
        let Some(rest) = config.voter(own).map(|_| config.without(own)) else {
            // If it has never been one, the leader may be about to make it a voter, and then to rely on it.
            let is_known = self.is_known || self.own.is_none() || self.place.is_some();
            return if is_known { Departure::Left } else { Departure::Pending };
        };
        let is_there = |at: Address| self.replicas.iter().any(|(_, replica)| *replica == at);
        let Some(rest) = rest else {
            let is_alone = !self.replicas.iter().any(|(_, at)| *at != own);
            return if is_alone { Departure::Last } else { Departure::Pending };
        };
        // A member waits until it is no voter any more. An excluded one can say nothing to the leader.
        let count = rest.voters.iter().filter(|voter| is_there(voter.address)).count();
        let is_left = self.own.is_none() && count >= rest.majority();
        if is_left { Departure::Left } else { Departure::Pending }
    }

    /// Continues with what it has, as the only voter of a log of a new identity: an operator says that no
    /// majority of its voters comes back. `id` is random. Does so if it is to lead or leads, and ignores that
    /// word if a majority of the voters is there after all.
    pub fn continue_alone(&mut self, id: u64) {
        self.alone = Some(self.of.state.identity(id));
        self.poll_at = Instant::ZERO;
    }

    /// Whether it is to lead, or leads, and commits nothing, because fewer than a majority of the voters are
    /// in its view: it does not get on unless others come back, or it continues alone.
    pub const fn is_stalled(&self) -> bool {
        self.stall.is_lasting
    }

    /// How far it is, if it is to lead or leads, and lacks a majority of the voters to get on.
    fn lacks_voters(&self) -> Option<u64> {
        let (config, progress) = match &self.role {
            Role::TakingOver { takeover, .. } => {
                (takeover.config()?, takeover.progress() + self.loader.progress())
            }
            Role::Leading(lead) => (lead.config(), lead.pending(&self.of.log)?),
            Role::Following | Role::Waiting | Role::Yields => return None,
        };
        (!self.has_majority(config)).then_some(progress)
    }

    /// Whether a majority of the voters is in its view.
    fn has_majority(&self, config: &Config) -> bool {
        let is_here = |voter: &&Voter| self.replicas.iter().any(|(_, at)| *at == voter.address);
        config.voters.iter().filter(is_here).count() >= config.majority()
    }

    /// An operator may have said that it is to continue alone.
    fn heed_operator<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        let Some(id) = self.alone else { return };
        // Without views, one that gets nowhere leads and follows by turns.
        let follows = !D::OF_VIEWS && matches!(self.role, Role::Following);
        let lacks = self.lacks_voters().is_some() || follows && !self.has_majority(&self.of.state.config);
        let may = lacks || self.of.state.mutant.has(Mutant::ContinuesBesideOthers);
        if !may || G::DIRECT {
            // A log that others continue, or can read, is not replaced.
            self.alone = None;
        } else if let Role::Leading(lead) = &mut self.role {
            let (term, own) = (lead.term(), fabric.address());
            lead.end(fabric);
            self.ids = lead.ids();
            let mut adopted = Adopted::of_leader(&self.of, lead.config().clone(), own);
            if self.of.state.mutant.has(Mutant::ContinuesFromApplied) {
                adopted.records.clear();
            }
            self.of.drop_tail();
            self.alone = None;
            let adopted = self.begin_anew(id, adopted, own);
            self.lead(now, term, adopted, fabric);
        }
    }

    /// Its state.
    pub fn state(&self) -> ReplicaState {
        match &self.role {
            Role::Yields => ReplicaState::Yields,
            _ if self.follow.misfit => ReplicaState::Misfit,
            _ if !self.guard.is_supported() => ReplicaState::Unsupported,
            _ if self.refuses => ReplicaState::Refuses,
            _ if self.own.is_none() => ReplicaState::Out,
            Role::Following => ReplicaState::Following { whole: self.is_whole() },
            Role::Waiting => ReplicaState::Waiting,
            Role::TakingOver { .. } => ReplicaState::TakingOver,
            Role::Leading(lead) => {
                ReplicaState::Leading { ready: lead.is_ready(), redundancy: lead.redundancy() }
            }
        }
    }

    /// Whether it has a log without a hole.
    pub fn is_whole(&self) -> bool {
        self.of.state.log != 0 && !self.of.is_behind()
    }

    /// Its incarnation in the newest view; `None` if it is not a member.
    pub const fn incarnation(&self) -> Option<Incarnation> {
        self.own
    }

    /// The service's state.
    pub const fn service(&self) -> &S {
        &self.of.state.service
    }

    /// The identity of its log; 0 for none.
    pub const fn log(&self) -> u64 {
        self.of.state.log
    }

    /// The newest entry that it has applied.
    pub const fn applied(&self) -> Index {
        self.of.state.applied.index
    }

    /// The newest entry that it has.
    pub fn last(&self) -> Index {
        self.of.log.end().index
    }

    /// A digest of all that it has applied: equal for replicas that have applied the same.
    pub const fn digest(&self) -> u64 {
        self.of.state.digest
    }

    /// The digest of its log up to an entry that it has and may not have applied.
    pub fn digest_at(&self, index: Index) -> Option<u64> {
        if index < self.applied() || index > self.last() || self.of.gap {
            return None;
        }
        let rest = self.of.log.after(self.applied()).take_while(|record| record.index <= index);
        Some(rest.fold(self.digest(), state::mix))
    }

    /// Sessions in its state.
    pub fn sessions(&self) -> usize {
        self.of.state.sessions.len()
    }

    /// The term that it leads or follows.
    pub fn term(&self) -> Term {
        match &self.role {
            Role::TakingOver { takeover, .. } => takeover.term,
            Role::Leading(lead) => lead.term(),
            _ => self.follow.term(),
        }
    }

    /// The newest configuration: a leader's may not be committed yet.
    pub fn config(&self) -> &Config {
        match &self.role {
            Role::Leading(lead) => lead.config(),
            _ => &self.of.state.config,
        }
    }

    /// As a leader, the entry of its newest configuration; 0 for one of before its log.
    pub fn config_index(&self) -> Option<Index> {
        match &self.role {
            Role::Leading(lead) => Some(lead.config_index()),
            _ => None,
        }
    }

    /// The newest term whose leader may write to it; 0 if its guard restricts no one.
    pub fn granted(&self) -> Term {
        self.guard.granted()
    }

    /// As a leader, the newest committed entry.
    pub fn commit(&self) -> Option<Index> {
        match &self.role {
            Role::Leading(lead) => Some(lead.commit()),
            _ => None,
        }
    }

    /// As a leader, the replicas that count towards a majority, each with the offset in the log up
    /// to which places in its ring have been used again.
    pub fn overwritten(&self) -> Vec<(Address, u64)> {
        match &self.role {
            Role::Leading(lead) => lead.overwritten(),
            _ => Vec::new(),
        }
    }

    /// The offset in the log, in bytes, up to which it has applied it.
    pub const fn applied_bytes(&self) -> u64 {
        self.of.state.applied.at.0
    }

    /// Requests that it has answered as the present leader.
    pub fn answered(&self) -> u64 {
        match &self.role {
            Role::Leading(lead) => lead.answered(),
            _ => 0,
        }
    }

    /// When [`Replica::tick`] is due next.
    pub(crate) const fn deadline(&self) -> Instant {
        self.poll_at
    }

    /// Installs the newest view with this replica's incarnation in it.
    pub(crate) fn install<F: Fabric>(&mut self, view: &View, own: Option<Incarnation>, fabric: &mut F) {
        self.detector.install(view);
        self.replicas = crate::replicas(view).map(|member| (member.incarnation, member.address)).collect();
        self.clients = self.area.clients(view);
        let config = self.config().clone();
        self.dead.retain(|at| config.voter(*at).is_some());
        let at = self.replicas.iter().position(|(who, _)| Some(*who) == own);
        self.address = at.map(|at| self.replicas[at].1).or(self.address);
        let is_other = self.own != own.filter(|_| at.is_some());
        self.own = own.filter(|_| at.is_some());
        self.at = at.unwrap_or(REPLICAS_MAX);
        self.guard.install(view, self.own);
        self.poll_at = Instant::ZERO;
        self.follow.report_again();
        if is_other {
            self.step_down(fabric);
        }
        self.elect(fabric);
    }

    /// Leads, or not, as the detector says.
    fn elect<F: Fabric>(&mut self, fabric: &mut F) {
        let reign = self.detector.reign();
        let leads = self.own.is_some() && reign.map(|reign| reign.leader) == self.own;
        let is_of_reign = match &self.role {
            Role::TakingOver { .. } | Role::Leading(_) => reign.map(|reign| reign.term) == Some(self.term()),
            Role::Following | Role::Waiting | Role::Yields => true,
        };
        let waits = !D::OF_VIEWS && matches!(self.role, Role::Waiting);
        if (!leads || !is_of_reign) && !waits {
            self.step_down(fabric);
        }
        if leads {
            match &mut self.role {
                Role::Leading(lead) => lead.install(&self.replicas, &self.clients),
                Role::TakingOver { takeover, .. } => takeover.touch(),
                Role::Yields => {}
                Role::Following | Role::Waiting => {
                    self.take_over(reign.map_or(Term(0), |reign| reign.term), fabric);
                }
            }
        }
    }

    /// Follows: what it has not applied may not be in the log of the next leader.
    fn step_down<F: Fabric>(&mut self, fabric: &mut F) {
        self.guard.release();
        match &mut self.role {
            Role::Leading(lead) => {
                lead.end(fabric);
                self.ids = lead.ids();
                self.of.drop_tail();
                self.role = Role::Following;
            }
            Role::TakingOver { .. } => {
                self.of.drop_tail();
                self.role = Role::Following;
            }
            Role::Waiting => self.role = Role::Following,
            Role::Following | Role::Yields => {}
        }
    }

    /// It is the oldest replica.
    fn take_over<F: Fabric>(&mut self, term: Term, fabric: &mut F) {
        if term <= self.lost {
            return;
        }
        if self.of.state.log == 0
            && let Some((id, voters)) = self.founds.take()
        {
            self.found(id, voters, fabric);
        }
        if self.of.state.log != 0 {
            self.of.drop_tail();
            let takeover = Takeover::begin(term, &mut self.guard, fabric);
            self.role = Role::TakingOver { takeover, behind: None };
        } else {
            self.role = Role::Waiting;
        }
    }

    /// It has no log, and views do not say who leads: it begins one if it may and no other one has or
    /// begins one. If none can, the oldest one says so.
    fn found_or_wait<F: Fabric>(&mut self, own: Incarnation, fabric: &F) {
        let has_nothing = self.detector.others((own, self.founds.is_some())) == Others::HaveNothing;
        if has_nothing && let Some((id, voters)) = self.founds.take() {
            self.role = Role::Following;
            self.found(id, voters, fabric);
        } else if has_nothing && self.at == 0 {
            self.role = Role::Waiting;
        } else if self.role == Role::Waiting {
            self.role = Role::Following;
        }
    }

    /// Waits for a replica that has a log or may begin one, and gives way to it. If there is none,
    /// leaving would help nobody, and change views for ever.
    fn poll_waiting<F: Fabric>(&mut self, fabric: &F) -> bool {
        // Without views it need not give way: see `found_or_wait`.
        let Some(own) = self.own.filter(|_| D::OF_VIEWS) else { return false };
        let has_log = |(at, (who, _)): (usize, &(Incarnation, Address))| {
            let report = Report::own(self.area, at, own, fabric);
            report.is_some_and(|report| report.who == *who && (report.log != 0 || report.founds))
        };
        if self.replicas.iter().enumerate().take(REPLICAS_MAX).any(has_log) {
            self.role = Role::Yields;
        }
        false
    }

    /// Begins a log. Its takeover finds nothing but the header.
    fn found<F: Fabric>(&mut self, id: u64, voters: u32, fabric: &F) {
        self.of.state.log = id;
        self.of.state.config = Config::first(voters, fabric.address());
        self.publish(fabric);
    }

    fn lead<F: Fabric>(&mut self, now: Instant, term: Term, adopted: Adopted, fabric: &mut F) {
        let own = fabric.address();
        let place = adopted.config.voter(own).map(|voter| voter.place).or(self.place);
        let Some((place, incarnation)) = place.zip(self.own) else {
            self.role = Role::Yields;
            return;
        };
        self.place = Some(place);
        let how = (G::DIRECT, self.ids);
        let lead = Lead::begin((incarnation, own), self.area, term, place, adopted, how, &mut self.of);
        let mut lead = lead.with_time(now, &mut self.time).with_reads(G::READS);
        if self.unreplicated {
            lead = lead.without_copies();
        }
        if G::DIRECT {
            lead.feed_itself(&self.of, fabric);
        }
        lead.install(&self.replicas, &self.clients);
        if self.retires {
            lead.retire();
        }
        self.role = Role::Leading(Box::new(lead));
    }

    /// Polls own memory: once, or [`POLLS_PER_TICK`] times if it is busy polling.
    pub(crate) fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        let polls = if self.interval(now) == Nanos::ZERO { POLLS_PER_TICK } else { 1 };
        let mut more = false;
        for _ in 0..polls {
            more = self.poll(now, fabric);
            if !more {
                core::hint::spin_loop();
            }
            if matches!(&self.role, Role::Leading(lead) if lead.is_waiting()) {
                break;
            }
        }
        if let Some(own) = self.own {
            let Self { area, pace, of, provider, replicas, .. } = self;
            provider.poll(now, own, replicas, *area, pace.patience, of, fabric);
        }
        let next = if more { now } else { now + self.interval(now) };
        self.poll_at = next.min(self.work(now));
    }

    /// Does a step of the work that its service has put off, if one is due. Returns when the next one is.
    fn work(&mut self, now: Instant) -> Instant {
        if now < self.work_at {
            return self.work_at;
        }
        let was_left = self.work_at != Instant::ZERO;
        let is_left = self.of.state.service.work();
        if is_left || was_left {
            sort_freed();
        }
        self.work_at = if is_left { now + WORK_EVERY } else { Instant::ZERO };
        if is_left { self.work_at } else { Instant::NEVER }
    }

    fn interval(&self, now: Instant) -> Nanos {
        let Pace { poll_every, idle_every, .. } = self.pace;
        if !self.is_idle(now) {
            return poll_every;
        }
        // Others look whether its counter has gone on, or for its heartbeats.
        let idle_every =
            if D::OF_VIEWS { idle_every } else { idle_every.min(Nanos(self.look_every().0 / 2)) };
        idle_every.max(poll_every)
    }

    /// Whether nothing has to be polled for soon: whatever comes next begins with a view, a death, a
    /// completion or a wakeup. No one waits for a follower that has all of the log: the leader sends
    /// it a wakeup before its ring there is full, and whoever is to lead does when it asks for the
    /// permission or a vote. A leader that is to spin never is idle.
    fn is_idle(&self, now: Instant) -> bool {
        let is_quiet = match &self.role {
            Role::Following => self.own.is_none() || self.is_whole(),
            Role::Leading(lead) => self.pace.poll_every != Nanos::ZERO && lead.is_idle(&self.of.log),
            Role::TakingOver { .. } => false,
            Role::Waiting | Role::Yields => true,
        };
        is_quiet && !self.provider.is_serving(now, self.pace.patience)
    }

    /// Returns whether there may be more to do.
    fn poll<F: Fabric>(&mut self, now: Instant, fabric: &mut F) -> bool {
        let turn = Turn {
            area: self.area,
            every: self.look_every(),
            trusts: self.detector.trusts(),
            prefix: Prefix::of(&self.of),
        };
        self.guard.poll(now, &turn, fabric);
        self.detect(now, fabric);
        if self.is_held {
            return false;
        }
        self.turns += 1;
        self.heed_operator(now, fabric);
        let more = match &mut self.role {
            Role::Following => self.poll_following(now, fabric),
            Role::TakingOver { .. } => self.poll_takeover(now, fabric),
            Role::Leading(lead) => lead.poll(now, &mut self.of, &mut self.guard, &self.dead, fabric),
            Role::Waiting => self.poll_waiting(fabric),
            Role::Yields => false,
        };
        self.time.look(now, &self.of.log, &self.of.state.service);
        let progress = self.lacks_voters();
        self.stall.look(now, progress, self.pace.patience);
        self.publish(fabric);
        more
    }

    /// Interval of the detector: a look has to find that a counter went on since the one before.
    fn look_every(&self) -> Nanos {
        self.pace.look_every.max(self.pace.poll_every.saturating_mul(2))
    }

    /// Whether it may become a candidate (DARE, 3.2.2): by the newest configuration in its log.
    fn may_stand<F: Fabric>(&self, fabric: &F) -> bool {
        let own = fabric.address();
        let votes = |config: &Config| config.voter(own).is_some();
        let is_whole = G::DIRECT && self.is_whole();
        is_whole && (votes(&self.of.state.config) || votes(&self.own_log(fabric).1))
    }

    /// The part of its log that is not in its state, and the configuration in force at its end.
    fn own_log<F: Fabric>(&self, fabric: &F) -> (Vec<crate::log::Record>, Config, Index) {
        let records = direct::rest(self.area, &Prefix::of(&self.of), fabric);
        let (config, index) = config_of(records.iter(), &self.of.state.config);
        (records, config, index)
    }

    /// Looks who leads, if views do not say that.
    fn detect<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        if D::OF_VIEWS {
            return;
        }
        if let Some(own) = self.own.filter(|_| self.of.state.log == 0) {
            self.found_or_wait(own, fabric);
        }
        let pending = match &self.role {
            // Another leader may write here, so this one was excluded.
            Role::Leading(lead) if self.guard.election().term > lead.term() => {
                self.lost = lead.term();
                self.step_down(fabric);
                None
            }
            Role::Leading(lead) => lead.pending(&self.of.log),
            Role::TakingOver { takeover, .. } => Some(takeover.progress() + self.loader.progress()),
            Role::Following | Role::Waiting | Role::Yields => None,
        };
        let known = Known {
            area: self.area,
            every: self.look_every(),
            own: self.own,
            config: &self.of.state.config,
            log: self.of.state.log,
            granted: self.guard.granted(),
            lost: self.lost,
            work: Work { turns: self.turns, pending },
            leads: matches!(self.role, Role::Leading(_)),
            stands: self.may_stand(fabric),
            election: self.guard.election(),
        };
        if self.detector.poll(now, &known, fabric) {
            self.elect(fabric);
        }
    }

    fn poll_following<F: Fabric>(&mut self, now: Instant, fabric: &mut F) -> bool {
        let more = if G::DIRECT {
            self.follow.poll_direct(self.area, &mut self.of, fabric)
        } else {
            self.follow.poll(self.area, &mut self.of, fabric)
        };
        // A leader that waits for its permission sends it nothing by which it could see that.
        if !G::REVOKES && self.of.state.log == 0 {
            self.follow.misfit |= self.own.is_some_and(|own| crate::grants::is_asked(own, self.area, fabric));
        }
        let leader = self.detector.leader();
        if let (Some(own), Some(leader)) = (self.own, leader)
            && self.at < REPLICAS_MAX
        {
            let founds = self.founds.is_some() && self.of.state.log == 0;
            let says = (founds, self.retires);
            if self.retires {
                let told = self.told.filter(|(to, _)| *to == leader.0).unwrap_or((leader.0, now));
                (self.told, self.is_known) = (Some(told), now.since(told.1) >= LEAVE_AFTER);
            }
            self.follow.report(now, own, self.at, leader, self.area, &self.of, says, fabric);
            if self.of.gap {
                self.load(now, own, self.of.log.base().index, fabric);
            } else {
                self.loader.stop(&mut self.of);
            }
        }
        more
    }

    fn load<F: Fabric>(&mut self, now: Instant, own: Incarnation, least: Index, fabric: &mut F) {
        let (area, own) = (self.area, (own, self.at));
        let pauses = (self.pace.poll_every, self.pace.patience);
        let leader = self.detector.leader().map(|(leader, _)| leader);
        let Self { loader, replicas, of, .. } = self;
        loader.poll(now, own, replicas, leader, least, area, pauses, of, fabric);
    }

    /// A chunk of a snapshot was READ.
    fn load_chunk(&mut self, now: Instant, id: u32, result: Result<&[u8], LinkError>) {
        let own = self.own.unwrap_or_default();
        let may_load = !matches!(self.role, Role::Leading(_)) && !self.refuses;
        match self.loader.on_read(now, own, id, result, &mut self.of, may_load) {
            Ok(false) => {}
            Ok(true) => {
                self.founds = None;
                if let Role::TakingOver { takeover, behind } = &mut self.role {
                    *behind = None;
                    takeover.touch();
                }
            }
            Err(NotLoaded::Refused) => self.refuses = true,
            // Another one follows.
            Err(NotLoaded::OfNoUse) => {}
        }
        self.poll_at = Instant::ZERO;
    }

    /// Leads if a majority of the voters has voted for it (DARE, 3.2.2). Nobody else can write to its log
    /// any more, and a majority has found that it is recent enough.
    fn poll_election<F: Fabric>(&mut self, now: Instant, fabric: &mut F) -> bool {
        let Role::TakingOver { takeover, .. } = &self.role else { return false };
        let (term, own) = (takeover.term, fabric.address());
        if !self.guard.seized(own, fabric) {
            return false;
        }
        let (records, config, config_index) = self.own_log(fabric);
        let votes = config.voters.iter().filter(|voter| self.guard.seized(voter.address, fabric)).count();
        if votes < config.majority() {
            return false;
        }
        self.guard.elected();
        let (low, memories) = (self.of.log.base().index, Vec::new());
        self.lead(now, term, Adopted { records, low, config, config_index, memories }, fabric);
        true
    }

    fn poll_takeover<F: Fabric>(&mut self, now: Instant, fabric: &mut F) -> bool {
        if G::DIRECT {
            return self.poll_election(now, fabric);
        }
        let Role::TakingOver { takeover, behind } = &mut self.role else { return false };
        let term = takeover.term;
        if self.alone.is_some() {
            // Nobody has what it lacks.
            *behind = None;
        }
        takeover.set_alone(self.alone.is_some());
        if let (Some(least), Some(own)) = (*behind, self.own) {
            if self.at < REPLICAS_MAX {
                self.load(now, own, least, fabric);
            }
            return false;
        }
        let replicas: Vec<Address> = self.replicas.iter().map(|(_, at)| *at).collect();
        match takeover.poll(now, self.area, &self.of, &replicas, &self.guard, fabric) {
            Progress::Waits => false,
            Progress::Behind(least) => {
                *behind = Some(least);
                true
            }
            Progress::Done(adopted) => {
                let adopted = match self.alone.take() {
                    Some(id) => self.begin_anew(id, *adopted, fabric.address()),
                    None => *adopted,
                };
                self.lead(now, term, adopted, fabric);
                true
            }
        }
    }

    /// Gives the log another identity, with this replica as the only voter. Others of the log before do not
    /// mix with it.
    fn begin_anew(&mut self, id: u64, mut adopted: Adopted, own: Address) -> Adopted {
        let place = self.place.unwrap_or_default();
        let voters = vec![Voter { address: own, place }];
        let config = Config { target: self.of.state.config.target, voters, newest_place: place };
        (self.of.state.log, self.of.state.config) = (id, config.clone());
        // What changed the voters of the log before has no effect here. Its bytes keep their places.
        for record in adopted.records.iter_mut().filter(|record| record.kind == Kind::Config) {
            record.kind = Kind::Read;
        }
        adopted.memories.retain(|memory| memory.at == own);
        for memory in &mut adopted.memories {
            memory.header = memory.header.map(|header| crate::follow::Header { log: id, ..header });
        }
        (adopted.config, adopted.config_index) = (config, Index(0));
        adopted
    }

    /// Publishes how far it is, and notes its place.
    fn publish<F: Fabric>(&mut self, fabric: &F) {
        let State { log, applied, config, sessions, .. } = &self.of.state;
        let sessions = sessions.len() as u64;
        let activity = match &self.role {
            Role::Following | Role::Yields => Activity::Follows,
            Role::TakingOver { .. } | Role::Leading(_) if self.stall.is_lasting => Activity::Stalls,
            Role::TakingOver { .. } => Activity::TakesOver,
            Role::Leading(lead) if lead.is_ready() => Activity::Leads,
            Role::Leading(_) => Activity::TakesOver,
            Role::Waiting => Activity::Waits,
        };
        let granted = self.guard.granted();
        let (log, applied, gap) = (*log, *applied, self.of.is_behind());
        let founds = log == 0 && self.founds.is_some();
        let failed = self.detector.failed();
        let target = if log == 0 { 0 } else { u8::try_from(config.target).unwrap_or(u8::MAX) };
        let header = Header { log, applied, gap, founds, sessions, activity, granted, failed, target };
        if self.published != Some(header) {
            self.published = Some(header);
            header.publish(self.area, fabric);
            self.place = config.voter(fabric.address()).map(|voter| voter.place).or(self.place);
        }
    }

    /// A wakeup: there are requests, or the leader needs a report.
    pub(crate) const fn on_wakeup(&mut self) {
        self.poll_at = Instant::ZERO;
        self.follow.report_soon();
    }

    /// The client beside it has requests, if this replica leads.
    pub(crate) const fn on_call(&mut self) {
        self.poll_at = Instant::ZERO;
    }

    /// A process has died.
    pub(crate) fn on_death(&mut self, who: Address, evidence: Evidence) {
        if evidence == Evidence::Proof && self.config().voter(who).is_some() {
            self.dead.insert(who);
            self.poll_at = Instant::ZERO;
        }
    }

    pub(crate) fn on_completion<F: Fabric>(
        &mut self,
        now: Instant,
        part: Part,
        argument: u32,
        result: Result<Completion<'_>, LinkError>,
        fabric: &mut F,
    ) {
        let read = bytes_of;
        let mutant = self.of.state.mutant;
        // These bugs make leaders write before they may; they are about what is lost thereby.
        let retries = mutant.has(Mutant::TakeoverBeforeActive) || mutant.has(Mutant::AnswerBeforePermit);
        let is_refused = G::REVOKES && !retries && result.err() == Some(LinkError::Denied);
        let counts = result.is_ok() || is_refused && mutant.has(Mutant::RefusalCounts);
        match (&mut self.role, part) {
            // Another leader may write there (Mu, 4.1: abort).
            (Role::Leading(_), Part::Feed) if !counts && is_refused => {
                self.lost = self.term();
                self.step_down(fabric);
            }
            (Role::Leading(lead), Part::Feed) => {
                if !counts {
                    self.poll_at = Instant::ZERO;
                }
                lead.on_written(now, argument, counts, &self.of.log);
                lead.commit_and_answer(&mut self.of, &mut self.guard, fabric);
                lead.continue_sending(now, &self.of.log, fabric);
                self.publish(fabric);
            }
            (Role::Leading(lead), Part::Survey) => {
                lead.on_surveyed(now, argument, read(result), &self.of.log, fabric);
                if G::DIRECT {
                    lead.continue_sending(now, &self.of.log, fabric);
                }
            }
            (_, Part::Terms) => {
                self.guard.on_read(now, argument, read(result));
                self.poll_at = Instant::ZERO;
            }
            (Role::TakingOver { takeover, .. }, Part::Adopt) => {
                let State { log, floor, .. } = self.of.state;
                let by = Reader { area: self.area, log, floor, place: self.place, mutant };
                takeover.on_read(now, argument, read(result), &by, fabric);
                self.poll_at = Instant::ZERO;
            }
            (_, Part::Pull) => self.detector.on_read(argument, read(result)),
            (_, Part::Permit) => {
                self.guard.on_permit(result.map(drop), self.area, fabric);
                self.poll_at = Instant::ZERO;
            }
            (_, Part::Chunk) => {
                self.load_chunk(now, argument, read(result));
            }
            // Lost messages are sent again.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset::{Active, Views};
    use crate::service::LoadError;
    use obol_fabric::{Layout, Limits};

    /// Has put off so many steps of work.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Busy(u32);

    impl Service for Busy {
        const KIND: u8 = 11;

        fn apply(&mut self, _: &[u8], _: &mut Vec<u8>) {}
        fn read(&self, _: &[u8], _: &mut Vec<u8>) {}
        fn save(&self, _: &mut Vec<u8>) {}

        fn load(&mut self, _: &[u8]) -> Result<(), LoadError> {
            Ok(())
        }

        fn work(&mut self) -> bool {
            self.0 = self.0.saturating_sub(1);
            self.0 > 0
        }
    }

    #[test]
    fn there_is_a_pause_between_steps_of_work_that_was_put_off_however_often_it_looks() {
        const LIMITS: Limits = Limits { slots: 8, proposers: 7, value_bytes: 6400, ..Limits::LEAST };
        let area = Area::of(&Layout::new(LIMITS).expect("in bounds")).expect("there is room");
        let every = Nanos::from_micros(20);
        let pace = Pace { poll_every: every, idle_every: every, patience: every, look_every: every };
        let mut replica = Replica::<Busy, Views, Active>::new(area, pace, Busy(4));
        let (mut now, mut steps) = (Instant(1), Vec::new());
        for _ in 0..100 {
            let before = replica.service().0;
            let next = replica.work(now);
            if replica.service().0 < before {
                steps.push(now);
            }
            assert!(next == Instant::NEVER || next <= steps[steps.len() - 1] + WORK_EVERY);
            now = now + every;
        }
        assert_eq!((steps.len(), replica.service().0), (4, 0));
        assert!(steps.is_sorted_by(|before, next| next.since(*before) >= WORK_EVERY), "{steps:?}");
    }

    #[test]
    fn a_replica_stalls_that_gets_nowhere_for_long_and_not_one_that_gets_on_slowly() {
        let (mut stall, patience) = (Stall::default(), Nanos::from_millis(20));
        let at = |ms: u64| Instant(1 + Nanos::from_millis(ms).0);
        for ms in 0..100 {
            stall.look(at(ms), Some(ms / 15), patience);
            assert!(!stall.is_lasting, "{ms} ms");
        }
        stall.look(at(100), Some(7), patience);
        stall.look(at(119), Some(7), patience);
        assert!(!stall.is_lasting);
        stall.look(at(120), Some(7), patience);
        assert!(stall.is_lasting);
        stall.look(at(121), None, patience);
        assert!(!stall.is_lasting, "a majority is there");
    }
}
