//! Processes: death and its notices, restarts, freezes, timers and heartbeats.

use super::*;
use crate::{Delay, State};
use obol_fabric::page::{self, Page};
use obol_fabric::recorder::{self, EventCode, Record};
use obol_fabric::types::ViewId;

#[test]
fn a_watcher_hears_a_suspicion_and_then_a_proof() {
    let mut world = world(3, Network::default(), 1);
    let who = world.address(1);
    post(&mut world, 0, |port| port.watch(who));
    post(&mut world, 2, |port| {
        port.watch(who);
        port.unwatch(who);
    });
    pass(&mut world, MILLI);
    world.suspect(1, 0);
    pass(&mut world, MILLI);
    assert_eq!(world.machine(0).deaths(), [(who, Evidence::Suspicion)]);
    let killed = world.local_now(0);
    world.kill(1);
    pass(&mut world, MILLI);
    let deaths = world.machine(0).deaths();
    assert_eq!(deaths[1..], [(who, Evidence::Suspicion), (who, Evidence::Proof)]);
    let times: Vec<_> = world.machine(0).seen[2..].iter().map(|(t, _)| t.since(killed)).collect();
    assert!(times[0] >= Nanos(8_000) && times[1] >= Nanos(13_000), "{times:?}");
    assert!(world.machine(2).deaths().is_empty());
}

#[test]
fn proofs_can_be_withheld() {
    let network = Network { proof_loss_permille: 1000, ..Network::default() };
    let mut world = world(2, network, 1);
    let who = world.address(1);
    post(&mut world, 0, |port| port.watch(who));
    world.kill(1);
    pass(&mut world, 100 * MILLI);
    assert_eq!(world.machine(0).deaths(), [(who, Evidence::Suspicion)]);
}

#[test]
fn a_successor_is_not_its_predecessor() {
    for keep in [false, true] {
        let mut world = world(2, Network::default(), 1);
        let (old, word) = (world.address(1), world.layout().slot(0));
        post(&mut world, 0, |port| port.cas(at(1, word), 0, 5, Token(1)));
        pass(&mut world, MILLI);
        world.restart(1, Probe::default(), keep);
        assert_eq!((world.state(1), world.address(1).generation), (State::Running, 2));
        post(&mut world, 0, |port| {
            port.cas(Remote { at: old, offset: word }, 5, 6, Token(2));
            port.cas(at(1, word), 0, 7, Token(3));
        });
        pass(&mut world, MILLI);
        let found = if keep { 5 } else { 0 };
        assert_eq!(
            world.machine(0).ended()[1..],
            [(2, Ended::Failed(LinkError::PeerReplaced)), (3, Ended::Swapped(found))]
        );
        assert_eq!(world.machine(1).seen[0].1, Seen::Start(2));
    }
}

#[test]
fn a_frozen_node_wakes_to_its_queue_and_a_later_clock() {
    let mut world: World<Probe> = World::new(layout(), Network::default(), 1);
    world.add(Probe::default(), Clock::default(), 3);
    world.add(Probe::ticking(100_000), Clock::new(Instant(777), 1_000), 3);
    world.run_until(10_000);
    world.freeze(1);
    let frozen = world.local_now(1);
    post(&mut world, 0, |port| port.send(Address::region(1), b"early"));
    pass(&mut world, 3 * MILLI);
    let before = world.machine(1).seen.len();
    assert_eq!(before, 1, "only its start");
    world.thaw(1);
    pass(&mut world, 50_000);
    let seen = &world.machine(1).seen[before..];
    assert!(seen.iter().all(|(now, _)| now.since(frozen) >= Nanos(3 * MILLI)));
    assert!(seen.iter().any(|(_, s)| matches!(s, Seen::Datagram(..))));
    assert!(seen.iter().any(|(_, s)| matches!(s, Seen::Tick)));
}

