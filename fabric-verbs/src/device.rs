//! The device, port and GID of an endpoint: the host's devices ([`survey`]), and the choice among
//! them ([`choose`]).

use super::arena::numa_node;
use super::context::{Atomics, Context, DeviceFacts, Gid, LinkLayer, PortFacts, device_names};
use super::error::VerbsError;
use super::interfaces::Interface;
use std::net::IpAddr;
use std::path::Path;

/// The protocol of an entry of the GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GidKind {
    /// InfiniBand.
    InfiniBand,
    /// RoCE v1: frames that are not routed.
    RoceV1,
    /// RoCE v2: UDP.
    RoceV2,
}

/// An entry of a port's GID table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GidEntry {
    pub index: u8,
    /// The identifier.
    pub gid: Gid,
    /// Its protocol.
    pub kind: GidKind,
    /// Its network interface, if known.
    pub interface: Option<String>,
}

/// A port of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its number, from 1.
    pub number: u8,
    /// Its attributes.
    pub facts: PortFacts,
    /// Its GID table, without empty entries.
    pub gids: Vec<GidEntry>,
}

/// A device of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    pub name: String,
    pub numa_node: Option<u32>,
    /// Its capabilities and ports, or the error of querying them.
    pub opened: Result<(DeviceFacts, Vec<Port>), VerbsError>,
}

/// The number of GID table entries considered. An index has a byte in `ibv_ah_attr`.
const GIDS_MAX: u32 = 256;

/// The requirements of a deployment. Omitted ones are chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceSelector {
    pub device: Option<String>,
    /// The port, from 1.
    pub port: Option<u8>,
    /// The index in the port's GID table.
    pub gid_index: Option<u8>,
    /// The local IP address, which identifies the port.
    pub address: Option<IpAddr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub device: String,
    pub numa_node: Option<u32>,
    /// Its capabilities.
    pub facts: DeviceFacts,
    /// The port, from 1.
    pub port: u8,
    /// Its attributes.
    pub port_facts: PortFacts,
    /// The entry of its GID table.
    pub gid: GidEntry,
    /// The IP address for peers.
    pub address: Option<IpAddr>,
}

/// All devices of this host. An error means that none is available.
pub fn survey() -> Result<Vec<Device>, VerbsError> {
    let names = device_names()?;
    if names.is_empty() {
        return Err(VerbsError::NoDevice { undriven: kernel_devices() });
    }
    Ok(names
        .into_iter()
        .map(|name| Device { numa_node: numa_node(&name), opened: query(&name), name })
        .collect())
}

/// The kernel's devices, with or without a provider.
fn kernel_devices() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/sys/class/infiniband") else { return Vec::new() };
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

fn query(name: &str) -> Result<(DeviceFacts, Vec<Port>), VerbsError> {
    let context = Context::open(name)?;
    let facts = context.facts()?;
    let ports = (1..=facts.ports)
        .map(|number| {
            let facts = context.port(number)?;
            let mut gids = Vec::new();
            for index in (0..facts.gids.min(GIDS_MAX)).flat_map(u8::try_from) {
                if let Some(gid) = context.gid(number, index)? {
                    let attribute = |what: &str| {
                        let path =
                            format!("/sys/class/infiniband/{name}/ports/{number}/gid_attrs/{what}/{index}");
                        // Empty entries, and InfiniBand ones, have none.
                        std::fs::read_to_string(Path::new(&path)).ok().map(|text| text.trim().to_owned())
                    };
                    let kind = kind_of(facts.link_layer, attribute("types").as_deref());
                    gids.push(GidEntry { index, gid, kind, interface: attribute("ndevs") });
                }
            }
            Ok(Port { number, facts, gids })
        })
        .collect::<Result<_, VerbsError>>()?;
    Ok((facts, ports))
}

/// The kernel uses one name for InfiniBand and RoCE v1.
fn kind_of(link_layer: LinkLayer, text: Option<&str>) -> GidKind {
    match (link_layer, text) {
        (LinkLayer::InfiniBand, _) => GidKind::InfiniBand,
        (_, Some("RoCE v2")) => GidKind::RoceV2,
        _ => GidKind::RoceV1,
    }
}

