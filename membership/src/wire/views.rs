//! The encoding of views, whole or as a step from their predecessor.

use super::codec::{DecodeError, Reader, Writer};
use crate::frame;
use crate::view::{Acceptor, Change, Deciders, Departed, Member, Numbers, View};
use obol_fabric::Layout;
use std::sync::Arc;

/// The limit of members in one view. Bounds what a decoder allocates; a cluster's own limit is
/// `Limits::value_bytes`.
pub const MEMBERS_MAX: usize = 8192;

pub(super) fn write_member(w: &mut Writer, m: &Member) {
    w.u64(m.incarnation.0).u8(m.kind as u8).name(m.name).address(m.address);
    w.u64(m.host.0).u64(m.token).u16(m.proposer).u16(m.release.number());
}

pub(super) fn read_member(r: &mut Reader<'_>) -> Result<Member, DecodeError> {
    Ok(Member {
        incarnation: r.incarnation()?,
        kind: r.kind()?,
        name: r.name()?,
        address: r.address()?,
        host: r.incarnation()?,
        token: r.u64()?,
        proposer: r.u16()?,
        release: r.release()?,
    })
}

fn write_acceptor<'w>(w: &'w mut Writer, a: &Acceptor) -> &'w mut Writer {
    w.u16(a.proposer).address(a.address)
}

fn read_acceptor(r: &mut Reader<'_>) -> Result<Acceptor, DecodeError> {
    Ok(Acceptor { proposer: r.u16()?, address: r.address()? })
}

impl View {
    /// The encoded view in its frame.
    pub fn to_frame(&self) -> Arc<[u8]> {
        frame::encode_frame(self.id, &encode_view(self))
    }

    /// The view in a frame; `None` if the bytes are not a whole one.
    pub fn from_frame(bytes: &[u8]) -> Option<Self> {
        let (id, whole) = frame::decode_frame(bytes).ok()?;
        let view = decode_view(frame::body(whole)).ok()?;
        (view.id == id).then_some(view)
    }

    /// The same, checked against the layout.
    pub fn from_frame_for(layout: &Layout, bytes: &[u8]) -> Option<Self> {
        Self::from_frame(bytes).filter(|view| view.fits(layout))
    }
}

/// The body of a view.
pub fn encode_view(view: &View) -> Vec<u8> {
    let mut w = Writer(Vec::with_capacity(128 + view.members.len() * 64));
    write_head(&mut w, view);
    w.u16(view.members.len() as u16);
    for m in &view.members {
        write_member(&mut w, m);
    }
    w.u16(view.departed.len() as u16);
    for d in &view.departed {
        w.u64(d.token).u64(d.incarnation.0).name(d.name).u8(d.kind as u8).u64(d.at.0).flag(d.left);
    }
    write_changes(&mut w, view);
    w.0
}

/// Everything in a view except its members, departed members and changes.
fn write_head(w: &mut Writer, view: &View) {
    for number in [view.id.0, view.base.0, view.cleared.0] {
        w.u64(number);
    }
    for span in [view.wait, view.run_reach, view.lease, view.cache_lease] {
        w.u64(span.0);
    }
    w.u64(view.next_incarnation.0).u8(view.acceptors.len() as u8).u8(view.retired.to_bits());
    for a in &view.acceptors {
        write_acceptor(w, a);
    }
}

fn write_changes(w: &mut Writer, view: &View) {
    w.u16(view.changes.len() as u16);
    for change in &view.changes {
        match *change {
            Change::Joined(who) => w.u8(1).u64(who.0),
            Change::Left(who) => w.u8(2).u64(who.0),
            Change::Failed { accused, accuser, reason } => {
                w.u8(3).u64(accused.0).u64(accuser.0).u8(reason as u8)
            }
            Change::Lease => w.u8(4),
            Change::Settled => w.u8(5),
            Change::AcceptorAdded(acceptor) => write_acceptor(w.u8(6), &acceptor),
            Change::AcceptorRemoved(acceptor) => write_acceptor(w.u8(7), &acceptor),
            Change::Recovered(from) => w.u8(8).u64(from.0),
        };
    }
}

/// A view as the difference from its predecessor, for views too large for a datagram, with the
/// checksum of the resulting framed view.
pub fn encode_step(before: &View, view: &View, frame: &[u8]) -> Vec<u8> {
    let mut w = Writer(Vec::with_capacity(256));
    write_head(&mut w, view);
    let gone = before.members.iter().filter(|m| view.member(m.incarnation).is_none());
    let new = view.members.iter().filter(|m| before.member(m.incarnation).is_none());
    w.u16(gone.clone().count() as u16);
    for m in gone {
        w.u64(m.incarnation.0);
    }
    w.u16(new.clone().count() as u16);
    new.for_each(|m| write_member(&mut w, m));
    write_changes(&mut w, view);
    w.bytes(frame::sum(frame));
    w.0
}

/// The view described by [`encode_step`], also framed; `None` if these bytes belong to another
/// predecessor, or if the result is not the decided view.
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
    let frame = view.to_frame();
    (frame::sum(&frame) == r.rest()).then_some((view, frame))
}

/// Who decides after the view described by [`encode_step`], and who is retired, whatever its
/// predecessor is. Only a process that can apply the step can check them.
pub fn deciders_of_step(bytes: &[u8]) -> Option<Deciders> {
    read_head(&mut Reader(bytes)).ok().map(|view| Deciders::of(&view))
}

/// The number of bytes by which a view can grow, except for new members, when some of its members
/// are removed or the lease changes.
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
    let distinct = view.acceptors.windows(2).all(|a| a[0].proposer < a[1].proposer);
    if view.acceptors.is_empty() || !distinct || retired || !ordered || !sorted || !one_acceptor || !past {
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
            3 => Change::Failed { accused: r.incarnation()?, accuser: r.incarnation()?, reason: r.reason()? },
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
