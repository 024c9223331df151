//! A process's configuration in a cluster over IP.

use crate::pulse::Timing;
use obol_fabric::host::FIRST_FREE;
use obol_fabric::types::{Address, Nanos, host_bits};
use obol_identity::host_of;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// A process's configuration in a cluster over IP: except for the identity, the same on all hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The gateways; that of host `n` at index `n - 1`.
    pub gateways: Vec<SocketAddr>,
    /// The host of coordinator `n`, at index `n - 1`.
    pub coordinators: Vec<u8>,
    /// The directory of this host's keys, see [`obol_identity`].
    pub identity: PathBuf,
    /// A host that does not answer for this long counts as silent.
    pub detection: Nanos,
    /// Whether this process raises fences although it is not a coordinator, as a lease cache does.
    pub raises_fences: bool,
    /// Whether members may WRITE the value areas of this process's region.
    pub keeps_mailbox: bool,
    /// Whether members reach each other by RDMA devices. Gateways then have the rest: they execute no
    /// WRITE or CAS, pass on what goes to the group of drills, and tell members nothing of pulses.
    pub devices: bool,
    /// How gateways send pulses; `None` if they send none.
    pub pulse: Option<PulseConfig>,
}

/// How gateways send pulses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PulseConfig {
    /// Period and timeout.
    pub timing: Timing,
    /// The addresses of each host, one for each path, in the order of the hosts. The port is that of
    /// its gateway, over UDP.
    pub paths: Vec<Vec<IpAddr>>,
    /// The real-time priority of the thread, where the system allows it; `None` for none.
    pub priority: Option<u32>,
}

impl PulseConfig {
    /// Where a host takes pulses, by path.
    pub(super) fn addresses(&self, config: &Config, host: u8) -> Vec<SocketAddr> {
        let of_host = usize::from(host).checked_sub(1).and_then(|index| self.paths.get(index));
        let port = config.gateway(host).map_or(0, |gateway| gateway.port());
        of_host.into_iter().flatten().map(|path| SocketAddr::new(*path, port)).collect()
    }
}

impl Config {
    /// The number of the host that a region belongs to.
    pub(super) fn host_of(&self, region: u32) -> Option<u8> {
        host_of(region, &self.coordinators)
    }

    /// The gateway of a host.
    pub(super) fn gateway(&self, host: u8) -> Option<SocketAddr> {
        self.gateways.get(usize::from(host).checked_sub(1)?).copied()
    }

    /// The address by which other hosts know the owner of a region.
    pub(super) fn address(&self, region: u32, generation: u32) -> Address {
        let within = Address { generation, ..Address::region(region) };
        if region < FIRST_FREE {
            // Coordinators are known by their numbers.
            return within;
        }
        match self.host_of(region).and_then(|host| self.gateway(host)) {
            Some(gateway) => Address { host: host_bits(gateway.ip()), port: gateway.port(), ..within },
            None => within,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric::host::{PER_HOST, REGIONS};

    #[test]
    fn a_region_belongs_to_the_host_that_numbered_it() {
        let gateways = [1, 2, 3].map(|n| SocketAddr::from(([127, 0, 0, n], 7400)));
        let config = Config {
            gateways: gateways.to_vec(),
            coordinators: vec![3, 1],
            identity: PathBuf::new(),
            detection: Nanos::from_millis(1),
            raises_fences: false,
            keeps_mailbox: false,
            devices: false,
            pulse: None,
        };
        let hosts = [0, 1, 2, 3, FIRST_FREE, PER_HOST, 2 * PER_HOST + 5, REGIONS].map(|r| config.host_of(r));
        assert_eq!(hosts, [None, Some(3), Some(1), None, None, Some(1), Some(2), None]);
        assert_eq!(config.gateway(2), Some(gateways[1]));
        assert_eq!((config.gateway(0), config.gateway(4)), (None, None));
        let member = config.address(2 * PER_HOST, 9);
        assert_eq!((member.port, member.generation), (7400, 9));
        assert_eq!(config.address(1, 9), Address { generation: 9, ..Address::region(1) });
    }
}
