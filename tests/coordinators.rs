//! `obol coordinator`: who decides is changed while apps hold leases.

use crate::support::{Ran, Root, Status, Up, freeze, obol, signal, until};
use obol_fabric::{Address, Nanos, ViewId};
use obol_membership::View;
use obol_membership::view::coordinator_name;
use obol_node::saved_view;
use serde_json::{Value, json};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::Stdio;

/// The view in a file of `--save`.
fn saved_view(path: &Path) -> Option<View> {
    let file = std::fs::read(path).ok()?;
    View::from_frame(saved_view::open(&file)?.1)
}

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

/// A cluster of two apps that replaces who has been missing for a second.
fn hasty(root: &Root, pause: Nanos) -> Up {
    root.up_with(&["--apps", "2"], |profile| {
        profile.timing.replace_after = Nanos::from_secs(1);
        profile.timing.replace_pause = pause;
    })
}

/// Whether just these decide, and all of them are there.
fn decide(status: &Status, names: &[&str]) -> bool {
    let replacement = &status.json["replacement"];
    replacement["deciders"] == json!(names) && replacement["missing"] == json!([])
}

#[test]
fn a_coordinator_keeps_the_newest_view_in_a_file_beside_its_decisions() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    root.healthy();
    root.run(&["kill", "coord-2"]).ends(0);
    let path = root.cluster().join("kept.view");
    let file = path.to_str().expect("text");
    let mut run = root.command(&["coordinator", "run", "--number", "2", "--save", file]);
    let mut coordinator = run.stdin(Stdio::null()).spawn().expect("it starts");
    let kept = || saved_view(&path).map(|view| view.id.0);
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
    let (root, _up) = Root::with_cluster(&["--apps", "2"]);
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
        // A busy machine may suspect a process that got no core; otherwise none lost its place.
        if suspected(&after) == suspicions {
            assert_eq!(incarnations(&after), leases);
        }
        (leases, suspicions) = (incarnations(&after), suspected(&after));
    }
    // None of the members of the first view is left; a process that joins now finds the others all the
    // same.
    root.run(&["kill", "node-1"]).ends(0);
    root.run(&["start", "node-1"]).ends(0);
    root.healthy();
    root.run(&["kill", "leader"]).ends(0);
    root.until("the others go on", |s| s.code == Some(1) && s.is_active("app-1") && s.is_active("app-2"));
}

#[test]
fn a_dead_coordinator_is_replaced_and_one_that_is_added_makes_it_four() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    root.run(&["kill", "coord-2"]).ends(0);
    root.until("it is missed", |s| s.reasons().contains("coord-2 down"));
    let said = root.run(&["coordinator", "replace", "2", "--with", "7"]).ends(0).out;
    assert!(
        said.contains("coord-7 decides from now on; those who do: coord-1, coord-2, coord-3, coord-7"),
        "{said}"
    );
    assert!(said.ends_with("coord-2 decides no more; those who do: coord-1, coord-3, coord-7\n"), "{said}");
    // Neither a process nor a drill waits for the one that was replaced.
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
fn coordinators_that_fail_one_at_a_time_are_replaced_and_need_nobody() {
    let root = Root::new();
    let pause = Nanos::from_secs(3);
    let up = hasty(&root, pause);
    let before = root.healthy();
    assert_eq!(before.json["replacement"]["on"], true);
    // A frozen one cannot be proved dead, and its memory answers.
    let frozen = before.pid("coord-3");
    freeze(frozen);
    // A status reads the coordinators one after the other: one may have the new view, and the leader's counts
    // be those of before.
    let after = root.until("coord-3 is replaced", |s| {
        decide(s, &["coord-1", "coord-2", "coord-4"]) && s.json["replacement"]["replaced"].as_u64() >= Some(1)
    });
    assert!(after.reasons().contains("coord-3 is frozen"), "{after:?}");
    assert!(after.is_active("app-1") && after.is_active("app-2"), "{after:?}");
    assert_eq!(after.json["replacement"]["last"]["coordinator"], "coord-3");
    let replaced =
        |e: &Value| e["event"] == "spare" && e["name"] == "coord-4" && e["missing"] == json!(["coord-3"]);
    assert!(up.lines().iter().any(replaced), "{:?}", up.lines());
    // The leader as well, and the memory of the frozen one: of the first three one is left.
    root.run(&["kill", "coord-1"]).ends(0);
    signal("KILL", &[frozen]);
    root.until("the others go on", |s| {
        s.view() > after.view() && s.is_active("app-1") && s.is_active("app-2")
    });
    // The lowest number without a process.
    root.until("coord-1 is replaced", |s| decide(s, &["coord-2", "coord-3", "coord-4"]));
    root.healthy();
    let at = |event: &str| -> Vec<u64> {
        let events = root.events().into_iter().filter(|e| e["event"] == event);
        events.map(|e| e["at_ns"].as_u64().expect("a number")).collect()
    };
    let (come, gone) = (at("replacing"), at("replaced"));
    let paused = |at: u64| gone.iter().all(|gone| *gone > at || at - gone >= pause.0);
    assert!(come.iter().all(|at| paused(*at)), "replaced without a pause: {come:?} come, {gone:?} go");
}

