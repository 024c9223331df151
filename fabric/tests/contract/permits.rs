//! Permissions: whose WRITEs a process lets its region execute.

use super::{Case, Feature, ME, OTHER, PEER, Post, Testbed};
use crate::support::{FLOOD, FLOOD_WORDS, Seen};
use obol_fabric::{Address, LinkError, Permission, Remote, Writers};

type Area = [u64; FLOOD_WORDS];

/// Rounds of turns in which a change is in force that nothing holds up.
const SETTLES: u32 = 5;

impl<B: Testbed> Case<B> {
    /// An area of the driven process's own region.
    fn own_area(&self, id: u64) -> Remote {
        Remote { at: Address::region(ME), offset: self.layout.value(id, 1) }
    }

    #[track_caller]
    fn area(&mut self, at: Remote) -> Area {
        match &self.run(&[Post::Read(at, FLOOD_WORDS as u32 * 8, 0)])[..] {
            [(0, Ok(Seen::Read(bytes)))] => {
                let word = |n: usize| bytes[n * 8..n * 8 + 8].try_into().expect("a word");
                std::array::from_fn(|n| u64::from_le_bytes(word(n)))
            }
            other => panic!("{other:?}"),
        }
    }

    /// Has a peer WRITE into an area of the own region again and again; returns when it does.
    #[track_caller]
    fn flood(&mut self, peer: Address, area: Remote) {
        self.bed.post(&[Post::Send(peer, [FLOOD, &area.offset.to_le_bytes()].concat())]);
        let (before, start) = (self.area(area), self.bed.now());
        while self.area(area) == before {
            assert!(self.bed.now().0 - start.0 < B::HANG_TIMEOUT.0, "{}: {peer} does not WRITE", B::NAME);
            self.settle();
            self.bed.post(&[Post::Send(peer, [FLOOD, &area.offset.to_le_bytes()].concat())]);
        }
    }

    /// Revokes the permission of a process that is frozen. One that is in the middle of a WRITE may
    /// hold that up, until it continues. Returns also whether it did not.
    #[track_caller]
    fn revoke_frozen(&mut self, peer: Address, watched: Remote) -> (Area, bool) {
        let probe = self.bed.probe();
        (probe.watched, probe.at_permit) = (watched.offset, None);
        self.bed.post(&[Post::Permit(Writers::Process(peer), Permission::Revoked, 3)]);
        let mut is_over = false;
        for _ in 0..SETTLES {
            self.settle();
            is_over = self.bed.probe().at_permit.is_some();
            if is_over {
                break;
            }
        }
        self.bed.thaw(PEER);
        assert_eq!(self.completions(1), [(3, Ok(Seen::Permitted))]);
        (self.bed.probe().at_permit.take().expect("read at the completion"), is_over)
    }

    /// Changes permissions, and returns what an area held when the completion came.
    #[track_caller]
    fn permit(&mut self, whom: Writers, permission: Permission, watched: Remote) -> Area {
        let probe = self.bed.probe();
        (probe.watched, probe.at_permit) = (watched.offset, None);
        assert_eq!(self.run(&[Post::Permit(whom, permission, 3)]), [(3, Ok(Seen::Permitted))]);
        self.bed.probe().at_permit.take().expect("read at the completion")
    }

    /// A WRITE that is refused fails so, or as those of a broken link do.
    #[track_caller]
    fn refused(&mut self, to: Remote) {
        let start = self.bed.now();
        loop {
            match &self.run(&[Post::Write(to, vec![1; 8], 0)])[..] {
                [(0, Err(LinkError::Denied))] => return,
                [(0, Err(LinkError::PeerDead))] => {}
                other => panic!("{other:?}"),
            }
            assert!(
                self.bed.now().0 - start.0 < B::HANG_TIMEOUT.0,
                "{}: it is not said to be denied",
                B::NAME
            );
            self.settle();
        }
    }

    /// Whether permissions can be changed. Where they cannot, this is what is reported.
    #[track_caller]
    fn permits(&mut self) -> bool {
        let permits = Self::has(Feature::Permits);
        if !permits {
            let everyone = Post::Permit(Writers::Everyone, Permission::Revoked, 3);
            assert_eq!(self.run(&[everyone]), [(3, Err(LinkError::Unsupported))]);
        }
        permits
    }
}

