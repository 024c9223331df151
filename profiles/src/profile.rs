//! A profile after reading: plain values with their units, for the machines and the fabric.

use obol_fabric::{Limits, Name, Nanos, Wait};
use obol_fabric_verbs::arena::HugePages;
use obol_membership::Timing;
use serde::{Deserialize, Serialize};

/// Every constant of a deployment. Created by [`Profile::load`], [`Profile::parse`] or
/// [`Profile::builtin`], which check it. All processes of a cluster use the same `timing` and
/// `limits`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Profile {
    pub name: Name,
    /// The machines that it is meant for, in one line.
    pub description: String,
    /// Durations and counts of the protocol.
    pub timing: Timing,
    /// The dimensions of a region.
    pub limits: Limits,
    /// How a process waits for its next event.
    pub wait: Wait,
    /// How the kernel schedules coordinators and agents.
    pub scheduling: Scheduling,
    /// How the RDMA network is used, in a cluster that has one.
    pub rdma: Rdma,
    /// How other hosts are reached over IP, in a cluster that does so.
    pub ip: Ip,
    /// How hosts detect each other's silence over IP. Off in profiles without the table.
    pub pulse: Pulse,
    /// The thresholds of alerts.
    pub alert: Alert,
}

/// The thresholds of alerts. The protocol does not depend on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Alert {
    /// The remaining share of a lease at a renewal, in percent, below which to alert.
    pub margin_percent: u32,
    /// The number of late or failed renewals of one process in a minute.
    pub late_renewals: u32,
    /// The time without a whole read of a process's memory.
    pub stale_after: Nanos,
    /// The number of false suspicions by one process in a minute.
    pub false_suspicions: u32,
    /// The minimum number of coordinators that may still fail, while one is missing.
    pub spare_coordinators: u32,
}

/// How a host uses its RDMA device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rdma {
    /// The device, such as `mlx5_0`; `None` for that of the host's address.
    pub device: Option<String>,
    /// Its port, from 1; `None` for the first active one.
    pub port: Option<u32>,
    /// The index of the port's GID; `None` for that of the host's address.
    pub gid_index: Option<u32>,
    /// The traffic class of all packets, 0 to 255.
    pub traffic_class: u32,
    /// The timeout after which a peer is reported as unreachable.
    pub detection: Nanos,
    /// The page size of the memory for pending operations.
    pub pages: HugePages,
    /// The core that a coordinator or agent is pinned to, if any.
    pub core: Option<u32>,
}

/// How a host reaches others over IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ip {
    /// The timeout after which a host whose gateway does not answer is reported as silent.
    pub detection: Nanos,
}

/// The pulses between the gateways of hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pulse {
    /// Whether gateways send any.
    pub enabled: bool,
    /// Between two pulses.
    pub period: Nanos,
    /// A host without a new pulse for this long is suspected.
    pub timeout: Nanos,
    /// How many of the paths of the hosts file are used.
    pub paths: u32,
    /// The real-time priority of the thread, where the system allows it.
    pub priority: Option<u32>,
}

/// How the kernel schedules coordinators and agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheduling {
    /// `SCHED_OTHER`: like any program.
    Other,
    /// `SCHED_FIFO`, where allowed: before all ordinary programs.
    Fifo {
        /// The real-time priority, 1 to 99.
        priority: u32,
    },
}

impl Scheduling {
    /// The requested real-time priority, if any.
    pub const fn priority(self) -> Option<u32> {
        match self {
            Self::Fifo { priority } => Some(priority),
            Self::Other => None,
        }
    }
}

impl Profile {
    /// The initial value for reading: every key overwrites its part, and a missing key is an error.
    pub(crate) fn blank() -> Self {
        Self {
            name: Name::default(),
            description: String::new(),
            timing: Timing::default(),
            limits: Limits::default(),
            wait: Wait::Spin,
            scheduling: Scheduling::Other,
            rdma: Rdma::default(),
            ip: Ip::default(),
            pulse: Pulse::default(),
            alert: Alert::default(),
        }
    }
}
