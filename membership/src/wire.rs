//! Bytes of views and datagrams: little-endian, length-prefixed, every count checked before it is
//! believed.

use crate::sealed;
use crate::timing::{LEASE_MAX, LEASE_MIN};
use crate::view::{Acceptor, Change, Departed, Kind, Level, Member, Numbers, View};
use obol_fabric::{Address, Evidence, Incarnation, Instant, Name, Nanos, ViewId};
use std::sync::Arc;

/// Members of one view. Bounds what a decoder allocates; a cluster's own limit is
/// `Limits::value_bytes`.
pub const MEMBERS_MAX: usize = 8192;

/// Views, incarnations and clocks are counted from small numbers, one by one: nothing that a
/// cluster gives out comes near.
pub const NUMBER_MAX: u64 = 1 << 62;
/// The longest reach of a view, and so the longest wait: a lease and a cache's lease, with room for
/// another rule.
const REACH_MAX: Nanos = LEASE_MAX.saturating_mul(4);

/// Why bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// They end too early.
    Short,
    /// A count or a number is out of bounds.
    OutOfBounds,
    /// An unknown kind of message, member or change.
    Unknown(u8),
    /// Bytes are left over.
    Trailing,
}

struct Writer(Vec<u8>);

impl Writer {
    fn u8(&mut self, v: u8) {
        self.0.push(v);
    }
    fn u16(&mut self, v: u16) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }
    fn u32(&mut self, v: u32) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }
    fn u64(&mut self, v: u64) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }
    fn name(&mut self, name: Name) {
        let text = name.as_str().as_bytes();
        self.u8(text.len() as u8);
        self.0.extend_from_slice(text);
    }
    /// Host and port only where there is one: most fabrics within a host have none.
    fn address(&mut self, a: Address) {
        let far = a.host != 0 || a.port != 0;
        self.u8(u8::from(far));
        if far {
            self.0.extend_from_slice(&a.host.to_le_bytes());
            self.u16(a.port);
        }
        self.u16(a.seat);
        self.u32(a.region);
        self.u32(a.generation);
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(DecodeError::Short)?;
        self.0 = rest;
        Ok(*head)
    }
    fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(u8::from_le_bytes(self.array()?))
    }
    fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    /// Something that is counted: the rest of the program adds small numbers to it without a check.
    fn number(&mut self) -> Result<u64, DecodeError> {
        let number = self.u64()?;
        if number > NUMBER_MAX { Err(DecodeError::OutOfBounds) } else { Ok(number) }
    }
    fn view(&mut self) -> Result<ViewId, DecodeError> {
        Ok(ViewId(self.number()?))
    }
    fn incarnation(&mut self) -> Result<Incarnation, DecodeError> {
        Ok(Incarnation(self.number()?))
    }
    fn reach(&mut self) -> Result<Nanos, DecodeError> {
        let span = Nanos(self.u64()?);
        if span > REACH_MAX { Err(DecodeError::OutOfBounds) } else { Ok(span) }
    }
    fn count(&mut self, max: usize) -> Result<usize, DecodeError> {
        let n = usize::from(self.u16()?);
        if n > max { Err(DecodeError::OutOfBounds) } else { Ok(n) }
    }
    fn name(&mut self) -> Result<Name, DecodeError> {
        let len = usize::from(self.u8()?);
        let text = self.0.get(..len).ok_or(DecodeError::Short)?;
        self.0 = &self.0[len..];
        core::str::from_utf8(text).ok().and_then(|t| Name::new(t).ok()).ok_or(DecodeError::OutOfBounds)
    }
    fn address(&mut self) -> Result<Address, DecodeError> {
        let (host, port) = match self.u8()? {
            0 => (0, 0),
            1 => (u128::from_le_bytes(self.array()?), self.u16()?),
            other => return Err(DecodeError::Unknown(other)),
        };
        Ok(Address { host, port, seat: self.u16()?, region: self.u32()?, generation: self.u32()? })
    }
    fn flag(&mut self) -> Result<bool, DecodeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(DecodeError::Unknown(other)),
        }
    }
    fn kind(&mut self) -> Result<Kind, DecodeError> {
        let number = self.u8()?;
        Kind::from_number(u32::from(number)).ok_or(DecodeError::Unknown(number))
    }
    fn lease(&mut self) -> Result<Nanos, DecodeError> {
        let span = Nanos(self.u64()?);
        if (LEASE_MIN..=LEASE_MAX).contains(&span) { Ok(span) } else { Err(DecodeError::OutOfBounds) }
    }
    fn level(&mut self) -> Result<Level, DecodeError> {
        let number = self.u8()?;
        Level::from_number(number).ok_or(DecodeError::Unknown(number))
    }
    fn end(&self) -> Result<(), DecodeError> {
        if self.0.is_empty() { Ok(()) } else { Err(DecodeError::Trailing) }
    }
    fn rest(self) -> &'a [u8] {
        self.0
    }
}

