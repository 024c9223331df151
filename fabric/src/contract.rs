//! The contract between the protocol and a backend: what may be posted, what comes back, and who
//! calls whom.
//!
//! | | `sim` | `shm` | `verbs` |
//! |---|---|---|---|
//! | an operation completes | at a virtual time | at once; its event is queued | when the device says so |
//! | target frozen | succeeds | succeeds | succeeds |
//! | target dead | [`LinkError::PeerDead`] after a drawn delay | [`LinkError::PeerDead`] at once | [`LinkError::PeerDead`] within the bound of detection |
//! | datagram, multicast | drawn loss, repetition, order | a full lane loses it, counted | the network may lose it |
//! | death notice | drawn | robust futex (suspicion), pidfd (proof) | on this host as `shm`; of other hosts a broken link (suspicion), a later owner (proof) |
//!
//! Operations that are posted to one peer are executed there in the order of the posts. After one
//! of them has failed, those posted before its completion was taken fail, too: a CAS is never
//! executed after the WRITE before it was lost. An operation that could never succeed
//! ([`LinkError::PeerReplaced`], [`LinkError::OutOfBounds`], [`LinkError::Denied`]) may fail alone.
//! An operation that is posted to the own address takes the same path, so that one word is never
//! changed from two atomicity domains.
//!
//! `fabric/tests/contract/suite.rs` holds every backend to this.

use crate::atomic::AtomicU64;
use crate::metrics::{CounterSlot, HistogramSlot};
use crate::page::Page;
use crate::recorder::{EventCode, Record};
use crate::types::{Address, Incarnation, Instant, Name, Nanos, ViewId};

/// Names a posted operation; comes back with its completion. The poster gives it a meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// A place in a peer's region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    /// Whose region.
    pub at: Address,
    /// Byte offset in it; 8-byte aligned.
    pub offset: u32,
}

/// How a posted operation ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion<'a> {
    /// The bytes that a READ found. More than 8 bytes may be torn: check them.
    Read(&'a [u8]),
    /// A WRITE was executed. Whoever looks from now on finds it, and what this process looks at
    /// from now on is looked at after it.
    Written,
    /// The value that a CAS found; it swapped iff this equals what was expected. Visible as a WRITE
    /// is.
    Swapped(u64),
}

/// How a posted operation failed. Whether it was executed is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum LinkError {
    /// The peer's process is dead, or its host does not answer.
    #[error("the process is dead, or its host does not answer")]
    PeerDead,
    /// The region at this address belongs to a later process, or to none.
    #[error("the region belongs to another process by now")]
    PeerReplaced,
    /// The offset or length lies outside the peer's region, or is misaligned.
    #[error("offset or length lie outside the region")]
    OutOfBounds,
    /// The peer does not allow this process to do that.
    #[error("the process does not allow it")]
    Denied,
    /// This process could not map the peer's region: it is out of descriptors or memory. Says
    /// nothing of the peer.
    #[error("this process can not map the region: it is out of descriptors or memory")]
    Unmapped,
}

/// How sure a death notice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Evidence {
    /// The process may still run: a robust futex of one thread, a heartbeat that stands still.
    Suspicion,
    /// No thread of the process runs user code any more.
    Proof,
}

/// What a program in a seat asks of the agent that owns the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SeatRequest {
    /// Make me a member. `token` tells a retry from a new request.
    Join {
        /// The name to join under.
        name: Name,
        /// The same for every retry of one join.
        token: u64,
        /// Where the program sits.
        address: Address,
        /// Within what time it promises to make progress, again and again; zero if it promises
        /// nothing.
        progress_within: Nanos,
    },
    /// Another promise of progress than before; zero takes it back.
    Promise(Nanos),
    /// Remove me, gracefully.
    Leave,
}

/// What an agent reports to a program in a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SeatStatus {
    /// The program is this member.
    Member(Incarnation),
    /// The program was excluded from the cluster, or its join was refused for good; it may ask to
    /// join again.
    Excluded,
    /// The program has left, as it asked.
    Left,
    /// The newest view has no room for the program. Its join stands, and is repeated.
    Full,
    /// Programs of this name died again and again, so that its join waits until this time of the
    /// agent's clock. It stands, and is repeated then.
    HeldBack {
        /// Until when.
        until: Instant,
    },
}

/// What happens to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A posted operation ended.
    Completion {
        /// The token that it was posted with.
        token: Token,
        /// How it ended.
        result: Result<Completion<'a>, LinkError>,
    },
    /// A datagram arrived.
    Datagram {
        /// The sender.
        from: Address,
        /// Its bytes; from a peer, so to be checked.
        bytes: &'a [u8],
    },
    /// A watched process died, or may have.
    Death {
        /// Who, exactly as given to [`Fabric::watch`].
        who: Address,
        /// How sure it is. A suspicion may be followed by a proof.
        evidence: Evidence,
    },
    /// A program in a seat of the own region asks for something. May be repeated.
    Seat {
        /// The seat.
        seat: u16,
        /// What it asks for.
        request: SeatRequest,
    },
    /// A program that reads the own lease page wants to know whether its view was active at this
    /// time of the own clock, or later: its lease is of no use now. An answer is a page with a
    /// later [`Page::confirmed`].
    Confirm {
        /// When it asked.
        since: Instant,
    },
}

