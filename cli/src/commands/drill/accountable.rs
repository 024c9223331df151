//! `obol drill halt|resume|approve|audit`: who may run drills, who ran which, and the kill switch.

use clap::Args;
use obol_chaos::drillfile;
use obol_chaos::drills::agent::halt::REASON_CHARS_MAX;
use obol_chaos::drills::agent::switch::{self, OnHost, Order, missed};
use obol_chaos::drills::audit::approval::{Approval, Source};
use obol_chaos::drills::audit::log::{Entry, Event, Log, Who};
use obol_chaos::drills::{Accountable, Halt};
use obol_config::duration;
use obol_fabric::Name;
use obol_logs::when::When;
use obol_node::Site;
use obol_observe::calendar::{iso, unix_now};
use obol_term::output::{self, Failure};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct HaltDrills {
    /// Why, on one line
    #[arg(long, default_value = "no reason given")]
    reason: String,
    /// Print one JSON object for scripts
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Approve {
    /// The drill file
    file: String,
    /// How long the approval counts
    #[arg(long = "for", value_name = "TIME", default_value = "8h", value_parser = duration::argument)]
    time: Duration,
    /// Where the approval is written [default: FILE.approval]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Audit {
    /// Show only entries from this time on: 2h, or a time in UTC such as 2026-11-25 or
    /// 2026-11-25T07:00
    #[arg(long, value_name = "TIME")]
    since: Option<When>,
    /// Print one JSON object per entry
    #[arg(long)]
    json: bool,
}

/// The audit log of this user.
pub(super) fn log() -> Result<Log, Failure> {
    Log::of_user().map_err(Failure::refused)
}

/// What is checked and logged of a drill from this file.
pub(super) fn of_file(name: &str, text: &str, approval: Option<&Path>) -> Result<Accountable, Failure> {
    let mut source = Source::new(name, text);
    if let Some(approval) = approval {
        source.approval = approval.to_owned();
    }
    Ok(Accountable { log: Some(log()?), source: Some(source) })
}

/// Logs something that is not the run of a drill.
pub(super) fn note(
    root: &Path,
    cluster: Name,
    event: Event,
    fill: impl FnOnce(&mut Entry),
) -> Result<(), Failure> {
    let mut entry = Entry::new(event, root, cluster.as_str());
    fill(&mut entry);
    log()?.append(entry).map_err(Failure::failed)
}

/// Says that something could not be logged that is done already: whether it was changes no exit code.
pub(super) fn done_already(noted: Result<(), Failure>) {
    if let Err(failure) = noted {
        // Nobody may read this.
        let _ = output::remark(format_args!("obol: this could not be logged: {failure}"));
    }
}

/// What an order has done to the drills of a cluster.
#[derive(Clone, Copy)]
struct Effect {
    cluster: Name,
    /// What follows "drills on cluster NAME".
    now: &'static str,
    /// What ends the line.
    then: &'static str,
}

/// Says where an order was carried out, and fails if that is not everywhere.
fn report(
    effect: Effect,
    hosts: &[OnHost],
    order: &Order,
    json: Option<serde_json::Value>,
) -> Result<ExitCode, Failure> {
    let Effect { cluster, now, then } = effect;
    let done: Vec<String> = hosts.iter().filter(|one| one.done).map(|one| one.host.to_string()).collect();
    if let Some(json) = json {
        output::json(&json)?;
    } else if done.len() == hosts.len() {
        let all = if hosts.len() > 1 { format!(" on all {} hosts", hosts.len()) } else { String::new() };
        output::line(format_args!("drills on cluster {cluster} {now}{all}{then}"))?;
    } else if !done.is_empty() {
        let hosts = if done.len() > 1 { "hosts" } else { "host" };
        output::line(format_args!("drills on cluster {cluster} {now} on {hosts} {}{then}", done.join(", ")))?;
    }
    missed(hosts, order).map_or(Ok(ExitCode::SUCCESS), |why| Err(Failure::Failed(why)))
}

pub(super) fn halt(root: &Path, cluster: Name, options: &HaltDrills) -> Result<ExitCode, Failure> {
    let reason = options.reason.trim().to_owned();
    if !Halt::is_reason(&reason) {
        return Err(Failure::Refused(format!(
            "the reason is one line of 1 to {REASON_CHARS_MAX} characters"
        )));
    }
    // A cluster that does not exist is refused.
    let site = Site::open(root, cluster).map_err(Failure::refused)?;
    let order = Order::Halt(Halt { reason: reason.clone(), by: Who::this(), at: unix_now() });
    // First of all: an audit log on a full disk must not keep drills going.
    let hosts = switch::everywhere(&site, &order);
    let noted = note(root, cluster, Event::Halted, |entry| {
        entry.reason = Some(reason);
        entry.outcome = missed(&hosts, &order);
    });
    let halted = hosts.iter().all(|one| one.done);
    let undone = hosts.iter().all(|one| one.undone);
    let json =
        options.json.then(|| serde_json::json!({ "halted": halted, "undone": undone, "hosts": hosts }));
    let then = "; `obol drill resume` allows them again";
    done_already(noted);
    report(Effect { cluster, now: "are halted", then }, &hosts, &order, json)
}

pub(super) fn resume(root: &Path, cluster: Name, json: bool) -> Result<ExitCode, Failure> {
    let site = Site::open(root, cluster).map_err(Failure::refused)?;
    let hosts = switch::everywhere(&site, &Order::Resume);
    let was = hosts.iter().any(|one| one.was_halted);
    let noted = if was {
        note(root, cluster, Event::Resumed, |entry| entry.outcome = missed(&hosts, &Order::Resume))
    } else {
        Ok(())
    };
    let halted = hosts.iter().any(|one| !one.done);
    let json = json.then(|| serde_json::json!({ "halted": halted, "was_halted": was, "hosts": hosts }));
    let now = if was { "may run again" } else { "were not halted" };
    done_already(noted);
    report(Effect { cluster, now, then: "" }, &hosts, &Order::Resume, json)
}

pub(super) fn approve(root: &Path, cluster: Name, options: &Approve) -> Result<ExitCode, Failure> {
    // What cannot be read as a drill cannot be judged, either.
    let (drill, text) = drillfile::load(&options.file).map_err(Failure::refused)?;
    let mut source = Source::new(&options.file, &text);
    if let Some(out) = &options.out {
        source.approval.clone_from(out);
    }
    let approval = Approval::new(&source, cluster.as_str(), options.time.as_secs());
    note(root, cluster, Event::Approved, |entry| {
        entry.drill = Some(drill.id.clone());
        entry.file = Some(source.name.clone());
        entry.sha256 = Some(source.sha256.clone());
    })?;
    let path = &source.approval;
    approval.write(path).map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
    output::line(format_args!(
        "drill {} is approved by {} on cluster {cluster} until {}, for any other user who runs it: {}",
        drill.id,
        approval.by.name(),
        approval.expires(),
        path.display()
    ))?;
    if !drill.guards.require_approval {
        output::remark("the drill does not ask for an approval; require_approval = true in [guards] does")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What is said of a run that has begun and has no end in the log.
const NO_END: &str = "  without an end: it runs, or its runner was killed";

pub(super) fn audit(options: &Audit) -> Result<ExitCode, Failure> {
    // Times of this form are sorted as texts.
    let from = options.since.map(|since| iso(since.before(unix_now())));
    let log = log()?;
    let found = log.read().map_err(Failure::refused)?;
    let without_end = found.without_end();
    let is_asked = |entry: &Entry| from.as_ref().is_none_or(|from| entry.at >= *from);
    for (at, entry) in found.entries.iter().enumerate().filter(|(_, entry)| is_asked(entry)) {
        if options.json {
            output::json(entry)?;
        } else {
            let end = if without_end.contains(&at) { NO_END } else { "" };
            output::line(format_args!("{}{end}", shown(entry)))?;
        }
    }
    if !options.json {
        output::remark(format_args!("{}: SHA-256 of the last line {}", log.path().display(), found.last))?;
    }
    if found.broken.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let lines: Vec<String> = found.broken.iter().map(ToString::to_string).collect();
    Err(Failure::Failed(format!(
        "{} was altered: before or at line {}, lines are damaged, missing or changed",
        log.path().display(),
        lines.join(", ")
    )))
}

/// An entry as one line.
fn shown(entry: &Entry) -> String {
    let Entry { at, event, who, cluster, .. } = entry;
    let mut line = format!("{at}  {:<9}  {cluster}", event.name());
    let mut add = |label: &str, value: Option<&str>| {
        if let Some(value) = value {
            line.push_str("  ");
            line.push_str(label);
            line.push_str(value);
        }
    };
    add("", entry.drill.as_deref());
    add("", entry.outcome.as_deref());
    let victims = entry.victims.join(", ");
    add("victims ", (!victims.is_empty()).then_some(&victims));
    add("by ", Some(&who.name()));
    add("from ", who.ssh.as_deref());
    add("approved by ", entry.approved_by.as_deref());
    add("sha256 ", entry.sha256.as_deref().and_then(|hash| hash.get(..12)));
    add("because ", entry.reason.as_deref());
    line
}
