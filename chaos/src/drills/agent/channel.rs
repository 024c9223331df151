//! The protocol between runner and fault agent: lines of JSON over an authenticated channel.

use crate::drillfile::Allowed;
use crate::drillfile::guards::Keep;
use crate::faults::order::Injection;
use obol_supervise::control::LINE_BYTES_MAX;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead as _, BufReader, Read};

/// The socket of the fault agent with this process id, in the cluster's directory.
pub fn socket_name(pid: u32) -> String {
    format!("drill-{pid}.sock")
}

/// Reads lines of JSON.
#[derive(Debug)]
pub struct Lines<R>(BufReader<R>);

impl<R: Read> Lines<R> {
    /// From the current position.
    pub fn new(from: R) -> Self {
        Self(BufReader::new(from))
    }

    /// The next one; `None` at the end.
    pub fn read<T: for<'a> Deserialize<'a>>(&mut self) -> io::Result<Option<T>> {
        let mut line = String::new();
        if (&mut self.0).take(LINE_BYTES_MAX).read_line(&mut line)? == 0 {
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(&line)?))
    }
}

/// A runner's order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "do")]
pub enum Order {
    /// Wait for a cue.
    Arm(Box<Arm>),
    /// Keep-alive of the runner.
    Alive,
    /// Ignore every cue again.
    Disarm,
    /// Undo everything now.
    Undo,
    /// Start the processes of this host that were killed and are down.
    Restart,
    /// Killed processes have been restarted: nothing is left to undo.
    Undone,
}

/// Parameters of an armed fault agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// The token, see [`super::cue::Token::to_hex`].
    pub token: String,
    /// Nanoseconds from now after which the cue is late.
    pub expires_in: u64,
    /// Nanoseconds without an order after which the fault agent undoes everything by itself.
    pub dead_man: u64,
    /// The label of the cluster that the drill was made for.
    pub environment: String,
    /// Victims, at most.
    pub max_targets: u32,
    /// Coordinators that must remain, of those that decide.
    pub keep_acceptors: Keep,
    /// Lease caches that must remain.
    pub keep_lease_caches: u32,
    /// Host names that are never touched.
    pub deny_hosts: Vec<String>,
    /// What may happen to all programs of the host.
    #[serde(default)]
    pub allowed: Allowed,
    /// The injections on the cue, in this order.
    pub injections: Vec<Injection>,
    /// The victims that other fault agents make unavailable on the same cue.
    #[serde(default)]
    pub elsewhere: Vec<OtherVictim>,
    /// Processes to restart if the runner cannot.
    pub restart: Vec<String>,
    /// Whether no other drill is kept from this host yet, so that the fault agent has to do that.
    #[serde(default)]
    pub locks: bool,
}

/// A victim on another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OtherVictim {
    /// Its name in the cluster.
    pub name: String,
    pub region: u32,
    /// Its seat in that region.
    pub seat: u16,
}

/// A reply of a fault agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "told")]
pub enum Reply {
    /// It holds its targets and waits for the cue.
    Armed,
    /// It is not armed.
    Refused { reason: String },
    /// The cue arrived.
    Fired {
        /// The injections with their times, in their order.
        stamps: Vec<Stamp>,
    },
    /// The cue did not arrive in time; it is disarmed.
    Expired,
    /// It ignores every cue.
    Disarmed,
    /// Drills are halted: it undoes everything and ends.
    Halted {
        /// By whom, and why.
        reason: String,
    },
    /// Everything reversible is undone.
    Undone {
        /// What could not be undone.
        failed: Vec<String>,
    },
}

/// Why a fault was not injected by a fault agent that did not hear the cue.
pub(crate) const LATE: &str = "the cue did not arrive in time";

/// When a fault was injected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// The victim; `host` for a fault of the host.
    pub name: String,
    /// The fabric's clock right before, in nanoseconds: of the fault agent's host as it reports it, and
    /// of the runner's host in a journal.
    pub at: u64,
    /// Why it missed.
    pub error: Option<String>,
    /// The number of the fault agent's host.
    #[serde(default)]
    pub host: u8,
    /// By how much the time may be off on the runner's clock, in nanoseconds.
    #[serde(default)]
    pub clock_error: u64,
}

impl Stamp {
    /// Whether it says that a fault was injected on a host.
    pub(crate) fn hit(&self, host: u8) -> bool {
        self.host == host && self.error.is_none()
    }
}
