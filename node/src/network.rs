//! The network of a cluster.

use crate::HostSupervisor;
use obol_fabric::host::PER_HOST;
use obol_fabric::layout::PROPOSERS_MAX;
use obol_fabric::types::{Address, Name, ip_of};
use obol_membership::Kind;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

/// The default port: over RDMA of coordinator 1, and coordinator n listens n - 1 above, gateways 1
/// below; over IP of all gateways.
pub const PORT: u16 = 7471;
/// An address with or without the port of the first coordinator.
pub fn listen(text: &str) -> Result<SocketAddr, String> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, PORT));
    address
        .or_else(|_| text.parse())
        .map_err(|_| "an address looks like 10.1.0.1, or 10.1.0.1:7471".to_owned())
}

/// The default multicast groups, from the block for use within one organisation (RFC 2365).
pub const GROUPS: Groups = Groups {
    coordinators: IpAddr::V4(Ipv4Addr::new(239, 192, 77, 1)),
    everyone: IpAddr::V4(Ipv4Addr::new(239, 192, 77, 2)),
};

/// The multicast groups of a cluster. Clusters with separate groups do not wake each other's
/// processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Groups {
    pub coordinators: IpAddr,
    /// All processes.
    pub everyone: IpAddr,
}

/// How the hosts of a cluster reach each other's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Fabric {
    /// By RDMA devices.
    #[default]
    Rdma,
    /// By a gateway on each host, over TCP and TLS.
    Ip {
        /// The directory of this host's keys.
        keys: PathBuf,
    },
}

/// Where a host's keys are, unless the file of hosts says otherwise.
pub const KEYS: &str = "/etc/obol/keys";

/// The network of a cluster, as one of its hosts sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Distinguishes the cluster from all others on the network.
    #[serde(with = "hexadecimal")]
    pub id: u64,
    /// This host's number, from 1.
    pub host: u8,
    /// This host's address.
    pub address: IpAddr,
    /// How the hosts reach each other's memory.
    #[serde(default)]
    pub fabric: Fabric,
    /// The directory of this host's keys, over RDMA; `None` trusts the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdma_keys: Option<PathBuf>,
    /// All hosts, in the order of their numbers; empty if one supervisor has started the whole
    /// cluster on this host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<IpAddr>,
    /// The addresses for pulses of each host, one for each path; empty if there is one path, by the
    /// addresses of the hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<Vec<IpAddr>>,
    /// The addresses of coordinators 1, 2, .., up to the highest number that the profile allows, so
    /// that replacements can be found as well.
    pub coordinators: Vec<SocketAddr>,
    /// The multicast groups.
    pub groups: Groups,
    /// Coordinators that have lost their votes: this host was rebooted since they first voted here.
    /// They must not vote again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory_lost: Vec<u16>,
    /// The directory for records of coordinators that have voted on this host, which survives a
    /// reboot; `None` if one supervisor has started the whole cluster, which ends with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<PathBuf>,
    /// The agents and lease caches of all hosts, by name; empty if one supervisor has started the
    /// whole cluster with numbered names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
    /// Programs of the hosts that their supervisors run, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apps: Vec<String>,
    /// The numbers of their hosts, first of the members; empty if the processes of each kind take
    /// turns on the hosts, see [`turn`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub homes: Vec<u8>,
    /// What restarts the processes of each host, in the order of their numbers; empty if one
    /// supervisor has started the whole cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub supervisors: Vec<HostSupervisor>,
    /// The numbers of the hosts that a drill may crash.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub may_crash: Vec<u8>,
}

impl Network {
    /// A network with all processes on one host.
    pub fn local(id: u64, address: IpAddr, first_port: u16, coordinators: u16) -> Self {
        let coordinators = (0..coordinators).map(|n| SocketAddr::new(address, first_port.saturating_add(n)));
        Self {
            id,
            host: 1,
            address,
            fabric: Fabric::Rdma,
            rdma_keys: None,
            hosts: Vec::new(),
            paths: Vec::new(),
            coordinators: coordinators.collect(),
            groups: GROUPS,
            memory_lost: Vec::new(),
            state: None,
            members: Vec::new(),
            apps: Vec::new(),
            homes: Vec::new(),
            supervisors: Vec::new(),
            may_crash: Vec::new(),
        }
    }

    /// Whether each host has a gateway: all hosts do if there are several, and over IP a single one.
    pub const fn has_gateways(&self) -> bool {
        matches!(self.fabric, Fabric::Ip { .. }) || self.hosts.len() > 1
    }

    /// Whether one-sided operations, and the datagrams of members, go by RDMA devices.
    pub const fn has_devices(&self) -> bool {
        matches!(self.fabric, Fabric::Rdma)
    }

    /// Where the gateways listen, in the order of the hosts; none if they have none.
    pub fn gateways(&self) -> Vec<SocketAddr> {
        if !self.has_gateways() {
            return Vec::new();
        }
        let port = self.coordinators.first().map_or(PORT, SocketAddr::port);
        // Coordinators keep the ports that earlier releases know, each on its host.
        let port = if self.has_devices() { port.saturating_sub(1) } else { port };
        self.hosts.iter().map(|host| SocketAddr::new(*host, port)).collect()
    }

    /// The directory of the keys of this host's gateway. A network that is trusted has keys that the host
    /// made itself, in the cluster's directory `dir` ([`crate::keys::trust`]).
    pub fn gateway_keys<'a>(&'a self, dir: &'a Path) -> &'a Path {
        self.keys().unwrap_or(dir)
    }