fn write_member(w: &mut Writer, m: &Member) {
    w.u64(m.incarnation.0);
    w.u8(m.kind as u8);
    w.name(m.name);
    w.address(m.address);
    w.u64(m.host.0);
    w.u64(m.token);
    w.u16(m.proposer);
}

fn read_member(r: &mut Reader<'_>) -> Result<Member, DecodeError> {
    Ok(Member {
        incarnation: r.incarnation()?,
        kind: r.kind()?,
        name: r.name()?,
        address: r.address()?,
        host: r.incarnation()?,
        token: r.u64()?,
        proposer: r.u16()?,
    })
}

fn write_acceptor(w: &mut Writer, a: &Acceptor) {
    w.u16(a.proposer);
    w.address(a.address);
}

fn read_acceptor(r: &mut Reader<'_>) -> Result<Acceptor, DecodeError> {
    Ok(Acceptor { proposer: r.u16()?, address: r.address()? })
}

/// The body of a view.
#[must_use]
pub fn encode_view(view: &View) -> Vec<u8> {
    let mut w = Writer(Vec::with_capacity(128 + view.members.len() * 64));
    write_head(&mut w, view);
    w.u16(view.members.len() as u16);
    for m in &view.members {
        write_member(&mut w, m);
    }
    w.u16(view.departed.len() as u16);
    for d in &view.departed {
        w.u64(d.token);
        w.u64(d.incarnation.0);
        w.name(d.name);
        w.u8(d.kind as u8);
        w.u64(d.at.0);
        w.u8(u8::from(d.left));
    }
    write_changes(&mut w, view);
    w.0
}

/// Everything of a view but its members, former members and changes.
fn write_head(w: &mut Writer, view: &View) {
    for number in [view.id.0, view.base.0, view.cleared.0] {
        w.u64(number);
    }
    for span in [view.wait, view.run_reach, view.lease, view.cache_lease] {
        w.u64(span.0);
    }
    w.u64(view.next_incarnation.0);
    w.u8(view.acceptors.len() as u8);
    w.u8(view.retired.to_bits());
    for a in &view.acceptors {
        write_acceptor(w, a);
    }
}

fn write_changes(w: &mut Writer, view: &View) {
    w.u16(view.changes.len() as u16);
    for change in &view.changes {
        match *change {
            Change::Joined(who) => {
                w.u8(1);
                w.u64(who.0);
            }
            Change::Left(who) => {
                w.u8(2);
                w.u64(who.0);
            }
            Change::Failed { accused, accuser, level } => {
                w.u8(3);
                w.u64(accused.0);
                w.u64(accuser.0);
                w.u8(level as u8);
            }
            Change::Lease => w.u8(4),
            Change::Settled => w.u8(5),
            Change::AcceptorAdded(acceptor) => {
                w.u8(6);
                write_acceptor(w, &acceptor);
            }
            Change::AcceptorRemoved(acceptor) => {
                w.u8(7);
                write_acceptor(w, &acceptor);
            }
            Change::Recovered(from) => {
                w.u8(8);
                w.u64(from.0);
            }
        }
    }
}

/// How a view follows from its predecessor, where the view is too large for a datagram: what
/// differs, and the checksum of the sealed view that comes out.
#[must_use]
pub fn encode_step(before: &View, view: &View, sealed: &[u8]) -> Vec<u8> {
    let mut w = Writer(Vec::with_capacity(256));
    write_head(&mut w, view);
    let gone = before.members.iter().filter(|m| view.member(m.incarnation).is_none());
    let new = view.members.iter().filter(|m| before.member(m.incarnation).is_none());
    w.u16(gone.clone().count() as u16);
    gone.for_each(|m| w.u64(m.incarnation.0));
    w.u16(new.clone().count() as u16);
    new.for_each(|m| write_member(&mut w, m));
    write_changes(&mut w, view);
    w.0.extend_from_slice(sealed::sum(sealed));
    w.0
}