pub(crate) fn no_revoked_write_is_executed_after_the_permits_completion<B: Testbed>(case: &mut Case<B>) {
    let (peer, other) = (case.peer, case.bed.start(OTHER));
    case.reach(other);
    if !case.permits() {
        return;
    }
    let (theirs, others) = (case.own_area(0), case.own_area(1));
    case.flood(other, others);
    let mut while_frozen = 0;
    for round in 0..15 {
        case.flood(peer, theirs);
        let found = if round % 3 == 2 {
            // What it had begun may still be executed before the permit is in force.
            case.bed.freeze(PEER);
            let (found, is_over) = case.revoke_frozen(peer, theirs);
            while_frozen += u32::from(is_over);
            found
        } else {
            case.permit(Writers::Process(peer), Permission::Revoked, theirs)
        };
        assert_eq!(case.area(theirs), found);
        case.settle();
        // Another process's WRITEs are still executed, whenever it runs.
        case.flood(other, others);
        assert_eq!(case.area(theirs), found, "a revoked WRITE was executed");
        case.permit(Writers::Process(peer), Permission::Granted, theirs);
    }
    assert!(while_frozen > 0, "a frozen process holds up its revocation though it does not WRITE");
    case.flood(peer, theirs);
}

pub(crate) fn changes_of_permissions_take_effect_in_the_order_of_their_posts<B: Testbed>(case: &mut Case<B>) {
    let (peer, other) = (case.peer, case.bed.start(OTHER));
    case.reach(other);
    if !case.permits() {
        return;
    }
    let (theirs, others, own) = (case.own_area(0), case.own_area(1), case.own_area(2));
    case.flood(peer, theirs);
    let results = case.run(&[
        Post::Permit(Writers::Everyone, Permission::Revoked, 1),
        Post::Permit(Writers::Process(other), Permission::Granted, 2),
    ]);
    assert_eq!(results, [(1, Ok(Seen::Permitted)), (2, Ok(Seen::Permitted))]);
    let found = case.area(theirs);
    case.flood(other, others);
    assert_eq!(case.area(theirs), found, "a revoked WRITE was executed");
    // Nor are the own WRITEs; other operations are.
    case.refused(own);
    let slot = Remote { offset: case.layout.slot(0), ..own };
    assert_eq!((case.word(own), case.run(&[Post::Cas(slot, 0, 1, 0)])), (0, vec![(0, Ok(Seen::Swapped(0)))]));
    case.permit(Writers::Everyone, Permission::Granted, own);
    assert_eq!(case.run(&[Post::Write(own, vec![1; 8], 0)]), [(0, Ok(Seen::Written))]);
    case.flood(peer, theirs);
}

pub(crate) fn a_permission_concerns_its_part_of_the_memory_alone<B: Testbed>(case: &mut Case<B>) {
    let (peer, other) = (case.peer, case.bed.start(OTHER));
    case.reach(other);
    if !case.permits() {
        return;
    }
    let (theirs, others) = (case.own_area(0), case.own_area(1));
    let part = theirs.offset..theirs.offset + FLOOD_WORDS as u32 * 8;
    let revoke = Post::PermitPart(Writers::Everyone, part.clone(), Permission::Revoked, 3);
    if !Case::<B>::has(Feature::Parts) {
        assert_eq!(case.run(&[revoke]), [(3, Err(LinkError::Unsupported))]);
        return;
    }
    case.flood(peer, theirs);
    case.flood(other, others);
    assert_eq!(case.run(&[revoke]), [(3, Ok(Seen::Permitted))]);
    let found = case.area(theirs);
    case.flood(other, others);
    assert_eq!(case.area(theirs), found, "a revoked WRITE was executed");
    let grant = Post::PermitPart(Writers::Process(peer), part, Permission::Granted, 3);
    assert_eq!(case.run(&[grant]), [(3, Ok(Seen::Permitted))]);
    case.flood(peer, theirs);
}
