//! What the machines do together on a fault-free fabric: one statement per test.

use crate::instant::{Cluster, Happening, TIMING, join};
use obol_fabric::{Address, Evidence, Incarnation, Name, Nanos, SeatRequest, SeatStatus, ViewId};
use obol_membership::consensus::{SlotState, SlotWord};
use obol_membership::holds::Hold;
use obol_membership::metrics::Counter;
use obol_membership::recorder::{EventKind, Record};
use obol_membership::view::{Newcomer, Reason};
use obol_membership::wire::{Message, Refusal};
use obol_membership::{ActiveMutant, Change, Kind, Timing};
use std::sync::atomic::Ordering;

/// Three coordinators (nodes 0 to 2) and the agents after them, joined and active.
fn cluster(agents: usize) -> Cluster {
    Cluster::new(3, ActiveMutant::NONE).with_agents(agents)
}

/// A program takes a seat of an agent and asks to join.
fn ask(cluster: &mut Cluster, agent: usize, seat: u16, token: u64) -> Address {
    cluster.ask(agent, seat, 1, &format!("app-{token}"), token)
}

/// The same, until it is a member.
fn attach(cluster: &mut Cluster, agent: usize, seat: u16, token: u64) -> Address {
    let address = ask(cluster, agent, seat, token);
    cluster.run(Nanos::from_millis(2));
    address
}

/// Two views each time: a program joins and leaves.
fn churn(cluster: &mut Cluster, times: u64) {
    for token in 0..times {
        attach(cluster, 3, 1, 1000 + token);
        cluster.seat(3, 1, SeatRequest::Leave);
        cluster.run(Nanos::from_millis(1));
    }
}

#[test]
fn agents_join_and_hold_leases_on_one_view() {
    let cluster = cluster(3);
    let view = cluster.newest();
    assert_eq!(cluster.view(0).members.len(), 6);
    assert!((3..6).all(|at| cluster.is_active(at, view)));
    assert!(cluster.is_leading(0) && !cluster.is_leading(1) && !cluster.is_leading(2));
}

#[test]
fn leases_are_renewed_in_time_and_nothing_else_happens() {
    let mut cluster = cluster(2);
    let view = cluster.newest();
    cluster.run(Nanos::from_millis(50));
    assert_eq!(cluster.newest(), view);
    for at in 3..5 {
        assert!(cluster.counted(at, Counter::RenewalsOnTime) > 100);
        assert_eq!(cluster.counted(at, Counter::RenewalsLate), 0);
        assert_eq!(cluster.counted(at, Counter::RenewalsFailed), 0);
    }
}

#[test]
fn a_dead_agent_is_removed_and_the_survivors_are_active_at_once() {
    let mut cluster = cluster(3);
    let before = cluster.newest();
    cluster.kill(3);
    cluster.settle();
    let after = cluster.newest();
    assert_eq!(after, before.next());
    assert!(cluster.is_active(4, after) && cluster.is_active(5, after), "no lease was waited for");
    assert!(!cluster.is_active(4, before));
}

#[test]
fn without_fencing_a_failover_takes_the_wait() {
    let timing = Timing { fencing: false, ..TIMING };
    let mut cluster = Cluster::with_timing(3, 3, timing, ActiveMutant::NONE).with_agents(2);
    cluster.run(Nanos::from_millis(30));
    let before = cluster.newest();
    cluster.kill(3);
    cluster.settle();
    let after = cluster.newest();
    assert!(after > before && !cluster.is_active(4, after));
    cluster.run(Nanos(TIMING.lease.0 - 10_000));
    assert!(!cluster.is_active(4, after));
    cluster.run(Nanos(20_000));
    assert!(cluster.is_active(4, after));
}

#[test]
fn an_attached_app_joins_dies_and_returns_as_a_new_incarnation() {
    let mut cluster = cluster(2);
    let app = attach(&mut cluster, 3, 1, 71);
    let first = cluster.view(0).by_token(71).expect("admitted").incarnation;
    assert_eq!(cluster.nodes[3].seats, [(1, SeatStatus::Member(first))]);
    let before = cluster.newest();
    cluster.report(app, Evidence::Suspicion);
    cluster.settle();
    let after = cluster.newest();
    assert_eq!(after, before.next());
    assert!(cluster.view(4).member(first).is_none());
    assert!(cluster.is_active(3, after) && cluster.is_active(4, after), "at once");
    cluster.run(Nanos::from_micros(1));
    assert_eq!(cluster.nodes[3].seats.last(), Some(&(1, SeatStatus::Excluded)));
    attach(&mut cluster, 3, 2, 73);
    let second = cluster.view(0).by_token(73).expect("admitted").incarnation;
    assert!(second > first);
}