/// The view that [`encode_step`] told of, sealed, too; none if these bytes tell of another
/// predecessor's successor, or if what comes out is not what was decided.
#[must_use]
pub fn apply_step(before: &View, bytes: &[u8]) -> Option<(View, Arc<[u8]>)> {
    let mut r = Reader(bytes);
    let mut view = read_head(&mut r).ok().filter(|view| view.id == before.id.next())?;
    let gone: Vec<u64> = (0..r.count(MEMBERS_MAX).ok()?).map(|_| r.u64()).collect::<Result<_, _>>().ok()?;
    view.members = before.members.iter().filter(|m| !gone.contains(&m.incarnation.0)).copied().collect();
    for _ in 0..r.count(MEMBERS_MAX).ok()? {
        view.members.push(read_member(&mut r).ok()?);
    }
    read_changes(&mut r, &mut view).ok()?;
    view.departed = before.departed_after(view.id, &view.members, &view.changes);
    let sealed = view.seal();
    (sealed::sum(&sealed) == r.rest()).then_some((view, sealed))
}

/// Bytes by which a view can grow, beside the members that go, when some of its members are
/// removed, the lease changes or nothing does.
#[must_use]
pub fn removal_reserve(view: &View) -> usize {
    /// An entry among the departed without its name, and a [`Change::Failed`].
    const REMOVED_BYTES: usize = 27 + 18;
    let short = |m: &Member| {
        let mut w = Writer(Vec::with_capacity(64));
        write_member(&mut w, m);
        (REMOVED_BYTES + m.name.as_str().len()).saturating_sub(w.0.len())
    };
    // [`Change::Lease`] or [`Change::Settled`].
    view.members.iter().map(short).sum::<usize>() + 1
}

/// The reverse of [`encode_view`].
pub fn decode_view(bytes: &[u8]) -> Result<View, DecodeError> {
    let mut r = Reader(bytes);
    let mut view = read_head(&mut r)?;
    for _ in 0..r.count(MEMBERS_MAX)? {
        view.members.push(read_member(&mut r)?);
    }
    for _ in 0..r.count(MEMBERS_MAX)? {
        view.departed.push(Departed {
            token: r.u64()?,
            incarnation: r.incarnation()?,
            name: r.name()?,
            kind: r.kind()?,
            at: r.view()?,
            left: r.flag()?,
        });
    }
    read_changes(&mut r, &mut view)?;
    r.end()?;
    let sorted = view.members.windows(2).all(|m| m[0].incarnation <= m[1].incarnation);
    let is_of_acceptors = |c: &&Change| matches!(c, Change::AcceptorAdded(_) | Change::AcceptorRemoved(_));
    let one_acceptor = view.changes.iter().filter(is_of_acceptors).count() <= 1;
    let ordered = view.base <= view.id && view.cleared <= view.base;
    let past = view.departed.iter().all(|d| d.at <= view.id);
    let retired = view.acceptors.iter().any(|a| view.retired.contains(a.proposer));
    if view.acceptors.is_empty() || retired || !ordered || !sorted || !one_acceptor || !past {
        return Err(DecodeError::OutOfBounds);
    }
    Ok(view)
}

fn read_head(r: &mut Reader<'_>) -> Result<View, DecodeError> {
    let mut view = View {
        id: r.view()?,
        base: r.view()?,
        cleared: r.view()?,
        wait: r.reach()?,
        run_reach: r.reach()?,
        lease: r.reach()?,
        cache_lease: r.reach()?,
        next_incarnation: r.incarnation()?,
        acceptors: Vec::new(),
        retired: Numbers::NONE,
        members: Vec::new(),
        departed: Vec::new(),
        changes: Vec::new(),
    };
    let acceptors = usize::from(r.u8()?);
    if acceptors > obol_fabric::layout::PROPOSERS_MAX {
        return Err(DecodeError::OutOfBounds);
    }
    view.retired = Numbers::from_bits(r.u8()?).ok_or(DecodeError::OutOfBounds)?;
    for _ in 0..acceptors {
        view.acceptors.push(read_acceptor(r)?);
    }
    Ok(view)
}