#[test]
fn a_coordinator_that_was_replaced_comes_back_as_a_spare() {
    let root = Root::new();
    // As long after the cluster's start nobody is replaced; and as long after that the status names the pause.
    let _up = hasty(&root, Nanos::from_secs(15));
    let frozen = root.healthy().pid("coord-2");
    freeze(frozen);
    root.until("coord-2 is replaced", |s| decide(s, &["coord-1", "coord-3", "coord-4"]));
    signal("CONT", &[frozen]);
    let after = root.healthy();
    assert_eq!(after.pid("coord-2"), frozen);
    assert_eq!(after.json["replacement"]["spares"], json!(["coord-2"]));
    // On a busy machine a lease may just have ended.
    let said = root.run(&["status"]).out;
    assert!(said.contains("coordinators: spare coord-2; coord-2 replaced "), "{said}");
    assert!(said.contains("the next not before "), "{said}");
    let said = root.run(&["events"]).ends(0).out;
    assert!(said.contains("coord-4 is an acceptor from view "), "{said}");
    assert!(said.contains("coord-2 is missing and no acceptor from view "), "{said}");
}

#[test]
fn what_can_not_be_done_is_refused_before_anything_is_done() {
    let (root, _up) = Root::with_cluster(&["--coordinators", "2", "--apps", "1"]);
    let coordinator = |arguments: &[&str]| root.run(&[&["coordinator"], arguments].concat());
    coordinator(&["recover", "--from", "/dev/zero"]).refused(&["/dev/zero: is a device, not a regular file"]);
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
    coordinator(&["remove", "1"]).refused(&["the last coordinator cannot be removed"]);
}

