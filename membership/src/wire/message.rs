//! Datagrams.

use super::codec::{DecodeError, Reader, Writer};
use super::views::{read_member, write_member};
use crate::view::{Acceptor, Newcomer, Reason, View};
use obol_fabric::{Address, Evidence, Incarnation, Instant, Nanos, Release, ViewId};

/// Why a join is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The view has no room for another member.
    Full,
    /// The request is older than the cluster remembers: try again with a new token.
    Stale,
    /// This join was admitted once and its member has departed since.
    Departed,
    /// The agent that the app is attached to is not a member.
    NoHost,
    /// Members of this name failed repeatedly, so its joins are on hold: retry after this time,
    /// not earlier.
    OnHold(Nanos),
    /// The cluster speaks this release, and the process is of one that it does not admit.
    Release(Release),
    /// The leader cannot READ the newcomer's memory.
    Unreachable,
    /// Another process of this name is a member, or is about to be.
    NameTaken,
}

impl Refusal {
    /// Whether the join remains valid and is repeated unchanged.
    pub const fn is_temporary(self) -> bool {
        matches!(self, Self::Full | Self::OnHold(_) | Self::Release(_) | Self::Unreachable | Self::NameTaken)
    }

    fn write(self, w: &mut Writer) -> &mut Writer {
        match self {
            Self::Full => w.u8(1),
            Self::Stale => w.u8(2),
            Self::Departed => w.u8(3),
            Self::NoHost => w.u8(4),
            Self::OnHold(left) => w.u8(5).u64(left.0),
            Self::Release(release) => w.u8(6).u16(release.number()),
            Self::Unreachable => w.u8(7),
            Self::NameTaken => w.u8(8),
        }
    }

    fn read(code: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match code {
            1 => Self::Full,
            2 => Self::Stale,
            3 => Self::Departed,
            4 => Self::NoHost,
            5 => Self::OnHold(Nanos(r.u64()?)),
            6 => Self::Release(r.release()?),
            7 => Self::Unreachable,
            8 => Self::NameTaken,
            other => return Err(DecodeError::Unknown(other)),
        })
    }
}

/// Addresses in a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses<'a>(&'a [u8]);

/// The maximum encoded size of one address.
pub const ADDRESS_BYTES_MAX: usize = 29;

/// Encodes addresses for [`Addresses::new`].
pub fn encode_addresses(addresses: &[Address]) -> Vec<u8> {
    let mut w = Writer(Vec::with_capacity(addresses.len() * ADDRESS_BYTES_MAX));
    for address in addresses {
        w.address(*address);
    }
    w.0
}

impl<'a> Addresses<'a> {
    /// Checks the output of [`encode_addresses`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader(bytes);
        while r.end().is_err() {
            r.address()?;
        }
        Ok(Self(bytes))
    }
}

impl Iterator for Addresses<'_> {
    type Item = Address;

    fn next(&mut self) -> Option<Address> {
        let mut r = Reader(self.0);
        let address = r.address().ok()?;
        self.0 = r.rest();
        Some(address)
    }
}

