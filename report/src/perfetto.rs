//! A trace in the Trace Event Format, for Perfetto and chrome://tracing: a track for each process
//! with its stamps, and each failover with its phases as nested asynchronous spans. Times count
//! from whatever was first: readers refuse negative ones.

use crate::Report;
use obol_fabric::{Instant, Name};
use obol_observe::failovers::{Failover, PHASES};
use obol_term::output::Failure;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The cluster's number as a process of the trace.
const PID: u32 = 1;

fn us(at: Instant, base: Instant) -> f64 {
    at.since(base).0 as f64 / 1000.0
}

/// The spans of one failover, on its decider's track.
fn spans(failover: &Failover, base: Instant, tid: u32) -> Vec<Value> {
    let Some(total) = failover.total() else { return Vec::new() };
    // Another cluster of the name may have the same view.
    let id = format!("{} {}", failover.view, failover.began.0);
    let at = |ph: &str, name: &str, ts: f64| json!({ "ph": ph, "cat": "failover", "name": name, "id": id, "pid": PID, "tid": tid, "ts": ts });
    let whole = format!("failover, view {}", failover.view);
    let mut begins = us(failover.began, base);
    let mut events = vec![at("b", &whole, begins)];
    for (name, span) in PHASES.iter().zip(failover.phases()) {
        // After an unknown phase, the place of the next one is unknown, too.
        let Some(span) = span else { break };
        let ends = begins + span.0 as f64 / 1000.0;
        events.extend([at("b", name, begins), at("e", name, ends)]);
        begins = ends;
    }
    events.push(at("e", &whole, us(failover.began + total, base).max(begins)));
    events
}

/// The whole text.
pub(super) fn text(report: &Report) -> Result<String, Failure> {
    let seen =
        || report.parts.iter().flat_map(|part| part.data.events.iter().map(move |event| (part, event)));
    let stamps = seen().map(|(_, event)| event.at);
    // A failover may be older than the oldest event that is left.
    let began = report.failovers().map(|(_, failover)| failover.began);
    let others = report.outages.iter().map(|outage| outage.from).chain(report.marks().map(|mark| mark.at));
    let base = stamps.chain(began).chain(others).min().unwrap_or(report.first.0);
    let mut tids: BTreeMap<Name, u32> = BTreeMap::new();
    for (_, event) in seen() {
        let next = u32::try_from(tids.len()).unwrap_or(u32::MAX).saturating_add(1);
        tids.entry(event.process).or_insert(next);
    }
    let name = format!("cluster {}", report.cluster);
    let mut events =
        vec![json!({ "ph": "M", "name": "process_name", "pid": PID, "tid": 0, "args": { "name": name } })];
    for (name, tid) in &tids {
        let args = json!({ "name": name.as_str() });
        events.push(json!({ "ph": "M", "name": "thread_name", "pid": PID, "tid": tid, "args": args }));
    }
    for (part, event) in seen() {
        let what = part.data.describe(event);
        let args = json!({ "what": what, "level": event.reason.map(|reason| reason.name()), "number": event.number });
        events.push(json!({
            "ph": "i", "s": "t", "cat": "event", "name": event.event.name(), "pid": PID,
            "tid": tids.get(&event.process), "ts": us(event.at, base), "args": args
        }));
    }
    for (_, failover) in report.failovers() {
        let tid = tids.get(&failover.decider).copied().unwrap_or(0);
        events.extend(spans(failover, base, tid));
    }
    for (n, outage) in report.outages.iter().enumerate() {
        let end = |ph: &str, at: Instant| json!({ "ph": ph, "cat": "health", "name": outage.name(), "id": format!("health {n}"), "pid": PID, "tid": 0, "ts": us(at, base), "args": { "reasons": outage.why() } });
        events.extend([end("b", outage.from), end("e", outage.to)]);
    }
    for mark in report.marks() {
        events.push(json!({
            "ph": "i", "s": "g", "cat": "mark", "name": mark.text, "pid": PID, "tid": 0, "ts": us(mark.at, base)
        }));
    }
    let trace = json!({ "displayTimeUnit": "ns", "traceEvents": events });
    serde_json::to_string(&trace).map_err(Failure::failed)
}
