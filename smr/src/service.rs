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

/// More bytes than the pieces in glibc's lists of small ones have, where it looks first. An allocation of
/// this size sorts all pieces that were freed since the last such one.
const SORTING_BYTES: usize = 2048;

/// Has the allocator sort the pieces that a step has freed. glibc does that in whichever allocation comes
/// first that its lists of small pieces do not serve, up to 10,000 pieces at once: after 300,000 keys
/// between others that stay were dropped, ten allocations took 3 to 5 ms each. With other allocators this is
/// any allocation.
pub(crate) fn sort_freed() {
    drop(core::hint::black_box(Vec::<u8>::with_capacity(SORTING_BYTES)));
}

/// A deterministic service: its state follows from the commands that it was given, and from nothing
/// else. It reads no clock, no random numbers, and no order of a hash table.
pub trait Service: Clone + Debug + Eq + Hash {
    /// Which service it is, among all of a deployment; never 0. It is a part of the log's identity, so
    /// replicas of another service refuse the log.
    const KIND: u8;

    /// Executes a command that is committed, on every replica. `reply` is empty; what goes beyond
    /// [`crate::PAYLOAD_BYTES_MAX`] is cut off. A command may be any bytes that a client sent.
    fn apply(&mut self, command: &[u8], reply: &mut Vec<u8>);

    /// Gives a command or a query the time at which the leader takes it, in ms since the log began. It
    /// never falls, whichever replica leads, and goes on at the rate of a monotonic clock: it is not the
    /// time of day. What a client wrote there is not used. A service that needs no time leaves it out.
    fn stamp(_command: &mut [u8], _at_ms: u64) {}

    /// Marks a command that the leader takes, so that all replicas refuse it: for a bound that follows from
    /// the leader's settings.
    fn admit(&self, _command: &mut [u8]) {}

    /// The time that a command was given; `None` if it has none.
    fn stamped(_command: &[u8]) -> Option<u64> {
        None
    }

    /// The newest time of the commands that were applied; 0 for none.
    fn time(&self) -> u64 {
        0
    }

    /// A client's session has begun: gives the service a number at random, which every replica gets at the same
    /// place of the log, before any command of that client.
    fn seed(&mut self, _random: u64) {}

    /// Answers a query, on the leader only, without a change.
    fn read(&self, query: &[u8], reply: &mut Vec<u8>);

    /// Appends the whole state.
    fn save(&self, to: &mut Vec<u8>);

    /// Replaces the state by one that was saved on another replica. After an error the state is
    /// unspecified, and the replica takes no part any more: it has to be one of another service.
    fn load(&mut self, from: &[u8]) -> Result<(), LoadError>;

    /// Begins a save in parts: what [`Service::save_part`] appends is the state of now, whatever is
    /// applied in between. Returns about how many bytes follow; `None` if the service is saved at once.
    /// Saving at once stops the replica, which is excluded if that takes longer than a heartbeat's period:
    /// a service whose state may have more than some 10 MB needs parts.
    fn begin_save(&mut self) -> Option<u64> {
        None
    }

    /// Appends the next part, which takes a fraction of a millisecond. Returns whether it was the last;
    /// `None` if no save has begun, or it has ended.
    fn save_part(&mut self, _to: &mut Vec<u8>) -> Option<bool> {
        None
    }

    /// What [`Service::begin_save`] has begun is not needed any more.
    fn end_save(&mut self) {}

    /// An instance to load parts into. It takes the place of this one when all of them are there.
    #[must_use]
    fn begin_load(&self) -> Self {
        self.clone()
    }

    /// Loads what it can of the bytes that have come, and removes it from them.
    fn load_part(&mut self, _from: &mut Vec<u8>) -> Result<(), LoadError> {
        Ok(())
    }

    /// Loads the bytes that are left: nothing follows. Unless it fails, the instance takes the place of the
    /// one before at once.
    fn end_load(&mut self, rest: &[u8]) -> Result<(), LoadError> {
        self.load(rest)
    }

    /// Does a part of the work that was put off. It does not change the state. Returns whether more is left.
    fn work(&mut self) -> bool {
        false
    }

    /// Takes an instance that is not needed any more: one with a large state drops it in steps.
    fn discard(&mut self, _other: Self) {}

    /// Plants a bug.
    #[cfg(feature = "mutants")]
    fn plant(&mut self, _mutant: crate::Mutant) {}
}
