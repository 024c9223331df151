//! The schedule: one heap, ordered by time and then by the order of scheduling.

use core::cmp::Ordering;
use obol_fabric::contract::Evidence;
use std::collections::BinaryHeap;

/// An event of the simulation. Numbers of operations and datagrams are indices into slabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    /// A node takes its next input.
    Step { node: u32, life: u32 },
    /// A node's timer.
    Wake { node: u32, life: u32 },
    /// An operation reaches its target.
    Arrive(u32),
    /// The second half of an operation is executed.
    Rest(u32),
    /// A completion reaches the poster.
    Complete(u32),
    /// A datagram reaches a node.
    Datagram(u32),
    /// A node's oldest change of permissions takes effect.
    Permit { node: u32, life: u32 },
    /// Operations on a link have timed out.
    Timeout { source: u32, target: u32, epoch: u32 },
    /// A death notice reaches a watcher.
    Notice { watcher: u32, watch: u32, evidence: Evidence },
    /// A signalled process ends; watches up to this number were notified.
    Exit { node: u32, life: u32, notified: u32 },
    /// A program requests a confirmation.
    Want { node: u32, life: u32 },
    /// A program sends a request.
    Ask { node: u32, seat: u16, generation: u32 },
    /// A program gets an answer.
    Answered { node: u32, seat: u16, generation: u32 },
    /// An excluded program asks to rejoin.
    Rejoin { node: u32, seat: u16, generation: u32 },
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    time: u64,
    number: u64,
    pending: Pending,
}

impl Entry {
    const fn key(&self) -> u128 {
        (self.time as u128) << 64 | self.number as u128
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// Reversed: the heap returns its greatest entry first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

/// The heap. Entries are never removed early: handlers check whether they are still valid.
#[derive(Debug, Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Entry>,
    number: u64,
}

impl Queue {
    pub(super) fn push(&mut self, time: u64, pending: Pending) {
        self.number += 1;
        self.heap.push(Entry { time, number: self.number, pending });
    }

    pub(super) fn pop(&mut self) -> Option<(u64, Pending)> {
        self.heap.pop().map(|entry| (entry.time, entry.pending))
    }

    pub(super) fn next_time(&self) -> Option<u64> {
        self.heap.peek().map(|entry| entry.time)
    }
}
