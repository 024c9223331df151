//! Drills from files, up to the point where something would be touched.

use crate::support::{Ran, Root, Status, freeze, obol, signal, under_limit};
use obol_fabric::Nanos;
use serde_json::json;
use std::collections::BTreeMap;

/// A drill of the test's own.
fn file(root: &Root, text: &str) -> String {
    std::fs::create_dir_all(root.path()).expect("the root");
    let path = root.path().join("mine.toml");
    std::fs::write(&path, text).expect("written");
    path.to_str().expect("text").to_owned()
}

fn shown(name: &str) -> String {
    Ran::of(obol().args(["drill", "show", name])).ends(0).out
}

#[test]
fn the_drills_that_ship_are_listed_and_their_text_is_a_start_for_ones_own() {
    let listed = Ran::of(obol().args(["drill", "list", "--json"])).ends(0).json();
    let names: Vec<&str> =
        listed.as_array().expect("a list").iter().map(|one| one["name"].as_str().expect("text")).collect();
    for name in [
        "app",
        "agent",
        "app+coordinator+cache-heartbeat",
        "freeze",
        "host-loss",
        "rolling-restart",
        "cache-storm",
        "flap",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(shown("freeze").contains("id = \"freeze\""));
    let schema = Ran::of(obol().args(["drill", "schema"])).ends(0).json();
    assert_eq!(schema["properties"]["drill"]["properties"]["schema"]["const"], 1);
    Ran::of(obol().args(["drill", "show", "freez"])).refused(&["did you mean freeze?"]);
}

#[test]
fn a_plan_tells_whom_it_would_hit_and_what_each_guard_says_and_touches_nothing() {
    let (root, _up) = Root::with_cluster(&["--environment", "lab"]);
    let before = root.healthy().pids();
    let own = |changes: &[(&str, &str)]| {
        let text = changes.iter().fold(shown("app+coordinator"), |text, (old, new)| {
            assert!(text.contains(old), "{old}");
            text.replacen(old, new, 1)
        });
        root.run(&["drill", "plan", &file(&root, &text), "--json"])
    };
    let lab = ("environment = \"local\"", "environment = \"lab\"");
    let plan = own(&[lab]).ends(0).json();
    let hits = plan["steps"][0]["faults"][0]["hits"].as_array().expect("hits");
    let hit: BTreeMap<&str, i64> = hits
        .iter()
        .map(|hit| (hit["process"].as_str().expect("a name"), hit["pid"].as_i64().expect("a pid")))
        .collect();
    assert_eq!(hit.len(), 2, "{plan}");
    assert_eq!(hit["coord-1"], before["coord-1"]);
    assert!(hits.iter().all(|hit| hit["program"].as_str().is_some_and(|p| p.ends_with("obol"))), "{plan}");
    assert_eq!(plan["allowed"], true);

    let refused = |changes: &[(&str, &str)], guard: &str| {
        let plan = own(&[&[lab], changes].concat()).ends(2).json();
        let guards = plan["guards"].as_array().expect("guards");
        let says: Vec<_> = guards.iter().filter(|answer| answer["allows"] == false).collect();
        assert!(says.iter().any(|answer| answer["guard"] == guard), "{plan}");
    };
    assert!(own(&[]).ends(2).out.contains("the cluster is labelled"), "another environment");
    refused(&[("max_targets = 2", "max_targets = 1")], "max_targets");
    refused(&[("keep_acceptors = \"majority\"", "keep_acceptors = 3")], "keep_acceptors");
    refused(
        &[("select = \"leader\"", "select = \"majority\""), ("max_targets = 2", "max_targets = 9")],
        "keep_acceptors",
    );
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    let deny = format!("max_targets = 2\ndeny_hosts = [\"{}*\"]", &host.trim()[..1]);
    refused(&[("max_targets = 2", &deny)], "deny_hosts");
    // An app has no link of its own.
    for network in ["kind = \"partition\"", "kind = \"delay\", by = \"1ms\""] {
        let network = format!("{{ {network}, layer = \"fabric\", for = \"1s\", target");
        // A failover cannot be bounded where no process falls silent.
        let bound = ("failover.cue_to_active", "cue.skew");
        refused(&[("{ kind = \"kill\", target", &network), bound], "means");
    }
    let plan = own(&[lab, ("kind = \"app\", select = \"one\"", "kind = \"lease-cache\", select = \"one\"")])
        .ends(2)
        .json();
    assert!(plan["steps"][0]["refusal"].as_str().is_some_and(|why| why.contains("--caches")), "{plan}");
    assert_eq!(root.healthy().pids(), before, "nothing was touched");
}

/// Plans and runs a drill that kills coordinators, which both are refused without touching
/// anything.
fn refused_by_keep_acceptors(root: &Root, targets: &[&str], says: &str) {
    let before = root.healthy();
    let names: Vec<String> = (1..=targets.len()).map(|n| format!("t{n}")).collect();
    let each = names.iter().zip(targets);
    let targets: String =
        each.map(|(name, which)| format!("{name} = {{ kind = \"coordinator\", {which} }}\n")).collect();
    let path = file(
        root,
        &format!(
            "[drill]\nschema = 1\nid = \"most\"\ntitle = \"Most of the coordinators\"\nenvironment = \"local\"\n\
             [guards]\nmax_targets = 10\nkeep_acceptors = \"majority\"\n[targets]\n{targets}[[steady]]\n\
             probe = \"view.converged\"\n[[step]]\nname = \"kill\"\nfault = {{ kind = \"kill\", target = {names:?} }}\n"
        ),
    );
    let plan = root.run(&["drill", "plan", &path, "--json"]).ends(2).json();
    let guards = plan["guards"].as_array().expect("guards");
    let refusing: Vec<_> = guards.iter().filter(|answer| answer["allows"] == false).collect();
    assert_eq!(refusing.len(), 1, "{plan}");
    assert_eq!((&refusing[0]["guard"], &refusing[0]["says"]), (&"keep_acceptors".into(), &says.into()));
    let deciders = before.json["replacement"]["deciders"].as_array().expect("names");
    let hits = plan["steps"][0]["faults"][0]["hits"].as_array().expect("hits");
    assert!(hits.iter().all(|hit| deciders.contains(&hit["process"])), "{plan}");
    root.run(&["drill", "run", &path]).refused(&["guard keep_acceptors", says]);
    let after = root.healthy();
    assert_eq!((after.pids(), after.view()), (before.pids(), before.view()), "nothing was touched");
}

#[test]
fn a_majority_of_those_who_decide_is_kept_after_coordinators_were_added() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    root.healthy();
    for _ in 0..2 {
        root.run(&["coordinator", "add"]).ends(0);
    }
    let says = "leaves 2 of 5 coordinators that decide, 3 required";
    refused_by_keep_acceptors(&root, &["fixed = 3"], says);
    refused_by_keep_acceptors(&root, &["select = \"majority\""], says);
}

