//! Revoking WRITEs over shared memory, under every order of accesses that the memory model allows
//! (`loom`): the design of [`crate::Fabric::permit`] there, which `shm/permits.rs` implements.
//!
//! A process that maps a region can store into it whenever it runs, and one that is stopped between
//! looking at its permission and storing stores later. So each writer has a word that says that it is
//! writing to this region (one for all regions, which names the region, because a writer stores into
//! one at a time). It announces itself, looks at its permission, stores, and withdraws.
//! The owner revokes the permission, and the permit completes when the word was seen clear, or when
//! the writer's death is proved: a dead process stores nothing more.
//!
//! Each side stores one word and then loads the other's, so both need a full fence in between. The
//! writer's is on the path of every WRITE; there it costs nothing if the owner's is `membarrier`,
//! which makes the writer execute one (`MEMBARRIER_CMD_GLOBAL_EXPEDITED`). `loom` has no such call:
//! in the models both sides have a fence of their own, which orders the same accesses.
//!
//! A gateway WRITEs for processes of other hosts: one thread, with one word for all of them. So an
//! owner that revokes the permission of such a process waits for the gateway's word.

use crate::atomic::{AtomicU64, Ordering, fence};
use loom::sync::Arc;
use loom::thread;

/// What is left out of the design, to see that the models detect it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    Nothing,
    /// The writer only looks at its permission and then stores.
    NoWord,
    /// The writer looks before it announces itself.
    LooksFirst,
    /// Neither side has a fence between its store and its load.
    NoFence,
    /// The owner does not wait for the word.
    NoWait,
    /// The owner takes a writer that is suspected for dead.
    TrustsSuspicion,
    /// The owner grants the next writer its permission before it has revoked this one's.
    GrantsFirst,
    /// The owner waits for the word of the process that it names, but a gateway WRITEs for that one.
    ForgetsGateway,
    /// Two threads of a gateway announce themselves in one word.
    TwoThreads,
}

/// The word of the gateway that WRITEs for both writers.
const GATEWAY: usize = 1;

/// A region that two writers may write, and what its owner knows of the first one's death.
struct Region {
    planted: Planted,
    permitted: [AtomicU64; 2],
    writing: [AtomicU64; 2],
    /// Two words; a WRITE stores both.
    log: [AtomicU64; 2],
    suspected: AtomicU64,
    proved: AtomicU64,
}

impl Region {
    fn new(planted: Planted) -> Arc<Self> {
        let zeros = || [AtomicU64::new(0), AtomicU64::new(0)];
        Arc::new(Self {
            planted,
            permitted: [AtomicU64::new(1), AtomicU64::new(0)],
            writing: zeros(),
            log: zeros(),
            suspected: AtomicU64::new(0),
            proved: AtomicU64::new(0),
        })
    }

    fn is(&self, planted: Planted) -> bool {
        self.planted == planted
    }

    fn fence(&self) {
        if !self.is(Planted::NoFence) {
            fence(Ordering::SeqCst);
        }
    }

    fn may_write(&self, writer: usize) -> bool {
        self.permitted[writer].load(Ordering::Acquire) == 1
    }

    /// A WRITE of one number; `dies` after the first word, in the middle of it.
    fn write(&self, writer: usize, number: u64, dies: bool) -> bool {
        self.write_by(writer, writer, number, dies)
    }

    /// A WRITE for a writer, announced in this word.
    fn write_by(&self, word: usize, writer: usize, number: u64, dies: bool) -> bool {
        let looked = self.is(Planted::LooksFirst).then(|| self.may_write(writer));
        if !self.is(Planted::NoWord) {
            self.writing[word].store(1, Ordering::Relaxed);
            self.fence();
        }
        let may = looked.unwrap_or_else(|| self.may_write(writer));
        if may {
            self.log[0].store(number, Ordering::Relaxed);
            if dies {
                return false;
            }
            self.log[1].store(number, Ordering::Relaxed);
        }
        self.writing[word].store(0, Ordering::Release);
        may
    }

    /// Revokes a writer's permission. Returns when that is in force.
    fn revoke(&self, writer: usize) {
        self.revoke_by(writer, writer);
    }

    /// Revokes the permission of a writer whose WRITEs are announced in this word.
    fn revoke_by(&self, word: usize, writer: usize) {
        self.permitted[writer].store(0, Ordering::Release);
        self.fence();
        if self.is(Planted::NoWait) {
            return;
        }
        let gone = if self.is(Planted::TrustsSuspicion) { &self.suspected } else { &self.proved };
        while self.writing[word].load(Ordering::Acquire) != 0 && gone.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
    }

    fn found(&self) -> [u64; 2] {
        [0, 1].map(|n| self.log[n].load(Ordering::Relaxed))
    }
}

