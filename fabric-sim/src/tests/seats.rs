//! Programs in seats: requests, answers, rejoining, death.

use super::*;
use crate::Delay;
use obol_fabric::contract::SeatStatus;
use obol_fabric::page::{self, Page};
use obol_fabric::types::{Incarnation, Name, ViewId};

fn name() -> Name {
    Name::new("app").expect("valid")
}

fn asked(world: &World<Probe>) -> Vec<SeatRequest> {
    let asked = |(_, seen): &(Instant, Seen)| match seen {
        Seen::Seat(2, request) => Some(*request),
        _ => None,
    };
    world.machine(0).seen.iter().filter_map(asked).collect()
}

fn answer(world: &mut World<Probe>, status: SeatStatus) {
    post(world, 0, |port| port.publish_seat(2, status));
    pass(world, 10_000);
}

#[test]
fn a_request_for_a_confirmation_reaches_the_owner_with_its_time() {
    let mut world = world(1, Network::default(), 1);
    world.run_until(10 * MILLI);
    let since = world.want_confirmed(0);
    world.run_until(20 * MILLI);
    let reported: Vec<Instant> = (world.machine(0).seen.iter())
        .filter_map(|(_, seen)| if let Seen::Confirm(since) = seen { Some(*since) } else { None })
        .collect();
    assert_eq!(reported, [since]);
}

#[test]
fn a_program_joins_is_excluded_joins_again_and_leaves() {
    let network = Network { ask_every: Delay::fixed(300_000), ..Network::default() };
    let mut world = world(1, network, 1);
    let address = world.attach(0, 2, name()).expect("a free seat");
    assert_eq!((address.region, address.seat, address.generation), (0, 2, 1));
    pass(&mut world, MILLI);
    assert!(asked(&world).is_empty(), "attaching is not joining");
    world.join_program(0, 2);
    pass(&mut world, MILLI);
    let first = asked(&world);
    assert!(first.len() >= 3 && first.iter().all(|r| *r == first[0]), "it repeats itself: {first:?}");
    let SeatRequest::Join { token, address: from, .. } = first[0] else { panic!("{first:?}") };
    assert_eq!(from, address);
    let member = SeatStatus::Member(Incarnation(8));
    answer(&mut world, member);
    assert_eq!(world.program(0, 2).and_then(|p| p.status()), Some(member));
    let settled = asked(&world).len();
    pass(&mut world, MILLI);
    assert_eq!(asked(&world).len(), settled, "an answered program is quiet");

    answer(&mut world, SeatStatus::Excluded);
    pass(&mut world, MILLI);
    let Some(SeatRequest::Join { token: second, .. }) = asked(&world).pop() else { panic!("it asks again") };
    assert_ne!(token, second);
    answer(&mut world, SeatStatus::Member(Incarnation(9)));

    world.leave_program(0, 2);
    pass(&mut world, 100_000);
    assert_eq!(asked(&world).pop(), Some(SeatRequest::Leave));
    answer(&mut world, SeatStatus::Left);
    let program = world.program(0, 2).expect("it sits there");
    assert_eq!((program.status(), program.request()), (Some(SeatStatus::Left), None));
}

#[test]
fn a_promise_goes_with_the_join_and_a_change_of_it_reaches_the_owner_once() {
    let mut world = world(1, Network::default(), 1);
    world.attach(0, 2, name()).expect("a free seat");
    world.promise_progress(0, 2, Nanos(7));
    pass(&mut world, MILLI);
    assert!(asked(&world).is_empty(), "it is not known before it joins");
    world.join_program(0, 2);
    pass(&mut world, MILLI);
    answer(&mut world, SeatStatus::Member(Incarnation(8)));
    assert!(matches!(asked(&world).pop(), Some(SeatRequest::Join { progress_within: Nanos(7), .. })));
    world.promise_progress(0, 2, Nanos::ZERO);
    pass(&mut world, MILLI);
    let promises = |world: &World<Probe>| {
        let mut asked = asked(world);
        asked.retain(|request| matches!(request, SeatRequest::Promise(_)));
        asked
    };
    assert_eq!(promises(&world), [SeatRequest::Promise(Nanos::ZERO)]);
    world.promise_progress(0, 2, Nanos::ZERO);
    pass(&mut world, MILLI);
    assert_eq!(promises(&world).len(), 1);
}

