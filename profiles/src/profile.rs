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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
            timing: Timing {
                lease: Nanos::ZERO,
                lease_max: Nanos::ZERO,
                lease_calm: Nanos::ZERO,
                renew_every: Nanos::ZERO,
                renew_timeout: Nanos::ZERO,
                cache_lease: Nanos::ZERO,
                cache_timeout: Nanos::ZERO,
                fan_out_from: 0,
                drift_ppm: 0,
                fencing: false,
                heartbeat_every: Nanos::ZERO,
                heartbeat_period: Nanos::ZERO,
                heartbeat_confirm: 0,
                link_watch: false,
                link_every: Nanos::ZERO,
                link_timeout: Nanos::ZERO,
                notice_after: Nanos::ZERO,
                notice_every: Nanos::ZERO,
                join_every: Nanos::ZERO,
                join_burst: 0,
                join_window: Nanos::ZERO,
                join_hold: Nanos::ZERO,
                join_hold_max: Nanos::ZERO,
                join_pause: Nanos::ZERO,
                standby: Nanos::ZERO,
                poll_every: Nanos::ZERO,
                backoff_max: Nanos::ZERO,
                announce_hold: Nanos::ZERO,
                resync_after: Nanos::ZERO,
                replace: false,
                replace_after: Nanos::ZERO,
                replace_pause: Nanos::ZERO,
            },
            limits: Limits {
                seats: 0,
                slots: 0,
                proposers: 0,
                value_bytes: 0,
                lanes: 0,
                lane_slots: 0,
                datagram_bytes: 0,
                recorder_events: 0,
            },
            wait: Wait::Spin,
            scheduling: Scheduling::Other,
            rdma: Rdma {
                device: None,
                port: None,
                gid_index: None,
                traffic_class: 0,
                detection: Nanos::ZERO,
                pages: HugePages::Explicit,
                core: None,
            },
            alert: Alert {
                margin_percent: 0,
                late_renewals: 0,
                stale_after: Nanos::ZERO,
                false_suspicions: 0,
                spare_coordinators: 0,
            },
        }
    }
}
