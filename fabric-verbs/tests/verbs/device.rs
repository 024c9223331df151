//! One-sided operations through a device, between two queue pairs of this process.

use crate::devices::{Duo, arena, nic, register};
use obol_fabric_verbs::VerbsError;
use obol_fabric_verbs::arena::{Arena, HugePages, Pages, host_memory};
use obol_fabric_verbs::context::Atomics;
use obol_fabric_verbs::device::{DeviceSelector, survey};
use obol_fabric_verbs::nic::Nic;
use obol_fabric_verbs::queue::Status;
use obol_fabric_verbs::registration::{Memory, Registration, Rights};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

#[test]
fn a_device_is_found_that_can_swap() {
    let Some(nic) = nic() else { return };
    let chosen = nic.choice();
    assert_ne!(chosen.facts.atomics, Atomics::None);
    assert!(chosen.port_facts.active && chosen.port_facts.mtu >= 256, "{chosen:?}");
    let address = chosen.address.expect("peers reach it by an address");
    let again = Nic::open(&DeviceSelector { address: Some(address), ..DeviceSelector::default() }, 0)
        .expect("by its address");
    assert_eq!(again.choice(), chosen);
    assert!(survey().expect("there are devices").iter().any(|device| device.name == chosen.device));
}

#[test]
fn what_is_not_there_is_refused_by_name() {
    let Some(nic) = nic() else { return };
    let open = |selector| Nic::open(&selector, 0).expect_err("it is not there");
    let refused = open(DeviceSelector { device: Some("nowhere0".to_owned()), ..DeviceSelector::default() });
    assert!(matches!(&refused, VerbsError::NoSuchDevice { wanted, .. } if wanted == "nowhere0"), "{refused}");
    let device = Some(nic.choice().device.clone());
    let refused =
        open(DeviceSelector { device: device.clone(), port: Some(99), ..DeviceSelector::default() });
    assert!(matches!(refused, VerbsError::NoSuchPort { wanted: 99, .. }), "{refused}");
    let refused = open(DeviceSelector { device, gid_index: Some(255), ..DeviceSelector::default() });
    assert!(refused.to_string().contains("no entry 255"), "{refused}");
}

#[test]
fn bytes_are_read_and_written_and_words_are_swapped() {
    let Some(nic) = nic() else { return };
    let (own, theirs) = (arena(4096), arena(4096));
    let (here, there) = (register(&nic, &own, Rights::NONE), register(&nic, &theirs, Rights::ALL));
    let duo = Duo::new(&nic, Rights::ALL);

    for (at, word) in theirs.words().iter().enumerate() {
        word.store(at as u64, Relaxed);
    }
    duo.initiator.read(1, here.local(0, 4096), there.target(0), true).expect("posted");
    duo.expect(1, Status::SUCCESS);
    assert!(own.words().iter().enumerate().all(|(at, word)| word.load(Relaxed) == at as u64));

    own.words()[0].store(77, Relaxed);
    duo.initiator.write(2, here.local(0, 8), there.target(64), true).expect("posted");
    duo.expect(2, Status::SUCCESS);
    assert_eq!(theirs.words()[8].load(Relaxed), 77);

    assert!(duo.initiator.inline_bytes() >= 16, "a view's head fits inline");
    duo.initiator.write_inline(3, &88_u64.to_le_bytes(), there.target(72), true).expect("posted");
    duo.expect(3, Status::SUCCESS);
    assert_eq!(theirs.words()[9].load(Relaxed), 88);
    let long = vec![0; duo.initiator.inline_bytes() as usize + 1];
    assert!(duo.initiator.write_inline(4, &long, there.target(72), true).is_err());

    duo.initiator.cas(5, here.local(8, 8), there.target(64), 77, 99, true).expect("posted");
    duo.expect(5, Status::SUCCESS);
    assert_eq!((own.words()[1].load(Relaxed), theirs.words()[8].load(Relaxed)), (77, 99));
    duo.initiator.cas(6, here.local(8, 8), there.target(64), 77, 100, true).expect("posted");
    duo.expect(6, Status::SUCCESS);
    assert_eq!((own.words()[1].load(Relaxed), theirs.words()[8].load(Relaxed)), (99, 99));
}