#[test]
fn an_app_learns_that_its_join_was_refused_or_waits_for_room() {
    let mut cluster = cluster(1);
    ask(&mut cluster, 3, 1, 71);
    cluster.freeze(0..3);
    let leader = cluster.nodes[0].address;
    let mut refuse = |refusal| {
        let reply = Message::JoinReply { token: 71, outcome: Err(refusal) }.encode();
        cluster.nodes[3].inbox.push_back(Happening::Datagram(leader, reply));
        cluster.run(Nanos(1));
        cluster.nodes[3].seats.clone()
    };
    assert_eq!(refuse(Refusal::Full), [(1, SeatStatus::Full)]);
    let both = [(1, SeatStatus::Full), (1, SeatStatus::Excluded)];
    assert_eq!(refuse(Refusal::Departed), both);
    assert_eq!(refuse(Refusal::Departed), both, "no request is pending");
}

/// As [`cluster`] with two agents, where a name may fail twice in a while.
fn with_join_hold(join_pause: Nanos) -> Cluster {
    let timing = Timing {
        join_burst: 2,
        join_window: Nanos::from_secs(1),
        join_hold: Nanos::from_millis(10),
        join_hold_max: Nanos::from_millis(40),
        join_pause,
        ..TIMING
    };
    Cluster::with_timing(3, 3, timing, ActiveMutant::NONE).with_agents(2)
}

/// A program of that name takes seat 1 of the first agent and asks to join.
fn begin(cluster: &mut Cluster, called: &str, token: u64) -> Address {
    let address = cluster.ask(3, 1, token as u32, called, token);
    cluster.run(Nanos::from_millis(2));
    address
}

fn is_in(cluster: &Cluster, token: u64) -> bool {
    cluster.view(0).by_token(token).is_some()
}

fn dies(cluster: &mut Cluster, program: Address) {
    cluster.end_program(program);
    cluster.run(Nanos::from_millis(1));
}

/// Lets members of one name fail until joins of it are on hold; returns the time of the last
/// failure.
fn crash_three_times(cluster: &mut Cluster) -> obol_fabric::Instant {
    let mut failed = cluster.now;
    for token in 51..=53 {
        let program = begin(cluster, "loop", token);
        assert!(is_in(cluster, token), "join {token} is free");
        failed = cluster.now;
        dies(cluster, program);
        assert!(!is_in(cluster, token));
    }
    failed
}

#[test]
fn a_name_that_fails_again_and_again_waits_before_it_joins_and_others_do_not() {
    let mut cluster = with_join_hold(Nanos::ZERO);
    let failed = crash_three_times(&mut cluster);
    begin(&mut cluster, "loop", 54);
    let Some((1, SeatStatus::OnHold { until })) = cluster.nodes[3].seats.last().copied() else {
        panic!("its status should be that it waits: {:?}", cluster.nodes[3].seats);
    };
    let hold = until.since(failed);
    assert!(hold >= Nanos::from_millis(10) && hold < Nanos::from_millis(12), "{hold}");
    attach(&mut cluster, 4, 1, 71);
    assert!(is_in(&cluster, 71), "another name does not wait");
    cluster.run(Nanos(until.since(cluster.now).0 - 1_000));
    assert!(!is_in(&cluster, 54), "it still waits");
    cluster.run(Nanos::from_millis(2));
    assert!(is_in(&cluster, 54));
    assert_eq!(cluster.counted(0, Counter::JoinHolds), 1);
    assert_eq!((1..3).map(|at| cluster.counted(at, Counter::JoinHolds)).sum::<u64>(), 0, "the leader counts");
    let held = cluster.nodes[0].records.iter().find(|record| record.kind == EventKind::JoinHeld);
    let (failures, _, hold) = Hold::of_word(held.expect("recorded").b);
    assert_eq!((failures, hold), (3, Nanos::from_millis(10)));
}

