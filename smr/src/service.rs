//! What is replicated, as its author writes it.

use core::fmt::Debug;
use core::hash::Hash;
use thiserror::Error;

/// Why a service could not load a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "these bytes are of another service, or of none; `obol smr server --service` chooses what replicas keep"
)]
pub struct LoadError;

/// A deterministic service: its state follows from the commands that it was given, and from nothing
/// else. It reads no clock, no random numbers, and no order of a hash table.
pub trait Service: Clone + Debug + Eq + Hash {
    /// Which service it is, among all of a deployment; never 0. It is a part of the log's identity, so
    /// replicas of another service refuse the log.
    const KIND: u8;

    /// Executes a command that is committed, on every replica. `reply` is empty; what goes beyond
    /// [`crate::PAYLOAD_BYTES_MAX`] is cut off. A command may be any bytes that a client sent.
    fn apply(&mut self, command: &[u8], reply: &mut Vec<u8>);

    /// Gives a command or a query the time at which the leader takes it, in ms since 1970. It never
    /// falls, whichever replica leads. What a client wrote there is not used. A service that needs no
    /// time leaves it out.
    fn stamp(_command: &mut [u8], _at_ms: u64) {}

    /// The time that a command was given; `None` if it has none.
    fn stamped(_command: &[u8]) -> Option<u64> {
        None
    }

    /// The newest time of the commands that were applied; 0 for none.
    fn time(&self) -> u64 {
        0
    }

    /// Answers a query, on the leader only, without a change.
    fn read(&self, query: &[u8], reply: &mut Vec<u8>);

    /// Appends the whole state.
    fn save(&self, to: &mut Vec<u8>);

    /// Replaces the state by one that was saved on another replica. After an error the state is
    /// unspecified, and the replica takes no part any more: it has to be one of another service.
    fn load(&mut self, from: &[u8]) -> Result<(), LoadError>;
}
