//! Undo records, written before anything is injected, so that others can undo what a fault agent
//! left behind.

use super::clockstep::ClockStep;
use crate::faults::host_network::Filters;
use obol_fabric::host::remove_if_present;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Prefix of the records' names, before the fault agent's pid.
const PREFIX: &str = "drill-undo-";

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
    /// A possible step of the host's clock.
    #[serde(default)]
    pub clock: Option<ClockStep>,
    /// Processes to restart if they are down.
    pub restart: Vec<String>,
}

/// What was undone, and what could not be undone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Undone {
    /// What was done.
    pub done: Vec<String>,
    /// What could not be undone, and why.
    pub failed: Vec<String>,
}

impl Record {
    /// A record of a fault agent that has done nothing yet.
    pub const fn new(fault_agent: (u32, u64), restart: Vec<String>) -> Self {
        Self {
            fault_agent,
            frozen: Vec::new(),
            impaired: Vec::new(),
            filters: Vec::new(),
            clock: None,
            restart,
        }
    }

    fn path(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{PREFIX}{}", self.fault_agent.0))
    }

    /// Writes it atomically.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let path = self.path(dir);
        let draft = dir.join(format!("drill-draft-{}", self.fault_agent.0));
        fs::write(&draft, serde_json::to_vec(self)?)?;
        fs::rename(draft, path)
    }

    /// Removes it: nothing is left to undo.
    pub fn remove(&self, dir: &Path) -> io::Result<()> {
        remove_if_present(&self.path(dir))
    }
}

/// The records in a cluster's directory.
pub fn records(dir: &Path) -> io::Result<Vec<Record>> {
    let mut records = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX)) {
            let bytes = match fs::read(entry.path()) {
                // Its fault agent has just undone everything itself.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                bytes => bytes?,
            };
            records.push(serde_json::from_slice(&bytes).map_err(io::Error::from)?);
        }
    }
    Ok(records)
}
