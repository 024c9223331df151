//! How the processes of a cluster reach each other where an RDMA network joins them.

use obol_fabric::Address;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

/// Where coordinator 1 listens, if nobody says otherwise; coordinator n listens n - 1 above.
pub const PORT: u16 = 7471;
/// The multicast groups, if nobody says otherwise: of the block for use within one organisation
/// (RFC 2365).
pub const GROUPS: Groups = Groups {
    coordinators: IpAddr::V4(Ipv4Addr::new(239, 192, 77, 1)),
    everyone: IpAddr::V4(Ipv4Addr::new(239, 192, 77, 2)),
};

/// The multicast groups of a cluster. Clusters with groups of their own do not wake each other's
/// processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Groups {
    /// All coordinators.
    pub coordinators: IpAddr,
    /// All processes.
    pub everyone: IpAddr,
}

/// The network of a cluster, as one of its hosts sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Tells the cluster from every other one on the network.
    #[serde(with = "hexadecimal")]
    pub id: u64,
    /// This host's number, from 1 on.
    pub host: u8,
    /// This host's address.
    pub address: IpAddr,
    /// All hosts, in the order of their numbers; empty if one supervisor has started the whole
    /// cluster on this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<IpAddr>,
    /// Where coordinator 1, 2, .. listens, up to the highest number that the profile allows: one
    /// that comes later, in place of another, must be found as well.
    pub coordinators: Vec<SocketAddr>,
    /// The multicast groups.
    pub groups: Groups,
    /// Coordinators that have forgotten their votes: this host was started anew since they first
    /// voted here. They must not vote again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory_lost: Vec<u16>,
    /// Where it is noted which coordinators have voted on this host, in files that outlive a boot;
    /// none if one supervisor has started the whole cluster, which ends with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<PathBuf>,
    /// The agents and lease caches of all hosts, by name; empty if one supervisor has started the
    /// whole cluster and named them by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
}

impl Network {
    /// All on one host.
    #[must_use]
    pub fn local(id: u64, address: IpAddr, first_port: u16, coordinators: u16) -> Self {
        let coordinators = (0..coordinators).map(|n| SocketAddr::new(address, first_port.saturating_add(n)));
        Self {
            id,
            host: 1,
            address,
            hosts: Vec::new(),
            coordinators: coordinators.collect(),
            groups: GROUPS,
            memory_lost: Vec::new(),
            state: None,
            members: Vec::new(),
        }
    }

    /// The numbers of the coordinators that belong on the host of this address.
    pub fn coordinators_of(&self, address: IpAddr) -> impl Iterator<Item = u16> + '_ {
        (1..).zip(&self.coordinators).filter(move |(_, at)| at.ip() == address).map(|(number, _)| number)
    }

    /// The host on which a coordinator belongs.
    #[must_use]
    pub fn host_of(&self, number: u16) -> Option<IpAddr> {
        self.coordinators.get(usize::from(number).wrapping_sub(1)).map(SocketAddr::ip)
    }

    /// Whether a process that a view names at this address runs on this host.
    #[must_use]
    pub fn is_here(&self, at: Address) -> bool {
        self.address_of(at) == Some(self.address)
    }

    /// The host of a process that a view names at this address.
    #[must_use]
    pub fn address_of(&self, at: Address) -> Option<IpAddr> {
        match at.host {
            // A coordinator's number says where it is.
            0 => self.coordinators.get((at.region as usize).wrapping_sub(1)).map(SocketAddr::ip),
            host => Some(Ipv6Addr::from(host).to_canonical()),
        }
    }
}

/// TOML's whole numbers are signed, and an identity reads better so.
mod hexadecimal {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(id: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::print_id(*id))
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::parse_id(&text).ok_or_else(|| D::Error::custom(super::WANTED_ID))
    }
}

/// What an identity must be.
pub(crate) const WANTED_ID: &str = "16 hexadecimal digits, such as \"0f3c5a7e91b2d468\"";

/// A cluster's identity as text.
#[must_use]
pub fn print_id(id: u64) -> String {
    format!("{id:016x}")
}

/// The identity in a text of 16 hexadecimal digits.
pub(crate) fn parse_id(text: &str) -> Option<u64> {
    let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}
