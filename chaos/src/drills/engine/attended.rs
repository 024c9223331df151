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
use std::path::{Path, PathBuf};
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
    /// The names of the hosts that may be crashed.
    pub crash: Vec<String>,
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
    let How { count, undo_early, ssh, crash, login, accountable, progress: as_lines } = how;
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
        crash,
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

/// Shows consoles and recordings that a drill ran. If it cannot be noted, the drill's own report still
/// does.
struct Notes {
    /// The cluster's directory.
    dir: PathBuf,
    /// What was said of a mark that could not be written.
    unshown: Option<String>,
}

impl Notes {
    /// Writes a mark. Returns what to say if it cannot be written, unless that was said before.
    fn take(&mut self, mark: &Mark) -> Option<&str> {
        let error = mark.write(&self.dir).err()?;
        let unshown = format!("consoles and recordings do not show the drill: {error}");
        if self.unshown.as_ref() == Some(&unshown) {
            return None;
        }
        Some(self.unshown.insert(unshown).as_str())
    }
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
    let mut notes = Notes { dir: root.join(cluster.as_str()), unshown: None };
    let mut note = |verdict| {
        let mark = Mark::drill(clock::now(), &drill.id, verdict);
        if let Some(unshown) = notes.take(&mark) {
            tracing::warn!(target: "drill", "{unshown}");
            // Nobody may read this.
            let _ = output::remark(unshown);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_consoles_do_not_show_a_drill_is_said_once() {
        let root = tempfile::tempdir().expect("made");
        let dir = root.path().join("default");
        let [begin, end] = [None, Some("refused")].map(|verdict| Mark::drill(clock::now(), "d", verdict));
        let mut notes = Notes { dir: dir.clone(), unshown: None };
        assert!(notes.take(&begin).is_some_and(|said| said.contains("consoles and recordings do not show")));
        assert_eq!(notes.take(&end), None);
        std::fs::create_dir(&dir).expect("made");
        let mut notes = Notes { dir, unshown: None };
        assert_eq!([notes.take(&begin).is_some(), notes.take(&end).is_some()], [false; 2]);
    }
}
