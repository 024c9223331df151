//! One admitted process: what it has asked for, and whether its operations may be executed.

use super::budget::Payer;
use crate::frame::{OPERATION_BYTES_MAX, Reply, Request, Seat, Target};
use nix::sys::epoll::EpollFlags;
use obol_fabric::contract::{LinkError, Remote};
use obol_fabric::host::{FIRST_FREE, MAILBOX_FLAG};
use obol_fabric::layout::Layout;
use obol_fabric::rights::{Purpose, Role};
use obol_fabric::shm::Links;
use obol_fabric::types::{Address, Instant, RegionOwner};
use obol_identity::{Claims, Duty, Stream, StreamError};
use std::collections::HashSet;

/// An admitted process.
pub(super) struct Session {
    pub(super) stream: Stream,
    pub(super) region: u32,
    pub(super) role: Role,
    /// What the certificate of its host says.
    pub(super) claims: Claims,
    /// Its address for the processes of this host.
    pub(super) from: Address,
    /// Who answers for what it costs.
    pub(super) payer: Payer,
    /// Whom it watches.
    pub(super) watches: HashSet<Seat>,
    /// Regions at which an operation has failed, and its epoch: the rest of it fails, too.
    broken: Vec<(u32, u32)>,
    /// What it waits for.
    pub(super) flags: EpollFlags,
    /// Since when the socket has taken none of the answers that wait.
    pub(super) stalled_since: Option<Instant>,
    /// The part of its budget's [`Account::unsent`](super::budget::Account) that is its own.
    pub(super) unsent: usize,
    /// Whether requests have arrived that were not looked at. None are received before.
    pub(super) behind: bool,
    /// Whether it is served in the next turn, whatever arrives.
    pub(super) deferred: bool,
    /// Why nothing more arrives: it is ended once what has arrived is executed.
    pub(super) closed: Option<StreamError>,
    /// The turn in which it was used last.
    pub(super) used: u64,
    /// Whether it is the connection of a gateway for its pulses.
    pub(super) pulses: bool,
    /// Messages that follow a death and were not sent yet.
    pub(super) followers: u32,
    /// Whether the gateway's program has a question of it. It sends nothing else until that is answered.
    pub(super) asks: bool,
}

const fn remote(at: Target) -> Remote {
    Remote { at: at.seat.within_host(), offset: at.offset }
}

impl Session {
    pub(super) fn new(stream: Stream, region: u32, role: Role, claims: Claims, from: Address) -> Self {
        Self {
            stream,
            region,
            role,
            claims,
            from,
            payer: Payer { host: claims.host, reads: region == 0 },
            watches: HashSet::new(),
            broken: Vec::new(),
            flags: EpollFlags::EPOLLIN,
            stalled_since: None,
            unsent: 0,
            behind: false,
            deferred: false,
            closed: None,
            used: 0,
            pulses: false,
            followers: 0,
            asks: false,
        }
    }

    /// Whether it takes answers more slowly than they are made: more than this number of bytes waits.
    pub(super) const fn is_congested(&self, unsent_max: usize) -> bool {
        self.stream.unsent() > unsent_max
    }

    /// Executes an operation, and answers it. Returns whether the role allows it. `is_here` says
    /// whether the region is of this host: another one never answers here, and nothing is kept of it.
    pub(super) fn operate(
        &mut self,
        request: &Request<'_>,
        is_here: impl Fn(Seat) -> bool,
        links: &mut Links,
        buffer: &mut Vec<u8>,
    ) -> bool {
        let (Request::Read { at, .. } | Request::Write { at, .. } | Request::Cas { at, .. }) = *request
        else {
            return true;
        };
        if !is_here(at.seat) {
            let refused = self.check(request, links).err();
            Reply::Failed(refused.unwrap_or(LinkError::PeerDead)).encode(&mut self.stream.output);
            return refused != Some(LinkError::Denied);
        }
        let mut is_allowed = true;
        let result = self.admit(at).and_then(|()| {
            self.check(request, links).inspect_err(|error| is_allowed = *error != LinkError::Denied)?;
            self.execute(request, links, buffer)
        });
        if let Err(LinkError::PeerDead | LinkError::Unmapped) = result {
            self.fail(at);
        }
        result.unwrap_or_else(Reply::Failed).encode(&mut self.stream.output);
        is_allowed
    }

    /// Whether the role allows an operation. A fault in the request is one whatever the rights.
    fn check(&self, request: &Request<'_>, links: &Links) -> Result<(), LinkError> {
        let layout = links.layout();
        let allows = match *request {
            Request::Read { len, .. } => {
                if len as usize > OPERATION_BYTES_MAX.min(layout.bytes()) {
                    return Err(LinkError::OutOfBounds);
                }
                true
            }
            Request::Write { at, bytes } => {
                check_bounds(layout, at, bytes.len())?;
                let purpose = purpose(links, at.seat.region);
                self.role.may_write(purpose, layout, at.offset, bytes.len() as u32)
            }
            Request::Cas { at, .. } => {
                check_bounds(layout, at, 8)?;
                self.role.may_cas(purpose(links, at.seat.region), layout, at.offset)
            }
            _ => false,
        };
        // A gateway is admitted for its pulses alone.
        if allows && self.claims.allow(Duty::of(self.role)) { Ok(()) } else { Err(LinkError::Denied) }
    }

    /// Fails what was posted before an earlier failure was taken.
    fn admit(&mut self, at: Target) -> Result<(), LinkError> {
        let Some(known) = self.broken.iter().position(|(region, _)| *region == at.seat.region) else {
            return Ok(());
        };
        if self.broken.get(known).is_some_and(|(_, epoch)| *epoch == at.epoch) {
            return Err(LinkError::PeerDead);
        }
        self.broken.swap_remove(known);
        Ok(())
    }

    fn fail(&mut self, at: Target) {
        let entry = (at.seat.region, at.epoch);
        if !self.broken.contains(&entry) {
            self.broken.push(entry);
        }
    }

    fn execute<'b>(
        &self,
        request: &Request<'_>,
        links: &mut Links,
        buffer: &'b mut Vec<u8>,
    ) -> Result<Reply<'b>, LinkError> {
        match *request {
            Request::Read { at, len } => {
                buffer.clear();
                buffer.resize(len as usize, 0);
                links.read(remote(at), buffer)?;
                Ok(Reply::Read(buffer))
            }
            Request::Write { at, bytes } => {
                // The owner of the region permits it to the process, not to this gateway.
                let whom = RegionOwner { region: self.region, generation: self.from.generation };
                links.write_for(whom, remote(at), bytes).map(|()| Reply::Written)
            }
            Request::Cas { at, expected, desired } => {
                links.cas(remote(at), expected, desired).map(Reply::Swapped)
            }
            _ => Err(LinkError::Denied),
        }
    }
}

fn check_bounds(layout: &Layout, at: Target, len: usize) -> Result<(), LinkError> {
    let inside = len.is_multiple_of(8)
        && at.offset.is_multiple_of(8)
        && (at.offset as usize).checked_add(len).is_some_and(|end| end <= layout.bytes());
    if inside { Ok(()) } else { Err(LinkError::OutOfBounds) }
}

/// What a region is used for.
fn purpose(links: &Links, region: u32) -> Purpose {
    if region < FIRST_FREE {
        return Purpose::Acceptor;
    }
    let groups = links.regions.cluster.table.get(region).map_or(0, |entry| entry.role.groups);
    if groups & MAILBOX_FLAG != 0 { Purpose::Mailbox } else { Purpose::Plain }
}
