//! `obol coordinator`: who decides is changed while apps hold leases.

use crate::support::{Root, Status, signal, until};
use obol_membership::View;
use serde_json::Value;
use std::process::Stdio;

fn acceptors(done: &Value) -> Vec<u64> {
    done["acceptors"].as_array().expect("an array").iter().map(|n| n.as_u64().expect("a number")).collect()
}

fn incarnations(status: &Status) -> Vec<(String, u64)> {
    let apps = ["app-1", "app-2", "node-1", "node-2"];
    apps.iter().map(|name| ((*name).to_owned(), status.incarnation(name))).collect()
}

fn suspected(status: &Status) -> u64 {
    let count = |p: &&Value| p["counters"]["heartbeat_suspicions"].as_u64().unwrap_or(0);
    status.processes().values().map(count).sum()
}

#[test]
fn a_coordinator_keeps_the_newest_view_in_a_file_beside_its_decisions() {
    let root = Root::new();
    let _up = root.up(&["--apps", "1"]);
    root.healthy();
    root.run(&["kill", "coord-2"]).ends(0);
    let path = root.cluster().join("kept.view");
    let file = path.to_str().expect("text");
    let mut run = root.command(&["coordinator", "run", "--number", "2", "--save", file]);
    let mut coordinator = run.stdin(Stdio::null()).spawn().expect("it starts");
    let kept = || std::fs::read(&path).ok().and_then(|bytes| View::unseal(&bytes)).map(|view| view.id.0);
    let view = root.until("it is a member", |s| s.incarnation("coord-2") > 3).view();
    until("the view is kept", || kept() >= Some(view));
    root.run(&["stop", "app-1"]).ends(0);
    let later = root.until("app-1 has left", |s| s.view() > view).view();
    signal("TERM", &[i64::from(coordinator.id())]);
    assert!(coordinator.wait().expect("a child").success());
    assert!(kept() >= Some(later), "whatever was new is kept at the end");
}

#[test]
fn every_coordinator_is_replaced_in_turn_and_nothing_is_lost() {
    let root = Root::new();
    let _up = root.up(&["--apps", "2"]);
    let before = root.healthy();
    let (mut leases, mut suspicions) = (incarnations(&before), suspected(&before));
    let mut expected = vec![1, 2, 3];
    for old in ["1", "2", "3"] {
        let done = root.run(&["coordinator", "replace", old, "--json"]).ends(0).json();
        let new = done["added"].as_u64().expect("a number");
        expected.retain(|n| n.to_string() != old);
        expected.push(new);
        expected.sort_unstable();
        assert_eq!(acceptors(&done), expected, "{done}");
        let after = root.healthy();
        assert!(after.processes().contains_key(format!("coord-{new}").as_str()), "{after:?}");
        assert!(after.is_active("app-1") && after.is_active("app-2"), "{after:?}");
        // A busy machine may suspect a process that got no core; otherwise nobody lost its place.
        if suspected(&after) == suspicions {
            assert_eq!(incarnations(&after), leases);
        }
        (leases, suspicions) = (incarnations(&after), suspected(&after));
    }
    // Nobody is left of those whom the first view names; who comes now finds the others all the same.
    root.run(&["kill", "node-1"]).ends(0);
    root.run(&["start", "node-1"]).ends(0);
    root.healthy();
    root.run(&["kill", "leader"]).ends(0);
    root.until("the others go on", |s| s.code == Some(1) && s.is_active("app-1") && s.is_active("app-2"));
}

