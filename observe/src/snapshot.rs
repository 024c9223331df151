//! The state of a cluster at one moment.

use obol_deaths::Detection;
use obol_fabric::version::Version;
use obol_fabric::{Incarnation, Instant, Name, Nanos, Page, ViewId};
use obol_membership::consensus::Head;
use obol_membership::metrics::Counter;
use obol_membership::view::Member;
use obol_membership::{Kind, View};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use strum::IntoStaticStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum LeaseStatus {
    /// Its holder may act.
    Active,
    /// It begins later.
    Waiting,
    /// A coordinator revoked it.
    Fenced,
    /// It was not renewed.
    Expired,
}

impl LeaseStatus {
    /// Name shown to operators.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Status at a moment of a lease from `start` to `end`; `is_active` if the newest view is
    /// active under it, `is_fenced` if a fence is above its view.
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
}

/// How the state of a process of another host was read.
#[derive(Clone, Copy, Debug)]
pub struct Elsewhere {
    /// Clock error: by how much times of its host may be off on this host's clock.
    pub clock_error: Nanos,
    /// Its lease page as it was stamped, on this host's clock. [`Process::lease`] is extended by the
    /// age of the copy and by the error, so that a lease which may be running counts as running.
    pub page: Option<Page>,
    /// When the READ of its region began.
    pub read: Instant,
}

/// One process: the owner of a region, or a program in a seat of an agent's.
#[derive(Clone, Debug)]
pub struct Process {
    pub name: Name,
    pub kind: Kind,
    /// The number of its host; 0 if it is missing and its host is not known.
    pub host: u8,
    /// Its pid and start time.
    pub process: obol_fabric::host::Process,
    pub region: u32,
    /// Its seat in that region.
    pub seat: u16,
    /// Whether it runs or is stopped; a dead process may stay listed until its place is taken.
    pub alive: bool,
    /// Whether it is stopped (SIGSTOP).
    pub frozen: bool,
    /// Whether it left on request, so that it is not missed; a coordinator that decides is, because its
    /// memory still counts for the majority.
    pub left: bool,
    /// Its incarnation, as far as it knows; [`Incarnation::NONE`] if it is not a member. See
    /// [`Snapshot::is_member`].
    pub incarnation: Incarnation,
    /// The newest view that it knows; for a program in a seat, that its agent knows.
    pub view: Option<Arc<View>>,
    /// The lease page that it reads, and its fence.
    pub lease: Option<(Page, ViewId)>,
    /// The fastest available detector of its death.
    pub detection: Detection,
    pub version: Version,
    /// Until when its join is on hold, because members of its name died, left or were suspected
    /// repeatedly. Known on this host only.
    pub held_until: Option<Instant>,
    /// Its heartbeat counter.
    pub heartbeat: u64,
    /// What its acceptor memory holds of the newest slots; empty unless a coordinator.
    pub head: Head,
    /// Its counters, in the order of [`Counter::ALL`].
    pub counters: Vec<u64>,
    /// How it was read, if it is of another host.
    pub elsewhere: Option<Elsewhere>,
}

impl Process {
    /// A process that should run and left nothing that could be read.
    pub fn missing(name: Name, kind: Kind) -> Self {
        Self {
            name,
            kind,
            host: 1,
            process: obol_fabric::host::Process::default(),
            region: 0,
            seat: 0,
            alive: false,
            frozen: false,
            left: false,
            incarnation: Incarnation::NONE,
            view: None,
            lease: None,
            detection: Detection::default(),
            version: Version::default(),
            held_until: None,
            heartbeat: 0,
            head: Head::default(),
            counters: vec![0; Counter::ALL.len()],
            elsewhere: None,
        }
    }

    /// Whether both are the same process. Processes of two hosts may have the same pid and start.
    pub fn is(&self, other: &Self) -> bool {
        (self.process, self.region, self.seat) == (other.process, other.region, other.seat)
    }

    /// Its lease page with the times as they were stamped, and its fence.
    pub fn stamped_lease(&self) -> Option<(Page, ViewId)> {
        let (page, fence) = self.lease?;
        Some((self.elsewhere.and_then(|elsewhere| elsewhere.page).unwrap_or(page), fence))
    }

    /// By how much its times may be off on this host's clock.
    pub fn clock_error(&self) -> Nanos {
        self.elsewhere.map_or(Nanos::ZERO, |elsewhere| elsewhere.clock_error)
    }

    /// Whether the newest view that it knows is active for it now.
    #[must_use]
    pub fn is_active(&self, now: Instant) -> bool {
        let member = self.view.as_ref().is_some_and(|view| view.member(self.incarnation).is_some());
        let active =
            |view: ViewId| self.lease.as_ref().is_some_and(|(page, fence)| page.is_active(view, *fence, now));
        self.alive && member && self.view.as_ref().is_some_and(|view| active(view.id))
    }

    /// Whether it is what a process of this name and kind would be. A hosts file does not say which of
    /// its members are agents, and which lease caches.
    pub fn stands_for(&self, name: &str, kind: Kind) -> bool {
        let role = |kind| match kind {
            Kind::LeaseCache => Kind::Agent,
            other => other,
        };
        self.name.as_str() == name && role(self.kind) == role(kind)
    }

