//! Drills: one report for scripts, whose numbers agree with each other.

use crate::support::share::Alone;
use crate::support::{Ran, Root, Status, freeze, obol, programs, signal, until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Stdio;

const PHASES: [&str; 6] = ["notice", "propose", "decide", "fence", "clear", "active"];
const P99_SAMPLES_MIN: u64 = 299;

/// Holds that the report has what scripts rely on, and that its numbers agree.
fn report(ran: &Ran, drill: &str) -> Value {
    let report = ran.json();
    let keys: BTreeSet<&str> = report.as_object().expect("one object").keys().map(String::as_str).collect();
    let wanted = [
        "drill",
        "verdict",
        "count",
        "extended",
        "void",
        "false_suspicions",
        "overlap_ns",
        "failover_us",
        "agents_us",
        "coordinators_us",
        "phases_us",
        "lease_wait_us",
        "profile",
        "host",
        "remarks",
    ];
    assert_eq!(keys, BTreeSet::from(wanted));
    assert_eq!(report["drill"], drill);
    let false_suspicions = report["false_suspicions"].as_u64().expect("a number");
    // A busy machine may suspect a process that only got no core; the report then says that it did.
    let number = |key: &str| report[key].as_u64().expect("a number");
    let void = number("void") * 2 > number("count");
    let (verdict, code) = match (false_suspicions, void) {
        (0, false) => ("passed", 0),
        (0, true) => ("void", 6),
        _ => ("deviated", 3),
    };
    assert_eq!(report["verdict"], verdict, "{report}");
    assert_eq!(ran.code, Some(code), "{report}");
    assert!(report["host"]["cores"].as_u64() > Some(0), "{report}");
    assert!(report["host"]["kernel"].as_str().is_some_and(|kernel| !kernel.is_empty()), "{report}");
    let measured = report["count"].as_u64().expect("a number") - report["void"].as_u64().expect("a number");
    summary(&report["failover_us"], measured);
    let phases = report["phases_us"].as_object().expect("an object");
    assert_eq!(phases.keys().map(String::as_str).collect::<BTreeSet<_>>(), BTreeSet::from(PHASES));
    phases.values().for_each(|phase| summary(phase, measured));
    report
}

fn summary(of: &Value, measured: u64) {
    assert_eq!(of["n"], measured, "{of}");
    let at = |key: &str| of[key].as_f64().unwrap_or_else(|| panic!("no {key}: {of}"));
    let mut least = at("min");
    for (key, samples_min) in [("p50", 5), ("p90", 29), ("p99", P99_SAMPLES_MIN)] {
        match of[key].as_f64() {
            Some(value) => {
                assert!(measured >= samples_min && least <= value, "{key}: {of}");
                least = value;
            }
            None => assert!(measured < samples_min && of.get(key) == Some(&Value::Null), "{key}: {of}"),
        }
    }
    assert!(least <= at("max"), "{of}");
}

#[test]
fn each_drill_reports_one_object() {
    let (root, _up) = Root::with_cluster(&[]);
    for drill in ["app", "leader", "app+coordinator"] {
        let ran = root.run(&["drill", drill, "--count", "3", "--json"]);
        let report = report(&ran, drill);
        assert_eq!(report["count"], 3);
        // On a busy machine a drill may have to wait before it begins.
        let waits = format!("drill {drill}: waits until the cluster is healthy: ");
        let said: Vec<&str> = ran.err.lines().filter(|line| !line.starts_with(&waits)).collect();
        assert!(said.is_empty(), "progress is for terminals: {said:?}");
        assert_eq!(report["profile"], root.healthy().json["profile"]);
    }
}

/// The last replacement runs, but stops before it has done anything: with a supervisor that starts
/// it, that counts as a failure just like one that does not start.
#[test]
fn a_drill_whose_replacement_never_joins_does_not_pass() {
    let root = Root::new();
    let program = root.note("obol");
    let up = root.begin_copy(&program, &["--apps", "2"]);
    up.until_up();
    root.healthy();
    let stopped = root.note("stopped");
    programs::script(&stopped, "#!/bin/sh\nkill -STOP $$\n");
    std::fs::rename(&stopped, &program).expect("renamed");
    let ran = root.run(&["drill", "app", "--count", "1", "--json"]);
    let report = ran.json();
    assert_eq!((ran.code, &report["verdict"]), (Some(1), &Value::from("failed")), "{report}");
    let remarks = report["remarks"].to_string();
    assert!(remarks.contains("after the last repetition: the cluster is not healthy"), "{report}");
}

#[test]
fn programs_without_a_supervisor_are_hit_only_by_name() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let demo = root.healthy().pid("app-1");
    let mut mine = obol();
    mine.arg("--root").arg(root.path()).args(["run", "--node", "node-1", "--name", "mine", "--"]);
    let mut mine = mine.args(["sleep", "1000"]).stdin(Stdio::null()).spawn().expect("it starts");
    root.until("mine is a member", |s| s.incarnation("mine") != 0);
    let own = root.healthy().pid("mine");
    // Whichever of the two the choice would fall on.
    let ran = root.run(&["drill", "app", "--count", "6", "--gap", "1ms", "--json"]);
    report(&ran, "app");
    let after = root.healthy();
    assert_eq!(after.pid("mine"), own);
    assert_ne!(after.pid("app-1"), demo);

    let drill = |text: &str| {
        let shipped = Ran::of(obol().args(["drill", "show", "app"])).ends(0).out;
        let text = shipped.replace("select = \"one\"", text).replace("count = 100, warmup = 2", "count = 1");
        let at = root.path().join("mine.toml");
        std::fs::write(&at, text.replace("p50 = \"5ms\"", "max = \"9s\"")).expect("written");
        at.to_str().expect("text").to_owned()
    };
    root.run(&["kill", "app-1"]).ends(0);
    root.until("only mine is left", |s| !s.processes()["app-1"]["alive"].as_bool().unwrap_or(false));
    let plan = root.run(&["drill", "plan", &drill("select = \"one\""), "--json"]).ends(2).json();
    let refusal = plan["steps"][0]["refusal"].as_str().expect("a reason");
    assert!(refusal.contains("mine") && refusal.contains("name = \"mine\""), "{plan}");
    root.run(&["start", "app-1"]).ends(0);
    root.healthy();
    let named = drill("name = \"mine\"");
    let plan = root.run(&["drill", "plan", &named, "--json"]).ends(0).json();
    assert_eq!(plan["steps"][0]["faults"][0]["hits"][0]["supervised"], false, "{plan}");
    let ran = root.run(&["drill", "run", &named, "--json"]).json();
    assert_eq!(ran["trials"][0]["victims"][0]["process"], "mine", "{ran}");
    assert_ne!(ran["verdict"], "failed", "{ran}");
    mine.wait().expect("it was killed");
}

