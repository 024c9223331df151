//! A simulated process with its region, clock and inbox. Machines are stored separately, so that a
//! machine can post during its step.

use super::clock::Clock;
use super::program::Seat;
use core::ops::Range;
use core::sync::atomic::AtomicU64;
use obol_fabric::contract::Evidence;
use obol_fabric::layout::{Header, Layout};
use obol_fabric::rights::{Permission, Permissions, Writers};
use obol_fabric::types::{Address, Instant};
use obol_fabric::{memory, page};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Whether a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// It runs.
    Running,
    /// It is stopped; its region still answers.
    Frozen,
    /// It is gone.
    Dead,
}

/// An event that a machine has yet to handle. Large data is in a slab.
#[derive(Clone, Copy, Debug)]
pub(super) enum Input {
    Start,
    Completion(u32),
    /// A change of permissions, by its token, is in force.
    Permitted(u64),
    Datagram {
        payload: u32,
        from: u32,
        generation: u32,
    },
    Death {
        watch: u32,
        evidence: Evidence,
    },
    Seat {
        seat: u16,
        generation: u32,
    },
    Confirm,
}

/// A node's watch on a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    pub(super) id: u32,
    /// As given by the machine.
    pub(super) whom: Address,
    /// The watched occupant.
    pub(super) generation: u32,
}

/// A posted change of permissions.
#[derive(Clone, Debug)]
pub(super) struct Permit {
    pub(super) whom: Writers,
    pub(super) part: Range<u32>,
    pub(super) permission: Permission,
    pub(super) token: u64,
}

#[derive(Debug)]
pub(super) struct Node {
    /// Counts the processes in seat 0, from 1.
    pub(super) generation: u32,
    pub(super) state: State,
    pub(super) clock: Clock,
    pub(super) groups: u32,
    /// Shared with the programs in its seats, which keep the region of a dead owner mapped.
    pub(super) memory: Arc<Box<[AtomicU64]>>,
    pub(super) inbox: VecDeque<Input>,
    /// True time at which the current step ends.
    pub(super) busy_until: u64,
    /// Whether a step is scheduled.
    pub(super) stepping: bool,
    /// Whether a request for a confirmation is in the inbox. It is a single word, so there is never
    /// a second.
    pub(super) wanted: bool,
    /// True time of the scheduled wake-up, or `u64::MAX`.
    pub(super) wake_at: u64,
    /// The machine's last deadline.
    pub(super) deadline: Instant,
    /// True time of the last death.
    pub(super) died_at: u64,
    /// True time from which on the NIC's port can send the next message, in a modelled testbed.
    pub(super) port_out_free: u64,
    /// The same for what it receives.
    pub(super) port_in_free: u64,
    /// True time up to which the heartbeat word is updated.
    pub(super) beat_at: u64,
    /// Other nodes do not reach it, though it reaches them.
    pub(super) closed: bool,
    /// The nodes that it cannot connect to, though they can connect to it.
    pub(super) refused_by: BTreeSet<u32>,
    /// Whose WRITEs are executed.
    pub(super) permissions: Permissions,
    /// Changes of that which are not in force yet, in the order of their posts.
    pub(super) permits: VecDeque<Permit>,
    /// True time at which the last of them takes effect.
    pub(super) last_permit: u64,
    pub(super) watches: Vec<Watch>,
    /// By number; seat 0 is the owner's and stays empty.
    pub(super) seats: Vec<Seat>,
}

impl Node {
    pub(super) fn new(region: u32, layout: &Layout, clock: Clock, groups: u32, bytes: u32) -> Self {
        Self {
            generation: 1,
            state: State::Running,
            clock,
            groups,
            memory: region_memory(region, layout, groups, bytes),
            inbox: VecDeque::from([Input::Start]),
            busy_until: 0,
            stepping: false,
            wanted: false,
            wake_at: u64::MAX,
            deadline: Instant::NEVER,
            died_at: 0,
            port_out_free: 0,
            port_in_free: 0,
            beat_at: 0,
            closed: false,
            refused_by: BTreeSet::new(),
            permissions: Permissions::default(),
            permits: VecDeque::new(),
            last_permit: 0,
            watches: Vec::new(),
            seats: (0..layout.limits().seats).map(|_| Seat::default()).collect(),
        }
    }

    /// Whether the process with this generation exists.
    pub(super) fn lives(&self, generation: u32) -> bool {
        self.state != State::Dead && self.generation == generation
    }

    /// Whether a program with this generation sits (or died) in a seat of this process.
    pub(super) fn seat_holds(&self, seat: u16, generation: u32) -> bool {
        self.seats.get(usize::from(seat)).is_some_and(|place| {
            place.generation == generation
                && place.occupant.as_ref().is_some_and(|p| p.home == self.generation)
        })
    }

    /// Whether the program of this generation in a seat lives.
    pub(super) fn seat_lives(&self, seat: u16, generation: u32) -> bool {
        let place = self.seats.get(usize::from(seat)).filter(|_| self.seat_holds(seat, generation));
        place.and_then(|place| place.occupant.as_ref()).is_some_and(|program| program.alive)
    }

    pub(super) fn word(&self, offset: u32) -> &AtomicU64 {
        &self.memory[offset as usize / 8]
    }
}

/// A new region of this many bytes of a layout.
pub(super) fn region_memory(region: u32, layout: &Layout, groups: u32, bytes: u32) -> Arc<Box<[AtomicU64]>> {
    let words = memory::zeroed(bytes as usize);
    let header = Header { groups, ..Header::of(region, *layout.limits(), bytes.into()) };
    memory::copy_in(&words, header.as_bytes());
    words.into()
}

/// The page's words of a region.
pub(super) fn page_words(region: &[AtomicU64], offset: u32) -> &[AtomicU64; page::WORDS] {
    region[offset as usize / 8..].first_chunk().expect("every region holds a lease page")
}