#[test]
fn a_dead_coordinator_is_replaced_and_one_that_is_added_makes_it_four() {
    let root = Root::new();
    let _up = root.up(&["--apps", "1"]);
    root.run(&["kill", "coord-2"]).ends(0);
    root.until("it is missed", |s| s.reasons().contains("coord-2 down"));
    let said = root.run(&["coordinator", "replace", "2", "--with", "7"]).ends(0).out;
    assert!(
        said.contains("coord-7 decides from now on; those who do: coord-1, coord-2, coord-3, coord-7"),
        "{said}"
    );
    assert!(said.ends_with("coord-2 decides no more; those who do: coord-1, coord-3, coord-7\n"), "{said}");
    // Nobody waits for the one that was replaced, and no drill either.
    assert!(!root.healthy().processes().contains_key("coord-2"));
    let probes = root.run(&["drill", "probes", "app+coordinator"]);
    assert!(probes.out.contains("all 5 processes run"), "{probes:?}");
    let done = root.run(&["coordinator", "add", "2", "--json"]).ends(0).json();
    assert_eq!((acceptors(&done), &done["removed"]), (vec![1, 2, 3, 7], &Value::Null));
    root.healthy();
    let done = root.run(&["coordinator", "remove", "1", "--json"]).ends(0).json();
    assert_eq!((acceptors(&done), &done["added"]), (vec![2, 3, 7], &Value::Null));
    root.healthy();
}

#[test]
fn what_can_not_be_done_is_refused_before_anything_is_done() {
    let root = Root::new();
    let _up = root.up(&["--coordinators", "2", "--apps", "1"]);
    let coordinator = |arguments: &[&str]| root.run(&[&["coordinator"], arguments].concat());
    coordinator(&["remove", "5"]).refused(&["coordinator 5 decides nothing now", "coord-1, coord-2"]);
    coordinator(&["add", "1"]).refused(&["coordinator 1 decides already"]);
    coordinator(&["add", "8"]).refused(&["there is no coordinator 8", "limits.proposers is 7"]);
    coordinator(&["replace", "6"]).refused(&["coordinator 6 decides nothing now"]);
    root.run(&["kill", "coord-2"]).ends(0);
    root.until("it is missed", |s| s.reasons().contains("majority lost"));
    coordinator(&["remove", "1"]).refused(&["no majority would run", "start coord-2 first"]);
    root.run(&["start", "coord-2"]).ends(0);
    root.healthy();
    assert_eq!(acceptors(&coordinator(&["remove", "2", "--json"]).ends(0).json()), [1]);
    coordinator(&["remove", "1"]).refused(&["the last coordinator can not be removed"]);
}

#[test]
fn after_a_disaster_an_operator_goes_on_from_what_the_agents_know() {
    let root = Root::new();
    let _up = root.up(&["--apps", "2"]);
    let before = root.healthy();
    let recover = |from: &str| root.run(&["coordinator", "recover", "--from", from, "--json"]);
    recover("agents").refused(&["the memory of a majority", "nothing is lost"]);
    // Each coordinator keeps by itself what `watch` can be asked to keep.
    let saved = root.cluster().join("saved");
    let kept = root.saved(3);
    until("the newest view is kept", || {
        root.run(&["watch", "--once", "--save", saved.to_str().expect("text")]).ends(0);
        std::fs::read(&kept).is_ok_and(|bytes| std::fs::read(&saved).is_ok_and(|newest| bytes == newest))
    });
    for name in ["coord-1", "coord-2", "coord-3"] {
        root.run(&["kill", name]).ends(0);
    }
    root.until("all leases end", |s| s.active().is_empty());
    recover("agents").refused(&["the memory of a majority", "`obol start`"]);
    root.run(&["watch", "--once", "--save", saved.to_str().expect("text")]).ends(0);
    // Their memory is lost for good.
    for number in 1..=3 {
        std::fs::remove_file(root.cluster().join(format!("region-{number}"))).expect("it was there");
    }
    recover("/nonexistent").refused(&["/nonexistent"]);
    recover(root.cluster().join("table").to_str().expect("text")).refused(&["holds no view"]);
    let done = recover(saved.to_str().expect("text")).ends(0).json();
    assert_eq!(acceptors(&done), [4, 5, 6], "{done}");
    let after = root.healthy();
    let recovered = root.cluster().join("recovered-view");
    let bytes = std::fs::read(&recovered).expect("it was recovered");
    std::fs::write(&recovered, &bytes[..bytes.len() / 2]).expect("written");
    let said = root.run(&["agent", "--name", "node-3"]).ends(1).err;
    assert!(said.contains("recovered-view: the view that was recovered is damaged"), "{said}");
    std::fs::write(&recovered, &bytes).expect("written");
    assert!(after.is_active("app-1") && after.is_active("app-2"), "{after:?}");
    for name in ["app-1", "app-2", "node-1", "node-2"] {
        if suspected(&after) == suspected(&before) {
            assert_eq!(after.incarnation(name), before.incarnation(name), "{name} lost nothing");
        }
    }
    root.run(&["kill", "app-1"]).ends(0);
    root.run(&["start", "app-1"]).ends(0);
    root.healthy();
}

