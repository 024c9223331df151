//! A region as exposed to peers: the rights of its registrations, and which peers get which key.
//!
//! | registration | what | right | who gets its key |
//! |---|---|---|---|
//! | `read` | the whole region | READ | everybody |
//! | `fence` | the 8 bytes of the fence word | CAS | lease caches and coordinators |
//! | `slots` | the slot ring, of an acceptor | CAS | coordinators |
//! | `values` | the value areas, of an acceptor | WRITE | coordinators |
//! | `values` | the value areas, of a mailbox | WRITE | members |
//! | `log` | a part of the value areas, if there is a log | READ, WRITE | those who have a key for `values` |
//!
//! The log is registered in a protection domain of its own, and `values` are without it: so its key is
//! good only on a queue pair of that domain, whose rights its owner changes (`permits.rs`).
//!
//! Keys are not secret: they can be guessed. So the queue pair of a peer also limits it to its role
//! ([`rights_of`]), and both must allow an operation. A coordinator can CAS the words for which
//! it has a key. No peer can WRITE a member's region, except the value areas of a mailbox, which a
//! member does not use otherwise; and only its fence word can be swapped.

use super::context::ProtectionDomain;
use super::error::VerbsError;
use super::registration::{Memory, Registration, Rights, Target};
use core::ops::Range;
use obol_fabric::layout::Layout;
use obol_fabric::rights::lies_in;
pub use obol_fabric::rights::{Purpose, Role};
use std::sync::Arc;

/// The rights of a peer of this role on the queue pair of a region with this use.
pub fn rights_of(role: Role, purpose: Purpose) -> Rights {
    match role {
        Role::Member if purpose == Purpose::Mailbox => Rights::READ | Rights::WRITE,
        Role::Proposer if purpose == Purpose::Acceptor => Rights::ALL,
        Role::Reader | Role::Member => Rights::READ,
        Role::Fencer | Role::Proposer => Rights::READ | Rights::CAS,
    }
}

/// The connection of a link that carries an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plane {
    /// All but the log.
    Common,
    /// WRITEs into the peer's log.
    Log,
}

/// A peer's key for a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogKey {
    /// The key, on a queue pair for the log.
    pub key: u32,
    /// The log's first byte in the region.
    pub begin: u32,
    /// The end of its last one.
    pub end: u32,
}

impl LogKey {
    const fn part(&self) -> Range<u32> {
        self.begin..self.end
    }
}

/// A peer's keys for a region; `None` for keys that it was not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The address of the region's first byte in its owner's process.
    pub base: u64,
    /// Of the whole region, for READ.
    pub read: Option<u32>,
    /// Of the fence word, for CAS.
    pub fence: Option<u32>,
    /// Of the slot ring, for CAS.
    pub slots: Option<u32>,
    /// Of the value areas, for WRITE; where there is a log, of what lies before it.
    pub values: Option<u32>,
    /// Of the value areas behind the log.
    pub behind: Option<u32>,
    pub log: Option<LogKey>,
}

impl Keys {
    fn target(&self, key: Option<u32>, offset: u32) -> Option<Target> {
        Some(Target { address: self.base.checked_add(u64::from(offset))?, rkey: key? })
    }

    /// For a READ; `None` if it is outside the region, or without a key.
    pub fn read(&self, layout: &Layout, offset: u32, bytes: u32) -> Option<Target> {
        let inside = u64::from(offset) + u64::from(bytes) <= layout.bytes() as u64;
        self.target(self.read.filter(|_| inside), offset)
    }

    /// For a WRITE: only the value areas can be written, if at all, and the log only by itself.
    pub fn write(&self, layout: &Layout, offset: u32, bytes: u32) -> Option<Target> {
        let values = layout.values();
        let key = match self.log {
            _ if !lies_in(&values, offset, bytes) => None,
            Some(log) if lies_in(&log.part(), offset, bytes) => Some(log.key),
            Some(log) if lies_in(&(values.start..log.begin), offset, bytes) => self.values,
            Some(log) if lies_in(&(log.end..values.end), offset, bytes) => self.behind,
            Some(_) => None,
            None => self.values,
        };
        self.target(key, offset)
    }

    /// The connection for a WRITE.
    pub fn plane_of_write(&self, offset: u32, bytes: u32) -> Plane {
        let is_log = self.log.is_some_and(|log| lies_in(&log.part(), offset, bytes));
        if is_log { Plane::Log } else { Plane::Common }
    }

