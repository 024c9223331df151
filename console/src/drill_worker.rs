//! Runs what the chaos screen requests, off the drawing thread: previews by the drills' own
//! planner, and runs as a child process `obol drill run`, so that a drill is the same
//! from a shell, and outlives the console.

use crate::message::Message;
use crate::state::act::Verb;
use crate::state::chaos::{Choice, DrillUpdate, Journal, Preview};
use obol_chaos::drillfile;
use obol_chaos::drills::audit::approval::Source;
use obol_chaos::drills::{self, Fleet, Plan};
use obol_fabric::Name;
use obol_fabric::host::Process;
use obol_node::ClusterLocation;
use parking_lot::Mutex;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

/// Delay before a drill's progress is shown.
const DISPLAY_DELAY: Duration = Duration::from_millis(20);

/// The drills that ship.
pub(crate) fn choices() -> Vec<Choice> {
    let read = |shipped: drillfile::Shipped| {
        let (drill, _) = drillfile::load(shipped.name).ok()?;
        Some(Choice { name: shipped.name.to_owned(), title: drill.title, count: drill.repeat.count })
    };
    drillfile::shipped().filter_map(read).collect()
}

/// Carries out the chaos screen's requests.
pub(crate) struct Worker {
    location: ClusterLocation,
    tx: Sender<Message>,
    running: Arc<Mutex<Option<Process>>>,
}

impl Worker {
    pub(crate) fn new(location: ClusterLocation, tx: Sender<Message>) -> Self {
        Self { location, tx, running: Arc::default() }
    }

    /// Plans a drill without running it.
    pub(crate) fn preview(&self, drill: String) {
        let (location, tx) = (self.location.clone(), self.tx.clone());
        thread::spawn(move || {
            let found = preview(&location, &drill);
            // The console may have ended.
            let _ = tx.send(Message::Chaos(DrillUpdate::Previewed { drill, found }));
        });
    }

    /// Runs a drill.
    pub(crate) fn run(&self, drill: String) {
        let (location, tx, running) = (self.location.clone(), self.tx.clone(), Arc::clone(&self.running));
        thread::spawn(move || {
            let report = |update| tx.send(Message::Chaos(update)).is_ok();
            let found = run(&location, &drill, &running, report);
            *running.lock() = None;
            let _ = tx.send(Message::Chaos(DrillUpdate::Ended { found }));
        });
    }

    /// Kills, stops or starts a process, by the command of that name.
    pub(crate) fn act(&self, verb: Verb, who: Name) {
        let (location, tx) = (self.location.clone(), self.tx.clone());
        thread::spawn(move || {
            let how = act(&location, verb, who);
            // The console may have ended.
            let _ = tx.send(Message::Chaos(DrillUpdate::Acted { verb, who, how }));
        });
    }

    /// Terminates the running drill, which undoes its faults first.
    pub(crate) fn abort(&self) {
        let running = *self.running.lock();
        // If it has ended already, its own report says so.
        if let Some(held) = running.and_then(|process| process.hold().ok()) {
            let _ = held.terminate();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.abort();
    }
}

fn act(location: &ClusterLocation, verb: Verb, who: Name) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let ran = Command::new(program)
        .args([verb.command(), who.as_str(), "--cluster", location.cluster.as_str(), "--root"])
        .arg(&location.root)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("could not be run: {error}"))?;
    if ran.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ran.stderr);
    let last = said.trim_end().lines().last().unwrap_or("it failed without an error message");
    Err(last.trim_start_matches("obol: ").to_owned())
}

fn preview(location: &ClusterLocation, drill: &str) -> Result<Preview, String> {
    let (parsed, text) = drillfile::load(drill).map_err(|error| error.to_string())?;
    let source = Source::new(drill, &text);
    let mut fleet = Fleet::open(&location.root, location.cluster).map_err(|error| error.to_string())?;
    let (snapshot, supervisor) = fleet.look();
    let plan = drills::plan(&parsed, &fleet, &snapshot, &supervisor, 1);
    Ok(described(&plan.permitted(&parsed, &source, &fleet, location.cluster)))
}

