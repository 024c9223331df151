//! An order to inject a fault, as a runner gives it to a fault agent, and what it may hit.

use obol_fabric::host::Process;
use obol_observe::named_enum;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::PathBuf;

/// Injections on one cue, at most.
pub const INJECTIONS_MAX: usize = 64;

/// One injection on a cue: an order of a kind of fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Injection {
    pub fault: String,
    /// Its victim; `None` for a fault of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whom: Option<TargetProcess>,
    /// How many nanoseconds it lasts; `None` if it is not undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasts: Option<u64>,
    /// Further parameters of its kind.
    #[serde(flatten)]
    pub parameters: Map<String, Value>,
}

impl Injection {
    /// An order without target and parameters.
    pub fn new(fault: &str) -> Self {
        Self { fault: fault.to_owned(), whom: None, lasts: None, parameters: Map::new() }
    }

    /// Adds a parameter.
    #[must_use]
    pub fn with(mut self, key: &str, value: &impl Serialize) -> Self {
        // Numbers and plain structures are always valid JSON.
        self.parameters.insert(key.to_owned(), serde_json::to_value(value).unwrap_or_default());
        self
    }

    /// The name of its victim in stamps.
    pub fn victim(&self) -> String {
        self.whom.as_ref().map_or_else(|| "host".to_owned(), |whom| whom.name.clone())
    }

    /// Its victim as a process; `None` for a fault of the host.
    pub fn process(&self) -> Option<Process> {
        self.whom.as_ref().map(|whom| Process { pid: whom.pid, started: whom.started })
    }

    /// A parameter.
    pub fn get<T: for<'a> Deserialize<'a>>(&self, key: &str) -> Result<T, String> {
        let value = self.parameters.get(key).cloned().unwrap_or_default();
        serde_json::from_value(value).map_err(|error| format!("{}: {key}: {error}", self.fault))
    }
}

/// Impairments of a process's links, see [`obol_fabric::host::Impairment`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Links {
    /// Processes on another island are unreachable; 0 is the mainland.
    pub island: u8,
    /// Percentage of datagrams that are lost.
    pub loss_percent: u8,
    pub multicast_lost: bool,
    /// One-sided operations fail.
    pub operations_fail: bool,
    /// Nanoseconds by which operations and datagrams are delayed.
    pub delay: u64,
}

/// A process, identified unambiguously.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetProcess {
    /// Its name in the cluster.
    pub name: String,
    /// Its process id.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub started: u64,
    /// The program that it runs, if the runner can see that.
    #[serde(default)]
    pub program: Option<PathBuf>,
}

named_enum! {
    /// Which packets of its targets a fault hits.
    Direction {
        /// Those that reach them.
        In = "in",
        /// Those that they send.
        Out = "out",
        Both = "both",
    }
}

named_enum! {
    /// The kind of process.
    TargetKind {
        /// An application.
        App = "app",
        /// A node's agent, without its apps.
        Agent = "agent",
        /// An agent together with the apps in its seats.
        Node = "node",
        Coordinator = "coordinator",
        LeaseCache = "lease-cache",
    }
}
