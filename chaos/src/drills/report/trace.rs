//! Chrome trace events for Perfetto: a process per trial, with its faults and the phases of its
//! failover.

use crate::drills::engine::journal::{Journal, Trial};
use obol_observe::timeline::Phases;
use serde_json::{Value, json};

/// All trials, each from the first fault on.
pub(super) fn events(journal: &Journal) -> Value {
    let events: Vec<Value> =
        journal.trials.iter().enumerate().flat_map(|(at, trial)| one(at as u64 + 1, trial)).collect();
    json!({ "displayTimeUnit": "ns", "traceEvents": events })
}

fn one(pid: u64, trial: &Trial) -> Vec<Value> {
    let us = |ns: u64| ns as f64 / 1000.0;
    let first = trial.stamps.iter().map(|stamp| stamp.at).min().unwrap_or_default();
    let warmup = if trial.warmup { "warm-up " } else { "" };
    let name = format!("{warmup}{} {}", trial.number, trial.step);
    let mut events =
        vec![json!({ "ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": { "name": name } })];
    for (tid, stamp) in trial.stamps.iter().enumerate() {
        events.push(json!({
            "ph": "i", "s": "p", "name": format!("hit {}", stamp.name), "pid": pid, "tid": tid + 1,
            "ts": us(stamp.at - first), "args": { "error": stamp.error }
        }));
    }
    let mut begins = 0;
    for phase in Phases::NAMES {
        let Some(span) = trial.phases_ns.get(phase).copied() else { continue };
        events.push(
            json!({ "ph": "X", "name": phase, "pid": pid, "tid": 0, "ts": us(begins), "dur": us(span) }),
        );
        begins += span;
    }
    events
}
