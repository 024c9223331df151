//! The transport of an endpoint's operations and datagrams. The rest of an endpoint is common to
//! all transports: the region, seats, deaths of this host's processes, and the loop.

use crate::contract::{Completion, Evidence, LinkError, Remote, Token};
use crate::host::mapped::MappedRegions;
use crate::rights::Change;
use crate::types::{Address, Instant};
use core::any::Any;
use obol_deaths::deadbeat::VerbsGroup;

/// The result of a posted operation, until it is delivered.
#[derive(Debug)]
pub enum Done {
    /// A READ of at most a word, and its length.
    Word([u8; 8], usize),
    /// A longer READ.
    Bytes(Vec<u8>),
    /// A WRITE.
    Written,
    /// The value that a CAS found.
    Swapped(u64),
    /// A change of permissions.
    Permitted,
    /// Failed; whether it was executed may be unknown.
    Failed(LinkError),
}

impl Done {
    pub(crate) fn result(&self) -> Result<Completion<'_>, LinkError> {
        Ok(match self {
            Self::Word(raw, len) => Completion::Read(raw.get(..*len).unwrap_or(raw)),
            Self::Bytes(bytes) => Completion::Read(bytes),
            Self::Written => Completion::Written,
            Self::Swapped(found) => Completion::Swapped(*found),
            Self::Permitted => Completion::Permitted,
            Self::Failed(error) => return Err(*error),
        })
    }
}

/// The result of polling for a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// None is pending, or this round has taken its share.
    Nothing,
    /// One from this sender, now in the buffer.
    Datagram(Address),
    /// An invalid one, which was skipped.
    Refused,
}

/// Reports the deaths of processes of other hosts. Those of this host are reported by its kernel:
/// see [`crate::host`]. A transport that reaches no other host has nothing to say here.
pub trait RemoteDeaths {
    /// Watches a process of another host.
    fn watch(&mut self, _whom: Address) {}
    /// Ends a watch of a process of another host.
    fn unwatch(&mut self, _whom: Address) {}
    /// An event about a watched process.
    fn death(&mut self) -> Option<(Address, Evidence)> {
        None
    }
    /// A watched process that was assumed to be of another host and turned out to be of this one:
    /// its watch ends here and has to be renewed. For example, a coordinator that was watched
    /// before it started.
    fn take_relocated(&mut self) -> Option<Address> {
        None
    }
    /// The destination by which the kernel can notify other hosts of this process's death, and the
    /// encoded notice. `None` if there is none (yet).
    fn route_to_other_hosts(&self, _notice: &[u8]) -> Option<(VerbsGroup, Vec<u8>)> {
        None
    }
    /// Accepted and rejected notices from kernels of other hosts since the last call.
    fn take_notice_counts(&mut self) -> (u64, u64) {
        (0, 0)
    }
}

/// Transports operations and datagrams. Nothing here blocks.
pub trait Transport: RemoteDeaths + Any {
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
    /// Completes a change of permissions with [`LinkError::Unsupported`]: see
    /// [`crate::Fabric::permit`].
    fn refuse_permit(&mut self, token: Token);
    /// As [`crate::Fabric::permit`].
    fn permit(&mut self, _change: Change, token: Token) {
        self.refuse_permit(token);
    }
    /// Sends to the owner of a region. `false` if the datagram is lost.
    fn send(&mut self, to: Address, bytes: &[u8]) -> bool;
    /// Sends to all members of the group with this bit except this process. Returns how many are
    /// known to have lost it.
    fn multicast(&mut self, bit: u32, bytes: &[u8]) -> u64;
    /// Submits batched posts. Called after each event.
    fn flush(&mut self);
    /// Datagrams lost since the last call, except those reported at once.
    fn lost(&mut self) -> u64 {
        0
    }

    /// Carries out delayed operations that are due.
    fn release_due(&mut self, _now: Instant) {}
    /// When the next of them is due.
    fn due(&self) -> Instant {
        Instant::NEVER
    }

    /// The next completion, in order of arrival; `None` once all have been taken.
    fn complete(&mut self) -> Option<(Token, Done)>;
    /// Takes back a delivered result of [`Transport::complete`].
    fn recycle(&mut self, done: Done);
    /// All completions were delivered.
    fn settle(&mut self) {}
    /// The number of pending completions.
    fn waiting(&self) -> usize;
    /// How many of them come before those of whatever is posted from now on: they may share a reading of
    /// the clock.
    fn waiting_first(&self) -> usize {
        self.waiting()
    }

    /// Takes a datagram. A round of calls ends with [`Received::Nothing`] and takes a bounded
    /// number.
    fn receive(&mut self, bytes: &mut Vec<u8>) -> Received;
    /// Whether datagrams are pending although the doorbell has not rung.
    fn has_datagrams(&mut self) -> bool;

    /// The mapped regions of this host's processes.
    fn regions(&mut self) -> &mut MappedRegions;
    /// Whether the process at this address runs on this host, whose kernel then reports its death.
    fn is_local(&self, whom: Address) -> bool;
    /// Performs periodic work.
    fn tidy(&mut self, now: Instant);
    /// Requests a ring of the doorbell on the next external event. `false` if there is one already,
    /// in which case the loop must not sleep.
    fn arm(&mut self) -> bool;
}
