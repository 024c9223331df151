//! Drills that pass on a fresh cluster, and fail where their fault is a real one: no detection, a
//! stuck leader, a fault that comes back after its undo, no restart, a member that does not leave
//! as it should.

use crate::support::journals::passes;
use crate::support::share::Alone;
use crate::support::{Ran, Root, signal, until};
use obol_fabric::Nanos;
use obol_profiles::Profile;
use serde_json::Value;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, thread};

/// Heartbeats are read so seldom that no test lives to see it.
fn without_heartbeats(profile: &mut Profile) {
    profile.timing.heartbeat_period = Nanos::from_secs(60);
}

/// Lets a drill pause what nobody will detect.
const UNDETECTED: (&str, &str) = ("[guards]\n", "[guards]\nallow_undetected = true\n");

/// Runs a drill that ships, with changes to its text.
fn own(root: &Root, name: &str, changes: &[(&str, &str)], arguments: &[&str]) -> Ran {
    let text = root.run(&["drill", "show", name]).ends(0).out;
    let text = changes.iter().fold(text, |text, (old, new)| {
        assert!(text.contains(old), "{old} is not in {name}");
        text.replacen(old, new, 1)
    });
    let path = root.cluster().join("mine.toml");
    fs::write(&path, text).expect("written");
    root.run(&[&["drill", "run", path.to_str().expect("text"), "--json"], arguments].concat())
}

/// What the trials say: one that only warms up fails a drill as well.
fn reasons(journal: &Value) -> String {
    let trials = journal["trials"].as_array().expect("trials");
    trials.iter().map(|t| t["reason"].to_string()).collect()
}

#[test]
fn drills_that_ship_pass_on_a_fresh_cluster() {
    let root = Root::alone(Alone::Measures);
    let _up = root.up(&["--caches", "2"]);
    let names = ["triple-loss", "freeze", "cache-storm", "coordinator-replace", "flap"];
    for name in names.into_iter().chain(["multicast-outage", "partition-leader", "partition-node"]) {
        passes(&root, &[name, "--count", "1"], || ());
        root.healthy();
    }
}

/// The bound of the drill is half of a lease of this profile: who waited for it would not hold it.
#[test]
fn the_drill_of_an_agent_that_dies_alone_passes_on_one_host_and_across_hosts() {
    for arguments in [&["--apps", "3"][..], &["--hosts", "3"]] {
        let root = Root::alone(Alone::Measures);
        let _up = root.up(arguments);
        let journal = passes(&root, &["agent", "--count", "9"], || ());
        let judged = journal["judged"].as_array().expect("bounds");
        assert!(judged.iter().any(|one| one["of"] == "p50" && one["holds"] == true), "{journal:#}");
    }
}

/// Every drill that ships and injects without a word, on a cluster without detection: its
/// victims stand still, so that the kernel has no death to report, and heartbeats are read too
/// seldom.
#[test]
fn every_drill_that_ships_fails_where_nobody_detects() {
    let root = Root::new();
    let _up = root.up_with(&["--caches", "2"], without_heartbeats);
    root.healthy();
    let shipped = root.run(&["drill", "list", "--json"]).ends(0).json();
    let names: Vec<&str> =
        shipped.as_array().expect("a list").iter().map(|one| one["name"].as_str().expect("text")).collect();
    // One is eight of the others, and one kills no process: it has a test of its own.
    for name in names.into_iter().filter(|name| !["table2", "rolling-restart"].contains(name)) {
        let text = root.run(&["drill", "show", name]).ends(0).out;
        // Those between hosts need several; after a short stall nobody is to be excluded.
        if ["layer = \"host\"", "\"nic-down\"", "\"host-crash\"", "\"kernel-stall\""]
            .iter()
            .any(|kind| text.contains(kind))
        {
            continue;
        }
        let text = text
            .replace(", signal = \"KILL\"", "")
            .replace(UNDETECTED.0, UNDETECTED.1)
            .replace("kind = \"kill\"", "kind = \"freeze\", for = \"300ms\"");
        let text = ["500ms", "800ms", "1500ms", "2s"]
            .into_iter()
            .fold(text, |text, span| text.replace(&format!("for = \"{span}\""), "for = \"300ms\""));
        // What is frozen is not started again.
        let lines = text.lines().filter(|line| !line.starts_with("actions = "));
        let text = lines.collect::<Vec<_>>().join("\n");
        let path = root.cluster().join("mine.toml");
        fs::write(&path, text).expect("written");
        let journal =
            root.run(&["drill", "run", path.to_str().expect("text"), "--count", "1", "--json"]).json();
        assert_eq!(journal["verdict"], "failed", "{name}: {journal:#}");
        assert!(reasons(&journal).contains("no view excludes "), "{name}: {journal:#}");
        root.healthy();
    }
}

