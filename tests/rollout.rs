//! The gate of a rollout, on a cluster that goes through one.

use crate::support::share::Alone;
use crate::support::{Ran, Root, freeze, signal, until};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Stdio};

fn marks(root: &Root) -> Vec<Value> {
    marks_of(&root.cluster())
}

fn marks_of(dir: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(dir.join("marks")).unwrap_or_default();
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    all.filter(|mark| mark["rollout"].is_object()).collect()
}

fn gate(root: &Root, options: &[&str], command: &[&str]) -> Ran {
    let mut gate = root.command(&[&["rollout", "--baseline", "1s", "--settle", "1s"], options].concat());
    Ran::of(gate.arg("--").args(command))
}

#[test]
fn a_rollout_passes_if_its_limits_hold_and_fails_by_its_limits_or_its_command() {
    let root = Root::alone(Alone::Measures);
    let _up = root.up(&[]);
    let obol = env!("CARGO_BIN_EXE_obol");
    let at = root.path().to_str().expect("text").to_owned();
    // A member that leaves on request does not count as failed.
    let restart =
        format!("{obol} stop app-2 --root {at} && {obol} start app-2 --root {at} && echo rolled out");
    let out = root.note("report");
    let dir = out.to_str().expect("text");
    let ran =
        gate(&root, &["--max-failed", "0", "--max-failover", "10s", "--out", dir], &["sh", "-c", &restart])
            .ends(0);
    assert!(ran.out.contains("rolled out") && ran.out.contains("passed"), "{ran:?}");
    let read = |name: &str| std::fs::read_to_string(Path::new(dir).join(name)).expect("it was written");
    let json: Value = serde_json::from_str(&read("rollout.json")).expect("JSON");
    assert_eq!((&json["verdict"], &json["since"]["left"]), (&"passed".into(), &1.into()), "{json}");
    assert!(
        read("rollout.md").contains("| members left on request |") && read("rollout.html").contains("<table")
    );
    let steps: Vec<Value> = marks(&root).iter().map(|mark| mark["rollout"]["step"].clone()).collect();
    assert!(steps.first().is_some_and(|step| step == "begins"), "{steps:?}");
    assert!(steps.last().is_some_and(|step| step == "over"), "{steps:?}");

    root.healthy();
    let ran = gate(&root, &["--max-failed", "0", "--json"], &["sh", "-c", "echo out; exit 7"]).ends(3);
    assert!(ran.err.contains("out") && ran.json()["command"]["status"] == "exit status: 7", "{ran:?}");
    let ran = gate(&root, &["--max-failover-p50", "+20%"], &["touch", "/nonexistent/never-run"]).ends(6);
    assert!(ran.out.contains("5 more are needed") && ran.out.contains("not run"), "{ran:?}");
    let ran = gate(&root, &["--max-failover-p50", "10s"], &["true"]).ends(6);
    assert!(ran.out.contains("failover p50 was not judged: it needs 5 more samples since"), "{ran:?}");
    gate(&root, &["--max-failed", "0"], &["no-such-program"])
        .refused(&["there is no program no-such-program"]);
    gate(&root, &["--max-failed", "0", "--out", dir], &["true"]).refused(&["nothing is overwritten"]);
}

#[test]
fn a_rollout_is_aborted_as_soon_as_a_limit_cannot_hold_any_more_and_the_hook_is_run() {
    let (root, _up) = Root::with_cluster(&[]);
    let obol = env!("CARGO_BIN_EXE_obol");
    let at = root.path().to_str().expect("text").to_owned();
    let undone = root.note("undone");
    let hook = format!("echo $OBOL_ROLLOUT_VERDICT: $OBOL_ROLLOUT_REASONS > {}", undone.display());
    let broken = format!("{obol} kill app-2 --root {at}; sleep 600");
    let ran = gate(&root, &["--max-failed", "0", "--abort-hook", &hook], &["sh", "-c", &broken]).ends(4);
    assert!(ran.out.contains("limit EXCEEDED   members failed 1"), "{ran:?}");
    let said = std::fs::read_to_string(&undone).expect("the hook was run");
    let who = said.trim().strip_prefix("aborted: members failed 1 (before 0, limit 0): app-2 (");
    assert!(who.is_some_and(|rest| rest.contains(" by view ")), "{said}");
    assert!(ran.out.contains("failed since    app-2 ("), "{ran:?}");
    let last = marks(&root).pop().expect("marks");
    assert_eq!((&last["rollout"]["phase"], &last["rollout"]["step"]), (&"aborted".into(), &"over".into()));

    // A cluster that is not healthy is none to roll out on.
    root.run(&["start", "app-2"]).ends(0);
    let frozen = root.healthy().pid("app-1");
    freeze(frozen);
    root.until("it shows", |status| status.code == Some(1));
    gate(&root, &["--max-failed", "0"], &["true"]).refused(&["so nothing is rolled out", "app-1"]);
    signal("CONT", &[frozen]);
    root.healthy();

    // A signal ends the command, too.
    let mut command = root.command(&["rollout", "--baseline", "1s", "--max-failed", "9"]);
    let child = command.args(["--", "sleep", "600"]).stdin(Stdio::null()).spawn().expect("it starts");
    until("the command runs", || {
        marks(&root).last().is_some_and(|mark| mark["rollout"]["phase"] == "running")
    });
    signal("TERM", &[i64::from(child.id())]);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(5));
}

