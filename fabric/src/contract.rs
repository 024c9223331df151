//! The contract between the protocol and a backend: what may be posted, what comes back, and who
//! calls whom.
//!
//! | | `sim` | `shm` | `verbs` | `ip` (another host; the own one as `shm`) |
//! |---|---|---|---|---|
//! | an operation completes | at a virtual time | at once; its event is queued | when the device says so | when the gateway answers |
//! | target frozen | succeeds | succeeds | succeeds | succeeds |
//! | target dead | [`LinkError::PeerDead`] after a drawn delay | [`LinkError::PeerDead`] at once | [`LinkError::PeerDead`] within the bound of detection | [`LinkError::PeerDead`]; so does a gateway that does not answer within that bound |
//! | datagram, multicast | drawn loss, repetition, order | a full lane loses it, counted | the network may lose it | a full lane loses it, counted; so does a broken connection, uncounted |
//! | [`Fabric::permit`] | takes a drawn time | waits for WRITEs that have begun; one part of the memory, some exceptions | ends the connections of those who may not WRITE any more; one part of the memory, named at the start | as `shm`; WRITEs of the own host's gateway are waited for as well |
//! | death notice | drawn | robust futex (suspicion), pidfd (proof) | on this host as `shm`; of other hosts a broken link (suspicion), a later owner (proof) | the other host's gateway passes both on; of a silent gateway nothing is known but the silence |
//!
//! Operations posted to one peer are executed in the order of the posts. After one of them has
//! failed, those posted before its completion was taken fail, too: a CAS is never executed when an
//! earlier WRITE was lost. (Over `verbs`, READs behind a WRITE into a log may succeed.) An operation that can never succeed ([`LinkError::PeerReplaced`],
//! [`LinkError::OutOfBounds`], [`LinkError::Denied`]) may fail alone. Operations on the own address
//! take the same path, so that a word is never changed from two atomicity domains.
//!
//! `fabric/tests/contract/suite.rs` checks every backend against this.

#![warn(missing_docs, reason = "others write programs and backends against this")]

use crate::atomic::AtomicU64;
use crate::metrics::{CounterSlot, HistogramSlot};
use crate::page::Page;
use crate::recorder::{EventCode, Record};
use crate::rights::{Permission, Writers};
use crate::types::{Address, Incarnation, Instant, Name, Nanos, ViewId};
use crate::version::Release;
use core::ops::Range;

/// Identifies a posted operation in its completion. Its meaning is the poster's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// A location in a peer's region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    /// The region.
    pub at: Address,
    /// Byte offset in it; 8-byte aligned.
    pub offset: u32,
}

/// The result of a successful operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion<'a> {
    /// The bytes of a READ. More than 8 bytes may be torn: check them.
    Read(&'a [u8]),
    /// A WRITE was executed. It is visible to all from now on, and later reads of this process are
    /// ordered after it.
    Written,
    /// The value that a CAS found; it swapped iff this equals the expected one. Visible as a WRITE
    /// is.
    Swapped(u64),
    /// A change of permissions is in force: see [`Fabric::permit`].
    Permitted,
}

/// The error of a failed operation. Whether it was executed is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum LinkError {
    /// The peer's process is dead, or its host does not answer.
    #[error("the process is dead, or its host does not answer")]
    PeerDead,
    /// The region at this address belongs to a later process, or to none.
    #[error("the process has ended or has not started: its memory belongs to a later process, or to none")]
    PeerReplaced,
    /// The offset or length lies outside the peer's region, or is misaligned.
    #[error("offset or length lie outside the region")]
    OutOfBounds,
    /// The peer does not permit the operation.
    #[error("the process does not allow it")]
    Denied,
    /// This process could not map the peer's region: it is out of descriptors or memory. Implies
    /// nothing about the peer.
    #[error("this process cannot map the region: it is out of descriptors or memory")]
    Unmapped,
    /// This fabric cannot carry out the operation at all, so nothing was changed.
    #[error("this fabric cannot do that")]
    Unsupported,
}

/// The certainty of a death notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Evidence {
    /// Its host does not answer, which implies nothing about the process.
    Silence,
    /// The process may still run: a robust futex of one thread, a stalled heartbeat.
    Suspicion,
    /// No thread of the process runs user code any more.
    Proof,
}

