//! Datagram rings: one lane per sender in each receiver's region, with one writer and one reader.
//!
//! A sender claims a lane by writing its identity into it, fills slots, publishes them by advancing
//! `head`, and announces the lane; the receiver takes them at `tail`. A sender that dies while it
//! fills a slot has published nothing; for one that dies before the announcement, the receiver makes
//! it when it tidies up. Datagrams to a full lane are lost.

use crate::atomic::{AtomicU64, Ordering};
use crate::layout::{DATAGRAM_HEAD_BYTES, Lane, Layout, PENDING_WORDS, SENDER_BYTES};
use crate::memory;
use crate::types::RegionOwner;
use core::mem::offset_of;

/// The result of [`take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// No datagram is pending.
    Empty,
    /// A datagram of this length, now in the buffer.
    Datagram(RegionOwner, usize),
    /// The lane or the datagram was invalid and was skipped.
    Refused,
}

fn word<'a>(words: &'a [AtomicU64], layout: &Layout, lane: u32, offset: usize) -> Option<&'a AtomicU64> {
    if lane >= layout.limits().lanes {
        return None;
    }
    words.get((layout.lane(lane) as usize + offset) / 8)
}

/// The slot of datagram `n`: its length word and its bytes.
fn slot<'a>(
    words: &'a [AtomicU64],
    layout: &Layout,
    lane: u32,
    n: u64,
) -> Option<(&'a AtomicU64, &'a [AtomicU64])> {
    let bytes = DATAGRAM_HEAD_BYTES + SENDER_BYTES + layout.limits().datagram_bytes as usize;
    memory::span(words, layout.datagram(lane, n), bytes)?.split_first()
}

/// This sender's lane in a receiver's region, claimed now if necessary; `None` if all are taken.
/// Senders start their searches at different lanes, so that few pages are touched.
#[must_use]
pub(crate) fn claim(words: &[AtomicU64], layout: &Layout, sender: RegionOwner) -> Option<u32> {
    let lanes = layout.limits().lanes;
    let first = sender.region % lanes;
    (first..lanes).chain(0..first).find(|&lane| {
        word(words, layout, lane, offset_of!(Lane, owner)).is_some_and(|owner| {
            match owner.compare_exchange(0, sender.word(), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => true,
                Err(holder) => holder == sender.word(),
            }
        })
    })
}

/// Whether a lane belongs to this sender.
#[must_use]
pub(crate) fn is_held(words: &[AtomicU64], layout: &Layout, lane: u32, sender: RegionOwner) -> bool {
    word(words, layout, lane, offset_of!(Lane, owner))
        .is_some_and(|w| w.load(Ordering::Relaxed) == sender.word())
}

/// Announcements that the receiver has taken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pending([u64; PENDING_WORDS]);

impl Pending {
    /// Takes those of a region. Only the receiver may call this.
    pub(crate) fn take(words: &[AtomicU64]) -> Self {
        let (first, _) = Layout::pending(0);
        let mut taken = Self::default();
        for (taken, word) in taken.0.iter_mut().zip(words.iter().skip(first as usize / 8)) {
            if word.load(Ordering::Relaxed) != 0 {
                *taken = word.swap(0, Ordering::Acquire);
            }
        }
        taken
    }

    /// Whether there may be datagrams in a lane.
    pub(crate) fn has(&self, lane: u32) -> bool {
        let ((first, _), (at, bit)) = (Layout::pending(0), Layout::pending(lane));
        self.0.get((at - first) as usize / 8).is_some_and(|word| word & bit != 0)
    }
}

/// Announces the datagrams of a lane.
pub(crate) fn announce(words: &[AtomicU64], lane: u32) {
    let (at, bit) = Layout::pending(lane);
    if let Some(word) = words.get(at as usize / 8) {
        word.fetch_or(bit, Ordering::Release);
    }
}