/// A plan, line by line.
fn described(plan: &Plan) -> Preview {
    let mut lines = Vec::new();
    let mut hits = Vec::new();
    for step in &plan.steps {
        lines.push((format!("step {}", step.step), false));
        for fault in &step.faults {
            let lasts = fault.lasts.as_ref().map_or(String::new(), |span| format!(" for {span}"));
            let whom: Vec<String> =
                fault.hits.iter().map(|hit| format!("{} (pid {})", hit.process, hit.pid)).collect();
            lines.push((format!("  {}{lasts}: {}", fault.fault, whom.join(", ")), false));
            hits.extend(fault.hits.iter().map(|hit| format!("{} {}", fault.fault, hit.process)));
        }
        lines.extend(step.refusal.iter().map(|refusal| (format!("  {refusal}"), true)));
    }
    for answer in &plan.guards {
        let word = if answer.allows { "allows" } else { "REFUSES" };
        lines.push((format!("guard {} {word}: {}", answer.guard, answer.says), !answer.allows));
    }
    Preview { drill: plan.drill.clone(), allowed: plan.allowed, lines, hits: hits.join(", ") }
}

/// A progress line of a running drill.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    /// Completed repetitions, and their total.
    Done(u32, u32),
    /// The running repetition and step, and its stage.
    Stage(String, String),
}

fn progress(line: &str) -> Option<Line> {
    let rest = line.strip_prefix("drill ")?;
    if let Some((step, words)) = rest.split_once(", repetition ").and_then(|(_, rest)| rest.split_once(": "))
    {
        return Some(Line::Stage(step.to_owned(), words.to_owned()));
    }
    let (done, of) = rest.split_once(": ")?.1.split_once(" of ")?;
    Some(Line::Done(done.parse().ok()?, of.parse().ok()?))
}

/// Runs a drill; `report` gets its progress.
fn run(
    location: &ClusterLocation,
    drill: &str,
    running: &Mutex<Option<Process>>,
    report: impl Fn(DrillUpdate) -> bool,
) -> Result<Journal, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut child = Command::new(program)
        .args([
            "drill",
            "run",
            drill,
            "--yes",
            "--json",
            "--progress",
            "--cluster",
            location.cluster.as_str(),
            "--root",
        ])
        .arg(&location.root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C at the console must not interrupt the drill.
        .process_group(0)
        .spawn()
        .map_err(|error| format!("could not start the drill: {error}"))?;
    // A child that has ended already cannot be aborted.
    *running.lock() = Process::of(child.id()).ok();
    // The journal comes at the end, and may be larger than the pipe's buffer.
    let journal = child.stdout.take().map(|mut out| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            // A truncated journal is not parsed.
            let _ = out.read_to_end(&mut bytes);
            bytes
        })
    });
    let mut last_line = String::new();
    let mut lines = BufReader::new(child.stderr.take().ok_or("the drill has no standard error")?);
    let mut line = String::new();
    loop {
        if lines.buffer().is_empty() && lines.fill_buf().is_ok_and(|some| !some.is_empty()) {
            // Drawing at the moment of the cue would take a core from the measurement.
            thread::sleep(DISPLAY_DELAY);
        }
        line.clear();
        if !lines.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            break;
        }
        let line = line.trim_end();
        let update = match progress(line) {
            Some(Line::Done(done, of)) => DrillUpdate::Done { done, of },
            Some(Line::Stage(step, words)) => DrillUpdate::Stage { step, words },
            None => {
                line.clone_into(&mut last_line);
                continue;
            }
        };
        // The console may have ended.
        let _ = report(update);
    }
    let journal = journal.and_then(|journal| journal.join().ok()).unwrap_or_default();
    child.wait().map_err(|error| format!("the drill was lost: {error}"))?;
    serde_json::from_slice(&journal).map_err(|error| match last_line.as_str() {
        "" => format!("the drill's journal cannot be read: {error}"),
        said => said.trim_start_matches("obol: ").to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_chaos::drills::{Progress, Stage};

    #[test]
    fn progress_lines_are_recognised() {
        assert_eq!(progress("drill app: 3 of 20"), Some(Line::Done(3, 20)));
        let text = Progress { number: 3, step: "kill", stage: Stage::Armed(&["app-2".to_owned()]) };
        let stage = Line::Stage("3 kill".to_owned(), "armed against app-2".to_owned());
        assert_eq!(progress(&format!("drill app, {text}")), Some(stage));
        assert_eq!(progress("obol: guard max_targets refuses: 3 of 2"), None);
        assert_eq!(progress("the report is in drill-app-1"), None);
    }
}
