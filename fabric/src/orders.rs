//! Concurrently used words under every order of accesses that the memory model allows (`loom`): the
//! lease page, WRITEs before a check of it, what coordinators state, the flight recorder, and the
//! datagram lanes.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p obol-fabric` runs only these tests.

mod revocations;

use crate::atomic::{AtomicU64, Ordering};
use crate::lanes::{self, Pending, Taken};
use crate::layout::{Layout, Limits};
use crate::memory::{self, Stores};
use crate::page::{self, Page};
use crate::recorder::{self, EventCode, Record};
use crate::types::{Instant, Nanos, RegionOwner, ViewId};
use crate::view_area;
use loom::sync::Arc;
use loom::thread;

/// The smallest region, because the model tracks every word of it.
const LIMITS: Limits = Limits::LEAST;

fn page_of(n: u64) -> Page {
    Page {
        view: ViewId(n),
        base: ViewId(n),
        start: Instant(n),
        end: Instant(n + 100),
        confirmed: Instant(n + 50),
        verified: Instant(n + 40),
        lease: Nanos(n + 60),
        retired: n,
    }
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
        let done = Arc::new(AtomicU64::new(0));
        let (raised, tx) = (Arc::clone(&words), Arc::clone(&done));
        let leader = thread::spawn(move || {
            let found = raised[page::FENCE].compare_exchange(0, 2, Ordering::AcqRel, Ordering::Acquire);
            assert_eq!(found, Ok(0));
            tx.store(1, Ordering::Release);
        });
        // The holder keeps renewing meanwhile.
        page::publish(&words, &page_of(1));
        if done.load(Ordering::Acquire) == 1 {
            assert!(!page::active(&words, ViewId(1), || Instant(50)));
        }
        leader.join().expect("the leader ends");
        assert!(!page::active(&words, ViewId(1), || Instant(50)));
    });
}

type Words = Arc<[AtomicU64; page::WORDS]>;

/// A page that is active on view 1 at time 50, and a word of another process.
fn active_page_and_word() -> (Words, Arc<AtomicU64>) {
    let words: Words = Arc::new(core::array::from_fn(|_| AtomicU64::new(0)));
    page::publish(&words, &page_of(1));
    (words, Arc::new(AtomicU64::new(0)))
}

/// Raises the fence as a coordinator does, whose machine gets the completion before it sends CLEAR.
fn raise(words: &Words) {
    let mut stores = Stores::default();
    assert_eq!(memory::swap(&words[page::FENCE], 0, 2), 0);
    stores.add();
    stores.settle();
}

/// Two programs: `first` acts in view 1 and then checks its lease; the other one raises the fence
/// and then does what only view 2 permits. `judge` checks both results.
fn race<T: Send + 'static>(
    first: impl Fn(&Words, &AtomicU64) -> T + Send + Sync + Copy + 'static,
    second: impl Fn(&AtomicU64) -> u64 + Send + Sync + Copy + 'static,
    judge: impl Fn(T, u64) + Send + Sync + 'static,
) {
    loom::model(move || {
        let (words, word) = active_page_and_word();
        let (page, mine) = (Arc::clone(&words), Arc::clone(&word));
        let old = thread::spawn(move || first(&page, &mine));
        raise(&words);
        let found = second(&word);
        judge(old.join().expect("the old primary ends"), found);
    });
}

#[test]
fn what_was_written_before_an_answer_is_found_by_whoever_raised_the_fence() {
    // A primary WRITEs a record to its backup, gets the completion, checks its lease and answers.
    // The backup takes over.
    let primary = |words: &Words, log: &AtomicU64| {
        let mut stores = Stores::default();
        memory::write(core::slice::from_ref(log), &7u64.to_le_bytes());
        stores.add();
        stores.settle();
        page::active(words, ViewId(1), || Instant(50))
    };
    let backup = |log: &AtomicU64| log.load(Ordering::Relaxed);
    race(primary, backup, |answered, found| {
        assert!(!answered || found == 7, "answered, and the backup has not got it");
    });
}

#[test]
fn stores_before_a_check_are_visible_to_the_process_that_raised_the_fence() {
    let program = |words: &Words, shared: &AtomicU64| {
        shared.store(7, Ordering::Relaxed);
        page::still_active(words, ViewId(1), || Instant(50))
    };
    let successor = |shared: &AtomicU64| shared.load(Ordering::Relaxed);
    race(program, successor, |counts, found| {
        assert!(!counts || found == 7, "its effect counts, and its successor does not find it");
    });
}

/// Reads, and then checks whether the result counts.
fn read_and_look(words: &Words, shared: &AtomicU64) -> (u64, bool) {
    let read = shared.load(Ordering::Relaxed);
    (read, page::active(words, ViewId(1), || Instant(50)))
}

fn counts_only_if_older((read, counts): (u64, bool)) {
    assert!(!counts || read == 0, "what it read belongs to a later view, and it counts in the earlier one");
}

#[test]
fn what_a_successor_wrote_is_not_read_by_work_that_counts() {
    let successor = |shared: &AtomicU64| {
        shared.store(7, Ordering::Relaxed);
        7
    };
    race(read_and_look, successor, |old, _| counts_only_if_older(old));
}