/// A multicast group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// Every coordinator.
    Coordinators,
    /// Every process of the cluster that runs a machine, coordinators included.
    Everyone,
    /// The fault agents of a drill, which wait for its cue.
    Drills,
}

impl Group {
    /// The group's bit in a region's group mask.
    #[must_use]
    pub const fn bit(self) -> u32 {
        match self {
            Self::Coordinators => 1,
            Self::Everyone => 2,
            Self::Drills => 4,
        }
    }
}

/// The largest datagram in bytes: RDMA's largest UD MTU.
pub const DATAGRAM_BYTES_MAX: usize = 4096;

/// One process's access to the cluster. A machine posts here; results come back as [`Event`]s.
///
/// Nothing here blocks or fails at once: an operation that can not be done comes back as a failed
/// completion, a datagram that can not be sent is lost and counted.
pub trait Fabric {
    /// The own address.
    fn address(&self) -> Address;

    /// READ `len` bytes of a peer's region.
    fn read(&mut self, from: Remote, len: u32, token: Token);
    /// WRITE bytes (a multiple of 8) into a peer's region. Peers may see it half done.
    fn write(&mut self, to: Remote, bytes: &[u8], token: Token);
    /// As [`Fabric::write`], but success need not produce a completion: for what is acknowledged
    /// otherwise, or written again if need be.
    fn write_unsignaled(&mut self, to: Remote, bytes: &[u8], token: Token) {
        self.write(to, bytes, token);
    }
    /// The words of the own region that `[offset, offset + len)` touches, with what peers have
    /// written there until now; `None` if they are misaligned or outside, or there is no memory.
    /// They may be half written. Over RDMA a WRITE that is complete for its poster may still be
    /// missing; a READ of the own region that is posted later brings it when it completes.
    fn own(&self, _offset: u32, _len: usize) -> Option<&[AtomicU64]> {
        None
    }
    /// CAS one 8-byte word of a peer's region.
    fn cas(&mut self, at: Remote, expected: u64, desired: u64, token: Token);

    /// Sends a datagram of at most [`DATAGRAM_BYTES_MAX`] bytes to the owner of a region.
    fn send(&mut self, to: Address, bytes: &[u8]);
    /// Sends a datagram to all members of a group, the sender excepted.
    fn multicast(&mut self, group: Group, bytes: &[u8]);

    /// Reports the death of the process at this address, once as a suspicion and once as a proof,
    /// until [`Fabric::unwatch`]. A process that is dead already is reported at once.
    fn watch(&mut self, whom: Address);
    /// As [`Fabric::watch`], but a death alone need not wake this process: it is reported on its
    /// next turn for another reason. Turns an existing watch into such a one, and the reverse. Keeps
    /// processes that can wait from competing with the one that has to act.
    fn watch_lazily(&mut self, whom: Address) {
        self.watch(whom);
    }
    /// Ends a watch and releases what it held.
    fn unwatch(&mut self, whom: Address);

    /// Makes `page` the lease page of the own region. The fence word is not touched.
    fn publish_page(&mut self, page: &Page);
    /// Whether `view` is active on the own lease page: page, fence and clock are read inside the
    /// call, behind the operations whose completions were given and behind what was read before.
    /// Not behind a WRITE that is not complete, or that is unsignaled. (uKharon, Algorithm
    /// 2, with the fence.) Without a page none ever is.
    fn is_active(&self, _view: ViewId) -> bool {
        false
    }
    /// Makes these bytes the newest decided view of the own region, readable by peers and attached
    /// programs.
    fn publish_view(&mut self, id: ViewId, bytes: &[u8]);
    /// Publishes, beside the view, the latest base whose CLEAR this process knows.
    fn publish_cleared(&mut self, base: ViewId);
    /// Writes the own incarnation into the region's header.
    fn publish_incarnation(&mut self, incarnation: Incarnation);
    /// Reports its status to the program in a seat.
    fn publish_seat(&mut self, seat: u16, status: SeatStatus);

    /// Adds an event to the flight recorder, stamped now.
    fn record(&mut self, record: Record<impl Into<EventCode>>);
    /// Adds to a counter.
    fn count(&mut self, counter: impl Into<CounterSlot>, by: u64);
    /// Adds a sample to a histogram.
    fn observe(&mut self, histogram: impl Into<HistogramSlot>, value: Nanos);
}

/// A protocol role without I/O: events and the clock go in, posts come out. It owns no socket,
/// thread or clock.
///
/// The backend's loop calls [`Machine::start`] once, then [`Machine::handle`] for each event and
/// [`Machine::tick`] whenever the clock has reached [`Machine::deadline`]. `now` is read after the
/// event was taken.
pub trait Machine {
    /// Called once, before anything else.
    fn start<F: Fabric>(&mut self, now: Instant, fabric: &mut F);
    /// Takes one event.
    fn handle<F: Fabric>(&mut self, now: Instant, event: Event<'_>, fabric: &mut F);
    /// Does what is due.
    fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F);
    /// When [`Machine::tick`] is wanted next.
    fn deadline(&self) -> Instant;
}
