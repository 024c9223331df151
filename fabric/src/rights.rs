//! What a process may do to a peer's region, by its role and the region's use.
//!
//! | right | where | who |
//! |---|---|---|
//! | READ | the whole region | everybody |
//! | CAS | the fence word | lease caches and coordinators |
//! | CAS | the slot ring of an acceptor | coordinators |
//! | WRITE | the value areas of an acceptor | coordinators |
//! | WRITE | the value areas of a mailbox | members |

#![warn(missing_docs, reason = "others write programs and backends against this")]

use crate::layout::Layout;
use crate::types::{Address, RegionOwner};
use core::ops::Range;

/// A peer's role for the owner of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// An observer, or an unknown process.
    Reader,
    /// A member: it may write to owners of a mailbox.
    Member,
    /// A lease cache: it raises fences.
    Fencer,
    /// A coordinator: it raises fences and, at an acceptor, proposes views.
    Proposer,
}

impl Role {
    /// Whether a peer of this role may CAS the word at an offset of a region with this use.
    pub fn may_cas(self, purpose: Purpose, layout: &Layout, offset: u32) -> bool {
        match self {
            Self::Reader | Self::Member => false,
            Self::Fencer => offset == layout.fence(),
            Self::Proposer => {
                offset == layout.fence()
                    || purpose == Purpose::Acceptor && lies_in(&layout.slots(), offset, 8)
            }
        }
    }

    /// Whether a peer of this role may WRITE these bytes of a region with this use.
    pub fn may_write(self, purpose: Purpose, layout: &Layout, offset: u32, bytes: u32) -> bool {
        let writes =
            matches!((self, purpose), (Self::Member, Purpose::Mailbox) | (Self::Proposer, Purpose::Acceptor));
        writes && lies_in(&layout.values(), offset, bytes)
    }

    /// Whether a peer of this role may send datagrams.
    pub const fn may_send(self) -> bool {
        !matches!(self, Self::Reader)
    }
}

/// The use of a region besides membership: who changes more of it than the fence word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// None.
    #[default]
    Plain,
    /// Members WRITE its value areas.
    Mailbox,
    /// Coordinators decide views in its slots and value areas.
    Acceptor,
}

/// The processes that a permission concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Writers {
    /// Every process, the own one included, present and future.
    Everyone,
    /// The process at this address; with generation 0 all owners of the region.
    Process(Address),
}

/// Whether WRITEs into the value areas of a region are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Permission {
    /// They are, if the role allows them.
    Granted,
    /// They are refused.
    Revoked,
}

/// A change of permissions, as posted: see [`crate::Fabric::permit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Whose WRITEs it concerns.
    pub whom: Writers,
    /// Into which bytes of the region.
    pub part: Range<u32>,
    /// What becomes of them.
    pub permission: Permission,
}

/// The permissions that a process has given on its region since it started, as
/// [`crate::Fabric::permit`] changes them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Permissions {
    /// Those of each part that changes have named, unless all are permitted there.
    parts: Vec<(Range<u32>, PartPermissions)>,
}

/// Whether the WRITEs of some owners of a region are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub(crate) region: u32,
    /// 0 for all owners of the region.
    pub(crate) generation: u32,
    pub(crate) refused: bool,
}

impl Entry {
    /// Whether it concerns this owner of a region.
    pub(crate) const fn is_for(&self, writer: RegionOwner) -> bool {
        self.region == writer.region && (self.generation == 0 || self.generation == writer.generation)
    }
}

/// The permissions on a part of the region.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PartPermissions {
    /// Whether processes without an entry are refused.
    refused: bool,
    /// Of two that match, the one of a generation counts.
    entries: Vec<Entry>,
}

impl PartPermissions {
    /// Whether processes without an entry are refused.
    pub(crate) const fn refuses_others(&self) -> bool {
        self.refused
    }

    /// The entries, which differ from the rest.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Changes them.
    pub fn set(&mut self, whom: Writers, permission: Permission) {
        let refused = permission == Permission::Revoked;
        match whom {
            Writers::Everyone => {
                self.entries.clear();
                self.refused = refused;
            }
            Writers::Process(Address { region, generation, .. }) => {
                self.entries
                    .retain(|it| it.region != region || generation != 0 && it.generation != generation);
                self.entries.push(Entry { region, generation, refused });
                // An entry that says what holds for the rest is not needed, unless it is an exception
                // from one for all owners of its region.
                let all = core::mem::take(&mut self.entries);
                let is_exception = |it: &Entry| {
                    it.generation != 0 && all.iter().any(|o| o.region == it.region && o.generation == 0)
                };
                let needed = all.iter().filter(|it| it.refused != self.refused || is_exception(it));
                self.entries = needed.copied().collect();
            }
        }
    }

    /// Whether WRITEs of the process that is, or was, this owner of a region are executed.
    pub fn allow(&self, writer: RegionOwner) -> bool {
        let said = self.entries.iter().filter(|it| it.is_for(writer)).max_by_key(|it| it.generation);
        !said.map_or(self.refused, |it| it.refused)
    }
}