    /// Whether this stands for a process that was not read, see [`Process::missing`].
    pub fn is_missing(&self) -> bool {
        self.process == obol_fabric::host::Process::default()
    }

    /// Whether its agent runs; `None` without an agent.
    pub fn agent_lives(&self, snapshot: &Snapshot) -> Option<bool> {
        let is_agent = |other: &Self| (other.region, other.seat) == (self.region, 0) && other.alive;
        (self.seat != 0).then(|| snapshot.all_processes().any(is_agent))
    }

    /// Whether its agent is dead: it is no longer a member, and has to attach again to become one.
    pub fn lost_agent(&self, snapshot: &Snapshot) -> bool {
        self.alive && self.agent_lives(snapshot) == Some(false)
    }

    /// For how long its join is still on hold; zero if it may join now.
    pub fn hold_left(&self, now: Instant) -> Nanos {
        let waits = self.held_until.filter(|_| self.alive);
        waits.map_or(Nanos::ZERO, |until| until.since(now))
    }

    /// The remaining time of its lease.
    pub fn margin(&self, now: Instant) -> Option<Nanos> {
        self.lease.as_ref().map(|(page, _)| page.end.since(now))
    }

    /// Whether its lease, of any view, has not ended.
    #[must_use]
    pub fn holds_lease(&self, now: Instant) -> bool {
        self.alive && self.margin(now).is_some_and(|left| left > Nanos::ZERO)
    }

    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters.get(counter as usize).copied().unwrap_or(0)
    }
}

/// Health of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Health {
    /// All expected processes are there, and every app is active in the newest view.
    Healthy,
    /// Something is missing; the reasons say what.
    Degraded,
    /// Processes live, and no program may act or will in a moment: no majority of the coordinators
    /// can decide, every lease has ended or begins later, or no program is a member.
    Unavailable,
    /// No process of it lives.
    Unreachable,
    /// Whether any program may act is not known: none is seen that may, and other hosts, where some
    /// may run, cannot be read.
    Unknown,
}

impl Health {
    /// Name shown to operators.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The exit code of commands that report the health. 2 also is a usage error, so the severity
    /// that was added later has the number after it.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Healthy => 0,
            Self::Degraded => 1,
            Self::Unreachable => 2,
            Self::Unavailable => 3,
            Self::Unknown => 4,
        }
    }

    /// Whether at least some programs are known to be able to act under leases.
    pub const fn serves(self) -> bool {
        matches!(self, Self::Healthy | Self::Degraded)
    }

    /// The same; `None` if it is not known.
    pub const fn is_known_to_serve(self) -> Option<bool> {
        match self {
            Self::Unknown => None,
            known => Some(known.serves()),
        }
    }
}

/// A cluster at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// When it was read.
    pub at: Instant,
    /// The newest view that any process knows.
    pub view: Option<Arc<View>>,
    /// Every process of this host, coordinators first. What concerns the cluster is asked of
    /// [`Snapshot::all_processes`].
    pub processes: Vec<Process>,
    /// Processes of other hosts in the newest view, as READ over RDMA. Their pids are of their own
    /// hosts.
    pub remote: Vec<Process>,
    pub health: Health,
    /// Why it is not healthy.
    pub reasons: Vec<String>,
}

impl Snapshot {
    /// The live coordinator with the lowest number in the newest view, if it runs on this host.
    /// `None` also if one with a lower number is a member and cannot be read.
    pub fn leader(&self) -> Option<&Process> {
        let leads = self.leads()?.incarnation;
        self.processes.iter().find(|p| p.incarnation == leads && p.alive && !p.frozen)
    }

    /// The name of that coordinator, on any host.
    pub fn leader_name(&self) -> Option<Name> {
        self.leads().map(|leader| leader.name)
    }

    fn leads(&self) -> Option<&Process> {
        let view = self.view.as_ref()?;
        let of = |m: &Member| {
            self.all_processes().find(|p| p.incarnation == m.incarnation && p.alive && !p.frozen)
        };
        // One of another host that cannot be read may lead. A program may have a coordinator's name.
        let is_read = |m: &Member| {
            self.all_processes().any(|p| p.kind == m.kind && p.name == m.name && !p.is_missing())
        };
        view.leader(|m| !is_read(m) || of(m).is_some()).and_then(of)
    }

    /// The slowest of the detectors available for the live processes. `None` if none lives.
    pub fn detection(&self) -> Option<Detection> {
        self.processes.iter().filter(|p| p.alive).map(|p| p.detection).min()
    }

    /// The live process of this host with this name.
    pub fn process(&self, name: &str) -> Option<&Process> {
        self.processes.iter().find(|p| p.alive && p.name.as_str() == name)
    }

    /// Whether a process is in the newest view. A removed process that does not know so, because it
    /// is stopped or dead, still has its incarnation.
    pub fn is_member(&self, process: &Process) -> bool {
        self.view.as_ref().is_some_and(|view| view.member(process.incarnation).is_some())
    }

    /// Whether this row stands for a member of another host that cannot be read, so that its state is
    /// unknown.
    pub fn is_unread(&self, process: &Process) -> bool {
        let is_named = |m: &Member| m.name == process.name;
        process.is_missing() && self.view.as_ref().is_some_and(|view| view.members.iter().any(is_named))
    }

    /// Every process, of this host and of others.
    pub fn all_processes(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().chain(&self.remote)
    }
}