#[test]
fn a_program_that_dies_while_its_join_is_on_hold_is_not_admitted() {
    let mut cluster = with_join_hold(Nanos::ZERO);
    crash_three_times(&mut cluster);
    let program = begin(&mut cluster, "loop", 54);
    dies(&mut cluster, program);
    let before = cluster.newest();
    cluster.run(Nanos::from_millis(60));
    assert!(!is_in(&cluster, 54));
    assert_eq!(cluster.newest(), before, "no other member was removed");
}

#[test]
fn an_agent_without_a_names_history_learns_its_hold_from_the_leader() {
    let mut cluster = with_join_hold(Nanos::ZERO);
    crash_three_times(&mut cluster);
    let name = Name::new("loop").expect("a name");
    let address = Address { seat: 1, generation: 1, ..cluster.nodes[4].address };
    let host = cluster.incarnation(4).expect("a member");
    let newcomer = Newcomer { host, ..Newcomer::new(Kind::App, name, address, 59) };
    let as_of = cluster.newest();
    cluster.send_to_coordinators(&Message::Join { newcomer, as_of, proved: true }.encode());
    cluster.run(Nanos::from_millis(60));
    assert!(!is_in(&cluster, 59), "a join that is on hold is not kept: its agent asks again");
    cluster.send_to_coordinators(&Message::Join { newcomer, as_of: cluster.newest(), proved: true }.encode());
    // Its agent does not know this program, and has it removed soon.
    cluster.settle();
    assert!(is_in(&cluster, 59));
    // The leader's answer to its agent.
    let mut cluster = with_join_hold(Nanos::ZERO);
    cluster.freeze(0..3);
    ask(&mut cluster, 3, 1, 71);
    let reply = Message::JoinReply { token: 71, outcome: Err(Refusal::OnHold(Nanos(u64::MAX))) }.encode();
    let (leader, asked) = (cluster.nodes[0].address, cluster.now);
    cluster.nodes[3].inbox.push_back(Happening::Datagram(leader, reply));
    cluster.run(Nanos(1));
    let until = asked + cluster.config.timing.join_hold_max;
    assert_eq!(
        cluster.nodes[3].seats.last(),
        Some(&(1, SeatStatus::OnHold { until })),
        "and no longer than that"
    );
}

#[test]
fn quick_graceful_leaves_cause_no_hold_and_a_loop_of_them_does() {
    let mut cluster = with_join_hold(Nanos::ZERO);
    let mut left = cluster.now;
    for token in 51..=59 {
        begin(&mut cluster, "guest", token);
        assert!(is_in(&cluster, token), "join {token} is free");
        assert_eq!(cluster.counted(0, Counter::JoinHolds), 0);
        left = cluster.now;
        cluster.seat(3, 1, SeatRequest::Leave);
        cluster.run(Nanos::from_millis(1));
    }
    assert_eq!(cluster.counted(0, Counter::JoinHolds), 1);
    begin(&mut cluster, "guest", 60);
    let Some((1, SeatStatus::OnHold { until })) = cluster.nodes[3].seats.last().copied() else {
        panic!("its status should be that it waits: {:?}", cluster.nodes[3].seats);
    };
    assert!(until.since(left) >= Nanos::from_millis(10), "{}", until.since(left));
    attach(&mut cluster, 4, 1, 71);
    assert!(is_in(&cluster, 71), "another name does not wait");
    cluster.run(Nanos::from_millis(12));
    assert!(is_in(&cluster, 60));
}

#[test]
fn joins_that_come_together_share_a_view_and_the_first_does_not_wait() {
    let mut cluster = with_join_hold(Nanos::from_millis(4));
    cluster.run(Nanos::from_millis(10));
    let before = cluster.newest();
    let join_at = |cluster: &mut Cluster, at: usize, token: u64| {
        ask(cluster, at, 1, token);
        cluster.run(Nanos(200_000));
    };
    join_at(&mut cluster, 3, 71);
    assert!(is_in(&cluster, 71), "at once");
    join_at(&mut cluster, 4, 72);
    ask(&mut cluster, 4, 2, 73);
    cluster.run(Nanos::from_millis(1));
    assert!(!is_in(&cluster, 72) && !is_in(&cluster, 73), "they wait for each other");
    cluster.run(Nanos::from_millis(4));
    assert!(is_in(&cluster, 72) && is_in(&cluster, 73));
    assert_eq!(cluster.newest().0, before.0 + 2);
}

