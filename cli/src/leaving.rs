//! The end of processes that a command has started for itself.

use rustix::process::{Pid, Signal, kill_process};
use std::process::Child;
use std::time::{Duration, Instant};

/// How long they may take to leave the cluster.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Poll interval for their ends.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Lets members leave, so that none of them counts as failed. What has not ended in time, such as a
/// frozen one, is left to the caller, who kills it.
pub(crate) fn let_leave<'c>(children: impl Iterator<Item = &'c mut Child>) {
    let runs = |child: &mut Child| matches!(child.try_wait(), Ok(None));
    let mut left: Vec<&mut Child> = children.collect();
    left.retain_mut(|child| runs(child));
    for child in &left {
        // It is not reaped, so the number is its own.
        let _ = kill_process(Pid::from_child(child), Signal::TERM);
    }
    let end = Instant::now() + TIMEOUT;
    while !left.is_empty() && Instant::now() < end {
        std::thread::sleep(POLL_INTERVAL);
        left.retain_mut(|child| runs(child));
    }
}
