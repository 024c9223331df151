//! Whether a cluster that starts has come up, and why it never will.

use super::child_logs::by_reason;
use super::supervisor::Supervisor;
use obol_observe::{Health, Snapshot};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time from the start of the last process. A cluster that is not healthy by then is shown as it is;
/// one in which no process acts has failed to start.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Grace period after the first failed start, so that one message reports all.
const FAILING_TIMEOUT: Duration = Duration::from_millis(300);

/// How far a cluster is that starts.
pub(super) struct Start {
    /// When its last process had been started.
    all_started: Instant,
    /// When the first process was found to have failed.
    failing: Option<Instant>,
    pub(super) up: bool,
}

impl Start {
    pub(super) fn new() -> Self {
        Self { all_started: Instant::now(), failing: None, up: false }
    }

    /// Judges a cluster that is not up yet; why it never will be.
    pub(super) fn judge(&mut self, snapshot: &Snapshot, supervisor: &Supervisor) -> Result<(), String> {
        let failures = supervisor.failures();
        if snapshot.health == Health::Healthy && failures.is_empty() {
            self.up = true;
            return Ok(());
        }
        if !failures.is_empty() && self.failing.get_or_insert_with(Instant::now).elapsed() >= FAILING_TIMEOUT
        {
            return Err(by_reason(&failures));
        }
        if self.all_started.elapsed() > START_TIMEOUT {
            self.up = acts(snapshot);
            if !self.up {
                return Err(unstarted(snapshot, &failures));
            }
        }
        Ok(())
    }

    /// Checks a cluster whose time is over; the error says why it did not come up.
    pub(super) fn check_at_end(
        &self,
        time: Duration,
        snapshot: &Snapshot,
        supervisor: &Supervisor,
    ) -> Result<(), String> {
        if self.up || acts(snapshot) {
            return Ok(());
        }
        Err(format!("it had {time:?}, and then\n  {}", unstarted(snapshot, &supervisor.failures())))
    }
}

/// Whether any program may act.
fn acts(snapshot: &Snapshot) -> bool {
    snapshot.all_processes().any(|process| process.is_active(snapshot.at))
}

fn unstarted(snapshot: &Snapshot, failures: &BTreeMap<String, String>) -> String {
    if !failures.is_empty() {
        return by_reason(failures);
    }
    let why = if snapshot.reasons.is_empty() {
        "no program may act yet".to_owned()
    } else {
        snapshot.reasons.join("\n  ")
    };
    format!("it is {}\n  {why}", snapshot.health.name())
}
