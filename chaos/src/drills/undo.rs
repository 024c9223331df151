//! Undoes what a fault agent left behind, by its undo record.

pub use super::undo_record::{Record, Undone};

use super::restart::{Started, start};
use super::undo_record::records;
use crate::faults;
use obol_fabric::host::Process;
use obol_observe::Observer;
use std::time::{Duration, Instant};
use std::{io, thread};

/// Longest wait for the end of a fault agent that was killed.
const DYING_TIMEOUT: Duration = Duration::from_secs(5);
/// Poll interval while waiting for its end.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

impl Record {
    /// Undoes everything that it names, and restarts what is down.
    pub fn undo(&self, observer: &mut Observer, undone: &mut Undone) {
        faults::recover(self, observer.cluster(), undone);
        self.restart(observer, undone);
    }

    /// Restarts what is down.
    pub(super) fn restart(&self, observer: &mut Observer, undone: &mut Undone) {
        let snapshot = observer.snapshot();
        for name in self.restart.iter().filter(|name| snapshot.process(name).is_none()) {
            match start(observer.cluster(), observer.deployment(), name) {
                Ok(Started::Now) => undone.done.push(format!("{name} was started")),
                Ok(Started::BySupervisor) => undone.done.push(format!("{name} is left to its supervisor")),
                Err(error) => undone.failed.push(format!("{name} could not be started: {error}")),
            }
        }
    }
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
