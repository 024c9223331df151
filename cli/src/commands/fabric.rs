//! `obol fabric`: the RDMA devices of this host, which of them would be used, and what is missing; and
//! why another host is not reached.

use clap::Subcommand;
use obol_doctor::devices::Listing;
use obol_doctor::diagnose::{self, Evidence, Fault, Verdict};
use obol_fabric::Name;
use obol_node::Site;
use obol_term::output::{self, Failure};
use serde::Serialize;
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;

/// Show this host's RDMA devices and what they lack, or why another host is not reached
#[derive(Debug, Subcommand)]
pub(crate) enum FabricCommand {
    /// List devices, ports and GIDs, mark those in use, and report what is missing and how to get
    /// it
    #[command(
        after_help = "Exit codes: 0 a device can be used and nothing is missing, 1 something is missing, \
        2 this host has no RDMA device or no libraries for one.\n\
        \nA device in software on an Ethernet interface, as root:\n  \
        modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0"
    )]
    List {
        /// Use the port that this own IP address belongs to
        #[arg(long, value_name = "IP")]
        address: Option<IpAddr>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Tell whether this host's port, the path or the other host is at fault where a host is not
    /// reached: this host, that one and third ones read each other's memory
    #[command(
        after_help = "Exit codes: 0 the host is reached, 1 what is at fault is named, 2 the evidence does not show it, or refused.\n\
        \nTry: obol fabric diagnose 3\n     obol fabric diagnose 10.0.0.3 --json | jq .fault"
    )]
    Diagnose {
        /// The number of the host, or its address in the file of hosts
        #[arg(value_name = "HOST")]
        host: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(root: &Path, cluster: Name, command: &FabricCommand) -> Result<ExitCode, Failure> {
    let (address, json) = match command {
        FabricCommand::List { address, json } => (address, json),
        FabricCommand::Diagnose { host, json } => return diagnose(root, cluster, host, *json),
    };
    // The exit code says what is missing, also if nobody reads the list.
    output::go_on_unread();
    let found = Listing::look(*address);
    output::json_or(*json, &found.report(), |_| found.lines().into_iter().try_for_each(output::line))?;
    Ok(match (found.is_complete(), found.has_devices()) {
        (true, _) => ExitCode::SUCCESS,
        (false, true) => ExitCode::FAILURE,
        (false, false) => ExitCode::from(2),
    })
}

/// The number of a host that is given by number or address.
fn number(site: &Site, host: &str) -> Option<u8> {
    let address: Option<IpAddr> = host.parse().ok();
    let hosts = site.deployment.network.iter().flat_map(|network| (1..).zip(&network.hosts));
    let by_address = hosts.filter(|(_, at)| Some(**at) == address).map(|(number, _)| number).next();
    by_address.or_else(|| host.parse().ok())
}

fn diagnose(root: &Path, cluster: Name, host: &str, json: bool) -> Result<ExitCode, Failure> {
    let site = Site::open(root, cluster).map_err(Failure::failed)?;
    let peer = number(&site, host).ok_or_else(|| {
        Failure::Refused(format!(
            "{host:?} is neither the number of a host of this cluster nor the address of one"
        ))
    })?;
    let evidence = diagnose::gather(root, &site, peer).map_err(Failure::Refused)?;
    let verdict = evidence.verdict();
    // The exit code has the verdict, also if nobody reads the evidence.
    output::go_on_unread();
    let report = Diagnosis { verdict: &verdict, evidence: &evidence };
    output::json_or(json, &report, |_| {
        let at_fault = match verdict.fault {
            Fault::None => "nothing",
            Fault::OwnPort => "the port of this host",
            Fault::Path => "the path",
            Fault::Peer => "the other host, or its port",
            Fault::Unknown => "unknown",
        };
        output::line(format_args!("at fault: {at_fault} ({})", verdict.why))?;
        evidence.lines().into_iter().try_for_each(|line| output::line(format_args!("  {line}")))
    })?;
    Ok(match verdict.fault {
        Fault::None => ExitCode::SUCCESS,
        Fault::OwnPort | Fault::Path | Fault::Peer => ExitCode::FAILURE,
        Fault::Unknown => ExitCode::from(2),
    })
}

#[derive(Serialize)]
struct Diagnosis<'a> {
    #[serde(flatten)]
    verdict: &'a Verdict,
    evidence: &'a Evidence,
}
