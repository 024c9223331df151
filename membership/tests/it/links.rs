//! Members that cannot all reach each other: one statement per test.

use crate::instant::{Cluster, TIMING};
use obol_fabric::{Evidence, Nanos};
use obol_membership::metrics::Counter;
use obol_membership::wire::Message;
use obol_membership::{ActiveMutant, Change, Reason, Timing};

const EVERY: Nanos = Nanos(250_000);
const TIMEOUT: Nanos = Nanos(1_000_000);
/// From a cut to the view without the excluded member: the silence, the wait for reports, and some
/// periods.
const DECIDED: Nanos = Nanos(3_500_000);

/// Three coordinators (nodes 0 to 2) and the agents after them, joined, with link detection.
fn cluster(agents: usize) -> Cluster {
    let timing = Timing { link_watch: true, link_every: EVERY, link_timeout: TIMEOUT, ..TIMING };
    Cluster::with_timing(3, 3, timing, ActiveMutant::NONE).with_agents(agents)
}

fn cut(cluster: &mut Cluster, a: usize, b: usize) {
    cluster.cuts.extend([(a, b), (b, a)]);
}

/// The nodes named by the view that a node knows.
fn named(cluster: &Cluster, at: usize) -> Vec<usize> {
    let view = cluster.view(at);
    let is_in = |n: &usize| view.members.iter().any(|m| m.address == cluster.nodes[*n].address);
    (0..cluster.nodes.len()).filter(is_in).collect()
}

/// Runs until the first of these nodes names these alone; how long that takes.
fn until_named(cluster: &mut Cluster, wanted: &[usize]) -> Nanos {
    const STEP: Nanos = Nanos::from_micros(50);
    const TRIES: u64 = 400;
    for steps in 0..TRIES {
        if named(cluster, wanted[0]) == wanted {
            return Nanos(steps * STEP.0);
        }
        cluster.run(STEP);
    }
    panic!("{wanted:?} are not alone: {:?}", named(cluster, wanted[0]));
}

/// Runs for this long, in which this node gets no view.
fn unchanged(cluster: &mut Cluster, at: usize, span: Nanos) {
    let view = cluster.view(at).id;
    cluster.run(span);
    assert_eq!(cluster.view(at).id, view, "the membership is unchanged");
}

/// The removals in the newest view that node 0 knows.
fn removals(cluster: &Cluster) -> Vec<Change> {
    let changes = cluster.view(0).changes.iter().copied();
    changes.filter(|change| matches!(change, Change::Failed { .. })).collect()
}

#[test]
fn nobody_goes_while_all_links_work() {
    let mut cluster = cluster(3);
    unchanged(&mut cluster, 0, Nanos::from_millis(50));
    assert!((0..6).all(|at| cluster.counted(at, Counter::LinksLost) == 0));
}

#[test]
fn of_two_disconnected_agents_the_older_one_stays_though_both_reach_the_leader() {
    let mut cluster = cluster(3);
    let [older, younger] = [3, 4].map(|at| cluster.incarnation(at).expect("a member"));
    cut(&mut cluster, 3, 4);
    cluster.run(DECIDED);
    assert_eq!(named(&cluster, 0), [0, 1, 2, 3, 5]);
    let failed = Change::Failed { accused: younger, accuser: older, reason: Reason::Timeout };
    assert_eq!(removals(&cluster), [failed], "one side of the link is removed");
    assert_eq!(cluster.incarnation(3), Some(older));
    assert_eq!(cluster.incarnation(4), None, "it knows");
}

#[test]
fn a_member_cut_off_returns_with_its_link_as_a_new_incarnation() {
    let mut cluster = cluster(3);
    let before = cluster.incarnation(4);
    cut(&mut cluster, 3, 4);
    cluster.run(DECIDED);
    let view = cluster.view(0).id;
    cluster.run(Nanos::from_millis(50));
    assert_eq!(cluster.view(0).id, view, "the membership is unchanged");
    cluster.cuts.clear();
    cluster.run(DECIDED);
    assert_eq!(named(&cluster, 0), [0, 1, 2, 3, 4, 5]);
    assert!(cluster.incarnation(4) > before);
    let newest = cluster.view(0).id;
    assert!((3..6).all(|at| cluster.is_active(at, newest)));
}