#[test]
fn a_spare_that_runs_does_not_count_for_the_majority_that_is_kept() {
    let root = Root::new();
    let _up = root.up_with(&["--apps", "1"], |profile| {
        profile.timing.replace_after = Nanos::from_secs(1);
        profile.timing.replace_pause = Nanos::from_secs(1);
    });
    let frozen = root.healthy().pid("coord-2");
    freeze(frozen);
    let replaced = |s: &Status| {
        let replacement = &s.json["replacement"];
        replacement["deciders"] == json!(["coord-1", "coord-3", "coord-4"])
            && replacement["missing"] == json!([])
    };
    root.until("coord-2 is replaced by a spare of `up`", replaced);
    signal("CONT", &[frozen]);
    assert_eq!(root.healthy().json["replacement"]["spares"], json!(["coord-2"]));
    let says = "leaves 1 of 3 coordinators that decide, 2 required";
    refused_by_keep_acceptors(&root, &["name = \"coord-1\"", "name = \"coord-3\""], says);
    refused_by_keep_acceptors(&root, &["select = \"majority\""], says);
}

#[test]
fn probes_tell_whether_the_steady_state_holds() {
    let (root, _up) = Root::with_cluster(&[]);
    let probed = root.run(&["drill", "probes", "app", "--json"]).ends(0).json();
    assert!(
        probed.as_array().is_some_and(|all| all.len() == 2 && all.iter().all(|one| one["holds"] == true)),
        "{probed}"
    );
    root.run(&["kill", "app-2"]).ends(0);
    root.until("app-2 is missed", |s| s.reasons().contains("app-2 down"));
    let ran = root.run(&["drill", "probes", "app"]).ends(1);
    assert!(
        ran.out.contains("processes.up") && ran.out.contains("DEVIATES") && ran.out.contains("app-2 down"),
        "{}",
        ran.out
    );
    root.run(&["drill", "plan", "ap"]).refused(&["there is no built-in drill \"ap\""]);
}

