//! Processes that stand still for longer than any timeout: they are excluded by their heartbeat,
//! never act in the old view again, and rejoin as new incarnations. The others continue.

use crate::support::{Root, Status, Up, freeze, has_ended, signal, until, until_or};
use obol_checks::skipped;
use obol_profiles::Profile;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

/// Longer than every timeout of the profile `laptop` after which a process acts.
const FREEZE: Duration = Duration::from_secs(1);

/// Whether a coordinator took a notice against this incarnation because it stands still: its
/// heartbeat, or, where a watcher that has just become its neighbour would have to connect to it
/// first, its silence.
fn accused_of_standing(events: &[Value], incarnation: u64) -> bool {
    let still = |e: &Value| e["level"] == "heartbeat" || e["level"] == "timeout";
    events.iter().any(|e| e["event"] == "notice" && still(e) && e["a"] == incarnation)
}

/// The views in which a process noted that it was active or served, since it became this
/// incarnation.
fn acted_since(events: &[Value], name: &str, incarnation: u64) -> Vec<u64> {
    let mine = events.iter().filter(|e| e["process"] == name);
    let since = mine.skip_while(|e| !(e["event"] == "joined" && e["a"] == incarnation));
    let acts = since.filter(|e| e["event"] == "active" || e["event"] == "service");
    acts.filter_map(|e| e["a"].as_u64()).collect()
}

/// The noted views up to that point.
fn acted_before(events: &[Value], name: &str, incarnation: u64) -> Vec<u64> {
    let mine = events.iter().filter(|e| e["process"] == name);
    let before = mine.take_while(|e| !(e["event"] == "joined" && e["a"] == incarnation));
    let acts = before.filter(|e| e["event"] == "active" || e["event"] == "service");
    acts.filter_map(|e| e["a"].as_u64()).collect()
}

/// Freezes a process until the cluster has excluded it; continues it, and waits
/// until it is back. Gives what was seen before, while it slept, and after it was back.
fn sleep_and_wake(root: &Root, up: &Up, name: &str, others: &[&str]) -> [Status; 3] {
    let before = root.healthy();
    freeze(before.pid(name));
    let asleep = root.status();
    // It may have been excluded and have come back between the look and the freeze.
    let was = asleep.incarnation(name).max(before.incarnation(name));
    let accused = || accused_of_standing(&root.events(), was).then_some(());
    until_or("its detectors accuse it", accused, || {
        format!("{name} was {was}\n{:?}\n{:#?}", root.status(), root.events())
    });
    let excluded = root.until("the others go on in a later view", |s| {
        s.view() > asleep.view() && others.iter().all(|other| s.is_active(other))
    });
    std::thread::sleep(FREEZE);
    let during = root.status();
    assert_eq!(during.code, Some(1), "{during:?}");
    assert!(during.reasons().contains(&format!("{name} is frozen (stopped)")), "{during:?}");
    let about = during.advice(&format!("{name} is frozen"));
    let remedy = about["remedy"].as_str().expect("a remedy");
    assert!(remedy.starts_with(&format!("`kill -CONT {}`", before.pid(name))), "{during:?}");
    assert!(about["since"].as_str().is_some_and(|since| since.ends_with('Z')), "{during:?}");
    assert!(!during.is_active(name), "{during:?}");
    let acted = acted_before(&root.events(), name, u64::MAX);
    signal("CONT", &[before.pid(name)]);
    let after = root.healthy();
    assert!(after.incarnation(name) > was, "{name} was {was}: {after:?}");
    assert_eq!(after.pid(name), before.pid(name), "it is the same process");
    // Between waking and joining again it has noted nothing.
    let events = root.events();
    let rejoined = events
        .iter()
        .filter(|e| e["process"] == name && e["event"] == "joined")
        .filter_map(|e| e["a"].as_u64())
        .find(|incarnation| *incarnation > was)
        .expect("it has joined again");
    assert_eq!(acted_before(&events, name, rejoined), acted, "{name} acted in an old view");
    assert!(acted_since(&events, name, rejoined).iter().all(|view| *view > excluded.view()));
    up.until_view("all are members again", |view| view["members"] == before.processes().len());
    [before, during, after]
}

#[test]
fn a_frozen_app_is_excluded_and_comes_back_as_somebody_new() {
    let (root, up) = Root::with_cluster(&[]);
    let [_, during, _] = sleep_and_wake(&root, &up, "app-2", &["app-1", "app-3", "node-2"]);
    assert_eq!(during.process("app-2")["frozen"], true);
}

#[test]
fn a_frozen_agent_is_fenced_and_its_app_goes_with_it_and_both_come_back() {
    let (root, up) = Root::with_cluster(&[]);
    let [before, during, after] =
        sleep_and_wake(&root, &up, "node-2", &["app-1", "app-3", "node-1", "node-3"]);
    let lease = &during.process("node-2")["lease"];
    assert!(lease["fence"].as_u64() > lease["view"].as_u64(), "{lease}");
    assert!(!during.is_active("app-2"), "its lease is the agent's");
    assert!(after.incarnation("app-2") > before.incarnation("app-2"));
    assert_eq!(after.pid("app-2"), before.pid("app-2"), "the app has not been restarted");
}

