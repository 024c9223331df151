//! The protocol between a runner and a fault agent: lines of JSON over a channel that authenticates
//! its other end.

use crate::control::LINE_BYTES_MAX;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
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

/// Faults that can be injected on one cue.
pub const INJECTIONS_MAX: usize = 64;

/// One thing that happens on a cue: an order of a kind of fault, see [`crate::faults`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Injection {
    /// The order's name.
    pub fault: String,
    /// The process that it hits; `None` for a fault of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whom: Option<Whom>,
    /// For how many nanoseconds; `None` if it is not undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasts: Option<u64>,
    /// What else its kind has to know.
    #[serde(flatten)]
    pub parameters: Map<String, Value>,
}

impl Injection {
    /// An order without a target and without parameters.
    #[must_use]
    pub fn new(fault: &str) -> Self {
        Self { fault: fault.to_owned(), whom: None, lasts: None, parameters: Map::new() }
    }

    /// The same with a parameter.
    #[must_use]
    pub fn with(mut self, key: &str, value: &impl Serialize) -> Self {
        // Numbers and plain structures always are JSON.
        self.parameters.insert(key.to_owned(), serde_json::to_value(value).unwrap_or_default());
        self
    }

    /// A parameter.
    pub fn get<T: for<'a> Deserialize<'a>>(&self, key: &str) -> Result<T, String> {
        let value = self.parameters.get(key).cloned().unwrap_or_default();
        serde_json::from_value(value).map_err(|error| format!("{}: {key}: {error}", self.fault))
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
