//! `obol fabric`: the RDMA devices of this host, which of them would be used, and what is missing; and
//! why another host is not reached.

use clap::Subcommand;
use obol_doctor::diagnose::{self, Evidence, Fault, Verdict};
use obol_fabric::Name;
use obol_fabric_verbs::context::{Atomics, LinkLayer};
use obol_fabric_verbs::device::{Device, GidKind, Port};
use obol_fabric_verbs::found::Found;
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
    let found = Listing(Found::look(*address));
    output::json_or(*json, &found.report(), |_| found.lines().into_iter().try_for_each(output::line))?;
    Ok(found.code())
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

/// What was found, for the terminal and for scripts.
struct Listing(Found);

impl Listing {
    fn code(&self) -> ExitCode {
        match (self.0.missing.is_empty(), self.0.devices.is_empty()) {
            (true, _) => ExitCode::SUCCESS,
            (false, false) => ExitCode::FAILURE,
            (false, true) => ExitCode::from(2),
        }
    }

    fn is_chosen(&self, device: &Device, port: &Port, gid_index: u8) -> bool {
        self.0
            .chosen
            .as_ref()
            .is_some_and(|c| c.device == device.name && c.port == port.number && c.gid.index == gid_index)
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for device in &self.0.devices {
            match &device.opened {
                Err(error) => lines.push(format!("{}  cannot be opened: {error}", device.name)),
                Ok((facts, ports)) => {
                    let node = device.numa_node.map_or_else(|| "--".to_owned(), |node| node.to_string());
                    lines.push(format!(
                        "{}  atomics {}  multicast groups {}  NUMA node {node}",
                        device.name,
                        atomics(facts.atomics),
                        facts.groups
                    ));
                    for port in ports {
                        lines.push(format!(
                            "  port {}  {}  {}  MTU {}",
                            port.number,
                            port.facts.state_name(),
                            link_layer(port.facts.link_layer),
                            port.facts.mtu
                        ));
                        lines.extend(self.gid_lines(device, port));
                    }
                }
            }
        }
        let (free, all) = self.0.memory.huge_pages;
        lines.push(format!(
            "huge pages: {free} of {all} free; transparent ones: {}; may lock: {}",
            if self.0.memory.transparent { "yes" } else { "no" },
            self.0
                .memory
                .lockable
                .map_or_else(|| "no limit".to_owned(), |bytes| format!("{} KiB", bytes >> 10))
        ));
        lines.push(match &self.0.chosen {
            Some(chosen) => format!(
                "would be used: {} port {} GID {}{}",
                chosen.device,
                chosen.port,
                chosen.gid.index,
                chosen.address.map_or_else(String::new, |address| format!(" ({address})"))
            ),
            None => "would be used: none".to_owned(),
        });
        lines.extend(self.0.missing.iter().map(|what| format!("missing: {what}")));
        lines
    }

    fn gid_lines(&self, device: &Device, port: &Port) -> Vec<String> {
        let width = port.gids.iter().map(|entry| entry.gid.to_string().len()).max().unwrap_or(0);
        port.gids
            .iter()
            .map(|entry| {
                let mark = if self.is_chosen(device, port, entry.index) { '*' } else { ' ' };
                format!(
                    "  {mark} GID {:<3}  {:<width$}  {:<10}  {}",
                    entry.index,
                    entry.gid.to_string(),
                    gid_kind(entry.kind),
                    entry.interface.as_deref().unwrap_or("--")
                )
            })
            .collect()
    }

    fn report(&self) -> Report<'_> {
        Report {
            devices: self
                .0
                .devices
                .iter()
                .map(|device| {
                    let opened = device.opened.as_ref();
                    DeviceReport {
                        name: &device.name,
                        numa_node: device.numa_node,
                        error: opened.err().map(ToString::to_string),
                        atomics: opened.ok().map(|(facts, _)| atomics(facts.atomics)),
                        multicast_groups: opened.ok().map(|(facts, _)| facts.groups),
                        ports: opened
                            .map(|(_, ports)| ports.iter().map(PortReport::of).collect())
                            .unwrap_or_default(),
                    }
                })
                .collect(),
            chosen: self.0.chosen.as_ref().map(|chosen| ChoiceReport {
                device: &chosen.device,
                port: chosen.port,
                gid_index: chosen.gid.index,
                gid: chosen.gid.gid.to_string(),
                address: chosen.address,
            }),
            memory: MemoryReport {
                huge_pages_free: self.0.memory.huge_pages.0,
                huge_pages: self.0.memory.huge_pages.1,
                transparent_huge_pages: self.0.memory.transparent,
                lockable_bytes: self.0.memory.lockable,
            },
            missing: &self.0.missing,
        }
    }
}

fn atomics(atomics: Atomics) -> &'static str {
    match atomics {
        Atomics::None => "none",
        Atomics::Device => "device",
        Atomics::Host => "host",
    }
}

fn link_layer(link_layer: LinkLayer) -> &'static str {
    match link_layer {
        LinkLayer::InfiniBand => "InfiniBand",
        LinkLayer::Ethernet => "Ethernet",
        LinkLayer::Unspecified => "unspecified",
    }
}

fn gid_kind(kind: GidKind) -> &'static str {
    match kind {
        GidKind::InfiniBand => "InfiniBand",
        GidKind::RoceV1 => "RoCE v1",
        GidKind::RoceV2 => "RoCE v2",
    }
}

#[derive(Serialize)]
struct Report<'a> {
    devices: Vec<DeviceReport<'a>>,
    chosen: Option<ChoiceReport<'a>>,
    memory: MemoryReport,
    missing: &'a [String],
}

#[derive(Serialize)]
struct DeviceReport<'a> {
    name: &'a str,
    numa_node: Option<u32>,
    error: Option<String>,
    atomics: Option<&'static str>,
    multicast_groups: Option<u32>,
    ports: Vec<PortReport<'a>>,
}

#[derive(Serialize)]
struct PortReport<'a> {
    number: u8,
    state: &'static str,
    link_layer: &'static str,
    mtu_bytes: u32,
    gids: Vec<GidReport<'a>>,
}

#[derive(Serialize)]
struct GidReport<'a> {
    index: u8,
    gid: String,
    kind: &'static str,
    interface: Option<&'a str>,
}

#[derive(Serialize)]
struct MemoryReport {
    huge_pages_free: u64,
    huge_pages: u64,
    transparent_huge_pages: bool,
    /// `null` if there is no limit.
    lockable_bytes: Option<u64>,
}

#[derive(Serialize)]
struct ChoiceReport<'a> {
    device: &'a str,
    port: u8,
    gid_index: u8,
    gid: String,
    address: Option<IpAddr>,
}

impl<'a> PortReport<'a> {
    fn of(port: &'a Port) -> Self {
        Self {
            number: port.number,
            state: port.facts.state_name(),
            link_layer: link_layer(port.facts.link_layer),
            mtu_bytes: port.facts.mtu,
            gids: port
                .gids
                .iter()
                .map(|entry| GidReport {
                    index: entry.index,
                    gid: entry.gid.to_string(),
                    kind: gid_kind(entry.kind),
                    interface: entry.interface.as_deref(),
                })
                .collect(),
        }
    }
}
