//! A device as used by an endpoint: open, with one protection domain, and address handles from its
//! port to peers'.

use super::context::{Context, Gid, ProtectionDomain};
use super::device::{Choice, DeviceSelector, choose, survey};
use super::error::VerbsError;
use super::interfaces::interfaces;
use super::pair::Path;
use std::sync::Arc;

/// An open device and its selected port.
#[derive(Debug)]
pub struct Nic {
    domain: Arc<ProtectionDomain>,
    choice: Choice,
    traffic_class: u8,
}

impl Nic {
    /// Opens the device that matches best. `traffic_class` is the byte by which routers and
    /// switches prioritise packets.
    pub fn open(selector: &DeviceSelector, traffic_class: u8) -> Result<Self, VerbsError> {
        let choice = choose(&survey()?, &interfaces()?, selector)?;
        let domain = ProtectionDomain::new(&Context::open(&choice.device)?)?;
        Ok(Self { domain, choice, traffic_class })
    }

    /// The protection domain of all objects of this process on the device.
    pub const fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }

    /// The device.
    pub fn context(&self) -> &Arc<Context> {
        self.domain.context()
    }

    pub const fn choice(&self) -> &Choice {
        &self.choice
    }

    /// The path to a peer's port. `lid` is 0 on Ethernet.
    pub const fn path(&self, gid: Gid, lid: u16) -> Path {
        Path {
            port: self.choice.port,
            gid_index: self.choice.gid.index,
            gid,
            lid,
            traffic_class: self.traffic_class,
        }
    }

    /// The path to the own port: for operations on the own memory through the device.
    pub const fn loopback(&self) -> Path {
        self.path(self.choice.gid.gid, self.choice.port_facts.lid)
    }
}
