//! The log of `up`.

use super::hosts::HostNames;
use crate::logging::{self, LogOptions};
use obol_console::output::Failure;
use std::path::Path;
use std::process::ExitStatus;

/// Starts the log of this process. Logs of earlier clusters go when they are too old or too many.
pub(super) fn begin(root: &Path, hosts: &HostNames, log: &LogOptions) -> Result<(), Failure> {
    if log.is_off() {
        for cluster in hosts.all() {
            obol_logs::switch_off(&root.join(cluster.as_str())).map_err(Failure::failed)?;
        }
        return Ok(());
    }
    logging::retire();
    log.start_command(root, hosts.of(1), "up");
    Ok(())
}

/// The end of a process, as a line of the log.
pub(super) fn end(name: &str, pid: u32, status: ExitStatus) {
    if status.success() {
        tracing::info!(target: "up", who = name, pid, "{name} (pid {pid}) ended");
    } else {
        tracing::warn!(target: "up", who = name, pid, "{name} (pid {pid}) ended with {status}");
    }
}