fn read_changes(r: &mut Reader<'_>, view: &mut View) -> Result<(), DecodeError> {
    for _ in 0..r.count(MEMBERS_MAX)? {
        view.changes.push(match r.u8()? {
            1 => Change::Joined(r.incarnation()?),
            2 => Change::Left(r.incarnation()?),
            3 => Change::Failed { accused: r.incarnation()?, accuser: r.incarnation()?, level: r.level()? },
            4 => Change::Lease,
            5 => Change::Settled,
            6 => Change::AcceptorAdded(read_acceptor(r)?),
            7 => Change::AcceptorRemoved(read_acceptor(r)?),
            8 => Change::Recovered(r.view()?),
            other => return Err(DecodeError::Unknown(other)),
        });
    }
    Ok(())
}

/// What is wrong with a join that is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The view has no room for another member.
    Full,
    /// The request is older than the cluster remembers: ask again with a new token.
    Stale,
    /// This join was admitted once and the member has gone since.
    Departed,
    /// The agent that the app is attached to is not a member.
    NoHost,
    /// Members of this name failed again and again, so that its joins wait: ask again after so
    /// long, and not before.
    HeldBack(Nanos),
}

impl Refusal {
    /// Whether the join stands all the same, and is to be repeated as it is.
    #[must_use]
    pub const fn stands(self) -> bool {
        matches!(self, Self::Full | Self::HeldBack(_))
    }

    fn write(self, w: &mut Writer) {
        w.u8(match self {
            Self::Full => 1,
            Self::Stale => 2,
            Self::Departed => 3,
            Self::NoHost => 4,
            Self::HeldBack(_) => 5,
        });
        if let Self::HeldBack(left) = self {
            w.u64(left.0);
        }
    }

    fn read(code: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match code {
            1 => Self::Full,
            2 => Self::Stale,
            3 => Self::Departed,
            4 => Self::NoHost,
            5 => Self::HeldBack(Nanos(r.u64()?)),
            other => return Err(DecodeError::Unknown(other)),
        })
    }
}

/// Addresses in a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses<'a>(&'a [u8]);

/// The most bytes that one address takes.
pub const ADDRESS_BYTES_MAX: usize = 29;

/// The bytes of these addresses, for [`Addresses::new`].
#[must_use]
pub fn encode_addresses(addresses: &[Address]) -> Vec<u8> {
    let mut w = Writer(Vec::with_capacity(addresses.len() * ADDRESS_BYTES_MAX));
    addresses.iter().for_each(|address| w.address(*address));
    w.0
}

