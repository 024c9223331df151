//! What lease caches do for members and for the leader on a fault-free fabric: one statement per
//! test.

use crate::instant::{Cluster, TIMING};
use obol_fabric::{Address, Nanos};
use obol_membership::metrics::Counter;
use obol_membership::view::{Edit, Newcomer};
use obol_membership::{ActiveMutant, Kind};

/// Three coordinators (nodes 0 to 2), then the agents, then the caches.
fn cluster(agents: usize, caches: usize) -> Cluster {
    let mut cluster = Cluster::new(3, ActiveMutant::NONE);
    for n in 0..agents {
        cluster.add_member(Kind::Agent, &format!("node-{n}"));
    }
    for n in 0..caches {
        cluster.add_member(Kind::LeaseCache, &format!("cache-{n}"));
    }
    cluster.run(Nanos::from_millis(5));
    cluster
}

#[test]
fn agents_renew_from_caches_and_lose_no_lease() {
    let mut cluster = cluster(3, 2);
    let view = cluster.view(0).id;
    let before: Vec<u64> = (3..6).map(|at| cluster.counted(at, Counter::RenewalsOnTime)).collect();
    let cached: Vec<u64> = (3..6).map(|at| cluster.counted(at, Counter::RenewalsCached)).collect();
    cluster.run(Nanos::from_millis(20));
    for at in 3..6 {
        let more = cluster.counted(at, Counter::RenewalsOnTime) - before[at - 3];
        assert!(more > 50);
        assert_eq!(cluster.counted(at, Counter::RenewalsCached) - cached[at - 3], more, "all by caches");
        assert_eq!(cluster.counted(at, Counter::RenewalsLate), 0);
        assert!(cluster.is_active(at, view));
    }
    let vouches = [6, 7].map(|at| cluster.counted(at, Counter::Vouches));
    assert!(vouches.iter().sum::<u64>() > 150, "{vouches:?}");
}

#[test]
fn the_wait_of_the_next_views_counts_the_caches_in() {
    let cluster = cluster(1, 1);
    let view = cluster.view(0);
    assert_eq!(view.reach(), TIMING.lease.saturating_add(TIMING.cache_lease));
    let next = view.successor(
        &Edit { remove: Vec::new(), admit: vec![agent()], lease: None, acceptor: None },
        view.cleared,
        ActiveMutant::NONE,
    );
    assert_eq!(next.wait, view.reach());
}

fn agent() -> Newcomer {
    Newcomer::new(Kind::Agent, obol_fabric::Name::new("late").expect("a name"), Address::region(900), 900)
}

#[test]
fn a_caches_death_changes_no_lease() {
    let mut cluster = cluster(2, 1);
    let (view, base) = (cluster.view(0).id, cluster.view(0).base);
    cluster.kill(5);
    cluster.settle();
    cluster.run(Nanos(1));
    let after = cluster.view(0);
    assert_eq!((after.id, after.base), (view.next(), base));
    assert!((3..5).all(|at| cluster.is_active(at, view.next())), "at once");
    cluster.run(Nanos::from_millis(10));
    assert!((3..5).all(|at| cluster.counted(at, Counter::RenewalsLate) == 0));
}

#[test]
fn a_silent_cache_is_passed_over_before_a_lease_ends() {
    let mut cluster = cluster(2, 2);
    let late = |c: &Cluster| (3..5).map(|at| c.counted(at, Counter::RenewalsLate)).sum::<u64>();
    for cache in [5, 6] {
        cluster.nodes[cache].frozen = true;
        cluster.run(Nanos(TIMING.lease.0 * 3));
        assert_eq!(late(&cluster), 0);
    }
    assert!((3..5).any(|at| cluster.counted(at, Counter::CachesPassed) > 0));
    let view = cluster.view(3).id;
    assert!((3..5).all(|at| cluster.is_active(at, view)));
}

#[test]
fn caches_raise_the_fences_of_many_holders() {
    let mut cluster = cluster(5, 2);
    cluster.run(Nanos::from_millis(10));
    let fenced = cluster.counted(0, Counter::FencesFannedOut);
    let own = cluster.counted(0, Counter::FencesRaised);
    cluster.kill(3);
    cluster.settle();
    let view = cluster.view(0).id;
    assert!((4..8).all(|at| cluster.is_active(at, view)), "no lease was waited for");
    assert_eq!(cluster.counted(0, Counter::FencesFannedOut) - fenced, 4);
    assert_eq!(cluster.counted(0, Counter::FencesRaised), own, "the leader raised none");
}

#[test]
fn the_leader_raises_fences_that_caches_did_not() {
    let mut cluster = cluster(5, 2);
    cluster.run(Nanos::from_millis(10));
    // They still receive, but do nothing any more.
    cluster.nodes[8].frozen = true;
    cluster.nodes[9].frozen = true;
    cluster.kill(3);
    cluster.settle();
    cluster.run(Nanos(TIMING.cache_timeout.0 + 1));
    let view = cluster.view(0).id;
    assert!((4..8).all(|at| cluster.is_active(at, view)), "no lease was waited for");
}

#[test]
fn no_program_is_attached_to_a_cache() {
    let cluster = cluster(1, 1);
    let view = cluster.view(0);
    let cache = view.of_kind(Kind::LeaseCache).next().expect("it joined");
    let app = Newcomer { kind: Kind::App, host: cache.incarnation, ..agent() };
    let next = view.successor(
        &Edit { remove: Vec::new(), admit: vec![app], lease: None, acceptor: None },
        view.cleared,
        ActiveMutant::NONE,
    );
    assert_eq!(next.members.len(), view.members.len(), "under a cache's page it would not be fenced");
}
