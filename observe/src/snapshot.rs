//! What an observer saw of a cluster at one moment.

use obol_fabric::notice::Detection;
use obol_fabric::version::Version;
use obol_fabric::{Incarnation, Instant, Name, Nanos, Page, ViewId};
use obol_membership::consensus::Head;
use obol_membership::metrics::Counter;
use obol_membership::view::Member;
use obol_membership::{Kind, View};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// How a lease stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseStatus {
    /// Its holder may act.
    Active,
    /// It begins later.
    Waiting,
    /// A coordinator took it back.
    Fenced,
    /// It was not renewed.
    Expired,
}

impl LeaseStatus {
    /// Of a lease from `start` to `end`, at a moment: whether the newest view is active under it,
    /// and whether a fence is above its view.
    #[must_use]
    pub fn of(start: Instant, end: Instant, is_active: bool, is_fenced: bool, at: Instant) -> Self {
        if is_active {
            Self::Active
        } else if at < start && start < end {
            Self::Waiting
        } else if is_fenced {
            Self::Fenced
        } else {
            Self::Expired
        }
    }

    /// What operators read.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Waiting => "waiting",
            Self::Fenced => "fenced",
            Self::Expired => "expired",
        }
    }
}

/// One process: the owner of a region, or a program in a seat of an agent's.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its name.
    pub name: Name,
    /// What it is.
    pub kind: Kind,
    /// Its pid and start time.
    pub process: obol_fabric::host::Process,
    /// Its region.
    pub region: u32,
    /// Its seat in that region.
    pub seat: u16,
    /// Whether it runs or is stopped; a dead one may still be listed until its place is taken.
    pub alive: bool,
    /// Whether it is stopped (SIGSTOP).
    pub frozen: bool,
    /// Whether it left as it was asked to, and nobody misses it. Never so of a coordinator: its
    /// memory may still decide.
    pub left: bool,
    /// Its incarnation, as far as it knows, [`Incarnation::NONE`] if it is not a member; see
    /// [`Snapshot::is_member`].
    pub incarnation: Incarnation,
    /// The newest view that it knows; for a program in a seat, that its agent knows.
    pub view: Option<Arc<View>>,
    /// The lease page that it reads, and its fence.
    pub lease: Option<(Page, ViewId)>,
    /// Who tells of its death first.
    pub detection: Detection,
    /// What it runs.
    pub version: Version,
    /// Until when its join is held back, if it is: programs of its name died again and again. Known
    /// on this host.
    pub held_until: Option<Instant>,
    /// How far its heartbeat is.
    pub heartbeat: u64,
    /// What its acceptor memory says of the newest slots; only a coordinator's says anything.
    pub head: Head,
    /// Its counters, in the order of [`Counter::ALL`].
    pub counters: Vec<u64>,
}

impl Process {
    /// Whether the newest view that it knows is active for it now.
    #[must_use]
    pub fn is_active(&self, now: Instant) -> bool {
        let member = self.view.as_ref().is_some_and(|view| view.member(self.incarnation).is_some());
        let active =
            |view: ViewId| self.lease.as_ref().is_some_and(|(page, fence)| page.is_active(view, *fence, now));
        self.alive && member && self.view.as_ref().is_some_and(|view| active(view.id))
    }

    /// Whether the agent runs at which it sits; none if it sits at none.
    #[must_use]
    pub fn agent_lives(&self, snapshot: &Snapshot) -> Option<bool> {
        let is_agent = |other: &Self| (other.region, other.seat) == (self.region, 0) && other.alive;
        (self.seat != 0).then(|| snapshot.everybody().any(is_agent))
    }

    /// Whether it sits at an agent that is dead: it is no member any more, and can not become one
    /// before it attaches again.
    #[must_use]
    pub fn lost_agent(&self, snapshot: &Snapshot) -> bool {
        self.alive && self.agent_lives(snapshot) == Some(false)
    }

