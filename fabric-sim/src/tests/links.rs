//! Operations: their order, their halves, and their failures.

use super::*;
use crate::Delay;

#[test]
fn a_long_write_is_whole_before_the_cas_behind_it_is_seen() {
    let (mut before, mut half) = (0, 0);
    for seed in 0..50 {
        let mut world = world(2, rough(), seed);
        let (value, word) = (world.layout().value(0, 1), world.layout().slot(0));
        post(&mut world, 0, |port| {
            port.write(at(1, value), &[7; 512], Token(1));
            port.cas(at(1, word), 0, 1, Token(2));
        });
        let until = world.now() + MILLI;
        while world.next_time().is_some_and(|t| t < until) {
            world.step();
            let sevens = world.memory(1)[value as usize / 8..][..64]
                .iter()
                .filter(|w| obol_fabric::memory::relaxed(w) == u64::from_le_bytes([7; 8]))
                .count();
            let decided = slot(&world, 1, 0) == 1;
            before += u32::from(sevens == 64 && !decided);
            half += u32::from(sevens != 0 && sevens != 64);
            assert!(!decided || sevens == 64, "seed {seed}");
        }
        assert_eq!(world.machine(0).ended(), [(1, Ended::Written), (2, Ended::Swapped(0))]);
    }
    assert!(before > 0 && half > 0, "{before} {half}");
}

#[test]
fn long_reads_are_torn_sometimes_and_words_never() {
    let network = Network { tear: Delay::new(100, 2_000), ..Network::default() };
    let mut world = world(3, network, 5);
    let value = world.layout().value(0, 1);
    for n in 1..=400u64 {
        post(&mut world, 0, |port| {
            port.write(at(2, value), &[n as u8; 64], Token(n));
        });
        post(&mut world, 1, |port| {
            port.read(at(2, value), 64, Token(n));
            port.read(at(2, value), 8, Token(n + 1_000));
        });
        pass(&mut world, 6_000);
    }
    pass(&mut world, MILLI);
    let (mut torn, mut whole) = (0, 0);
    for (_, ended) in world.machine(1).ended() {
        let Ended::Read(bytes) = ended else { panic!("{ended:?}") };
        let same = bytes.iter().all(|&b| b == bytes[0]);
        assert!(bytes.len() == 64 || same);
        torn += u32::from(!same);
        whole += u32::from(same && bytes.len() == 64);
    }
    assert!(torn > 10 && whole > 10, "{torn} torn, {whole} whole");
}

#[test]
fn a_frozen_poster_has_not_seen_a_failure_and_its_link_stays_in_error() {
    let mut world = world(2, Network::default(), 1);
    world.kill(1);
    post(&mut world, 0, |port| read_word(port, 1, 1));
    pass(&mut world, 10_000);
    world.freeze(0);
    world.restart(1, Probe::default(), false);
    pass(&mut world, 5 * MILLI);
    world.thaw(0);
    post(&mut world, 0, |port| read_word(port, 1, 2));
    pass(&mut world, MILLI);
    let failed = |token| (token, Ended::Failed(LinkError::PeerDead));
    assert_eq!(world.machine(0).ended(), [failed(1), failed(2)]);
}

#[test]
fn a_partition_that_heals_in_time_only_delays() {
    let mut world = world(2, Network::default(), 1);
    let word = world.layout().slot(0);
    for (from, to) in [(0, 1), (1, 0)] {
        let before = world.machine(0).ended().len();
        let n = slot(&world, 1, 0);
        world.partition(from, to);
        post(&mut world, 0, |port| {
            port.cas(at(1, word), n, n + 1, Token(1));
            port.cas(at(1, word), n + 1, n + 2, Token(2));
        });
        pass(&mut world, 50_000);
        assert_eq!(world.machine(0).ended().len(), before);
        world.heal(from, to);
        pass(&mut world, 10_000);
        let ended = world.machine(0).ended();
        assert_eq!(ended[before..], [(1, Ended::Swapped(n)), (2, Ended::Swapped(n + 1))]);
    }
    pass(&mut world, 10 * MILLI);
    assert_eq!(world.machine(0).ended().len(), 4, "the timeouts were void");
}