#[test]
fn a_run_whose_report_would_have_no_place_is_refused_before_anything_is_touched() {
    let (root, _up) = Root::with_cluster(&[]);
    let before = root.healthy().pids();
    let (link, dir) = (root.path().join("link"), root.path().join("report"));
    std::os::unix::fs::symlink("nowhere", &link).expect("linked");
    let run = |name: &str, out: &std::path::Path| {
        root.run(&["drill", "run", name, "--count", "1", "--out", out.to_str().expect("text")])
    };
    run("app", &link).refused(&["link exists; nothing is overwritten"]);
    run("app", &link.join("deeper")).refused(&["deeper: "]);
    assert_eq!(root.healthy().pids(), before);
    // One that is refused by itself leaves no empty report.
    run("app+cache", &dir).refused(&["target cache wants a lease-cache"]);
    assert!(!dir.exists());
}

#[test]
fn a_report_that_cannot_be_written_changes_no_verdict_and_is_named() {
    let root = Root::new();
    let place = |name: &str| root.note(name).to_str().expect("text").to_owned();
    // Files can be made, and nothing can be written to them.
    let run = |arguments: &[&str], out: &str| {
        under_limit("-f 0", obol().args(arguments).args(["--sim", "--json", "--out", out]))
    };
    let dir = place("report");
    let ran = run(&["drill", "run", "app+coordinator+cache", "--count", "29"], &dir).ends(0);
    assert_eq!(ran.json()["verdict"], "passed", "{ran:?}");
    let said = format!("obol: the report could not be written to {dir}: journal.json: File too large");
    assert!(ran.err.contains(&said) && ran.err.contains("; postmortem.html: "), "{ran:?}");

    let compare = ["drill", "detectors", "--count", "1"];
    let well = Ran::of(obol().args(compare).args(["--sim", "--json"]));
    let dir = place("compared");
    let ran = run(&compare, &dir);
    assert_eq!((ran.code, &ran.json()["verdict"]), (well.code, &well.json()["verdict"]), "{ran:?}");
    assert!(ran.err.contains(&format!("could not be written to {dir}: detectors")), "{ran:?}");
    assert!(ran.err.contains(&format!("could not be written to {dir}/")), "each drill of it: {ran:?}");
}

#[test]
fn a_drill_in_the_simulator_touches_nothing_and_is_judged_and_refused_like_any_other() {
    let run = |name: &str, count: &str| {
        Ran::of(obol().args(["drill", "run", name, "--sim", "--json", "--count", count]))
    };
    let journal = run("app+coordinator+cache", "29").ends(0).json();
    assert_eq!((&journal["verdict"], &journal["host"]["kernel"]), (&"passed".into(), &"simulated".into()));
    assert!(journal["figures_us"]["failover.cue_to_active"]["p90"].as_f64() > Some(0.0), "{journal:#}");
    let again = run("app+coordinator+cache", "29").ends(0).json();
    assert_eq!(journal["trials"], again["trials"]);
    run("multicast-outage", "1").refused(&["the simulator has no multicast-loss"]);
    let root = Root::new();
    let strict = shown("app").replace("p50 = \"5ms\"", "p50 = \"1us\"");
    let path = file(&root, &strict);
    let deviated = run(&path, "5").ends(3).json();
    assert_eq!(deviated["verdict"], "deviated");
}