#[test]
fn a_recovery_that_fails_ends_what_it_began_and_can_be_repeated() {
    let root = Root::new();
    let _up = root.up(&["--apps", "1"]);
    for name in ["coord-1", "coord-2", "coord-3"] {
        root.run(&["kill", name]).ends(0);
    }
    for number in 1..=3 {
        std::fs::remove_file(root.cluster().join(format!("region-{number}"))).expect("it was there");
    }
    // Of three new coordinators two can not have their memory.
    let obstacles = [4, 5].map(|number| root.cluster().join(format!("region-{number}")));
    obstacles.iter().for_each(|path| std::fs::create_dir(path).expect("made"));
    let failed = root.run(&["coordinator", "recover", "--from", "agents"]).ends(1);
    assert!(
        failed.err.contains("coord-4 ended at once: ") || failed.err.contains("coord-5 ended at once: "),
        "{failed:?}"
    );
    assert!(!root.cluster().join("recovered-view").exists(), "it did not succeed: {failed:?}");
    let runs = |command: &String| command.contains("coordinator run");
    assert!(!root.processes().values().any(runs), "{:?}", root.processes());
    obstacles.iter().for_each(|path| std::fs::remove_dir(path).expect("removed"));
    let done = root.run(&["coordinator", "recover", "--from", "agents", "--json"]).ends(0).json();
    // Numbers that were tried count as used: nobody can know what became of their memory.
    assert!(acceptors(&done).iter().all(|n| (6..=7).contains(n)), "{done}");
    let after = root.healthy();
    assert!(after.is_active("app-1"), "{after:?}");
}

#[test]
fn a_recovery_that_nobody_could_carry_out_is_refused_before_anything_is_written() {
    let root = Root::new();
    let up = root.up(&["--coordinators", "1", "--apps", "1"]);
    let kept = root.saved(1);
    until("the view is kept", || kept.exists());
    let saved = root.cluster().join("saved");
    std::fs::copy(&kept, &saved).expect("copied");
    signal("KILL", &[up.pid()]);
    until("nobody runs", || root.processes().is_empty());
    std::fs::remove_file(root.cluster().join("region-1")).expect("it was there");
    let from = saved.to_str().expect("text");
    root.run(&["coordinator", "recover", "--from", from]).refused(&["no `obol up` supervises this cluster"]);
    assert!(!root.cluster().join("recovered-view").exists());
}

#[test]
fn saved_views_outlive_the_memory_of_the_cluster_and_end_with_it() {
    let root = Root::new();
    let up = root.up(&["--coordinators", "1", "--apps", "1"]);
    let kept = root.saved(1);
    let id = |path: &std::path::Path| Some(View::unseal(&std::fs::read(path).ok()?)?.id.0);
    let view = root.status().view();
    until("the view is kept", || id(&kept) >= Some(view));
    // As when the host goes down: no process and no memory is left.
    root.crash();
    drop(up);
    std::fs::remove_dir_all(root.path()).expect("it was there");
    assert!(id(&kept) >= Some(view));
    // The next cluster of the name puts it aside, and takes only its own away when it ends.
    let up = root.up(&["--coordinators", "1", "--apps", "1"]);
    let old = kept.with_extension("view.old");
    assert!(id(&old) >= Some(view), "{old:?}");
    until("the new one's is kept", || kept.exists());
    root.run(&["down"]).ends(0);
    up.end().well();
    assert!(!kept.exists() && old.exists());
    std::fs::remove_file(&old).expect("it was there");
    root.is_gone();
}
