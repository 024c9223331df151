//! A program in a seat of its node's agent.

use crate::sight::{OwnView, Sight};
use crate::streams::{Failures, Views};
use obol_fabric::recorder::{Kind as Event, Record};
use obol_fabric::shm::{Attachment, Presence, ShmError, clock};
use obol_fabric::{Incarnation, Name, Nanos, Page, SeatStatus};
use obol_membership::rng::Rng;
use obol_profiles::Site;
use std::fmt;
use std::sync::{Mutex, PoisonError};

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
    sight: Sight,
    /// One join or leave at a time.
    asking: Mutex<()>,
}

impl Attached {
    /// Takes a seat at the agent of this name. The program is no member yet.
    pub fn open(site: &Site, agent: Name, name: Name) -> Result<Self, AttachError> {
        let beat = site.deployment.profile.timing.heartbeat_every;
        Ok(Self::seated(Attachment::open_named(&site.cluster, agent, name, beat)?, agent))
    }

    /// Takes a seat for which the calling thread stands: it has to call [`Presence::beat`] at least once in the profile's
    /// `heartbeat.every`, and its end is the program's death. For programs with a loop of their own.
    pub fn open_present(site: &Site, agent: Name, name: Name) -> Result<(Self, Presence), AttachError> {
        let (seat, presence) = Attachment::open_present(&site.cluster, agent, name)?;
        Ok((Self::seated(seat, agent), presence))
    }

    fn seated(seat: Attachment, agent: Name) -> Self {
        let sight = Sight::of_seat(seat.region().clone());
        Self { seat, agent, sight, asking: Mutex::default() }
    }

    /// Becomes a member, as a new incarnation.
    pub fn join(&self, timeout: Nanos) -> Result<Incarnation, AttachError> {
        let _one = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let end = clock::now() + timeout;
        let mut rng = Rng::new(crate::seed());
        self.seat.join(rng.token());
        let mut status = self.seat.status();
        loop {
            match status {
                Some(SeatStatus::Member(incarnation)) => {
                    self.sight.admitted(incarnation);
                    // The newest view is this program's now: who waits for views is to look again.
                    self.seat.announce();
                    self.seat.record(Record::new(Event::Joined, incarnation.0, 0));
                    return Ok(incarnation);
                }
                // The agent was excluded meanwhile, or the join came too late: ask as somebody new.
                Some(SeatStatus::Excluded | SeatStatus::Left) => self.seat.join(rng.token()),
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

    /// The own incarnation; [`Incarnation::NONE`] while this program is no member.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.sight.incarnation()
    }

    /// The newest view that the agent knows to be decided; `None` before there is one.
    #[must_use]
    pub fn view(&self) -> Option<OwnView> {
        self.sight.view()
    }

    /// The views as they come, beginning with the newest.
    #[must_use]
    pub fn views(&self) -> Views {
        Views::new(self.sight.clone())
    }

    /// The failures of other members from now on.
    #[must_use]
    pub fn failures(&self) -> Failures {
        Failures::new(self.sight.clone())
    }

    /// Whether `view` is active for this program now: it is a member of it, and no later view that excludes an
    /// application has been active anywhere.
    ///
    /// One seqlock read, one fence read, one clock read; no system call, no allocation, from any thread. (uKharon,
    /// Algorithm 2, with the fence.)
    #[inline]
    #[must_use]
    pub fn active(&self, view: &OwnView) -> bool {
        self.sight.active(view)
    }

    /// Runs `work` if `view` is active before it, and gives its result if `view` still is active after it.
    ///
    /// The effect of `work` must not count before this returns `Some`. (uKharon, section 6.1.)
    #[inline]
    pub fn guard<T>(&self, view: &OwnView, work: impl FnOnce(&OwnView) -> T) -> Option<T> {
        self.sight.guard(view, work)
    }

    /// The lease that `active` reads; `None` if its holder stopped in the middle of changing it.
    #[must_use]
    pub fn lease(&self) -> Option<Page> {
        self.sight.lease()
    }

    /// Counts changes of view and lease start; for `wait_changed`.
    #[must_use]
    pub fn changes(&self) -> u32 {
        self.sight.changes()
    }

    /// Sleeps until view or lease start have changed since `seen`, or for so long; tells the count.
    pub fn wait_changed(&self, seen: u32, timeout: Nanos) -> u32 {
        self.sight.wait_changed(seen, timeout)
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
    pub fn leave(&self, timeout: Nanos) -> bool {
        let _one = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if self.incarnation() != Incarnation::NONE {
            self.seat.leave();
            self.sight.admitted(Incarnation::NONE);
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

    /// The seat itself: flight recorder, counters, progress.
    #[must_use]
    pub const fn seat(&self) -> &Attachment {
        &self.seat
    }
}