#[test]
fn an_app_leaves_gracefully() {
    let mut cluster = cluster(1);
    attach(&mut cluster, 3, 1, 71);
    cluster.seat(3, 1, SeatRequest::Leave);
    cluster.run(Nanos::from_millis(2));
    assert!(cluster.view(0).by_token(71).is_none());
    assert_eq!(cluster.nodes[3].seats.last(), Some(&(1, SeatStatus::Left)));
    assert_eq!((cluster.counted(0, Counter::Leaves), cluster.counted(0, Counter::Failures)), (1, 0));
}

/// The requests of an agent to unresponsive coordinators.
fn unanswered_requests(cluster: &mut Cluster) -> Vec<Message<'static>> {
    cluster.freeze(0..3);
    cluster.run(Nanos::from_millis(1));
    let asked = cluster.nodes[0].inbox.iter().filter_map(|happening| match happening {
        Happening::Datagram(_, bytes) => match Message::decode(bytes) {
            Ok(Message::Join { newcomer, as_of, proved }) => Some(Message::Join { newcomer, as_of, proved }),
            Ok(Message::Leave(who)) => Some(Message::Leave(who)),
            _ => None,
        },
        _ => None,
    });
    asked.collect()
}

#[test]
fn a_program_that_takes_its_seat_again_while_it_leaves_leaves_all_the_same() {
    let mut cluster = cluster(1);
    let address = attach(&mut cluster, 3, 1, 71);
    let first = cluster.view(0).by_token(71).expect("admitted").incarnation;
    cluster.seat(3, 1, SeatRequest::Leave);
    cluster.seat(3, 1, join("app-72", 72, address));
    let asked = unanswered_requests(&mut cluster);
    assert!(asked.contains(&Message::Leave(first)), "{asked:?}");
    assert!(asked.iter().any(|m| matches!(m, Message::Join { newcomer, .. } if newcomer.token == 72)));
}

#[test]
fn an_abandoned_member_is_removed_though_its_seat_is_taken_again() {
    let mut cluster = cluster(1);
    let address = ask(&mut cluster, 3, 1, 71);
    cluster.nodes[0].frozen = true;
    cluster.run(Nanos(1));
    cluster.seat(3, 1, SeatRequest::Leave);
    cluster.run(Nanos(1));
    assert_eq!(cluster.nodes[3].seats, [(1, SeatStatus::Left)]);
    cluster.nodes[0].frozen = false;
    cluster.run(Nanos(1));
    let stray = cluster.view(3).by_token(71).expect("admitted").incarnation;
    cluster.seat(3, 1, join("app-72", 72, address));
    let asked = unanswered_requests(&mut cluster);
    assert!(asked.contains(&Message::Leave(stray)), "{asked:?}");
    assert!(asked.iter().any(|m| matches!(m, Message::Join { newcomer, .. } if newcomer.token == 72)));
}

#[test]
fn a_dead_leader_is_replaced_and_no_lease_is_disturbed() {
    let mut cluster = cluster(2);
    let before = cluster.newest();
    cluster.kill(0);
    cluster.settle();
    let after = cluster.newest();
    assert_eq!(after, before.next());
    assert!(cluster.is_leading(1));
    assert_eq!(cluster.view(1).base, before, "a view without other apps is compatible");
    assert!(cluster.is_active(3, after) && cluster.is_active(4, after));
    assert_eq!(cluster.counted(1, Counter::Aborts), 0, "the predecessor's prepared slot was predicted");
}

#[test]
fn leader_and_app_on_one_cue() {
    let mut cluster = cluster(3);
    cluster.kill(0);
    cluster.kill(3);
    cluster.settle();
    let view = cluster.newest();
    assert_eq!(cluster.view(1).members.len(), 4);
    assert!(cluster.is_active(4, view) && cluster.is_active(5, view));
}

