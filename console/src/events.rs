//! `obol events`: the flight recorders of all processes, merged by their own stamps.

use crate::output::{self, Failure};
use obol_chaos::observe::{Observer, Seen};
use obol_fabric::{Instant, Name};
use obol_membership::Level;
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

/// An event in JSON; `us` on the host's monotonic clock.
#[derive(Serialize)]
struct EventJson<'a> {
    us: f64,
    process: &'a str,
    event: &'static str,
    level: Option<&'static str>,
    a: u64,
    b: u64,
}

pub(crate) fn run(root: &Path, cluster: Name, last: usize, json: bool) -> Result<ExitCode, Failure> {
    let mut observer = Observer::open(root, cluster).map_err(Failure::refused)?;
    let events = observer.events();
    let shown = &events[events.len().saturating_sub(last)..];
    let mut before = shown.first().map_or(Instant::ZERO, |seen| seen.event.at);
    for Seen { process, event, .. } in shown {
        let record = &event.record;
        let level = Level::from_number(record.level).filter(|_| record.level != 0).map(Level::name);
        if json {
            let us = event.at.0 as f64 / 1e3;
            let (process, name) = (process.as_str(), record.kind.name());
            output::json(&EventJson { us, process, event: name, level, a: record.a, b: record.b })?;
            continue;
        }
        output::line(format_args!(
            "{:>14.3}us {:>12} {process:<10} {:<14} {:<10} {} {}",
            event.at.0 as f64 / 1e3,
            format_args!("+{}", event.at.since(before)).to_string(),
            record.kind.name(),
            level.unwrap_or(""),
            record.a,
            record.b
        ))?;
        before = event.at;
    }
    Ok(ExitCode::SUCCESS)
}
