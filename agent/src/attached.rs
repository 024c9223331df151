//! A program in a seat of its node's agent.

use obol_fabric::recorder::{Kind as Event, Record};
use obol_fabric::shm::{Attachment, Cluster, Presence, ShmError, clock};
use obol_fabric::{Incarnation, Name, Nanos, Page, SeatStatus, ViewId};
use obol_membership::View;
use obol_membership::rng::Rng;
use obol_profiles::Site;
use std::fmt;

/// Why a program is no member.
#[derive(Debug)]
pub enum AttachError {
    /// It found no seat.
    Fabric(ShmError),
    /// Nobody admitted it in time.
    NotAdmitted {
        /// The agent that it asked.
        agent: Name,
        /// How long it waited.
        waited: Nanos,
    },
    /// Its agent died: attach to another, or to the agent's successor.
    AgentDied(Name),
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fabric(error) => error.fmt(f),
            Self::NotAdmitted { agent, waited } => write!(
                f,
                "not admitted within {waited} by way of {agent}; a majority of coordinators must run, see `obol status`"
            ),
            Self::AgentDied(agent) => {
                write!(f, "{agent}, the agent of this node, died; attach again when it is back")
            }
        }
    }
}

impl std::error::Error for AttachError {}

impl From<ShmError> for AttachError {
    fn from(error: ShmError) -> Self {
        Self::Fabric(error)
    }
}

/// A program that reads its agent's lease page.
pub struct Attached {
    seat: Attachment,
    agent: Name,
    rng: Rng,
    incarnation: Incarnation,
}

impl Attached {
    /// Takes a seat at the agent of this name. The program is no member yet.
    pub fn open(site: &Site, agent: Name, name: Name) -> Result<Self, AttachError> {
        Self::open_in(&site.cluster, agent, name, site.deployment.profile.timing.heartbeat_every)
    }

    /// Takes a seat for which the calling thread stands: it has to call [`Presence::beat`] at least once in the profile's
    /// `heartbeat.every`, and its end is the program's death. For programs with a loop of their own.
    pub fn open_present(site: &Site, agent: Name, name: Name) -> Result<(Self, Presence), AttachError> {
        let (seat, presence) = Attachment::open_present(&site.cluster, agent, name)?;
        let rng = Rng::new(crate::seed());
        Ok((Self { seat, agent, rng, incarnation: Incarnation::NONE }, presence))
    }

    fn open_in(cluster: &Cluster, agent: Name, name: Name, beat: Nanos) -> Result<Self, AttachError> {
        let seat = Attachment::open_named(cluster, agent, name, beat)?;
        Ok(Self { seat, agent, rng: Rng::new(crate::seed()), incarnation: Incarnation::NONE })
    }

    /// Becomes a member, as a new incarnation.
    pub fn join(&mut self, timeout: Nanos) -> Result<Incarnation, AttachError> {
        let end = clock::now() + timeout;
        self.seat.join(self.rng.token());
        let mut status = self.seat.status();
        loop {
            match status {
                Some(SeatStatus::Member(incarnation)) => {
                    self.incarnation = incarnation;
                    self.seat.record(Record::new(Event::Joined, incarnation.0, 0));
                    return Ok(incarnation);
                }
                // The agent was excluded meanwhile, or the join came too late: ask as somebody new.
                Some(SeatStatus::Excluded | SeatStatus::Left) => self.seat.join(self.rng.token()),
                None => {}
            }
            if !self.seat.agent_lives() {
                return Err(AttachError::AgentDied(self.agent));
            }
            let left = end.since(clock::now());
            if left == Nanos::ZERO {
                return Err(AttachError::NotAdmitted { agent: self.agent, waited: timeout });
            }
            // An agent's death wakes nobody who waits for its answer, so look up now and then.
            status = self.seat.wait_status(None, left.min(Nanos::from_millis(100)));
        }
    }

    /// The own incarnation; [`Incarnation::NONE`] before the first join.
    #[must_use]
    pub const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Whether the cluster removed this program. It may join again.
    #[must_use]
    pub fn is_excluded(&self) -> bool {
        matches!(self.seat.status(), Some(SeatStatus::Excluded))
    }

    /// Whether the agent still runs.
    #[must_use]
    pub fn agent_lives(&self) -> bool {
        self.seat.agent_lives()
    }

    /// Leaves the cluster gracefully; waits until it is so, or for so long. Tells whether it is so: if not, call it again.
    pub fn leave(&mut self, timeout: Nanos) -> bool {
        if self.incarnation != Incarnation::NONE {
            self.seat.leave();
            self.incarnation = Incarnation::NONE;
        }
        matches!(self.seat.wait_status(None, timeout), Some(SeatStatus::Left | SeatStatus::Excluded))
    }

    /// Promises progress at least every `within` from the next [`Attached::join`] on; zero takes the promise back. A
    /// program that does not call [`Attached::progress`] in time is removed, however well its process lives, and may join
    /// again. (Mu, section 5.1, fate sharing.)
    pub fn promise_progress(&self, within: Nanos) {
        self.seat.promise_progress(within);
    }

    /// Tells that the program makes progress.
    pub fn progress(&self) {
        self.seat.progress();
    }

    /// The newest view that the agent knows to be decided; `None` before there is one.
    #[must_use]
    pub fn view(&self) -> Option<View> {
        self.seat.view_bytes().and_then(|(_, bytes)| View::unseal(&bytes))
    }

    /// Whether `view` is active now: no view that excludes one of its apps has been active anywhere before.
    ///
    /// One seqlock read, one fence read, one clock read; no system call, no allocation, from any thread. uKharon,
    /// Algorithm 2, with the fence.
    #[inline]
    #[must_use]
    pub fn active(&self, view: ViewId) -> bool {
        self.seat.active(view)
    }

    /// Runs `work` if `view` is active before it, and gives its result if `view` still is active after it.
    ///
    /// The effect of `work` must not count before this returns `Some`. (uKharon, section 6.1.)
    pub fn guard<T>(&self, view: ViewId, work: impl FnOnce() -> T) -> Option<T> {
        if !self.active(view) {
            return None;
        }
        let done = work();
        self.active(view).then_some(done)
    }

    /// The lease that [`Attached::active`] reads; `None` if the agent stopped in the middle of changing it.
    #[must_use]
    pub fn lease(&self) -> Option<Page> {
        self.seat.lease()
    }

    /// Counts changes of view and lease start; for [`Attached::wait_changed`].
    #[must_use]
    pub fn changes(&self) -> u32 {
        self.seat.changes()
    }

    /// Sleeps until view or lease start have changed since `seen`, or for so long; tells the count.
    pub fn wait_changed(&self, seen: u32, timeout: Nanos) -> u32 {
        self.seat.wait_changed(seen, timeout)
    }

    /// The seat itself: flight recorder, counters, progress.
    #[must_use]
    pub const fn seat(&self) -> &Attachment {
        &self.seat
    }
}
