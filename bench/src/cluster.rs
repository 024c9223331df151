//! The cluster that is measured, and drills on it.

use super::PROFILE;
use obol_chaos::drills::engine::journal::{Outcome, Trial};
use obol_chaos::drills::studies::quick::Report;
use obol_chaos::drills::{self, Options, Verdict, Victims};
use obol_fabric::Nanos;
use obol_fabric::host::this_program;
use obol_profiles::Profile;
use obol_supervise::running::{Running, Shape};
use obol_term::output::Failure;
use std::path::Path;

/// The cluster of nine processes that is measured.
pub(super) fn cluster(root: &Path) -> Result<Running, Failure> {
    let profile = Profile::builtin(PROFILE).map_err(Failure::failed)?;
    let shape = Shape::new("bench", &profile, 3);
    Running::start(root, &shape)
}

/// Waits until no earlier failure of a name counts: the kills of several runs together could have
/// joins put on hold, and the benchmark would measure that.
pub(super) fn start_over(running: &Running) -> Result<(), Failure> {
    std::thread::sleep(running.site()?.deployment.profile.timing.join_window.to_std());
    Ok(())
}

/// The repetitions that were measured.
pub(super) fn drill(running: &Running, victims: Victims, count: u32) -> Result<Vec<Trial>, Failure> {
    start_over(running)?;
    let options = Options::new(this_program::file().map_err(Failure::failed)?);
    let drill = victims.drill(running.site()?.deployment.environment, count, Nanos::from_millis(20));
    let journal = drills::run(&running.reaper.root, running.reaper.cluster, &drill, &options, |_| true)
        .map_err(Failure::failed)?;
    if journal.verdict != Verdict::Passed {
        let remarks = Report::of(&journal).remarks.join("; ");
        return Err(Failure::Failed(format!(
            "drill {}: {}: {remarks}",
            journal.drill,
            journal.verdict.name()
        )));
    }
    Ok(journal.trials.into_iter().filter(|trial| trial.outcome == Outcome::Measured).collect())
}
