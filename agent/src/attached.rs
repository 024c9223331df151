//! A program in a seat of its node's agent.

use crate::handle::{MembershipHandle, POLL_INTERVAL};
use crate::lost::Lost;
use crate::statements::Statements;
use derive_more::Deref;
use obol_fabric::host::{Attachment, Beat, Cluster, HostError, NameClaim, Presence, clock};
use obol_fabric::version::Advice;
use obol_fabric::{Incarnation, Instant, Name, Nanos, Release, SeatStatus};
use obol_membership::Kind;
use obol_membership::recorder::{EventKind, Record};
use obol_membership::rng::Rng;
use obol_node::Site;
use std::sync::{Mutex, MutexGuard, PoisonError};
use thiserror::Error;

/// The period of heartbeats while a program waits. A refused join is retried after the same time:
/// the process that refused it may lag behind the agent.
const TURN: Nanos = Nanos::from_millis(10);

/// Why a program is not admitted, as far as its agent knows. The text continues the sentence that
/// names the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Obstacle {
    /// The agent itself is not a member.
    #[error(", which is not a member itself; a majority of coordinators must run, see `obol status`")]
    AgentIsOut,
    /// The view has no room for another member.
    #[error(
        ": the view has no room for it; end a program, or recreate the cluster with larger \
         limits.value_bytes in its profile"
    )]
    NoRoom,
    /// Another member has its name.
    #[error(": another member has its name; end that one, or choose another name")]
    NameTaken,
    /// Programs of its name failed, left or were suspected too often; its join is on hold for this much
    /// longer.
    #[error(
        ": programs of its name died, left or were suspected again and again, so its join is on hold for {0} more; find out why \
         (`obol events`), or see coordinator.join_burst in the profile"
    )]
    OnHold(Nanos),
    /// How often it was refused, or excluded before it learned of its admission.
    #[error(
        ": it was refused, or excluded immediately ({0}x), or a link to the cluster is cut; see `obol events` for who suspects whom"
    )]
    Refused(u32),
    /// The agent has no answer yet.
    #[error("; a majority of coordinators must run, see `obol status`")]
    Silence,
}