/// A datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A decided view.
    View {
        frame: &'a [u8],
        /// Whether the CLEAR of its base is included.
        cleared: bool,
    },
    /// Slot `0` is decided; the view is too large for a datagram and has to be read.
    Decided(ViewId),
    /// A decided view that is too large for a datagram, as the difference from its predecessor.
    Step {
        id: ViewId,
        /// Its base, if that one's CLEAR is included; otherwise zero.
        cleared: ViewId,
        /// See `encode_step`.
        step: &'a [u8],
    },
    /// No lease on a view below this base exists.
    Clear(ViewId),
    /// A member died, or may have.
    Notice {
        /// The process that reports it.
        accuser: Incarnation,
        /// The process that died.
        accused: Incarnation,
        /// The detector.
        reason: Reason,
        /// Suspicion or proof.
        evidence: Evidence,
    },
    /// A request to become a member.
    Join {
        /// The newcomer; `token` identifies a retry.
        newcomer: Newcomer,
        /// The newest view that the sender knew when it drew the token.
        as_of: ViewId,
        /// Whether the sender reaches every member of the newest view that it knows. Others are
        /// admitted only where nothing can be decided without them.
        proved: bool,
    },
    /// The answer to a join.
    JoinReply {
        /// The token of the join.
        token: u64,
        /// The incarnation and the first view that has it, or the reason of the refusal.
        outcome: Result<(Incarnation, ViewId), Refusal>,
    },
    /// A request to be removed.
    Leave(Incarnation),
    /// Slot `0` holds a value that is not decided: a request to settle it.
    Settle(ViewId),
    /// An operator's request: a new lease duration.
    SetLease(Nanos),
    /// A report that leases of this duration expire before they are renewed.
    LeaseTooShort(Nanos),
    /// An operator's request: the coordinator with this number becomes a decider, or ceases to be
    /// one. It is repeated as long as the operator waits, and expires soon after.
    SetAcceptor {
        /// The coordinator.
        number: u16,
        /// Whether it is to decide.
        decides: bool,
        /// The newest view that the operator knew: a late copy, after another change, has no
        /// effect.
        as_of: ViewId,
    },
    /// No majority of the deciders after this view answers: a request for the current ones.
    WhoDecides(ViewId),
    /// The reply: the deciders after view `id`, which is decided.
    Deciders { id: ViewId, acceptors: Addresses<'a> },
    /// Requests the receiver's clock.
    ClockRequest {
        /// Matches the reply to its request.
        nonce: u64,
    },
    /// The reply with the clock.
    ClockReply {
        /// The nonce of the request.
        nonce: u64,
        /// The clock's reading at the time of the request.
        clock: Instant,
    },
    /// Asks a lease cache to vouch that `view` is the newest.
    Vouch {
        /// Matches the reply to its request.
        nonce: u64,
        view: ViewId,
    },
    /// A cache's answer.
    Vouched {
        /// The nonce of the request.
        nonce: u64,
        /// The newest view that the cache knows.
        newest: ViewId,
        /// Whether it vouches for the requested view.
        vouched: bool,
    },
    /// Asks a lease cache to raise fences to `base`, which is decided.
    Raise {
        /// Identifies the leader's attempt to clear `base`.
        nonce: u64,
        /// The index of this request in the attempt.
        chunk: u16,
        base: ViewId,
        /// The holders of the pages.
        pages: Addresses<'a>,
    },
    /// A cache's reply to that.
    Raised {
        /// The nonce of the request.
        nonce: u64,
        /// The index of the request.
        chunk: u16,
        /// A bit for each page, from the lowest of the first byte on: set if its fence is at the
        /// base or above.
        raised: &'a [u8],
    },
    /// A heartbeat, by which links are watched.
    Heartbeat(Incarnation),
    /// To a member whose memory can be read and whose heartbeats do not arrive: this member does not
    /// hear it.
    Unheard(Incarnation),
    /// Asks a member to READ the newcomer at this address, which it could not reach before.
    Reach(Address),
    /// Its answer.
    Reached {
        /// The newcomer's address.
        at: Address,
        /// Whether it was read.
        reached: bool,
    },
    /// A member's broken links.
    Links {
        from: Incarnation,
        /// The newest view that it knows.
        view: ViewId,
        /// A bit for each of that view's members, from the lowest of the first byte on: set if the
        /// link to it is down.
        silent: &'a [u8],
    },
}

/// The datagram that names the deciders after a view.
pub fn deciders(view: &View) -> Vec<u8> {
    let addresses: Vec<Address> = view.acceptors.iter().map(|a| a.address).collect();
    let bytes = encode_addresses(&addresses);
    Message::Deciders { id: view.id, acceptors: Addresses(&bytes) }.encode()
}

/// The acceptors named by such a datagram. It omits their numbers, which a reader does not need.
pub fn acceptors(addresses: Addresses<'_>) -> Vec<Acceptor> {
    let acceptors = addresses.map(|address| Acceptor { proposer: 0, address });
    acceptors.take(obol_fabric::layout::PROPOSERS_MAX).collect()
}