/// Puts a datagram into a lane that the caller holds. `false` if the lane is full and the datagram
/// is lost.
#[must_use]
pub(crate) fn push(words: &[AtomicU64], layout: &Layout, lane: u32, bytes: &[u8]) -> bool {
    let at = |offset| word(words, layout, lane, offset);
    let (Some(head), Some(tail), Some(lost)) =
        (at(offset_of!(Lane, head)), at(offset_of!(Lane, tail)), at(offset_of!(Lane, lost)))
    else {
        return false;
    };
    let number = head.load(Ordering::Relaxed);
    let waiting = number.wrapping_sub(tail.load(Ordering::Acquire));
    let full = waiting >= u64::from(layout.limits().lane_slots);
    match slot(words, layout, lane, number) {
        Some((len, body)) if !full && bytes.len() <= body.len() * 8 => {
            len.store(bytes.len() as u64, Ordering::Relaxed);
            memory::copy_in(body, bytes);
            head.store(number.wrapping_add(1), Ordering::Release);
            announce(words, lane);
            true
        }
        _ => {
            crate::metrics::add(lost, 1);
            false
        }
    }
}

/// Takes the oldest datagram of a lane into `out`, which is resized. Only the receiver may call
/// this.
pub(crate) fn take(words: &[AtomicU64], layout: &Layout, lane: u32, out: &mut Vec<u8>) -> Taken {
    let at = |offset| word(words, layout, lane, offset);
    let (Some(owner), Some(head), Some(tail)) =
        (at(offset_of!(Lane, owner)), at(offset_of!(Lane, head)), at(offset_of!(Lane, tail)))
    else {
        return Taken::Empty;
    };
    let sender = owner.load(Ordering::Acquire);
    // Only a drained lane is freed.
    if sender == 0 {
        return Taken::Empty;
    }
    let end = head.load(Ordering::Acquire);
    let number = tail.load(Ordering::Relaxed);
    match end.wrapping_sub(number) {
        0 => return Taken::Empty,
        n if n > u64::from(layout.limits().lane_slots) => {
            tail.store(end, Ordering::Release);
            return Taken::Refused;
        }
        _ => {}
    }
    let sender = RegionOwner::of(sender);
    let taken = slot(words, layout, lane, number).and_then(|(len, body)| {
        let len = usize::try_from(len.load(Ordering::Relaxed)).ok().filter(|&n| n <= body.len() * 8)?;
        out.resize(len, 0);
        memory::copy_out(body, out);
        Some(Taken::Datagram(sender, len))
    });
    tail.store(number.wrapping_add(1), Ordering::Release);
    taken.unwrap_or(Taken::Refused)
}