#[test]
fn the_completion_of_a_swap_stands_for_the_write_before_it() {
    let Some(nic) = nic() else { return };
    let (own, theirs) = (arena(4096), arena(4096));
    let (here, there) = (register(&nic, &own, Rights::NONE), register(&nic, &theirs, Rights::ALL));
    let duo = Duo::new(&nic, Rights::ALL);
    for round in 1..=50_u64 {
        own.words()[0].store(round, Relaxed);
        duo.initiator.write(0, here.local(0, 8), there.target(128), false).expect("posted");
        duo.initiator
            .cas(round, here.local(8, 8), there.target(136), round - 1, round, true)
            .expect("posted");
        duo.expect(round, Status::SUCCESS);
        assert_eq!(theirs.words()[16].load(Relaxed), round);
        assert_eq!(theirs.words()[17].load(Relaxed), round);
    }
}

#[test]
fn a_misaligned_swap_is_refused() {
    let Some(nic) = nic() else { return };
    let (own, theirs) = (arena(4096), arena(4096));
    let (here, there) = (register(&nic, &own, Rights::NONE), register(&nic, &theirs, Rights::ALL));
    let duo = Duo::new(&nic, Rights::ALL);
    // A device may refuse the post, or the peer's device the operation.
    match duo.initiator.cas(1, here.local(0, 8), there.target(4), 0, 1, true) {
        Err(refused) => assert_eq!(refused.0, 22, "EINVAL"),
        Ok(()) => assert_ne!(duo.next().status(), Status::SUCCESS),
    }
    assert!(theirs.words().iter().all(|word| word.load(Relaxed) == 0));
}

#[test]
fn after_a_failure_nothing_that_was_posted_is_executed() {
    let Some(nic) = nic() else { return };
    let (own, theirs) = (arena(4096), arena(4096));
    let (here, there) = (register(&nic, &own, Rights::NONE), register(&nic, &theirs, Rights::ALL));
    let duo = Duo::new(&nic, Rights::ALL);
    let outside = there.target(4096 * 16);
    duo.initiator.write_inline(1, &[1; 8], outside, true).expect("posted");
    duo.initiator.cas(2, here.local(0, 8), there.target(0), 0, 1, true).expect("posted");
    duo.expect(1, Status::REMOTE_ACCESS);
    duo.expect(2, Status::FLUSHED);
    assert_eq!(theirs.words()[0].load(Relaxed), 0);
}

#[test]
fn own_memory_outside_the_registration_is_not_touched() {
    let Some(nic) = nic() else { return };
    let (own, theirs) = (arena(4096), arena(4096));
    let there = register(&nic, &theirs, Rights::READ);
    let here = Registration::new(nic.domain(), Arc::clone(&own), 64..128, Rights::NONE).expect("registered");
    let duo = Duo::new(&nic, Rights::READ);
    theirs.words()[0].store(5, Relaxed);
    duo.initiator.read(1, here.local(64, 8), there.target(0), true).expect("posted");
    duo.expect(1, Status::SUCCESS);
    assert_eq!(own.words()[8].load(Relaxed), 5);
    // A device may detect this at the post or at the execution.
    if duo.initiator.read(2, here.local(128, 8), there.target(0), true).is_ok() {
        assert_ne!(duo.next().status(), Status::SUCCESS);
    }
    assert_eq!(own.words()[16].load(Relaxed), 0);
}

#[test]
fn memory_of_all_kinds_of_pages_can_be_reached() {
    let Some(nic) = nic() else { return };
    let (free, _) = host_memory().huge_pages;
    for requested in [HugePages::Explicit, HugePages::Transparent, HugePages::Plain] {
        let theirs = Arena::new(1 << 16, requested, nic.choice().numa_node).expect("memory");
        let pages = theirs.pages();
        assert_eq!(
            pages == Pages::Explicit,
            requested == HugePages::Explicit && free > 0,
            "{requested:?}: {pages}"
        );
        theirs.words()[8000].store(9, Relaxed);
        let theirs: Arc<dyn Memory> = theirs;
        let (own, there) = (arena(4096), register(&nic, &theirs, Rights::READ));
        let (here, duo) = (register(&nic, &own, Rights::NONE), Duo::new(&nic, Rights::READ));
        duo.initiator.read(1, here.local(0, 8), there.target(64000), true).expect("posted");
        duo.expect(1, Status::SUCCESS);
        assert_eq!(own.words()[0].load(Relaxed), 9);
    }
}

#[test]
fn a_range_outside_the_memory_is_not_registered() {
    let Some(nic) = nic() else { return };
    let memory = arena(4096);
    for range in [0..4097, 8..8, 5000..6000] {
        let refused = Registration::new(nic.domain(), Arc::clone(&memory), range, Rights::READ);
        assert!(matches!(refused, Err(VerbsError::OutOfBounds { .. })));
    }
}