#[test]
fn an_agent_that_dies_alone_is_fenced_through_a_program_that_lives_so_nobody_waits_for_its_lease() {
    for first_lives in [true, false] {
        let mut cluster = cluster(2);
        let programs = [1, 2].map(|seat| attach(&mut cluster, 3, seat, 60 + u64::from(seat)));
        let before = cluster.newest();
        if !first_lives {
            // Nobody knows of this death yet.
            cluster.programs.retain(|program| *program != programs[0]);
        }
        cluster.kill(3);
        cluster.run(Nanos(10));
        let after = cluster.newest();
        assert!(cluster.is_active(4, after), "no lease has ended");
        assert!(!cluster.is_active(3, before), "its programs do not act in the old view");
    }
}

#[test]
fn the_lease_of_a_dead_agent_is_waited_for_if_its_page_cannot_be_reached() {
    let mut cluster = cluster(2);
    attach(&mut cluster, 3, 1, 60);
    let before = cluster.newest();
    // Over RDMA, the memory of a dead process does not answer.
    let unreachable = std::mem::take(&mut cluster.programs);
    cluster.kill(3);
    cluster.programs.clear();
    cluster.settle();
    let after = cluster.newest();
    assert!(cluster.is_active(3, before) && !cluster.is_active(4, after), "the program lives");
    cluster.programs = unreachable;
    cluster.run(Nanos::from_millis(5));
    assert!(!cluster.is_active(3, before) && cluster.is_active(4, after));
}

#[test]
fn a_frozen_agent_is_excluded_and_never_acts_in_the_old_view() {
    let mut cluster = cluster(2);
    let before = cluster.newest();
    let old = cluster.incarnation(3).expect("a member");
    cluster.nodes[3].frozen = true;
    cluster.run(Nanos::from_millis(5));
    let after = cluster.newest();
    assert!(cluster.view(4).member(old).is_none());
    assert!(cluster.is_active(4, after));
    assert!(!cluster.is_active(3, before), "its fence was raised while it slept");
    cluster.nodes[3].frozen = false;
    cluster.run(Nanos::from_millis(5));
    let new = cluster.incarnation(3).expect("a member again");
    assert!(new > old);
    assert!(cluster.is_active(3, cluster.newest()));
    assert_eq!(cluster.counted(3, Counter::Exclusions), 1);
}

/// A process that was cut off suspected all others, and reports that once it is reachable.
#[test]
fn reports_of_an_excluded_process_are_ignored() {
    let mut cluster = cluster(2);
    let [old, other] = [3, 4].map(|at| cluster.incarnation(at).expect("a member"));
    cluster.nodes[3].frozen = true;
    cluster.run(Nanos::from_millis(5));
    let view = cluster.newest();
    assert!(cluster.view(4).member(old).is_none());
    let notice = |accuser, evidence| {
        Message::Notice { accuser, accused: other, reason: Reason::Timeout, evidence }.encode()
    };
    cluster.send_to_coordinators(&notice(old, Evidence::Suspicion));
    cluster.run(Nanos::from_millis(5));
    assert_eq!(cluster.newest(), view);
    // Nor is one that never was a member, or is none at present.
    cluster.send_to_coordinators(&notice(Incarnation::NONE, Evidence::Suspicion));
    cluster.run(Nanos::from_millis(5));
    assert_eq!(cluster.newest(), view);
    // A member is believed.
    let member = cluster.incarnation(1).expect("a member");
    cluster.send_to_coordinators(&notice(member, Evidence::Suspicion));
    cluster.run(Nanos::from_millis(1));
    assert!(cluster.view(0).member(other).is_none());
}

#[test]
fn a_proof_of_a_death_counts_from_any_process() {
    let mut cluster = cluster(2);
    let dead = cluster.incarnation(3).expect("a member");
    let notice = Message::Notice {
        accuser: Incarnation::NONE,
        accused: dead,
        reason: Reason::Deadbeat,
        evidence: Evidence::Proof,
    };
    cluster.send_to_coordinators(&notice.encode());
    cluster.run(Nanos::from_millis(1));
    assert!(cluster.view(0).member(dead).is_none());
}

#[test]
fn a_report_about_a_process_that_is_not_a_member_changes_no_view() {
    let mut cluster = cluster(2);
    let (view, accuser) = (cluster.newest(), cluster.incarnation(1).expect("a member"));
    let (accused, reason) = (Incarnation(u64::from(u32::MAX)), Reason::Timeout);
    let notice = Message::Notice { accuser, accused, reason, evidence: Evidence::Suspicion };
    cluster.send_to_coordinators(&notice.encode());
    cluster.run(Nanos::from_millis(5));
    assert_eq!(cluster.newest(), view);
}

