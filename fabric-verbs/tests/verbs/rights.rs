//! Access rights on a region: the device enforces them, whatever a peer posts.

use crate::devices::{Duo, arena, layout, nic, register};
use obol_fabric_verbs::exposed::{Exposed, Keys, Purpose, Role, rights_of};
use obol_fabric_verbs::nic::Nic;
use obol_fabric_verbs::queue::Status;
use obol_fabric_verbs::registration::{Memory, Registration, Rights, Target};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A region, a connected peer of a role, and the peer's own memory.
struct Case {
    region: Arc<dyn Memory>,
    exposed: Exposed,
    keys: Keys,
    duo: Duo,
    here: Registration,
}

impl Case {
    fn new(nic: &Nic, purpose: Purpose, role: Role) -> Self {
        let region = arena(layout().bytes());
        let exposed = Exposed::new(nic.domain(), &region, &layout(), purpose).expect("registered");
        let keys = exposed.keys(role);
        let here = register(nic, &arena(4096), Rights::NONE);
        Self { region, exposed, keys, duo: Duo::new(nic, rights_of(role, purpose)), here }
    }

    /// The status of a READ, WRITE or CAS of the word at an offset.
    fn read(&self, target: Target) -> Status {
        self.duo.initiator.read(1, self.here.local(0, 8), target, true).expect("posted");
        self.duo.next().status()
    }

    fn write(&self, target: Target) -> Status {
        self.duo.initiator.write_inline(1, &[1; 8], target, true).expect("posted");
        self.duo.next().status()
    }

    fn cas(&self, target: Target) -> Status {
        self.duo.initiator.cas(1, self.here.local(0, 8), target, 0, 1, true).expect("posted");
        self.duo.next().status()
    }

    /// A place in the region under any of the keys.
    fn under(&self, rkey: Option<u32>, offset: u32) -> Target {
        Target { address: self.keys.base + u64::from(offset), rkey: rkey.expect("the peer has this key") }
    }

    /// The key of the fence word; only given to peers that may swap it.
    fn fence(&self) -> Option<u32> {
        self.exposed.keys(Role::Proposer).fence
    }

    fn word(&self, offset: u32) -> u64 {
        self.region.words()[offset as usize / 8].load(Relaxed)
    }

    fn is_untouched(&self) -> bool {
        self.region.words().iter().all(|word| word.load(Relaxed) == 0)
    }
}

/// Refused by the key or by the queue pair: devices report it differently.
#[track_caller]
fn refused(status: Status) {
    assert!(matches!(status, Status::REMOTE_ACCESS | Status::REMOTE_INVALID), "{}", status.name());
}

#[test]
fn a_reader_reads_everything_and_changes_nothing() {
    let Some(nic) = nic() else { return };
    let last = layout().bytes() as u32 - 8;
    for purpose in [Purpose::Plain, Purpose::Mailbox, Purpose::Acceptor] {
        let case = Case::new(&nic, purpose, Role::Reader);
        assert_eq!((case.keys.fence, case.keys.slots, case.keys.values), (None, None, None));
        for offset in [0, layout().fence(), layout().slot(0), last] {
            let target = case.keys.read(&layout(), offset, 8).expect("inside");
            assert_eq!(case.read(target), Status::SUCCESS);
        }
        let key = case.keys.read;
        refused(case.write(case.under(key, layout().value(0, 1))));
        assert!(case.is_untouched());
        // The queue pair is broken now: a new one for each attempt.
        let case = Case::new(&nic, purpose, Role::Reader);
        refused(case.cas(case.under(case.keys.read, layout().fence())));
        assert!(case.is_untouched());
    }
}

#[test]
fn a_reader_that_has_guessed_all_keys_changes_nothing() {
    let Some(nic) = nic() else { return };
    let (fence, slot, value) = (layout().fence(), layout().slot(0), layout().value(0, 1));
    for part in 0..3 {
        let case = Case::new(&nic, Purpose::Acceptor, Role::Reader);
        let guessed = case.exposed.keys(Role::Proposer);
        match part {
            0 => refused(case.cas(case.under(guessed.fence, fence))),
            1 => refused(case.cas(case.under(guessed.slots, slot))),
            _ => refused(case.write(case.under(guessed.values, value))),
        }
        assert!(case.is_untouched());
    }
}

#[test]
fn a_fencer_swaps_the_fence_word_and_nothing_else() {
    let Some(nic) = nic() else { return };
    let fence = layout().fence();
    let case = Case::new(&nic, Purpose::Plain, Role::Fencer);
    assert_eq!(case.cas(case.keys.cas(&layout(), fence).expect("it has this key")), Status::SUCCESS);
    assert_eq!(case.word(fence), 1);
    for offset in [fence - 8, fence + 8, layout().page(), layout().seat(0), layout().slot(0)] {
        let case = Case::new(&nic, Purpose::Plain, Role::Fencer);
        refused(case.cas(case.under(case.keys.fence, offset)));
        assert!(case.is_untouched());
        let case = Case::new(&nic, Purpose::Plain, Role::Fencer);
        refused(case.write(case.under(case.keys.fence, offset)));
        assert!(case.is_untouched());
    }
    let case = Case::new(&nic, Purpose::Plain, Role::Fencer);
    refused(case.write(case.under(case.keys.fence, fence)));
    assert!(case.is_untouched());
}

