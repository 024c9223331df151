//! What a fault agent may have to undo, and what became of that.

use super::realtime::ClockStep;
use serde::{Deserialize, Serialize};

/// What a fault agent may have done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The fault agent: process id and start.
    #[serde(rename = "helper")]
    pub fault_agent: (u32, u64),
    /// Processes that it may have stopped: name, process id and start.
    pub frozen: Vec<(String, u32, u64)>,
    /// Regions whose links it may have impaired: name, number and generation.
    #[serde(default)]
    pub impaired: Vec<(String, u32, u32)>,
    /// Packet filters that it may have set.
    #[serde(default)]
    pub filters: Vec<Filters>,
    /// Interfaces that it may have set down.
    #[serde(default)]
    pub interfaces: Vec<Interface>,
    /// A possible step of the host's clock.
    #[serde(default)]
    pub clock: Option<ClockStep>,
    /// Processes to restart if they are down.
    pub restart: Vec<String>,
}

/// What was undone, and what could not be undone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Undone {
    pub done: Vec<String>,
    /// What could not be undone, and why.
    pub failed: Vec<String>,
}

/// Filters of a fault at one interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filters {
    pub(crate) interface: String,
    /// Their preference, which nothing else has.
    pub(crate) preference: u32,
    /// Whether the interface had no filters before, so that the hook for them goes as well.
    pub(crate) hooked: bool,
    /// The device that they redirect packets to, if these are to be late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<String>,
}

/// An interface as it was before a fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    pub(crate) name: String,
    /// Its routes that the kernel does not make again.
    pub(crate) routes: Vec<String>,
}

impl Record {
    /// A record of a fault agent that has done nothing yet.
    pub const fn new(fault_agent: (u32, u64), restart: Vec<String>) -> Self {
        Self {
            fault_agent,
            frozen: Vec::new(),
            impaired: Vec::new(),
            filters: Vec::new(),
            interfaces: Vec::new(),
            clock: None,
            restart,
        }
    }

    /// What may still be in force, one part each.
    pub fn parts(&self) -> Vec<String> {
        let frozen = self.frozen.iter().map(|(name, pid, _)| format!("{name} (pid {pid}) may be stopped"));
        let impaired = self.impaired.iter().map(|(name, ..)| format!("the links of {name} may be impaired"));
        let filters = self
            .filters
            .iter()
            .map(|filters| format!("packets of the cluster may be dropped or late on {}", filters.interface));
        let interfaces = self.interfaces.iter().map(|one| format!("{} may be down", one.name));
        let clock = self.clock.iter().map(|_| "the clock of this host may be wrong".to_owned());
        let restart = self.restart.iter().map(|name| format!("{name} may be down"));
        frozen.chain(impaired).chain(filters).chain(interfaces).chain(clock).chain(restart).collect()
    }
}