/// A late copy of its request: one seat has one occupant, and that is the later one.
#[test]
fn a_join_of_a_process_that_was_outlived_is_ignored() {
    let mut cluster = cluster(2);
    let (view, seat) = (cluster.newest(), cluster.nodes[3].address);
    let earlier = Address { generation: 0, ..seat };
    assert!(seat.generation > earlier.generation);
    let newcomer = Newcomer::new(Kind::Agent, Name::new("node-0").expect("a name"), earlier, 59);
    cluster.send_to_coordinators(&Message::Join { newcomer, as_of: view, proved: true }.encode());
    cluster.run(Nanos::from_millis(5));
    assert_eq!(cluster.newest(), view);
}

/// Links are not watched here, so the silence alone has the member removed.
#[test]
fn a_silent_host_is_not_announced_as_a_death() {
    let mut cluster = cluster(2);
    let silent = cluster.incarnation(3).expect("a member");
    cluster.silence(&[3], &[0, 1, 2]);
    cluster.settle();
    assert!(cluster.view(0).member(silent).is_none());
    let is_of_silent =
        |change: &&Change| matches!(change, Change::Failed { accused, .. } if *accused == silent);
    let changes: Vec<_> = cluster.view(0).changes.iter().filter(is_of_silent).collect();
    assert!(matches!(changes[..], [Change::Failed { reason: Reason::Timeout, .. }]), "{changes:?}");
    assert_eq!(cluster.counted(0, Counter::ClearedByProof), 0);
}

#[test]
fn a_frozen_leader_is_replaced_and_comes_back() {
    let mut cluster = cluster(2);
    cluster.nodes[0].frozen = true;
    cluster.run(Nanos::from_millis(5));
    assert!(cluster.is_leading(1));
    cluster.nodes[0].frozen = false;
    cluster.run(Nanos::from_millis(10));
    assert!(cluster.is_leading(0) && !cluster.is_leading(1));
    assert_eq!(cluster.newest(), cluster.view(4).id);
}

/// The last agent is the leader's predecessor in the ring.
#[test]
fn a_frozen_leader_is_replaced_though_its_watcher_froze_with_it() {
    let mut cluster = cluster(3);
    cluster.freeze([0, 5]);
    cluster.run(Nanos::from_millis(20));
    let after = cluster.newest();
    assert_eq!(cluster.view(1).members.len(), 4);
    assert!(cluster.is_leading(1) || cluster.is_leading(2));
    assert!(cluster.is_active(3, after) && cluster.is_active(4, after));
}

#[test]
fn with_every_multicast_lost_the_cluster_still_converges() {
    let mut cluster = cluster(3);
    cluster.lose_multicast = true;
    let before = cluster.newest();
    cluster.kill(3);
    cluster.run(Nanos::from_millis(10));
    let after = cluster.newest();
    assert!(after > before);
    assert!(cluster.is_active(4, after) && cluster.is_active(5, after));
    cluster.add_member(Kind::App, "late");
    cluster.run(Nanos::from_millis(10));
    assert!(cluster.is_active(6, cluster.newest()));
}

#[test]
fn without_a_majority_all_leases_end_and_restarted_coordinators_go_on() {
    let mut cluster = cluster(2);
    let before = cluster.newest();
    cluster.kill(0);
    cluster.kill(1);
    cluster.run(Nanos::from_millis(5));
    assert!(!cluster.is_active(3, before) && !cluster.is_active(4, before));
    cluster.restart_coordinator(0);
    cluster.restart_coordinator(1);
    cluster.run(Nanos::from_millis(30));
    let after = cluster.newest();
    assert_eq!(cluster.view(2).members.len(), 5);
    assert!(cluster.is_active(3, after) && cluster.is_active(4, after));
}

#[test]
fn a_cluster_whose_coordinators_all_died_goes_on() {
    let mut cluster = cluster(1);
    let before = cluster.newest();
    (0..3).for_each(|at| cluster.kill(at));
    cluster.run(Nanos::from_millis(5));
    (0..3).for_each(|at| cluster.restart_coordinator(at));
    cluster.run(Nanos::from_millis(60));
    let after = cluster.newest();
    assert!(after > before, "slots outlived their processes");
    assert!((0..3).all(|at| cluster.incarnation(at).is_some_and(|who| who.0 > 3)));
    assert!(cluster.is_active(3, after));
}

