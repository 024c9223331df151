//! Datagrams that are sent at the end of the event that produced them. A woken receiver may preempt
//! the sender where they share a core, and the sender's own operations must not wait for that: a
//! leader announces a view and raises fences in one event.

use std::collections::VecDeque;

/// The capacity. A full outbox is flushed at once.
const WAITING_MAX: usize = 64;

/// The destination of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// To the owner of a region.
    Region(u32),
    /// To a group, by its index.
    Group(usize),
}

/// Datagrams in the order of sending.
#[derive(Debug)]
pub(crate) struct Outbox {
    waiting: VecDeque<(Destination, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
}

impl Outbox {
    /// For datagrams of at most `bytes` bytes; longer ones cost an allocation.
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            waiting: VecDeque::with_capacity(WAITING_MAX),
            spare: (0..WAITING_MAX).map(|_| Vec::with_capacity(bytes)).collect(),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING_MAX
    }

    pub(crate) fn put(&mut self, destination: Destination, payload: &[u8]) {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.extend_from_slice(payload);
        self.waiting.push_back((destination, bytes));
    }

    pub(crate) fn take(&mut self) -> Option<(Destination, Vec<u8>)> {
        self.waiting.pop_front()
    }

    /// Takes back a result of [`Outbox::take`] for reuse.
    pub(crate) fn recycle(&mut self, mut bytes: Vec<u8>) {
        if self.spare.len() < WAITING_MAX {
            bytes.clear();
            self.spare.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_leave_in_order_and_their_memory_is_used_again() {
        let mut outbox = Outbox::new(16);
        for round in 0..3 {
            outbox.put(Destination::Region(7), &[round; 16]);
            outbox.put(Destination::Group(1), &[round]);
            assert!(!outbox.is_full());
            let (destination, first) = outbox.take().expect("two wait");
            assert_eq!((destination, &first[..]), (Destination::Region(7), &[round; 16][..]));
            outbox.recycle(first);
            let (destination, second) = outbox.take().expect("one waits");
            assert_eq!((destination, &second[..]), (Destination::Group(1), &[round][..]));
            outbox.recycle(second);
            assert_eq!(outbox.take(), None);
            assert_eq!(outbox.spare.len(), WAITING_MAX);
        }
        (0..WAITING_MAX).for_each(|_| outbox.put(Destination::Group(0), b"x"));
        assert!(outbox.is_full());
    }
}
