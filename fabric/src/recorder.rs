//! The flight recorder: a ring of fixed-size events in each seat, stamped by the writer's monotonic
//! clock and readable by one-sided READs while the writer runs, is frozen, or is dead.

use crate::atomic::{AtomicU64, Ordering, fence};
use crate::metrics::slot_number;
use crate::types::Instant;

slot_number! {
    /// The kind of an event, as a number. The protocol names it, with [`slots!`](crate::slots), and
    /// defines the meaning of `a` and `b` of a [`Record`].
    EventCode < 1 << 16
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record<K = EventCode> {
    pub kind: K,
    /// Why: a detector for notices and suspicions, the outcome for aborted proposals, otherwise 0.
    pub reason: u8,
    /// First value.
    pub a: u64,
    /// Second value.
    pub b: u64,
}

impl<K> Record<K> {
    /// An event without a reason.
    pub const fn new(kind: K, a: u64, b: u64) -> Self {
        Self { kind, reason: 0, a, b }
    }
}

/// An event with its number and time, as a reader gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamped<K = EventCode> {
    /// Counts all events of this recorder from 0; a gap means that the ring has wrapped.
    pub number: u64,
    /// On the writer's clock.
    pub at: Instant,
    /// The event.
    pub record: Record<K>,
}

/// Words before the first event: the number of events ever written, and padding.
pub const HEAD_WORDS: usize = 8;
/// Words of one event: time, kind and reason, `a`, `b`.
pub const EVENT_WORDS: usize = 4;

/// Words of a recorder with this many events.
pub const fn words(events: usize) -> usize {
    HEAD_WORDS + events * EVENT_WORDS
}

/// Writes an event. Only the seat's occupant may call this, from one thread.
pub fn write(words: &[AtomicU64], at: Instant, record: Record<impl Into<EventCode>>) {
    let code = record.kind.into().number();
    let capacity = (words.len() - HEAD_WORDS) / EVENT_WORDS;
    let number = words[0].load(Ordering::Relaxed);
    let first = HEAD_WORDS + (number % capacity as u64) as usize * EVENT_WORDS;
    // The event's time is void while its words change, so that a reader never mixes two events.
    words[first].store(0, Ordering::Relaxed);
    fence(Ordering::Release);
    words[first + 1].store(u64::from(code) | u64::from(record.reason) << 16, Ordering::Relaxed);
    words[first + 2].store(record.a, Ordering::Relaxed);
    words[first + 3].store(record.b, Ordering::Relaxed);
    words[first].store(at.0, Ordering::Release);
    words[0].store(number.wrapping_add(1), Ordering::Release);
}

/// Reads the events from number `from` on that are still in the ring, oldest first. Events that are
/// being overwritten, or have an unknown kind, are left out.
pub fn read<K: TryFrom<EventCode>>(words: &[AtomicU64], from: u64) -> Vec<Stamped<K>> {
    let capacity = ((words.len() - HEAD_WORDS) / EVENT_WORDS) as u64;
    let end = words[0].load(Ordering::Acquire);
    let mut events = Vec::new();
    for number in from.max(end.saturating_sub(capacity))..end {
        let first = HEAD_WORDS + (number % capacity) as usize * EVENT_WORDS;
        let at = words[first].load(Ordering::Acquire);
        let [head, a, b] = [1, 2, 3].map(|i| words[first + i].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        // The count is written by another process, and may be wrong.
        let overwritten = words[0].load(Ordering::Relaxed) >= number.saturating_add(capacity);
        if at == 0 || overwritten || words[first].load(Ordering::Relaxed) != at {
            continue;
        }
        let Ok(kind) = K::try_from(EventCode::new(head as u16)) else { continue };
        let record = Record { kind, reason: (head >> 16) as u8, a, b };
        events.push(Stamped { number, at: Instant(at), record });
    }
    events
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::zeroed;

    crate::slots! {
        /// For tests.
        Kind: EventCode {
            /// One.
            Started = "started",
            /// Another.
            Decided = "decided",
        }
    }

    #[test]
    fn the_ring_keeps_the_newest_events_in_order() {
        let ring = zeroed(words(4) * 8);
        for n in 0..6 {
            write(&ring, Instant(100 + n), Record { kind: Kind::Decided, reason: 2, a: n, b: 1 });
        }
        let numbers: Vec<u64> = read::<Kind>(&ring, 0).iter().map(|e| e.number).collect();
        // The slot of event 2 is the next to be overwritten, so a reader cannot trust it.
        assert_eq!(numbers, [3, 4, 5]);
        let last = read::<Kind>(&ring, 5);
        assert_eq!(last.len(), 1);
        assert_eq!((last[0].at, last[0].record.a, last[0].record.reason), (Instant(105), 5, 2));
        assert!(read::<Kind>(&ring, 6).is_empty());
    }

    #[test]
    fn a_count_at_its_end_is_read_and_counted_on() {
        let ring = zeroed(words(4) * 8);
        ring[0].store(u64::MAX, Ordering::Relaxed);
        assert!(read::<Kind>(&ring, 0).is_empty());
        write(&ring, Instant(1), Record::new(Kind::Started, 0, 0));
        assert!(read::<Kind>(&ring, 0).is_empty());
    }

    #[test]
    fn an_event_of_a_later_version_is_left_out() {
        let ring = zeroed(words(4) * 8);
        write(&ring, Instant(1), Record::new(Kind::Started, 0, 0));
        ring[HEAD_WORDS + 1].store(0xfff0, Ordering::Relaxed);
        assert!(read::<Kind>(&ring, 0).is_empty());
    }
}