/// The number of CLEARs sent when all coordinators restart while a program lives that can be
/// neither fenced nor proved dead: half a lease after the start, and two leases after it.
fn clears_after_a_start(mutant: ActiveMutant) -> [u64; 2] {
    let lease = TIMING.standby.saturating_mul(6);
    let mut cluster = Cluster::new(3, mutant);
    for n in 1..=2 {
        cluster.add_member(Kind::Agent, &format!("node-{n}"));
    }
    cluster.send_to_coordinators(&Message::SetLease(lease).encode());
    // Clocks start at zero, which has to be more than a lease ago.
    cluster.run(lease.saturating_mul(2));
    attach(&mut cluster, 3, 1, 1000);
    // As over RDMA, the memory of a dead process does not answer.
    cluster.programs.clear();
    cluster.kill(3);
    cluster.run(Nanos(10_000));
    (0..3).for_each(|at| cluster.kill(at));
    (0..3).for_each(|at| cluster.restart_coordinator(at));
    let clears = |cluster: &Cluster| (0..3).map(|at| cluster.counted(at, Counter::ClearsSent)).sum();
    cluster.run(Nanos(lease.0 / 2));
    assert!((0..3).any(|at| cluster.is_leading(at)), "one of them leads, and waits");
    let early = clears(&cluster);
    cluster.run(lease.saturating_mul(2));
    [early, clears(&cluster)]
}

