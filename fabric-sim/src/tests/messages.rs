//! Datagrams: rates, order, queues and partitions.

use super::*;
use obol_fabric::metrics::FabricCounter;

#[test]
fn loss_and_repetition_are_about_as_configured() {
    let network = Network { loss_permille: 300, duplicate_permille: 100, ..rough() };
    let mut world = world(2, network, 9);
    for n in 0..5_000u64 {
        post(&mut world, 0, |port| port.send(Address::region(1), &n.to_le_bytes()));
        pass(&mut world, 500);
    }
    pass(&mut world, MILLI);
    let mut got: Vec<u64> = world
        .machine(1)
        .datagrams()
        .iter()
        .map(|bytes| u64::from_le_bytes(bytes[..].try_into().expect("eight bytes")))
        .collect();
    let all = got.len();
    assert!(got.windows(2).any(|pair| pair[0] > pair[1]), "some are overtaken");
    got.sort_unstable();
    got.dedup();
    assert!((3_350..3_650).contains(&got.len()), "{} of 5000 arrived", got.len());
    let twice = all - got.len();
    assert!((280..420).contains(&twice), "{twice} arrived twice");
    assert_eq!(world.counter(0, FabricCounter::DatagramsLost), 0, "no lane was full");
}

#[test]
fn a_partition_may_hold_in_one_direction_only() {
    let mut world = world(2, Network::default(), 1);
    world.partition(0, 1);
    post(&mut world, 0, |port| port.send(Address::region(1), b"there"));
    post(&mut world, 1, |port| port.send(Address::region(0), b"back"));
    pass(&mut world, MILLI);
    assert!(world.machine(1).datagrams().is_empty());
    assert_eq!(world.machine(0).datagrams(), [b"back"]);
    world.heal(0, 1);
    post(&mut world, 0, |port| port.send(Address::region(1), b"there"));
    pass(&mut world, MILLI);
    assert_eq!(world.machine(1).datagrams(), [b"there"]);
}

#[test]
fn a_frozen_receiver_keeps_a_lane_full_and_the_rest_is_lost_and_counted() {
    let mut world = world(3, Network::default(), 1);
    world.freeze(1);
    for n in 0..12 {
        post(&mut world, 0, |port| port.send(Address::region(1), &[n]));
        pass(&mut world, 20_000);
    }
    post(&mut world, 2, |port| port.send(Address::region(1), b"another lane"));
    pass(&mut world, 20_000);
    assert!(world.machine(1).datagrams().is_empty());
    world.thaw(1);
    pass(&mut world, MILLI);
    let got = world.machine(1).datagrams();
    assert_eq!(got[..8], (0..8).map(|n| vec![n]).collect::<Vec<_>>());
    assert_eq!(got[8..], [b"another lane"]);
    assert_eq!(world.counter(0, FabricCounter::DatagramsLost), 4);
}

#[test]
fn what_is_too_long_or_for_a_predecessor_is_lost() {
    let mut world = world(2, Network::default(), 1);
    let old = world.address(1);
    world.restart(1, Probe::default(), false);
    post(&mut world, 0, |port| {
        port.send(Address::region(1), &[0; 513]);
        port.send(old, b"old");
        port.send(Address::region(7), b"nobody");
    });
    pass(&mut world, MILLI);
    assert!(world.machine(1).datagrams().is_empty());
    assert_eq!(world.counter(0, FabricCounter::DatagramsLost), 1);
}

#[test]
fn a_degraded_direction_is_late_and_loses_datagrams_in_bursts_and_the_other_one_does_not() {
    const SENT: u64 = 20_000;
    let mut world = world(2, Network::default(), 3);
    // A tenth of the time it is bad, for ten datagrams in a row, and loses all of them.
    let how = Degraded { delay: 50 * MILLI, turns: [11, 100], lost: [0, 1000] };
    world.degrade(0, 1, how);
    for n in 0..SENT {
        for (from, to) in [(0, 1), (1, 0)] {
            post(&mut world, from, |port| port.send(Address::region(to), &n.to_le_bytes()));
        }
        pass(&mut world, 500);
    }
    let numbers = |world: &World<Probe>, node| -> Vec<u64> {
        let all = world.machine(node).datagrams();
        let mut all: Vec<u64> =
            all.iter().map(|bytes| u64::from_le_bytes(bytes[..].try_into().expect("eight bytes"))).collect();
        all.sort_unstable();
        all
    };
    let before = numbers(&world, 1).len() as u64;
    pass(&mut world, 100 * MILLI);
    let (there, back) = (numbers(&world, 1), numbers(&world, 0));
    assert_eq!(back.len() as u64, SENT);
    assert!(there.len() as u64 > before, "some were still on the way");
    let lost = SENT - there.len() as u64;
    assert!((SENT / 15..SENT / 6).contains(&lost), "{lost} of {SENT} were lost");
    let gaps = there.windows(2).filter(|pair| pair[1] > pair[0] + 1).count() as u64;
    assert!(lost > 5 * gaps, "{lost} were lost in {gaps} bursts");
    world.degrade(0, 1, Degraded::default());
    post(&mut world, 0, |port| port.send(Address::region(1), &SENT.to_le_bytes()));
    pass(&mut world, MILLI);
    assert_eq!(numbers(&world, 1).last(), Some(&SENT));
}