impl<'a> Addresses<'a> {
    /// What [`encode_addresses`] made; an error if these bytes are something else.
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
        /// The view, sealed.
        sealed: &'a [u8],
        /// Whether its base's CLEAR goes with it.
        cleared: bool,
    },
    /// Slot `0` is decided; the view is too large for a datagram: read it.
    Decided(ViewId),
    /// A decided view that is too large for a datagram, by what differs from its predecessor.
    Step {
        /// The view's.
        id: ViewId,
        /// Its base, if that one's CLEAR goes with it; otherwise zero.
        cleared: ViewId,
        /// See [`encode_step`].
        step: &'a [u8],
    },
    /// No lease on a view below this base exists.
    Clear(ViewId),
    /// Somebody died, or may have.
    Notice {
        /// Who says so.
        accuser: Incarnation,
        /// Who died.
        accused: Incarnation,
        /// By which detector.
        level: Level,
        /// How sure.
        evidence: Evidence,
    },
    /// A request to become a member.
    Join {
        /// The newcomer; `token` tells a retry.
        newcomer: crate::view::Newcomer,
        /// The newest view that the sender knew when it drew the token.
        as_of: ViewId,
        /// Whether the sender reaches every member of the newest view that it knows. Whoever does
        /// not is let in only where nothing can be decided without it.
        proved: bool,
    },
    /// The answer to a join.
    JoinReply {
        /// The token of the join.
        token: u64,
        /// The incarnation and the first view that has it, or why not.
        outcome: Result<(Incarnation, ViewId), Refusal>,
    },
    /// A request to be removed.
    Leave(Incarnation),
    /// Slot `0` holds something that is not decided: please settle it.
    Nudge(ViewId),
    /// An operator's wish: another lease duration.
    SetLease(Nanos),
    /// Leases of this duration run out before they are renewed.
    Strained(Nanos),
    /// An operator's wish: the coordinator with this number shall decide from now on, or no more.
    /// It is repeated as long as the operator waits for it, and forgotten soon after.
    SetAcceptor {
        /// The coordinator.
        number: u16,
        /// Whether it shall decide.
        decides: bool,
        /// The newest view that the operator knew: a copy that comes after another change does
        /// nothing.
        as_of: ViewId,
    },
    /// Nobody answers any more of those who decide after this view: who decides now?
    Lost(ViewId),
    /// The answer to that: who decides after view `id`, which is decided.
    Deciders {
        /// The view.
        id: ViewId,
        /// The acceptors.
        acceptors: Addresses<'a>,
    },
    /// Asks for the receiver's clock.
    Clock {
        /// Tells the answer to this question from answers to others.
        nonce: u64,
    },
    /// The answer to that.
    ClockIs {
        /// The question's.
        nonce: u64,
        /// What the clock showed when the question was taken.
        clock: Instant,
    },
    /// Asks a lease cache to vouch that `view` is the newest.
    Vouch {
        /// Tells the answer to this question from answers to others.
        nonce: u64,
        /// The view.
        view: ViewId,
    },
    /// A cache's answer.
    Vouched {
        /// The question's.
        nonce: u64,
        /// The newest view that the cache knows.
        newest: ViewId,
        /// Whether it vouches for the view that it was asked about.
        vouched: bool,
    },
    /// Asks a lease cache to raise fences to `base`, which is decided.
    Raise {
        /// Names the leader's attempt to clear `base`.
        nonce: u64,
        /// Which part of it this is.
        chunk: u16,
        /// The view.
        base: ViewId,
        /// The holders of the pages.
        pages: Addresses<'a>,
    },
    /// A cache's answer to that.
    Raised {
        /// The request's.
        nonce: u64,
        /// The request's.
        chunk: u16,
        /// A bit for each page, from the lowest of the first byte on: set if its fence stands at
        /// the base or above.
        raised: &'a [u8],
    },
    /// A heartbeat for those who watch their links.
    Alive(Incarnation),
    /// The links of a member that are down.
    Links {
        /// Whose.
        from: Incarnation,
        /// The newest view that it knows.
        view: ViewId,
        /// A bit for each of that view's members, from the lowest of the first byte on: set if the
        /// link to it is down.
        silent: &'a [u8],
    },
}

/// The datagram that tells who decides after a view.
#[must_use]
pub fn deciders(view: &View) -> Vec<u8> {
    let addresses: Vec<Address> = view.acceptors.iter().map(|a| a.address).collect();
    let bytes = encode_addresses(&addresses);
    Message::Deciders { id: view.id, acceptors: Addresses(&bytes) }.encode()
}

/// The acceptors that such a datagram names. It does not tell their numbers, which a reader does
/// not need.
#[must_use]
pub fn acceptors(addresses: Addresses<'_>) -> Vec<Acceptor> {
    let acceptors = addresses.map(|address| Acceptor { proposer: 0, address });
    acceptors.take(obol_fabric::layout::PROPOSERS_MAX).collect()
}