#[test]
fn a_coordinator_swaps_the_fence_word_of_a_member_and_writes_nothing_there() {
    let Some(nic) = nic() else { return };
    let case = Case::new(&nic, Purpose::Plain, Role::Proposer);
    assert_eq!((case.keys.slots, case.keys.values), (None, None));
    assert_eq!(case.cas(case.under(case.keys.fence, layout().fence())), Status::SUCCESS);
    let keys: [fn(&Keys) -> Option<u32>; 2] = [|keys| keys.read, |keys| keys.fence];
    for key in keys {
        for offset in [layout().fence(), layout().page(), layout().value(0, 1)] {
            let case = Case::new(&nic, Purpose::Plain, Role::Proposer);
            refused(case.write(case.under(key(&case.keys), offset)));
            assert!(case.is_untouched());
        }
    }
}

#[test]
fn a_coordinator_swaps_slots_and_writes_values_at_an_acceptor_and_nothing_else() {
    let Some(nic) = nic() else { return };
    let layout = layout();
    let (slot, value) = (layout.slot(7), layout.value(7, 3));
    let case = Case::new(&nic, Purpose::Acceptor, Role::Proposer);
    assert_eq!(case.cas(case.keys.cas(&layout, slot).expect("it has this key")), Status::SUCCESS);
    assert_eq!(case.write(case.keys.write(&layout, value, 8).expect("it has this key")), Status::SUCCESS);
    assert_eq!((case.word(slot), case.word(value)), (1, u64::from_ne_bytes([1; 8])));
    type Try = fn(&Case) -> Status;
    let tries: [Try; 4] = [
        |case| case.write(case.under(case.keys.slots, crate::devices::layout().slot(0))),
        |case| case.write(case.under(case.keys.values, crate::devices::layout().values().end)),
        |case| case.cas(case.under(case.keys.values, crate::devices::layout().value(0, 1))),
        |case| case.cas(case.under(case.keys.slots, crate::devices::layout().slots().end)),
    ];
    for attempt in tries {
        let case = Case::new(&nic, Purpose::Acceptor, Role::Proposer);
        refused(attempt(&case));
        assert!(case.is_untouched());
    }
}

#[test]
fn a_member_writes_a_mailbox_and_nothing_else_there() {
    let Some(nic) = nic() else { return };
    let values = layout().values();
    let case = Case::new(&nic, Purpose::Mailbox, Role::Member);
    assert_eq!((case.keys.fence, case.keys.slots), (None, None));
    for offset in [values.start, values.end - 8] {
        let target = case.keys.write(&layout(), offset, 8).expect("it has this key");
        assert_eq!(case.write(target), Status::SUCCESS);
        assert_eq!(case.word(offset), u64::from_ne_bytes([1; 8]));
    }
    type Try = fn(&Case) -> Status;
    let tries: [Try; 7] = [
        |case| case.write(case.under(case.keys.values, crate::devices::layout().values().start - 8)),
        |case| case.write(case.under(case.keys.values, crate::devices::layout().values().end)),
        |case| case.write(case.under(case.keys.values, 0)),
        |case| case.write(case.under(case.keys.read, crate::devices::layout().values().start)),
        |case| case.cas(case.under(case.keys.values, crate::devices::layout().values().start)),
        // A key that it was not given, but has guessed.
        |case| case.write(case.under(case.fence(), crate::devices::layout().fence())),
        |case| case.cas(case.under(case.fence(), crate::devices::layout().fence())),
    ];
    for attempt in tries {
        let case = Case::new(&nic, Purpose::Mailbox, Role::Member);
        refused(attempt(&case));
        assert!(case.is_untouched());
    }
}

#[test]
fn nobody_but_members_writes_a_mailbox() {
    let Some(nic) = nic() else { return };
    for role in [Role::Reader, Role::Fencer, Role::Proposer] {
        let case = Case::new(&nic, Purpose::Mailbox, role);
        assert_eq!(case.keys.values, None);
        let guessed = case.exposed.keys(Role::Member);
        refused(case.write(case.under(guessed.values, layout().values().start)));
        assert!(case.is_untouched());
    }
}

#[test]
fn permissions_are_switched_while_a_pair_is_connected() {
    let Some(nic) = nic() else { return };
    let theirs = arena(4096);
    let there = register(&nic, &theirs, Rights::ALL);
    let duo = Duo::new(&nic, Rights::READ | Rights::WRITE);
    duo.initiator.write_inline(1, &[1; 8], there.target(0), true).expect("posted");
    duo.expect(1, Status::SUCCESS);
    duo.responder.permit(Rights::READ).expect("switched");
    duo.initiator.write_inline(2, &[2; 8], there.target(0), true).expect("posted");
    refused(duo.next().status());
    assert_eq!(theirs.words()[0].load(Relaxed), u64::from_ne_bytes([1; 8]));
}

#[test]
fn a_region_that_is_no_longer_exposed_is_out_of_reach_at_once() {
    let Some(nic) = nic() else { return };
    let Case { exposed, keys, duo, here, .. } = Case::new(&nic, Purpose::Plain, Role::Reader);
    let target = keys.read(&layout(), 0, 8).expect("inside");
    duo.initiator.read(1, here.local(0, 8), target, true).expect("posted");
    duo.expect(1, Status::SUCCESS);
    drop(exposed);
    duo.initiator.read(2, here.local(0, 8), target, true).expect("posted");
    refused(duo.next().status());
}
