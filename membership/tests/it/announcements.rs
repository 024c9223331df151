//! Announcements between a recovered cluster and those that it has given up. The two sides must find
//! each other by the first one, and the recovered cluster takes nothing from the others.

use crate::common::{LIMITS, Noted, Post};
use obol_fabric::{
    Address, Completion, Event, Instant, Layout, Limits, Machine, Name, Nanos, ViewId, layout,
};
use obol_membership::timing::Timing;
use obol_membership::view::{Acceptor, Change, Edit, Reason, coordinator_name};
use obol_membership::wire::{self, Message};
use obol_membership::{ActiveMutant, Config, Coordinator, Kind, Member, Start, View};
use std::sync::Arc;

const NEW: u16 = 4;
const LEASE: Nanos = Nanos::from_millis(20);
/// The process that announces.
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

/// A view of the set that was given up, this number of views after that of the recovery.
fn of_the_old_set(later: u64) -> View {
    View { id: ViewId(recovered().id.0 + later), ..View::clone(&genesis()) }
}

/// What announces such a view.
fn announcements(view: &View) -> [Vec<u8>; 2] {
    let frame = view.to_frame();
    let before = View { id: ViewId(view.id.0 - 1), ..view.clone() };
    let step = wire::encode_step(&before, view, &frame);
    [
        Message::View { frame: &frame, cleared: true }.encode(),
        Message::Step { id: view.id, cleared: view.id, step: &step }.encode(),
    ]
}

/// The area of a region in which its process publishes this view.
fn area(view: &View) -> Vec<u8> {
    let mut head = vec![0; size_of::<layout::ViewHead>()];
    let at = std::mem::offset_of!(layout::ViewHead, cleared);
    head[at..at + 8].copy_from_slice(&view.id.0.to_le_bytes());
    [head.as_slice(), &view.to_frame()].concat()
}

fn all() -> (impl Machine + Knows, impl Machine + Knows) {
    let start = || Start::new(config(), &genesis(), [recovered()], 1);
    let name = Name::new("node-1").expect("a name");
    (start().coordinator(NEW), start().member(Kind::Agent, name))
}

trait Knows {
    fn known(&self) -> ViewId;
}

impl Knows for Coordinator {
    fn known(&self) -> ViewId {
        self.view().id
    }
}

impl Knows for Member {
    fn known(&self) -> ViewId {
        self.view().id
    }
}

/// It is not even asked for what it knows.
fn takes_no_announcement(mut machine: impl Machine + Knows, bytes: &[u8]) {
    let noted = after(&mut machine, bytes);
    assert_eq!((machine.known(), read(&noted)), (recovered().id, vec![]), "{bytes:?}");
}

/// A datagram that names only addresses has a process READ there; it takes nothing that it reads.
fn takes_no_view_that_it_reads(mut machine: impl Machine + Knows, view: &View) {
    let noted = after(&mut machine, &wire::deciders(view));
    assert_eq!(read(&noted), [1, 2, 3]);
    let (now, bytes) = (Instant(1_100_000), area(view));
    for (_, token) in noted.posts {
        let event = Event::Completion { token, result: Ok(Completion::Read(&bytes)) };
        let mut fabric = Noted::default();
        machine.handle(now, event, &mut fabric);
        assert!(fabric.cleared.is_none(), "{:?}", fabric.cleared);
    }
    assert_eq!(machine.known(), recovered().id, "view {}", view.id);
}

#[test]
fn nothing_is_taken_from_a_set_that_was_given_up_whatever_the_number_of_its_view() {
    // The next number, for which a view is installed as it is, and later ones, for which others are READ.
    for later in [1, 2, 5_000] {
        let view = of_the_old_set(later);
        for bytes in announcements(&view) {
            takes_no_announcement(all().0, &bytes);
            takes_no_announcement(all().1, &bytes);
        }
        takes_no_view_that_it_reads(all().0, &view);
        takes_no_view_that_it_reads(all().1, &view);
    }
}

/// The old set may have replaced its acceptors, so that it announces none that is retired.
#[test]
fn a_set_that_was_given_up_is_known_by_its_history_and_not_by_its_acceptors() {
    let acceptor = |n: u16| Acceptor { proposer: n, address: Address::region(n.into()) };
    let view = View { acceptors: (5..=7).map(acceptor).collect(), ..of_the_old_set(1) };
    for bytes in announcements(&view) {
        takes_no_announcement(all().0, &bytes);
        takes_no_announcement(all().1, &bytes);
    }
}

/// Two clusters with different recoveries do not answer each other's answers for ever.
#[test]
fn the_deciders_of_another_cluster_are_not_answered() {
    let noted = after(&mut all().0, &wire::deciders(&of_the_old_set(9)));
    assert!(noted.sent.is_empty(), "{:?}", noted.sent);
}

#[test]
fn a_process_that_finds_views_of_both_sides_starts_from_that_of_the_recovery() {
    for later in [1, 5_000] {
        let both = [recovered(), of_the_old_set(later)];
        for found in [both.clone(), [both[1].clone(), both[0].clone()]] {
            assert_eq!(**Start::new(config(), &genesis(), found, 1).newest(), recovered());
        }
    }
}