/// A request of a program in a seat to the agent that owns the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SeatRequest {
    /// To become a member. `token` distinguishes a retry from a new request.
    Join {
        /// The name to join under.
        name: Name,
        /// The same for every retry of one join.
        token: u64,
        /// The program's seat.
        address: Address,
        /// The period in which it promises progress; zero for no promise.
        progress_within: Nanos,
        /// The release that it is of.
        release: Release,
    },
    /// A new promise of progress; zero cancels it.
    Promise(Nanos),
    /// To be removed gracefully.
    Leave,
}

/// An agent's report to a program in a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SeatStatus {
    /// The program is this member.
    Member(Incarnation),
    /// The program was excluded from the cluster, or its join was refused finally; it may send a
    /// new request.
    Excluded,
    /// The program has left, as requested.
    Left,
    /// The newest view has no room for the program. Its join stays valid, and is repeated.
    Full,
    /// Another member has the program's name. Its join stays valid, and is repeated.
    NameTaken,
    /// Members of this name failed repeatedly, so its join is on hold until this time of the
    /// agent's clock. It stays valid, and is repeated then.
    OnHold {
        /// When the hold ends.
        until: Instant,
    },
}

/// An input of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A posted operation completed or failed.
    Completion {
        /// The token that it was posted with.
        token: Token,
        /// Its result.
        result: Result<Completion<'a>, LinkError>,
    },
    /// A datagram arrived.
    Datagram {
        /// The sender.
        from: Address,
        /// Its bytes, which come from a peer and have to be checked.
        bytes: &'a [u8],
    },
    /// A watched process died, or may have.
    Death {
        /// The process, exactly as given to [`Fabric::watch`].
        who: Address,
        /// The certainty. A suspicion may be followed by a proof.
        evidence: Evidence,
    },
    /// A request of a program in a seat of the own region. May be repeated.
    Seat {
        /// The seat.
        seat: u16,
        /// The request.
        request: SeatRequest,
    },
    /// A program that reads the own lease page asks whether its view was active at this time of the
    /// own clock, or later, because its lease does not suffice. The answer is a page with a later
    /// [`Page::confirmed`].
    Confirm {
        /// The time of the request.
        since: Instant,
    },
}

/// A multicast group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// Every coordinator.
    Coordinators,
    /// Every process of the cluster that runs a machine, including coordinators.
    Everyone,
    /// The fault agents of a drill, which wait for its cue.
    Drills,
}

impl Group {
    /// The group's bit in a region's group mask.
    pub const fn bit(self) -> u32 {
        match self {
            Self::Coordinators => 1,
            Self::Everyone => 2,
            Self::Drills => 4,
        }
    }
}

/// One process's access to the cluster. A machine posts here; results arrive as [`Event`]s.
///
/// Nothing here blocks or fails immediately: an impossible operation returns a failed completion,
/// and a datagram that cannot be sent is lost and counted.
pub trait Fabric {
    /// The own address.
    fn address(&self) -> Address;

    /// READ `len` bytes of a peer's region.
    fn read(&mut self, from: Remote, len: u32, token: Token);
    /// WRITE bytes (a multiple of 8) into a peer's region. Peers may see it half done.
    fn write(&mut self, to: Remote, bytes: &[u8], token: Token);
    /// As [`Fabric::write`], but success need not produce a completion: for data that is
    /// acknowledged otherwise, or rewritten if necessary.
    fn write_unsignaled(&mut self, to: Remote, bytes: &[u8], token: Token) {
        self.write(to, bytes, token);
    }
    /// The words of the own region in `[offset, offset + len)`, including peers' writes so far;
    /// `None` if they are misaligned or outside, or there is no memory. They may be half written.
    /// Over RDMA a WRITE that is complete for its poster may still be invisible here; it is visible
    /// when a later READ of the own region completes.
    fn own(&self, _offset: u32, _len: usize) -> Option<&[AtomicU64]> {
        None
    }
    /// CAS one 8-byte word of a peer's region.
    fn cas(&mut self, at: Remote, expected: u64, desired: u64, token: Token);

    /// Changes whose WRITEs into a part of the value areas of the own region are executed, among
    /// those whose role allows them ([`crate::rights`]). `part` is in bytes of the region; what lies
    /// outside of the value areas is not affected. A process starts with all WRITEs permitted. Each
    /// part has permissions of its own. For a writer, the latest change that concerns it counts, and a
    /// WRITE is executed if all parts that it touches permit it.
    ///
    /// Changes take effect in the order of the posts. [`Completion::Permitted`] reports that this
    /// one is in force: from then on no WRITE, nor the rest of one that had begun, is executed that
    /// it forbids, and what had been executed is found in the own region. Until then such WRITEs
    /// may be executed, also in part. A writer that is frozen in the middle of one may hold the change
    /// up until it continues or is dead. One that is refused fails with [`LinkError::Denied`], or as
    /// those of a broken link do. READs, CASs and datagrams are not affected.
    ///
    /// `sim` implements it; `shm` and `ip` do for one part and a few exceptions; `verbs` does for the
    /// part that the process named when it opened its endpoint. What a backend cannot do it completes
    /// with [`LinkError::Unsupported`], and changes nothing.
    fn permit(&mut self, whom: Writers, part: Range<u32>, permission: Permission, token: Token);