/// Why a program did not become a member.
#[derive(Debug, Error)]
pub enum AttachError {
    /// It found no seat.
    #[error(transparent)]
    Fabric(#[from] HostError),
    /// It was not admitted in time.
    #[error("not admitted within {waited} via {agent}{obstacle}")]
    NotAdmitted {
        /// The agent that was asked.
        agent: Name,
        /// How long it waited.
        waited: Nanos,
        /// Why.
        obstacle: Obstacle,
    },
    /// The cluster does not admit programs that are linked with this release.
    #[error("the cluster does not admit {name}: {advice}")]
    Release {
        /// The program's name.
        name: Name,
        /// Both releases, and what to do.
        advice: Advice,
    },
    /// No seat at a successor of its agent became available in time.
    #[error("no seat at a successor of {agent} within {waited}: {reason}")]
    NoSuccessor {
        /// The name of both agents.
        agent: Name,
        /// How long it waited.
        waited: Nanos,
        /// Why there was none in the end.
        reason: HostError,
    },
    /// This handle is no longer usable.
    #[error(transparent)]
    Lost(#[from] Lost),
}

/// A program that reads its agent's lease page.
#[derive(Deref)]
pub struct Attached {
    seat: Attachment,
    agent: Name,
    #[deref]
    handle: MembershipHandle,
    /// To take a seat at the agent's successor.
    request: SeatRequest,
    /// One join or leave at a time.
    asking: Mutex<()>,
    // Given up after the seat.
    #[expect(dead_code, reason = "holds the name")]
    claim: Box<NameClaim>,
}

/// Where a program attaches, and under which name.
struct SeatRequest {
    cluster: Cluster,
    name: Name,
    beat: Beat,
    /// The cluster whose parameters are known, and its bound on clock drift.
    drift_ppm: (u64, u32),
}

impl Attached {
    /// Takes a seat at the agent of this name. The program is not yet a member. It has `name` for as
    /// long as this lives: one that a live process of this host has is refused, as is that of a
    /// coordinator, an agent, a lease cache or a gateway of the cluster. The name of a process that
    /// ended is free at once.
    pub fn open(site: &Site, agent: Name, name: Name) -> Result<Self, AttachError> {
        let claim = Self::claim(site, name)?;
        let request = SeatRequest::of(site, name);
        let seat = Attachment::open_named(&site.cluster, agent_named(agent), name, request.beat)?;
        Ok(Self::seated(seat, agent, request, claim))
    }

    fn claim(site: &Site, name: Name) -> Result<NameClaim, HostError> {
        site.deployment.check_name(Kind::App, name)?;
        NameClaim::take(&site.cluster, name)
    }

    /// Takes a seat whose heartbeat the calling thread provides: it has to call [`Presence::beat`]
    /// at least once per `heartbeat.every` of the profile, and its end counts as the program's
    /// death. For programs with an event loop. Where the profile asks for SCHED_FIFO the thread
    /// should have it, too: on a busy machine an ordinary one may be late.
    pub fn open_present(site: &Site, agent: Name, name: Name) -> Result<(Self, Presence), AttachError> {
        let claim = Self::claim(site, name)?;
        let (seat, presence) = Attachment::open_present(&site.cluster, agent_named(agent), name)?;
        Ok((Self::seated(seat, agent, SeatRequest::of(site, name), claim), presence))
    }

    fn seated(seat: Attachment, agent: Name, request: SeatRequest, claim: NameClaim) -> Self {
        let handle = request.handle(&seat);
        Self { seat, agent, handle, request, asking: Mutex::default(), claim: Box::new(claim) }
    }

    /// After its agent's death: takes a seat at the agent's successor, which has the same name, and
    /// waits up to `timeout` for one. The program is not a member until it joins again. Existing
    /// streams end; open new ones. Does nothing while the agent lives. From then on a thread of the
    /// library provides the heartbeat.
    pub fn attach_again(&mut self, timeout: Nanos) -> Result<(), AttachError> {
        match self.handle.lost() {
            None => return Ok(()),
            Some(Lost::Forked) => return Err(Lost::Forked.into()),
            Some(_) => {}
        }
        let end = clock::now() + timeout;
        loop {
            let failed = match self.request.attach(self.agent) {
                Ok(seat) => {
                    self.handle = self.request.handle(&seat);
                    self.seat = seat;
                    return Ok(());
                }
                Err(
                    error @ (HostError::NoSuchAgent { .. }
                    | HostError::NotFound { .. }
                    | HostError::NoSeat { .. }),
                ) => error,
                Err(error) => return Err(error.into()),
            };
            let left = end.since(clock::now());
            if left == Nanos::ZERO {
                let agent = self.agent;
                return Err(AttachError::NoSuccessor { agent, waited: timeout, reason: failed });
            }
            std::thread::sleep(left.min(TURN).to_std());
        }
    }

    /// Becomes a member, as a new incarnation.
    pub fn join(&self, timeout: Nanos) -> Result<Incarnation, AttachError> {
        self.require_here()?;
        self.require_release()?;
        let mut joining = Joining::begin(self, timeout);
        loop {
            if let Some(own) = joining.turn(POLL_INTERVAL)? {
                return Ok(own);
            }
        }
    }

    /// As [`Attached::join`], for a program whose own thread provides the heartbeat and keeps doing
    /// so. `None` if the program cancels; the join is then withdrawn, and [`Attached::leave`] waits
    /// for that.
    pub fn join_present(
        &self,
        presence: &mut Presence,
        timeout: Nanos,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Option<Incarnation>, AttachError> {
        self.require_here()?;
        self.require_release()?;
        let mut joining = Joining::begin(self, timeout);
        while is_wanted() {
            presence.beat();
            if let Some(own) = joining.turn(TURN)? {
                return Ok(Some(own));
            }
        }
        self.seat.leave();
        self.handle.admitted(Incarnation::NONE);
        Ok(None)
    }

    /// A child must not wait for a lock: the thread that holds it may not exist here.
    fn require_here(&self) -> Result<(), Lost> {
        if self.handle.lost() == Some(Lost::Forked) { Err(Lost::Forked) } else { Ok(()) }
    }

    /// The leader would refuse it, but could not say why by the status of a seat.
    fn require_release(&self) -> Result<(), AttachError> {
        let own = Release::own();
        match self.view().and_then(|view| view.release()) {
            Some(spoken) if !spoken.admits(own) => {
                Err(AttachError::Release { name: self.request.name, advice: own.advice(spoken) })
            }
            _ => Ok(()),
        }
    }

    fn obstacle(&self, refused: u32) -> Obstacle {
        if self.seat.region().reader().header().incarnation == Incarnation::NONE.0 {
            Obstacle::AgentIsOut
        } else if self.seat.finds_no_room() {
            Obstacle::NoRoom
        } else if self.seat.is_name_taken() {
            Obstacle::NameTaken
        } else if let Some(until) = self.seat.held_until() {
            Obstacle::OnHold(until.since(clock::now()))
        } else if refused > 0 {
            Obstacle::Refused(refused)
        } else {
            Obstacle::Silence
        }
    }

    /// Whether this program waits for its name: another member has it, on another host or not yet known
    /// to be dead.
    #[must_use]
    pub fn is_name_taken(&self) -> bool {
        self.seat.is_name_taken()
    }

    /// Whether this program has to join again: the cluster removed it, or its agent died; joining
    /// then returns that error.
    #[must_use]
    pub fn is_excluded(&self) -> bool {
        !self.agent_lives() || matches!(self.seat.status(), Some(SeatStatus::Excluded))
    }

    /// Whether the agent still runs; false in the child of a fork.
    #[must_use]
    pub fn agent_lives(&self) -> bool {
        self.seat.agent_lives()
    }

    /// Leaves the cluster gracefully and waits up to `timeout` for that. True if it has left;
    /// otherwise call it again.
    pub fn leave(&self, timeout: Nanos) -> Result<bool, Lost> {
        self.require_here()?;
        let _one = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if self.incarnation() != Incarnation::NONE {
            self.seat.leave();
            self.handle.admitted(Incarnation::NONE);
        }
        let end = clock::now() + timeout;
        loop {
            let left = end.since(clock::now());
            if matches!(
                self.seat.wait_status(None, left.min(POLL_INTERVAL)),
                Some(SeatStatus::Left | SeatStatus::Excluded)
            ) {
                return Ok(true);
            }
            match self.handle.lost() {
                Some(lost) => return Err(lost),
                None if left == Nanos::ZERO => return Ok(false),
                None => {}
            }
        }
    }

    /// Promises progress at least every `within` from now on, or from [`Attached::join`] on if the
    /// program is not a member yet; zero cancels the promise. A member that does not call
    /// [`Attached::progress`] in time is removed, although its process lives, and may join again.
    /// (Mu, section 5.1, fate sharing.)
    pub fn promise_progress(&self, within: Nanos) {
        self.seat.promise_progress(within);
    }

    /// Reports that the program makes progress.
    pub fn progress(&self) {
        self.seat.progress();
    }

    /// The seat itself: flight recorder, counters, progress.
    #[must_use]
    pub const fn seat(&self) -> &Attachment {
        &self.seat
    }
}

/// Programs sit at agents only.
const fn agent_named(name: Name) -> (u32, Name) {
    (Kind::Agent as u32, name)
}

impl SeatRequest {
    fn of(site: &Site, name: Name) -> Self {
        let profile = &site.deployment.profile;
        let beat = Beat { every: profile.timing.heartbeat_every, priority: profile.scheduling.priority() };
        let drift_ppm = (site.cluster.nonce(), profile.timing.drift_ppm);
        Self { cluster: site.cluster.clone(), name, beat, drift_ppm }
    }

    fn handle(&self, seat: &Attachment) -> MembershipHandle {
        // A recreated cluster may have another bound.
        let (known, drift_ppm) = self.drift_ppm;
        let drift_ppm = (self.cluster.nonce() == known).then_some(drift_ppm);
        MembershipHandle::of_seat(seat.region().clone(), Statements::new(self.cluster.clone(), drift_ppm))
    }

    /// A seat at the agent of this name, also in a recreated cluster.
    fn attach(&mut self, agent: Name) -> Result<Attachment, HostError> {
        if let Some(root) = self.cluster.dir().parent() {
            self.cluster = Cluster::open(root, self.cluster.name())?;
        }
        Attachment::open_named(&self.cluster, agent_named(agent), self.name, self.beat)
    }
}

/// A join in progress.
struct Joining<'a> {
    app: &'a Attached,
    /// Draws a token for each request.
    rng: Rng,
    timeout: Nanos,
    end: Instant,
    refused: u32,
    _one: MutexGuard<'a, ()>,
}

impl<'a> Joining<'a> {
    fn begin(app: &'a Attached, timeout: Nanos) -> Self {
        let one = app.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rng = Rng::new(crate::seed());
        app.seat.join(rng.token());
        Self { app, rng, timeout, end: clock::now() + timeout, refused: 0, _one: one }
    }

    /// Waits up to `wait` for the answer.
    fn turn(&mut self, wait: Nanos) -> Result<Option<Incarnation>, AttachError> {
        let Attached { seat, handle, agent, .. } = self.app;
        let left = self.end.since(clock::now());
        match seat.wait_status(None, left.min(wait)) {
            Some(SeatStatus::Member(incarnation)) => {
                handle.admitted(incarnation);
                // The newest view is this program's now: wake waiting readers of views.
                seat.announce();
                seat.record(Record::new(EventKind::Joined, incarnation.0, 0));
                return Ok(Some(incarnation));
            }
            // The agent was excluded meanwhile, or the join was too late: ask with a new token.
            refused @ Some(_) => {
                self.refused += 1;
                seat.wait_status(refused, left.min(TURN));
                seat.join(self.rng.token());
            }
            None => {}
        }
        if let Some(lost) = handle.lost() {
            return Err(lost.into());
        }
        if left == Nanos::ZERO {
            let obstacle = self.app.obstacle(self.refused);
            return Err(AttachError::NotAdmitted { agent: *agent, waited: self.timeout, obstacle });
        }
        Ok(None)
    }
}
