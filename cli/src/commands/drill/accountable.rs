//! `obol drill halt|resume|approve|audit`: who may run drills, who ran which, and the kill switch.

use clap::Args;
use obol_chaos::drillfile;
use obol_chaos::drills::agent::halt::REASON_CHARS_MAX;
use obol_chaos::drills::agent::switch::{self, OnHost, Order};
use obol_chaos::drills::audit::approval::{Approval, Source};
use obol_chaos::drills::audit::log::{Entry, Event, Log, Who};
use obol_chaos::drills::{Accountable, Halt};
use obol_config::duration;
use obol_fabric::Name;
use obol_node::Site;
use obol_node::user::state_home;
use obol_observe::calendar::unix_now;
use obol_term::output::{self, Failure};
use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Names the audit log, in place of the one in the user's folder for state.
const AUDIT: &str = "OBOL_AUDIT";

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
    since: Option<String>,
    /// Print one JSON object per entry
    #[arg(long)]
    json: bool,
}

/// The audit log of this user.
pub(super) fn log() -> Result<Log, Failure> {
    if let Some(path) = env::var_os(AUDIT).filter(|path| !path.is_empty()) {
        return Ok(Log::new(path.into()));
    }
    let home = state_home().ok_or_else(|| {
        Failure::Refused(format!(
            "drills are logged, and there is no place for that: set {AUDIT} to a file, or HOME"
        ))
    })?;
    Ok(Log::new(home.join("obol/drill-audit.jsonl")))
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

/// Where an order was not carried out or not obeyed, or a halt lacks its reason, and why; `None` if all is
/// well.
fn missed(hosts: &[OnHost], order: &Order) -> Option<String> {
    let what = match order {
        Order::Halt(_) => "drills are not halted",
        Order::Resume | Order::Look => "drills may still be halted",
    };
    let again = if matches!(order, Order::Halt(_)) { "halt" } else { "resume" };
    let one = |found: &OnHost| {
        let OnHost { host, done, undone, error, .. } = found;
        let why = error.as_deref().map_or(String::new(), |why| format!(" ({why})"));
        match (done, undone) {
            (true, true) => {
                error.as_deref().map(|why| format!("drills are halted on host {host}, but {why}"))
            }
            (false, _) => Some(format!("{what} on host {host}{why}: run `obol drill {again}` there")),
            (true, false) => Some(format!(
                "faults are left to undo on host {host}{why}: `obol drill recover` there undoes them once their drill has ended"
            )),
        }
    };
    let all: Vec<String> = hosts.iter().filter_map(one).collect();
    (!all.is_empty()).then(|| all.join("; "))
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

/// The first time to show, as the log writes it.
fn since(text: &str) -> Result<String, Failure> {
    if let Ok(span) = duration::argument(text) {
        let from = unix_now().saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
        return Ok(obol_observe::calendar::iso(from));
    }
    let shape = |c: char| if c.is_ascii_digit() { '0' } else { c };
    let form: String = text.chars().map(shape).collect();
    let known = ["0000-00-00", "0000-00-00T00:00", "0000-00-00T00:00:00", "0000-00-00T00:00:00Z"];
    if known.contains(&form.as_str()) {
        // Times of this form are sorted as texts.
        return Ok(text.trim_end_matches('Z').to_owned());
    }
    Err(Failure::Refused(format!(
        "--since {text:?} is neither a duration such as 2h nor a time in UTC such as 2026-11-25T07:00"
    )))
}

/// What is said of a run that has begun and has no end in the log.
const NO_END: &str = "  without an end: it runs, or its runner was killed";

pub(super) fn audit(options: &Audit) -> Result<ExitCode, Failure> {
    let from = options.since.as_deref().map(since).transpose()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_a_duration_or_a_time() {
        for text in ["2026-11-25", "2026-11-25T07:00", "2026-11-25T07:00:01Z", "2h"] {
            let from = since(text).unwrap_or_else(|error| panic!("{error}"));
            assert!(from.len() >= 10 && !from.ends_with("01Z"), "{from}");
        }
        for text in ["", "yesterday", "25.11.2026", "2026-11-25 07:00"] {
            assert!(since(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_halt_that_is_in_force_without_its_reason_fails() {
        let halted = |error: Option<&str>| OnHost {
            host: 1,
            done: true,
            was_halted: false,
            undone: true,
            error: error.map(ToOwned::to_owned),
        };
        let order = Order::Halt(Halt { reason: "the sale".to_owned(), by: Who::this(), at: 7 });
        assert_eq!(missed(&[halted(None)], &order), None);
        let why = "the reason could not be written: No space left on device (os error 28)";
        let said = missed(&[halted(None), halted(Some(why))], &order);
        assert_eq!(said, Some(format!("drills are halted on host 1, but {why}")));
    }
}
