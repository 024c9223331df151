//! What the machines have in common: processes, values, and what a machine takes and asks for.

use std::fmt::{Debug, Display};
use std::hash::Hash;

/// A process, from 0.
pub type Process = u8;
/// A value that is proposed.
pub type Value = u8;

/// A set of processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Set(u8);

impl Set {
    /// Processes 0 to `n` - 1, at most 8.
    pub const fn first(n: u8) -> Self {
        Self(if n >= 8 { u8::MAX } else { (1 << n) - 1 })
    }

    /// Whether a process is in it.
    pub const fn has(self, process: Process) -> bool {
        self.0 & (1 << process) != 0
    }

    pub const fn insert(&mut self, process: Process) {
        self.0 |= 1 << process;
    }

    pub const fn remove(&mut self, process: Process) {
        self.0 &= !(1 << process);
    }

    /// Whether all of `other` are in it.
    pub const fn covers(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub const fn lowest(self) -> Option<Process> {
        if self.0 == 0 { None } else { Some(self.0.trailing_zeros() as u8) }
    }

    /// The processes in it.
    pub fn iter(self) -> impl Iterator<Item = Process> {
        (0..8).filter(move |process| self.has(*process))
    }
}

/// What a machine asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<M> {
    /// A message to one process, over a reliable link.
    Send(Process, M),
    /// A message to all processes in the next heartbeat.
    Pulse(M),
}

/// A machine that solves uniform consensus, instance after instance.
pub trait Machine: Clone + Debug + Eq + Hash {
    type Message: Clone + Debug + Display + Eq + Ord + Hash;

    /// Process `own`, which proposes these values, one in each instance.
    fn new(own: Process, processes: u8, proposals: &[Value], options: Options) -> Self;

    /// Begins the first instance.
    fn start(&mut self, out: &mut Vec<Output<Self::Message>>);

    /// A message arrives.
    fn receive(&mut self, from: Process, message: Self::Message, out: &mut Vec<Output<Self::Message>>);

    /// The detector reports a process.
    fn crash(&mut self, of: Process, out: &mut Vec<Output<Self::Message>>);

    /// What it has decided, by instance.
    fn decided(&self) -> &[Value];

    /// How many messages wait for a later instance.
    fn buffered(&self) -> usize;
}

/// Where the machines deviate from the paper's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options {
    /// OSRB as printed: a message of a process that was reported before is not passed on. Without it
    /// the message is passed on at once, as in the lazy broadcast that OSRB is derived from.
    pub printed: bool,
}
