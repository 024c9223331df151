//! This host in a cluster of several: what the file of hosts says of it, and the memory in which its
//! processes meet. The processes themselves are started by the host's own supervisor, such as systemd.

use obol_fabric::Name;
use obol_fabric::host::{Cluster, HostError, is_here};
use obol_identity::{CERTIFICATE_FILE, KEY_FILE, is_open_to_all};
use obol_node::endpoint::EndpointError;
use obol_node::hosts::Host;
use obol_node::keys::{needed, trust};
use obol_node::network::print_id;
use obol_node::voted::Voted;
use obol_node::{Deployment, Hosts, HostsError, Site, SiteError};
use obol_observe::{certificate_days, certificate_warning, examine_keys, least_duties};
use obol_term::output::Failure;
use serde::Serialize;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The place in the file of this host.
fn here(hosts: &Hosts, file: &Path, address: Option<IpAddr>) -> Result<usize, Failure> {
    let addresses: Vec<IpAddr> = match address {
        Some(address) => vec![address],
        None => hosts.hosts.iter().map(|host| host.address).filter(|address| is_here(*address)).collect(),
    };
    hosts.find(&addresses).ok_or_else(|| {
        let named = hosts.hosts.iter().map(|host| host.address).collect();
        Failure::refused(HostsError::NotHere { path: file.to_owned(), named })
    })
}

/// A host of the file, as scripts read it.
#[derive(Debug, Serialize)]
pub struct HostRow {
    pub address: IpAddr,
    /// Whether it is this one.
    pub here: bool,
    pub coordinator: Option<String>,
    /// Coordinators that belong here if others have to be replaced.
    pub spare: Vec<String>,
    pub agents: Vec<String>,
    /// Its lease caches.
    pub caches: Vec<String>,
}

/// What a file of hosts says, and what is wrong with the keys of this host; as scripts read it.
#[derive(Debug, Serialize)]
pub struct Check {
    pub cluster: String,
    pub id: String,
    pub profile: String,
    pub hosts: Vec<HostRow>,
    /// Why this host cannot use its keys; none if it can, or is not in the file, or has none yet.
    pub keys_fault: Option<String>,
    /// For how many more days this host's certificate is valid; none if it is not, or there is none.
    pub certificate_days: Option<u32>,
    /// What is wrong with the keys of this host, or will be soon.
    pub warnings: Vec<String>,
}

fn names(names: &[Name]) -> Vec<String> {
    names.iter().map(Name::to_string).collect()
}

/// What is wrong with the keys that lie on this host. A host that has none yet, and one that is not in
/// the file, has no fault.
#[derive(Default)]
struct KeysFound {
    /// Why this host cannot use them.
    fault: Option<String>,
    /// For how many more days the certificate is valid; none if it is not, or there is none.
    days: Option<u32>,
    warnings: Vec<String>,
}

impl KeysFound {
    fn of(hosts: &Hosts, file: &Path) -> Option<Self> {
        let (place, host) = hosts.hosts.iter().enumerate().find(|(_, host)| is_here(host.address))?;
        let network = hosts.deployment(place, file).ok()?.network?;
        let keys = network.keys().filter(|keys| keys.join(CERTIFICATE_FILE).exists())?;
        let duties = needed(host, &least_duties(&network));
        let (valid_for, fault) = examine_keys(keys, &network, &duties);
        let days = valid_for.and_then(certificate_days);
        let mut warnings: Vec<String> = certificate_warning(days, fault.as_deref()).into_iter().collect();
        let key = keys.join(KEY_FILE);
        if is_open_to_all(&key) {
            warnings.push(format!("{0}: every user of this host may read it; `chmod o= {0}`", key.display()));
        }
        Some(Self { fault, days, warnings })
    }
}

