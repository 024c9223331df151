//! `obol host`: a cluster of several hosts, as one of them. The processes themselves are started by the host's own
//! supervisor, such as systemd.

use crate::cli::HostCommand;
use crate::output::{self, Failure};
use obol_fabric::Name;
use obol_fabric::shm::{Cluster, ShmError};
use obol_profiles::endpoint::EndpointError;
use obol_profiles::hosts::Host;
use obol_profiles::network::print_id;
use obol_profiles::{Deployment, Hosts, HostsError, Site, SiteError};
use serde::Serialize;
use std::fs;
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What a new cluster's file looks like.
const EXAMPLE: &str = include_str!("cluster.toml");
/// Stands in it for the identity.
const EXAMPLE_ID: &str = "0000000000000000";

pub(crate) fn run(root: &Path, command: &HostCommand) -> Result<ExitCode, Failure> {
    match command {
        HostCommand::Example => {
            output::bytes(EXAMPLE.replace(EXAMPLE_ID, &print_id(obol_agent::seed())).as_bytes())?;
        }
        HostCommand::Check { file, json } => check(file, *json)?,
        HostCommand::Prepare { file, address, state } => prepare(root, file, *address, state)?,
        HostCommand::Clean { file } => {
            let hosts = Hosts::load(file).map_err(Failure::refused)?;
            clean(root, hosts.cluster)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether this host has an address: whoever has it can bind it.
fn is_here(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

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

#[derive(Serialize)]
struct HostJson {
    address: IpAddr,
    here: bool,
    coordinator: Option<String>,
    agents: Vec<String>,
    caches: Vec<String>,
}

#[derive(Serialize)]
struct CheckJson {
    cluster: String,
    id: String,
    profile: String,
    hosts: Vec<HostJson>,
}

fn names(names: &[Name]) -> Vec<String> {
    names.iter().map(Name::to_string).collect()
}

fn check(file: &Path, json: bool) -> Result<(), Failure> {
    let hosts = Hosts::load(file).map_err(Failure::refused)?;
    // Whether all fit the profile does not depend on the host.
    hosts.deployment(0, file).map_err(Failure::refused)?;
    let row = |host: &Host| HostJson {
        address: host.address,
        here: is_here(host.address),
        coordinator: host.coordinator.map(|n| Deployment::coordinator(n).0.to_string()),
        agents: names(&host.agents),
        caches: names(&host.caches),
    };
    let rows: Vec<HostJson> = hosts.hosts.iter().map(row).collect();
    let (cluster, id, profile) = (hosts.cluster.to_string(), print_id(hosts.id), hosts.profile);
    if json {
        output::json(&CheckJson { cluster, id, profile, hosts: rows })?;
        return Ok(());
    }
    output::line(format_args!("{} is good: cluster {cluster}, id {id}, profile {profile}", file.display()))?;
    let width = rows.iter().map(|row| row.address.to_string().len()).max().unwrap_or(0);
    for row in rows {
        let processes: Vec<String> =
            row.coordinator.into_iter().chain(row.agents).chain(row.caches).collect();
        let here = if row.here { "  (this host)" } else { "" };
        output::line(format_args!("  {:<width$}  {}{here}", row.address, processes.join(" ")))?;
    }
    Ok(())
}

fn prepare(root: &Path, file: &Path, address: Option<IpAddr>, state: &Path) -> Result<(), Failure> {
    let hosts = Hosts::load(file).map_err(Failure::refused)?;
    let place = here(&hosts, file, address)?;
    let mut deployment = hosts.deployment(place, file).map_err(Failure::refused)?;
    let cluster = hosts.cluster;
    let dir = root.join(cluster.as_str());
    if let Ok(site) = Site::open(root, cluster) {
        let lost = |deployment: &Deployment| deployment.network.as_ref().is_some_and(|n| n.memory_lost);
        if let Some(network) = &mut deployment.network {
            network.memory_lost = lost(&site.deployment);
        }
        if site.deployment == deployment {
            output::line(format_args!("{} is ready already", dir.display()))?;
            return Ok(());
        }
        // What is there is of an older file: processes that run on it must end first.
        clean(root, cluster)?;
    }
    let voted = Voted { path: state.join(format!("{cluster}-{}.voted", print_id(hosts.id))) };
    let coordinator = hosts.hosts.get(place).and_then(|host| host.coordinator);
    let lost = coordinator.is_some() && voted.is_noted();
    if let Some(network) = &mut deployment.network {
        network.memory_lost = lost;
    }
    // Noted first: a host that goes down in between has lost nothing but must ask.
    if coordinator.is_some() {
        voted.note().map_err(|error| Failure::Refused(format!("{}: {error}", voted.path.display())))?;
    }
    match Site::create(root, cluster, deployment) {
        Ok(_) => {}
        Err(error @ SiteError::Fabric(ShmError::Stale { .. } | ShmError::AlreadyExists { .. })) => {
            return Err(Failure::Refused(format!(
                "{error}.\nIf that cluster is not needed, `obol down --cluster {cluster}` removes it"
            )));
        }
        Err(error) => return Err(Failure::refused(error)),
    }
    output::line(format_args!("{} is ready for cluster {cluster}, host {}", dir.display(), place + 1))?;
    if lost {
        let told = EndpointError::MemoryLost { number: coordinator.unwrap_or_default() };
        output::remark(format_args!("obol: {told}\nIt was noted in {}", voted.path.display()))?;
    }
    Ok(())
}

/// A note on disk that a coordinator of this cluster has had its memory on this host. A new identity is a new cluster.
struct Voted {
    path: PathBuf,
}

impl Voted {
    fn is_noted(&self) -> bool {
        // An error other than absence is taken for a note: rather ask once too often.
        !matches!(fs::metadata(&self.path), Err(error) if error.kind() == io::ErrorKind::NotFound)
    }

    fn note(&self) -> io::Result<()> {
        if let Some(dir) = self.path.parent() {
            fs::create_dir_all(dir)?;
        }
        fs::File::create(&self.path)?.sync_all()
    }
}

fn clean(root: &Path, name: Name) -> Result<(), Failure> {
    match Cluster::open(root, name) {
        Ok(cluster) if cluster.alive() > 0 => Err(Failure::Refused(format!(
            "{} processes of cluster {name} run on this host; stop them first",
            cluster.alive()
        ))),
        Ok(_) => Cluster::remove(root, name).map_err(Failure::refused),
        Err(ShmError::NotFound { .. }) => Ok(()),
        Err(error) => Err(Failure::refused(error)),
    }
}