    /// For a READ of any word, by this connection.
    pub fn probe(&self, plane: Plane) -> Option<Target> {
        match plane {
            Plane::Common => self.target(self.read, 0),
            Plane::Log => self.log.and_then(|log| self.target(Some(log.key), log.begin)),
        }
    }

    /// For a CAS: only slots and the fence word can be swapped.
    pub fn cas(&self, layout: &Layout, offset: u32) -> Option<Target> {
        let key = if offset == layout.fence() {
            self.fence
        } else {
            self.slots.filter(|_| offset.is_multiple_of(8) && lies_in(&layout.slots(), offset, 8))
        };
        self.target(key, offset)
    }
}

/// A region registered with a device. Dropping it ends the access of all peers at once.
#[derive(Debug)]
pub struct Exposed {
    read: Registration,
    fence: Registration,
    /// For an acceptor.
    slots: Option<Registration>,
    /// For an acceptor or a mailbox: before the log, or all, and behind it.
    values: [Option<Registration>; 2],
    log: Option<Log>,
    purpose: Purpose,
}

/// The part of the value areas that a process permits others to WRITE, or not.
#[derive(Debug)]
struct Log {
    registration: Registration,
    domain: Arc<ProtectionDomain>,
    part: Range<u32>,
}

impl Exposed {
    /// Registers a region of this layout.
    pub fn new(
        domain: &Arc<ProtectionDomain>,
        region: &Arc<dyn Memory>,
        layout: &Layout,
        purpose: Purpose,
    ) -> Result<Self, VerbsError> {
        Self::with_log(domain, region, layout, purpose, None)
    }

    /// The same with a log in this part of the value areas, if any.
    pub fn with_log(
        domain: &Arc<ProtectionDomain>,
        region: &Arc<dyn Memory>,
        layout: &Layout,
        purpose: Purpose,
        log: Option<Range<u32>>,
    ) -> Result<Self, VerbsError> {
        let register_in = |domain: &Arc<ProtectionDomain>, range: Range<u32>, rights| {
            Registration::new(domain, Arc::clone(region), range.start as usize..range.end as usize, rights)
        };
        let register = |range, rights| register_in(domain, range, rights);
        let values = |range: Range<u32>| {
            let is_written = purpose != Purpose::Plain && !range.is_empty();
            is_written.then(|| register(range, Rights::WRITE)).transpose()
        };
        let (fence, all) = (layout.fence(), layout.values());
        let (before, behind) = match &log {
            Some(part) => (all.start..part.start, part.end..all.end),
            None => (all, 0..0),
        };
        let exposed_log = |part: Range<u32>| {
            let domain = ProtectionDomain::new(domain.context())?;
            let registration = register_in(&domain, part.clone(), Rights::READ | Rights::WRITE)?;
            Ok::<_, VerbsError>(Log { registration, domain, part })
        };
        Ok(Self {
            read: register(0..layout.bytes() as u32, Rights::READ)?,
            fence: register(fence..fence + 8, Rights::CAS)?,
            slots: (purpose == Purpose::Acceptor)
                .then(|| register(layout.slots(), Rights::CAS))
                .transpose()?,
            values: [values(before)?, values(behind)?],
            log: log.map(exposed_log).transpose()?,
            purpose,
        })
    }

    /// Its use.
    pub const fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// The protection domain of queue pairs for the log, if there is one.
    pub fn log_domain(&self) -> Option<&Arc<ProtectionDomain>> {
        self.log.as_ref().map(|log| &log.domain)
    }

