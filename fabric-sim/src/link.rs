//! A link: the reliable, ordered connection from one process to another, and the operations on it.

use obol_fabric::contract::LinkError;
use std::collections::VecDeque;
use std::sync::Arc;

/// The kind of an operation. Payloads of up to 8 bytes are inline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Verb {
    #[default]
    Read,
    Write,
    Cas,
}

/// The result of an operation, without its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Outcome {
    #[default]
    Open,
    Done,
    Failed(LinkError),
}

/// The state of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// In transit, or half executed.
    #[default]
    Flying,
    /// Held up by a partition, not executed.
    Stuck,
    /// Executed; its answer is held up by a partition.
    AnswerStuck,
    /// Its completion is scheduled.
    Answered,
}

/// A posted operation. It is freed when neither its poster nor an entry of the queue refers to it.
#[derive(Debug, Default)]
pub(super) struct Op {
    pub(super) source: u32,
    /// The poster's generation.
    pub(super) life: u32,
    pub(super) target: u32,
    /// Generation of the process that the link was connected to.
    pub(super) connection: u32,
    /// The addressed seat and generation.
    pub(super) seat: u16,
    pub(super) generation: u32,
    pub(super) verb: Verb,
    pub(super) offset: u32,
    pub(super) len: u32,
    pub(super) token: u64,
    /// CAS: the expected value.
    pub(super) expected: u64,
    /// CAS: the desired, then the found value. Others: up to 8 bytes.
    pub(super) word: u64,
    /// More than 8 bytes.
    pub(super) bytes: Vec<u8>,
    /// When it leaves its poster.
    pub(super) departs: u64,
    /// Time between the halves of a long operation.
    pub(super) gap: u64,
    /// In a modelled testbed: the duration of the answer.
    pub(super) back: u64,
    /// The result of a long READ, in place of `bytes`.
    pub(super) shared: Option<Arc<[u8]>>,
    /// Bytes of the first half.
    pub(super) split: u32,
    /// Whether the second half is executed first.
    pub(super) backwards: bool,
    pub(super) phase: Phase,
    pub(super) outcome: Outcome,
    /// It must not be executed any more.
    pub(super) void: bool,
    /// Its failed completion ends the link's error state.
    pub(super) breaks: bool,
    pub(super) refs: u8,
}

/// How a link carries what it is given. Datagrams are lost by the model of Gilbert and Elliott, in which it
/// is good or bad by turns; operations are repeated by its connection, and only delayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Degraded {
    /// By how many nanoseconds everything is late.
    pub delay: u64,
    /// How often a datagram makes a good link bad, and a bad one good, in a thousand.
    pub turns: [u32; 2],
    /// How many datagrams are lost while it is good, and while it is bad, in a thousand.
    pub lost: [u32; 2],
}

/// A link and the partition of its direction. If the poster dies, only the network's part of its
/// state is kept.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// Nothing gets through in this direction.
    pub(super) cut: bool,
    pub(super) degraded: Degraded,
    /// Whether it is bad at present.
    pub(super) bad: bool,
    /// Generation of the process that it is connected to; 0 if it is not.
    pub(super) connection: u32,
    /// An operation failed; until the poster has handled that, the others fail too.
    pub(super) broken: bool,
    /// Time before which nothing later may be executed.
    pub(super) last_arrival: u64,
    /// Time before which nothing later may complete.
    pub(super) last_completion: u64,
    /// Operations whose completion has not reached the poster, in the order of the posts.
    pub(super) outstanding: VecDeque<u32>,
    pub(super) stuck: Vec<u32>,
    pub(super) answers_stuck: Vec<u32>,
    /// Whether a timeout for stuck operations is running.
    pub(super) timing: bool,
    /// Identifies void timeouts.
    pub(super) epoch: u32,
    /// Datagrams of the source in the target's inbox.
    pub(super) datagrams: u32,
}

impl Link {
    /// Voids the running timeout.
    pub(super) const fn stop_timeout(&mut self) {
        self.timing = false;
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Forgets the connection when its poster died.
    pub(super) fn reset(&mut self) {
        self.connection = 0;
        self.broken = false;
        self.last_arrival = 0;
        self.last_completion = 0;
        self.outstanding.clear();
        self.stuck.clear();
        self.answers_stuck.clear();
        self.stop_timeout();
    }
}

/// All links, by source and target. Unused ones take no memory: of thousands of nodes, most pairs
/// never communicate.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// `[source][target]`: the index in `used` plus one, 0 if there is none. Rows end after their
    /// last use.
    places: Vec<Vec<u32>>,
    used: Vec<Link>,
}

impl Links {
    /// Makes room for one more source.
    pub(super) fn add(&mut self) {
        self.places.push(Vec::new());
    }

    /// A link, if it was ever used.
    pub(super) fn get(&self, source: u32, target: u32) -> Option<&Link> {
        let place = *self.places.get(source as usize)?.get(target as usize)?;
        self.used.get((place as usize).wrapping_sub(1))
    }

    /// A link, which is used from now on.
    #[inline]
    pub(super) fn at(&mut self, source: u32, target: u32) -> &mut Link {
        let row = &mut self.places[source as usize];
        if row.len() <= target as usize {
            row.resize(target as usize + 1, 0);
        }
        let place = &mut row[target as usize];
        if *place == 0 {
            self.used.push(Link::default());
            *place = self.used.len() as u32;
        }
        &mut self.used[*place as usize - 1]
    }

    /// Whether nothing gets through in this direction.
    #[inline]
    pub(super) fn is_cut(&self, source: u32, target: u32) -> bool {
        self.get(source, target).is_some_and(|link| link.cut)
    }

    /// By how much everything in this direction is late.
    #[inline]
    pub(super) fn delay(&self, source: u32, target: u32) -> u64 {
        self.get(source, target).map_or(0, |link| link.degraded.delay)
    }
}
