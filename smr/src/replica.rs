//! A replica: its role in the newest view, and what it does in it.

use crate::REPLICAS_MAX;
use crate::area::{Area, Block};
use crate::config::Config;
use crate::follow::{Follow, Header, Replicated};
use crate::lead::Lead;
use crate::log::{Index, Log, Term};
use crate::preset::{Active, Detector, Guard, Views};
use crate::service::Service;
use crate::snapshot::{Loader, Provider};
use crate::state::{self, State};
use crate::takeover::{Adopted, Memory, Progress, Takeover};
use crate::tokens::Part;
use obol_fabric::{Address, Completion, Evidence, Fabric, Incarnation, Instant, LinkError, Nanos};
use obol_membership::View;
use std::collections::BTreeSet;

/// Polls of a replica that polls without a pause between two rounds of other work.
const POLLS_PER_TICK: u32 = 32;

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
    /// It is the oldest replica and cannot lead, because it has no place in the configuration. It
    /// has to end and to start again, so that another one becomes the oldest. Nothing is lost.
    Yields,
    /// The leader has another log than this replica: one of them was begun anew by mistake.
    Misfit,
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

/// How often a replica looks into its memory, and how long it waits for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pace {
    /// Poll interval; zero keeps a core busy.
    pub poll_every: Nanos,
    /// How long a replica that sends no chunk of a snapshot may take before another one is asked.
    pub patience: Nanos,
}

/// A replica of a service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Replica<S, D = Views, G = Active> {
    area: Area,
    pace: Pace,
    /// It may begin a log of this identity, for so many voters.
    founds: Option<(u64, u32)>,
    of: Replicated<S>,
    follow: Follow,
    provider: Provider,
    loader: Loader,
    detector: D,
    guard: G,
    own: Option<Incarnation>,
    /// Its place among the replicas of the view.
    at: usize,
    replicas: Vec<(Incarnation, Address)>,
    clients: Vec<(Incarnation, Address, Block)>,
    /// Replicas of earlier views whose deaths are proved.
    dead: BTreeSet<Address>,
    /// Its ring at others, once it has voted.
    place: Option<u8>,
    role: Role,
    published: Header,
    poll_at: Instant,
}

impl<S: Service, D: Detector, G: Guard> Replica<S, D, G> {
    /// A replica without a log, with the service's initial state.
    pub fn new(area: Area, pace: Pace, service: S) -> Self {
        let of = Replicated { state: State::new(service), log: Log::default(), gap: false };
        Self {
            area,
            pace,
            founds: None,
            of,
            follow: Follow::default(),
            provider: Provider::default(),
            loader: Loader::default(),
            detector: D::default(),
            guard: G::default(),
            own: None,
            at: 0,
            replicas: Vec::new(),
            clients: Vec::new(),
            dead: BTreeSet::new(),
            place: None,
            role: Role::Following,
            published: Header::default(),
            poll_at: Instant::ZERO,
        }
    }

    /// The same, which may begin a log when it is the oldest replica: the first one of a new store.
    /// `id` is the log's identity, random; `voters` is how many there should be.
    #[must_use]
    pub fn founding(mut self, id: u64, voters: u32) -> Self {
        self.founds = Some((id.max(1), voters));
        self
    }