/// Chooses among the devices of a survey, given the host's interfaces.
///
/// A port must be active, have a GID, and its device must support CAS. Among the matching ones,
/// reachability by IPv4 is preferred to IPv6, and that to a link-local or no address; RoCE v2 is
/// preferred to v1. On a tie, the first in the kernel's order is chosen.
pub fn choose(
    devices: &[Device],
    interfaces: &[Interface],
    selector: &DeviceSelector,
) -> Result<Choice, VerbsError> {
    let mut refused = Vec::new();
    let mut best: Option<((u8, u8), Choice)> = None;
    if let Some(wanted) = &selector.device
        && !devices.iter().any(|device| device.name == *wanted)
    {
        let existing = devices.iter().map(|device| device.name.clone()).collect();
        return Err(VerbsError::NoSuchDevice { wanted: wanted.clone(), existing });
    }
    for device in
        devices.iter().filter(|device| selector.device.as_ref().is_none_or(|name| *name == device.name))
    {
        let (facts, ports) = match &device.opened {
            Ok(opened) => opened,
            Err(error) => {
                refused.push((device.name.clone(), error.to_string()));
                continue;
            }
        };
        if let Some(wanted) = selector.port
            && !ports.iter().any(|port| port.number == wanted)
        {
            let error = VerbsError::NoSuchPort { device: device.name.clone(), wanted, ports: facts.ports };
            if selector.device.is_some() {
                return Err(error);
            }
            refused.push((device.name.clone(), error.to_string()));
        }
        for port in ports.iter().filter(|port| selector.port.is_none_or(|number| number == port.number)) {
            let name = format!("{}/{}", device.name, port.number);
            match rate(facts, port, interfaces, selector) {
                Err(reason) => refused.push((name, reason)),
                Ok(Rated { rating, entry, address }) => {
                    if best.as_ref().is_none_or(|(so_far, _)| rating > *so_far) {
                        let choice = Choice {
                            device: device.name.clone(),
                            numa_node: device.numa_node,
                            facts: *facts,
                            port: port.number,
                            port_facts: port.facts,
                            gid: entry.clone(),
                            address,
                        };
                        best = Some((rating, choice));
                    }
                }
            }
        }
    }
    match best {
        Some((_, choice)) => Ok(choice),
        None if devices.is_empty() => Err(VerbsError::NoDevice { undriven: Vec::new() }),
        None => Err(VerbsError::NoUsablePort { refused }),
    }
}

/// An entry of a GID table, its rank, and the address for peers.
struct Rated<'a> {
    rating: (u8, u8),
    entry: &'a GidEntry,
    address: Option<IpAddr>,
}

/// The best GID of a port, or why the port is not usable.
fn rate<'a>(
    facts: &DeviceFacts,
    port: &'a Port,
    interfaces: &[Interface],
    selector: &DeviceSelector,
) -> Result<Rated<'a>, String> {
    if facts.atomics == Atomics::None {
        return Err("the device has no atomic operations, and views are decided by CAS".to_owned());
    }
    if !port.facts.active {
        return Err(format!(
            "the port is {}; connect it, or bring its interface up",
            port.facts.state_name()
        ));
    }
    if let Some(index) = selector.gid_index
        && !port.gids.iter().any(|entry| entry.index == index)
    {
        return Err(format!("its GID table has no entry {index}"));
    }
    let rated = port
        .gids
        .iter()
        .filter(|entry| selector.gid_index.is_none_or(|index| index == entry.index))
        .map(|entry| (entry, address_of(entry, interfaces)))
        .filter(|(_, address)| selector.address.is_none() || *address == selector.address)
        .map(|(entry, address)| Rated { rating: (reach(address), entry.kind as u8), entry, address })
        // On a tie the first, so that the index is stable.
        .rev()
        .max_by_key(|rated| rated.rating);
    rated.ok_or_else(|| match selector.address {
        Some(address) => format!("{address} does not belong to it"),
        None => "it has no GID yet; give its interface an IP address".to_owned(),
    })
}

/// The address of a GID for peers: on RoCE it is part of the GID, on InfiniBand it is that of the
/// IPoIB interface.
fn address_of(entry: &GidEntry, interfaces: &[Interface]) -> Option<IpAddr> {
    if entry.kind == GidKind::InfiniBand {
        interfaces
            .iter()
            .find(|interface| interface.gid == Some(entry.gid))
            .map(|interface| interface.address)
    } else {
        Some(entry.gid.ip())
    }
}