#[test]
fn caches_are_drilled_where_there_are_some() {
    let (root, _up) = Root::with_cluster(&["--caches", "2"]);
    for drill in ["cache", "app+cache", "app+coordinator+cache"] {
        let ran = root.run(&["drill", drill, "--count", "3", "--json"]);
        assert_eq!(report(&ran, drill)["count"], 3);
        root.healthy();
    }
}

#[test]
fn the_phases_of_a_failover_add_up_to_it() {
    let (root, _up) = Root::with_cluster(&[]);
    for drill in ["app", "leader", "app+coordinator"] {
        let mut one = Value::Null;
        until("one failover is measured", || {
            one = report(&root.run(&["drill", drill, "--count", "1", "--json"]), drill);
            one["failover_us"]["n"] == 1
        });
        let total = one["failover_us"]["max"].as_f64().expect("a number");
        let sum: f64 = PHASES.iter().map(|p| one["phases_us"][p]["max"].as_f64().expect("a number")).sum();
        // Durations keep three figures, and a phase of no length counts as a nanosecond.
        assert!((total - sum).abs() <= total * 0.005 + 0.1, "{sum} is not {total}: {one}");
    }
}

#[test]
fn a_p99_is_claimed_from_299_samples_on() {
    let root = Root::alone(Alone::Measures);
    let _up = root.up(&["--apps", "2"]);
    // A busy machine may void more repetitions than the run makes up for; then it says that it
    // claims nothing.
    until("a run claims a p99", || {
        let ran = root.run(&["drill", "app", "--count", "299", "--gap", "1us", "--json"]);
        let report = report(&ran, "app");
        let enough = report["failover_us"]["n"].as_u64() >= Some(P99_SAMPLES_MIN);
        let more = report["extended"].as_u64().expect("a number");
        assert_eq!(report["count"].as_u64(), Some(299 + more), "{report}");
        assert!(enough || more == 150 || report["verdict"] != "passed", "it gave up too early: {report}");
        enough && report["verdict"] == "passed"
    });
}

#[test]
fn a_drill_for_people_says_what_it_can_not_claim() {
    let (root, _up) = Root::with_cluster(&[]);
    let shown = root.run(&["drill", "app", "--count", "2"]).out;
    for words in
        ["drill app: ", "2 repetitions", "failover", "failover.fence", "no p99: it needs 299 samples"]
    {
        assert!(shown.contains(words), "{words:?} is not in:\n{shown}");
    }
}

