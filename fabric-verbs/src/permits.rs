//! Permissions over RDMA: see [`obol_fabric::Fabric::permit`], and for the whole `docs/design/rdma.md`.
//!
//! They concern one part of the value areas, the *log*, which a process names when it opens its
//! endpoint. Who writes into it has a connection of its own for that. A permission is granted by a right
//! of the queue pair at the owner's end, and revoked by destroying that queue pair: only this ends
//! what the device has begun, on every device.

use super::exposed::{Exposed, Role, rights_of};
use super::registration::Rights;
use core::ops::Range;
use obol_fabric::contract::LinkError;
use obol_fabric::layout::Layout;
use obol_fabric::rights::{Change, PartPermissions};
use obol_fabric::types::{Address, RegionOwner};

/// The permissions that a process has given on its log.
#[derive(Debug)]
pub(super) struct Permits {
    values: Range<u32>,
    log: Option<Range<u32>>,
    given: PartPermissions,
}

impl Permits {
    /// All are permitted to write to the log, if there is one.
    pub(super) fn new(layout: &Layout, log: Option<Range<u32>>) -> Self {
        Self { values: layout.values(), log, given: PartPermissions::default() }
    }

    /// Changes them. Those on another part of the memory cannot be changed.
    pub(super) fn change(&mut self, change: &Change) -> Result<(), LinkError> {
        let Change { whom, part, permission } = change;
        let part = part.start.max(self.values.start)..part.end.min(self.values.end);
        if self.log.as_ref() != Some(&part) {
            return Err(LinkError::Unsupported);
        }
        self.given.set(*whom, *permission);
        Ok(())
    }

    /// The rights of a peer on a connection to the log; `None` if there is no log, or it may never
    /// write. It may READ, so that the link can be probed.
    pub(super) fn rights(&self, exposed: &Exposed, from: Address, role: Role) -> Option<Rights> {
        exposed.log_domain()?;
        let may_write = rights_of(role, exposed.purpose()).allows(Rights::WRITE);
        may_write.then(|| if self.allow(from) { Rights::READ | Rights::WRITE } else { Rights::READ })
    }

    fn allow(&self, from: Address) -> bool {
        self.given.allow(RegionOwner { region: from.region, generation: from.generation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::LIMITS;
    use obol_fabric::rights::{Permission, Writers};

    const fn process(region: u32, generation: u32) -> Address {
        Address { generation, ..Address::region(region) }
    }

    #[test]
    fn permissions_are_those_of_the_log_alone() {
        use Permission::{Granted, Revoked};
        let layout = Layout::new(LIMITS).expect("in bounds");
        let values = layout.values();
        let log = values.start + 64..values.end;
        let change = |part: &Range<u32>, whom, permission| Change { whom, part: part.clone(), permission };
        let mut permits = Permits::new(&layout, Some(log.clone()));
        assert!(permits.allow(process(9, 1)));
        for part in [values.clone(), log.start..log.end - 8, 0..u32::MAX, log.start..log.start] {
            let refused = permits.change(&change(&part, Writers::Everyone, Revoked));
            assert_eq!(refused, Err(LinkError::Unsupported), "{part:?}");
        }
        assert!(permits.allow(process(9, 1)));
        // What is outside of the value areas is not affected.
        let around = log.start..u32::MAX;
        assert_eq!(permits.change(&change(&around, Writers::Everyone, Revoked)), Ok(()));
        assert_eq!(permits.change(&change(&log, Writers::Process(process(9, 1)), Granted)), Ok(()));
        assert!(
            permits.allow(process(9, 1)) && !permits.allow(process(9, 2)) && !permits.allow(process(8, 1))
        );
        let mut none = Permits::new(&layout, None);
        for part in [values.start..values.start, values, 0..0] {
            let refused = none.change(&change(&part, Writers::Everyone, Revoked));
            assert_eq!(refused, Err(LinkError::Unsupported), "{part:?}");
        }
    }
}
