//! The RDMA devices of a host: which of them would be used, and what is missing.

use obol_fabric_verbs::context::{Atomics, LinkLayer};
use obol_fabric_verbs::device::{Device, GidKind, Port};
use obol_fabric_verbs::found::Found;
use serde::Serialize;
use std::net::IpAddr;

/// What was found, for the terminal and for scripts.
pub struct Listing(Found);

impl Listing {
    /// What this host has; with an address, the port that it belongs to would be used.
    pub fn look(address: Option<IpAddr>) -> Self {
        Self(Found::look(address))
    }

    pub fn is_complete(&self) -> bool {
        self.0.missing.is_empty()
    }

    pub fn has_devices(&self) -> bool {
        !self.0.devices.is_empty()
    }

    fn is_chosen(&self, device: &Device, port: &Port, gid_index: u8) -> bool {
        self.0
            .chosen
            .as_ref()
            .is_some_and(|c| c.device == device.name && c.port == port.number && c.gid.index == gid_index)
    }

    /// As people read it.
    pub fn lines(&self) -> Vec<String> {
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

    /// As scripts read it.
    pub fn report(&self) -> Report<'_> {
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

/// What scripts read.
#[derive(Serialize)]
pub struct Report<'a> {
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