/// Frees the lanes that are drained and whose senders are gone, and announces those that are not
/// drained: their senders may have died before they did. Returns whether there was one. Only the
/// receiver may call this.
pub(crate) fn free(
    words: &[AtomicU64],
    layout: &Layout,
    mut is_gone: impl FnMut(RegionOwner) -> bool,
) -> bool {
    let mut announced = false;
    for lane in 0..layout.limits().lanes {
        let at = |offset| word(words, layout, lane, offset);
        let (Some(owner), Some(head), Some(tail)) =
            (at(offset_of!(Lane, owner)), at(offset_of!(Lane, head)), at(offset_of!(Lane, tail)))
        else {
            return announced;
        };
        let found = owner.load(Ordering::Relaxed);
        // The order matters: a sender that is gone publishes nothing more, so the lane stays
        // drained.
        if found == 0 || !is_gone(RegionOwner::of(found)) {
            continue;
        }
        if head.load(Ordering::Acquire) == tail.load(Ordering::Relaxed) {
            let _ = owner.compare_exchange(found, 0, Ordering::AcqRel, Ordering::Relaxed);
        } else {
            announce(words, lane);
            announced = true;
        }
    }
    announced
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::host::test;
    use crate::layout::Limits;

    const LIMITS: Limits = Limits { lanes: 4, ..test::LIMITS };

    const A: RegionOwner = RegionOwner { region: 9, generation: 1 };
    const B: RegionOwner = RegionOwner { region: 10, generation: 4 };

    fn lane() -> (Layout, Box<[AtomicU64]>, Vec<u8>) {
        let layout = Layout::new(LIMITS).expect("in bounds");
        (layout, memory::zeroed(layout.bytes()), Vec::new())
    }

    #[test]
    fn datagrams_come_out_in_order_many_times_around_the_ring() {
        let (layout, words, mut out) = lane();
        let n = claim(&words, &layout, A).expect("free");
        assert_eq!(claim(&words, &layout, A), Some(n), "its own again");
        for round in 0..5 * LIMITS.lane_slots as usize {
            let text = vec![round as u8; round % 600];
            assert!(push(&words, &layout, n, &text));
            assert!(push(&words, &layout, n, b"second"));
            assert_eq!(take(&words, &layout, n, &mut out), Taken::Datagram(A, text.len()));
            assert_eq!(out, text);
            assert_eq!(take(&words, &layout, n, &mut out), Taken::Datagram(A, 6));
            assert_eq!(out, b"second");
            assert_eq!(take(&words, &layout, n, &mut out), Taken::Empty);
        }
    }

    #[test]
    fn a_second_thread_of_a_process_has_a_lane_of_its_own_which_is_freed_with_the_process() {
        let (layout, words, mut out) = lane();
        let first = claim(&words, &layout, A).expect("free");
        let second = claim(&words, &layout, A.second_thread()).expect("free");
        assert_ne!(first, second);
        assert!(is_held(&words, &layout, second, A.second_thread()) && !is_held(&words, &layout, second, A));
        assert!(push(&words, &layout, second, b"word"));
        assert_eq!(take(&words, &layout, second, &mut out), Taken::Datagram(A, 4));
        assert_eq!(take(&words, &layout, second, &mut out), Taken::Empty);
        free(&words, &layout, |sender| sender == A);
        assert!(!is_held(&words, &layout, second, A.second_thread()), "freed");
    }

    #[test]
    fn what_a_gateway_delivers_for_one_host_fills_no_lane_of_another_host() {
        let (layout, words, mut out) = lane();
        let [first, second] = [1, 31].map(|host| {
            let n = claim(&words, &layout, A.on_behalf_of(host)).expect("free");
            assert!(is_held(&words, &layout, n, A.on_behalf_of(host)) && !is_held(&words, &layout, n, A));
            n
        });
        for _ in 0..LIMITS.lane_slots {
            assert!(push(&words, &layout, first, b"flood"));
        }
        assert!(!push(&words, &layout, first, b"lost"));
        assert!(push(&words, &layout, second, b"heard"));
        assert_eq!(
            take(&words, &layout, second, &mut out),
            Taken::Datagram(A, 5),
            "the gateway is the sender"
        );
        assert_eq!(take(&words, &layout, second, &mut out), Taken::Empty);
        free(&words, &layout, |sender| sender == A);
        assert!(!is_held(&words, &layout, second, A.on_behalf_of(31)), "freed with the gateway");
        assert!(is_held(&words, &layout, first, A.on_behalf_of(1)), "not drained");
    }

    #[test]
    fn a_full_lane_loses_and_counts() {
        let (layout, words, mut out) = lane();
        let n = claim(&words, &layout, A).expect("free");
        for i in 0..LIMITS.lane_slots {
            assert!(push(&words, &layout, n, &[i as u8]));
        }
        assert!(!push(&words, &layout, n, b"lost"));
        assert!(!push(&words, &layout, n, &vec![0; LIMITS.datagram_bytes as usize + SENDER_BYTES + 1]));
        let lost = word(&words, &layout, n, offset_of!(Lane, lost)).expect("a lane");
        assert_eq!(lost.load(Ordering::Relaxed), 2);
        assert_eq!(take(&words, &layout, n, &mut out), Taken::Datagram(A, 1));
        assert!(push(&words, &layout, n, b"fits again"));
    }

    #[test]
    fn a_sender_that_dies_in_the_middle_has_sent_nothing_and_its_lane_is_reused_once_drained() {
        let (layout, words, mut out) = lane();
        for i in 0..LIMITS.lanes {
            let n = claim(&words, &layout, RegionOwner { region: 20 + i, generation: 1 }).expect("free");
            assert!(push(&words, &layout, n, b"sent"));
            let (len, _) = slot(&words, &layout, n, 1).expect("a slot");
            len.store(u64::MAX, Ordering::Relaxed);
        }
        assert_eq!(claim(&words, &layout, A), None, "all taken");
        free(&words, &layout, |s| s.region == 21);
        assert_eq!(claim(&words, &layout, A), None, "not drained");
        let gone = RegionOwner { region: 21, generation: 1 };
        assert_eq!(take(&words, &layout, 1, &mut out), Taken::Datagram(gone, 4));
        assert_eq!(take(&words, &layout, 1, &mut out), Taken::Empty);
        free(&words, &layout, |s| s.region == 21);
        assert_eq!(claim(&words, &layout, A), Some(1));
        assert_eq!(claim(&words, &layout, B), None);
        assert!(push(&words, &layout, 1, b"after"));
        assert_eq!(take(&words, &layout, 1, &mut out), Taken::Datagram(A, 5));
    }

    #[test]
    fn a_lane_is_announced_once_for_each_round_and_for_a_sender_that_died_before_it_did() {
        let (layout, words, _) = lane();
        let announced = || (0..LIMITS.lanes).map(|lane| Pending::take(&words).has(lane)).collect::<Vec<_>>();
        let n = claim(&words, &layout, A).expect("free");
        assert_eq!(n, 1);
        assert!(push(&words, &layout, n, b"one") && push(&words, &layout, n, b"two"));
        let round = Pending::take(&words);
        assert!(round.has(1) && !round.has(0) && !round.has(2));
        assert_eq!(
            announced(),
            [false; 4],
            "the announcement was taken, as if its sender had died before it"
        );
        assert!(!free(&words, &layout, |sender| sender == B), "its sender lives");
        assert_eq!(announced(), [false; 4]);
        assert!(free(&words, &layout, |sender| sender == A));
        assert!(Pending::take(&words).has(1));
    }

    #[test]
    fn what_is_taken_while_another_thread_sends_is_whole_and_in_order() {
        const DATAGRAMS: u32 = 20_000;
        let (layout, words, mut out) = lane();
        let n = claim(&words, &layout, A).expect("free");
        std::thread::scope(|s| {
            s.spawn(|| {
                for i in 0..DATAGRAMS {
                    let text = i.to_le_bytes().repeat(1 + i as usize % 64);
                    while !push(&words, &layout, n, &text) {
                        std::thread::yield_now();
                    }
                }
            });
            let mut expected = 0u32;
            while expected < DATAGRAMS {
                match take(&words, &layout, n, &mut out) {
                    Taken::Datagram(A, len) => {
                        assert_eq!(len, 4 * (1 + expected as usize % 64));
                        assert!(out.chunks(4).all(|c| c == expected.to_le_bytes()));
                        expected += 1;
                    }
                    Taken::Empty => std::thread::yield_now(),
                    other => panic!("{other:?}"),
                }
            }
        });
    }

    #[test]
    fn nonsense_is_refused_and_skipped() {
        let (layout, words, mut out) = lane();
        let n = claim(&words, &layout, A).expect("free");
        assert!(push(&words, &layout, n, b"long"));
        let (len, _) = slot(&words, &layout, n, 0).expect("a slot");
        len.store(u64::from(LIMITS.datagram_bytes) + SENDER_BYTES as u64 + 1, Ordering::Relaxed);
        assert_eq!(take(&words, &layout, n, &mut out), Taken::Refused);
        assert_eq!(take(&words, &layout, n, &mut out), Taken::Empty);
        let head = word(&words, &layout, n, offset_of!(Lane, head)).expect("a lane");
        head.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(take(&words, &layout, n, &mut out), Taken::Refused);
        assert_eq!(take(&words, &layout, n, &mut out), Taken::Empty);
        assert!(push(&words, &layout, n, b"wraps"), "the count wraps around without harm");
        assert_eq!(take(&words, &layout, n, &mut out), Taken::Datagram(A, 5));
        assert_eq!(take(&words, &layout, LIMITS.lanes, &mut out), Taken::Empty, "no such lane");
        assert_eq!(memory::relaxed(&words[layout.lane(n) as usize / 8]), 9 << 32 | 1);
    }
}
