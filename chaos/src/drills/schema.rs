//! The JSON Schema of `journal.json`, for programs that read it.

use super::journal::{Outcome, SCHEMA, Verdict};
use crate::drillfile::{Metric, Probe, names};
use obol_observe::timeline::Phases;
use serde_json::{Map, Value, json};

/// An object with exactly these keys.
fn object(doc: &str, properties: &Value) -> Value {
    let required: Vec<&String> = properties.as_object().into_iter().flat_map(Map::keys).collect();
    json!({
        "type": "object", "description": doc, "required": required,
        "additionalProperties": false, "properties": properties
    })
}

fn list(items: &Value, doc: &str) -> Value {
    json!({ "type": "array", "items": items, "description": doc })
}

fn count(doc: &str) -> Value {
    json!({ "type": "integer", "minimum": 0, "description": doc })
}

fn text(doc: &str) -> Value {
    json!({ "type": "string", "description": doc })
}

fn flag(doc: &str) -> Value {
    json!({ "type": "boolean", "description": doc })
}

fn number(doc: &str) -> Value {
    json!({ "type": "number", "description": doc })
}

/// The same, or null.
fn maybe(of: &Value) -> Value {
    json!({ "oneOf": [{ "type": "null" }, of] })
}

fn trial() -> Value {
    let victim = object(
        "A process that was hit.",
        &json!({
            "target": text("the target for which it was chosen"), "process": text("its name"),
            "pid": count("its process id"), "incarnation": count("its incarnation; 0 if it was not a member")
        }),
    );
    let stamp = object(
        "When a fault was injected.",
        &json!({
            "name": text("the victim, or `host`"),
            "at": count("the fault agent's CLOCK_MONOTONIC right before, in nanoseconds"),
            "error": maybe(&text("why it missed"))
        }),
    );
    let phases: Map<String, Value> =
        Phases::NAMES.iter().map(|name| ((*name).to_owned(), count("nanoseconds"))).collect();
    object(
        "One step of one repetition.",
        &json!({
            "number": count("the repetition, from 1; warm-ups are counted separately"),
            "warmup": flag("whether it is a warm-up, which does not count"),
            "step": text("the step"),
            "outcome": { "enum": names(Outcome::ALL) },
            "reason": maybe(&text("why it was not measured")),
            "victims": list(&victim, "the victims"),
            "stamps": list(&stamp, "when each fault was injected"),
            "skew_ns": count("between the first stamp and the last"),
            "failover_ns": maybe(&count("from the first stamp to the last survivor's `active`")),
            "phases_ns": { "type": "object", "additionalProperties": false, "properties": phases, "description": "empty, or its phases" },
            "lease_wait_ns": count("the wait of the survivors by the lease rule alone"),
            "failed": count("members that were removed as failed"),
            "falsely_failed": count("those that no fault had hit"),
            "overlap_ns": count("how long a victim could still use the old view; must be 0")
        }),
    )
}

/// The JSON Schema of a journal.
#[must_use]
pub fn journal_schema() -> Value {
    let probed = object(
        "The result of a probe.",
        &json!({
            "probe": { "enum": names(Probe::ALL) },
            "holds": flag("whether the result is as required"), "saw": text("the observation")
        }),
    );
    let summary = object(
        "A distribution in microseconds.",
        &json!({
            "n": count("samples"), "min": number("least"), "p50": maybe(&number("median, from 5 samples on")),
            "p90": maybe(&number("90th percentile, from 29 samples on")),
            "p99": maybe(&number("99th percentile, from 299 samples on")), "max": number("most")
        }),
    );
    let figures: Map<String, Value> = Metric::ALL
        .iter()
        .filter(|(_, metric)| !metric.is_count())
        .map(|(name, _)| ((*name).to_owned(), summary.clone()))
        .collect();
    let judged = object(
        "A bound and the measured value.",
        &json!({
            "metric": { "enum": names(Metric::ALL) },
            "of": text("the percentile, or `count`"),
            "bound": number("in microseconds, or a count"),
            "found": maybe(&number("null with too few measured repetitions")),
            "samples": count("number of samples"),
            "holds": maybe(&flag("null with too few samples"))
        }),
    );
    let host = object(
        "The runner's machine.",
        &json!({ "cores": count("cores"), "kernel": text("Linux's release") }),
    );
    let mut journal = object(
        "The results of a drill.",
        &json!({
            "schema": { "const": SCHEMA },
            "drill": text("its id"), "title": text("what it does"),
            "began": count("seconds since 1970"), "took": count("seconds"),
            "verdict": { "enum": names(Verdict::ALL) },
            "count": count("repetitions that count and were begun"),
            "extended": count("of these, repetitions added in place of void ones"),
            "void": count("steps that could not be measured"),
            "profile": text("the cluster's profile"), "environment": text("the cluster's label"),
            "host": host,
            "ssh": maybe(&text("the fault agent's host, if it was reached by ssh")),
            "before": list(&probed, "the steady state before"),
            "after": list(&probed, "the steady state after"),
            "figures_us": { "type": "object", "additionalProperties": false, "properties": figures, "description": "durations by figure" },
            "judged": list(&judged, "bounds"),
            "trials": list(&trial(), "every step of every repetition, warm-ups too"),
            "remarks": list(&text("a remark"), "remarks for the operator")
        }),
    );
    journal["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    journal["title"] = json!("obol drill journal");
    journal
}