/// Whether a repetition runs at that moment or not.
#[test]
fn a_bystander_that_is_removed_between_two_repetitions_fails_the_drill() {
    let (root, _up) = Root::with_cluster(&["--apps", "3"]);
    let before = root.healthy();
    let mut command = root.command(&["drill", "app", "--count", "3", "--gap", "4s", "--json"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts");
    let apps = ["app-1", "app-2", "app-3"];
    let replaced = |status: &Status| {
        let fresh = apps
            .iter()
            .filter(|app| status.is_active(app) && status.incarnation(app) != before.incarnation(app));
        fresh.count() > 0
    };
    root.until("the first repetition is over", replaced);
    let agent = before.pids()["node-2"];
    freeze(agent);
    root.until("the agent is removed", |status| status.incarnation("node-2") == 0);
    signal("CONT", &[agent]);
    let ended = child.wait_with_output().expect("a child");
    let report: Value = serde_json::from_slice(&ended.stdout).expect("one object");
    assert_eq!((ended.status.code(), &report["verdict"]), (Some(3), &Value::from("deviated")), "{report}");
    // The agent, and the app attached to it.
    assert!(report["false_suspicions"].as_u64() >= Some(2), "{report}");
    root.healthy();
}

/// Such as a console that was killed.
#[test]
fn a_drill_whose_progress_is_not_read_any_more_is_interrupted() {
    let (root, up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    let mut command =
        root.command(&["drill", "run", "app", "--count", "100000", "--progress", "--json", "--yes"]);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    up.until_view("a process is killed and rejoins", |view| view["view"].as_u64() > Some(8));
    drop(child.stderr.take());
    let ended = child.wait_with_output().expect("a child");
    let report: Value = serde_json::from_slice(&ended.stdout).expect("one object");
    assert_eq!((ended.status.code(), &report["verdict"]), (Some(5), &"interrupted".into()), "{report}");
    root.healthy();
}

#[test]
fn a_drill_that_is_interrupted_reports_what_it_has() {
    let (root, up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    let mut command = root.command(&["drill", "app", "--count", "100000", "--json"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts");
    let pid = i64::from(child.id());
    up.until_view("a process is killed and rejoins", |view| view["view"].as_u64() > Some(8));
    signal("INT", &[pid]);
    let ended = child.wait_with_output().expect("a child");
    let report: Value = serde_json::from_slice(&ended.stdout).expect("one object");
    assert_eq!((ended.status.code(), &report["verdict"]), (Some(5), &"interrupted".into()), "{report}");
    assert!(report["count"].as_u64() < Some(100_000), "{report}");
    // The cluster is left whole.
    root.healthy();
}

#[test]
fn a_cluster_that_is_not_healthy_is_not_drilled() {
    let (root, _up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    root.run(&["kill", "coord-1"]).ends(0);
    root.until("leases have ended", |s| s.active().is_empty());
    root.run(&["drill", "app", "--count", "1"]).refused(&["not healthy", "coordinator majority lost"]);
    root.run(&["start", "coord-1"]).ends(0);
    root.healthy();
    root.run(&["drill", "cache", "--count", "1"]).refused(&["no lease cache", "--caches"]);
}

#[test]
fn the_papers_table_is_measured_with_real_processes() {
    let root = Root::new();
    let out = std::env::temp_dir().join(format!("obol-test-table-{}", std::process::id()));
    let ran =
        root.run(&["drill", "run", "table2", "--count", "1", "--json", "--out", out.to_str().expect("text")]);
    let table = ran.json();
    let cells = table["cells"].as_array().expect("cells");
    let name = |cell: &Value| format!("{} {}", cell["failed"], cell["detector"]).replace('"', "");
    let names: Vec<String> = cells.iter().map(name).collect();
    let wanted = ["A", "A+C", "A+L", "A+L+C"];
    let wanted = ["deadbeat", "heartbeat"].iter().flat_map(|how| wanted.map(|who| format!("{who} {how}")));
    assert_eq!(names, wanted.collect::<Vec<_>>());
    assert!(table["floor_us"]["max"].as_f64() > Some(0.0), "{table}");
    for cell in cells {
        let found = &cell["fenced"];
        assert_eq!((&cell["errors"], &cell["waited"]), (&Value::Array(Vec::new()), &Value::Null), "{cell}");
        assert_eq!(found["overlap_ns"], 0, "{cell}");
        assert!(cell["published_us"].as_f64() >= Some(50.0), "{cell}");
        let measured = found["failover_us"]["n"] == 1;
        assert!(measured != (found["void"] == 1) || found["verdict"] == "failed", "{cell}");
        // A busy machine may void one or remove a bystander: the cell then says so.
        assert!(
            found["verdict"] != "failed" || !found["remarks"].as_array().expect("remarks").is_empty(),
            "{cell}"
        );
    }
    let measured = cells.iter().filter(|cell| cell["fenced"]["failover_us"]["n"] == 1).count();
    assert!(measured * 2 >= cells.len(), "most cells are measured: {table}");
    for file in ["table2.md", "table2.json", "app/journal.json", "app+cache-heartbeat/postmortem.md"] {
        assert!(out.join(file).exists(), "{file}");
    }
    std::fs::remove_dir_all(out).expect("removed");
    assert!(root.processes().is_empty(), "its clusters have ended: {:?}", root.processes());
    root.run(&["drill", "run", "app", "--no-fence"]).refused(&["table2", "lease.fencing"]);
    root.run(&["drill", "plan", "table2"]).refused(&["eight drills"]);
}

#[test]
fn a_drill_that_waits_says_at_once_what_for() {
    let (root, _up) = Root::with_cluster(&["--apps", "2"]);
    root.healthy();
    root.run(&["kill", "app-1"]).ends(0);
    root.until("it is down", |s| s.reasons().contains("app-1 down"));
    let said = root.run(&["drill", "app", "--count", "1"]).ends(2).err;
    let waits = said.find("drill app: waits until the cluster is healthy: app-1 down");
    let refuses = said.find("the cluster is not healthy");
    assert!(waits.is_some() && waits < refuses, "{said}");
}
