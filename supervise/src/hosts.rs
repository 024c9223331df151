//! `up --hosts`: one host as several. Each has an address of the loopback network, and memory, keys
//! and a gateway of its own; its processes reach those of the others by the gateways only.
//!
//! The memory of host `n` is that of a cluster `NAME.n` in the same root; host 1 has the name
//! itself. So every command works on each of them.

use obol_fabric::Name;
use obol_identity::Duty;
use obol_node::keys::Authority;
use obol_node::network::{Fabric, GROUPS, Network, turn};
use obol_node::{Deployment, Site};
use obol_term::output::Failure;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;

/// How many days the keys are valid: they end with the cluster.
const DAYS: u16 = 3650;
/// How often a port is tried that may be in use on one of the addresses.
const PORTS_MAX: u32 = 100;

/// The names that a cluster has on its hosts.
#[derive(Clone, Debug)]
pub struct HostNames(Vec<Name>);

impl HostNames {
    /// Those of a cluster on one host, or on several.
    pub fn new(cluster: Name, hosts: Option<u8>) -> Result<Self, Failure> {
        let further = (2..=hosts.unwrap_or(1)).map(|n| named(cluster, n));
        let all = [Ok(cluster)].into_iter().chain(further).collect::<Result<_, _>>();
        all.map(Self).map_err(|error| Failure::Refused(format!("{cluster}.N, the name on host N: {error}")))
    }

    /// The name on the host of process `number` of its kind, from 1: they take turns.
    pub fn of(&self, number: u16) -> Name {
        self.0.get(turn(number, self.0.len()) - 1).copied().unwrap_or_default()
    }

    /// The name on each host, in the order of their numbers.
    pub fn all(&self) -> &[Name] {
        &self.0
    }

    /// Whether the cluster has more than one host.
    pub fn are_several(&self) -> bool {
        self.0.len() > 1
    }
}

fn named(cluster: Name, host: u8) -> Result<Name, obol_fabric::types::NameError> {
    Name::new(&format!("{cluster}.{host}"))
}

fn address(host: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, host).into()
}

/// A port that is free on all addresses.
fn free_port(hosts: u8) -> Result<u16, Failure> {
    let failed = |error| Failure::Failed(format!("no port for the gateways: {error}"));
    for _ in 0..PORTS_MAX {
        let first = TcpListener::bind((address(1), 0)).map_err(failed)?;
        let port = first.local_addr().map_err(failed)?.port();
        if (2..=hosts).all(|host| TcpListener::bind((address(host), port)).is_ok()) {
            return Ok(port);
        }
    }
    Err(Failure::Failed(format!("no port for the gateways is free on all of {hosts} loopback addresses")))
}

/// The cluster as each host sees it. If there are several, `id` is that of the cluster.
pub fn deployments(
    deployment: &Deployment,
    root: &Path,
    names: &HostNames,
    id: u64,
) -> Result<Vec<Deployment>, Failure> {
    if !names.are_several() {
        return Ok(vec![deployment.clone()]);
    }
    let hosts = names.0.len() as u8;
    let port = free_port(hosts)?;
    let addresses: Vec<IpAddr> = (1..=hosts).map(address).collect();
    // One that comes later, in place of another, has a host as well.
    let most = deployment.profile.limits.proposers as usize;
    let coordinators = addresses.iter().cycle().take(most).map(|ip| SocketAddr::new(*ip, port));
    let coordinators: Vec<SocketAddr> = coordinators.collect();
    let network = |(host, name): (u8, &Name)| Network {
        id,
        host,
        address: address(host),
        fabric: Fabric::Ip { keys: root.join(name.as_str()) },
        rdma_keys: None,
        hosts: addresses.clone(),
        paths: Vec::new(),
        coordinators: coordinators.clone(),
        groups: GROUPS,
        memory_lost: Vec::new(),
        state: None,
        members: Vec::new(),
        apps: Vec::new(),
        homes: Vec::new(),
        supervisors: Vec::new(),
        may_crash: Vec::new(),
    };
    Ok((1..).zip(&names.0).map(|of| deployment.clone().over(network(of))).collect())
}

/// Makes the keys of all hosts, each in the directory of its memory.
pub fn make_keys(deployments: &[Deployment]) -> Result<(), Failure> {
    let networks = || deployments.iter().filter_map(|deployment| deployment.network.as_ref());
    let Some(first) = networks().next() else { return Ok(()) };
    let (authority, _) = Authority::new(Name::default(), first.id).map_err(Failure::failed)?;
    let duties = [Duty::Gateway, Duty::Coordinator, Duty::Cache, Duty::Agent, Duty::Observer];
    for network in networks() {
        if let Some(keys) = network.keys() {
            authority.issue(keys, network.address, network.host, &duties, DAYS).map_err(Failure::failed)?;
        }
    }
    Ok(())
}

/// The names of a cluster on further hosts that are this one; none if it has no such hosts.
pub fn further_hosts(root: &Path, cluster: Name) -> Vec<Name> {
    let id = |name| Some(Site::open(root, name).ok()?.deployment.network?.id);
    let Some(own) = id(cluster) else { return Vec::new() };
    let further = (2..=obol_fabric::host::HOST_MAX).map_while(|host| named(cluster, host).ok());
    further.filter(|name| root.join(name.as_str()).exists() && id(*name) == Some(own)).collect()
}