#[test]
fn what_was_written_after_the_page_was_given_up_is_not_read_by_work_that_counts() {
    loom::model(|| {
        let (words, word) = active_page_and_word();
        let (page, mine) = (Arc::clone(&words), Arc::clone(&word));
        let old = thread::spawn(move || read_and_look(&page, &mine));
        page::publish(&words, &Page::default());
        word.store(7, Ordering::Release);
        counts_only_if_older(old.join().expect("the program ends"));
    });
}

/// Words of a view area with room for eight bytes.
const AREA: usize = 5;

/// What a leader does before programs may use view 2 ahead of their agent, and then rings.
fn state(words: &Words, area: &[AtomicU64], news: &AtomicU64) {
    raise(words);
    assert!(view_area::publish(area, ViewId(2), &[2; 8]));
    view_area::publish_cleared(area, ViewId(2));
    news.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn whoever_counts_a_ring_finds_what_was_stated_and_whoever_finds_a_clear_finds_the_fence() {
    loom::model(|| {
        let (words, news) = active_page_and_word();
        let area = Arc::new(memory::zeroed(AREA * 8));
        let (page, of, rung) = (Arc::clone(&words), Arc::clone(&area), Arc::clone(&news));
        let leader = thread::spawn(move || state(&page, &of, &rung));
        let heard = news.load(Ordering::Acquire);
        let mut bytes = Vec::new();
        let view = view_area::load(&area, &mut bytes, &mut 0);
        let cleared = view_area::cleared(&area);
        assert!(view.is_none() || (view, &*bytes) == (Some(ViewId(2)), &[2; 8]), "{view:?} {bytes:?}");
        assert!(heard == 0 || view.is_some() && cleared == ViewId(2), "it would sleep, and nobody rings");
        assert!(cleared == ViewId::GENESIS || page::fenced(&words) == ViewId(2), "view 1 is active still");
        leader.join().expect("the leader ends");
    });
}

#[test]
fn stores_of_a_program_ahead_of_its_agent_are_visible_to_the_process_that_raised_the_fence() {
    let ahead = |words: &Words, shared: &AtomicU64| {
        shared.store(7, Ordering::Relaxed);
        // The page is on another view; then the rule reads page and fence again.
        let is_active = page::still_active(words, ViewId(0), || Instant(50));
        is_active || page::load(words).is_some() && page::fenced(words) <= ViewId(1)
    };
    let successor = |shared: &AtomicU64| shared.load(Ordering::Relaxed);
    race(ahead, successor, |counts, found| {
        assert!(!counts || found == 7, "its effect counts, and its successor does not find it");
    });
}

#[test]
fn a_read_that_is_posted_after_a_write_is_executed_after_it() {
    // Two processes WRITE and then READ each other's word: at least one finds the other's value.
    loom::model(|| {
        let words: Arc<[AtomicU64; 2]> = Arc::new(core::array::from_fn(|_| AtomicU64::new(0)));
        let run = |words: &[AtomicU64; 2], own: usize| {
            let mut stores = Stores::default();
            memory::write(&words[own..=own], &1u64.to_le_bytes());
            stores.add();
            stores.settle();
            words[1 - own].load(Ordering::Acquire)
        };
        let theirs = Arc::clone(&words);
        let other = thread::spawn(move || run(&theirs, 1));
        let found = run(&words, 0);
        assert!(found == 1 || other.join().expect("the other ends") == 1);
    });
}

#[test]
fn an_event_is_read_whole_and_in_order_while_the_ring_runs_over() {
    let mut model = loom::model::Builder::new();
    // Unbounded, this takes minutes; without the fence in `write` one switch of threads shows a
    // mixed event.
    model.preemption_bound = Some(3);
    model.check(|| {
        let ring = Arc::new(memory::zeroed(recorder::words(2) * 8));
        let write = |ring: &[AtomicU64], n| {
            recorder::write(ring, Instant(100 + n), Record::new(EventCode::new(3), n, 10 + n));
        };
        write(&ring, 0);
        write(&ring, 1);
        let reader = Arc::clone(&ring);
        let read = thread::spawn(move || {
            let events = recorder::read::<EventCode>(&reader, 0);
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

/// All senders start with lane 0, so that they conflict.
const fn sender(n: u32) -> RegionOwner {
    RegionOwner { region: n * LIMITS.lanes, generation: 1 }
}

const A: RegionOwner = sender(1);
const B: RegionOwner = sender(2);

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
fn whatever_was_sent_is_announced_until_it_is_taken() {
    loom::model(|| {
        let layout = Layout::new(LIMITS).expect("in bounds");
        let words = Arc::new(memory::zeroed(layout.bytes()));
        let round = move |words: &[AtomicU64]| {
            let (pending, mut out, mut taken) = (Pending::take(words), Vec::new(), 0);
            while pending.has(0) && matches!(lanes::take(words, &layout, 0, &mut out), Taken::Datagram(..)) {
                taken += 1;
            }
            taken
        };
        let receiver = Arc::clone(&words);
        let receive = thread::spawn(move || round(&receiver));
        let lane = lanes::claim(&words, &layout, A).expect("free");
        assert!(lanes::push(&words, &layout, lane, &[1; 8]) && lanes::push(&words, &layout, lane, &[2; 8]));
        let during = receive.join().expect("the receiver ends");
        assert_eq!(during + round(&words), 2);
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
