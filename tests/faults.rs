//! Deaths that take more than one process, or more than the cluster can bear.

use crate::support::Root;

#[test]
fn without_a_majority_nothing_is_active_and_with_it_all_is_again() {
    let (root, _up) = Root::with_cluster(&[]);
    let before = root.healthy();
    root.run(&["kill", "coord-1"]).ends(0);
    root.run(&["kill", "coord-3"]).ends(0);
    let lost = root.until("all leases have ended", |s| {
        s.reasons().contains("coordinator majority lost: 1 of 3 run") && s.active().is_empty()
    });
    assert_eq!(lost.code, Some(3), "no program may act: {lost:?}");
    assert!(lost.reasons().contains("start coord-1, coord-3"), "{lost:?}");
    // No exclusion is decided.
    root.run(&["kill", "app-2"]).ends(0);
    let said = root.until("app-2 is missed", |s| s.reasons().contains("app-2 down"));
    assert!(said.active().is_empty());
    for name in ["coord-1", "app-2", "coord-3"] {
        root.run(&["start", name]).ends(0);
    }
    let after = root.healthy();
    assert!(after.view() > before.view());
    for name in ["coord-1", "coord-3", "app-2"] {
        assert!(after.incarnation(name) > before.incarnation(name), "{name}");
    }
}

#[test]
fn a_cluster_whose_coordinators_all_died_goes_on_where_they_stopped() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let before = root.healthy();
    let all = ["coord-1", "coord-2", "coord-3"];
    for name in all {
        root.run(&["kill", name]).ends(0);
    }
    root.until("no decisions any more", |s| s.reasons().contains("0 of 3 run") && s.active().is_empty());
    for name in all {
        root.run(&["start", name]).ends(0);
    }
    let after = root.healthy();
    assert!(after.view() > before.view(), "the views are counted on");
    assert_eq!(after.pid("app-1"), before.pid("app-1"));
}

#[test]
fn an_agent_that_dies_takes_its_app_out_and_the_app_attaches_to_its_successor() {
    let (root, up) = Root::with_cluster(&[]);
    let before = root.healthy();
    root.run(&["kill", "node-1"]).ends(0);
    up.until_view("both are removed", |view| view["members"] == 7);
    let without = root.until("the others go on", |s| {
        s.reasons().contains("node-1") && ["app-2", "app-3"].iter().all(|name| s.is_active(name))
    });
    assert!(!without.is_active("app-1") && !without.is_active("node-1"), "{without:?}");
    assert!(without.reasons().contains("node-1"), "{without:?}");
    assert_eq!(without.code, Some(1));
    root.run(&["start", "node-1"]).ends(0);
    let after = root.healthy();
    assert_eq!(after.pid("app-1"), before.pid("app-1"), "the app has lived on");
    for name in ["node-1", "app-1"] {
        assert!(after.incarnation(name) > before.incarnation(name), "{name}");
    }
}

#[test]
fn everything_but_one_coordinator_and_one_node_may_die_in_five() {
    let (root, up) = Root::with_cluster(&["--coordinators", "5", "--apps", "2"]);
    let dead = ["coord-1", "coord-2", "node-2", "app-2"];
    for name in dead {
        root.run(&["kill", name]).ends(0);
    }
    up.until_view("the rest is a cluster", |view| view["members"] == 5);
    root.until("the remaining app stays active", |s| s.is_active("app-1"));
    for name in dead {
        root.run(&["start", name]).ends(0);
    }
    root.healthy();
}
