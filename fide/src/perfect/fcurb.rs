//! Fail-consistent uniform reliable broadcast: FiDe 4.1 and A.4. The heartbeat carries the message,
//! so that sending is all there is to it; what remains at the receiver is fail-consistency.

use super::machine::{Process, Set};

/// The broadcast's state at one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fcurb {
    reported: Set,
}

impl Fcurb {
    /// Whether a message that arrives in a heartbeat is delivered: not after its sender was
    /// reported.
    pub const fn receive(&self, from: Process) -> bool {
        !self.reported.has(from)
    }

    /// A process was reported.
    pub const fn crash(&mut self, of: Process) {
        self.reported.insert(of);
    }
}