    /// The same with a bug.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn with_mutant(mut self, mutant: crate::Mutant) -> Self {
        self.of.state.mutant = crate::mutants::ActiveMutant::new(mutant);
        self
    }

    /// Its state.
    pub fn state(&self) -> ReplicaState {
        match &self.role {
            Role::Yields => ReplicaState::Yields,
            _ if self.follow.misfit => ReplicaState::Misfit,
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
        self.of.state.log != 0 && !self.of.gap
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
            Role::Leading(_) => self.detector.reign().map_or(Term(0), |reign| reign.term),
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
        self.guard.install(view);
        self.replicas = crate::replicas(view).map(|member| (member.incarnation, member.address)).collect();
        self.clients = self.area.clients(view);
        let config = self.config().clone();
        self.dead.retain(|at| config.voter(*at).is_some());
        let at = self.replicas.iter().position(|(who, _)| Some(*who) == own);
        let is_other = self.own != own.filter(|_| at.is_some());
        self.own = own.filter(|_| at.is_some());
        self.at = at.unwrap_or(REPLICAS_MAX);
        self.poll_at = Instant::ZERO;
        self.follow.report_again();
        let reign = self.detector.reign();
        let leads = self.own.is_some() && reign.map(|reign| reign.leader) == self.own;
        if is_other || !leads {
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
        match &mut self.role {
            Role::Leading(lead) => {
                lead.end(fabric);
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
        if self.of.state.log != 0 {
            self.of.drop_tail();
            let takeover = Takeover::begin(term, &mut self.guard, fabric);
            self.role = Role::TakingOver { takeover, behind: None };
        } else if let Some((id, voters)) = self.founds.take() {
            self.found(id, voters, term, fabric);
        } else if self.replicas.len() > 1 {
            self.role = Role::Yields;
        } else {
            self.role = Role::Waiting;
        }
    }

    /// Begins a log.
    fn found<F: Fabric>(&mut self, id: u64, voters: u32, term: Term, fabric: &mut F) {
        let own = fabric.address();
        self.of.state.log = id;
        self.of.state.config = Config::first(voters, own);
        self.of.drop_tail();
        let header = Header { log: id, ..Header::default() };
        let memory = Memory { header: Some(header), ..Memory::new(own, Vec::new(), &[]) };
        let adopted = Adopted {
            records: Vec::new(),
            low: Index(0),
            config: self.of.state.config.clone(),
            config_index: Index(0),
            memories: vec![memory],
        };
        self.lead(term, adopted, fabric);
    }

    fn lead<F: Fabric>(&mut self, term: Term, adopted: Adopted, fabric: &mut F) {
        let own = fabric.address();
        let place = adopted.config.voter(own).map(|voter| voter.place).or(self.place);
        let Some((place, incarnation)) = place.zip(self.own) else {
            self.role = Role::Yields;
            return;
        };
        self.place = Some(place);
        let mut lead = Lead::begin((incarnation, own), self.area, term, place, adopted, &mut self.of);
        lead.install(&self.replicas, &self.clients);
        self.role = Role::Leading(Box::new(lead));
    }

    /// Polls own memory: once, or [`POLLS_PER_TICK`] times if it is busy polling.
    pub(crate) fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.poll_at = now + self.pace.poll_every;
        let polls = if self.pace.poll_every == Nanos::ZERO { POLLS_PER_TICK } else { 1 };
        for _ in 0..polls {
            if self.poll(now, fabric) {
                self.poll_at = now;
            } else {
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
    }

    /// Returns whether there may be more to do.
    fn poll<F: Fabric>(&mut self, now: Instant, fabric: &mut F) -> bool {
        let more = match &mut self.role {
            Role::Following => self.poll_following(now, fabric),
            Role::TakingOver { .. } => self.poll_takeover(now, fabric),
            Role::Leading(lead) => lead.poll(now, &mut self.of, &self.guard, &self.dead, fabric),
            Role::Waiting | Role::Yields => false,
        };
        self.publish(fabric);
        more
    }

    fn poll_following<F: Fabric>(&mut self, now: Instant, fabric: &mut F) -> bool {
        let more = self.follow.poll(self.area, &mut self.of, fabric);
        let leader = self.detector.reign().map(|reign| (reign.leader, reign.at));
        if let (Some(own), Some(leader)) = (self.own, leader)
            && self.at < REPLICAS_MAX
        {
            self.follow.report(now, own, self.at, leader, self.area, &self.of, fabric);
            if self.of.gap {
                self.load(now, own, self.of.log.base().index, fabric);
            }
        }
        more
    }

    fn load<F: Fabric>(&mut self, now: Instant, own: Incarnation, least: Index, fabric: &mut F) {
        let (area, own) = (self.area, (own, self.at));
        let pauses = (self.pace.poll_every, self.pace.patience);
        self.loader.poll(now, own, &self.replicas, least, area, pauses, fabric);
    }

    fn poll_takeover<F: Fabric>(&mut self, now: Instant, fabric: &mut F) -> bool {
        let Role::TakingOver { takeover, behind } = &mut self.role else { return false };
        let term = takeover.term;
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
                self.lead(term, *adopted, fabric);
                true
            }
        }
    }

    /// Publishes how far it is, and notes its place.
    fn publish<F: Fabric>(&mut self, fabric: &F) {
        let State { log, applied, config, .. } = &self.of.state;
        let header = Header { log: *log, applied: *applied, gap: self.of.gap };
        if header != self.published {
            self.published = header;
            header.publish(self.area, fabric);
            self.place = config.voter(fabric.address()).map(|voter| voter.place).or(self.place);
        }
    }

    /// A wakeup: there are requests.
    pub(crate) const fn on_wakeup(&mut self) {
        self.poll_at = Instant::ZERO;
    }

    /// A process has died.
    pub(crate) fn on_death(&mut self, who: Address, evidence: Evidence) {
        if evidence == Evidence::Proof && self.config().voter(who).is_some() {
            self.dead.insert(who);
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
        let read = |result| match result {
            Ok(Completion::Read(bytes)) => Ok(bytes),
            Ok(_) => Err(LinkError::OutOfBounds),
            Err(error) => Err(error),
        };
        match (&mut self.role, part) {
            (Role::Leading(lead), Part::Feed) => {
                lead.on_written(now, argument, result.is_ok(), &self.of.log);
                lead.commit_and_answer(&mut self.of, &self.guard, fabric);
                lead.continue_sending(now, &self.of.log, fabric);
                self.publish(fabric);
            }
            (Role::Leading(lead), Part::Survey) => lead.on_surveyed(argument, read(result), &self.of.log),
            (Role::TakingOver { takeover, .. }, Part::Adopt) => {
                takeover.on_read(now, argument, read(result));
                self.poll_at = Instant::ZERO;
            }
            (_, Part::Chunk) => {
                let own = self.own.unwrap_or_default();
                let Some(snapshot) = self.loader.on_read(now, own, argument, read(result)) else { return };
                let is_leader = matches!(self.role, Role::Leading(_));
                if !is_leader && self.of.load(&snapshot) {
                    self.founds = None;
                    if let Role::TakingOver { takeover, behind } = &mut self.role {
                        *behind = None;
                        takeover.touch();
                    }
                    self.poll_at = Instant::ZERO;
                }
            }
            // Lost messages are sent again.
            _ => {}
        }
    }
}
