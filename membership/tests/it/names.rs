//! A name has one member, no matter which processes ask to join under it, and who leads.

use crate::instant::{Cluster, Role, TIMING};
use obol_fabric::{Address, Name, Nanos, SeatRequest, SeatStatus};
use obol_membership::view::Newcomer;
use obol_membership::wire::Message;
use obol_membership::{ActiveMutant, Kind};

const GUEST: &str = "guest";

/// Three coordinators (nodes 0 to 2) and two agents (nodes 3 and 4), as on two hosts.
fn cluster() -> Cluster {
    Cluster::new(3, ActiveMutant::NONE).with_agents(2)
}

fn guest() -> Name {
    Name::new(GUEST).expect("a name")
}

/// A program of that name takes seat 1 of an agent and asks to join.
fn ask(cluster: &mut Cluster, agent: usize, token: u64) -> Address {
    cluster.ask(agent, 1, token as u32, GUEST, token)
}

/// The tokens of the members of that name.
fn guests(cluster: &Cluster, at: usize) -> Vec<u64> {
    cluster.view(at).members.iter().filter(|m| m.name == guest()).map(|m| m.token).collect()
}

#[test]
fn of_two_joins_of_one_name_at_once_the_first_is_admitted_and_the_second_waits() {
    let mut cluster = cluster();
    ask(&mut cluster, 3, 71);
    let second = ask(&mut cluster, 4, 72);
    cluster.run(Nanos::from_millis(2));
    assert_eq!(guests(&cluster, 0), [71]);
    assert!(matches!(cluster.nodes[3].seats[..], [(1, SeatStatus::Member(_))]));
    assert_eq!(cluster.nodes[4].seats.last(), Some(&(1, SeatStatus::NameTaken)));
    let view = cluster.newest();
    cluster.run(TIMING.join_every.saturating_mul(5));
    assert_eq!(cluster.newest(), view, "a join that waits changes no view");
    cluster.seat(3, 1, SeatRequest::Leave);
    cluster.run(TIMING.join_every.saturating_mul(2));
    assert_eq!(guests(&cluster, 0), [72], "the name is free");
    cluster.end_program(second);
    cluster.run(Nanos::from_millis(2));
    assert!(guests(&cluster, 0).is_empty());
}

#[test]
fn who_waits_for_a_name_is_admitted_when_its_member_has_died() {
    let mut cluster = cluster();
    let first = ask(&mut cluster, 3, 71);
    cluster.run(Nanos::from_millis(2));
    ask(&mut cluster, 4, 72);
    cluster.run(Nanos::from_millis(2));
    assert_eq!(guests(&cluster, 0), [71]);
    cluster.end_program(first);
    cluster.run(TIMING.join_every.saturating_mul(2));
    assert_eq!(guests(&cluster, 0), [72]);
}

/// As a program that is started again, or moves to another host.
#[test]
fn a_successor_that_asks_while_its_predecessor_is_suspected_follows_it_without_asking_again() {
    let mut cluster = cluster();
    let first = ask(&mut cluster, 3, 71);
    cluster.run(Nanos::from_millis(2));
    let before = cluster.newest();
    // The leader cannot decide while it reaches no other acceptor.
    cluster.cut_off(0, &[1, 2]);
    cluster.end_program(first);
    cluster.run(Nanos(1_000));
    ask(&mut cluster, 4, 72);
    cluster.run(Nanos(1_000));
    assert_eq!(guests(&cluster, 0), [71]);
    assert!(cluster.nodes[4].seats.is_empty(), "it is not refused");
    cluster.cuts.clear();
    cluster.run(Nanos(TIMING.join_every.0 / 2));
    assert_eq!(guests(&cluster, 0), [72]);
    assert!(cluster.newest() <= before.next().next(), "one view without it, and one with the other");
}

#[test]
fn a_join_of_a_process_that_cannot_be_read_keeps_no_other_of_its_name_out() {
    let mut cluster = cluster();
    let gone = Address { generation: 1, ..Address::region(900) };
    let newcomer = Newcomer::new(Kind::App, guest(), gone, 71);
    let join = Message::Join { newcomer, as_of: cluster.newest(), proved: true }.encode();
    cluster.send_to_coordinators(&join);
    let second = cluster.add_member(Kind::App, GUEST);
    assert_eq!(cluster.incarnation(second), None, "it has asked, or is about to");
    cluster.send_to_coordinators(&join);
    cluster.run(Nanos(TIMING.join_every.0 / 2));
    assert!(cluster.incarnation(second).is_some());
}

#[test]
fn a_new_leader_that_has_heard_of_the_second_only_admits_none_beside_the_first() {
    let mut cluster = cluster();
    let host = cluster.incarnation(4).expect("a member");
    let address = Address { seat: 1, generation: 1, ..cluster.nodes[4].address };
    let newcomer = Newcomer { host, ..Newcomer::new(Kind::App, guest(), address, 72) };
    let join = Message::Join { newcomer, as_of: cluster.newest(), proved: true }.encode();
    cluster.send_to(1, &join);
    cluster.run(Nanos(1_000));
    ask(&mut cluster, 3, 71);
    cluster.run(Nanos::from_millis(2));
    assert_eq!(guests(&cluster, 1), [71]);
    cluster.kill(0);
    cluster.run(Nanos::from_millis(5));
    assert!(cluster.is_leading(1));
    assert_eq!(guests(&cluster, 1), [71]);
    cluster.send_to(1, &join);
    cluster.run(Nanos::from_millis(5));
    assert_eq!(guests(&cluster, 1), [71]);
}

#[test]
fn a_process_with_a_core_of_its_own_knows_why_it_waits_and_is_admitted_later() {
    let mut cluster = cluster();
    let first = cluster.add_member(Kind::App, GUEST);
    let second = cluster.add_member(Kind::App, GUEST);
    let is_name_taken = |cluster: &Cluster, at: usize| match &cluster.nodes[at].role {
        Role::Member(member) => member.is_name_taken(),
        Role::Coordinator(_) => false,
    };
    cluster.run(Nanos::from_millis(5));
    assert!(cluster.incarnation(first).is_some() && cluster.incarnation(second).is_none());
    assert!(is_name_taken(&cluster, second) && !is_name_taken(&cluster, first));
    cluster.kill(first);
    cluster.run(TIMING.join_every.saturating_mul(3));
    assert!(cluster.incarnation(second).is_some() && !is_name_taken(&cluster, second));
}
