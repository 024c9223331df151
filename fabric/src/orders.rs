//! Words that two processes use at once, under every order of their accesses that the memory model allows (`loom`):
//! the lease page, the flight recorder, and the datagram lanes.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p obol-fabric` runs these and nothing else that touches atomics.

use crate::atomic::{AtomicU64, Ordering};
use crate::lanes::{self, Sender, Taken};
use crate::layout::{Layout, Limits};
use crate::memory;
use crate::page::{self, Page};
use crate::recorder::{self, Kind, Record};
use crate::types::{Instant, ViewId};
use loom::sync::Arc;
use loom::thread;

/// The smallest region, because every word of it is a thing that a model keeps track of.
const LIMITS: Limits = Limits {
    seats: 1,
    slots: 4,
    proposers: 1,
    value_bytes: 512,
    lanes: 4,
    lane_slots: 2,
    datagram_bytes: 512,
    recorder_events: 16,
};

fn page_of(n: u64) -> Page {
    Page { view: ViewId(n), base: ViewId(n), start: Instant(n), end: Instant(n + 100) }
}

#[test]
fn a_page_is_read_whole_or_not_at_all() {
    loom::model(|| {
        let words: Arc<[AtomicU64; page::WORDS]> = Arc::new(core::array::from_fn(|_| AtomicU64::new(0)));
        page::publish(&words, &page_of(1));
        let reader = Arc::clone(&words);
        let read = thread::spawn(move || {
            if let Some(page) = page::load(&reader) {
                assert!([page_of(1), page_of(2)].contains(&page), "{page:?}");
            }
        });
        page::publish(&words, &page_of(2));
        read.join().expect("the reader ends");
        assert_eq!(page::load(&words), Some(page_of(2)));
    });
}

#[test]
fn whoever_learns_that_a_fence_was_raised_finds_the_page_inactive() {
    loom::model(|| {
        let words: Arc<[AtomicU64; page::WORDS]> = Arc::new(core::array::from_fn(|_| AtomicU64::new(0)));
        page::publish(&words, &page_of(1));
        let told = Arc::new(AtomicU64::new(0));
        let (raised, tell) = (Arc::clone(&words), Arc::clone(&told));
        let leader = thread::spawn(move || {
            let found = raised[page::FENCE].compare_exchange(0, 2, Ordering::AcqRel, Ordering::Acquire);
            assert_eq!(found, Ok(0));
            tell.store(1, Ordering::Release);
        });
        // The holder goes on renewing meanwhile.
        page::publish(&words, &page_of(1));
        if told.load(Ordering::Acquire) == 1 {
            assert!(!page::active(&words, ViewId(1), || Instant(50)));
        }
        leader.join().expect("the leader ends");
        assert!(!page::active(&words, ViewId(1), || Instant(50)));
    });
}

#[test]
fn an_event_is_read_whole_and_in_order_while_the_ring_runs_over() {
    let mut model = loom::model::Builder::new();
    // Without a bound this takes minutes; without the fence in `write` one switch of threads shows a mixed event.
    model.preemption_bound = Some(3);
    model.check(|| {
        let ring = Arc::new(memory::zeroed(recorder::words(2) * 8));
        let write = |ring: &[AtomicU64], n| {
            recorder::write(ring, Instant(100 + n), Record::new(Kind::Decide, n, 10 + n));
        };
        write(&ring, 0);
        write(&ring, 1);
        let reader = Arc::clone(&ring);
        let read = thread::spawn(move || {
            let events = recorder::read(&reader, 0);
            for event in &events {
                let n = event.number;
                assert_eq!(event.at, Instant(100 + n));
                assert_eq!((event.record.a, event.record.b), (n, 10 + n));
            }
            assert!(events.is_sorted_by_key(|e| e.number));
        });
        // The second of these overwrites the one event that a reader may trust.
        write(&ring, 2);
        write(&ring, 3);
        read.join().expect("the reader ends");
    });
}

/// All senders begin with lane 0, so that they meet.
const fn sender(n: u32) -> Sender {
    Sender { region: n * LIMITS.lanes, generation: 1 }
}

const A: Sender = sender(1);
const B: Sender = sender(2);

#[test]
fn datagrams_are_taken_whole_and_in_order_while_others_are_sent() {
    loom::model(|| {
        let layout = Layout::new(LIMITS).expect("in bounds");
        let words = Arc::new(memory::zeroed(layout.bytes()));
        let receiver = Arc::clone(&words);
        let receive = thread::spawn(move || {
            let mut out = Vec::new();
            let mut next = 1;
            for _ in 0..3 {
                match lanes::take(&receiver, &layout, 0, &mut out) {
                    Taken::Empty => {}
                    Taken::Datagram(A, 16) => {
                        assert_eq!(out, [next; 16]);
                        next += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
        });
        let lane = lanes::claim(&words, &layout, A).expect("free");
        for n in 1..=2 {
            assert!(lanes::push(&words, &layout, lane, &[n; 16]));
        }
        // Around the ring: lost if the receiver has not taken the first yet.
        let _lost_or_sent = lanes::push(&words, &layout, lane, &[3; 16]);
        receive.join().expect("the receiver ends");
    });
}

#[test]
fn two_senders_never_share_a_lane_though_one_is_freed_meanwhile() {
    loom::model(|| {
        let layout = Layout::new(LIMITS).expect("in bounds");
        let words = Arc::new(memory::zeroed(layout.bytes()));
        let gone = sender(3);
        assert_eq!(lanes::claim(&words, &layout, gone), Some(0));
        let other = Arc::clone(&words);
        let claim = thread::spawn(move || lanes::claim(&other, &layout, A));
        let receiver = Arc::clone(&words);
        let free = thread::spawn(move || lanes::free(&receiver, &layout, |sender| sender == gone));
        let mine = lanes::claim(&words, &layout, B);
        let theirs = claim.join().expect("the sender ends");
        free.join().expect("the receiver ends");
        assert!(mine.is_some() || theirs.is_some());
        assert!(mine.is_none() || mine != theirs);
    });
}