#[test]
fn a_drill_fails_where_nobody_detects_and_deviates_where_the_leader_is_stuck() {
    let root = Root::new();
    let _up = root.up_with(&[], without_heartbeats);
    for name in ["freeze", "app+coordinator-heartbeat"] {
        let refused = root.run(&["drill", "run", name, "--count", "1"]).ends(2).err;
        assert!(refused.contains("guard detection"), "{name}: {refused}");
        let failed = own(&root, name, &[UNDETECTED], &["--count", "1"]).ends(1).json();
        assert_eq!(failed["verdict"], "failed", "{name}: {failed:#}");
        assert!(reasons(&failed).contains("no view excludes "), "{name}: {failed:#}");
        root.healthy();
    }
    // The leader hangs while the app dies, and is continued later: there is no decision before that.
    let stuck = [
        UNDETECTED,
        ("[targets]\n", "[targets]\nleader = { kind = \"coordinator\", select = \"leader\" }\n"),
        ("max_targets = 1", "max_targets = 2"),
        (
            "fault = { kind = \"kill\", target = \"app\" }",
            "fault = [{ kind = \"freeze\", for = \"1s\", target = \"leader\" }, { kind = \"kill\", target = \"app\" }]",
        ),
        ("p50 = \"5ms\"", "max = \"500ms\""),
    ];
    let journal = own(&root, "app", &stuck, &["--count", "1"]).json();
    assert!(["deviated", "failed"].contains(&journal["verdict"].as_str().expect("text")), "{journal:#}");
}

#[test]
fn a_drill_fails_where_what_it_killed_does_not_come_back() {
    let (root, up) = Root::with_cluster(&[]);
    let before = root.healthy();
    let socket = root.cluster().join("up.sock");
    let mut command = root.command(&["drill", "run", "app", "--count", "1000", "--json"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts");
    up.until_view("a process was killed and rejoined", |view| {
        view["view"].as_u64() > Some(before.view() + 3)
    });
    fs::remove_file(&socket).expect("the supervisor listens");
    let ended = child.wait_with_output().expect("a child");
    let journal: Value = serde_json::from_slice(&ended.stdout).expect("a journal");
    assert_eq!((ended.status.code(), &journal["verdict"]), (Some(1), &"failed".into()), "{journal:#}");
    assert!(journal["trials"].to_string().contains("could not be restarted"), "{journal:#}");
}

#[test]
fn nobody_is_killed_where_nobody_could_start_it_again() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let before = root.healthy().pids();
    fs::remove_file(root.cluster().join("up.sock")).expect("the supervisor listens");
    root.run(&["drill", "run", "app", "--count", "3"]).refused(&["that `obol up` can restart", "app-1"]);
    assert_eq!(root.healthy().pids(), before);
}

#[test]
fn what_a_drill_has_found_is_told_where_the_cluster_does_not_recover() {
    let (root, _up) = Root::with_cluster(&[]);
    root.healthy();
    let out = root.cluster().join("report");
    let never = ("[[expect]]", "[rollback]\nstrategy = \"never\"\n\n[[expect]]");
    let arguments = ["--count", "2", "--out", out.to_str().expect("text")];
    let cold = ("warmup = 2, ", "");
    let journal = own(&root, "app", &[cold, never], &arguments).ends(1).json();
    assert_eq!((&journal["verdict"], &journal["count"]), (&"failed".into(), &1.into()), "{journal:#}");
    assert!(journal["remarks"].to_string().contains("down"), "{journal:#}");
    assert!(out.join("postmortem.html").exists(), "its report was written");
    // Where there is no place for what it would find, nothing is broken.
    own(&root, "app", &[], &arguments).refused(&["exists; nothing is overwritten"]);
}

#[test]
fn a_drill_deviates_where_an_undo_is_lost_and_where_a_restart_counts_as_a_failure() {
    let (root, _up) = Root::with_cluster(&[]);
    let before = root.healthy();
    let restart =
        own(&root, "rolling-restart", &[("signal = \"TERM\"", "signal = \"KILL\"")], &["--count", "1"]);
    let journal = restart.ends(3).json();
    assert_eq!(journal["judged"][0]["holds"], false, "{journal:#}");
    root.healthy();

    // A frozen process that is continued is frozen again at once, as if nothing was undone.
    let agents: Vec<i64> = ["node-1", "node-2", "node-3"].map(|name| before.pid(name)).into();
    let state = |pid: i64| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().and_then(|rest| rest.chars().next())
    };
    let stop = AtomicBool::new(false);
    let ran = thread::scope(|scope| {
        scope.spawn(|| {
            let mut frozen = None;
            while !stop.load(Ordering::Relaxed) {
                frozen = frozen.or_else(|| agents.iter().copied().find(|pid| state(*pid) == Some('T')));
                if let Some(pid) = frozen.filter(|pid| state(*pid) != Some('T')) {
                    signal("STOP", &[pid]);
                }
                thread::sleep(Duration::from_millis(1));
            }
            if let Some(pid) = frozen {
                signal("CONT", &[pid]);
            }
        });
        // The drill looks at the cluster after its gap: by then the process has been stopped again,
        // although a busy machine may let the signal be late.
        let ran = own(&root, "freeze", &[("gap = \"100ms\"", "gap = \"3s\"")], &["--count", "1"]);
        stop.store(true, Ordering::Relaxed);
        ran
    });
    let journal = ran.json();
    let verdict = journal["verdict"].as_str().expect("text");
    assert!(["deviated", "failed"].contains(&verdict), "{journal:#}");
    assert!(
        journal["after"].as_array().expect("probes").iter().any(|one| one["holds"] == false),
        "{journal:#}"
    );
    until("it is continued", || agents.iter().all(|pid| state(*pid) != Some('T')));
    root.healthy();
}
