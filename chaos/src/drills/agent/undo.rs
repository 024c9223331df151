//! Undoes what a fault agent left behind, by its undo record.

use super::restart::{Started, start};
use super::undo_record::records;
use crate::faults::{self, Record, Undone};
use obol_fabric::host::{Held, Process};
use obol_observe::Observer;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{io, thread};

/// Longest wait for the end of a fault agent that was killed.
const DYING_TIMEOUT: Duration = Duration::from_secs(5);
/// Poll interval while waiting for its end.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// What an earlier drill left behind, and could not be undone.
#[derive(Debug, thiserror::Error)]
#[error("an earlier drill left something behind that cannot be undone: {}", .0.join("; "))]
pub struct LeftBehind(pub Vec<String>);

/// Undoes everything that a record names, and restarts what is down.
pub(crate) fn undo(record: &Record, observer: &mut Observer, undone: &mut Undone) {
    faults::recover(record, observer.cluster(), undone);
    restart(record, observer, undone);
}

/// Restarts what is down.
pub(crate) fn restart(record: &Record, observer: &mut Observer, undone: &mut Undone) {
    let snapshot = observer.snapshot();
    for name in record.restart.iter().filter(|name| snapshot.process(name).is_none()) {
        match start(observer.cluster(), observer.deployment(), name) {
            Ok(Started::Now) => undone.done.push(format!("{name} was started")),
            Ok(Started::BySupervisor) => undone.done.push(format!("{name} is left to its supervisor")),
            Err(error) => undone.failed.push(format!("{name} could not be started: {error}")),
        }
    }
}

/// Undoes everything that fault agents left behind, and ends fault agents whose runner is gone.
/// Idempotent. The caller holds the drill lock.
pub fn recover(observer: &mut Observer) -> io::Result<Undone> {
    let mut undone = Undone::default();
    for record in records(observer.cluster().dir())? {
        let (pid, started) = record.fault_agent;
        if let Ok(fault_agent) = (Process { pid, started }).hold() {
            // Without it nothing is injected concurrently.
            if let Err(error) = fault_agent.kill()
                && !fault_agent.has_ended()
            {
                undone.failed.push(format!("the fault agent (pid {pid}) could not be ended: {error}"));
                continue;
            }
            await_end(&fault_agent);
            undone.done.push(format!("a fault agent that outlived its runner was ended (pid {pid})"));
        }
        undo_left(observer, &record, &mut undone)?;
    }
    Ok(undone)
}

/// Whether a fault agent has something left to undo. Nothing is left of a cluster that is gone.
pub(super) fn is_anything_left_of(dir: &Path, fault_agent: Process) -> io::Result<bool> {
    match records(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        records => Ok(records?.iter().any(|record| record.is_of(fault_agent))),
    }
}

/// Undoes what one fault agent has left behind, once it has ended.
pub(super) fn recover_after(observer: &mut Observer, fault_agent: Process) -> io::Result<Undone> {
    if let Ok(held) = fault_agent.hold() {
        await_end(&held);
    }
    let mut undone = Undone::default();
    let all = records(observer.cluster().dir())?;
    for record in all.into_iter().filter(|record| record.is_of(fault_agent)) {
        undo_left(observer, &record, &mut undone)?;
    }
    Ok(undone)
}

fn await_end(fault_agent: &Held) {
    let end = Instant::now() + DYING_TIMEOUT;
    while !fault_agent.has_ended() && Instant::now() < end {
        thread::sleep(POLL_INTERVAL);
    }
}

/// Undoes what a record names, and removes it if all of that could be undone.
fn undo_left(observer: &mut Observer, record: &Record, undone: &mut Undone) -> io::Result<()> {
    let dir = observer.cluster().dir().to_owned();
    let Some(_one) = record.lock(&dir)? else { return Ok(()) };
    let failed = undone.failed.len();
    undo(record, observer, undone);
    if undone.failed.len() == failed {
        record.remove(&dir)?;
    }
    Ok(())
}
