//! Runs a drill from a command.

use crate::logging::LogOptions;
use obol_chaos::drillfile::{Drill, ReportFiles};
use obol_chaos::drills::engine::attended::{self, How};
use obol_chaos::drills::{self, Journal};
use obol_fabric::Name;
use obol_profiles::Profile;
use obol_supervise::signals;
use obol_term::output::{self, Failure};
use std::path::Path;

/// Runs a drill in the simulator.
pub(super) fn simulate(drill: &Drill, profile: &str, how: How) -> Result<Journal, Failure> {
    let profile = Profile::load(profile).map_err(Failure::refused)?;
    attended::simulate(drill, profile, how, signals::ending()?)
}

/// Runs a drill until its end, or a signal to end.
pub(crate) fn go(
    root: &Path,
    cluster: Name,
    drill: &Drill,
    log: &LogOptions,
    how: How,
) -> Result<Journal, Failure> {
    log.start_command(root, cluster, "drill");
    attended::go(root, cluster, drill, how, signals::ending()?)
}

/// Keeps one drill of several, in a new directory. What was measured counts also if that fails.
pub(super) fn keep_in(dir: &Path, drill: &Drill, journal: &Journal) {
    let made = std::fs::create_dir(dir);
    let written = made.and_then(|()| drills::report::write(&ReportFiles::all(), journal, drill, dir));
    if written.is_err() {
        output::kept("report", dir, written);
    }
}