impl<'a> Message<'a> {
    /// The datagram's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer(Vec::with_capacity(80));
        match *self {
            Self::View { sealed, cleared } => {
                w.u8(if cleared { 22 } else { 1 });
                w.0.extend_from_slice(sealed);
            }
            Self::Decided(id) => {
                w.u8(2);
                w.u64(id.0);
            }
            Self::Step { id, cleared, step } => {
                w.u8(23);
                w.u64(id.0);
                w.u64(cleared.0);
                w.0.extend_from_slice(step);
            }
            Self::Clear(base) => {
                w.u8(3);
                w.u64(base.0);
            }
            Self::Notice { accuser, accused, level, evidence } => {
                w.u8(4);
                w.u64(accuser.0);
                w.u64(accused.0);
                w.u8(level as u8);
                w.u8(u8::from(evidence == Evidence::Proof));
            }
            Self::Join { newcomer: n, as_of, proved } => {
                w.u8(5);
                w.u64(as_of.0);
                let member = Member {
                    incarnation: Incarnation::NONE,
                    kind: n.kind,
                    name: n.name,
                    address: n.address,
                    host: n.host,
                    token: n.token,
                    proposer: n.proposer,
                };
                write_member(&mut w, &member);
                w.u8(u8::from(proved));
            }
            Self::JoinReply { token, outcome } => {
                w.u8(6);
                w.u64(token);
                match outcome {
                    Ok((incarnation, view)) => {
                        w.u8(0);
                        w.u64(incarnation.0);
                        w.u64(view.0);
                    }
                    Err(refusal) => refusal.write(&mut w),
                }
            }
            Self::Leave(who) => {
                w.u8(7);
                w.u64(who.0);
            }
            Self::Nudge(slot) => {
                w.u8(8);
                w.u64(slot.0);
            }
            Self::SetLease(lease) => {
                w.u8(9);
                w.u64(lease.0);
            }
            Self::Strained(lease) => {
                w.u8(19);
                w.u64(lease.0);
            }
            Self::Vouch { nonce, view } => {
                w.u8(10);
                w.u64(nonce);
                w.u64(view.0);
            }
            Self::Vouched { nonce, newest, vouched } => {
                w.u8(11);
                w.u64(nonce);
                w.u64(newest.0);
                w.u8(u8::from(vouched));
            }
            Self::Raise { nonce, chunk, base, pages } => {
                w.u8(12);
                w.u64(nonce);
                w.u16(chunk);
                w.u64(base.0);
                w.0.extend_from_slice(pages.0);
            }
            Self::Raised { nonce, chunk, raised } => {
                w.u8(13);
                w.u64(nonce);
                w.u16(chunk);
                w.0.extend_from_slice(raised);
            }
            Self::SetAcceptor { number, decides, as_of } => {
                w.u8(14);
                w.u16(number);
                w.u8(u8::from(decides));
                w.u64(as_of.0);
            }
            Self::Lost(view) => {
                w.u8(15);
                w.u64(view.0);
            }
            Self::Deciders { id, acceptors } => {
                w.u8(16);
                w.u64(id.0);
                w.0.extend_from_slice(acceptors.0);
            }
            Self::Clock { nonce } => {
                w.u8(17);
                w.u64(nonce);
            }
            Self::ClockIs { nonce, clock } => {
                w.u8(18);
                w.u64(nonce);
                w.u64(clock.0);
            }
            Self::Alive(who) => {
                w.u8(20);
                w.u64(who.0);
            }
            Self::Links { from, view, silent } => {
                w.u8(21);
                w.u64(from.0);
                w.u64(view.0);
                w.0.extend_from_slice(silent);
            }
        }
        w.0
    }

    /// The reverse of [`Message::encode`]. A view's envelope is not opened here.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader(bytes);
        let message = match r.u8()? {
            kind @ (1 | 22) => return Ok(Self::View { sealed: r.rest(), cleared: kind == 22 }),
            2 => Self::Decided(r.view()?),
            3 => Self::Clear(r.view()?),
            4 => Self::Notice {
                accuser: r.incarnation()?,
                accused: r.incarnation()?,
                level: r.level()?,
                evidence: if r.u8()? == 0 { Evidence::Suspicion } else { Evidence::Proof },
            },
            5 => {
                let as_of = r.view()?;
                let Member { kind, name, address, host, token, proposer, .. } = read_member(&mut r)?;
                let newcomer = crate::view::Newcomer { kind, name, address, host, token, proposer };
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
            8 => Self::Nudge(r.view()?),
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
            15 => Self::Lost(r.view()?),
            16 => {
                let id = r.view()?;
                return Ok(Self::Deciders { id, acceptors: Addresses::new(r.rest())? });
            }
            17 => Self::Clock { nonce: r.u64()? },
            19 => Self::Strained(r.lease()?),
            18 => Self::ClockIs { nonce: r.u64()?, clock: Instant(r.number()?) },
            20 => Self::Alive(r.incarnation()?),
            21 => {
                let (from, view) = (r.incarnation()?, r.view()?);
                return Ok(Self::Links { from, view, silent: r.rest() });
            }
            23 => {
                let (id, cleared) = (r.view()?, r.view()?);
                return Ok(Self::Step { id, cleared, step: r.rest() });
            }
            other => return Err(DecodeError::Unknown(other)),
        };
        r.end()?;
        Ok(message)
    }
}
