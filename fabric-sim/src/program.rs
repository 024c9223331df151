//! A program in a seat of a node, as its node and the world know it.

use core::sync::atomic::AtomicU64;
use obol_fabric::contract::{SeatRequest, SeatStatus};
use obol_fabric::types::{Address, Name, Nanos};
use std::sync::Arc;

/// A program in a seat.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub(super) address: Address,
    pub(super) name: Name,
    /// The region that it maps: its node's at the time of attaching.
    pub(super) memory: Arc<Box<[AtomicU64]>>,
    /// The generation of the owner that it is attached to.
    pub(super) home: u32,
    pub(super) alive: bool,
    pub(super) frozen: bool,
    /// Whether its process makes no progress although it is alive.
    pub(super) hung: bool,
    pub(super) progress_within: Nanos,
    /// The last promise passed to its owner's machine.
    pub(super) promised: Nanos,
    pub(super) request: Option<SeatRequest>,
    /// Counts its requests.
    pub(super) sequence: u32,
    /// The last request passed to its owner's machine; 0 before the first.
    pub(super) handed: u32,
    pub(super) status: Option<SeatStatus>,
    /// An answer that is published but not taken yet, with the number of its request.
    pub(super) answer: Option<(SeatStatus, u32)>,
    /// True time of its next (repeated) request; requests scheduled for other times are void.
    pub(super) request_at: u64,
    pub(super) beat_at: u64,
}

impl Program {
    /// Its address, with its own generation.
    pub const fn address(&self) -> Address {
        self.address
    }

    pub const fn name(&self) -> Name {
        self.name
    }

    /// Whether its process exists.
    pub const fn is_alive(&self) -> bool {
        self.alive
    }

    /// Whether it is stopped.
    pub const fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Whether it executes code.
    pub const fn is_running(&self) -> bool {
        self.alive && !self.frozen
    }

    /// Whether its owner has work for it: an unanswered request, or a changed promise.
    pub(super) fn has_request(&self) -> bool {
        self.request.is_some() || self.handed > 0 && self.promised != self.progress_within
    }

    /// Its unanswered request.
    pub const fn request(&self) -> Option<SeatRequest> {
        self.request
    }

    /// The last answer.
    pub const fn status(&self) -> Option<SeatStatus> {
        self.status
    }

    /// The region that the program maps. After a restart of the node it is the region of the
    /// predecessor.
    pub fn memory(&self) -> &[AtomicU64] {
        &self.memory
    }
}

/// A seat: its occupant, and the number of occupants so far.
#[derive(Debug, Default)]
pub(super) struct Seat {
    pub(super) generation: u32,
    pub(super) occupant: Option<Program>,
    /// Whether a request is in the owner's inbox. A seat has one request word, so there is never a
    /// second.
    pub(super) asked: bool,
}
