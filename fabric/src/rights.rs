//! What a process may do to a peer's region, by its role and the region's use.
//!
//! | right | where | who |
//! |---|---|---|
//! | READ | the whole region | everybody |
//! | CAS | the fence word | lease caches and coordinators |
//! | CAS | the slot ring of an acceptor | coordinators |
//! | WRITE | the value areas of an acceptor | coordinators |
//! | WRITE | the value areas of a mailbox | members |

use crate::layout::Layout;
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

pub(crate) fn lies_in(range: &Range<u32>, offset: u32, bytes: u32) -> bool {
    range.start <= offset && u64::from(offset) + u64::from(bytes) <= u64::from(range.end)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::layout::Limits;

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
