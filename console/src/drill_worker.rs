//! Runs what the chaos screen requests, off the drawing thread: previews by the drills' own
//! planner, and runs as a child process `obol drill run`, so that a drill is the same
//! from a shell, and outlives the console.

use crate::message::Message;
use crate::state::act::Verb;
use crate::state::chaos::{Choice, DrillUpdate, Preview};
use obol_chaos::drillfile;
use obol_chaos::drills::audit::approval::Source;
use obol_chaos::drills::engine::progress::Line;
use obol_chaos::drills::{self, Fleet, Journal, Plan};
use obol_fabric::Name;
use obol_fabric::host::Process;
use obol_fabric::host::this_program;
use obol_node::ClusterLocation;
use parking_lot::Mutex;
use std::io::{BufRead, BufReader, PipeReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
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
        let hits = drill.targets.iter().map(|target| target.process_kind()).collect();
        Some(Choice { name: shipped.name.to_owned(), title: drill.title, count: drill.repeat.count, hits })
    };
    drillfile::shipped().filter_map(read).collect()
}

/// Carries out the chaos screen's requests.
pub(crate) struct Worker {
    location: ClusterLocation,
    tx: Sender<Message>,
    running: Arc<Mutex<Option<Process>>>,
    /// The command that follows log lines.
    logs: Mutex<Option<Child>>,
}

impl Worker {
    pub(crate) fn new(location: ClusterLocation, tx: Sender<Message>) -> Self {
        Self { location, tx, running: Arc::default(), logs: Mutex::default() }
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

    pub(crate) fn run(&self, drill: String) {
        let (location, tx, running) = (self.location.clone(), self.tx.clone(), Arc::clone(&self.running));
        thread::spawn(move || {
            let report = |update| tx.send(Message::Chaos(update)).is_ok();
            let found = run(&location, &drill, &running, report).map(Box::new);
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

    /// Passes on the log lines of a process, by the command for them, and ends the one before.
    pub(crate) fn follow_logs(&self, who: Option<Name>) {
        let mut logs = self.logs.lock();
        if let Some(mut child) = logs.take() {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
        let Some(who) = who else { return };
        let tx = self.tx.clone();
        match lines(&self.location, who) {
            Ok((child, out)) => {
                *logs = Some(child);
                thread::spawn(move || {
                    let lines = out.lines().map_while(Result::ok);
                    let end = std::iter::once("no more lines are read".to_owned());
                    // The console may have ended.
                    lines.chain(end).all(|line| tx.send(Message::Logged(who, line)).is_ok())
                });
            }
            Err(why) => drop(tx.send(Message::Logged(who, why))),
        }
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
        self.follow_logs(None);
    }
}

fn act(location: &ClusterLocation, verb: Verb, who: Name) -> Result<(), String> {
    let ran = this_program::command()
        .map_err(|error| error.to_string())?
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

/// A command that prints log lines of a process as they come, and what it prints.
fn lines(location: &ClusterLocation, who: Name) -> Result<(Child, BufReader<PipeReader>), String> {
    let failed = |error: std::io::Error| format!("log lines cannot be read: {error}");
    let (out, both) = std::io::pipe().map_err(failed)?;
    let errors = both.try_clone().map_err(failed)?;
    let child = this_program::command()
        .map_err(failed)?
        .args([
            "logs",
            who.as_str(),
            "--last",
            "200",
            "--follow",
            "--cluster",
            location.cluster.as_str(),
            "--root",
        ])
        .arg(&location.root)
        .stdin(Stdio::null())
        .stdout(both)
        .stderr(errors)
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    Ok((child, BufReader::new(out)))
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

/// Runs a drill; `report` gets its progress.
fn run(
    location: &ClusterLocation,
    drill: &str,
    running: &Mutex<Option<Process>>,
    report: impl Fn(DrillUpdate) -> bool,
) -> Result<Journal, String> {
    let mut child = this_program::command()
        .map_err(|error| error.to_string())?
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
    let said = watch(child.stderr.take().ok_or("the drill has no standard error")?, report);
    let journal = journal.and_then(|journal| journal.join().ok()).unwrap_or_default();
    child.wait().map_err(|error| format!("the drill was lost: {error}"))?;
    match (serde_json::from_slice::<Journal>(&journal), said) {
        // The screen shows figures and remarks; there may be many repetitions.
        (Ok(journal), _) => Ok(Journal { trials: Vec::new(), ..journal }),
        (Err(error), None) => Err(format!("the drill's journal cannot be read: {error}")),
        (Err(_), Some(said)) => Err(said),
    }
}

/// Passes on what a drill reports on its standard error, until it ends. Returns why it failed, or else
/// its last line for people: a drill that dies cannot say why.
fn watch(errors: impl Read, report: impl Fn(DrillUpdate) -> bool) -> Option<String> {
    let (mut failed, mut said) = (None, None);
    let mut lines = BufReader::new(errors);
    let mut text = String::new();
    loop {
        if lines.buffer().is_empty() && lines.fill_buf().is_ok_and(|some| !some.is_empty()) {
            // Drawing at the moment of the cue would take a core from the measurement.
            thread::sleep(DISPLAY_DELAY);
        }
        text.clear();
        if !lines.read_line(&mut text).is_ok_and(|bytes| bytes > 0) {
            return failed.or(said);
        }
        let update = match serde_json::from_str(&text) {
            Ok(Line::Repetitions { done, of }) => DrillUpdate::Done { done, of },
            Ok(Line::Step(progress)) => DrillUpdate::Stage(progress),
            Ok(Line::Unhealthy { .. }) => continue,
            Ok(Line::Failed { reason }) => {
                failed = Some(reason);
                continue;
            }
            Err(_) => {
                said = Some(text.trim_end().to_owned());
                continue;
            }
        };
        // The console may have ended.
        let _ = report(update);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_chaos::drills::engine::progress::{Progress, Stage};
    use std::cell::RefCell;

    #[test]
    fn progress_is_passed_on_and_what_is_for_people_is_kept_in_case_that_the_drill_dies() {
        let armed =
            Progress { number: 3, step: "kill".to_owned(), stage: Stage::Armed(vec!["app-2".to_owned()]) };
        let lines = [Line::Repetitions { done: 3, of: 20 }, Line::Step(armed.clone())];
        let mut errors: String =
            lines.iter().map(|line| serde_json::to_string(line).expect("JSON") + "\n").collect();
        errors.push_str("drill app: 4 of 20\nthe report is in drill-app-1\n");
        let found = RefCell::new(Vec::new());
        let said = watch(errors.as_bytes(), |update| {
            found.borrow_mut().push(update);
            true
        });
        assert_eq!(said.as_deref(), Some("the report is in drill-app-1"));
        let found = found.into_inner();
        let [DrillUpdate::Done { done: 3, of: 20 }, DrillUpdate::Stage(stage)] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(*stage, armed);
        let failed = serde_json::to_string(&Line::Failed { reason: "refused".to_owned() }).expect("JSON");
        assert_eq!(
            watch(format!("{failed}\nobol: refused\n").as_bytes(), |_| true).as_deref(),
            Some("refused")
        );
        assert_eq!(watch(&b""[..], |_| true), None);
    }
}
