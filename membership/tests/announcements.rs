//! Announcements between a recovered cluster and those that it has given up, in the form of a step, which
//! the receiver cannot apply. The two sides must find each other by the first one.

mod common;

use common::{LIMITS, Noted, Post};
use obol_fabric::{Address, Event, Instant, Layout, Limits, Machine, Name, Nanos, ViewId};
use obol_membership::timing::Timing;
use obol_membership::view::{Acceptor, Change, Edit, Reason, coordinator_name};
use obol_membership::wire::{self, Message};
use obol_membership::{ActiveMutant, Config, Kind, Start, View};
use std::sync::Arc;

const NEW: u16 = 4;
const LEASE: Nanos = Nanos::from_millis(20);
/// Whoever announces.
const SENDER: Address = Address::region(6);

fn config() -> Config {
    let limits = Limits { proposers: 7, value_bytes: 2048, datagram_bytes: 2048, ..LIMITS };
    let timing = Timing { lease: LEASE, lease_max: LEASE, cache_lease: LEASE, ..Timing::default() };
    let layout = Layout::new(limits).expect("these limits are in bounds");
    Config { release: obol_fabric::Release::THIS, timing, layout, mutant: ActiveMutant::NONE }
}

fn genesis() -> Arc<View> {
    let seat = |n: u16| (coordinator_name(n), Address { generation: 1, ..Address::region(u32::from(n)) });
    Arc::new(View::genesis(&[seat(1), seat(2), seat(3)], LEASE, LEASE))
}

/// The cluster without the memory of its coordinators.
fn recovered() -> View {
    let new = Acceptor { proposer: NEW, address: Address::region(u32::from(NEW)) };
    genesis().recovered(vec![new], LEASE)
}

/// The announcement of a view after this one.
fn step(before: &View, edit: &Edit) -> Vec<u8> {
    let next = before.successor(edit, ViewId::GENESIS, ActiveMutant::NONE);
    let step = wire::encode_step(before, &next, &next.to_frame());
    Message::Step { id: next.id, cleared: ViewId::GENESIS, step: &step }.encode()
}

/// What a machine posts and sends when it gets an announcement.
fn after(machine: &mut impl Machine, bytes: &[u8]) -> Noted {
    let (now, mut fabric) = (Instant(1_000_000), Noted::default());
    machine.start(now, &mut fabric);
    fabric = Noted::default();
    machine.handle(now, Event::Datagram { from: SENDER, bytes }, &mut fabric);
    fabric
}

/// The regions that are READ.
fn read(noted: &Noted) -> Vec<u32> {
    let regions = noted.posts.iter().filter_map(|(post, _)| match post {
        Post::Read { from, .. } => Some(from.at.region),
        Post::Write { .. } | Post::Cas { .. } => None,
    });
    regions.collect()
}

#[test]
fn retired_coordinators_that_announce_a_step_are_informed() {
    let genesis = genesis();
    let mut recovered = Start::new(config(), &genesis, [recovered()], 1).coordinator(NEW);
    let failed = genesis.members.iter().find(|member| member.proposer == 3).expect("a coordinator");
    let (accused, accuser, reason) = (failed.incarnation, failed.incarnation, Reason::Timeout);
    let edit = Edit { remove: vec![Change::Failed { accused, accuser, reason }], ..Edit::default() };
    let noted = after(&mut recovered, &step(&genesis, &edit));
    let informed = noted.sent.iter().filter(|(to, _)| *to == SENDER);
    let informed: Vec<_> = informed.map(|(_, bytes)| Message::decode(bytes)).collect();
    assert!(matches!(informed[..], [Ok(Message::Deciders { .. })]), "{informed:?}");
}

#[test]
fn a_step_of_the_recovered_cluster_leads_to_those_who_decide_there() {
    let genesis = genesis();
    let edit = Edit { lease: Some(Nanos(LEASE.0 / 2)), ..Edit::default() };
    let announced = step(&recovered(), &edit);
    let start = || Start::new(config(), &genesis, [], 1);
    let new = u32::from(NEW);
    assert_eq!(read(&after(&mut start().coordinator(1), &announced)), [new]);
    let agent = Name::new("node-1").expect("a name");
    assert_eq!(read(&after(&mut start().member(Kind::Agent, agent), &announced)), [new]);
}
