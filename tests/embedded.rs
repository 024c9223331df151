//! A program with a core of its own: this test program is a member.

use crate::support::{Root, Status, freeze, has_ended, signal, until, until_or};
use obol_agent::{AttachError, Attached, Embedded, Obstacle};
use obol_fabric::{Incarnation, Name, Nanos};
use obol_node::Site;
use std::sync::Arc;

fn site(root: &Root) -> Arc<Site> {
    let name = Name::new("default").expect("a name");
    Arc::new(Site::open(root.path(), name).expect("the cluster runs"))
}

fn start(root: &Root, name: &str) -> Embedded {
    Embedded::start(site(root), Name::new(name).expect("a name")).expect("it starts")
}

/// Waits until a program is a member and active; returns its incarnation.
fn active(guest: &Embedded) -> Incarnation {
    let mut who = Incarnation::NONE;
    until("the guest is active", || {
        who = guest.incarnation();
        let view = guest.view().filter(|view| view.member(who).is_some());
        view.is_some_and(|view| guest.active(&view) && guest.guard(&view, |_| 7) == Some(7))
    });
    who
}

#[test]
fn an_embedded_program_joins_acts_and_is_removed_when_dropped() {
    let (root, up) = Root::with_cluster(&["--apps", "2"]);
    let guest = start(&root, "guest");
    let first = active(&guest);
    let seen = root.until("the cluster shows the guest", |s| s.is_active("guest"));
    assert_eq!(seen.process("guest")["pid"], std::process::id());
    assert_eq!(seen.process("guest")["kind"], "app");
    assert_eq!(seen.process("guest")["host"], serde_json::Value::Null);
    up.until_view("the guest is the eighth member", |view| view["members"] == 8);
    drop(guest);
    let left = |e: &serde_json::Value| e["event"] == "left" && e["process"] == "guest";
    assert!(root.events().iter().any(left), "it said good-bye");
    up.until_view("the guest is removed", |view| view["members"] == 7);
    let without = root.healthy();
    assert!(!without.is_active("guest"), "{without:?}");
    let guest = start(&root, "guest");
    assert!(active(&guest) > first, "it rejoins as a new incarnation");
}

#[test]
fn an_embedded_program_sees_the_death_of_another_member() {
    let (root, _up) = Root::with_cluster(&["--apps", "2"]);
    let guest = start(&root, "guest");
    active(&guest);
    let who = Incarnation(root.healthy().incarnation("app-2"));
    let mut failures = guest.failures();
    let gone = |guest: &Embedded| {
        let view = guest.view().filter(|view| view.member(who).is_none());
        view.is_some_and(|view| guest.active(&view))
    };
    root.run(&["kill", "app-2"]).ends(0);
    until("a view without app-2 is active", || gone(&guest));
    // A process that got no core for long may have failed before.
    let mut reported = std::iter::from_fn(|| failures.next(Nanos::from_secs(20)).expect("its core runs"));
    let failure = reported.find(|failure| failure.incarnation == who).expect("it is reported");
    assert_eq!(failure.member.expect("known").name.as_str(), "app-2");
}

#[test]
fn a_program_that_breaks_its_promise_of_progress_is_removed_and_comes_back_with_it() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let guest = start(&root, "guest");
    guest.promise_progress(Nanos::from_millis(300));
    let busy = |guest: &Embedded| {
        guest.progress();
        active(guest)
    };
    let first = busy(&guest);
    let reason = |who: Incarnation| {
        let suspected = root.events().into_iter().find(|e| e["event"] == "suspect" && e["a"] == who.0);
        suspected.map(|event| event["level"].clone())
    };
    // Its core lives on, but this thread hangs in here.
    until("it is removed", || guest.view().is_some_and(|view| view.member(first).is_none()));
    assert_eq!(reason(first), Some("progress".into()));
    let mut second = first;
    until("it comes back", || {
        guest.progress();
        second = guest.incarnation();
        second > first
    });
}

#[test]
fn an_attached_program_that_hangs_is_removed_although_its_process_lives() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let [node, name] = ["node-1", "guest"].map(|n| Name::new(n).expect("a name"));
    let guest = Attached::open(&site(&root), node, name).expect("there is a seat");
    guest.promise_progress(Nanos::from_millis(300));
    let first = guest.join(Nanos::from_secs(20)).expect("admitted");
    until("it is removed", || guest.is_excluded());
    assert!(guest.join(Nanos::from_secs(20)).expect("admitted again") > first);
    until("it acts while it makes progress", || {
        guest.progress();
        guest.view().is_some_and(|view| guest.active(&view))
    });
}