    /// Sends a datagram of at most [`DATAGRAM_BYTES_MAX`](crate::layout::DATAGRAM_BYTES_MAX) bytes to the owner of a region.
    fn send(&mut self, to: Address, bytes: &[u8]);
    /// Sends a datagram to all members of a group except the sender.
    fn multicast(&mut self, group: Group, bytes: &[u8]);

    /// Reports the death of the process at this address, once as a suspicion and once as a proof,
    /// until [`Fabric::unwatch`]. A process that is already dead is reported at once.
    fn watch(&mut self, whom: Address);
    /// As [`Fabric::watch`], but a death alone need not wake this process: it is reported on its
    /// next turn for another reason. Converts an existing watch, and vice versa. Keeps processes
    /// that can wait from competing with the one that has to act.
    fn watch_lazily(&mut self, whom: Address) {
        self.watch(whom);
    }
    /// Ends a watch and releases its resources.
    fn unwatch(&mut self, whom: Address);

    /// Publishes `page` as the lease page of the own region. The fence word is not touched.
    fn publish_page(&mut self, page: &Page);
    /// Whether `view` is active on the own lease page. Page, fence and clock are read inside the
    /// call, ordered after delivered completions and earlier reads, but not after incomplete or
    /// unsignaled WRITEs. (uKharon, Algorithm 2, with the fence.) Always false without a page.
    fn is_active(&self, _view: ViewId) -> bool {
        false
    }
    /// Publishes these bytes as the newest decided view of the own region, readable by peers and
    /// attached programs.
    fn publish_view(&mut self, id: ViewId, bytes: &[u8]);
    /// Publishes, beside the view, the latest base with a CLEAR known to this process.
    fn publish_cleared(&mut self, base: ViewId);
    /// Wakes the programs of this host that wait for a view, these first of all: a view that names
    /// them was published, and its CLEAR. A hint, which may be lost: their agents wake them too.
    fn wake_programs(&mut self, _programs: impl Iterator<Item = Address>) {}
    /// Writes the incarnation of this process into the region's header.
    fn publish_incarnation(&mut self, incarnation: Incarnation);
    /// Writes into the region's header which coordinators this process cannot reach: bit `n - 1` for
    /// coordinator `n`. Where connections fail one way, a process that can reach nobody is still
    /// read by others.
    fn publish_unreachable(&mut self, coordinators: u64);
    /// Reports its status to the program in a seat. In seat 0, which is the process's own, only a hold
    /// on its join is noted, for observers.
    fn publish_seat(&mut self, seat: u16, status: SeatStatus);

    /// Adds an event to the flight recorder, stamped now.
    fn record(&mut self, record: Record<impl Into<EventCode>>);
    /// Adds to a counter.
    fn count(&mut self, counter: impl Into<CounterSlot>, by: u64);
    /// Adds a sample to a histogram.
    fn observe(&mut self, histogram: impl Into<HistogramSlot>, value: Nanos);
    /// Adds the time since `begin` to a histogram, by the clock that stamps events: for what may begin
    /// and end within one turn of the machine, for which that is one moment.
    fn observe_since(&mut self, histogram: impl Into<HistogramSlot>, begin: Instant);
}

/// A protocol role without I/O: its inputs are events and the clock, its outputs posts. It owns no
/// socket, thread or clock.
///
/// The backend's loop calls [`Machine::start`] once, then [`Machine::handle`] for each event and
/// [`Machine::tick`] whenever the clock has reached [`Machine::deadline`]. `now` is read after the
/// event was taken.
pub trait Machine {
    /// Called once, before anything else.
    fn start<F: Fabric>(&mut self, _now: Instant, _fabric: &mut F) {}
    /// Handles one event.
    fn handle<F: Fabric>(&mut self, now: Instant, event: Event<'_>, fabric: &mut F);
    /// Performs all due work.
    fn tick<F: Fabric>(&mut self, _now: Instant, _fabric: &mut F) {}
    /// When [`Machine::tick`] is next due.
    fn deadline(&self) -> Instant {
        Instant::NEVER
    }
}