    /// How long its join is held back yet; zero if it is not, or may be tried again now.
    #[must_use]
    pub fn held_back(&self, now: Instant) -> Nanos {
        let waits = self.held_until.filter(|_| self.alive);
        waits.map_or(Nanos::ZERO, |until| until.since(now))
    }

    /// How long its lease still lasts.
    #[must_use]
    pub fn margin(&self, now: Instant) -> Option<Nanos> {
        self.lease.as_ref().map(|(page, _)| page.end.since(now))
    }

    /// Whether its lease, of whatever view, has not ended.
    #[must_use]
    pub fn holds_lease(&self, now: Instant) -> bool {
        self.alive && self.margin(now).is_some_and(|left| left > Nanos::ZERO)
    }

    /// One of its counters.
    #[must_use]
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters.get(counter as usize).copied().unwrap_or(0)
    }
}

/// How a cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// Everybody who should be there is, and every app is active in the newest view.
    Healthy,
    /// Something is missing; the reasons say what.
    Degraded,
    /// Processes live, and none may act: no majority of the coordinators can decide, or every lease
    /// has ended.
    Unavailable,
    /// No process of it lives.
    Unreachable,
}

impl Health {
    /// The word that operators see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Unavailable => "unavailable",
            Self::Unreachable => "unreachable",
        }
    }

    /// The exit code of commands that end with how the cluster is. 2 is also that of a command that
    /// was refused, so the severity that came later has the number after it.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Healthy => 0,
            Self::Degraded => 1,
            Self::Unreachable => 2,
            Self::Unavailable => 3,
        }
    }

    /// Whether programs may act under leases, or some of them.
    #[must_use]
    pub const fn serves(self) -> bool {
        matches!(self, Self::Healthy | Self::Degraded)
    }
}

/// A cluster at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// When it was read.
    pub at: Instant,
    /// The newest view that any process knows.
    pub view: Option<Arc<View>>,
    /// Every process of this host that is there, coordinators first.
    pub processes: Vec<Process>,
    /// Those of other hosts that the newest view names, as READ over RDMA. Their numbers name other
    /// processes here.
    pub distant: Vec<Process>,
    /// How it is.
    pub health: Health,
    /// Why it is not healthy.
    pub reasons: Vec<String>,
}

impl Snapshot {
    /// The live coordinator with the lowest number that the newest view names, if it runs on this
    /// host.
    #[must_use]
    pub fn leader(&self) -> Option<&Process> {
        let leads = self.leads()?.incarnation;
        self.processes.iter().find(|p| p.incarnation == leads && p.alive && !p.frozen)
    }

    /// The name of that coordinator, whatever its host.
    #[must_use]
    pub fn leader_name(&self) -> Option<Name> {
        self.leads().map(|leader| leader.name)
    }

    fn leads(&self) -> Option<&Process> {
        let view = self.view.as_ref()?;
        let of =
            |m: &Member| self.everybody().find(|p| p.incarnation == m.incarnation && p.alive && !p.frozen);
        view.leader(|m| of(m).is_some()).and_then(of)
    }

    /// Who tells first of the death of any process that lives: what the least of them has. `None`
    /// if none lives.
    #[must_use]
    pub fn detection(&self) -> Option<Detection> {
        self.processes.iter().filter(|p| p.alive).map(|p| p.detection).min()
    }

    /// The live process of this host with this name.
    #[must_use]
    pub fn process(&self, name: &str) -> Option<&Process> {
        self.processes.iter().find(|p| p.alive && p.name.as_str() == name)
    }

    /// Whether a process is in the newest view. One that was removed and does not know it, because
    /// it is stopped or dead, still has its incarnation.
    #[must_use]
    pub fn is_member(&self, process: &Process) -> bool {
        self.view.as_ref().is_some_and(|view| view.member(process.incarnation).is_some())
    }

    /// Every process, of this host and of others.
    pub fn everybody(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().chain(&self.distant)
    }
}
