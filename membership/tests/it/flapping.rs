//! Processes that are suspected again and again, because their link or they themselves come and go: one
//! statement per test.

use crate::instant::{Cluster, TIMING};
use obol_fabric::{Nanos, SeatStatus};
use obol_membership::holds::SUSPICIONS_FREE;
use obol_membership::metrics::Counter;
use obol_membership::{ActiveMutant, Timing};

const FIRST: Nanos = Nanos::from_millis(10);
const LONGEST: Nanos = Nanos::from_millis(80);
/// Longer than it takes to be excluded, and to join again.
const STEP: Nanos = Nanos::from_millis(4);
/// How often the tests look.
const LOOK: Nanos = Nanos(100_000);

/// Three coordinators (nodes 0 to 2) and three agents, with holds.
fn cluster(link_watch: bool) -> Cluster {
    cluster_with(link_watch, TIMING.standby)
}

fn cluster_with(link_watch: bool, standby: Nanos) -> Cluster {
    let timing = Timing {
        standby,
        link_watch,
        link_every: Nanos(250_000),
        link_timeout: Nanos(1_000_000),
        join_burst: 40,
        join_window: Nanos::from_secs(1),
        join_hold: FIRST,
        join_hold_max: LONGEST,
        ..TIMING
    };
    Cluster::with_timing(3, 3, timing, ActiveMutant::NONE).with_agents(3)
}

/// Whether the newest view that node 1 knows has this node.
fn is_in(cluster: &Cluster, node: usize) -> bool {
    cluster.view(1).members.iter().any(|m| m.address == cluster.nodes[node].address)
}

/// Runs until a node is a member, or is not; the time that it took, at most `most`.
fn until(cluster: &mut Cluster, node: usize, inside: bool, most: Nanos) -> Nanos {
    let began = cluster.now;
    while is_in(cluster, node) != inside {
        assert!(cluster.now.since(began) < most, "node {node} should be a member: {inside}");
        cluster.run(LOOK);
    }
    cluster.now.since(began)
}

/// Cuts a node off, or freezes it, until it is excluded, and ends that; how long it then stays out.
fn flap(cluster: &mut Cluster, node: usize) -> Nanos {
    if cluster.config.timing.link_watch {
        let others: Vec<usize> = (0..6).filter(|other| *other != node).collect();
        cluster.cut_off(node, &others);
    } else {
        cluster.nodes[node].frozen = true;
    }
    until(cluster, node, false, Nanos::from_millis(20));
    let excluded = cluster.now;
    cluster.cuts.clear();
    cluster.nodes[node].frozen = false;
    until(cluster, node, true, Nanos(LONGEST.0 + STEP.0));
    cluster.now.since(excluded)
}

#[test]
fn whoever_is_suspected_again_and_again_is_kept_out_longer_each_time_up_to_a_bound() {
    // An agent and the leader, by their links and by their heartbeats.
    for (node, link_watch) in [(4, true), (0, true), (4, false), (0, false)] {
        let mut cluster = cluster(link_watch);
        let out: Vec<Nanos> = (0..SUSPICIONS_FREE + 6).map(|_| flap(&mut cluster, node)).collect();
        let (free, held) = out.split_at(SUSPICIONS_FREE as usize);
        assert!(free.iter().all(|out| *out < FIRST), "the first are free: {out:?}");
        let mut hold = FIRST;
        for out in held {
            assert!(
                *out >= Nanos(hold.0 - LOOK.0) && *out <= Nanos(hold.0 + STEP.0),
                "{out} for {hold}: {held:?}"
            );
            hold = Nanos(2 * hold.0).min(LONGEST);
        }
        let counted: u64 = (0..3).map(|at| cluster.counted(at, Counter::JoinHolds)).sum();
        assert!(counted >= 5, "{counted} are counted");
        let shown = cluster.nodes[node]
            .seats
            .iter()
            .any(|(seat, status)| *seat == 0 && matches!(status, SeatStatus::OnHold { .. }));
        assert!(shown, "it is shown");
    }
}

#[test]
fn after_a_quiet_time_the_first_suspicions_are_free_again() {
    let mut cluster = cluster(true);
    (0..SUSPICIONS_FREE + 3).for_each(|_| _ = flap(&mut cluster, 4));
    cluster.run(Nanos(LONGEST.0 * u64::from(SUSPICIONS_FREE + 2)));
    assert!(flap(&mut cluster, 4) < FIRST);
}

#[test]
fn a_link_that_fails_every_few_moments_makes_few_views() {
    let mut cluster = cluster(true);
    let before = cluster.newest();
    // Alone, each of these would be two views.
    for _ in 0..100 {
        cluster.cut_off(4, &[0, 1, 2, 3, 5]);
        cluster.run(STEP);
        cluster.cuts.clear();
        cluster.run(STEP);
    }
    let views = cluster.newest().0 - before.0;
    let bound =
        u64::from(SUSPICIONS_FREE) + 2 + u64::from((LONGEST.0 / FIRST.0).ilog2()) + 800_000_000 / LONGEST.0;
    assert!(views <= 2 * bound, "{views} views, {bound} exclusions are allowed");
    until(&mut cluster, 4, true, Nanos(LONGEST.0 + STEP.0));
}

#[test]
fn a_coordinator_on_hold_does_not_lead_by_itself() {
    // It asks again each `join_every`, which may be longer than it stands by.
    for standby in [TIMING.standby, Nanos(TIMING.join_every.0 / 2)] {
        let mut cluster = cluster_with(false, standby);
        (0..SUSPICIONS_FREE + 4).for_each(|_| _ = flap(&mut cluster, 0));
        cluster.nodes[0].frozen = true;
        until(&mut cluster, 0, false, Nanos::from_millis(20));
        cluster.nodes[0].frozen = false;
        let began = cluster.now;
        // It learns that it was excluded.
        cluster.run(STEP);
        while !is_in(&cluster, 0) {
            assert!(!cluster.is_leading(0), "after {}", cluster.now.since(began));
            cluster.run(LOOK);
        }
        let waited = cluster.now.since(began);
        assert!(waited > Nanos(2 * TIMING.standby.0), "it waited for longer than it stands by");
    }
}

#[test]
fn a_coordinator_on_hold_is_admitted_at_once_if_the_leader_needs_it() {
    let mut cluster = cluster(true);
    (0..SUSPICIONS_FREE + 5).for_each(|_| _ = flap(&mut cluster, 2));
    cluster.cut_off(2, &[0, 1, 3, 4, 5]);
    until(&mut cluster, 2, false, Nanos::from_millis(20));
    cluster.cuts.clear();
    cluster.run(STEP);
    assert!(!is_in(&cluster, 2), "it is on hold");
    cluster.kill(0);
    let waited = until(&mut cluster, 2, true, Nanos::from_millis(20));
    assert!(waited < Nanos(LONGEST.0 / 4), "{waited}");
    let view = cluster.view(1).id;
    cluster.run(STEP);
    assert!((3..6).all(|at| cluster.is_active(at, view)));
}