#[test]
fn after_a_lasting_partition_nobody_knows_what_was_executed() {
    let mut executed = [false; 2];
    for (from, to) in [(0, 1), (1, 0)] {
        let mut world = world(2, Network::default(), 1);
        let word = world.layout().slot(0);
        world.partition(from, to);
        post(&mut world, 0, |port| port.cas(at(1, word), 0, 1, Token(1)));
        pass(&mut world, 5 * MILLI);
        assert_eq!(world.machine(0).ended(), [(1, Ended::Failed(LinkError::PeerDead))]);
        executed[from as usize] = slot(&world, 1, 0) == 1;
        world.heal(from, to);
        pass(&mut world, MILLI);
        assert_eq!(slot(&world, 1, 0), u64::from(from), "what failed does not come back");
        post(&mut world, 0, |port| read_word(port, 1, 2));
        pass(&mut world, MILLI);
        assert!(matches!(world.machine(0).ended()[1], (2, Ended::Read(_))));
    }
    assert_eq!(executed, [false, true]);
}

#[test]
fn a_closed_node_reaches_the_others_and_they_do_not_reach_it() {
    let mut world = world(2, Network::default(), 1);
    world.close(1);
    assert!(world.is_closed(1) && !world.is_closed(0));
    post(&mut world, 0, |port| {
        read_word(port, 1, 1);
        port.send(Address::region(1), b"there");
    });
    post(&mut world, 1, |port| {
        read_word(port, 0, 2);
        read_word(port, 1, 3);
        port.send(Address::region(0), b"back");
    });
    pass(&mut world, 5 * MILLI);
    assert_eq!(world.machine(0).ended(), [(1, Ended::Failed(LinkError::PeerDead))]);
    assert!(matches!(world.machine(1).ended()[..], [(3, Ended::Read(_)), (2, Ended::Read(_))]));
    assert!(world.machine(1).datagrams().is_empty());
    assert_eq!(world.machine(0).datagrams(), [b"back"]);
    post(&mut world, 0, |port| read_word(port, 1, 4));
    pass(&mut world, 50_000);
    world.open(1);
    pass(&mut world, MILLI);
    assert!(matches!(world.machine(0).ended()[1..], [(4, Ended::Read(_))]), "it was only delayed");
}

#[test]
fn a_node_that_cannot_connect_is_still_reached_and_its_answers_pass() {
    let mut world = world(2, Network::default(), 1);
    world.refuse(1, 0);
    assert!(world.is_refused(1, 0) && !world.is_refused(0, 1));
    post(&mut world, 1, |port| {
        read_word(port, 0, 1);
        port.send(Address::region(0), b"there");
    });
    post(&mut world, 0, |port| {
        read_word(port, 1, 2);
        port.send(Address::region(1), b"back");
    });
    pass(&mut world, 5 * MILLI);
    assert_eq!(world.machine(1).ended(), [(1, Ended::Failed(LinkError::PeerDead))]);
    assert!(matches!(world.machine(0).ended()[..], [(2, Ended::Read(_))]));
    assert!(world.machine(0).datagrams().is_empty());
    assert_eq!(world.machine(1).datagrams(), [b"back"]);
    post(&mut world, 1, |port| read_word(port, 0, 3));
    pass(&mut world, 50_000);
    world.accept(1, 0);
    pass(&mut world, MILLI);
    assert!(matches!(world.machine(1).ended()[1..], [(3, Ended::Read(_))]), "it was only delayed");
}

#[test]
fn what_a_dying_process_had_in_flight_is_executed_up_to_some_point() {
    let mut counts = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let mut world = world(2, Network::default(), seed);
        let word = world.layout().slot(0);
        post(&mut world, 0, |port| {
            for n in 0..5 {
                port.cas(at(1, word), n, n + 1, Token(n));
            }
        });
        pass(&mut world, 400);
        world.kill(0);
        pass(&mut world, MILLI);
        assert!(world.machine(0).ended().is_empty());
        counts.insert(slot(&world, 1, 0));
    }
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn what_a_process_would_have_posted_behind_a_stall_dies_with_it() {
    let network = Network { stall_permille: 1_000, stall: Delay::new(50_000, 60_000), ..Network::default() };
    for seed in 0..20 {
        for stays in [false, true] {
            let mut world = world(2, network, seed);
            let word = world.layout().slot(0);
            post(&mut world, 0, |port| port.cas(at(1, word), 0, 1, Token(1)));
            pass(&mut world, 40_000);
            if !stays {
                world.kill(0);
            }
            pass(&mut world, MILLI);
            assert_eq!(slot(&world, 1, 0), u64::from(stays), "seed {seed}");
        }
    }
}
