//! What carries an endpoint's operations and datagrams to its peers. The rest of an endpoint is the
//! same for all of them: the own region, seats, deaths of this host's processes, and the loop.

use crate::contract::{Completion, Evidence, LinkError, Remote, Token};
use crate::deadbeat::VerbsGroup;
use crate::host::mapped::MappedRegions;
use crate::types::{Address, Instant};

/// The result of a posted operation, until it is delivered.
#[derive(Debug)]
pub enum Done {
    /// A READ of at most a word, and its length.
    Word([u8; 8], usize),
    /// A longer READ.
    Bytes(Vec<u8>),
    /// A WRITE.
    Written,
    /// What a CAS found.
    Swapped(u64),
    /// Not done, or nobody knows.
    Failed(LinkError),
}

impl Done {
    pub(crate) fn result(&self) -> Result<Completion<'_>, LinkError> {
        Ok(match self {
            Self::Word(raw, len) => Completion::Read(raw.get(..*len).unwrap_or(raw)),
            Self::Bytes(bytes) => Completion::Read(bytes),
            Self::Written => Completion::Written,
            Self::Swapped(found) => Completion::Swapped(*found),
            Self::Failed(error) => return Err(*error),
        })
    }
}

/// What a look for a datagram found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// None waits, or this round has taken its share.
    Nothing,
    /// One from this sender, now in the buffer.
    Datagram(Address),
    /// One that made no sense and was skipped.
    Refused,
}

/// Carries operations and datagrams. Nothing here blocks.
pub trait Transport {
    /// As [`crate::Fabric::read`].
    fn read(&mut self, from: Remote, len: u32, token: Token);
    /// As [`crate::Fabric::write`].
    fn write(&mut self, to: Remote, bytes: &[u8], token: Token);
    /// As [`crate::Fabric::write_unsignaled`].
    fn write_unsignaled(&mut self, to: Remote, bytes: &[u8], token: Token) {
        self.write(to, bytes, token);
    }
    /// As [`crate::Fabric::cas`].
    fn cas(&mut self, at: Remote, expected: u64, desired: u64, token: Token);
    /// Sends to the owner of a region. `false` if the datagram is lost.
    fn send(&mut self, to: Address, bytes: &[u8]) -> bool;
    /// Sends to all members of the group with this bit but oneself. Says how many are known to have
    /// lost it.
    fn multicast(&mut self, bit: u32, bytes: &[u8]) -> u64;
    /// Posts what was held back to be posted together. Called after each event.
    fn flush(&mut self);
    /// Datagrams that were lost since the last call, besides those that were reported at once.
    fn lost(&mut self) -> u64 {
        0
    }

    /// Carries out what was held back on the way and is due.
    fn release_due(&mut self, _now: Instant) {}
    /// When the next of that is due.
    fn due(&self) -> Instant {
        Instant::NEVER
    }

    /// The next completion, in the order in which they came; `None` once all have been taken.
    fn complete(&mut self) -> Option<(Token, Done)>;
    /// Takes back what [`Transport::complete`] gave, delivered.
    fn recycle(&mut self, done: Done);
    /// All completions were delivered.
    fn settle(&mut self) {}
    /// How many completions wait already.
    fn waiting(&self) -> usize;

    /// Takes a datagram. A round of calls ends with [`Received::Nothing`] and takes a bounded
    /// share.
    fn receive(&mut self, bytes: &mut Vec<u8>) -> Received;
    /// Whether datagrams wait although the doorbell has not rung.
    fn has_datagrams(&mut self) -> bool;

    /// The mapped regions of this host's processes.
    fn regions(&mut self) -> &mut MappedRegions;
    /// Whether the process at this address runs on this host, so that its kernel tells its death.
    fn is_local(&self, whom: Address) -> bool;
    /// Watches a process of another host.
    fn watch(&mut self, whom: Address);
    /// Ends a watch of a process of another host.
    fn unwatch(&mut self, whom: Address);
    /// A watched process that was taken for another host's and turned out to be of this one: its
    /// watch is ended here, and to be made anew. A coordinator that was watched before it started,
    /// for example.
    fn take_relocated(&mut self) -> Option<Address> {
        None
    }
    /// Where the kernel is to send a notice of this process's death so that other hosts hear it,
    /// and the notice as it travels. `None` where there is no such way, or not yet.
    fn route_to_other_hosts(&self, _notice: &[u8]) -> Option<(VerbsGroup, Vec<u8>)> {
        None
    }
    /// Notices from kernels of other hosts that were believed, and those that were not, since the
    /// last call.
    fn take_notice_counts(&mut self) -> (u64, u64) {
        (0, 0)
    }
    /// News of a process of another host.
    fn death(&mut self) -> Option<(Address, Evidence)>;

    /// Does what is due from time to time.
    fn tidy(&mut self, now: Instant);
    /// Has the doorbell rung on the next event from outside. `false` if there is one already, so
    /// that nobody may sleep.
    fn arm(&mut self) -> bool;
}
