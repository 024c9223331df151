//! A device as an endpoint uses it: open, with one protection domain, and the way from its port to
//! a peer's.

use super::context::{Context, Gid, ProtectionDomain};
use super::device::{Choice, Wish, choose, survey};
use super::error::VerbsError;
use super::interfaces::interfaces;
use super::pair::Path;
use std::sync::Arc;

/// An open device and the port that is used of it.
#[derive(Debug)]
pub struct Nic {
    domain: Arc<ProtectionDomain>,
    choice: Choice,
    traffic_class: u8,
}

impl Nic {
    /// Opens what fits the wish best. `traffic_class` is the byte that routers and switches sort
    /// packets by.
    pub fn open(wish: &Wish, traffic_class: u8) -> Result<Self, VerbsError> {
        let choice = choose(&survey()?, &interfaces()?, wish)?;
        let domain = ProtectionDomain::new(&Context::open(&choice.device)?)?;
        Ok(Self { domain, choice, traffic_class })
    }

    /// The protection domain of everything of this process on the device.
    #[must_use]
    pub const fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }

    /// The device.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        self.domain.context()
    }

    /// What was chosen.
    #[must_use]
    pub const fn choice(&self) -> &Choice {
        &self.choice
    }

    /// The way to a peer's port. `lid` is 0 on Ethernet.
    #[must_use]
    pub const fn path(&self, gid: Gid, lid: u16) -> Path {
        Path {
            port: self.choice.port,
            gid_index: self.choice.gid.index,
            gid,
            lid,
            traffic_class: self.traffic_class,
        }
    }

    /// The way to the own port: for operations on the own memory through the device.
    #[must_use]
    pub const fn loopback(&self) -> Path {
        self.path(self.choice.gid.gid, self.choice.port_facts.lid)
    }
}