/// A process that starts knows a view, and not since when it is decided.
#[test]
fn coordinators_that_start_again_wait_for_leases_from_their_start_on() {
    let [early, late] = clears_after_a_start(ActiveMutant::NONE);
    assert!(early == 0 && late > 0, "{early} and {late}");
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_a_view_that_is_taken_for_an_old_one_is_cleared_too_early() {
    assert!(clears_after_a_start(ActiveMutant::new(obol_membership::Mutant::StartLongAgo))[0] > 0);
}

/// Seed 1966 of the campaign: a leader that is not admitted yet asks with the first view that it
/// knew, which is older than the cluster remembers. Nobody else watches its former life.
#[test]
fn coordinators_that_come_back_after_many_views_take_the_place_of_their_former_lives() {
    let mut cluster = cluster(1);
    churn(&mut cluster, 20);
    (0..3).for_each(|at| cluster.kill(at));
    cluster.run(Nanos::from_millis(5));
    (0..2).for_each(|at| cluster.restart_coordinator(at));
    cluster.run(Nanos::from_millis(60));
    let view = cluster.view(0);
    let former = view.of_kind(Kind::Coordinator).filter(|m| m.address.generation == 1);
    assert_eq!(former.count(), 0, "no former incarnation is left: {view:?}");
    assert!((0..2).all(|at| cluster.incarnation(at).is_some_and(|who| view.member(who).is_some())));
    assert!(cluster.is_active(3, cluster.newest()));
}

/// Seed 734 of the campaign. The leader decides with one other acceptor and is lost. The remaining
/// processes missed more views than the ring holds, and find every decision at only one of them.
#[test]
fn decisions_of_a_dead_leader_are_found_by_laggards() {
    let mut cluster = cluster(1);
    churn(&mut cluster, 2);
    let before = cluster.newest();
    cluster.freeze(1..3);
    let slots = cluster.config.layout.limits().slots;
    churn(&mut cluster, u64::from(slots));
    let decided = cluster.newest();
    assert!(decided.0 > before.0 + u64::from(slots));
    cluster.kill(0);
    // No acceptance has reached the third acceptor.
    for slot in 0..slots {
        let word = cluster.slot(2, ViewId(u64::from(slot)));
        let Some(of) = SlotWord::from_raw(word.load(Ordering::Relaxed)).slot(decided) else { continue };
        let state = SlotWord::from_raw(word.load(Ordering::Relaxed)).state(of).expect("of this lap");
        let promised = SlotState { min_proposal: state.min_proposal, ..SlotState::default() };
        word.store(SlotWord::new(of, promised).raw(), Ordering::Relaxed);
    }
    for node in &mut cluster.nodes[1..3] {
        node.inbox.clear();
        node.frozen = false;
    }
    cluster.run(Nanos::from_millis(60));
    let after = cluster.newest();
    assert!(after > decided, "view {after} came after {decided}");
    assert!(cluster.is_active(3, after));
}

#[test]
fn a_laggard_that_fell_out_of_the_ring_jumps_and_says_so() {
    let mut cluster = cluster(1);
    cluster.nodes[2].frozen = true;
    let slots = cluster.config.layout.limits().slots;
    churn(&mut cluster, u64::from(slots));
    let before = cluster.view(2).id;
    assert!(cluster.newest().0 > before.0 + u64::from(slots));
    cluster.nodes[2].inbox.clear();
    cluster.nodes[2].frozen = false;
    cluster.run(Nanos::from_millis(10));
    let after = cluster.newest();
    let jumps = |r: &&Record| r.kind == EventKind::ViewReceived && r.b == 1;
    assert_eq!(cluster.nodes[2].records.iter().filter(jumps).count(), 1);
    assert_eq!((cluster.view(2).id, cluster.counted(2, Counter::ViewJumps)), (after, 1));
    assert!(cluster.is_active(3, after));
}

#[test]
fn a_leader_without_a_majority_uses_up_no_proposal_numbers() {
    let mut cluster = cluster(1);
    let slot = cluster.newest().next();
    cluster.kill(1);
    cluster.kill(2);
    cluster.run(Nanos::from_millis(400));
    let promised = cluster.slot_state(0, slot).expect("of this lap").min_proposal;
    assert!(promised <= 12, "{promised} after {} attempts", cluster.counted(0, Counter::Aborts));
    cluster.restart_coordinator(1);
    cluster.run(Nanos::from_millis(30));
    assert!(cluster.newest() >= slot && cluster.is_active(3, cluster.newest()));
}

#[test]
fn a_leader_that_is_outbid_again_and_again_pauses_longer() {
    let mut cluster = cluster(2);
    let slot = cluster.newest().next();
    let mut bid = 0;
    // A faster rival: for each promise to the leader, it gets a higher one immediately afterwards.
    let mut rival = |cluster: &Cluster| {
        let promised = |at| cluster.slot_state(at, slot).expect("this lap").min_proposal;
        let highest = (0..3).map(promised).max().expect("three");
        if highest > bid {
            bid = highest + 1;
            let outbid = SlotWord::new(slot, SlotState { min_proposal: bid, ..SlotState::default() });
            (0..3).for_each(|at| cluster.slot(at, slot).store(outbid.raw(), Ordering::Relaxed));
        }
    };
    rival(&cluster);
    cluster.kill(3);
    let before = cluster.counted(0, Counter::Aborts);
    let pauses = 50;
    cluster.run_beside(TIMING.backoff_max.saturating_mul(pauses), rival);
    let aborts = cluster.counted(0, Counter::Aborts) - before;
    // With pauses of a constant length, half of the limit on average, there would be a hundred.
    assert!((6..pauses).contains(&aborts), "{aborts} attempts");
    cluster.run(TIMING.backoff_max.saturating_mul(64));
    assert_eq!(cluster.newest(), slot, "it is decided as soon as the rival is gone");
}

#[test]
fn a_later_life_proves_that_the_earlier_one_is_gone() {
    let mut cluster = cluster(2);
    let before = cluster.newest();
    // A join that is too old: it is not admitted itself.
    churn(&mut cluster, 20);
    let old = cluster.incarnation(4).expect("a member");
    let address = Address { generation: cluster.nodes[4].address.generation + 1, ..cluster.nodes[4].address };
    cluster.nodes[4].alive = false;
    let name = Name::new("node-2").expect("a name");
    let newcomer = Newcomer::new(Kind::Agent, name, address, 99);
    cluster.send_to_coordinators(&Message::Join { newcomer, as_of: before, proved: true }.encode());
    cluster.run(Nanos(1));
    assert!(cluster.view(0).member(old).is_none() && cluster.view(0).by_token(99).is_none());
}

#[test]
fn a_long_life_wraps_the_ring_many_times() {
    let mut cluster = cluster(1);
    churn(&mut cluster, 40);
    assert!(cluster.newest().0 > 80);
    assert_eq!(cluster.view(0).members.len(), 4);
}