/// Checks a file of hosts, and the keys of this host if it is one of them.
pub fn check(file: &Path) -> Result<Check, Failure> {
    let hosts = Hosts::load(file).map_err(Failure::refused)?;
    // Whether all fit the profile does not depend on the host, and neither do the coordinators'
    // places.
    let network = hosts.deployment(0, file).map_err(Failure::refused)?.network;
    let spare = |host: &Host| -> Vec<String> {
        let all = network.iter().flat_map(|network| network.coordinators_of(host.address));
        all.filter(|n| Some(*n) != host.coordinator)
            .map(|n| Deployment::coordinator(n).0.to_string())
            .collect()
    };
    let row = |host: &Host| HostRow {
        address: host.address,
        here: is_here(host.address),
        coordinator: host.coordinator.map(|n| Deployment::coordinator(n).0.to_string()),
        spare: spare(host),
        agents: names(&host.agents),
        caches: names(&host.caches),
    };
    let rows: Vec<HostRow> = hosts.hosts.iter().map(row).collect();
    let KeysFound { fault: keys_fault, days: certificate_days, warnings } =
        KeysFound::of(&hosts, file).unwrap_or_default();
    let (cluster, id, profile) = (hosts.cluster.to_string(), print_id(hosts.id), hosts.profile);
    Ok(Check { cluster, id, profile, hosts: rows, keys_fault, certificate_days, warnings })
}

/// The memory of a cluster on this host.
pub struct Prepared {
    pub dir: PathBuf,
    pub cluster: Name,
    /// The number of this host.
    pub host: usize,
    /// Whether it was there already.
    pub was_ready: bool,
    /// Coordinators of this host that have lost their memory, each with what to do, and where that was noted.
    pub lost: Vec<(EndpointError, PathBuf)>,
}

/// Makes the memory in which this host's processes of a cluster meet. `address` is this host's in the
/// file if it is ambiguous; `state` is where votes are noted across boots.
pub fn prepare(root: &Path, file: &Path, address: Option<IpAddr>, state: &Path) -> Result<Prepared, Failure> {
    let hosts = Hosts::load(file).map_err(Failure::refused)?;
    let place = here(&hosts, file, address)?;
    let mut deployment = hosts.deployment(place, file).map_err(Failure::refused)?;
    let cluster = hosts.cluster;
    let dir = root.join(cluster.as_str());
    let state = std::path::absolute(state).map_err(Failure::refused_at(state))?;
    if let Some(network) = &mut deployment.network {
        network.state = Some(state.clone());
    }
    if let Ok(site) = Site::open(root, cluster) {
        if let (Some(network), Some(before)) = (&mut deployment.network, &site.deployment.network) {
            network.memory_lost.clone_from(&before.memory_lost);
        }
        if site.deployment == deployment {
            trust_network(&site)?;
            return Ok(Prepared { dir, cluster, host: place + 1, was_ready: true, lost: Vec::new() });
        }
        // What is there is of an older file: processes that run on it must end first.
        clean(root, cluster)?;
    }
    let voted = |number| Voted::new(&state, cluster, hosts.id, number);
    let mut lost = Vec::new();
    if let Some(network) = &mut deployment.network {
        lost.extend(network.coordinators_of(network.address).filter(|number| voted(*number).is_noted()));
        network.memory_lost.clone_from(&lost);
    }
    match Site::create(root, cluster, deployment) {
        Ok(site) => trust_network(&site)?,
        Err(error @ SiteError::Fabric(HostError::Stale { .. } | HostError::AlreadyExists { .. })) => {
            return Err(Failure::Refused(format!(
                "{error}.\nIf that cluster is not needed, `obol down --cluster {cluster}` removes it"
            )));
        }
        Err(error) => return Err(Failure::refused(error)),
    }
    let noted = |number| (EndpointError::MemoryLost { number }, voted(number).path().to_owned());
    let lost = lost.into_iter().map(noted).collect();
    Ok(Prepared { dir, cluster, host: place + 1, was_ready: false, lost })
}

/// Makes the keys of this host's gateway, if the network is trusted.
fn trust_network(site: &Site) -> Result<(), Failure> {
    let network = site.deployment.network.as_ref();
    network.map_or(Ok(()), |network| trust(network, site.cluster.dir())).map_err(Failure::failed)
}

/// Removes the memory of a cluster whose processes have ended.
pub fn clean(root: &Path, name: Name) -> Result<(), Failure> {
    match Cluster::open(root, name) {
        Ok(cluster) if cluster.alive() > 0 => Err(Failure::Refused(format!(
            "{} processes of cluster {name} run on this host; stop them first",
            cluster.alive()
        ))),
        Ok(_) => Cluster::remove(root, name).map_err(Failure::refused),
        Err(HostError::NotFound { .. }) => Ok(()),
        Err(error) => Err(Failure::refused(error)),
    }
}