#[test]
fn a_link_that_works_one_way_is_none() {
    let mut cluster = cluster(3);
    cluster.cuts.push((3, 4));
    cluster.run(DECIDED);
    assert_eq!(named(&cluster, 0), [0, 1, 2, 3, 5]);
}

/// Keeps the processes of a host from connecting to all others, which reach them.
fn refuse(cluster: &mut Cluster, host: &[usize], others: &[usize]) {
    for &from in host {
        cluster.refused.extend(others.iter().map(|to| (from, *to)));
    }
}

/// Runs a cluster in which `begin` has cut this host off in one direction, which its links find: it goes
/// at once, stays out, and comes back when `end` has ended that.
fn goes_and_comes_back(host: &[usize], begin: impl Fn(&mut Cluster, &[usize]), end: impl Fn(&mut Cluster)) {
    let mut cluster = cluster(3);
    let others: Vec<usize> = (0..6).filter(|at| !host.contains(at)).collect();
    let before = cluster.view(others[0]).id;
    begin(&mut cluster, &others);
    cluster.silence(host, &others);
    let took = until_named(&mut cluster, &others);
    assert!(took <= Nanos(2 * DECIDED.0), "host {host:?}: {took:?}, one that is cut off takes {DECIDED:?}");
    cluster.run(Nanos::from_millis(20));
    assert_eq!(named(&cluster, others[0]), others, "host {host:?}");
    let view = cluster.view(others[0]).id;
    assert!(view.0 <= before.0 + 2, "one view for the leader and one for the agent at most");
    unchanged(&mut cluster, others[0], Nanos::from_millis(200));
    assert!(others.iter().filter(|at| **at > 2).all(|at| cluster.is_active(*at, view)));
    end(&mut cluster);
    cluster.run(Nanos::from_millis(20));
    assert_eq!(named(&cluster, 0), [0, 1, 2, 3, 4, 5], "host {host:?}");
}

/// Over IP, a firewall that blocks outgoing connections, or a key that the processes cannot read.
#[test]
fn who_cannot_connect_is_excluded_though_the_others_can_read_it() {
    // A coordinator and an agent of one host, the first is that of the leader; and an agent alone.
    for host in [&[0, 3][..], &[1, 4], &[2, 5], &[4]] {
        let begin = |cluster: &mut Cluster, others: &[usize]| refuse(cluster, host, others);
        goes_and_comes_back(host, begin, |cluster| cluster.refused.clear());
    }
}

/// The report of a link needs that link, if the member cannot connect to the leader alone.
#[test]
fn who_cannot_connect_to_the_leader_alone_is_excluded() {
    for who in [2, 4] {
        let mut cluster = cluster(3);
        refuse(&mut cluster, &[who], &[0]);
        cluster.run(Nanos::from_millis(20));
        assert!(!named(&cluster, 1).contains(&who) || !named(&cluster, 1).contains(&0), "node {who}");
        unchanged(&mut cluster, 1, Nanos::from_millis(200));
    }
}

/// A coordinator without which nothing is decided cannot connect to agents: they go. They would be
/// admitted again and again, if the leader alone had to reach them.
#[test]
fn who_is_not_reached_by_a_member_that_has_to_stay_goes_once_and_comes_back_when_it_is() {
    let mut cluster = cluster(3);
    cluster.kill(1);
    cluster.run(Nanos::from_millis(20));
    refuse(&mut cluster, &[2], &[3, 4]);
    cluster.run(Nanos::from_millis(30));
    let view = cluster.view(0).id;
    cluster.run(Nanos::from_millis(200));
    assert_eq!((named(&cluster, 0), cluster.view(0).id), (vec![0, 2, 5], view));
    cluster.refused.clear();
    cluster.run(Nanos::from_millis(20));
    assert_eq!(named(&cluster, 0), [0, 2, 3, 4, 5]);
}

