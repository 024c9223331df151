//! What a profile is once it is read: plain values with their units, ready for the machines and the
//! fabric.

use obol_fabric::Wait;
use obol_fabric::verbs::arena::HugePages;
use obol_fabric::{Limits, Name, Nanos};
use obol_membership::Timing;

/// Every constant of a deployment. Made by [`Profile::load`], [`Profile::parse`] or
/// [`Profile::builtin`], which check it. All processes of a cluster use the same `timing` and
/// `limits`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Profile {
    /// What it is called.
    pub name: Name,
    /// For which machines it is meant, in one line.
    pub description: String,
    /// Durations and counts of the protocol.
    pub timing: Timing,
    /// How much of everything a region holds.
    pub limits: Limits,
    /// How a process waits for its next event.
    pub wait: Wait,
    /// How the kernel schedules coordinators and agents.
    pub scheduling: Scheduling,
    /// How the RDMA network is used, in a cluster that has one.
    pub rdma: Rdma,
    /// From when on operators are alerted.
    pub alert: Alert,
}

/// From when on operators are alerted. Nothing of the protocol depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Alert {
    /// A renewal that finds less than this part of its lease left, in percent.
    pub margin_percent: u32,
    /// So many late or failed renewals of one process in a minute.
    pub late_renewals: u32,
    /// A process whose memory was not read whole for so long.
    pub stale_after: Nanos,
    /// So many false suspicions of one process in a minute.
    pub false_suspicions: u32,
    /// Fewer coordinators that may still fail than this, while one is missing.
    pub spare_coordinators: u32,
}

/// How a host uses its RDMA device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rdma {
    /// The device, such as `mlx5_0`; without one, that of the host's address.
    pub device: Option<String>,
    /// Its port, from 1 on; without one, the first that is active.
    pub port: Option<u32>,
    /// The index of the port's GID; without one, that of the host's address.
    pub gid_index: Option<u32>,
    /// The traffic class of all packets, 0 to 255.
    pub traffic_class: u32,
    /// A peer that does not answer for so long is reported as unreachable.
    pub detection: Nanos,
    /// Pages of the memory for what is under way.
    pub pages: HugePages,
    /// The core that a coordinator or agent is pinned to, if it is.
    pub core: Option<u32>,
}

/// How the kernel schedules coordinators and agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheduling {
    /// `SCHED_OTHER`: as any program.
    Other,
    /// `SCHED_FIFO`, where allowed: before any ordinary program.
    Fifo {
        /// The real-time priority, 1 to 99.
        priority: u32,
    },
}

impl Scheduling {
    /// The real-time priority that is asked for, if any.
    #[must_use]
    pub const fn priority(self) -> Option<u32> {
        match self {
            Self::Fifo { priority } => Some(priority),
            Self::Other => None,
        }
    }
}

impl Profile {
    /// What reading starts from: every key overwrites its part, and a missing key is an error, so
    /// nothing of it is ever seen.
    pub(crate) fn blank() -> Self {
        Self {
            name: Name::default(),
            description: String::new(),
            timing: Timing::default(),
            limits: Limits::default(),
            wait: Wait::Spin,
            scheduling: Scheduling::Other,
            rdma: Rdma::default(),
            alert: Alert::default(),
        }
    }
}
