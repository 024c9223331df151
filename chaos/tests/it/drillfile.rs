//! Drill files: shipped ones are accepted, every mistake is reported with its place, and the
//! published schema agrees.

use obol_chaos::drillfile::{
    self, AbortMetric, Drill, Keep, Metric, Select, TargetKind, parse, schema, shipped,
};
use obol_chaos::drills::agent::channel::Stamp;
use obol_chaos::drills::engine::journal::{
    Outcome, SCHEMA, Trial, Victim, distribution, judge, lacks, verdict,
};
use obol_chaos::drills::{Host, Journal, Probed, Verdict, journal_schema};
use obol_chaos::faults::KINDS;
use obol_fabric::Nanos;
use obol_observe::timeline::Phases;
use serde_json::Value;
use std::collections::BTreeMap;

/// The example of the design.
const EXAMPLE: &str = r#"[drill]
schema = 1
id = "triple-loss"
title = "App, coordinator leader and lease cache die on one cue"
environment = "staging"
seed = 7331
repeat = { count = 300, warmup = 5, gap = "2s", stop_after_failures = 1 }
timeout = "30m"

[guards]
max_targets = 3
keep_acceptors = "majority"
keep_lease_caches = 1
deny_hosts = ["prod-*"]
require_confirm = true
dead_man = "3s"
abort = [{ when = "overlap_ns > 0" }, { when = "unavailable_us > 5000", samples = 2 }]

[targets]
app = { kind = "app", select = "one" }
coord = { kind = "coordinator", select = "leader" }
cache = { kind = "lease-cache", select = "one", serving = "app" }

[[steady]]
probe = "view.converged"
tolerance = true
phase = ["before", "after"]

[[step]]
name = "triple-kill"
on = "cue"
max_cue_skew = "20us"
fault = { kind = "kill", signal = "KILL", target = ["app", "coord", "cache"] }

[[expect]]
metric = "failover.cue_to_active"
p50 = "60us"
p99 = "150us"

[rollback]
strategy = "always"
actions = [{ kind = "restart", target = ["app", "coord", "cache"] }]

[report]
journal = "journal.json"
trace = "timeline.json"
markdown = "postmortem.md"
"#;

