//! `obol host`: a cluster of several hosts, as one of them. The processes themselves are started by
//! the host's own supervisor, such as systemd.

use clap::Subcommand;
use obol_console::output::{self, Failure};
use obol_fabric::Name;
use obol_fabric::host::{Cluster, HostError};
use obol_node::endpoint::EndpointError;
use obol_node::hosts::Host;
use obol_node::network::print_id;
use obol_node::voted::Voted;
use obol_node::{Deployment, Hosts, HostsError, Site, SiteError};
use serde::Serialize;
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Make this host ready for a cluster of several hosts, which a file describes
#[derive(Debug, Subcommand)]
pub(crate) enum HostCommand {
    /// Print a file to start from, with an identity drawn for a new cluster
    Example,
    /// Check the file; every mistake is named with line and column
    Check {
        /// The file, the same on all hosts
        file: PathBuf,
        /// Print one JSON object for scripts
        #[arg(long)]
        json: bool,
    },
    /// Make the memory in which this host's processes of the cluster meet; done once after each
    /// boot
    Prepare {
        /// The file, the same on all hosts
        file: PathBuf,
        /// This host's address in the file, if it is ambiguous
        #[arg(long, value_name = "IP")]
        address: Option<IpAddr>,
        /// Where to note, across boots, that this host's coordinator has voted
        #[arg(long, value_name = "DIR", default_value = "/var/lib/obol")]
        state: PathBuf,
    },
    /// Remove the cluster's memory from this host; its processes must have ended
    Clean {
        /// The file, the same on all hosts
        file: PathBuf,
    },
}

/// What a new cluster's file looks like.
const EXAMPLE: &str = include_str!("cluster.toml");
/// Stands in it for the identity.
const EXAMPLE_ID: &str = "0000000000000000";

pub(crate) fn run(root: &Path, _: Name, command: &HostCommand) -> Result<ExitCode, Failure> {
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

/// Whether this host has an address: then it can be bound.
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
    /// Coordinators that belong here if others have to be replaced.
    spare: Vec<String>,
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
    // Whether all fit the profile does not depend on the host, and neither do the coordinators'
    // places.
    let network = hosts.deployment(0, file).map_err(Failure::refused)?.network;
    let spare = |host: &Host| -> Vec<String> {
        let all = network.iter().flat_map(|network| network.coordinators_of(host.address));
        all.filter(|n| Some(*n) != host.coordinator)
            .map(|n| Deployment::coordinator(n).0.to_string())
            .collect()
    };
    let row = |host: &Host| HostJson {
        address: host.address,
        here: is_here(host.address),
        coordinator: host.coordinator.map(|n| Deployment::coordinator(n).0.to_string()),
        spare: spare(host),
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
        let spare =
            if row.spare.is_empty() { String::new() } else { format!("  spare: {}", row.spare.join(" ")) };
        output::line(format_args!("  {:<width$}  {}{spare}{here}", row.address, processes.join(" ")))?;
    }
    Ok(())
}

fn prepare(root: &Path, file: &Path, address: Option<IpAddr>, state: &Path) -> Result<(), Failure> {
    let hosts = Hosts::load(file).map_err(Failure::refused)?;
    let place = here(&hosts, file, address)?;
    let mut deployment = hosts.deployment(place, file).map_err(Failure::refused)?;
    let cluster = hosts.cluster;
    let dir = root.join(cluster.as_str());
    let state = std::path::absolute(state)
        .map_err(|error| Failure::Refused(format!("{}: {error}", state.display())))?;
    if let Some(network) = &mut deployment.network {
        network.state = Some(state.clone());
    }
    if let Ok(site) = Site::open(root, cluster) {
        if let (Some(network), Some(before)) = (&mut deployment.network, &site.deployment.network) {
            network.memory_lost.clone_from(&before.memory_lost);
        }
        if site.deployment == deployment {
            output::line(format_args!("{} is ready already", dir.display()))?;
            return Ok(());
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
        Ok(_) => {}
        Err(error @ SiteError::Fabric(HostError::Stale { .. } | HostError::AlreadyExists { .. })) => {
            return Err(Failure::Refused(format!(
                "{error}.\nIf that cluster is not needed, `obol down --cluster {cluster}` removes it"
            )));
        }
        Err(error) => return Err(Failure::refused(error)),
    }
    output::line(format_args!("{} is ready for cluster {cluster}, host {}", dir.display(), place + 1))?;
    for number in lost {
        let notice = EndpointError::MemoryLost { number };
        output::remark(format_args!("obol: {notice}\nIt was noted in {}", voted(number).path().display()))?;
    }
    Ok(())
}

fn clean(root: &Path, name: Name) -> Result<(), Failure> {
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