#[test]
fn a_rollout_that_ends_the_cluster_fails() {
    let (root, up) = Root::with_cluster(&[]);
    let command = format!("kill -9 {}", up.pid());
    let ran = gate(&root, &["--max-failed", "0"], &["sh", "-c", &command]).ends(1);
    assert!(ran.err.contains("the cluster is un") || ran.out.contains("the cluster is un"), "{ran:?}");
}

#[test]
fn an_exercise_gives_samples_on_both_sides() {
    let root = Root::alone(Alone::Measures);
    let _up = root.up(&[]);
    let obol = env!("CARGO_BIN_EXE_obol");
    let exercise = format!("{obol} drill app --count 6 --root {}", root.path().display());
    let ran = gate(
        &root,
        &["--max-failover-p50", "+100000%", "--max-failed", "0", "--exercise", &exercise, "--json"],
        &["true"],
    )
    .ends(0);
    let json = ran.json();
    for side in ["before", "since"] {
        assert!(json[side]["failovers_us"]["n"].as_u64() >= Some(5), "{json}");
    }
    assert_eq!(json["compared"][0]["holds"], true, "{json}");
    assert_eq!(json["exercises"].as_array().map(Vec::len), Some(2), "{json}");
}

#[test]
fn the_consoles_of_all_hosts_show_a_rollout_with_its_limits() {
    let (root, _up) = Root::with_cluster(&["--hosts", "3"]);
    let limits = ["failover-p50", "failover-p90", "failover-p99", "failover", "renewal-p99", "unavailable"];
    let mut options: Vec<String> = limits.iter().map(|limit| format!("--max-{limit}=60s")).collect();
    options.extend(["--max-late-renewals=100%", "--max-failed=9", "--json"].map(str::to_owned));
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    // Without a failover, its limits cannot be judged; what consoles show is the same.
    let ran = gate(&root, &options, &["true"]).ends(6);
    assert!(!ran.err.contains("consoles of other hosts"), "{ran:?}");
    // Durations are those of all hosts, as the numbers of renewals are. They are read less often.
    let said = ran.json();
    let of_both = |of: &dyn Fn(&Value) -> Option<u64>| -> u64 {
        ["before", "since"].iter().map(|period| of(&said[period]).expect("a number")).sum()
    };
    let durations = of_both(&|period| period["renewals_us"]["n"].as_u64());
    let all = of_both(&|period| period["renewals_timely"].as_u64());
    assert!(durations * 2 > all && all > 0, "{said:#}");
    for dir in ["default", "default.2", "default.3"] {
        let dir = root.path().join(dir);
        // A gateway answers before its annotation is written.
        until("its end is there", || {
            marks_of(&dir).last().is_some_and(|mark| mark["rollout"]["step"] == "over")
        });
        let all = marks_of(&dir);
        assert_eq!(all[0]["rollout"]["step"], "begins", "{all:?}");
        let last = &all[all.len() - 1]["rollout"];
        assert_eq!(last["phase"], "void", "{all:?}");
        assert_eq!(last["compared"].as_array().map(Vec::len), Some(8), "{all:?}");
    }
}