impl Permissions {
    /// Changes those on a part.
    pub fn set(&mut self, whom: Writers, part: &Range<u32>, permission: Permission) {
        let known = self.parts.iter().position(|(known, _)| known == part);
        let at = known.unwrap_or_else(|| {
            self.parts.push((part.clone(), PartPermissions::default()));
            self.parts.len() - 1
        });
        self.parts[at].1.set(whom, permission);
        self.parts.retain(|(_, given)| *given != PartPermissions::default());
    }

    /// Whether a WRITE to these bytes, by the process that is, or was, this owner of a region, is
    /// executed.
    pub fn allow(&self, writer: RegionOwner, offset: u32, bytes: u32) -> bool {
        let end = u64::from(offset) + u64::from(bytes);
        let touched = self.parts.iter().filter(|(part, _)| offset < part.end && end > u64::from(part.start));
        touched.into_iter().all(|(_, given)| given.allow(writer))
    }
}

/// Whether an access of this many bytes stays within a part of a region.
pub fn lies_in(range: &Range<u32>, offset: u32, bytes: u32) -> bool {
    range.start <= offset && u64::from(offset) + u64::from(bytes) <= u64::from(range.end)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::layout::Limits;

    #[test]
    fn the_latest_permission_that_concerns_a_writer_counts() {
        use Permission::{Granted, Revoked};
        let process =
            |region, generation| Writers::Process(Address { generation, ..Address::region(region) });
        let mut given = Permissions::default();
        let allows =
            |given: &Permissions, region, generation| given.allow(RegionOwner { region, generation }, 64, 8);
        let part = 0..128;
        assert!(allows(&given, 3, 1));
        given.set(process(3, 1), &part, Revoked);
        assert!(!allows(&given, 3, 1) && allows(&given, 3, 2) && allows(&given, 4, 1));
        given.set(Writers::Everyone, &part, Revoked);
        given.set(process(3, 2), &part, Granted);
        assert!(allows(&given, 3, 2) && !allows(&given, 3, 1) && !allows(&given, 3, 3));
        given.set(process(3, 0), &part, Revoked);
        assert!(!allows(&given, 3, 2));
        given.set(process(3, 0), &part, Granted);
        given.set(process(3, 5), &part, Revoked);
        assert!(allows(&given, 3, 4) && !allows(&given, 3, 5));
        given.set(Writers::Everyone, &part, Granted);
        assert_eq!(given, Permissions::default());
    }

    #[test]
    fn each_part_has_permissions_of_its_own() {
        use Permission::{Granted, Revoked};
        let mut given = Permissions::default();
        let writer = RegionOwner { region: 3, generation: 1 };
        given.set(Writers::Everyone, &(64..128), Revoked);
        let allowed = |given: &Permissions, offset, bytes| given.allow(writer, offset, bytes);
        assert!(allowed(&given, 0, 64) && allowed(&given, 128, 8));
        assert!(!allowed(&given, 64, 8) && !allowed(&given, 56, 16) && !allowed(&given, 120, 16));
        // All parts that a WRITE touches have to permit it.
        given.set(Writers::Everyone, &(0..256), Granted);
        assert!(!allowed(&given, 64, 8));
        given.set(Writers::Everyone, &(0..256), Revoked);
        given.set(Writers::Everyone, &(64..128), Granted);
        assert!(!allowed(&given, 64, 8) && !allowed(&given, 0, 8) && allowed(&given, 256, 8));
    }

    #[test]
    fn a_role_changes_what_its_duty_needs_and_nothing_else() {
        use Purpose::{Acceptor, Mailbox, Plain};
        use Role::{Fencer, Member, Proposer, Reader};
        let limits = Limits { seats: 2, slots: 8, proposers: 3, ..Limits::LEAST };
        let layout = Layout::new(limits).expect("in bounds");
        let (fence, slot, value) = (layout.fence(), layout.slot(3), layout.value(3, 1));
        for (role, purpose, [swaps_fence, swaps_slot, writes]) in [
            (Reader, Acceptor, [false, false, false]),
            (Reader, Mailbox, [false, false, false]),
            (Member, Plain, [false, false, false]),
            (Member, Acceptor, [false, false, false]),
            (Member, Mailbox, [false, false, true]),
            (Fencer, Acceptor, [true, false, false]),
            (Fencer, Mailbox, [true, false, false]),
            (Proposer, Plain, [true, false, false]),
            (Proposer, Mailbox, [true, false, false]),
            (Proposer, Acceptor, [true, true, true]),
        ] {
            let given = [
                role.may_cas(purpose, &layout, fence),
                role.may_cas(purpose, &layout, slot),
                role.may_write(purpose, &layout, value, 8),
            ];
            assert_eq!(given, [swaps_fence, swaps_slot, writes], "{role:?} at {purpose:?}");
            assert!(!role.may_cas(purpose, &layout, value) && !role.may_write(purpose, &layout, slot, 8));
            assert!(!role.may_write(purpose, &layout, layout.values().end - 8, 16));
        }
    }
}