const fn reach(address: Option<IpAddr>) -> u8 {
    match address {
        None => 0,
        Some(address) if address.is_loopback() => 1,
        Some(IpAddr::V6(v6)) if v6.is_unicast_link_local() => 2,
        Some(IpAddr::V6(_)) => 3,
        Some(IpAddr::V4(v4)) if v4.is_link_local() => 3,
        Some(IpAddr::V4(_)) => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric::types::mapped;
    use std::net::{Ipv4Addr, Ipv6Addr};

    const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 1));

    fn port(active: bool, link_layer: LinkLayer, gids: Vec<GidEntry>) -> Port {
        let state = if active { 4 } else { 1 };
        Port { number: 1, facts: PortFacts { active, state, link_layer, mtu: 1024, gids: 16, lid: 0 }, gids }
    }

    fn device(name: &str, atomics: Atomics, ports: Vec<Port>) -> Device {
        let facts = DeviceFacts {
            ports: ports.len() as u8,
            atomics,
            reads_under_way: (16, 16),
            completions: 1024,
            requests: 1024,
            groups: 16,
        };
        Device { name: name.to_owned(), numa_node: None, opened: Ok((facts, ports)) }
    }

    fn entry(index: u8, ip: IpAddr, kind: GidKind) -> GidEntry {
        GidEntry { index, gid: Gid(mapped(ip).octets()), kind, interface: None }
    }

    fn roce(name: &str, ip: IpAddr) -> Device {
        let local = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1));
        let gids = vec![
            entry(0, local, GidKind::RoceV1),
            entry(1, local, GidKind::RoceV2),
            entry(2, ip, GidKind::RoceV1),
            entry(3, ip, GidKind::RoceV2),
        ];
        device(name, Atomics::Device, vec![port(true, LinkLayer::Ethernet, gids)])
    }

    fn selector(address: IpAddr) -> DeviceSelector {
        DeviceSelector { address: Some(address), ..DeviceSelector::default() }
    }

    #[test]
    fn roce_v2_over_ipv4_is_the_default() {
        let chosen = choose(&[roce("rxe0", V4)], &[], &DeviceSelector::default()).expect("one fits");
        assert_eq!((chosen.device.as_str(), chosen.port, chosen.gid.index), ("rxe0", 1, 3));
        assert_eq!(chosen.address, Some(V4));
    }

    #[test]
    fn the_own_address_leads_to_its_device() {
        let other = IpAddr::V4(Ipv4Addr::new(10, 2, 0, 1));
        let devices = [roce("rxe0", V4), roce("rxe1", other)];
        assert_eq!(choose(&devices, &[], &selector(other)).expect("one fits").device, "rxe1");
        assert_eq!(choose(&devices, &[], &DeviceSelector::default()).expect("both fit").device, "rxe0");
        let nobody = IpAddr::V4(Ipv4Addr::new(10, 3, 0, 1));
        let refused = choose(&devices, &[], &selector(nobody)).expect_err("nobody's address");
        assert!(refused.to_string().contains("rxe1/1: 10.3.0.1 does not belong to it"), "{refused}");
    }

    #[test]
    fn on_infiniband_the_address_is_that_of_the_interface_over_it() {
        let gid = Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0xc9, 3, 0, 1, 2, 3]);
        let ib = |name, gid| {
            let entry = GidEntry { index: 0, gid, kind: GidKind::InfiniBand, interface: None };
            device(name, Atomics::Host, vec![port(true, LinkLayer::InfiniBand, vec![entry])])
        };
        let devices = [ib("mlx4_0", Gid([1; 16])), ib("mlx4_1", gid)];
        let interfaces = [Interface { name: "ib0".to_owned(), address: V4, gid: Some(gid) }];
        let chosen = choose(&devices, &interfaces, &selector(V4)).expect("one fits");
        assert_eq!((chosen.device.as_str(), chosen.address), ("mlx4_1", Some(V4)));
        assert_eq!(
            choose(&devices, &interfaces, &DeviceSelector::default()).expect("both fit").device,
            "mlx4_1"
        );
    }

    #[test]
    fn every_unusable_port_is_reported_with_the_reason() {
        let devices = [
            device("none", Atomics::None, vec![port(true, LinkLayer::Ethernet, Vec::new())]),
            device("down", Atomics::Device, vec![port(false, LinkLayer::Ethernet, Vec::new())]),
            device("bare", Atomics::Device, vec![port(true, LinkLayer::Ethernet, Vec::new())]),
        ];
        let refused = choose(&devices, &[], &DeviceSelector::default()).expect_err("none fits").to_string();
        for part in
            ["none/1: the device has no atomic", "down/1: the port is down", "bare/1: it has no GID yet"]
        {
            assert!(refused.contains(part), "{refused}");
        }
    }

    #[test]
    fn a_requested_device_must_exist() {
        let devices = [roce("rxe0", V4)];
        let named = |device: &str, port, gid_index| DeviceSelector {
            device: Some(device.to_owned()),
            port,
            gid_index,
            address: None,
        };
        let refused = choose(&devices, &[], &named("mlx5_0", None, None)).expect_err("no such device");
        assert_eq!(refused.to_string(), "no RDMA device mlx5_0; there are: rxe0");
        let refused = choose(&devices, &[], &named("rxe0", Some(2), None)).expect_err("no such port");
        assert_eq!(refused.to_string(), "rxe0 has no port 2; choose one of 1..=1");
        let anywhere = DeviceSelector { port: Some(2), ..DeviceSelector::default() };
        let refused = choose(&devices, &[], &anywhere).expect_err("no device has it");
        assert!(refused.to_string().contains("rxe0 has no port 2"), "{refused}");
        let refused = choose(&devices, &[], &named("rxe0", None, Some(9))).expect_err("no such entry");
        assert!(refused.to_string().contains("its GID table has no entry 9"), "{refused}");
        assert_eq!(
            choose(&devices, &[], &named("rxe0", Some(1), Some(1))).expect("it is there").gid.index,
            1
        );
    }
}
