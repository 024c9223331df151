//! The operator's hand: a short-lived process that tells the coordinators what it wants, and is no member.

use obol_fabric::shm::{Endpoint, Owner, ShmError};
use obol_fabric::{Drive, Fabric, Name, Nanos};
use obol_membership::View;
use obol_membership::wire::Message;
use obol_profiles::Site;

/// No member's kind: observers pass over the region.
const NO_KIND: u32 = 0;

/// Sends wishes to the coordinators.
pub struct Operator {
    endpoint: Endpoint,
}

impl Operator {
    /// Takes a region of the cluster, until it is dropped.
    pub fn open(site: &Site) -> Result<Self, ShmError> {
        let name = Name::new(&format!("operator-{}", std::process::id())).unwrap_or_default();
        let owner = Owner { kind: NO_KIND, name, region: None, groups: 0 };
        let endpoint = Endpoint::open(&site.cluster, owner, site.deployment.profile.wait)?;
        Ok(Self { endpoint })
    }

    /// Asks that coordinator `number` decides from now on, or no more. `newest` is the view that the operator goes by. The
    /// datagram may be lost, and is forgotten soon: to be repeated until a view shows it.
    pub fn set_acceptor(&mut self, number: u16, decides: bool, newest: &View) {
        self.send(&Message::SetAcceptor { number, decides, as_of: newest.id }, newest);
    }

    /// Asks for leases of this duration. The datagram may be lost: to be repeated until a view shows it.
    pub fn set_lease(&mut self, lease: Nanos, newest: &View) {
        self.send(&Message::SetLease(lease), newest);
    }

    fn send(&mut self, wish: &Message<'_>, newest: &View) {
        let wish = wish.encode();
        for acceptor in &newest.acceptors {
            self.endpoint.send(acceptor.address, &wish);
        }
        self.endpoint.flush();
    }
}
