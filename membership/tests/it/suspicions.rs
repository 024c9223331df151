//! How long a coordinator believes what it is told without a proof, and what it finds by itself: one
//! statement per test. The leader decides nothing meanwhile, so that a suspicion has no effect before the
//! next one leads.

use crate::instant::{Cluster, TIMING};
use obol_fabric::{Evidence, Incarnation, Nanos};
use obol_membership::ActiveMutant;
use obol_membership::view::Reason;
use obol_membership::wire::Message;

/// Longer than a notice is believed that is not repeated.
const LONG: Nanos = Nanos::from_millis(4);

/// Three coordinators and three agents, nodes 3 to 5. No CAS of the leader reaches another acceptor.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new(3, ActiveMutant::NONE).with_agents(3);
    cluster.lost_swaps = vec![(0, 1), (0, 2)];
    cluster
}

fn members(cluster: &Cluster, nodes: [usize; 3]) -> [Incarnation; 3] {
    nodes.map(|at| cluster.incarnation(at).expect("a member"))
}

/// Tells the second coordinator alone.
fn tell(cluster: &mut Cluster, accuser: Incarnation, accused: Incarnation, reason: Reason) {
    let notice = Message::Notice { accuser, accused, reason, evidence: Evidence::Suspicion };
    cluster.send_to(1, &notice.encode());
}

/// The leader dies, and the next one takes over.
fn take_over(cluster: &mut Cluster) {
    let before = cluster.view(1).id;
    cluster.kill(0);
    cluster.run(Nanos(50_000));
    assert!(cluster.is_leading(1) && cluster.view(1).id > before);
}

#[test]
fn a_suspicion_that_is_not_repeated_removes_nobody_later() {
    let mut cluster = cluster();
    let [accuser, accused, other] = members(&cluster, [3, 4, 5]);
    tell(&mut cluster, accuser, accused, Reason::Heartbeat);
    tell(&mut cluster, accuser, other, Reason::Progress);
    cluster.run(LONG);
    take_over(&mut cluster);
    assert!([accuser, accused, other].iter().all(|who| cluster.view(1).member(*who).is_some()));
}

#[test]
fn a_suspicion_that_is_repeated_holds_though_repetitions_are_lost() {
    let mut cluster = cluster();
    let [accuser, accused, other] = members(&cluster, [3, 4, 5]);
    for _ in 0..4 {
        tell(&mut cluster, accuser, accused, Reason::Heartbeat);
        cluster.run(TIMING.notice_every.saturating_mul(3));
    }
    take_over(&mut cluster);
    assert!(cluster.view(1).member(accused).is_none());
    assert!([accuser, other].iter().all(|who| cluster.view(1).member(*who).is_some()));
}

#[test]
fn a_death_that_a_kernel_reported_is_not_forgotten() {
    let mut cluster = cluster();
    let [accuser, dead, replaced] = members(&cluster, [3, 4, 5]);
    tell(&mut cluster, accuser, dead, Reason::Deadbeat);
    tell(&mut cluster, accuser, replaced, Reason::Replaced);
    // A later suspicion does not take its place.
    tell(&mut cluster, accuser, dead, Reason::Heartbeat);
    cluster.run(LONG);
    take_over(&mut cluster);
    assert!(cluster.view(1).member(accuser).is_some());
    assert!([dead, replaced].iter().all(|who| cluster.view(1).member(*who).is_none()));
}

/// The suspicion ends before the leader can decide. It owes the slot, and proposes it again; its fences are
/// on the way meanwhile, and a second CAS of the same label would be taken for the first.
#[test]
fn a_leader_that_proposes_again_does_not_post_fences_that_are_on_the_way() {
    let mut cluster = cluster();
    // Otherwise it adopts what its own memory has accepted.
    cluster.lost_swaps.push((0, 0));
    cluster.slow_swaps = (3..6).map(|agent| (0, agent, 0)).collect();
    let [accuser, accused, _] = members(&cluster, [3, 4, 5]);
    let (evidence, reason) = (Evidence::Suspicion, Reason::Heartbeat);
    cluster.send_to(0, &Message::Notice { accuser, accused, reason, evidence }.encode());
    cluster.run(LONG);
    let before = cluster.view(0).id;
    cluster.lost_swaps.clear();
    cluster.run(Nanos::from_millis(200));
    assert!(
        cluster.view(0).id > before && cluster.view(0).member(accused).is_some(),
        "it has proposed again"
    );
    assert!(cluster.slow_swaps.iter().all(|slow| slow.2 == 1), "{:?}", cluster.slow_swaps);
}

#[test]
fn a_coordinator_that_ran_again_is_not_removed_later() {
    let mut cluster = cluster();
    let froze = cluster.incarnation(2).expect("a member");
    cluster.nodes[2].frozen = true;
    cluster.run(LONG);
    cluster.nodes[2].frozen = false;
    cluster.run(LONG);
    take_over(&mut cluster);
    assert!(cluster.view(1).member(froze).is_some());
}

#[test]
fn a_coordinator_that_stays_frozen_is_removed_once_the_leader_can_decide() {
    let mut cluster = cluster();
    let frozen = cluster.incarnation(2).expect("a member");
    cluster.nodes[2].frozen = true;
    cluster.run(LONG);
    cluster.lost_swaps.clear();
    // Its repeated attempts have made its pause between attempts long.
    cluster.run(Nanos::from_millis(200));
    assert!(cluster.view(0).member(frozen).is_none());
}

#[test]
fn who_leads_because_of_a_suspicion_steps_aside_when_it_ends() {
    let mut cluster = cluster();
    let [accuser, leader, _] = members(&cluster, [3, 0, 4]);
    cluster.lost_swaps.extend([(1, 0), (1, 2)]);
    tell(&mut cluster, accuser, leader, Reason::Heartbeat);
    cluster.run(Nanos(100_000));
    assert!(cluster.is_leading(0) && cluster.is_leading(1));
    cluster.run(LONG);
    assert!(cluster.is_leading(0) && !cluster.is_leading(1));
    cluster.lost_swaps.clear();
    cluster.run(LONG);
    assert!(cluster.view(0).member(leader).is_some());
}