    /// The keys for a peer of this role.
    pub fn keys(&self, role: Role) -> Keys {
        let rights = rights_of(role, self.purpose);
        let key = |registration: Option<&Registration>, right| {
            registration.filter(|_| rights.allows(right)).map(Registration::rkey)
        };
        Keys {
            base: self.read.address(0),
            read: key(Some(&self.read), Rights::READ),
            fence: key(Some(&self.fence), Rights::CAS),
            slots: key(self.slots.as_ref().filter(|_| role == Role::Proposer), Rights::CAS),
            values: key(self.values[0].as_ref(), Rights::WRITE),
            behind: key(self.values[1].as_ref(), Rights::WRITE),
            log: self.log.as_ref().and_then(|log| {
                let Range { start: begin, end } = log.part;
                key(Some(&log.registration), Rights::WRITE).map(|key| LogKey { key, begin, end })
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric::layout::Limits;

    const LIMITS: Limits = Limits { seats: 2, slots: 8, proposers: 3, ..Limits::LEAST };

    #[test]
    fn an_operation_gets_the_key_of_what_it_touches_or_none() {
        let layout = Layout::new(LIMITS).expect("in bounds");
        let (behind, log) = (None, None);
        let all = Keys {
            base: 1 << 20,
            read: Some(1),
            fence: Some(2),
            slots: Some(3),
            values: Some(4),
            behind,
            log,
        };
        let rkey = |target: Option<Target>| target.map(|t| t.rkey);
        assert_eq!(all.read(&layout, 64, 8), Some(Target { address: (1 << 20) + 64, rkey: 1 }));
        assert_eq!(rkey(all.read(&layout, layout.bytes() as u32 - 8, 16)), None);
        assert_eq!(rkey(all.cas(&layout, layout.fence())), Some(2));
        assert_eq!(rkey(all.cas(&layout, layout.fence() + 8)), None);
        assert_eq!(rkey(all.cas(&layout, layout.slot(7))), Some(3));
        assert_eq!(rkey(all.cas(&layout, layout.slot(7) + 4)), None);
        assert_eq!(rkey(all.cas(&layout, layout.slot(7) + 8)), None);
        assert_eq!(rkey(all.write(&layout, layout.value(7, 3), 512)), Some(4));
        assert_eq!(rkey(all.write(&layout, layout.value(7, 3), 513)), None);
        assert_eq!(rkey(all.write(&layout, layout.slot(0), 8)), None);
        let reader = Keys { fence: None, slots: None, values: None, ..all };
        assert_eq!(rkey(reader.cas(&layout, layout.fence())), None);
        assert_eq!(rkey(reader.write(&layout, layout.value(0, 1), 8)), None);
    }

    #[test]
    fn a_write_into_the_log_has_a_key_and_a_connection_of_its_own() {
        let layout = Layout::new(LIMITS).expect("in bounds");
        let values = layout.values();
        let log = LogKey { key: 6, begin: values.start + 64, end: values.end - 64 };
        let keys = Keys {
            base: 0,
            read: Some(1),
            fence: None,
            slots: None,
            values: Some(4),
            behind: Some(5),
            log: Some(log),
        };
        for (offset, bytes, key, plane) in [
            (values.start, 64, Some(4), Plane::Common),
            (values.start, 72, None, Plane::Common),
            (log.begin - 8, 16, None, Plane::Common),
            (log.begin, 8, Some(6), Plane::Log),
            (log.begin, log.end - log.begin, Some(6), Plane::Log),
            (log.end - 8, 16, None, Plane::Common),
            (log.end, 64, Some(5), Plane::Common),
            (log.end, 72, None, Plane::Common),
            (values.start - 8, 8, None, Plane::Common),
        ] {
            let found = keys.write(&layout, offset, bytes).map(|target| target.rkey);
            assert_eq!((found, keys.plane_of_write(offset, bytes)), (key, plane), "{offset} {bytes}");
        }
        assert_eq!(keys.probe(Plane::Common), Some(Target { address: 0, rkey: 1 }));
        assert_eq!(keys.probe(Plane::Log), Some(Target { address: u64::from(log.begin), rkey: 6 }));
    }

    #[test]
    fn a_queue_pair_allows_no_more_than_the_role() {
        use Purpose::{Acceptor, Mailbox, Plain};
        use Role::{Fencer, Member, Proposer, Reader};
        let (read, swap) = (Rights::READ, Rights::READ | Rights::CAS);
        for (role, purposes) in [
            (Reader, [(Plain, read), (Mailbox, read), (Acceptor, read)]),
            (Member, [(Plain, read), (Mailbox, read | Rights::WRITE), (Acceptor, read)]),
            (Fencer, [(Plain, swap), (Mailbox, swap), (Acceptor, swap)]),
            (Proposer, [(Plain, swap), (Mailbox, swap), (Acceptor, Rights::ALL)]),
        ] {
            for (purpose, rights) in purposes {
                assert_eq!(rights_of(role, purpose), rights, "{role:?} at {purpose:?}");
            }
        }
    }
}