/// A writer that WRITEs twice while its permission is revoked.
fn revoked_while_it_writes(planted: Planted) {
    loom::model(move || {
        let region = Region::new(planted);
        let shared = Arc::clone(&region);
        let writer = thread::spawn(move || shared.write(0, 1, false) && shared.write(0, 2, false));
        region.revoke(0);
        let found = region.found();
        writer.join().expect("the writer ends");
        assert_eq!(region.found(), found, "a revoked WRITE was executed");
        assert_eq!(found[0], found[1], "a WRITE is still executed in part");
    });
}

/// A writer that is suspected while it runs, and dies in the middle of a WRITE.
fn revoked_while_it_dies(planted: Planted) {
    loom::model(move || {
        let region = Region::new(planted);
        let shared = Arc::clone(&region);
        let writer = thread::spawn(move || {
            shared.suspected.store(1, Ordering::Release);
            shared.write(0, 1, true);
            // By the kernel, when its last thread has ended.
            shared.proved.store(1, Ordering::Release);
        });
        region.revoke(0);
        let found = region.found();
        writer.join().expect("the writer ends");
        assert_eq!(region.found(), found, "a revoked WRITE was executed");
    });
}

/// The permission moves from one writer to another, which is notified when it has it.
fn passed_on(planted: Planted) {
    let mut model = loom::model::Builder::new();
    // Unbounded, three threads take too long.
    model.preemption_bound = Some(3);
    model.check(move || {
        let region = Region::new(planted);
        let (old, new) = (Arc::clone(&region), Arc::clone(&region));
        let first = thread::spawn(move || old.write(0, 1, false));
        let second = thread::spawn(move || new.write(1, 2, false));
        let grant = || region.permitted[1].store(1, Ordering::Release);
        if region.is(Planted::GrantsFirst) {
            grant();
        }
        region.revoke(0);
        grant();
        first.join().expect("the first writer ends");
        let wrote = second.join().expect("the second writer ends");
        if wrote {
            assert_eq!(region.found(), [2, 2], "the earlier leader's WRITE overwrote the later one's");
        }
    });
}

/// A gateway WRITEs for a process whose permission is revoked, and for one that has none.
fn revoked_behind_a_gateway(planted: Planted) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let region = Region::new(planted);
        let (one, other) = (Arc::clone(&region), Arc::clone(&region));
        let two = region.is(Planted::TwoThreads);
        let first = thread::spawn(move || {
            one.write_by(GATEWAY, 0, 1, false);
            assert!(two || !one.write_by(GATEWAY, 1, 2, false), "it has no permission");
        });
        let second = two.then(|| thread::spawn(move || other.write_by(GATEWAY, 1, 2, false)));
        region.revoke_by(if region.is(Planted::ForgetsGateway) { 0 } else { GATEWAY }, 0);
        let found = region.found();
        first.join().expect("the gateway ends");
        if let Some(second) = second {
            second.join().expect("its second thread ends");
        }
        assert_eq!(region.found(), found, "a revoked WRITE was executed");
    });
}

#[test]
fn no_revoked_write_is_executed_by_a_gateway_whose_word_was_clear() {
    revoked_behind_a_gateway(Planted::Nothing);
}

#[test]
#[should_panic(expected = "a revoked WRITE was executed")]
fn an_owner_that_forgets_the_gateway_is_detected() {
    revoked_behind_a_gateway(Planted::ForgetsGateway);
}

#[test]
#[should_panic(expected = "a revoked WRITE was executed")]
fn two_threads_with_one_word_are_detected() {
    revoked_behind_a_gateway(Planted::TwoThreads);
}

#[test]
fn no_revoked_write_is_executed_once_the_word_was_clear() {
    revoked_while_it_writes(Planted::Nothing);
}

#[test]
fn a_writer_that_died_in_a_write_holds_up_nothing_once_that_is_proved() {
    revoked_while_it_dies(Planted::Nothing);
}

#[test]
fn what_the_next_writer_writes_is_not_overwritten_by_the_last_one() {
    passed_on(Planted::Nothing);
}

#[test]
#[should_panic(expected = "a revoked WRITE was executed")]
fn a_look_without_the_word_is_detected() {
    revoked_while_it_writes(Planted::NoWord);
}

#[test]
#[should_panic(expected = "a revoked WRITE was executed")]
fn a_look_before_the_word_is_detected() {
    revoked_while_it_writes(Planted::LooksFirst);
}

#[test]
#[should_panic(expected = "a revoked WRITE was executed")]
fn a_missing_fence_is_detected() {
    revoked_while_it_writes(Planted::NoFence);
}

#[test]
#[should_panic(expected = "a revoked WRITE was executed")]
fn an_owner_that_does_not_wait_is_detected() {
    revoked_while_it_writes(Planted::NoWait);
}

#[test]
#[should_panic(expected = "a revoked WRITE was executed")]
fn a_suspicion_in_place_of_a_proof_is_detected() {
    revoked_while_it_dies(Planted::TrustsSuspicion);
}

#[test]
#[should_panic(expected = "overwrote the later one's")]
fn a_grant_before_the_revocation_is_detected() {
    passed_on(Planted::GrantsFirst);
}