#[test]
fn a_frozen_leader_is_replaced_and_leads_no_view_when_it_wakes() {
    let (root, up) = Root::with_cluster(&["--apps", "2"]);
    let leader = root.healthy().json["leader"].as_str().expect("there is a leader").to_owned();
    let [_, during, _] = sleep_and_wake(&root, &up, &leader, &["app-1", "app-2"]);
    assert!(during.json["leader"].is_string() && during.json["leader"] != leader, "{during:?}");
}

#[test]
fn a_frozen_follower_is_excluded_and_comes_back() {
    let (root, up) = Root::with_cluster(&["--apps", "2"]);
    sleep_and_wake(&root, &up, "coord-3", &["app-1", "app-2"]);
}

#[test]
fn an_agent_that_sleeps_through_more_views_than_the_ring_has_slots_jumps_to_the_newest() {
    let (root, _up) = Root::with_cluster(&["--apps", "2"]);
    let before = root.healthy();
    let slots = Profile::builtin("laptop").expect("it is built in").limits.slots;
    freeze(before.pid("node-2"));
    // Each death is a view, and each return. The first of them wait in its mailbox, so the ring has
    // to come round twice.
    while root.status().view() <= before.view() + 3 * u64::from(slots) {
        root.run(&["kill", "app-1"]).ends(0);
        root.until("app-1 is out", |s| !s.is_active("app-1"));
        root.run(&["start", "app-1"]).ends(0);
        root.until("app-1 is back", |s| s.is_active("app-1"));
    }
    let missed = root.status().view();
    signal("CONT", &[before.pid("node-2")]);
    let after = root.healthy();
    assert!(after.view() >= missed && after.is_active("app-2"), "{after:?}");
    assert_eq!(after.pid("node-2"), before.pid("node-2"), "it is the same process");
    let jumps = |s: &Status| s.process("node-2")["counters"]["view_jumps"].as_u64().unwrap_or(0);
    assert!(jumps(&after) > jumps(&before), "{after:?}");
}

/// A frozen control group, of version 1 or 2; none where this host lets nobody make one.
pub(crate) struct Freezer(PathBuf);

impl Freezer {
    pub(crate) fn with(pid: i64) -> Option<Self> {
        let name = format!("obol-test-{pid}");
        for (root, file, frozen) in
            [("/sys/fs/cgroup/freezer", "freezer.state", "FROZEN"), ("/sys/fs/cgroup", "cgroup.freeze", "1")]
        {
            let group = Self(PathBuf::from(root).join(&name));
            if fs::create_dir(&group.0).is_ok()
                && fs::write(group.0.join("cgroup.procs"), pid.to_string()).is_ok()
                && fs::write(group.0.join(file), frozen).is_ok()
            {
                return Some(group);
            }
        }
        None
    }

    pub(crate) fn thaw(&self) {
        // One of them is there.
        let _ = fs::write(self.0.join("freezer.state"), "THAWED");
        let _ = fs::write(self.0.join("cgroup.freeze"), "0");
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.thaw();
        let home = self.0.parent().map(|above| above.join("cgroup.procs"));
        let inside = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        for pid in inside.lines() {
            let _ = home.as_ref().map(|home| fs::write(home, pid));
        }
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_frozen_process_that_was_asked_to_stop_ends_when_it_continues() {
    let (root, _up) = Root::with_cluster(&["--apps", "3"]);
    let before = root.healthy();
    let names = ["app-1", "node-2"];
    let pids = names.map(|name| before.pid(name));
    pids.iter().for_each(|pid| freeze(*pid));
    let asked = names.map(|name| {
        let mut command = root.command(&["stop", name]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts")
    });
    for ((asked, name), pid) in asked.into_iter().zip(names).zip(pids) {
        let said = asked.wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&said.stderr);
        let wanted = format!(
            "could not stop {name}: it is frozen; it ends as soon as it continues (`kill -CONT {pid}`)"
        );
        assert!(said.status.code() == Some(1) && text.contains(&wanted), "{text}");
        let status = root.status();
        assert!(status.reasons().contains(&format!("{name} is frozen (stopped)")), "{status:?}");
    }
    signal("CONT", &pids);
    until("both have ended", || pids.iter().all(|pid| has_ended(*pid)));
    // Both are gone by an operator's word; a program without its agent still cannot act.
    let why = "app-2 has no agent and cannot act: node-2 left";
    let after = root.until("only the program is missed", |status| status.reasons() == why);
    assert_eq!(names.map(|name| after.process(name)["left"].as_bool()), [Some(true); 2], "{after:?}");
    for name in names {
        root.run(&["start", name]).ends(0);
    }
    root.healthy();
}

#[test]
fn a_process_in_a_frozen_control_group_is_shown_as_frozen_and_is_not_called_killed() {
    let root = Root::new();
    let _up = root.up(&["--apps", "2"]);
    let pid = root.healthy().pid("node-2");
    let Some(group) = Freezer::with(pid) else {
        return skipped("frozen-control-group", "no control group can be made and frozen");
    };
    let seen =
        root.until("it is removed", |s| s.reasons().contains("node-2 is frozen (stopped) and was removed"));
    assert_eq!(seen.process("node-2")["frozen"], true, "{seen:?}");
    let said = root.run(&["kill", "node-2"]).ends(1).err;
    assert!(said.contains("could not kill node-2") && said.contains("frozen control group"), "{said}");
    group.thaw();
    root.until("now it is dead", |s| s.process("node-2")["alive"] == false);
}