#[test]
fn a_frozen_program_is_silent_and_reads_its_answer_when_it_wakes() {
    let mut world = world(1, Network::default(), 1);
    world.attach(0, 2, name()).expect("a free seat");
    world.freeze_program(0, 2);
    world.join_program(0, 2);
    pass(&mut world, 3 * MILLI);
    assert!(asked(&world).is_empty());
    world.thaw_program(0, 2);
    pass(&mut world, 100_000);
    assert_eq!(asked(&world).len(), 1);
    world.freeze_program(0, 2);
    answer(&mut world, SeatStatus::Excluded);
    pass(&mut world, 3 * MILLI);
    assert_eq!(world.program(0, 2).and_then(|p| p.status()), None);
    world.thaw_program(0, 2);
    pass(&mut world, MILLI);
    assert_eq!(world.program(0, 2).and_then(|p| p.status()), Some(SeatStatus::Excluded));
    assert!(asked(&world).len() >= 2, "and asks again");
}

#[test]
fn a_program_that_dies_is_noticed_and_its_successor_has_another_generation() {
    let mut world = world(2, Network::default(), 1);
    let old = world.attach(0, 2, name()).expect("a free seat");
    post(&mut world, 1, |port| port.watch(old));
    world.kill_program(0, 2);
    pass(&mut world, MILLI);
    assert_eq!(world.machine(1).deaths(), [(old, Evidence::Suspicion), (old, Evidence::Proof)]);
    let new = world.attach(0, 2, name()).expect("the seat is free again");
    assert_eq!(new.generation, 2);
    let beat = world.layout().heartbeat(2);
    post(&mut world, 1, |port| {
        port.read(Remote { at: old, offset: beat }, 8, Token(1));
        port.read(Remote { at: new, offset: beat }, 8, Token(2));
    });
    pass(&mut world, MILLI);
    let ended = world.machine(1).ended();
    assert_eq!(ended[0], (1, Ended::Failed(LinkError::PeerReplaced)));
    assert!(matches!(ended[1], (2, Ended::Read(_))), "the link did not break: {ended:?}");
    assert_eq!(world.attach(0, 9, name()), None);
    assert_eq!(world.attach(0, 0, name()), None);
}

#[test]
fn the_page_of_a_dead_node_is_fenced_through_a_program_that_lives_where_pages_outlive_their_owner() {
    for pages_outlive in [false, true] {
        let mut world = world(2, Network { pages_outlive, ..Network::default() }, 1);
        let [dead, lives] = [1, 2].map(|seat| world.attach(0, seat, name()).expect("a free seat"));
        let fence = world.layout().fence();
        world.kill_program(0, 1);
        world.kill(0);
        for (program, token) in [(dead, 1), (lives, 2)] {
            post(&mut world, 1, |port| port.cas(Remote { at: program, offset: fence }, 0, 7, Token(token)));
            pass(&mut world, MILLI);
        }
        let refused = Ended::Failed(LinkError::PeerDead);
        let second = if pages_outlive { Ended::Swapped(0) } else { refused.clone() };
        assert_eq!(world.machine(1).ended(), [(1, refused), (2, second)]);
    }
}

#[test]
fn a_program_outlives_its_node_and_still_sees_the_page_that_it_mapped() {
    let mut world = world(1, Network::default(), 1);
    world.attach(0, 2, name()).expect("a free seat");
    let page = Page {
        view: ViewId(4),
        base: ViewId(4),
        start: Instant(0),
        end: Instant(90 * MILLI),
        ..Page::default()
    };
    post(&mut world, 0, |port| port.publish_page(&page));
    world.kill(0);
    assert_eq!(world.attach(0, 1, name()), None, "no agent to attach to");
    world.restart(0, Probe::default(), false);
    pass(&mut world, MILLI);
    let program = world.program(0, 2).expect("it lives");
    assert!(program.is_running());
    assert_eq!(page::load(world.program_page(program)), Some(page));
    assert_eq!(page::load(world.page(0)), Some(Page::default()));
    world.join_program(0, 2);
    pass(&mut world, 5 * MILLI);
    assert!(asked(&world).is_empty(), "its owner is gone: it has to attach again");
    world.attach(0, 2, name()).expect("the node runs");
    world.join_program(0, 2);
    pass(&mut world, MILLI);
    assert!(!asked(&world).is_empty());
}
