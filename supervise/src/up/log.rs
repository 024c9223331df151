//! The log of `up`, and what it notes of processes that have ended.

use crate::hosts::HostNames;
use crate::logging;
use obol_fabric::Name;
use obol_logs::{Destination, Settings};
use obol_node::fate;
use obol_term::output::Failure;
use signal_hook::low_level::signal_name;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

/// Starts the log of this process. Logs of earlier clusters go when they are too old or too many.
pub(super) fn begin(root: &Path, hosts: &HostNames, log: &Settings) -> Result<(), Failure> {
    if log.destination == Destination::Off {
        for cluster in hosts.all() {
            obol_logs::switch_off(&root.join(cluster.as_str())).map_err(Failure::failed)?;
        }
        return Ok(());
    }
    logging::retire();
    logging::start_command(log, root, hosts.of(1), "up");
    Ok(())
}

/// How a process ended, in words: a signal by its name.
pub(super) fn words(status: ExitStatus) -> String {
    let core = if status.core_dumped() { ", core dumped" } else { "" };
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => match signal_name(signal) {
            Some(name) => format!("killed by {name}{core}"),
            None => format!("killed by signal {signal}{core}"),
        },
        (None, None) => status.to_string(),
    }
}

/// The end of a process, as a line of the log, and as a note for `status` in the directory of its
/// cluster.
pub(super) fn end(dir: &Path, name: &str, pid: u32, status: ExitStatus) {
    let how = words(status);
    if status.success() {
        tracing::info!(target: "up", who = name, pid, "{name} (pid {pid}) ended");
    } else {
        tracing::warn!(target: "up", who = name, pid, "{name} (pid {pid}) ended: {how}");
    }
    let noted = Name::new(name).map(|name| fate::note(dir, name, pid, &how));
    // Only an explanation in `status` depends on it.
    if let Ok(Err(error)) = noted {
        tracing::warn!(target: "up", who = name, "cannot note how {name} ended in {}: {error}", dir.display());
    }
}

/// A process of this name is about to run again.
pub(super) fn begins(dir: &Path, name: &str) {
    // A note that stays names the pid of the earlier one.
    let _ = Name::new(name).map(|name| fate::forget(dir, name));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_named_and_a_status_is_a_number() {
        let words = |status| words(ExitStatus::from_raw(status));
        assert_eq!(words(9), "killed by SIGKILL");
        assert_eq!(words(11 | 0x80), "killed by SIGSEGV, core dumped");
        assert_eq!(words(40), "killed by signal 40");
        assert_eq!(words(3 << 8), "exit status 3");
        assert_eq!(words(0), "exit status 0");
    }

    #[test]
    fn the_end_of_a_process_is_noted_until_it_runs_again() {
        let dir = tempfile::tempdir().expect("made");
        let fate = || fate::of(dir.path(), "app-1").map(|fate| (fate.pid, fate.how));
        end(dir.path(), "app-1", 7, ExitStatus::from_raw(9));
        assert_eq!(fate(), Some((7, "killed by SIGKILL".to_owned())));
        begins(dir.path(), "app-1");
        assert_eq!(fate(), None);
    }
}