/// The errors for the example with pieces replaced, each with the text before " =" of its line.
fn said(changes: &[(&str, &str)]) -> String {
    let mut text = EXAMPLE.to_owned();
    for (old, new) in changes {
        assert!(text.contains(old), "{old}");
        text = text.replacen(old, new, 1);
    }
    let message = parse(&text, "d.toml").expect_err("it has a fault").to_string();
    let lines = message.lines().map(|line| {
        let (number, rest) = line.strip_prefix("d.toml:").and_then(|l| l.split_once(':')).expect("a place");
        let number: usize = number.parse().expect("the number of a line");
        let there = text.lines().nth(number - 1).expect("a line of the file");
        format!("{}:{rest}", there.split(" =").next().unwrap_or_default().trim())
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_example_of_the_design_is_parsed() {
    let drill = parse(EXAMPLE, "d.toml").expect("it has no fault");
    assert_eq!((drill.id.as_str(), drill.environment.as_str(), drill.seed), ("triple-loss", "staging", 7331));
    assert_eq!((drill.repeat.count, drill.repeat.warmup, drill.repeat.gap), (300, 5, Nanos::from_secs(2)));
    assert_eq!((drill.guards.max_targets, drill.guards.keep_acceptors), (3, Keep::Majority));
    assert_eq!((drill.guards.abort[0].metric, drill.guards.abort[1].samples), (AbortMetric::OverlapNs, 2));
    let cache = drill.targets.iter().find(|target| target.name == "cache").expect("it is there");
    assert_eq!((cache.kind, &cache.select), (TargetKind::LeaseCache, &Select::One));
    assert_eq!(cache.serving.as_deref(), Some("app"));
    let fault = &drill.steps[0].faults[0];
    assert_eq!(fault.kind.describe(), "kill");
    assert_eq!(fault.targets, ["app", "coord", "cache"]);
    assert_eq!(drill.report.trace.as_deref(), Some("timeline.json"));
}

#[test]
fn every_shipped_drill_is_parsed_and_has_its_own_name() {
    assert!(shipped().len() >= 15);
    for one in shipped() {
        let (drill, text) = drillfile::load(one.name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(drill.id, one.name);
        assert_eq!(text, one.text);
        assert!(drill.steps.iter().flat_map(|step| &step.faults).all(|fault| fault.targets.len() <= 3));
    }
}

#[test]
fn an_unknown_key_is_reported_with_the_nearest() {
    assert_eq!(
        said(&[("max_targets", "max_target")]),
        "max_target:1: unknown key guards.max_target; did you mean guards.max_targets?"
    );
    assert_eq!(
        said(&[("[guards]", "[gaurds]")]),
        "[gaurds]:2: unknown table [gaurds]; did you mean [guards]?"
    );
    assert_eq!(said(&[("tolerance", "colour")]), "colour:1: unknown key steady.colour");
    assert_eq!(
        said(&[("signal = \"KILL\"", "sginal = \"KILL\"")]),
        "fault:26: unknown key step.fault.sginal; did you mean step.fault.signal?"
    );
}

#[test]
fn an_unknown_option_is_reported_with_the_known_ones() {
    let kinds = KINDS.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ");
    assert_eq!(
        said(&[("kind = \"kill\"", "kind = \"kil\"")]),
        format!("fault:18: step.fault.kind is \"kil\", but must be one of {kinds}; did you mean kill?")
    );
    assert_eq!(
        said(&[("\"app\", \"coord\", \"cache\"] }\n\n[[exp", "\"app\", \"coordd\"] }\n\n[[exp")]),
        "fault:60: step.fault.target is \"coordd\", but must be one of app, cache, coord; did you mean coord?"
    );
    // A target with an error of its own still exists.
    assert_eq!(
        said(&[("kind = \"app\", select = \"one\"", "kind = \"app\", select = \"on\"")]).lines().count(),
        1
    );
    assert_eq!(
        said(&[("overlap_ns > 0", "overlap > 0")]),
        "abort:19: guards.abort.when is \"overlap\", but must be one of overlap_ns, unavailable_us, false_suspicions, \
         skew_us; did you mean overlap_ns?"
    );
    assert!(said(&[("overlap_ns > 0", "overlap_ns = 0")]).contains("must be METRIC > NUMBER"));
}

#[test]
fn a_percentile_with_too_few_repetitions_is_rejected() {
    assert!(said(&[("count = 300", "count = 298")]).starts_with("p99:7: a percentile needs enough"));
    assert!(
        said(&[("count = 300", "count = 298")]).ends_with("expect.p99 needs 299, drill.repeat.count is 298")
    );
    assert!(said(&[("p99 =", "p999 =")]).ends_with("expect.p999 needs 2995, drill.repeat.count is 300"));
    let enough = EXAMPLE.replace("count = 300", "count = 299");
    assert!(parse(&enough, "d.toml").is_ok());
}

#[test]
fn contradictions_are_rejected_with_the_reason() {
    assert!(
        said(&[("select = \"leader\"", "select = \"one\", fixed = 2")])
            .contains("a target has one of select, fixed, percent and name")
    );
    assert!(
        said(&[("kind = \"app\", select = \"one\"", "kind = \"app\", select = \"leader\"")])
            .contains("only a coordinator can lead")
    );
    assert!(
        said(&[("kind = \"kill\", signal = \"KILL\"", "kind = \"freeze\"")])
            .contains("missing key step.fault.for")
    );
    assert!(said(&[("serving = \"app\"", "serving = \"ap\"")]).ends_with("did you mean app?"));
    assert!(said(&[("\"journal.json\"", "\"../journal.json\"")]).contains("must be a plain file name"));
    assert!(said(&[("dead_man = \"3s\"", "dead_man = \"1ms\"")]).contains("must lie in 200ms..=60s"));
    assert!(
        said(&[("schema = 1", "schema = 2"), ("[guards]", "[x]")])
            .starts_with("schema:10: schema is 2, but this obol")
    );
    assert!(said(&[("schema = 1", "schema = 2")]).contains("take the obol that the file was written for"));
    let network = ("kind = \"kill\", signal = \"KILL\"", "kind = \"partition\", for = \"1s\"");
    assert!(said(&[network]).contains("missing key step.fault.layer"));
    let layer = |kind: &str, layer: &str| {
        let fault = format!("kind = \"{kind}\", for = \"1s\", layer = \"{layer}\"");
        said(&[("kind = \"kill\", signal = \"KILL\"", &fault)])
    };
    for kind in ["multicast-loss", "link-error"] {
        let said = layer(kind, "host");
        assert!(said.contains("layer") && said.contains("fabric"), "{said}");
    }
    assert!(layer("partition", "hosts").ends_with("did you mean host?"));
    let burst = "kind = \"burst\", enter = 1, leave = 9, for = \"1s\", layer = \"fabric\"";
    assert!(said(&[("kind = \"kill\", signal = \"KILL\"", burst)]).contains("layer"));
    let fault = |fault: &str| said(&[("kind = \"kill\", signal = \"KILL\"", fault)]);
    let one_way = |layer: &str| {
        fault(&format!("kind = \"partition\", for = \"1s\", direction = \"in\", layer = \"{layer}\""))
    };
    assert!(one_way("fabric").contains("a direction is one of packets"), "{}", one_way("fabric"));
    for missing in ["enter", "leave"] {
        let keys: String = ["enter", "leave"]
            .iter()
            .filter(|key| **key != missing)
            .map(|key| format!(", {key} = 5"))
            .collect();
        let said = fault(&format!("kind = \"burst\", layer = \"host\", for = \"1s\"{keys}"));
        assert!(said.contains(&format!("missing key step.fault.{missing}")), "{said}");
    }
    let crash = fault("kind = \"host-crash\"");
    assert!(crash.contains("it is crashed once") && crash.contains("count is 300"), "{crash}");
    let removed = fault("kind = \"kernel-stall\", for = \"1ms\", expect = \"removed\"");
    assert!(removed.contains("an expectation is of targets"), "{removed}");
    let hog = "{ kind = \"cpu-hog\", threads = 1, for = \"1s\" }, ".repeat(65);
    let whole = "{ kind = \"kill\", signal = \"KILL\", target = [\"app\", \"coord\", \"cache\"] }";
    assert!(
        said(&[(whole, &format!("[{hog}]"))]).ends_with("step.fault is 65 tables, but must lie in 1..=64")
    );
}

#[test]
fn a_bound_or_a_fault_without_its_first_key_is_never_dropped() {
    let metric = "metric = \"failover.cue_to_active\"\n";
    assert_eq!(
        said(&[(metric, "")]),
        "[[expect]]:1: missing key expect.metric, the figure, such as \"failover.cue_to_active\""
    );
    assert_eq!(
        said(&[(metric, "metrik = \"failover.cue_to_active\"\n")]),
        "metrik:1: unknown key expect.metrik; did you mean expect.metric?"
    );
    assert!(
        said(&[(metric, "metric = \"failover.cue_to_activ\"\n")])
            .ends_with("did you mean failover.cue_to_active?")
    );
    let whole = "{ kind = \"kill\", signal = \"KILL\", target = [\"app\", \"coord\", \"cache\"] }";
    assert!(said(&[(whole, "[{}]")]).starts_with("fault:10: missing key step.fault.kind"));
    assert!(said(&[(whole, "[]")]).starts_with("fault:9: step.fault is an empty array"));
    assert!(said(&[(whole, &whole.replace("kind", "knid"))]).ends_with("did you mean step.fault.kind?"));
    assert!(
        said(&[("[\"before\", \"after\"]", "[]")]).starts_with("phase:9: steady.phase is an empty array")
    );
    let none = whole.replace("[\"app\", \"coord\", \"cache\"]", "[]");
    assert!(said(&[(whole, &none)]).contains("step.fault.target is an empty array"));
}

#[test]
fn unused_parts_are_rejected() {
    let app = "app = { kind = \"app\", select = \"one\" }";
    let more = format!("{app}\nother = {{ kind = \"app\", select = \"all\" }}");
    assert!(said(&[(app, &more)]).ends_with("no fault hits other"));
    assert!(said(&[("on = \"cue\"", "on = \"settled\"")]).contains("the first step"));
    assert!(said(&[("strategy = \"always\"", "strategy = \"never\"")]).ends_with("there are actions"));
    assert!(said(&[("trace = \"timeline.json\"", "trace = \"journal.json\"")]).contains("a name of its own"));
    let whole = "{ kind = \"kill\", signal = \"KILL\", target = [\"app\", \"coord\", \"cache\"] }";
    let hog = "{ kind = \"cpu-hog\", threads = 1, for = \"1s\" }";
    assert!(said(&[(whole, hog)]).contains("only if a fault silences a process"));
}

#[test]
fn all_problems_are_reported_at_once_even_with_a_syntax_error() {
    let message = said(&[
        ("id = \"triple-loss\"\n", ""),
        ("probe = \"view.converged\"", "probe = 3"),
        ("p50 = \"60us\"", "p50 = 60"),
    ]);
    assert_eq!(message.lines().count(), 3, "{message}");
    let message =
        said(&[("max_targets = 3", "max_targets = = 3"), ("probe = \"view.converged\"", "probe = 3")]);
    assert!(message.contains("syntax") && message.contains("steady.probe"), "{message}");
    assert_eq!(parse("", "d.toml").expect_err("empty").to_string().lines().count(), 2);
}

#[test]
fn an_unknown_drill_is_reported_with_the_nearest() {
    let message = drillfile::load("tripple-loss").expect_err("a typo").to_string();
    assert!(message.contains("did you mean triple-loss?"), "{message}");
    let message = drillfile::load("./nowhere.toml").expect_err("no file").to_string();
    assert!(message.starts_with("./nowhere.toml: "), "{message}");
}

/// A validator for the subset of JSON Schema in use.
fn fits(schema: &Value, value: &Value) -> bool {
    if let Some(ways) = schema["oneOf"].as_array() {
        return ways.iter().filter(|way| fits(way, value)).count() == 1;
    }
    if let Some(options) = schema["enum"].as_array() {
        return options.contains(value);
    }
    if !schema["const"].is_null() {
        return schema["const"] == *value;
    }
    if let [way, "null"] =
        schema["type"].as_array().map_or(Vec::new(), |all| all.iter().filter_map(Value::as_str).collect())[..]
    {
        let mut one = schema.clone();
        one["type"] = way.into();
        return value.is_null() || fits(&one, value);
    }
    match schema["type"].as_str().expect("a type") {
        "object" => value.as_object().is_some_and(|object| {
            let required = schema["required"].as_array().into_iter().flatten();
            required.into_iter().all(|key| object.contains_key(key.as_str().expect("text")))
                && object.iter().all(|(key, value)| {
                    match (&schema["properties"][key], &schema["additionalProperties"]) {
                        (Value::Null, Value::Bool(false)) => false,
                        (Value::Null, other) => fits(other, value),
                        (property, _) => fits(property, value),
                    }
                })
        }),
        "array" => {
            value.as_array().is_some_and(|items| items.iter().all(|item| fits(&schema["items"], item)))
        }
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.as_i64().is_some_and(|n| {
            schema["minimum"].as_i64().is_none_or(|low| n >= low)
                && schema["maximum"].as_i64().is_none_or(|high| n <= high)
        }),
        other => panic!("type {other}"),
    }
}

/// A repetition with all fields.
fn void_trial() -> Trial {
    Trial {
        number: 1,
        warmup: false,
        step: "kill".to_owned(),
        outcome: Outcome::Void,
        reason: Some("a hole".to_owned()),
        victims: vec![Victim {
            target: "app".to_owned(),
            process: "app-1".to_owned(),
            host: 2,
            pid: 7,
            incarnation: 3,
        }],
        stamps: vec![Stamp {
            name: "app-1".to_owned(),
            at: 12,
            error: Some("gone".to_owned()),
            host: 2,
            clock_error: 5,
        }],
        skew_ns: 1,
        skew_error_ns: 5,
        clock_error_ns: 6,
        failover_ns: Some(100),
        agents_ns: Some(110),
        coordinators_ns: Some(120),
        unavailable_ns: Some(100),
        phases_ns: Phases::NAMES.into_iter().map(|name| (name.to_owned(), 5)).collect(),
        suspected_ns: Some(5),
        suspected_as: Some("deadbeat".to_owned()),
        lease_wait_ns: 4,
        failed: 1,
        falsely_failed: 0,
        overlap_ns: 0,
    }
}

#[test]
fn void_repetitions_do_not_let_a_drill_pass() {
    let (mut drill, _) = drillfile::load("triple-loss").expect("it ships");
    let void = void_trial();
    let sound = Trial {
        outcome: Outcome::Measured,
        failover_ns: Some(1),
        phases_ns: BTreeMap::new(),
        ..void.clone()
    };
    let probe = drill.steady[0].probe;
    let after = [Probed { probe, holds: true, saw: "all".to_owned() }];
    let ends = |drill: &Drill, sounds: usize, voids: usize, more: &[Trial]| {
        let of = |one: &Trial, times| vec![one.clone(); times];
        let trials = [of(&sound, sounds), of(&void, voids), more.to_vec()].concat();
        verdict(drill, &trials, &judge(drill, &trials), &after)
    };
    drill.expect.retain(|expect| expect.at_most.is_none());
    let least = drill.expect.iter().flat_map(|e| &e.bounds).map(|(p, _)| p.samples_min() as usize);
    let least = least.max().expect("it bounds a percentile");
    assert_eq!(ends(&drill, least, 0, &[]), Verdict::Passed);
    assert_eq!(ends(&drill, least, least - 1, &[]), Verdict::Passed);
    assert_eq!(ends(&drill, least - 1, 1, &[]), Verdict::Void, "the bound is open for the void one alone");
    assert_eq!(ends(&drill, least - 1, 0, &[]), Verdict::Passed, "so few were asked for");
    assert_eq!(ends(&drill, least, least + 1, &[]), Verdict::Void);
    drill.expect.clear();
    assert_eq!(ends(&drill, 1, 1, &[]), Verdict::Passed);
    assert_eq!(ends(&drill, 1, 2, &[]), Verdict::Void);
    assert_eq!(ends(&drill, 0, 1, &[]), Verdict::Void);
    let warmup = Trial { warmup: true, ..sound.clone() };
    assert_eq!(ends(&drill, 1, 2, &[warmup]), Verdict::Void, "a warm-up is in no figure");
    let failed = Trial { outcome: Outcome::Failed, ..sound.clone() };
    assert_eq!(ends(&drill, 0, 9, &[failed]), Verdict::Failed);
}

#[test]
fn a_run_lacks_the_samples_of_void_repetitions() {
    let void = void_trial();
    let sound = Trial { outcome: Outcome::Measured, ..void.clone() };
    let of = |sounds: usize, voids: usize, count: u32| {
        lacks(&[vec![sound.clone(); sounds], vec![void.clone(); voids]].concat(), count)
    };
    assert_eq!([of(300, 0, 300), of(299, 1, 300), of(298, 2, 300), of(200, 100, 300)], [0, 0, 1, 99]);
    assert_eq!(
        [of(28, 1, 29), of(28, 0, 28), of(4, 1, 5), of(2, 2, 4), of(2_994, 6, 3_000)],
        [1, 0, 1, 0, 1]
    );
    let unsilenced = Trial { failover_ns: None, ..sound.clone() };
    assert_eq!(lacks(&vec![unsilenced; 28], 30), 1, "there is no failover to count");
    let warmup = Trial { warmup: true, ..sound.clone() };
    assert_eq!(lacks(&vec![warmup; 5], 5), 5, "a warm-up is in no figure");
}

#[test]
fn a_drill_that_judges_nothing_does_not_pass() {
    let (mut drill, _) = drillfile::load("triple-loss").expect("it ships");
    let sound = Trial { outcome: Outcome::Measured, ..void_trial() };
    let ends = |drill: &Drill, holds: &[bool]| {
        let probe = drill.steady[0].probe;
        let after: Vec<Probed> =
            holds.iter().map(|&holds| Probed { probe, holds, saw: String::new() }).collect();
        let trials = vec![sound.clone(); 9];
        verdict(drill, &trials, &judge(drill, &trials), &after)
    };
    drill.expect.clear();
    assert_eq!(ends(&drill, &[]), Verdict::Void);
    assert_eq!(ends(&drill, &[true]), Verdict::Passed);
    assert_eq!(ends(&drill, &[true, false]), Verdict::Deviated);
    let (drill, _) = drillfile::load("triple-loss").expect("it ships");
    assert_eq!(ends(&drill, &[]), Verdict::Passed, "a bound was judged");
    let judges = |text: &str| parse(text, "d.toml").expect("it has no fault").judges();
    assert!(judges(EXAMPLE));
    let (head, expect) = EXAMPLE.split_once("[[expect]]").expect("it has one");
    let (_, tail) = expect.split_once("[rollback]").expect("it has one");
    let before = "phase = [\"before\"]";
    let bare = format!("{head}[rollback]{tail}").replace("phase = [\"before\", \"after\"]", before);
    assert!(!judges(&bare));
}

#[test]
fn the_published_schema_accepts_a_full_journal() {
    let trial = void_trial();
    let plain = Trial { outcome: Outcome::Measured, reason: None, ..trial.clone() };
    let trials = vec![Trial { failover_ns: None, phases_ns: BTreeMap::new(), ..plain.clone() }, plain, trial];
    let (drill, _) = drillfile::load("triple-loss").expect("it ships");
    let probed = vec![Probed { probe: drill.steady[0].probe, holds: true, saw: "all".to_owned() }];
    let journal = Journal {
        schema: SCHEMA,
        drill: drill.id.clone(),
        title: drill.title.clone(),
        began: 1,
        took: 2.5,
        verdict: Verdict::Passed,
        count: 3,
        extended: 0,
        void: 1,
        profile: "laptop".to_owned(),
        environment: "local".to_owned(),
        host: Host::this(),
        ssh: Some("node-7".to_owned()),
        before: probed.clone(),
        after: probed,
        figures_us: Metric::figures()
            .map(|m| (m.name().to_owned(), distribution(&trials, m).summary()))
            .collect(),
        judged: judge(&drill, &trials),
        trials,
        remarks: vec!["none".to_owned()],
    };
    let schema = journal_schema();
    let value = serde_json::to_value(&journal).expect("JSON");
    assert_eq!(serde_json::from_value::<Journal>(value.clone()).expect("a journal"), journal);
    assert!(fits(&schema, &value), "{value:#}");
    assert_eq!((&value["began"], &value["took_s"]), (&"1970-01-01T00:00:01Z".into(), &2.5.into()));
    let stamp = &value["trials"][0]["stamps"][0];
    assert_eq!((&stamp["at_ns"], &stamp["clock_error_ns"]), (&12.into(), &5.into()));
    for key in ["trials", "host", "verdict"] {
        let mut wrong = value.clone();
        wrong[key] = Value::from("?");
        assert!(!fits(&schema, &wrong), "{key}");
    }
    let mut wrong = value;
    wrong["trials"][0]["more"] = Value::from(1);
    assert!(!fits(&schema, &wrong));
}

#[test]
fn the_published_schema_accepts_drills_and_rejects_unknown_keys() {
    let schema = schema();
    let value =
        |text: &str| serde_json::to_value(toml::from_str::<toml::Table>(text).expect("TOML")).expect("JSON");
    assert!(fits(&schema, &value(EXAMPLE)));
    for one in shipped() {
        assert!(fits(&schema, &value(one.text)), "{}", one.name);
    }
    for (old, new) in [
        ("max_targets", "max_target"),
        ("\"kill\"", "\"kil\""),
        ("seed = 7331", "seed = -1"),
        ("[guards]", "[gaurds]"),
    ] {
        assert!(!fits(&schema, &value(&EXAMPLE.replacen(old, new, 1))), "{new}");
    }
}
