//! The JSON Schema of drill files, generated from the parser's tables.

use super::external;
use super::limits::COUNT_MAX;
use super::read::{
    ALLOWED, CUES, EXPECTATIONS, ID_CHARS_MAX, KEEP_ACCEPTORS_MAX, KEEP_CACHES_MAX, PHASES, SELECTS,
    STRATEGIES, TARGETS_MAX,
};
use super::{AT_MOST, AbortMetric, Metric, Probe, ReportFiles, SCHEMA, TargetKind};
use crate::faults::{Fault, KINDS, span_schema};
use obol_config::LINE_CHARS_MAX;
use obol_fabric::types::NAME_BYTES_MAX;
use obol_observe::Percentile;
use serde_json::{Map, Value, json};

/// A pattern of names of at most `chars` characters.
fn name(chars: usize, others: &str) -> String {
    format!("^[A-Za-z0-9][A-Za-z0-9{others}]{{0,{}}}$", chars - 1)
}

fn names<T>(all: &[(&'static str, T)]) -> Vec<&'static str> {
    all.iter().map(|(name, _)| *name).collect()
}

fn duration(doc: &str) -> Value {
    let mut schema = span_schema();
    schema["description"] = doc.into();
    schema
}

fn text(doc: &str) -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": LINE_CHARS_MAX, "description": doc })
}

fn number(low: u32, high: u32, doc: &str) -> Value {
    json!({ "type": "integer", "minimum": low, "maximum": high, "description": doc })
}

fn target_names(doc: &str) -> Value {
    let one = json!({ "type": "string" });
    json!({ "oneOf": [one, { "type": "array", "items": one, "minItems": 1 }], "description": doc })
}

/// A table with exactly these keys.
fn table(doc: &str, required: &[&str], properties: &Value) -> Value {
    json!({
        "type": "object", "description": doc, "required": required,
        "additionalProperties": false, "properties": properties
    })
}

fn described(mut schema: Value, doc: &str) -> Value {
    schema["description"] = doc.into();
    schema
}

/// The keys of probes of things outside of the cluster.
fn external_keys() -> Map<String, Value> {
    let keyed = |(key, users): (super::Key, Vec<&str>)| {
        let doc = format!("for {}: {}", users.join(", "), key.doc);
        (key.name.to_owned(), described(key.schema, &doc))
    };
    external::keys().into_iter().map(keyed).collect()
}

fn fault() -> Value {
    let mut properties = Map::new();
    properties.insert(
        "kind".to_owned(),
        json!({ "enum": KINDS.iter().map(|kind| kind.name()).collect::<Vec<_>>() }),
    );
    properties.insert(
        "target".to_owned(),
        target_names("its targets: names of [targets]. Faults of the host have none"),
    );
    properties.insert("for".to_owned(), duration("how long it lasts"));
    let expect = json!({ "enum": names(&EXPECTATIONS) });
    properties.insert(
        "expect".to_owned(),
        described(
            expect,
            "for freeze: whether its targets are removed (the default), or stay members all the time",
        ),
    );
    for key in KINDS.iter().flat_map(|kind| kind.keys()) {
        let has = |kind: &&&dyn Fault| kind.keys().iter().any(|other| other.name == key.name);
        let users: Vec<&str> = KINDS.iter().filter(has).map(|kind| kind.name()).collect();
        let doc = format!("for {}: {}", users.join(", "), key.doc);
        properties.insert(key.name.to_owned(), described(key.schema, &doc));
    }
    table(
        "A fault. Reversible faults need `for`, faults of the network need `layer`.",
        &["kind"],
        &Value::Object(properties),
    )
}

fn expect() -> Value {
    let mut keys = Map::new();
    keys.insert("metric".to_owned(), json!({ "enum": names(Metric::ALL) }));
    for &(name, percentile) in Percentile::ALL {
        let doc = format!("bound; needs {} repetitions", percentile.samples_min());
        keys.insert(name.to_owned(), duration(&doc));
    }
    keys.insert(AT_MOST.to_owned(), number(0, u32::MAX, "bound of a count"));
    table("Bounds on a figure.", &["metric"], &Value::Object(keys))
}

fn report() -> Value {
    let plain = |usual: &str| json!({ "type": "string", "pattern": "^[^./][^/]*$", "examples": [usual] });
    let keys: Map<String, Value> =
        ReportFiles::DEFAULTS.iter().map(|(key, usual)| ((*key).to_owned(), plain(usual))).collect();
    table("Files that a run leaves in its output directory.", &[], &Value::Object(keys))
}

fn guards() -> Value {
    let by_figure = table(
        "Aborts the drill if `when` holds in this many consecutive repetitions.",
        &["when"],
        &json!({
            "when": { "type": "string", "pattern": format!("^({}) > [0-9.]+$", names(AbortMetric::ALL).join("|")) },
            "samples": number(1, COUNT_MAX, "repetitions")
        }),
    );
    let mut keys = external_keys();
    keys.insert("probe".to_owned(), json!({ "enum": names(&external::probes()) }));
    keys.insert("samples".to_owned(), number(1, COUNT_MAX, "looks in a row"));
    for key in external::watch_keys() {
        keys.insert(key.name.to_owned(), described(key.schema, key.doc));
    }
    let by_probe = table(
        "Aborts the drill, while it runs, if this many looks in a row do not have the required result.",
        &["probe"],
        &Value::Object(keys),
    );
    let abort = json!({ "oneOf": [by_figure, by_probe] });
    let mut limits = json!({
            "max_targets": number(1, TARGETS_MAX, "victims of one repetition, at most"),
            "keep_acceptors": { "oneOf": [{ "const": "majority" }, number(0, KEEP_ACCEPTORS_MAX, "coordinators that must remain")] },
            "keep_lease_caches": number(0, KEEP_CACHES_MAX, "lease caches that must remain"),
            "deny_hosts": { "type": "array", "items": { "type": "string" }, "description": "host names; * matches any text" },
            "require_confirm": { "type": "boolean", "description": "whether `obol drill run` needs --yes" },
            "require_approval": { "type": "boolean", "description": "whether another user has to run `obol drill approve` on the file" },
            "allow_undetected": { "type": "boolean", "description": "whether a pause may be too short to be detected, or too long to be tolerated" },
            "dead_man": duration("a fault agent undoes its faults after this time without a message from the runner"),
            "abort": { "type": "array", "items": abort }
    });
    for (key, what, _) in ALLOWED {
        let doc = format!("whether {what}, for all programs of the host");
        limits[key] = json!({ "type": "boolean", "description": doc });
    }
    table("Limits for each repetition; the runner and each fault agent check them.", &[], &limits)
}

fn drill() -> Value {
    let repeat = table(
        "Repetitions.",
        &["count"],
        &json!({
            "count": number(1, COUNT_MAX, "repetitions that count"),
            "warmup": number(0, COUNT_MAX, "warm-ups before them, which do not count"),
            "gap": duration("pause after each"),
            "stop_after_failures": number(1, COUNT_MAX, "the drill ends after this many failures")
        }),
    );
    table(
        "The drill.",
        &["schema", "id", "title", "environment"],
        &json!({
            "schema": { "const": SCHEMA },
            "id": { "type": "string", "pattern": name(ID_CHARS_MAX, "._+-") },
            "title": text("what it does"),
            "environment": { "type": "string", "pattern": name(NAME_BYTES_MAX, "._-"), "description": "the label that the cluster must have" },
            "seed": number(0, u32::MAX, "seed of all random choices"),
            "timeout": duration("the drill ends after this time"),
            "repeat": repeat
        }),
    )
}

fn target() -> Value {
    table(
        "Possible victims: one of select, fixed, percent and name.",
        &["kind"],
        &json!({
            "kind": { "enum": names(TargetKind::ALL) },
            "select": { "enum": names(&SELECTS) },
            "fixed": number(1, TARGETS_MAX, "this many"),
            "percent": number(1, 100, "a percentage of them"),
            "name": { "type": "string", "pattern": name(NAME_BYTES_MAX, "._-") },
            "serving": { "type": "string", "description": "for a lease cache: the one that renews this target's leases" }
        }),
    )
}

fn steady() -> Value {
    let mut keys = external_keys();
    keys.insert("probe".to_owned(), json!({ "enum": names(Probe::ALL) }));
    let tolerance = described(json!({ "type": "boolean" }), "the required result of the probe");
    keys.insert("tolerance".to_owned(), tolerance);
    keys.insert("phase".to_owned(), json!({ "type": "array", "items": { "enum": names(&PHASES) } }));
    table("A state that must hold.", &["probe"], &Value::Object(keys))
}

fn step() -> Value {
    table(
        "One step of a repetition.",
        &["name", "fault"],
        &json!({
            "name": text("the name of the step"),
            "on": { "enum": names(&CUES), "description": "on the repetition's cue, or when the step before has settled" },
            "max_cue_skew": duration("a repetition with a larger skew is void; by default 200us on one host, 10ms between hosts"),
            "fault": { "oneOf": [fault(), { "type": "array", "items": fault(), "minItems": 1 }] }
        }),
    )
}

fn rollback() -> Value {
    table(
        "What is undone after a repetition.",
        &[],
        &json!({
            "strategy": { "enum": names(&STRATEGIES) },
            "actions": { "type": "array", "items": table("An action.", &["kind", "target"], &json!({
                "kind": { "enum": ["restart"] },
                "target": target_names("names of [targets]")
            })) }
        }),
    )
}

/// The JSON Schema of a drill file.
pub fn schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "obol drill",
        "type": "object",
        "required": ["drill", "step"],
        "additionalProperties": false,
        "properties": {
            "drill": drill(),
            "guards": guards(),
            "targets": { "type": "object", "additionalProperties": target() },
            "steady": { "type": "array", "items": steady() },
            "step": { "type": "array", "items": step(), "minItems": 1 },
            "expect": { "type": "array", "items": expect() },
            "rollback": rollback(),
            "report": report()
        }
    })
}
