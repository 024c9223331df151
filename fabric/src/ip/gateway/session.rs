//! One admitted process: what it has asked for, and whether its operations may be executed.

use crate::contract::{LinkError, Remote};
use crate::host::table::{FIRST_FREE, MAILBOX_FLAG};
use crate::identity::{Claims, Duty, Stream};
use crate::ip::frame::{OPERATION_BYTES_MAX, Reply, Request, Seat, Target};
use crate::layout::Layout;
use crate::rights::{Purpose, Role};
use crate::shm::link::Links;
use crate::types::{Address, RegionOwner};

/// An admitted process.
pub(super) struct Session {
    pub(super) stream: Stream,
    pub(super) region: u32,
    pub(super) role: Role,
    /// What the certificate of its host says.
    pub(super) claims: Claims,
    /// Its address for the processes of this host.
    pub(super) from: Address,
    /// Whom it watches.
    pub(super) watches: Vec<Seat>,
    /// Regions at which an operation has failed, and its epoch: the rest of it fails, too.
    broken: Vec<(u32, u32)>,
    /// Whether it waits for the socket to take more.
    pub(super) stalled: bool,
    /// Whether the gateway's program has a question of it. It sends nothing else until that is answered.
    pub(super) asks: bool,
}

const fn remote(at: Target) -> Remote {
    Remote { at: at.seat.within_host(), offset: at.offset }
}

impl Session {
    pub(super) fn new(stream: Stream, region: u32, (role, claims): (Role, Claims), from: Address) -> Self {
        Self {
            stream,
            region,
            role,
            claims,
            from,
            watches: Vec::new(),
            broken: Vec::new(),
            stalled: false,
            asks: false,
        }
    }

    /// Executes an operation, and answers it. Returns whether the role allows it.
    pub(super) fn operate(&mut self, request: &Request<'_>, links: &mut Links, buffer: &mut Vec<u8>) -> bool {
        let (Request::Read { at, .. } | Request::Write { at, .. } | Request::Cas { at, .. }) = *request
        else {
            return true;
        };
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
