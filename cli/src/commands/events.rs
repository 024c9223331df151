//! `obol events`: the flight recorders of all processes, merged by their own stamps.

use clap::Args;
use obol_fabric::{Incarnation, Instant, Name, Nanos};
use obol_logs::when::When;
use obol_membership::Reason;
use obol_node::Site;
use obol_observe::calendar::{TwoClocks, iso, unix_now};
use obol_observe::names;
use obol_observe::{ObservedEvent, Observer, event_text};
use obol_term::output::{self, Failure};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

/// Print the flight recorders of all processes, merged by time
#[derive(Debug, Args)]
#[command(
    after_help = "Times are in UTC: 02:10, 2026-11-25 02:10:30, 2026-11-25T02:10:30Z, or how long ago: 90s, 10m, 2h, 1d. A time \
    of day is the last one.\n\
    \nA flight recorder keeps the newest events of its process only (`obol logs` has earlier ones).\n\
    \nExamples:\n  obol events --since 10m\n  obol events --json | jq -r 'select(.event == \"suspect\") | .text'"
)]
pub(crate) struct Events {
    /// From this time on
    #[arg(long, value_name = "TIME")]
    since: Option<When>,
    /// Number of newest events [default: 100 without --since, else all]
    #[arg(long, value_name = "N")]
    last: Option<usize>,
    /// Print one JSON object per event
    #[arg(long)]
    json: bool,
}

/// Events without a span.
const LAST: usize = 100;

/// An event in JSON; `at_ns` on this host's monotonic clock, off by at most `clock_error_ns` where it is
/// another host's event; `time` is the same moment in UTC, by this host's clock as it is set now.
/// `text` says what `a` and `b` mean; `who` and `by` are the names of the members whose numbers are in
/// `a` and `b`, where they are known. `hold_us` is for how long joins of a name are on hold.
#[derive(Serialize)]
struct EventJson<'a> {
    time: String,
    at_ns: u64,
    clock_error_ns: u64,
    process: &'a str,
    event: &'static str,
    #[serde(rename = "level")]
    reason: Option<&'static str>,
    text: &'a str,
    a: u64,
    b: u64,
    who: Option<String>,
    by: Option<String>,
    hold_us: Option<f64>,
}

/// The numbers of the hosts of all processes, if an event is of another host.
fn hosts(observer: &mut Observer, shown: &[ObservedEvent]) -> BTreeMap<Name, u8> {
    if shown.iter().all(|seen| seen.clock_error == Nanos::ZERO) {
        return BTreeMap::new();
    }
    observer.snapshot().remote.iter().map(|process| (process.name, process.host)).collect()
}

/// Where a process of another host is. It may have gone, and nothing says then where it was.
fn place(hosts: &BTreeMap<Name, u8>, process: &Name) -> String {
    match hosts.get(process) {
        None | Some(0) => "another host".to_owned(),
        Some(host) => format!("host {host}"),
    }
}

pub(crate) fn run(root: &Path, cluster: Name, args: &Events) -> Result<ExitCode, Failure> {
    let Events { since, last, json } = *args;
    let site = Site::open(root, cluster).map_err(Failure::refused)?;
    let mut observer = Observer::open(root, cluster).map_err(Failure::refused)?;
    let events = observer.events();
    for unread in observer.unread() {
        output::remark(format_args!("obol: {unread}"))?;
    }
    if !observer.unread().is_empty() && observer.snapshot().view.is_none() {
        output::remark(
            "obol: no process that this host can read knows a view, so of other hosts only the first coordinators were asked; \
             start the coordinators and gateways that do not run (`obol status` names them), and repeat this",
        )?;
    }
    let names = names::known(&site, &mut observer, &events).names;
    let clocks = TwoClocks::read();
    let since = since.map(|since| clocks.instant(since.before(unix_now())));
    let last = last.unwrap_or(if since.is_some() { usize::MAX } else { LAST });
    // They are sorted by time.
    let first = since.map_or(0, |since| events.partition_point(|seen| seen.event.at < since));
    let shown = &events[first.max(events.len().saturating_sub(last))..];
    if !json && !shown.is_empty() {
        output::line(format_args!(
            "{:<27} {:>12} {:<10} {:<14} {:<10} WHAT",
            "TIME (UTC)", "AFTER", "PROCESS", "EVENT", "DETECTOR"
        ))?;
    }
    let time = |at: Instant| iso(clocks.unix(at));
    let hosts = hosts(&mut observer, shown);
    let mut before = shown.first().map_or(Instant::ZERO, |seen| seen.event.at);
    for ObservedEvent { process, event, clock_error, .. } in shown {
        let record = &event.record;
        let reason = Reason::from_repr(record.reason).filter(|_| record.reason != 0).map(Reason::name);
        let text = event_text::describe(record.kind, record.a, record.b, |n| names.shown(Incarnation(n)));
        if json {
            let (process, name) = (process.as_str(), record.kind.name());
            let (who, by) = event_text::members(record.kind, record.a, record.b);
            let named = |who: Option<Incarnation>| who.and_then(|who| Some(names.get(who)?.to_string()));
            output::json(&EventJson {
                time: time(event.at),
                at_ns: event.at.0,
                clock_error_ns: clock_error.0,
                process,
                event: name,
                reason,
                text: &text,
                a: record.a,
                b: record.b,
                who: named(who),
                by: named(by),
                hold_us: event_text::hold(record.kind, record.b).map(Nanos::as_micros_f64),
            })?;
            continue;
        }
        output::line(format_args!(
            "{:<27} {:>12} {process:<10} {:<14} {:<10} {text}{}",
            time(event.at),
            format_args!("+{}", event.at.since(before)).to_string(),
            record.kind.name(),
            reason.unwrap_or(""),
            if *clock_error == Nanos::ZERO {
                String::new()
            } else {
                format!("  ({}, +-{clock_error})", place(&hosts, process))
            }
        ))?;
        before = event.at;
    }
    Ok(ExitCode::SUCCESS)
}
