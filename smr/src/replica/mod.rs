//! A replica: its role in the newest view, and what it does in it.

mod departure;
mod following;
mod founding;
mod giving_way;
mod pace;
mod roles;
mod stall;
mod status;

pub use pace::Pace;
pub use status::ReplicaState;

use crate::REPLICAS_MAX;
use crate::area::{Area, Caller};
use crate::direct::Prefix;
use crate::follow::{Follow, Header};
use crate::log::Log;
use crate::members;
use crate::mutants::Mutant;
use crate::position::Term;
use crate::preset::{Active, Detector, Guard, Turn, Views};
use crate::relatives::Relatives;
use crate::replicated::Replicated;
use crate::service::Service;
use crate::snapshot::{Loader, Provider};
use crate::state::State;
use crate::takeover::Reader;
use crate::time::LogTime;
use crate::tokens::{Part, bytes_of};
use obol_fabric::{Address, Completion, Evidence, Fabric, Incarnation, Instant, LinkError, Nanos, ViewId};
use obol_membership::View;
use roles::Role;
use stall::Stall;
use std::collections::BTreeSet;

/// Polls of a replica that polls without a pause between two rounds of other work.
const POLLS_PER_TICK: u32 = 32;

/// A replica of a service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Replica<S, D = Views, G = Active> {
    area: Area,
    pace: Pace,
    /// It may begin a log of this identity, for this number of voters.
    may_bootstrap: Option<(u64, u32)>,
    unreplicated: bool,
    time: LogTime,
    replicated: Replicated<S>,
    follow: Follow,
    provider: Provider,
    loader: Loader<S>,
    detector: D,
    guard: G,
    relatives: Relatives,
    /// Its last turn, and whether views have it again since.
    turn_at: Instant,
    is_back: bool,
    view: ViewId,
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
        let replicated = Replicated { state, log: Log::default(), gap: false, lags: false };
        Self {
            area,
            pace,
            may_bootstrap: None,
            unreplicated: false,
            time: LogTime::default(),
            replicated,
            follow: Follow::default(),
            provider: Provider::default(),
            loader: Loader::default(),
            detector: D::default(),
            guard: G::default(),
            relatives: Relatives::default(),
            turn_at: Instant::ZERO,
            is_back: false,
            view: ViewId::default(),
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
        self.replicated.state.mutant = crate::mutants::ActiveMutant::new(mutant);
        self.replicated.state.service.plant(mutant);
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

    /// When [`Replica::tick`] is due next.
    pub(crate) const fn deadline(&self) -> Instant {
        self.poll_at
    }

    /// Installs the newest view with this replica's incarnation in it.
    pub(crate) fn install<F: Fabric>(&mut self, view: &View, own: Option<Incarnation>, fabric: &mut F) {
        self.view = view.id;
        self.detector.install(view);
        self.replicas = members::replicas(view).map(|member| (member.incarnation, member.address)).collect();
        self.clients = self.area.clients(view);
        let config = self.config().clone();
        self.dead.retain(|at| config.voter(*at).is_some());
        let at = self.replicas.iter().position(|(who, _)| Some(*who) == own);
        self.address = at.map(|at| self.replicas[at].1).or(self.address);
        let is_other = self.own != own.filter(|_| at.is_some());
        self.own = own.filter(|_| at.is_some());
        self.at = at.unwrap_or(REPLICAS_MAX);
        self.guard.install(view, self.own);
        self.relatives.read_soon();
        self.poll_at = Instant::ZERO;
        self.follow.report_again();
        if is_other {
            self.is_back = true;
            self.step_down(fabric);
        }
        self.elect(fabric);
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
        if let Some(own) = self.own.filter(|_| !self.follow.misfit) {
            let Self { area, pace, replicated, provider, replicas, .. } = self;
            provider.poll(now, own, replicas, *area, pace.patience, replicated, fabric);
        }
        let next = if more { now } else { now + self.interval(now) };
        self.poll_at = next.min(self.work(now));
    }

    /// Returns whether there may be more to do.
    fn poll<F: Fabric>(&mut self, now: Instant, fabric: &mut F) -> bool {
        let turn = Turn {
            area: self.area,
            every: self.look_every(),
            trusts: self.detector.trusts(),
            prefix: Prefix::of(&self.replicated),
        };
        if self.gives_way(now, fabric) || self.is_to_wait(now, fabric) {
            return false;
        }
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
            Role::Leading(lead) => lead.poll(now, &mut self.replicated, &mut self.guard, &self.dead, fabric),
            Role::Waiting => self.poll_waiting(fabric),
            Role::Yields => false,
        };
        self.time.look(now, &self.replicated.log, &self.replicated.state.service);
        let progress = self.lacks_voters();
        self.stall.look(now, progress, self.pace.patience);
        self.publish(fabric);
        more
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
        let mutant = self.replicated.state.mutant;
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
                lead.on_written(now, argument, counts, &self.replicated.log);
                if now.since(self.turn_at) >= self.pace.patience {
                    // It comes back: see `is_to_wait`.
                    self.poll_at = Instant::ZERO;
                    return;
                }
                lead.commit_and_answer(&mut self.replicated, &mut self.guard, fabric);
                lead.continue_sending(now, &self.replicated.log, fabric);
                self.publish(fabric);
            }
            (Role::Leading(lead), Part::Survey) => {
                lead.on_surveyed(now, argument, read(result), &self.replicated.log, fabric);
                if G::DIRECT {
                    lead.continue_sending(now, &self.replicated.log, fabric);
                }
            }
            (_, Part::Terms) => {
                self.guard.on_read(now, argument, read(result));
                self.poll_at = Instant::ZERO;
            }
            (Role::TakingOver { takeover, .. }, Part::Adopt) => {
                let State { log, floor, .. } = self.replicated.state;
                let by = Reader { area: self.area, log, floor, place: self.place, mutant };
                takeover.on_read(now, argument, read(result), &by, fabric);
                self.poll_at = Instant::ZERO;
            }
            (_, Part::Pull) => self.detector.on_read(argument, read(result)),
            (_, Part::Relatives) => self.on_relative(argument, read(result), fabric),
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
