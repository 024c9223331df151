//! A region as exposed to peers: the rights of its registrations, and which peers get which key.
//!
//! | registration | what | right | who gets its key |
//! |---|---|---|---|
//! | `read` | the whole region | READ | everybody |
//! | `fence` | the 8 bytes of the fence word | CAS | lease caches and coordinators |
//! | `slots` | the slot ring, of an acceptor | CAS | coordinators |
//! | `values` | the value areas, of an acceptor | WRITE | coordinators |
//! | `values` | the value areas, of a mailbox | WRITE | members |
//!
//! Keys are not secret: they can be guessed. So the queue pair of a peer also limits it to its role
//! ([`Role::rights`]), and both must allow an operation. A coordinator can CAS the words for which
//! it has a key. No peer can WRITE a member's region, except the value areas of a mailbox, which a
//! member does not use otherwise; and only its fence word can be swapped.

use super::context::ProtectionDomain;
use super::error::VerbsError;
use super::registration::{Memory, Registration, Rights, Target};
use crate::layout::Layout;
use crate::rights::lies_in;
pub use crate::rights::{Purpose, Role};
use core::ops::Range;
use std::sync::Arc;

impl Role {
    /// The rights of a peer of this role on the queue pair of a region with this use.
    pub fn rights(self, purpose: Purpose) -> Rights {
        match self {
            Self::Member if purpose == Purpose::Mailbox => Rights::READ | Rights::WRITE,
            Self::Proposer if purpose == Purpose::Acceptor => Rights::ALL,
            Self::Reader | Self::Member => Rights::READ,
            Self::Fencer | Self::Proposer => Rights::READ | Rights::CAS,
        }
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
    /// Of the value areas, for WRITE.
    pub values: Option<u32>,
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

    /// For a WRITE: only the value areas can be written, if at all.
    pub fn write(&self, layout: &Layout, offset: u32, bytes: u32) -> Option<Target> {
        self.target(self.values.filter(|_| lies_in(&layout.values(), offset, bytes)), offset)
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
    /// For an acceptor or a mailbox.
    values: Option<Registration>,
    purpose: Purpose,
}

impl Exposed {
    /// Registers a region of this layout.
    pub fn new(
        domain: &Arc<ProtectionDomain>,
        region: &Arc<dyn Memory>,
        layout: &Layout,
        purpose: Purpose,
    ) -> Result<Self, VerbsError> {
        let register = |range: Range<u32>, rights| {
            Registration::new(domain, Arc::clone(region), range.start as usize..range.end as usize, rights)
        };
        let fence = layout.fence();
        Ok(Self {
            read: register(0..layout.bytes() as u32, Rights::READ)?,
            fence: register(fence..fence + 8, Rights::CAS)?,
            slots: (purpose == Purpose::Acceptor)
                .then(|| register(layout.slots(), Rights::CAS))
                .transpose()?,
            values: (purpose != Purpose::Plain)
                .then(|| register(layout.values(), Rights::WRITE))
                .transpose()?,
            purpose,
        })
    }

    /// Its use.
    pub const fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// The keys for a peer of this role.
    pub fn keys(&self, role: Role) -> Keys {
        let rights = role.rights(self.purpose);
        let key = |registration: Option<&Registration>, right| {
            registration.filter(|_| rights.allows(right)).map(Registration::rkey)
        };
        Keys {
            base: self.read.address(0),
            read: key(Some(&self.read), Rights::READ),
            fence: key(Some(&self.fence), Rights::CAS),
            slots: key(self.slots.as_ref().filter(|_| role == Role::Proposer), Rights::CAS),
            values: key(self.values.as_ref(), Rights::WRITE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Limits;

    const LIMITS: Limits = Limits { seats: 2, slots: 8, proposers: 3, ..Limits::LEAST };

    #[test]
    fn an_operation_gets_the_key_of_what_it_touches_or_none() {
        let layout = Layout::new(LIMITS).expect("in bounds");
        let all = Keys { base: 1 << 20, read: Some(1), fence: Some(2), slots: Some(3), values: Some(4) };
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
                assert_eq!(role.rights(purpose), rights, "{role:?} at {purpose:?}");
            }
        }
    }
}