impl<'a> Message<'a> {
    /// The datagram's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer(Vec::with_capacity(80));
        match *self {
            Self::View { frame, cleared } => w.u8(if cleared { 22 } else { 1 }).bytes(frame),
            Self::Decided(id) => w.u8(2).u64(id.0),
            Self::Clear(base) => w.u8(3).u64(base.0),
            Self::Notice { accuser, accused, reason, evidence } => {
                w.u8(4).u64(accuser.0).u64(accused.0).u8(reason as u8).flag(evidence == Evidence::Proof)
            }
            Self::Join { newcomer, as_of, proved } => {
                w.u8(5).u64(as_of.0);
                let incarnation = Incarnation::NONE;
                write_member(&mut w, &newcomer.admitted(incarnation));
                w.flag(proved)
            }
            Self::JoinReply { token, outcome } => {
                w.u8(6).u64(token);
                match outcome {
                    Ok((incarnation, view)) => w.u8(0).u64(incarnation.0).u64(view.0),
                    Err(refusal) => refusal.write(&mut w),
                }
            }
            Self::Leave(who) => w.u8(7).u64(who.0),
            Self::Settle(slot) => w.u8(8).u64(slot.0),
            Self::SetLease(lease) => w.u8(9).u64(lease.0),
            Self::Vouch { nonce, view } => w.u8(10).u64(nonce).u64(view.0),
            Self::Vouched { nonce, newest, vouched } => w.u8(11).u64(nonce).u64(newest.0).flag(vouched),
            Self::Raise { nonce, chunk, base, pages } => {
                w.u8(12).u64(nonce).u16(chunk).u64(base.0).bytes(pages.0)
            }
            Self::Raised { nonce, chunk, raised } => w.u8(13).u64(nonce).u16(chunk).bytes(raised),
            Self::SetAcceptor { number, decides, as_of } => w.u8(14).u16(number).flag(decides).u64(as_of.0),
            Self::WhoDecides(view) => w.u8(15).u64(view.0),
            Self::Deciders { id, acceptors } => w.u8(16).u64(id.0).bytes(acceptors.0),
            Self::ClockRequest { nonce } => w.u8(17).u64(nonce),
            Self::ClockReply { nonce, clock } => w.u8(18).u64(nonce).u64(clock.0),
            Self::LeaseTooShort(lease) => w.u8(19).u64(lease.0),
            Self::Heartbeat(who) => w.u8(20).u64(who.0),
            Self::Unheard(who) => w.u8(24).u64(who.0),
            Self::Reach(at) => w.u8(25).address(at),
            Self::Reached { at, reached } => w.u8(26).address(at).flag(reached),
            Self::Links { from, view, silent } => w.u8(21).u64(from.0).u64(view.0).bytes(silent),
            Self::Step { id, cleared, step } => w.u8(23).u64(id.0).u64(cleared.0).bytes(step),
        };
        w.0
    }

    /// The reverse of [`Message::encode`]. A view's frame is not decoded here.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader(bytes);
        let message = match r.u8()? {
            kind @ (1 | 22) => return Ok(Self::View { frame: r.rest(), cleared: kind == 22 }),
            2 => Self::Decided(r.view()?),
            3 => Self::Clear(r.view()?),
            4 => Self::Notice {
                accuser: r.incarnation()?,
                accused: r.incarnation()?,
                reason: r.reason()?,
                evidence: if r.u8()? == 0 { Evidence::Suspicion } else { Evidence::Proof },
            },
            5 => {
                let as_of = r.view()?;
                let newcomer = read_member(&mut r)?.newcomer();
                Self::Join { newcomer, as_of, proved: r.u8()? != 0 }
            }
            6 => {
                let token = r.u64()?;
                let outcome = match r.u8()? {
                    0 => Ok((r.incarnation()?, r.view()?)),
                    code => Err(Refusal::read(code, &mut r)?),
                };
                Self::JoinReply { token, outcome }
            }
            7 => Self::Leave(r.incarnation()?),
            8 => Self::Settle(r.view()?),
            9 => Self::SetLease(r.lease()?),
            10 => Self::Vouch { nonce: r.u64()?, view: r.view()? },
            11 => Self::Vouched { nonce: r.u64()?, newest: r.view()?, vouched: r.flag()? },
            12 => {
                let (nonce, chunk, base) = (r.u64()?, r.u16()?, r.view()?);
                return Ok(Self::Raise { nonce, chunk, base, pages: Addresses::new(r.rest())? });
            }
            13 => {
                let (nonce, chunk) = (r.u64()?, r.u16()?);
                return Ok(Self::Raised { nonce, chunk, raised: r.rest() });
            }
            14 => Self::SetAcceptor { number: r.u16()?, decides: r.flag()?, as_of: r.view()? },
            15 => Self::WhoDecides(r.view()?),
            16 => {
                let id = r.view()?;
                return Ok(Self::Deciders { id, acceptors: Addresses::new(r.rest())? });
            }
            17 => Self::ClockRequest { nonce: r.u64()? },
            18 => Self::ClockReply { nonce: r.u64()?, clock: Instant(r.number()?) },
            19 => Self::LeaseTooShort(r.lease()?),
            20 => Self::Heartbeat(r.incarnation()?),
            21 => {
                let (from, view) = (r.incarnation()?, r.view()?);
                return Ok(Self::Links { from, view, silent: r.rest() });
            }
            23 => {
                let (id, cleared) = (r.view()?, r.view()?);
                return Ok(Self::Step { id, cleared, step: r.rest() });
            }
            24 => Self::Unheard(r.incarnation()?),
            25 => Self::Reach(r.address()?),
            26 => Self::Reached { at: r.address()?, reached: r.flag()? },
            other => return Err(DecodeError::Unknown(other)),
        };
        r.end()?;
        Ok(message)
    }
}
