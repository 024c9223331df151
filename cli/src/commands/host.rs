//! `obol host`: a cluster of several hosts, as one of them.

use crate::problems;
use crate::values::span;
use clap::Subcommand;
use obol_fabric::Name;
use obol_identity::AUTHORITIES_FILE;
use obol_node::keys::{AUTHORITY_KEY_FILE, Authority, duties};
use obol_node::network::{Fabric, KEYS, print_id};
use obol_node::{Hosts, HostsError};
use obol_supervise::host::{self, Check, Prepared};
use obol_term::output::{self, Failure};
use std::io;
use std::net::IpAddr;
use std::ops::RangeInclusive;
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
        /// How long the hosts' certificates are valid, in whole days
        #[arg(long = "for", value_name = "TIME", default_value = "365d", value_parser = whole_days)]
        time: u16,
        /// The same in days: its former spelling
        #[arg(long, value_name = "DAYS", hide = true, conflicts_with = "time", value_parser = clap::value_parser!(u16).range(i64::from(*DAYS.start())..=i64::from(*DAYS.end())))]
        days: Option<u16>,
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

# Coordinator n listens on port + n - 1 of its host, and the gateway of each host on port - 1.
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
        HostCommand::Check { file, json } => {
            if let Err(HostsError::File(error)) = Hosts::load(file) {
                return Err(problems::refused(*json, file, error));
            }
            output::json_or(*json, &host::check(file)?, |found| show(file, found))?;
        }
        HostCommand::Keys { file, out, time, days } => make_keys(file, out, days.unwrap_or(*time))?,
        HostCommand::Prepare { file, address, state } => {
            report(&host::prepare(root, file, *address, state)?)?;
        }
        HostCommand::Clean { file } => {
            let hosts = Hosts::load(file).map_err(Failure::refused)?;
            host::clean(root, hosts.cluster)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// How many days a certificate may be valid.
const DAYS: RangeInclusive<u16> = 1..=3650;

/// A time in days.
fn whole_days(text: &str) -> Result<u16, String> {
    const DAY: u64 = 24 * 3600 * 1_000_000_000;
    let time = span(text)?;
    let days = u16::try_from(time.0 / DAY).ok().filter(|days| DAYS.contains(days));
    days.filter(|_| time.0.is_multiple_of(DAY)).ok_or_else(|| "whole days, from 1d to 3650d".to_owned())
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
        authority.issue(&directory, host.address, number, &duties(host), days).map_err(Failure::failed)?;
        output::line(format_args!("{}  for host {number}, valid for {days} days", directory.display()))?;
    }
    Ok(())
}

/// What was found of the file, and of the keys of this host.
fn verdict(file: &Path, found: &Check) -> String {
    let Check { cluster, id, profile, keys_fault, warnings, .. } = found;
    let verdict = match (keys_fault, warnings.as_slice()) {
        (None, []) => "is good",
        (None, _) => "is valid, with warnings",
        (Some(_), _) => "is valid, but this host cannot use its keys",
    };
    format!("{} {verdict}: cluster {cluster}, id {id}, profile {profile}", file.display())
}

fn show(file: &Path, found: &Check) -> io::Result<()> {
    output::line(verdict(file, found))?;
    let Check { hosts, warnings, .. } = found;
    let width = hosts.iter().map(|row| row.address.to_string().len()).max().unwrap_or(0);
    for row in hosts {
        let processes: Vec<&str> =
            row.coordinator.iter().chain(&row.agents).chain(&row.caches).map(String::as_str).collect();
        let here = if row.here { "  (this host)" } else { "" };
        let spare =
            if row.spare.is_empty() { String::new() } else { format!("  spare: {}", row.spare.join(" ")) };
        output::line(format_args!("  {:<width$}  {}{spare}{here}", row.address, processes.join(" ")))?;
    }
    for warning in warnings {
        output::remark(format_args!("obol: {warning}"))?;
    }
    Ok(())
}

fn report(prepared: &Prepared) -> io::Result<()> {
    let Prepared { dir, cluster, host, was_ready, lost } = prepared;
    if *was_ready {
        return output::line(format_args!("{} was prepared already", dir.display()));
    }
    output::line(format_args!("{} is prepared for cluster {cluster}, host {host}", dir.display()))?;
    for (notice, noted) in lost {
        output::remark(format_args!("obol: {notice}\nIt was noted in {}", noted.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_whose_keys_are_faulty_is_not_good() {
        let found = |keys_fault: Option<&str>, warnings: &[&str]| {
            let check = Check {
                cluster: "prod".to_owned(),
                id: "c9f388bd11c82a30".to_owned(),
                profile: "lan".to_owned(),
                hosts: Vec::new(),
                keys_fault: keys_fault.map(str::to_owned),
                certificate_days: None,
                warnings: warnings.iter().map(ToString::to_string).collect(),
            };
            verdict(Path::new("cluster.toml"), &check)
        };
        assert!(found(None, &[]).starts_with("cluster.toml is good: cluster prod"));
        for (fault, warnings, says) in [
            (Some("it is that of host 2"), &["the keys cannot be used"][..], "cannot use its keys"),
            (Some("it is that of host 2"), &[], "cannot use its keys"),
            (None, &["the certificate is valid for 3 more days"], "with warnings"),
        ] {
            let said = found(fault, warnings);
            assert!(!said.contains("good") && said.contains(says), "{said}");
        }
    }
}