#[test]
fn a_program_that_waits_to_be_admitted_beats_and_may_give_up() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let [node, name] = ["node-1", "guest"].map(|n| Name::new(n).expect("a name"));
    let (guest, mut presence) = Attached::open_present(&site(&root), node, name).expect("there is a seat");
    let beats = || {
        let seat = guest.seat().address().seat;
        guest.seat().region().reader().seat(seat).expect("it is taken").heartbeat
    };
    let agent = root.status().process("node-1")["pid"].as_i64().expect("a process");
    freeze(agent);
    let before = beats();
    let refused = guest.join_present(&mut presence, Nanos::from_millis(200), || true);
    assert!(
        matches!(refused, Err(AttachError::NotAdmitted { obstacle: Obstacle::Silence, .. })),
        "{refused:?}"
    );
    assert!(beats() > before + 1, "{} after {before}", beats());
    let wait = Nanos::from_secs(20);
    assert_eq!(guest.join_present(&mut presence, wait, || false).expect("no trouble"), None);
    signal("CONT", &[agent]);
    until("the join is withdrawn", || {
        presence.beat();
        guest.leave(Nanos::from_millis(10)).expect("the agent lives")
    });
    let own = guest.join_present(&mut presence, wait, || true).expect("admitted").expect("wanted");
    assert_eq!(guest.incarnation(), own);
}

#[test]
fn a_program_is_told_that_its_agent_is_no_member() {
    let (root, _up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    for target in ["coord-1", "node-1"] {
        root.run(&["kill", target]).ends(0);
    }
    root.run(&["start", "node-1"]).ends(0);
    let [node, name] = ["node-1", "guest"].map(|n| Name::new(n).expect("a name"));
    let guest = until_or("there is a seat", || Attached::open(&site(&root), node, name).ok(), String::new);
    let refused = guest.join(Nanos::from_millis(100)).expect_err("no coordinator can admit it");
    assert!(
        matches!(refused, AttachError::NotAdmitted { obstacle: Obstacle::AgentIsOut, .. }),
        "{refused:?}"
    );
    assert!(refused.to_string().contains("via node-1, which is not a member itself"), "{refused}");
}

#[test]
fn an_embedded_program_holds_no_lease_without_a_majority() {
    let (root, _up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    let guest = start(&root, "guest");
    active(&guest);
    root.run(&["kill", "coord-1"]).ends(0);
    until("its lease has ended", || guest.view().is_some_and(|view| !guest.active(&view)));
    let lost: Status = root.until("all leases have ended", |s| s.active().is_empty());
    assert_eq!(lost.code, Some(3), "no program may act: {lost:?}");
    root.run(&["start", "coord-1"]).ends(0);
    active(&guest);
}

#[test]
fn an_attached_program_may_not_act_before_it_is_a_member_and_sees_views_in_order() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let [node, name] = ["node-1", "guest"].map(|n| Name::new(n).expect("a name"));
    let guest = Attached::open(&site(&root), node, name).expect("there is a seat");
    let before = guest.view().expect("the agent knows one");
    let wait = Nanos::from_secs(20);
    until("its agent is active", || guest.lease().is_some_and(|lease| lease.view == before.id));
    assert!(!before.is_mine() && !guest.active(&before) && guest.guard(&before, |_| 7).is_none());
    let mut views = guest.views();
    let first = until_or(
        "it is a member",
        || {
            guest.join(wait).expect("admitted");
            views.next(wait).expect("the agent lives").filter(|view| view.is_mine())
        },
        String::new,
    );
    assert!(first.id > before.id);
    assert!(!guest.active(&before), "a view does not become the program's own afterwards");
    root.run(&["kill", "app-1"]).ends(0);
    let mut last = first.id;
    until("a view without app-1", || {
        let view = views.next(wait).expect("the agent lives").expect("a change");
        assert!(view.id > last, "{} after {last}", view.id);
        last = view.id;
        view.members.iter().all(|member| member.name.as_str() != "app-1")
    });
    assert_eq!(guest.leave(wait), Ok(true));
    assert_eq!(guest.incarnation(), Incarnation::NONE);
    assert!(!guest.active(&first));
}

/// The memory of the cluster is in use, so it cannot be made anew beside it.
#[test]
fn an_up_beside_what_outlived_the_last_one_says_what_to_do() {
    let (root, up) = Root::with_cluster(&["--apps", "1"]);
    let guest = start(&root, "guest");
    active(&guest);
    let all: Vec<i64> = root.processes().into_keys().collect();
    signal("KILL", &[up.pid()]);
    until("no process outlives its supervisor", || all.iter().all(|pid| has_ended(*pid)));
    root.run(&["up"]).refused(&["has lost its `obol up`", "`obol down --cluster default`"]);
    drop(guest);
}

#[test]
fn programs_sit_at_agents_only() {
    let root = Root::new();
    let _up = root.up(&["--apps", "1"]);
    for other in ["coord-1", "app-1", "nobody"] {
        let [node, name] = [other, "guest"].map(|n| Name::new(n).expect("a name"));
        let refused = Attached::open(&site(&root), node, name).map(drop).expect_err("no agent").to_string();
        assert!(refused.ends_with("there are: node-1"), "{other}: {refused}");
    }
}
