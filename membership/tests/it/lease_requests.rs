//! An operator's lease stays: what a coordinator knows of earlier reports of late renewals does not
//! undo it, however much later it leads, and whether or not it got the operator's request.

use crate::instant::{Cluster, TIMING};
use obol_fabric::{Nanos, ViewId};
use obol_membership::wire::Message;
use obol_membership::{ActiveMutant, Timing};

const fn times(n: u64) -> Nanos {
    Nanos(n * TIMING.lease.0)
}

fn adaptive() -> Cluster {
    let timing = Timing { lease_max: times(64), heartbeat_confirm: 20, ..TIMING };
    let mut cluster = Cluster::with_timing(3, 3, timing, ActiveMutant::NONE).with_agents(2);
    cluster.run(Nanos::from_millis(30));
    cluster
}

fn report(lease: Nanos) -> Vec<u8> {
    Message::LeaseTooShort(lease).encode()
}

fn set(cluster: &mut Cluster, at: &[usize], lease: Nanos) {
    for at in at {
        cluster.send_to(*at, &Message::SetLease(lease).encode());
    }
    cluster.run(Nanos::from_millis(1));
    assert_eq!(cluster.view(0).lease, lease, "it is decided");
}

/// The leases of all views of the next leader, after the death of the first, in 200 times the pause
/// after which leases are shortened.
fn leases_after_the_leader(cluster: &mut Cluster) -> Vec<Nanos> {
    cluster.kill(0);
    let mut seen: Vec<(ViewId, Nanos)> = Vec::new();
    for _ in 0..400 {
        cluster.run(Nanos(TIMING.lease_calm.0 / 2));
        let view = cluster.view(1);
        if seen.last().is_none_or(|(id, _)| *id != view.id) {
            seen.push((view.id, view.lease));
        }
    }
    assert!(cluster.is_leading(1));
    let mut leases: Vec<Nanos> = seen.into_iter().map(|(_, lease)| lease).collect();
    leases.dedup();
    leases
}

#[test]
fn an_operators_lease_stays_though_a_follower_got_an_earlier_report() {
    let mut cluster = adaptive();
    cluster.send_to(1, &report(TIMING.lease));
    cluster.run(Nanos::from_millis(1));
    set(&mut cluster, &[0], times(30));
    cluster.run(Nanos(20 * TIMING.lease_calm.0));
    assert_eq!(leases_after_the_leader(&mut cluster), [times(30)]);
}

#[test]
fn an_operators_lease_stays_though_a_follower_missed_the_request() {
    let mut cluster = adaptive();
    cluster.send_to_coordinators(&report(TIMING.lease));
    cluster.run(Nanos::from_millis(1));
    assert_eq!(cluster.view(0).lease, times(2));
    set(&mut cluster, &[0, 2], times(30));
    assert_eq!(leases_after_the_leader(&mut cluster), [times(30)]);
}

#[test]
fn a_report_has_no_effect_long_after_its_cause() {
    let mut cluster = adaptive();
    cluster.send_to(1, &report(TIMING.lease));
    cluster.run(Nanos(20 * TIMING.lease_calm.0));
    assert_eq!(leases_after_the_leader(&mut cluster), [TIMING.lease]);
}

#[test]
fn a_new_leader_goes_on_shortening_a_lease_that_reports_have_lengthened() {
    let mut cluster = adaptive();
    for n in [1, 2, 4] {
        cluster.send_to_coordinators(&report(times(n)));
        cluster.run(Nanos::from_millis(1));
    }
    assert_eq!(cluster.view(0).lease, times(8));
    cluster.run(Nanos(TIMING.lease_calm.0 + TIMING.lease.0));
    assert_eq!(cluster.view(0).lease, times(4), "the first leader has begun");
    assert_eq!(leases_after_the_leader(&mut cluster), [times(4), times(2), times(1)]);
}

#[test]
fn an_operators_lease_that_reports_have_lengthened_is_shortened_down_to_it_and_no_further() {
    let mut cluster = adaptive();
    set(&mut cluster, &[0, 1, 2], times(10));
    cluster.send_to_coordinators(&report(times(10)));
    cluster.run(Nanos::from_millis(1));
    assert_eq!(cluster.view(0).lease, times(20));
    assert_eq!(leases_after_the_leader(&mut cluster), [times(20), times(10)]);
}

#[test]
fn a_report_does_not_replace_an_operators_request_that_is_not_decided_yet() {
    let mut cluster = adaptive();
    cluster.send_to(0, &Message::SetLease(times(30)).encode());
    cluster.send_to(0, &report(TIMING.lease));
    cluster.lost_swaps = vec![(0, 1), (0, 2)];
    cluster.run(Nanos(TIMING.join_every.0));
    assert_eq!(cluster.view(0).lease, TIMING.lease);
    cluster.lost_swaps.clear();
    cluster.run(Nanos::from_millis(5));
    assert_eq!(cluster.view(0).lease, times(30));
}
