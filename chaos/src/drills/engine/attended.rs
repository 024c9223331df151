//! A drill under the eyes of an operator: progress on standard error, marks for consoles and recordings,
//! lines of the log.

use super::journal::Journal;
use super::{Accountable, Options, progress, runner, simulated};
use crate::drillfile::Drill;
use crate::drills::agent::ssh::{Login, Ssh};
use obol_fabric::Name;
use obol_fabric::host::clock;
use obol_fabric::host::this_program;
use obol_membership::ActiveMutant;
use obol_node::Site;
use obol_observe::annotations::{Forwarded, Mark};
use obol_profiles::Profile;
use obol_term::output::{self, Failure};
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a run is given beside its drill; see [`super::Options`].
#[derive(Default)]
pub struct How {
    /// Repetitions, in place of the drill's.
    pub count: Option<u32>,
    /// Faults are undone as soon as they were noticed.
    pub undo_early: bool,
    /// Another host on which the fault agent injects.
    pub ssh: Option<Ssh>,
    /// How other hosts of the cluster are reached.
    pub login: Login,
    /// What is checked and logged.
    pub accountable: Accountable,
    /// Whether every repetition and step is reported, also to scripts.
    pub progress: bool,
}

/// What reports progress, and stops at a signal to end.
struct Watched {
    options: Options,
    go_on: Box<dyn FnMut(u32) -> bool>,
}

/// Writes a line of progress for the program that started this one.
fn write(line: &progress::Line) -> std::io::Result<()> {
    output::remark(serde_json::to_string(line)?)
}

/// As [`write`]; that nobody reads it any more is found between two repetitions.
pub fn report(line: &progress::Line) {
    let _ = write(line);
}

fn watched(drill: &Drill, how: How, stop: Arc<AtomicBool>) -> Result<Watched, Failure> {
    let How { count, undo_early, ssh, login, accountable, progress: as_lines } = how;
    let program = this_program::file().map_err(Failure::failed)?;
    let on_wait: fn(&Drill, &[String]) = |drill, reasons| {
        // As below.
        let _ = output::remark(format_args!(
            "drill {}: waits until the cluster is healthy: {}",
            drill.id,
            reasons.join("; ")
        ));
    };
    let say_wait: fn(&Drill, &[String]) = |_, reasons| {
        report(&progress::Line::Unhealthy { reasons: reasons.to_vec() });
    };
    let on_wait = if as_lines { say_wait } else { on_wait };
    let options = Options {
        count,
        undo_early,
        ssh,
        login,
        accountable,
        on_progress: as_lines.then_some(report as fn(&progress::Line)),
        on_wait: Some(on_wait),
        interrupted: Arc::clone(&stop),
        ..Options::new(program)
    };
    let (id, count) = (drill.id.clone(), count.unwrap_or(drill.repeat.count));
    let chatty = std::io::stderr().is_terminal();
    let go_on = Box::new(move |n: u32| {
        let mut is_watched = true;
        if as_lines {
            // A drill must not outlive the console that started it.
            is_watched = write(&progress::Line::Repetitions { done: n, of: count }).is_ok();
        } else if chatty && n > 0 && (n.is_multiple_of(10) || n == count) {
            // Progress is informative only.
            let _ = output::remark(format_args!("drill {id}: {n} of {count}"));
        }
        is_watched && !stop.load(Ordering::Relaxed)
    });
    Ok(Watched { options, go_on })
}

/// Runs a drill in the simulator until its end, or until `stop` is set.
pub fn simulate(
    drill: &Drill,
    profile: Profile,
    how: How,
    stop: Arc<AtomicBool>,
) -> Result<Journal, Failure> {
    // The cluster, and its first wait, are the simulator's: nothing to wait for.
    let Watched { options, go_on } = watched(drill, how, stop)?;
    let options = Options { on_wait: None, ..options };
    simulated::simulate(drill, profile, ActiveMutant::NONE, &options, go_on).map_err(Failure::refused)
}

/// Runs a drill until its end, or until `stop` is set, and says so to consoles, recordings and logs.
pub fn go(
    root: &Path,
    cluster: Name,
    drill: &Drill,
    how: How,
    stop: Arc<AtomicBool>,
) -> Result<Journal, Failure> {
    let Watched { options, go_on } = watched(drill, how, stop)?;
    // Consoles and recordings show that a drill ran. If it cannot be noted, the drill's own report still
    // does.
    let note = |verdict| {
        let mark = Mark::drill(clock::now(), &drill.id, verdict);
        if let Err(error) = mark.write(&root.join(cluster.as_str())) {
            tracing::warn!(target: "drill", "consoles and recordings do not show the drill: {error}");
            // Nobody may read this.
            let _ = output::remark(format_args!("consoles and recordings do not show the drill: {error}"));
        }
        if let Ok(site) = Site::open(root, cluster)
            && let Forwarded::Not(why) = mark.forward(&site)
        {
            tracing::warn!(target: "drill", "the annotation is on this host, and not on all others: {why}");
        }
    };
    note(None);
    tracing::info!(target: "drill", drill = drill.id.as_str(), "drill {} begins", drill.id);
    let found = runner::run(root, cluster, drill, &options, go_on).map_err(Failure::refused);
    let verdict = found.as_ref().map_or("refused", |journal| journal.verdict.name());
    tracing::info!(target: "drill", drill = drill.id.as_str(), verdict, "drill {}: {verdict}", drill.id);
    note(Some(verdict));
    found
}