#[test]
fn after_a_disaster_an_operator_goes_on_from_what_the_agents_know() {
    let (root, _up) = Root::with_cluster(&["--apps", "2"]);
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
    // Another cluster's view has a higher number, and other members.
    let other = root.cluster().join("other");
    let file = std::fs::read(&saved).expect("it was saved");
    let (id, view) = saved_view::open(&file).expect("a view");
    std::fs::write(&other, saved_view::encode(id ^ 1, ViewId(4000), view)).expect("written");
    recover(other.to_str().expect("text")).refused(&["holds a view of another cluster"]);
    let done = recover(saved.to_str().expect("text")).ends(0).json();
    assert_eq!(acceptors(&done), [4, 5, 6], "{done}");
    let after = root.healthy();
    assert_eq!(done["retired"], serde_json::json!([1, 2, 3]), "{done}");
    root.run(&["coordinator", "add", "2"]).refused(&["was given up in a recovery", "never decides again"]);
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
fn a_coordinator_whose_memory_is_gone_does_not_start_with_an_empty_one() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let lose = |number: u16| {
        root.run(&["kill", &format!("coord-{number}")]).ends(0);
        std::fs::remove_file(root.cluster().join(format!("region-{number}"))).expect("it was there");
        std::fs::remove_file(root.saved(number)).expect("it was there");
    };
    let kept = |number: u16| root.saved(number).exists();
    until("all keep the view", || (1..=3).all(kept));
    let refuses = |number: u16| {
        let said = root.run(&["start", &format!("coord-{number}")]).ends(1).err;
        let next = format!("`obol coordinator replace {number}`");
        assert!(said.contains("could vote twice, so it does not start") && said.contains(&next), "{said}");
    };
    lose(2);
    refuses(2);
    root.until("it is missed", |s| s.reasons().contains("coord-2 down"));
    let done = root.run(&["coordinator", "replace", "2", "--json"]).ends(0).json();
    assert_eq!(acceptors(&done), [1, 3, 4], "what the refusal says works");
    root.run(&["coordinator", "add", "2"]).refused(&["coordinator 2 has lost its memory"]);
    // Of a majority: two that have forgotten everything must not become one.
    root.run(&["kill", "coord-4"]).ends(0);
    until("the new one keeps it, too", || kept(1) && kept(3));
    lose(1);
    lose(3);
    refuses(1);
    refuses(3);
    let status = root.status();
    assert!(status.reasons().contains("start coord-4; coord-1, coord-3 lost their memory"), "{status:?}");
    let before = root.status().view();
    root.run(&["start", "coord-4"]).ends(0);
    refuses(1);
    assert_eq!(root.status().view(), before, "no coordinator decides");
    let done = root.run(&["coordinator", "recover", "--from", "agents", "--json"]).ends(0).json();
    assert!(acceptors(&done).iter().all(|number| *number > 4), "{done}");
    assert!(root.healthy().is_active("app-1"));
}

#[test]
fn a_recovery_that_fails_ends_what_it_began_and_can_be_repeated() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    for name in ["coord-1", "coord-2", "coord-3"] {
        root.run(&["kill", name]).ends(0);
    }
    for number in 1..=3 {
        std::fs::remove_file(root.cluster().join(format!("region-{number}"))).expect("it was there");
    }
    // Of three new coordinators two cannot have their memory.
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
    // Numbers that were tried count as used: the state of their memory is unknown.
    assert!(acceptors(&done).iter().all(|n| (6..=7).contains(n)), "{done}");
    let after = root.healthy();
    assert!(after.is_active("app-1"), "{after:?}");
}

#[test]
fn a_recovery_leaves_the_numbers_of_spares_that_run_alone() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    root.healthy();
    root.run(&["start", "coord-4"]).ends(0);
    root.until("the spare is a member", |s| {
        s.processes().get("coord-4").is_some_and(|spare| spare["incarnation"].is_u64())
    });
    for number in [1, 2] {
        root.run(&["kill", &format!("coord-{number}")]).ends(0);
        std::fs::remove_file(root.cluster().join(format!("region-{number}"))).expect("it was there");
    }
    let done = root.run(&["coordinator", "recover", "--from", "agents", "--json"]).ends(0).json();
    assert_eq!(acceptors(&done), [5, 6, 7], "{done}");
    let after = root.until("programs act again", |s| s.is_active("app-1"));
    assert!(after.view() >= done["view"].as_u64().expect("a view"), "{after:?}");
}