/// A death at a host is decided although the leader, on another one, cannot connect to anybody.
#[test]
fn a_leader_that_cannot_connect_does_not_keep_a_dead_member() {
    let mut cluster = cluster(3);
    refuse(&mut cluster, &[0, 3], &[1, 2, 4, 5]);
    cluster.kill(4);
    cluster.run(Nanos::from_millis(20));
    assert_eq!(named(&cluster, 1), [1, 2, 5]);
    assert!(cluster.is_active(5, cluster.view(1).id));
}

/// Over IP, a host whose gateway is gone reaches the others and is not reached by them.
#[test]
fn who_cannot_be_reached_is_excluded_once_and_stays_out_until_it_can_be() {
    // A coordinator and an agent of one host; the first is that of the leader.
    for host in [[0, 3], [1, 4], [2, 5]] {
        let end = |cluster: &mut Cluster| {
            assert!(host.iter().all(|at| cluster.counted(*at, Counter::Exclusions) == 1));
            assert!(!cluster.is_leading(host[0]), "host {host:?}");
            cluster.closed.clear();
        };
        goes_and_comes_back(&host, |cluster, _| cluster.closed = host.to_vec(), end);
    }
}

#[test]
fn a_coordinator_that_cannot_be_reached_leads_not_by_itself_after_a_restart() {
    let mut cluster = cluster(3);
    cluster.kill(1);
    cluster.run(Nanos::from_millis(5));
    let view = cluster.view(0).id;
    cluster.closed = vec![1];
    cluster.restart_coordinator(1);
    cluster.run(Nanos(20 * TIMING.standby.0));
    assert_eq!((cluster.view(0).id, cluster.incarnation(1)), (view, None));
    assert_eq!(cluster.counted(1, Counter::Takeovers), 0);
    cluster.closed.clear();
    cluster.run(Nanos::from_millis(5));
    assert_eq!(named(&cluster, 0), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn deciders_that_all_restart_lead_again_though_one_cannot_be_reached() {
    let mut cluster = cluster(3);
    (0..3).for_each(|at| cluster.kill(at));
    cluster.run(Nanos::from_millis(5));
    cluster.closed = vec![1];
    (0..3).for_each(|at| cluster.restart_coordinator(at));
    cluster.run(Nanos(4 * TIMING.standby.0));
    assert_eq!(named(&cluster, 0), [0, 2, 3, 4, 5]);
    let view = cluster.view(0).id;
    cluster.run(Nanos(20 * TIMING.standby.0));
    assert_eq!(cluster.view(0).id, view);
}

#[test]
fn hosts_that_lost_each_other_in_one_direction_do_not_both_go() {
    let mut cluster = cluster(3);
    let (one, other) = ([1, 4], [2, 5]);
    for (a, b) in one.iter().flat_map(|a| other.iter().map(move |b| (*a, *b))) {
        cluster.cuts.push((b, a));
    }
    cluster.silence(&one, &other);
    cluster.silence(&other, &one);
    cluster.run(Nanos::from_millis(20));
    assert_eq!(named(&cluster, 0), [0, 1, 3, 4]);
    let view = cluster.view(0).id;
    let is_by_member = |change: &Change| match change {
        Change::Failed { accuser, reason, .. } => {
            *reason == Reason::Timeout && cluster.view(0).member(*accuser).is_some()
        }
        _ => false,
    };
    assert!(removals(&cluster).iter().all(is_by_member));
    // Repeated silence, seen by processes that are not members.
    for _ in 0..50 {
        cluster.silence(&one, &other);
        cluster.run(TIMEOUT);
    }
    assert_eq!(cluster.view(0).id, view);
}

#[test]
fn a_member_that_lost_many_links_goes_alone() {
    let mut cluster = cluster(4);
    for other in [4, 5, 6] {
        cut(&mut cluster, 3, other);
    }
    cluster.run(DECIDED);
    assert_eq!(named(&cluster, 0), [0, 1, 2, 4, 5, 6]);
}

#[test]
fn the_leader_stays_and_members_that_lost_it_go() {
    let mut cluster = cluster(3);
    cut(&mut cluster, 0, 5);
    cluster.run(DECIDED);
    assert_eq!(named(&cluster, 0), [0, 1, 2, 3, 4]);
    assert!(cluster.is_leading(0));
}

#[test]
fn a_leader_that_has_raised_fences_decides_the_slot_though_the_reason_is_gone() {
    let mut cluster = cluster(3);
    let before = cluster.newest();
    let aborts = cluster.counted(0, Counter::Aborts);
    // The proposal to exclude node 5 reaches no acceptor, but the fences are raised.
    cut(&mut cluster, 0, 5);
    cluster.lost_swaps = vec![(0, 0), (0, 1), (0, 2)];
    cluster.run(DECIDED);
    assert!(cluster.counted(0, Counter::Aborts) > aborts);
    assert!((3..5).all(|at| cluster.fence(at) == before.next() && !cluster.is_active(at, before)));
    // Node 5 stays.
    cluster.cuts.clear();
    cluster.run(TIMEOUT);
    assert_eq!(cluster.newest(), before);
    cluster.lost_swaps.clear();
    // Its repeated attempts have made its pause between attempts long.
    cluster.run(Nanos::from_millis(200));
    let newest = cluster.newest();
    assert_eq!((newest, named(&cluster, 0).len()), (before.next(), 6));
    assert!((3..6).all(|at| cluster.is_active(at, newest)));
}

#[test]
fn a_leader_that_is_no_member_raises_no_fences_before_the_decision() {
    let mut cluster = cluster(3);
    let before = cluster.newest();
    cluster.nodes[1].frozen = true;
    cluster.nodes[2].frozen = true;
    cluster.kill(0);
    cluster.kill(5);
    // It leads alone, and cannot decide.
    cluster.lost_swaps = vec![(0, 0), (0, 1), (0, 2)];
    cluster.restart_coordinator(0);
    cluster.run(Nanos::from_millis(50));
    assert!(cluster.is_leading(0));
    assert!((3..5).all(|at| cluster.fence(at) <= before));
}

#[test]
fn a_leader_that_lost_a_majority_of_coordinators_is_replaced() {
    let mut cluster = cluster(3);
    for other in [1, 2] {
        cut(&mut cluster, 0, other);
    }
    cluster.run(Nanos::from_millis(10));
    // All agents still reach it.
    assert_eq!(named(&cluster, 1), [1, 2, 3, 4, 5]);
    assert!(cluster.is_leading(1));
    cluster.cuts.clear();
    cluster.run(Nanos::from_millis(20));
    assert_eq!(named(&cluster, 1), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_majority_of_coordinators_stays_though_more_members_lost_one_of_them() {
    let mut cluster = cluster(3);
    cluster.kill(2);
    cluster.run(Nanos::from_millis(5));
    for agent in [3, 4] {
        cut(&mut cluster, 1, agent);
    }
    cluster.run(DECIDED);
    // Without node 1 there would be three members, and none of them could hold a lease.
    assert_eq!(named(&cluster, 0), [0, 1, 5]);
    assert!(cluster.is_active(5, cluster.view(0).id));
}

#[test]
fn a_short_cut_has_no_effect() {
    let mut cluster = cluster(3);
    let view = cluster.view(0).id;
    for _ in 0..5 {
        cut(&mut cluster, 3, 4);
        // A READ of the ring detects it at once.
        cluster.run(Nanos(TIMEOUT.0 * 2 / 5));
        cluster.cuts.clear();
        cluster.run(TIMEOUT);
    }
    assert!((3..5).any(|at| cluster.counted(at, Counter::LinksLost) > 0), "it was seen");
    assert_eq!(cluster.view(0).id, view);
}

#[test]
fn a_minority_suspects_no_links_so_that_all_stay_after_it_heals() {
    let mut cluster = cluster(3);
    let view = cluster.view(0).id;
    for (a, b) in [(0, 1), (0, 2), (1, 2)] {
        cut(&mut cluster, a, b);
    }
    cluster.run(Nanos::from_millis(10));
    assert!(cluster.counted(1, Counter::LinksLost) > 0 && !cluster.is_leading(1));
    cluster.cuts.clear();
    cluster.run(Nanos::from_millis(10));
    assert!(cluster.is_leading(0));
    assert_eq!(cluster.view(0).id, view);
}

/// What its members last reported is outdated then, and is not corrected at once.
#[test]
fn a_network_that_fails_as_a_whole_and_heals_costs_no_member() {
    for phase in 0..40 {
        let mut cluster = cluster(3);
        let view = cluster.view(0).id;
        for (a, b) in (0..6).flat_map(|a| (0..a).map(move |b| (a, b))) {
            cut(&mut cluster, a, b);
        }
        cluster.run(Nanos(10 * TIMEOUT.0 + phase * EVERY.0 / 40));
        assert!((0..6).all(|at| cluster.counted(at, Counter::LinksLost) > 0));
        cluster.cuts.clear();
        cluster.run(Nanos::from_millis(10));
        assert_eq!(cluster.view(0).id, view, "healed in phase {phase}");
        assert!((3..6).all(|at| cluster.is_active(at, view)));
    }
}

/// A link that is still broken when something can be decided again has consequences as any other.
#[test]
fn a_link_that_stays_broken_is_judged_once_the_others_have_healed() {
    let mut cluster = cluster(3);
    for (a, b) in [(0, 1), (0, 2), (1, 2), (3, 4)] {
        cut(&mut cluster, a, b);
    }
    cluster.run(Nanos::from_millis(10));
    cluster.cuts.retain(|(a, b)| *a > 2 && *b > 2);
    cluster.run(DECIDED);
    assert_eq!(named(&cluster, 0), [0, 1, 2, 3, 5]);
}

/// Each host cannot connect to the next one, so no two coordinators reach each other, and each reaches a
/// majority. The leader's announcements do not reach the next host, and that one finds only part of what
/// was decided in the slot.
#[test]
fn a_decision_that_one_of_two_readable_acceptors_has_is_found_by_all() {
    let mut cluster = cluster(4);
    let hosts = [vec![0, 3], vec![1, 4], vec![2, 5]];
    for host in 0..3 {
        refuse(&mut cluster, &hosts[host], &hosts[(host + 1) % 3]);
    }
    cluster.run(Nanos::from_millis(5));
    cluster.kill(6);
    cluster.run(Nanos::from_millis(20));
    assert_eq!(named(&cluster, 0), [0, 1, 2, 3, 4, 5]);
    let newest = cluster.newest();
    assert!((3..6).all(|at| cluster.is_active(at, newest)));
}

/// Nobody can connect to two of three hosts: no two coordinators reach each other, and the leader reaches
/// no majority, while both others reach it.
#[test]
fn a_coordinator_that_reaches_a_majority_stands_in_for_a_leader_that_reaches_none() {
    let mut cluster = cluster(4);
    let hosts = [vec![0, 3, 6], vec![1, 4], vec![2, 5]];
    for (from, to) in [(0, 1), (0, 2), (1, 2), (2, 1)] {
        refuse(&mut cluster, &hosts[from], &hosts[to]);
    }
    let view = cluster.view(0).id;
    cluster.run(Nanos::from_millis(10));
    assert_eq!(cluster.view(1).id, view, "nobody goes for it");
    assert!(cluster.is_leading(1) && !cluster.is_leading(2));
    cluster.kill(6);
    cluster.run(Nanos::from_millis(20));
    let newest = cluster.newest();
    assert_eq!((newest, named(&cluster, 0)), (view.next(), vec![0, 1, 2, 3, 4, 5]));
    assert!([4, 5].iter().all(|at| cluster.is_active(*at, newest)));
    cluster.refused.clear();
    cluster.run(Nanos::from_millis(20));
    assert_eq!(cluster.newest(), newest, "nobody goes afterwards");
    assert!(cluster.is_leading(0) && !cluster.is_leading(1));
    assert!((3..6).all(|at| cluster.is_active(at, newest)));
}

#[test]
fn a_broken_multicast_tree_is_not_taken_for_broken_links() {
    let mut cluster = cluster(3);
    let view = cluster.view(0).id;
    cluster.lose_multicast = true;
    cluster.run(Nanos::from_millis(20));
    assert_eq!(cluster.view(0).id, view);
    assert!((0..6).all(|at| cluster.counted(at, Counter::LinksLost) == 0));
}

#[test]
fn a_member_cut_off_is_waited_for_and_not_considered_dead() {
    let mut cluster = cluster(3);
    for other in 0..6 {
        if other != 5 {
            cut(&mut cluster, 5, other);
        }
    }
    cluster.run(DECIDED);
    assert_eq!(named(&cluster, 0), [0, 1, 2, 3, 4]);
    cluster.run(Nanos::from_millis(2));
    assert_eq!(cluster.counted(0, Counter::ClearedByProof), 0);
    assert_eq!(cluster.counted(0, Counter::ClearedByWait), 1);
}

#[test]
fn a_required_coordinator_is_admitted_though_it_lost_a_member_and_that_member_goes() {
    let mut cluster = cluster(3);
    cluster.kill(0);
    cluster.run(Nanos::from_millis(5));
    cut(&mut cluster, 1, 4);
    // A false notice: one of the coordinators stays, and decides through the memory of one that is
    // not a member.
    cluster.report(cluster.nodes[1].address, Evidence::Suspicion);
    cluster.run(TIMEOUT);
    assert_eq!(cluster.counted(1, Counter::Exclusions), 1);
    cluster.run(Nanos::from_millis(10));
    assert_eq!(named(&cluster, 2), [1, 2, 3, 5], "a process that cannot renew a lease is not a member");
    let view = cluster.view(2).id;
    assert!([3, 5].iter().all(|at| cluster.is_active(*at, view)));
    cluster.run(Nanos::from_millis(50));
    assert_eq!(cluster.view(2).id, view, "the membership is unchanged");
}

#[test]
fn a_leader_that_can_not_decide_waits_without_polling() {
    // Links are judged between two polls of the other detector.
    let link_timeout = Nanos(TIMEOUT.0 + TIMING.heartbeat_period.0 / 4);
    let timing = Timing { link_watch: true, link_every: EVERY, link_timeout, ..TIMING };
    for (lost, dies) in [(1, 2), (2, 1)] {
        for delay in 0..80 {
            let mut cluster = Cluster::with_timing(3, 3, timing, ActiveMutant::NONE);
            cut(&mut cluster, 0, lost);
            cluster.run(Nanos(delay * TIMEOUT.0 / 20));
            // The last required decider is dead, and the link to it is not known to be down yet.
            cluster.kill(dies);
            // Ends if no deadline stays in the past.
            cluster.run(Nanos::from_millis(5));
        }
    }
}

/// What says that its link works again may be lost.
#[test]
fn a_report_that_is_not_repeated_has_no_effect() {
    let mut cluster = cluster(3);
    let view = cluster.view(0).clone();
    let (from, other) =
        (cluster.incarnation(3).expect("a member"), cluster.incarnation(4).expect("a member"));
    let at = view.members.iter().position(|member| member.incarnation == other).expect("a member");
    let mut silent = vec![0u8; view.members.len().div_ceil(8)];
    silent[at / 8] |= 1 << (at % 8);
    cluster.send_to_coordinators(&Message::Links { from, view: view.id, silent: &silent }.encode());
    cluster.run(DECIDED);
    assert_eq!(cluster.view(0).id, view.id);
}
