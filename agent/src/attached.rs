//! A program in a seat of its node's agent.

use crate::sight::Sight;
use obol_fabric::recorder::{Kind as Event, Record};
use obol_fabric::shm::{Attachment, Presence, ShmError, clock};
use obol_fabric::{Incarnation, Name, Nanos, SeatStatus};
use obol_membership::rng::Rng;
use obol_profiles::Site;
use std::fmt;
use std::ops::Deref;
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
                Some(_) => self.seat.join(rng.token()),
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

impl Deref for Attached {
    type Target = Sight;

    fn deref(&self) -> &Sight {
        &self.sight
    }
}
