//! What a runner and a fault agent say to each other: lines of JSON over a channel that says who is
//! at its other end.

use crate::control::LINE_BYTES_MAX;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead as _, BufReader, Read};
use std::path::PathBuf;

/// The socket of the fault agent with this process id, in the cluster's directory.
#[must_use]
pub fn socket_name(pid: u32) -> String {
    format!("drill-{pid}.sock")
}

/// Reads lines of JSON one after the other.
#[derive(Debug)]
pub struct Lines<R>(BufReader<R>);

impl<R: Read> Lines<R> {
    /// From here on.
    pub fn new(from: R) -> Self {
        Self(BufReader::new(from))
    }

    /// The next one; nothing at the end.
    pub fn read<T: for<'a> Deserialize<'a>>(&mut self) -> io::Result<Option<T>> {
        let mut line = String::new();
        if (&mut self.0).take(LINE_BYTES_MAX).read_line(&mut line)? == 0 {
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(&line)?))
    }
}

/// What a runner wants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "do")]
pub enum Order {
    /// Wait for a cue.
    Arm(Box<Arm>),
    /// The runner is alive.
    Alive,
    /// Ignore every cue again.
    Disarm,
    /// Undo now what was to last longer.
    Undo,
    /// What was killed has been started again: nothing is left to undo.
    Undone,
}

/// What a fault agent is armed with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// The token, see [`super::cue::Token::to_hex`].
    pub token: String,
    /// Nanoseconds from now after which the cue is late.
    pub expires_in: u64,
    /// Nanoseconds of silence after which the fault agent undoes everything by itself.
    pub dead_man: u64,
    /// The label of the cluster that the drill was made for.
    pub environment: String,
    /// Processes that may be hit at most.
    pub max_targets: u32,
    /// Coordinators that must be left.
    pub keep_acceptors: u32,
    /// Lease caches that must be left.
    pub keep_lease_caches: u32,
    /// Host names that are never touched.
    pub deny_hosts: Vec<String>,
    /// Whether the host's clock may jump.
    pub allow_clock_step: bool,
    /// What happens on the cue, in this order.
    pub injections: Vec<Injection>,
    /// Processes that are to be started again if the runner can not.
    pub restart: Vec<String>,
}

/// Blows that can be injected on one cue.
pub const INJECTIONS_MAX: usize = 64;

/// One thing that happens on a cue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "fault")]
pub enum Injection {
    /// SIGKILL.
    Kill {
        /// Whom.
        whom: Whom,
    },
    /// SIGTERM.
    Terminate {
        /// Whom.
        whom: Whom,
    },
    /// SIGSTOP, then SIGCONT.
    Freeze {
        /// Whom.
        whom: Whom,
        /// For how many nanoseconds.
        lasts: u64,
    },
    /// The links of its region.
    Impair {
        /// Whose.
        whom: Whom,
        /// What they suffer.
        links: Links,
        /// For how many nanoseconds.
        lasts: u64,
    },
    /// A program that takes the host's cores or memory.
    Load {
        /// Threads that compute.
        threads: u32,
        /// MiB that are written again and again.
        mebibytes: u32,
        /// For how many nanoseconds.
        lasts: u64,
    },
    /// `CLOCK_REALTIME` jumps.
    StepClock {
        /// Forward by so many nanoseconds.
        by: u64,
        /// For how many nanoseconds.
        lasts: u64,
    },
}

impl Injection {
    /// The process that it hits.
    #[must_use]
    pub const fn whom(&self) -> Option<&Whom> {
        match self {
            Self::Kill { whom }
            | Self::Terminate { whom }
            | Self::Freeze { whom, .. }
            | Self::Impair { whom, .. } => Some(whom),
            Self::Load { .. } | Self::StepClock { .. } => None,
        }
    }

    /// Whether its target is not there afterwards.
    #[must_use]
    pub const fn takes_out(&self) -> bool {
        match self {
            Self::Kill { .. } | Self::Terminate { .. } | Self::Freeze { .. } => true,
            Self::Impair { links, .. } => links.island != 0 || links.operations_fail,
            Self::Load { .. } | Self::StepClock { .. } => false,
        }
    }
}

/// What the links of a process suffer, see [`obol_fabric::host::Impairment`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Links {
    /// Who is on another island is not reached; 0 is the mainland.
    pub island: u8,
    /// So many of a hundred datagrams are lost.
    pub loss_percent: u8,
    /// All multicast is lost.
    pub multicast_lost: bool,
    /// One-sided operations fail.
    pub operations_fail: bool,
    /// Operations and datagrams are on their way for so many nanoseconds.
    pub delay: u64,
}

/// A process, so that no other can be taken for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Whom {
    /// Its name in the cluster.
    pub name: String,
    /// Its process id.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub started: u64,
    /// The program that it runs.
    pub program: PathBuf,
}

/// What a fault agent tells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "told")]
pub enum Reply {
    /// It holds its targets and waits for the cue.
    Armed,
    /// It does not.
    Refused {
        /// Why.
        reason: String,
    },
    /// The cue came.
    Fired {
        /// What was done when, in the order of the faults.
        stamps: Vec<Stamp>,
    },
    /// The cue did not come in time; it is disarmed.
    Expired,
    /// It ignores every cue.
    Disarmed,
    /// Everything reversible is undone.
    Undone {
        /// What could not be.
        failed: Vec<String>,
    },
}

/// When a fault was injected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Whom it hit; what, for a fault at the host.
    pub name: String,
    /// The fabric's clock right before, in nanoseconds.
    pub at: u64,
    /// Why it missed.
    pub error: Option<String>,
}