#[test]
fn a_rollout_after_which_members_are_missing_fails_whatever_its_limits() {
    let root = Root::alone(Alone::Measures);
    let _up = root.up(&[]);
    let obol = env!("CARGO_BIN_EXE_obol");
    let at = root.path().to_str().expect("text").to_owned();
    let each = |verb: &str, names: [&str; 2]| {
        names.map(|name| format!("{obol} {verb} {name} --root {at}")).join(" && ")
    };
    // Two nodes are stopped: their leaves do not count as failures, and two programs have no agent.
    let limits = ["--max-failed", "0", "--max-failover", "10s"];
    let ran = gate(&root, &limits, &["sh", "-c", &each("stop", ["node-1", "node-2"])]).ends(1);
    assert!(ran.out.contains("app-1, app-2, node-1, node-2 did not come back, or cannot act"), "{ran:?}");
    assert!(ran.out.contains("app-1 has no agent and cannot act: node-1 left"), "{ran:?}");
    for name in ["node-1", "node-2"] {
        root.run(&["start", name]).ends(0);
    }
    root.healthy();
    // Two programs are killed, and nothing limits failures.
    let killed = each("kill", ["app-1", "app-2"]);
    let ran = gate(&root, &["--max-late-renewals", "100%"], &["sh", "-c", &killed]).ends(1);
    assert!(ran.out.contains("app-1, app-2 did not come back, or cannot act"), "{ran:?}");
    assert!(ran.out.contains("the cluster is degraded: app-1, app-2 down"), "{ran:?}");
    for name in ["app-1", "app-2"] {
        root.run(&["start", name]).ends(0);
    }
    root.healthy();
    // It can be allowed.
    let stopped = each("stop", ["app-1", "app-2"]);
    gate(&root, &["--max-failed", "0", "--allow-degraded"], &["sh", "-c", &stopped]).ends(0);
    // A command that hangs, with all that it has started.
    let options = ["--max-failed", "0", "--timeout", "1s"];
    let ran = gate(&root, &options, &["sh", "-c", "sleep 600 & sleep 600"]).ends(3);
    assert!(ran.out.contains("the command did not end within 1.00s"), "{ran:?}");
    // A coordinator less, whose name comes before those that are left.
    let removed = format!("{obol} coordinator remove 1 --root {at}");
    let ran = gate(&root, &["--max-failed", "0"], &["sh", "-c", &removed]).ends(1);
    assert!(ran.out.contains("fewer coordinators decide than before (2, not 3): coord-1 no more"), "{ran:?}");
    let removed = format!("{obol} coordinator remove 2 --root {at}");
    gate(&root, &["--max-failed", "0", "--allow-degraded"], &["sh", "-c", &removed]).ends(0);
}

/// Two of three replicas are killed, and come back without memory: all members are there.
#[test]
fn a_rollout_after_which_the_store_has_no_majority_fails() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let serve = |name: &str| {
        let mut command = root.command(&["smr", "server", "--name", name, "--voters", "3"]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it starts");
        root.until("it is a member", |status| status.is_active(name));
        child
    };
    let mut replicas: Vec<Child> = ["smr-1", "smr-2", "smr-3"].map(serve).into();
    // It is not before the store has three copies.
    let before = root.healthy();
    let go_on = root.note("go-on");
    let text = format!("until [ -e {} ]; do sleep 0.02; done", go_on.display());
    let mut command = root.command(&["rollout", "--baseline", "1s", "--settle", "1s"]);
    command.args(["--max-late-renewals", "100%", "--", "sh", "-c", &text]).stdin(Stdio::null());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    until("the command runs", || {
        marks(&root).last().is_some_and(|mark| mark["rollout"]["phase"] == "running")
    });
    let names = ["smr-1", "smr-2"];
    signal("KILL", &names.map(|name| before.pid(name)));
    for replica in &mut replicas[..2] {
        assert!(replica.wait().is_ok());
    }
    root.until("they are removed", |status| names.iter().all(|name| !status.is_active(name)));
    replicas.extend(names.map(serve));
    root.until("the store lacks a majority", |status| status.reasons().contains("the store does not serve"));
    std::fs::write(&go_on, "").expect("written");
    let ended = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stdout);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("the cluster is degraded: the store does not serve"), "{said}");
    assert!(!said.contains("did not come back"), "{said}");
    for mut replica in replicas.into_iter().skip(2) {
        replica.kill().expect("it runs");
        assert!(replica.wait().is_ok());
    }
}
