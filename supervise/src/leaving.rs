//! The end of processes that a command has started for itself.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use obol_fabric::Name;
use obol_observe::calendar::unix_seconds;
use obol_observe::{Observer, Snapshot, missed};
use obol_term::output::Failure;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

/// How long they may take to leave the cluster.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Poll interval for their ends.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Asks members to leave, so that none counts as failed, and waits up to five seconds. What has not ended
/// by then, such as a frozen one, is left to the caller, who kills it.
pub fn terminate_and_wait<'c>(children: impl Iterator<Item = &'c mut Child>) {
    let runs = |child: &mut Child| matches!(child.try_wait(), Ok(None));
    let mut left: Vec<&mut Child> = children.collect();
    left.retain_mut(|child| runs(child));
    for child in &left {
        // It is not reaped, so the number is its own.
        let _ = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM);
    }
    let end = Instant::now() + TIMEOUT;
    while !left.is_empty() && Instant::now() < end {
        std::thread::sleep(POLL_INTERVAL);
        left.retain_mut(|child| runs(child));
    }
}

/// Members that a command has started for itself, and perhaps killed, are not expected back: all of this
/// host that have such a name and do not live.
pub fn forget_own(root: &Path, cluster: Name, is_own: impl Fn(&str) -> bool) {
    // If it cannot be written, they are reported as missed, which `obol forget` ends.
    let _ = forget(root, cluster, |snapshot| {
        let gone = snapshot.processes.iter().filter(|p| !p.alive && is_own(p.name.as_str()));
        gone.map(|p| p.name).collect()
    });
}

/// Expects members back no more on this host, also if they failed just now.
pub fn forget(root: &Path, cluster: Name, names: impl FnOnce(&Snapshot) -> Vec<Name>) -> Result<(), Failure> {
    let mut observer = Observer::open(root, cluster).map_err(Failure::refused)?.of_this_host();
    let snapshot = observer.snapshot();
    let (dir, view) = (observer.cluster().dir(), snapshot.view.as_deref());
    missed::forget(dir, &names(&snapshot), view, unix_seconds()).map_err(Failure::failed)
}
