//! Optimistic stabilizing reliable broadcast: FiDe, algorithm 2.

use super::machine::{Process, Set, Value};
use std::collections::BTreeSet;

/// A broadcast message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Broadcast {
    /// Its instance of consensus.
    pub instance: u8,
    /// The process that broadcast it. With the instance, its id.
    pub origin: Process,
    /// Its content.
    pub value: Value,
}

impl Broadcast {
    const fn id(self) -> (u8, Process) {
        (self.instance, self.origin)
    }
}

/// The broadcast's state at one process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Osrb {
    correct: Set,
    retransmit: BTreeSet<Broadcast>,
    delivered: BTreeSet<(u8, Process)>,
    printed: bool,
}

impl Osrb {
    /// A process among `processes`; `printed` as in [`super::Options`].
    pub const fn new(processes: u8, printed: bool) -> Self {
        Self {
            correct: Set::first(processes),
            retransmit: BTreeSet::new(),
            delivered: BTreeSet::new(),
            printed,
        }
    }

    /// The processes to which a message has to be sent now.
    pub fn broadcast(&self) -> impl Iterator<Item = Process> {
        self.correct.iter()
    }

    /// A message arrives: whether it is delivered, and to whom it has to be sent.
    pub fn receive(&mut self, message: Broadcast) -> (bool, Vec<Process>) {
        if !self.delivered.insert(message.id()) {
            return (false, Vec::new());
        }
        self.retransmit.insert(message);
        let late = !self.printed && !self.correct.has(message.origin);
        (true, if late { self.correct.iter().collect() } else { Vec::new() })
    }

    /// A process was reported: what has to be sent again, and to whom.
    pub fn crash(&mut self, of: Process) -> Vec<(Process, Broadcast)> {
        self.correct.remove(of);
        let to = self.correct.iter();
        to.flat_map(|to| self.retransmit.iter().map(move |message| (to, *message))).collect()
    }

    /// Every correct process has received what was delivered in an instance: it is not needed any
    /// more.
    pub fn stabilize(&mut self, instance: u8) {
        self.retransmit.retain(|message| message.instance != instance);
    }

    /// Messages that are kept to be sent again.
    pub fn kept(&self) -> usize {
        self.retransmit.len()
    }
}