#[test]
fn a_small_region_takes_no_view() {
    let run = |publishes: bool| {
        let mut world: World<Probe> = World::new(layout(), Network::default(), 1);
        let small = world.add_small(Probe::default(), Clock::default(), 3);
        world.run_until(10_000);
        assert_eq!(size_of_val(world.memory(small)), world.layout().view() as usize);
        post(&mut world, small, |port| {
            if publishes {
                port.publish_view(ViewId(1), &[7; 64]);
            }
        });
        (world.hash(), world.memory(small).iter().map(obol_fabric::memory::relaxed).collect::<Vec<u64>>())
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn a_timer_is_never_early_on_its_own_clock() {
    let mut world: World<Probe> = World::new(layout(), Network::default(), 1);
    for rate in [-200_000_000, -37, 0, 41, 200_000_000] {
        world.add(Probe::ticking(100_000), Clock::new(Instant(12_345), rate), 3);
    }
    world.run_until(10 * MILLI);
    for node in 0..5 {
        let ticks: Vec<_> = world.machine(node).seen.iter().map(|(now, _)| *now).collect();
        assert!(ticks.len() > 75, "{} ticks", ticks.len());
        assert!(ticks.windows(2).all(|pair| pair[1].since(pair[0]) >= Nanos(100_000)));
    }
}

#[test]
fn events_queue_while_a_step_takes_its_time() {
    let network = Network { step: Delay::fixed(1_000), ..Network::default() };
    let mut world = world(2, network, 1);
    post(&mut world, 0, |port| (0..20).for_each(|n| read_word(port, 1, n)));
    pass(&mut world, MILLI);
    let times: Vec<_> = world.machine(0).seen[1..].iter().map(|(now, _)| *now).collect();
    assert_eq!(times.len(), 20);
    assert!(times.windows(2).all(|pair| pair[1].since(pair[0]) >= Nanos(1_000)));
}

#[test]
fn a_heartbeat_moves_while_its_process_runs_and_only_then() {
    let mut world = world(2, Network::default(), 1);
    let word = world.layout().heartbeat(0);
    let look = |world: &mut World<Probe>| {
        post(world, 0, |port| port.read(at(1, word), 8, Token(0)));
        pass(world, 100_000);
        match world.machine(0).ended().pop() {
            Some((_, Ended::Read(bytes))) => u64::from_le_bytes(bytes[..].try_into().expect("a word")),
            other => panic!("{other:?}"),
        }
    };
    let (first, second) = (look(&mut world), look(&mut world));
    assert!((9..=11).contains(&(second - first)), "{first} {second}");
    world.freeze(1);
    let (third, fourth) = (look(&mut world), look(&mut world));
    assert_eq!(third, fourth);
    world.thaw(1);
    assert!(look(&mut world) < look(&mut world));
}

#[test]
fn a_page_and_a_record_are_stamped_by_the_own_clock() {
    let mut world: World<Probe> = World::new(layout(), Network::default(), 1);
    world.add(Probe::default(), Clock::new(Instant(5_000_000), 0), 3);
    world.run_until(1_000_000);
    let page = Page {
        view: ViewId(3),
        base: ViewId(3),
        start: Instant(5_500_000),
        end: Instant(6_500_000),
        ..Page::default()
    };
    post(&mut world, 0, |port| {
        port.publish_page(&page);
        port.publish_view(ViewId(3), b"a view");
        port.record(Record::new(EventCode::new(7), 3, 0));
    });
    assert_eq!(page::load(world.page(0)), Some(page));
    assert_eq!(page::fenced(world.page(0)), ViewId(0));
    assert_eq!(recorder::read::<EventCode>(world.recorder(0), 0)[0].at, Instant(6_000_000));
    let view = &world.memory(0)[world.layout().view() as usize / 8..];
    assert_eq!([0, 1, 2].map(|n| obol_fabric::memory::relaxed(&view[n])), [2, 4, 6]);
    assert!(page::active(world.page(0), ViewId(3), || world.local_now(0)));
    world.run_until(world.to_true(0, page.end));
    assert!(!page::active(world.page(0), ViewId(3), || world.local_now(0)));
}

#[test]
fn a_signalled_process_runs_no_more_but_its_memory_answers_until_it_has_ended() {
    let network = Network { notice: Delay::fixed(4_000), proof: Delay::fixed(12_000), ..Network::default() };
    let mut world = world(3, network, 1);
    let (who, word) = (world.address(1), world.layout().slot(0));
    post(&mut world, 0, |port| port.watch(who));
    pass(&mut world, MILLI);
    world.signal(1);
    let steps = world.machine(1).seen.len();
    pass(&mut world, 6_000);
    assert_eq!(world.machine(0).deaths(), [(who, Evidence::Suspicion)]);
    post(&mut world, 0, |port| port.cas(at(1, word), 0, 9, Token(1)));
    post(&mut world, 2, |port| port.watch(who));
    pass(&mut world, 8_000);
    assert_eq!((world.state(1), world.machine(0).ended()), (State::Frozen, vec![(1, Ended::Swapped(0))]));
    pass(&mut world, MILLI);
    assert_eq!((world.state(1), world.machine(1).seen.len()), (State::Dead, steps));
    let both = [(who, Evidence::Suspicion), (who, Evidence::Proof)];
    assert_eq!(world.machine(0).deaths(), both);
    assert_eq!(world.machine(2).deaths(), both, "it began to watch in between");
}

#[test]
fn a_host_that_is_given_up_is_a_silence_and_a_death_there_can_be_told() {
    let network = Network { notice_loss_permille: 1000, proof_loss_permille: 1000, ..Network::default() };
    let mut world = world(3, network, 1);
    let who = world.address(1);
    post(&mut world, 0, |port| port.watch(who));
    world.partition(0, 1);
    post(&mut world, 0, |port| read_word(port, 1, 1));
    world.run_until(world.now() + 2_000);
    world.give_up(0, 1);
    // Nothing is posted there, and nobody is watched.
    world.give_up(0, 2);
    world.heal(0, 1);
    pass(&mut world, MILLI);
    assert_eq!(world.machine(0).ended(), [(1, Ended::Failed(LinkError::PeerDead))]);
    assert_eq!(world.machine(0).deaths(), [(who, Evidence::Silence)]);
    post(&mut world, 0, |port| read_word(port, 1, 2));
    pass(&mut world, MILLI);
    assert!(matches!(world.machine(0).ended()[1..], [(2, Ended::Read(_))]), "a new connection");
    world.kill(1);
    pass(&mut world, MILLI);
    assert_eq!(world.machine(0).deaths().len(), 1, "all notices are lost");
    world.report_death(0, Address { generation: 2, ..who }, Evidence::Proof);
    world.report_death(0, who, Evidence::Proof);
    pass(&mut world, MILLI);
    assert_eq!(world.machine(0).deaths()[1..], [(who, Evidence::Proof)]);
    *world.network_mut() = Network::default();
    world.watch_again(0, 1);
    world.watch_again(0, 2);
    pass(&mut world, MILLI);
    assert_eq!(world.machine(0).deaths()[2..], [(who, Evidence::Suspicion), (who, Evidence::Proof)]);
}