#[test]
fn a_recovery_that_nobody_could_carry_out_is_refused_before_anything_is_written() {
    let (root, up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    let kept = root.saved(1);
    until("the view is kept", || kept.exists());
    let saved = root.cluster().join("saved");
    std::fs::copy(&kept, &saved).expect("copied");
    signal("KILL", &[up.pid()]);
    until("no process runs", || root.processes().is_empty());
    std::fs::remove_file(root.cluster().join("region-1")).expect("it was there");
    let from = saved.to_str().expect("text");
    root.run(&["coordinator", "recover", "--from", from]).refused(&["no `obol up` supervises this cluster"]);
    assert!(!root.cluster().join("recovered-view").exists());
}

#[test]
fn saved_views_outlive_the_memory_of_the_cluster_and_end_with_it() {
    let (root, up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    let kept = root.saved(1);
    let id = |path: &Path| Some(saved_view(path)?.id.0);
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

#[test]
fn a_coordinator_of_before_the_recovery_ends_and_does_not_start_again() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let kept = root.path().join("region-of-before");
    let region = |number: u32| root.cluster().join(format!("region-{number}"));
    for number in [2, 3] {
        root.run(&["kill", &format!("coord-{number}")]).ends(0);
    }
    // Of one the memory turns up again later.
    std::fs::copy(region(2), &kept).expect("copied");
    [2, 3].iter().for_each(|number| std::fs::remove_file(region(*number)).expect("it was there"));
    let done = root.run(&["coordinator", "recover", "--from", "agents", "--json"]).ends(0).json();
    assert_eq!(acceptors(&done), [4, 5, 6], "{done}");
    let runs = |root: &Root| root.processes().values().any(|command| command.contains("run --number 1 "));
    until("the one that was left has heard of it, and ends", || !runs(&root));
    root.healthy();
    std::fs::rename(&kept, region(2)).expect("it is back");
    for name in ["coord-1", "coord-2"] {
        let said = root.run(&["start", name]).ends(1).err;
        assert!(said.contains("was given up in a recovery") && said.contains("votes no more"), "{said}");
    }
    let after = root.healthy();
    assert!(after.is_active("app-1"), "{after:?}");
    for name in ["coord-1", "coord-2", "coord-3"] {
        assert!(!after.processes().contains_key(name), "{after:?}");
    }
}

/// Three hosts of one cluster on this one, without a process: no device is needed.
struct Hosts<'a> {
    root: &'a Root,
    file: String,
}

impl<'a> Hosts<'a> {
    fn new(root: &'a Root) -> Self {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(root.path()).expect("made");
        let mut text =
            "schema = 1\ncluster = \"default\"\nid = \"00000000000000aa\"\nprofile = \"soft-roce\"\nkeys = \"none\"\n"
                .to_owned();
        for n in 1..=3 {
            text += &format!(
                "[[hosts]]\naddress = \"10.254.0.{n}\"\ncoordinator = {n}\nagents = [\"node-{n}\"]\n"
            );
        }
        let file = root.path().join("cluster.toml");
        std::fs::write(&file, text).expect("written");
        Self { root, file: file.to_str().expect("text").to_owned() }
    }

    fn on(&self, host: u32, arguments: &[&str]) -> Ran {
        let place = self.root.path().join(format!("host-{host}"));
        Ran::of(obol().args(arguments).arg("--root").arg(place))
    }

    fn prepare(&self, host: u32) -> Ran {
        let state = self.root.path().join(format!("state-{host}"));
        let (address, state) = (format!("10.254.0.{host}"), state.to_str().expect("text"));
        self.on(host, &["host", "prepare", &self.file, "--address", &address, "--state", state]).ends(0)
    }

    /// A file with what a host has of the cluster, changed.
    fn found(&self, host: u32, change: impl Fn(&mut Value)) -> String {
        let mut found = self.on(host, &["coordinator", "inspect", "--json"]).ends(0).json();
        change(&mut found);
        let path = self.root.path().join(format!("found-{host}.json"));
        std::fs::write(&path, found.to_string()).expect("written");
        path.to_str().expect("text").to_owned()
    }
}

#[test]
fn a_recovery_over_several_hosts_wants_to_know_of_each() {
    let root = Root::new();
    let hosts = Hosts::new(&root);
    (1..=3).for_each(|host| drop(hosts.prepare(host)));
    // As if all three had voted, and their hosts had been started anew.
    for host in 1..=3 {
        let state = root.path().join(format!("state-{host}"));
        std::fs::create_dir_all(&state).expect("made");
        std::fs::write(state.join(format!("default-00000000000000aa-{host}.voted")), "").expect("written");
        std::fs::remove_dir_all(root.path().join(format!("host-{host}"))).expect("it was there");
        let said = hosts.prepare(host).err;
        assert!(said.contains(&format!("coordinator {host} has voted on this host before")), "{said}");
    }
    let coordinators: Vec<_> =
        (1..=3).map(|n| (coordinator_name(n), Address::region(u32::from(n)))).collect();
    let old = View::genesis(&coordinators, Nanos::from_millis(300), Nanos::from_millis(300));
    let newer = old.successor(&Default::default(), old.cleared, obol_membership::ActiveMutant::NONE);
    let file = root.path().join("saved");
    let found: Value =
        serde_json::from_slice(&std::fs::read(hosts.found(2, |_| ())).expect("it is there")).expect("JSON");
    let id = u64::from_str_radix(found["id"].as_str().expect("text"), 16).expect("an identity");
    std::fs::write(&file, saved_view::encode(id, old.id, &old.to_frame())).expect("written");
    let from = file.to_str().expect("text");
    let recover =
        |arguments: &[&str]| hosts.on(1, &[&["coordinator", "recover", "--from", from], arguments].concat());
    let as_it_is = |_: &mut Value| {};
    let third = hosts.found(3, as_it_is);
    recover(&[]).refused(&["10.254.0.2, 10.254.0.3", "--report", "--lost HOST"]);
    recover(&["--report", &third]).refused(&["what hosts 10.254.0.2 still have is not known"]);
    let shown =
        |view: &View| -> String { view.to_frame().iter().map(|byte| format!("{byte:02x}")).collect() };
    let second = hosts.found(2, |found| {
        found["view"] = newer.id.0.into();
        found["sealed"] = shown(&newer).into();
    });
    recover(&["--report", &second, "--report", &third]).refused(&["holds view 0, but processes know view 1"]);
    let damaged = hosts.found(2, |found| {
        found["view"] = newer.id.0.into();
        found["sealed"] = shown(&newer)[2..].into();
    });
    recover(&["--report", &damaged, "--report", &third]).refused(&["its view is damaged"]);
    let other = hosts.found(2, |found| found["id"] = "00000000000000ab".into());
    recover(&["--report", &other, "--report", &third]).refused(&["with id 00000000000000ab"]);
    let there = hosts.found(2, |found| found["there"] = serde_json::json!([2]));
    recover(&["--report", &there, "--lost", "10.254.0.2"])
        .refused(&["says that the memory of coord-2 is there"]);
    recover(&["--lost", "10.254.0.9"]).refused(&["other hosts are 10.254.0.2, 10.254.0.3"]);
    // No memory and no note, as with a new disk: only the operator can know.
    let nothing = hosts.found(2, |found| found["lost"] = serde_json::json!([]));
    let nothing_either = hosts.found(3, |found| found["lost"] = serde_json::json!([]));
    recover(&["--report", &nothing, "--report", &nothing_either])
        .refused(&["coord-2, coord-3", "give --lost HOST as well"]);
    recover(&["--lost", "10.254.0.2", "--lost", "10.254.0.3", "--longest-lease", "61s"])
        .refused(&["no lease is longer"]);
    for host in 1..=3 {
        assert!(!root.path().join(format!("host-{host}/default/recovered-view")).exists(), "host {host}");
    }
    // With everything known it goes so far as to wait for the new coordinator, and takes all back
    // when it is interrupted.
    let second = hosts.found(2, as_it_is);
    let third = hosts.found(3, as_it_is);
    let place = root.path().join("host-1");
    let mut waiting = obol();
    waiting.args(["coordinator", "recover", "--from", from, "--report", &second, "--report", &third]);
    let mut waiting = waiting.arg("--root").arg(&place).stdin(Stdio::null()).spawn().expect("it starts");
    let recovered = place.join("default/recovered-view");
    let seen = || std::fs::read(&recovered).ok().and_then(|bytes| View::from_frame(&bytes));
    until("the recovered view is there", || seen().is_some());
    let view = seen().expect("it stays while it is waited for");
    let busy = ["another `obol coordinator`", "wait for its end"];
    recover(&["--report", &second, "--report", &third]).refused(&busy);
    hosts.on(1, &["coordinator", "remove", "1"]).refused(&busy);
    assert!(seen().is_some_and(|now| now.acceptors == view.acceptors), "it is that of the first recovery");
    assert_eq!(view.acceptors.iter().map(|a| a.proposer).collect::<Vec<_>>(), [4]);
    assert!(view.retired.iter().eq([1, 2, 3]));
    signal("TERM", &[i64::from(waiting.id())]);
    assert_eq!(waiting.wait().expect("a child").code(), Some(1));
    assert!(!recovered.exists());
}
