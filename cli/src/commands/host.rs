//! `obol host`: a cluster of several hosts, as one of them. The processes themselves are started by
//! the host's own supervisor, such as systemd.

use crate::commands::status::certificate_warning;
use clap::Subcommand;
use obol_fabric::Name;
use obol_fabric::host::{Cluster, HostError, is_here};
use obol_identity::{AUTHORITIES_FILE, CERTIFICATE_FILE, KEY_FILE, is_open_to_all};
use obol_node::endpoint::EndpointError;
use obol_node::hosts::Host;
use obol_node::keys::{AUTHORITY_KEY_FILE, Authority, duties, needed};
use obol_node::network::{Fabric, KEYS, print_id};
use obol_node::voted::Voted;
use obol_node::{Deployment, Hosts, HostsError, Site, SiteError};
use obol_observe::{certificate_days, examine_keys, least_duty};
use obol_term::output::{self, Failure};
use serde::Serialize;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Prepare this host for a cluster of several hosts, described by a file
#[derive(Debug, Subcommand)]
pub(crate) enum HostCommand {
    /// Print a file to start from, with an identity drawn for a new cluster
    Example {
        /// For hosts with RDMA adapters; without it, for hosts that have nothing but TCP
        #[arg(long)]
        rdma: bool,
    },
    /// Check the file; every mistake is named with line and column
    Check {
        /// The file, the same on all hosts
        file: PathBuf,
        /// Print one JSON object for scripts
        #[arg(long)]
        json: bool,
    },
    /// Make the keys by which the hosts of a cluster know each other
    #[command(
        after_help = "DIR/ca.pem and DIR/ca.key are the cluster's authority; they are made if they are missing. The \
        key signs for every host and belongs on none: keep it where you keep your secrets. DIR/ADDRESS is for the host \
        of that address: copy the three files in it to the directory that the file of hosts names (/etc/obol/keys), \
        readable by the user of obol's processes only. Run it again before they expire: a host reads new keys at its next connection, \
        nothing has to be restarted.\n\
        \nAn authority of your own does as well: a host's certificate has its IP address, and the URIs \
        .../ID/host/NUMBER/DUTY, for gateway, coordinator, cache, agent and observer."
    )]
    Keys {
        /// The file, the same on all hosts
        file: PathBuf,
        /// The directory to make them in
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// How many days the hosts' certificates are valid
        #[arg(long, value_name = "DAYS", default_value = "365", value_parser = clap::value_parser!(u16).range(1..=3650))]
        days: u16,
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
/// Stands in it for what differs between networks.
const EXAMPLE_NETWORK: &str = "{network}\n";
/// Nothing but TCP is needed.
const EXAMPLE_IP: &str = r#"# The hosts reach each other over TCP, by a gateway on each. With fabric = "rdma", by an adapter on each.
fabric = "ip"

# lan, cloud, or a file beside this one. All constants: `obol profile show lan`.
profile = "lan"

# Where each host has its keys; `obol host keys` makes them.
keys = "/etc/obol/keys"

# The port of every gateway.
port = 7471

"#;
const EXAMPLE_RDMA: &str = r#"# The hosts reach each other by an RDMA adapter on each. With fabric = "ip", over TCP.
fabric = "rdma"

# infiniband, roce, soft-roce, or a file beside this one. All constants: `obol profile show roce`.
profile = "roce"

# Where each host has its keys; `obol host keys` makes them. keys = "none" trusts anyone who can send packets on the network.
keys = "/etc/obol/keys"

# Coordinator n listens on port + n - 1 of its host.
port = 7471

# Multicast groups of its own, one for the coordinators and one for all.
[groups]
coordinators = "239.192.77.1"
everyone = "239.192.77.2"

"#;
/// Stands in it for the identity.
const EXAMPLE_ID: &str = "0000000000000000";

pub(crate) fn run(root: &Path, _: Name, command: &HostCommand) -> Result<ExitCode, Failure> {
    match command {
        HostCommand::Example { rdma } => {
            let network = if *rdma { EXAMPLE_RDMA } else { EXAMPLE_IP };
            let text = EXAMPLE.replace(EXAMPLE_ID, &print_id(obol_agent::seed()));
            output::bytes(text.replace(EXAMPLE_NETWORK, network).as_bytes())?;
        }
        HostCommand::Check { file, json } => check(file, *json)?,
        HostCommand::Keys { file, out, days } => make_keys(file, out, *days)?,
        HostCommand::Prepare { file, address, state } => prepare(root, file, *address, state)?,
        HostCommand::Clean { file } => {
            let hosts = Hosts::load(file).map_err(Failure::refused)?;
            clean(root, hosts.cluster)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn make_keys(file: &Path, out: &Path, days: u16) -> Result<(), Failure> {
    let hosts = Hosts::load(file).map_err(Failure::refused)?;
    if hosts.fabric == Fabric::Rdma && hosts.rdma_keys.is_none() {
        return Err(Failure::Refused(format!(
            "{}: says keys = \"none\", so its hosts would not use any; set keys = \"{KEYS}\"",
            file.display()
        )));
    }
    let authority = Authority::open(out, hosts.cluster, hosts.id).map_err(Failure::failed)?;
    let made = if authority.is_new { "made" } else { "used again" };
    let at = out.join(AUTHORITIES_FILE);
    output::line(format_args!(
        "{}  the authority, {made}; {AUTHORITY_KEY_FILE} signs and belongs on no host",
        at.display()
    ))?;
    for (number, host) in (1..).zip(&hosts.hosts) {
        let directory = out.join(host.address.to_string());
        authority.issue(&directory, (host.address, number), &duties(host), days).map_err(Failure::failed)?;
        output::line(format_args!("{}  for host {number}, valid for {days} days", directory.display()))?;
    }
    Ok(())
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
    /// Why this host cannot use its keys; none if it can, or is not in the file, or has none yet.
    keys_fault: Option<String>,
    /// For how many more days this host's certificate is valid; none if it is not, or there is none.
    certificate_days: Option<u32>,
    /// What is wrong with the keys of this host, or will be soon.
    warnings: Vec<String>,
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
        let duties = needed(host, least_duty(&network.fabric));
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
    let keys = KeysFound::of(&hosts, file).unwrap_or_default();
    let (cluster, id, profile) = (hosts.cluster.to_string(), print_id(hosts.id), hosts.profile);
    if json {
        let KeysFound { fault: keys_fault, days: certificate_days, warnings } = keys;
        output::json(&CheckJson {
            cluster,
            id,
            profile,
            hosts: rows,
            keys_fault,
            certificate_days,
            warnings,
        })?;
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
    for warning in keys.warnings {
        output::remark(format_args!("obol: {warning}"))?;
    }
    Ok(())
}

fn prepare(root: &Path, file: &Path, address: Option<IpAddr>, state: &Path) -> Result<(), Failure> {
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
