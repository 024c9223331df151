//! Lease caches as processes: agents renew from them, and do without them.

use crate::support::{Root, Status};

/// Renewals of an agent since it started: those for which a cache vouched, late ones too, and by
/// how much more were on time.
fn renewals(status: &Status, agent: &str) -> (i64, i64) {
    let counter = |name: &str| status.process(agent)["counters"][name].as_i64().unwrap_or(0);
    let cached = counter("renewals_cached");
    (cached, counter("renewals_on_time") - cached)
}

/// Waits until every agent has renewed at least ten times more, and whether by caches or without.
fn renewed_more(root: &Root, before: &Status, cached: bool) -> Status {
    let what = if cached { "agents renew from caches" } else { "agents renew from the acceptors" };
    root.until(what, |now| {
        ["node-1", "node-2"].iter().all(|agent| {
            let ((of_caches, others), (of_caches_now, others_now)) =
                (renewals(before, agent), renewals(now, agent));
            if cached { of_caches_now > of_caches + 10 } else { others_now > others + 10 }
        })
    })
}

#[test]
fn agents_change_their_cache_when_it_dies_and_need_none() {
    let (root, _up) = Root::with_cluster(&["--apps", "2", "--caches", "2"]);
    let status = root.healthy();
    assert_eq!(status.process("cache-2")["kind"], "lease-cache");
    let status = renewed_more(&root, &status, true);
    root.run(&["kill", "cache-1"]).ends(0);
    let status = renewed_more(&root, &status, true);
    root.run(&["kill", "cache-2"]).ends(0);
    let down = renewed_more(&root, &status, false);
    assert!(down.reasons().contains("cache-1, cache-2 down"), "{down:?}");
    assert_eq!(down.code, Some(1));
    root.until("apps go on", |s| s.is_active("app-1") && s.is_active("app-2"));
    for name in ["cache-1", "cache-2"] {
        root.run(&["start", name]).ends(0);
    }
    renewed_more(&root, &root.healthy(), true);
}

#[test]
fn a_frozen_cache_keeps_nobody_from_renewing() {
    let (root, _up) = Root::with_cluster(&["--apps", "2", "--caches", "1"]);
    let status = renewed_more(&root, &root.healthy(), true);
    let pid = status.pid("cache-1");
    crate::support::signal("STOP", &[pid]);
    let status = renewed_more(&root, &status, false);
    crate::support::signal("CONT", &[pid]);
    root.until("the cache comes back", |s| s.is_active("cache-1"));
    renewed_more(&root, &status, true);
}

#[test]
fn too_many_caches_are_refused_by_number() {
    let root = Root::new();
    root.begin(&["--caches", "16", "--apps", "64"]).end().refused(&["app nodes", "limits.value_bytes"]);
    root.is_gone();
}