    /// The directory of this host's keys; `None` if the network is trusted.
    pub fn keys(&self) -> Option<&Path> {
        match &self.fabric {
            Fabric::Ip { keys } => Some(keys),
            Fabric::Rdma => self.rdma_keys.as_deref(),
        }
    }

    /// The addresses of this host that it does not have any more: a socket cannot be bound to them.
    pub fn lost_addresses(&self) -> Vec<IpAddr> {
        let index = usize::from(self.host).checked_sub(1);
        let paths = index.and_then(|index| self.paths.get(index)).map_or(&[][..], Vec::as_slice);
        let mut own: Vec<IpAddr> = [self.address].iter().chain(paths).copied().collect();
        own.sort_unstable();
        own.dedup();
        let is_lost = |at: &IpAddr| {
            // Any port does.
            let bound = UdpSocket::bind((*at, 0));
            bound.is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable)
        };
        own.retain(is_lost);
        own
    }

    /// The numbers of the coordinators assigned to the host of this address.
    pub fn coordinators_of(&self, address: IpAddr) -> impl Iterator<Item = u16> + '_ {
        (1..).zip(&self.coordinators).filter(move |(_, at)| at.ip() == address).map(|(number, _)| number)
    }

    /// The numbers of the other hosts.
    pub fn other_hosts(&self) -> impl Iterator<Item = u8> + '_ {
        let hosts = u8::try_from(self.hosts.len()).unwrap_or(u8::MAX);
        (1..=hosts).filter(|host| *host != self.host)
    }

    /// The host to which a coordinator is assigned.
    pub fn host_of(&self, number: u16) -> Option<IpAddr> {
        self.coordinators.get(usize::from(number).wrapping_sub(1)).map(SocketAddr::ip)
    }

    /// The number of the host whose processes have this region.
    pub fn number_of(&self, region: u32) -> Option<u8> {
        if self.hosts.is_empty() {
            return Some(self.host);
        }
        if region as usize > PROPOSERS_MAX {
            return u8::try_from(region / PER_HOST).ok();
        }
        let at = self.host_of(u16::try_from(region).ok()?)?;
        let index = self.hosts.iter().position(|host| *host == at)?;
        u8::try_from(index + 1).ok()
    }

    /// Whether the process with this address in a view runs on this host.
    pub fn is_here(&self, at: Address) -> bool {
        self.address_of(at) == Some(self.address)
    }

    /// The host of the process with this address in a view.
    pub fn address_of(&self, at: Address) -> Option<IpAddr> {
        match at.host {
            // A coordinator's number determines its host.
            0 => self.coordinators.get((at.region as usize).wrapping_sub(1)).map(SocketAddr::ip),
            host => Some(ip_of(host)),
        }
    }

    /// What restarts the processes of a host, by its number.
    pub fn supervisor(&self, host: u8) -> HostSupervisor {
        let index = usize::from(host).checked_sub(1);
        index.and_then(|index| self.supervisors.get(index)).cloned().unwrap_or_default()
    }

    /// Whether something restarts a process of a host. Programs are restarted if the file names them.
    pub fn restarts(&self, host: u8, kind: Kind, name: Name) -> bool {
        let is_named = kind != Kind::App || self.apps.iter().any(|app| app == name.as_str());
        is_named && self.supervisor(host).restarts()
    }
}

/// The number of the host of process `number` of its kind, from 1, where they take turns.
pub const fn turn(number: u16, hosts: usize) -> usize {
    let others = number.saturating_sub(1) as usize;
    match others.checked_rem(hosts) {
        Some(index) => index + 1,
        None => 1,
    }
}

/// TOML's integers are signed, and hexadecimal is the readable form of an identity.
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

/// The required form of an identity.
pub(crate) const WANTED_ID: &str = "16 hexadecimal digits, such as \"0f3c5a7e91b2d468\"";

/// A cluster's identity as text.
pub fn print_id(id: u64) -> String {
    format!("{id:016x}")
}

/// The identity in a text of 16 hexadecimal digits.
pub(crate) fn parse_id(text: &str) -> Option<u64> {
    let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_a_port() {
        assert_eq!(listen("10.1.0.1"), Ok(SocketAddr::from(([10, 1, 0, 1], 7471))));
        assert_eq!(listen("10.1.0.1:80"), Ok(SocketAddr::from(([10, 1, 0, 1], 80))));
        assert_eq!(listen("fd00::1").map(|at| at.port()), Ok(7471));
        assert_eq!(listen("[fd00::1]"), listen("fd00::1"));
        assert!(listen("host").is_err());
    }

    #[test]
    fn each_of_several_hosts_has_a_gateway_whose_port_no_coordinator_has() {
        let address = |n: u8| IpAddr::from([10, 0, 0, n]);
        let one = Network::local(1, address(1), PORT, 3);
        assert_eq!((one.has_gateways(), one.gateways()), (false, Vec::new()));
        let several = Network { hosts: vec![address(1), address(2)], ..one };
        let at = |n, port| SocketAddr::new(address(n), port);
        assert_eq!(several.gateways(), [at(1, PORT - 1), at(2, PORT - 1)]);
        assert!(several.gateways().iter().all(|gateway| !several.coordinators.contains(gateway)));
        let over_ip = Network { fabric: Fabric::Ip { keys: PathBuf::from("keys") }, ..several };
        assert_eq!(over_ip.gateways(), [at(1, PORT), at(2, PORT)]);
    }
}
