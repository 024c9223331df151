//! Undo records, written before anything is injected, so that others can undo what a fault agent
//! left behind.

use super::clockstep::ClockStep;
use crate::control::{self, Request};
use crate::faults;
use obol_fabric::host::Process;
use obol_observe::Observer;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

/// Prefix of the records' names, before the fault agent's pid.
const PREFIX: &str = "drill-undo-";
/// Longest wait for the end of a fault agent that was killed.
const DYING_TIMEOUT: Duration = Duration::from_secs(5);
/// Poll interval while waiting for its end.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

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
        Self { fault_agent, frozen: Vec::new(), impaired: Vec::new(), clock: None, restart }
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
        match fs::remove_file(self.path(dir)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Undoes everything that it names, and restarts what is down.
    pub fn undo(&self, observer: &mut Observer, undone: &mut Undone) {
        faults::recover(self, observer.cluster(), undone);
        self.restart(observer, undone);
    }

    /// Restarts what is down.
    pub(super) fn restart(&self, observer: &mut Observer, undone: &mut Undone) {
        let snapshot = observer.snapshot();
        for name in self.restart.iter().filter(|name| snapshot.process(name).is_none()) {
            match control::request(observer.cluster().dir(), &Request::Start { name: name.clone() }) {
                Ok(_) => undone.done.push(format!("{name} was started")),
                Err(error) => undone.failed.push(format!("{name} could not be started: {error}")),
            }
        }
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

/// Undoes everything that fault agents left behind, and ends fault agents whose runner is gone.
/// Idempotent. The caller holds the drill lock.
pub fn recover(observer: &mut Observer) -> io::Result<Undone> {
    let dir = observer.cluster().dir().to_owned();
    let mut undone = Undone::default();
    for record in records(&dir)? {
        let (pid, started) = record.fault_agent;
        if let Ok(fault_agent) = (Process { pid, started }).hold() {
            // Without it nothing is injected concurrently.
            if let Err(error) = fault_agent.kill()
                && !fault_agent.has_ended()
            {
                undone.failed.push(format!("the fault agent (pid {pid}) could not be ended: {error}"));
                continue;
            }
            let end = Instant::now() + DYING_TIMEOUT;
            while !fault_agent.has_ended() && Instant::now() < end {
                thread::sleep(POLL_INTERVAL);
            }
            undone.done.push(format!("a fault agent that outlived its runner was ended (pid {pid})"));
        }
        let failed = undone.failed.len();
        record.undo(observer, &mut undone);
        if undone.failed.len() == failed {
            record.remove(&dir)?;
        }
    }
    Ok(undone)
}
