//! The file that an operator writes for a cluster of several hosts: the hosts and the processes of
//! each. All hosts have a copy of the same file.
//!
//! ```toml
//! schema = 1
//! cluster = "prod"
//! id = "0f3c5a7e91b2d468"
//! profile = "roce"
//! keys = "/etc/obol/keys"
//!
//! [[hosts]]
//! address = "10.0.0.1"
//! coordinator = 1
//! agents = ["node-1"]
//! caches = ["cache-1"]
//! ```

use crate::network::{Fabric, GROUPS, Groups, KEYS as KEYS_DIRECTORY, Network, PORT, WANTED_ID, parse_id};
use crate::{Deployment, HostSupervisor};
use obol_config::{At, FileError, Problem, Problems, Section, shortened};
use obol_fabric::Name;
use obol_fabric::layout::PROPOSERS_MAX;
use obol_fabric_ip::pulse::PATHS_MAX;
use obol_fabric_verbs::DATAGRAM_PAYLOAD_MAX;
use obol_profiles::Profile;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// Version of the file.
const HOSTS_SCHEMA: u32 = 1;
/// The highest port: coordinators listen on the ports above it.
const PORT_MAX: u32 = 65_000;
/// The maximum number of hosts.
const HOSTS_MAX: usize = obol_fabric::host::HOST_MAX as usize;
/// The maximum number of agents and caches per host.
const PER_HOST_MAX: usize = obol_fabric::host::PER_HOST as usize;

/// A cluster of several hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    /// Its name, the same on all hosts.
    pub cluster: Name,
    /// Distinguishes it from all other clusters on the network.
    pub id: u64,
    /// The profile: a built-in one, or a file.
    pub profile: String,
    /// How the hosts reach each other's memory.
    pub fabric: Fabric,
    /// The directory of each host's keys, over RDMA; `None` trusts the network.
    pub rdma_keys: Option<PathBuf>,
    /// The multicast groups, over RDMA.
    pub groups: Groups,
    /// Over IP, the port of all gateways. Over RDMA, the port of coordinator 1 on its host; coordinator n listens n - 1 above,
    /// and gateways 1 below.
    pub port: u16,
    /// The hosts. A host is identified by its index, so new ones are added at the end.
    pub hosts: Vec<Host>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its address on the network.
    pub address: IpAddr,
    /// Its addresses for pulses, one for each path; empty for its address alone.
    pub paths: Vec<IpAddr>,
    /// The number of its coordinator, if it has one.
    pub coordinator: Option<u16>,
    pub agents: Vec<Name>,
    /// Its lease caches.
    pub caches: Vec<Name>,
    /// Programs that its supervisor runs.
    pub apps: Vec<Name>,
    /// What restarts its processes.
    pub supervisor: HostSupervisor,
    /// Whether a drill may crash it.
    pub may_crash: bool,
}

/// Why a file does not describe a cluster.
#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    /// The file cannot be read, or is invalid.
    #[error(transparent)]
    File(#[from] FileError),
    /// The hosts' processes do not fit the profile, or the profile is invalid.
    #[error("{0}: {1}")]
    Deployment(PathBuf, crate::DeploymentError),
    /// The profile is for a single host.
    #[error(
        "{path}: profile {profile} is made for one host: its limits.datagram_bytes is {datagram_bytes}, and an RDMA \
         network carries {DATAGRAM_PAYLOAD_MAX} at most, 960 over most Ethernets; take infiniband, roce, soft-roce, or \
         a file of your own that begins as one of these"
    )]
    OneHost {
        path: PathBuf,
        profile: String,
        /// Its `limits.datagram_bytes`.
        datagram_bytes: u32,
    },
    /// None of the hosts is this one.
    #[error(
        "{}: none of its hosts ({}) is this one; give this host one of these addresses, name the host with \
         --address, or add it to the file",
        .path.display(),
        listed(.named)
    )]
    NotHere {
        path: PathBuf,
        /// The addresses in the file.
        named: Vec<IpAddr>,
    },
}

fn listed(addresses: &[IpAddr]) -> String {
    addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ")
}

impl Hosts {
    /// Reads and checks a file. All errors are reported, not only the first.
    pub fn load(path: &Path) -> Result<Self, HostsError> {
        let text = obol_config::text(path, "file of hosts").map_err(HostsError::File)?;
        Self::parse(&text, path)
    }

    /// Reads and checks a text; `origin` names its source in errors.
    pub fn parse(text: &str, origin: &Path) -> Result<Self, HostsError> {
        Ok(obol_config::read(text, &origin.display().to_string(), file)?)
    }

    /// The index of the host that has one of these addresses.
    pub fn find(&self, addresses: &[IpAddr]) -> Option<usize> {
        self.hosts.iter().position(|host| addresses.contains(&host.address))
    }

    /// The paths of all hosts; empty if none names any.
    fn paths(&self) -> Vec<Vec<IpAddr>> {
        let paths = self.hosts.iter().map(|host| host.paths.clone());
        if self.hosts.iter().all(|host| host.paths.is_empty()) { Vec::new() } else { paths.collect() }
    }

    /// The cluster as seen by the host at this index. `origin` is the file: a profile's path is
    /// relative to it.
    pub fn deployment(&self, host: usize, origin: &Path) -> Result<Deployment, HostsError> {
        let refused = |error| HostsError::Deployment(origin.to_owned(), error);
        let Some(here) = self.hosts.get(host) else {
            let named = self.hosts.iter().map(|host| host.address).collect();
            return Err(HostsError::NotHere { path: origin.to_owned(), named });
        };
        let beside = origin.parent().map(|dir| dir.join(&self.profile)).filter(|path| path.is_file());
        let profile = beside.map_or_else(|| self.profile.clone(), |path| path.display().to_string());
        let profile = Profile::load(&profile).map_err(|error| refused(error.into()))?;
        if self.fabric == Fabric::Rdma && profile.limits.datagram_bytes > DATAGRAM_PAYLOAD_MAX {
            return Err(HostsError::OneHost {
                path: origin.to_owned(),
                profile: self.profile.clone(),
                datagram_bytes: profile.limits.datagram_bytes,
            });
        }
        let mut coordinators: Vec<_> =
            self.hosts.iter().filter_map(|host| Some((host.coordinator?, host.address))).collect();
        coordinators.sort_unstable();
        // Coordinator numbers beyond those of the file are assigned to the hosts in turn, so that
        // replacements, also after a disaster, are found without a new file.
        let numbers = 0..u16::try_from(profile.limits.proposers).unwrap_or(u16::MAX);
        let listens: Vec<SocketAddr> = coordinators
            .iter()
            .cycle()
            .zip(numbers)
            .map(|((_, address), n)| match self.fabric {
                Fabric::Rdma => SocketAddr::new(*address, self.port.saturating_add(n)),
                Fabric::Ip { .. } => SocketAddr::new(*address, self.port),
            })
            .collect();
        // Processes of the cluster run in directories of their own, as a fault agent that ssh starts.
        let absolute = std::path::absolute(origin).unwrap_or_else(|_| origin.to_owned());
        let beside_file = |keys: &Path| absolute.parent().unwrap_or(&absolute).join(keys);
        let network = Network {
            id: self.id,
            host: u8::try_from(host + 1).unwrap_or(u8::MAX),
            address: here.address,
            fabric: match &self.fabric {
                // Relative to the file, as a profile's path is.
                Fabric::Ip { keys } => Fabric::Ip { keys: beside_file(keys) },
                Fabric::Rdma => Fabric::Rdma,
            },
            rdma_keys: self.rdma_keys.as_deref().map(beside_file),
            hosts: self.hosts.iter().map(|host| host.address).collect(),
            paths: self.paths(),
            coordinators: listens,
            groups: self.groups,
            memory_lost: Vec::new(),
            state: None,
            apps: self.hosts.iter().flat_map(|host| &host.apps).map(Name::to_string).collect(),
            homes: self
                .homes(|host| host.caches.len() + host.agents.len())
                .chain(self.homes(|host| host.apps.len()))
                .collect(),
            supervisors: self.hosts.iter().map(|host| host.supervisor.clone()).collect(),
            may_crash: (1..).zip(&self.hosts).filter(|(_, host)| host.may_crash).map(|(n, _)| n).collect(),
            members: self
                .hosts
                .iter()
                .flat_map(|host| host.caches.iter().chain(&host.agents))
                .map(Name::to_string)
                .collect(),
        };
        let count = |of: fn(&Host) -> usize| u16::try_from(self.hosts.iter().map(of).sum::<usize>());
        let (agents, caches) = (count(|host| host.agents.len()), count(|host| host.caches.len()));
        let coordinators = u16::try_from(coordinators.len()).unwrap_or(u16::MAX);
        Deployment::new(coordinators, agents.unwrap_or(u16::MAX), caches.unwrap_or(u16::MAX), profile)
            .map(|deployment| deployment.over(network))
            .map_err(refused)
    }
}

impl Hosts {
    /// The number of each host, as often as it has something.
    fn homes(&self, has: fn(&Host) -> usize) -> impl Iterator<Item = u8> {
        (1..).zip(&self.hosts).flat_map(move |(number, host)| std::iter::repeat_n(number, has(host)))
    }
}

/// The first octet of IPv4 addresses of hosts of "this network", which cannot be destinations.
const THIS_NETWORK: u8 = 0;
/// First octets of IPv4 addresses from here on are reserved.
const RESERVED_FROM: u8 = 240;

/// Why other hosts cannot reach a host by this address.
fn unusable(address: IpAddr) -> Option<String> {
    let why = match address {
        _ if address.is_unspecified() => "stands for all addresses of a host",
        _ if address.is_multicast() => "is a multicast address",
        IpAddr::V4(v4) if v4.is_broadcast() => "is the broadcast address",
        IpAddr::V4(v4) if v4.octets()[0] == THIS_NETWORK => {
            "is of 0.0.0.0/8, which no host has (RFC 1122): write the address of a host"
        }
        IpAddr::V4(v4) if v4.octets()[0] >= RESERVED_FROM => {
            "is of 240.0.0.0/4, which is reserved (RFC 1112): write the address of a host"
        }
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            "is an IPv4 address in IPv6: write the IPv4 address"
        }
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            "is link-local, and means another host on each network: write a routed or a unique local address"
        }
        IpAddr::V4(_) | IpAddr::V6(_) => return None,
    };
    Some(format!("{address} {why}"))
}

/// In the place of a directory of keys: the network is trusted.
const NO_KEYS: &str = "none";

/// The address in a text.
fn parse_address(key: &str, text: &str) -> Result<IpAddr, Problem> {
    text.parse().map_err(|_| Problem::WrongType {
        key: key.to_owned().into(),
        found: format!("{:?}", shortened(text)),
        wanted: "an IP address such as \"10.0.0.1\"".to_owned(),
    })
}

/// An address that must be there.
fn address(section: &mut Section<'_, '_>, key: &str, problems: &mut Problems) -> Option<At<IpAddr>> {
    let wanted = "an IP address such as \"10.0.0.1\"";
    let read = section.take(key, wanted, problems, |path, value| Some(parse_address(path, value.as_str()?)));
    section.need(key, wanted, read)
}

fn file(top: &mut Section<'_, '_>, problems: &mut Problems) -> Option<Hosts> {
    top.accept(["schema", "cluster", "id", "profile", "port", "fabric", "keys", "groups", "hosts"]);
    top.schema(HOSTS_SCHEMA, problems);
    let cluster = top.parsed("cluster", "a name", problems);
    let cluster = top.need("cluster", "a name", cluster);
    let wanted = format!("{WANTED_ID}, drawn once for the cluster");
    let id = top.take("id", &wanted, problems, |_, value| parse_id(value.as_str()?).map(Ok));
    let id = top.need("id", &wanted, id);
    let profile = top.string("profile", problems);
    let profile = top.need("profile", "a built-in profile, or a file", profile);
    let port = match top.number("port", (1, PORT_MAX), problems) {
        Some(port) => u16::try_from(port.value).ok(),
        None => Some(PORT),
    };
    let fabric = fabric(top, problems);
    let groups = match top.section("groups", problems) {
        Some(section) => section.read(problems, groups),
        None => Some(GROUPS),
    };
    let at = top.value("hosts").map_or(0, |value| value.span().start);
    let tables = top.tables("hosts", problems);
    let tables = top.need("hosts", "one table for each host, [[hosts]]", tables)?;
    let hosts = hosts(at, tables, problems);
    let (fabric, rdma_keys) = fabric?;
    if fabric == Fabric::Rdma && port == Some(1) {
        problems.other(
            top.place("port"),
            "port is 1, and over RDMA gateways listen one port below: give a higher one",
        );
    }
    Some(Hosts {
        cluster: cluster?.value,
        id: id?.value,
        profile: profile?.value,
        fabric,
        rdma_keys,
        groups: groups?,
        port: port?,
        hosts,
    })
}

/// The fabric, and the directory of keys over RDMA.
fn fabric(top: &mut Section<'_, '_>, problems: &mut Problems) -> Option<(Fabric, Option<PathBuf>)> {
    let over_ip = top.choice("fabric", &[("rdma", false), ("ip", true)], problems);
    let keys = top.string("keys", problems);
    if (top.has("fabric") && over_ip.is_none()) || (top.has("keys") && keys.is_none()) {
        return None;
    }
    if top.is_misspelt("fabric") || top.is_misspelt("keys") {
        return None;
    }
    match (over_ip.is_some_and(|at| at.value), keys) {
        (true, None) => Some((Fabric::Ip { keys: KEYS_DIRECTORY.into() }, None)),
        (true, Some(At { at, value })) => {
            if value == NO_KEYS {
                problems.other(at, "keys must be a directory: over IP, hosts always know each other by keys");
                return None;
            }
            Some((Fabric::Ip { keys: value.into() }, None))
        }
        (false, None) => {
            // A network is not trusted because a line was forgotten.
            problems.other(
                top.place("fabric"),
                format!(
                    "keys is missing: over RDMA, say keys = \"{KEYS_DIRECTORY}\", where `obol host keys` puts the keys by which the \
                     hosts know each other, or keys = \"{NO_KEYS}\" to trust anyone who can send packets on the network"
                ),
            );
            None
        }
        (false, Some(keys)) => Some((Fabric::Rdma, (keys.value != NO_KEYS).then(|| keys.value.into()))),
    }
}

fn groups(section: &mut Section<'_, '_>, problems: &mut Problems) -> Option<Groups> {
    let [coordinators, everyone] = ["coordinators", "everyone"].map(|key| {
        let At { at, value } = address(section, key, problems)?;
        if !value.is_multicast() {
            let key = section.key(key);
            problems.other(at, format!("{key} is {value}, which is not a multicast address"));
        }
        Some(value)
    });
    let groups = Groups { coordinators: coordinators?, everyone: everyone? };
    if groups.coordinators == groups.everyone {
        problems.other(section.at, "groups.coordinators and groups.everyone must be two groups");
    }
    Some(groups)
}

/// What must differ between hosts.
#[derive(Default)]
struct Taken {
    addresses: BTreeSet<IpAddr>,
    names: BTreeSet<String>,
    coordinators: BTreeSet<u32>,
    on_paths: BTreeSet<IpAddr>,
    /// The number of paths of the first host, which all others need as well.
    paths: Option<usize>,
}

fn hosts(at: usize, tables: Vec<Section<'_, '_>>, problems: &mut Problems) -> Vec<Host> {
    if tables.len() > HOSTS_MAX {
        problems.other(at, format!("{} hosts, but a cluster can have {HOSTS_MAX}", tables.len()));
    }
    let mut taken = Taken::default();
    let mut hosts = Vec::new();
    let before = problems.count();
    for section in tables {
        hosts.extend(section.read(problems, |section, problems| host(section, &mut taken, problems)));
    }
    // Of hosts with mistakes the numbers may be missing.
    let numbers = &taken.coordinators;
    let are_read = problems.count() == before;
    if are_read && numbers.is_empty() {
        problems.other(at, "no host has a coordinator; give one to each of 3 or 5 hosts, numbered from 1");
    } else if are_read && !numbers.iter().copied().zip(1..).all(|(number, expected)| number == expected) {
        let found: Vec<_> = numbers.iter().map(u32::to_string).collect();
        problems.other(
            at,
            format!("coordinators must be numbered from 1 without gaps; here {}", found.join(", ")),
        );
    }
    // Several hosts that are this one, for tests, are all on loopback.
    let is_local = |host: &Host| host.address.is_loopback();
    if !hosts.iter().all(is_local)
        && let Some(host) = hosts.iter().find(|host| is_local(host))
    {
        let why = "is reached by its own host alone, and other hosts are elsewhere";
        problems.other(at, format!("hosts.address: {} {why}", host.address));
    }
    hosts
}

fn host(section: &mut Section<'_, '_>, taken: &mut Taken, problems: &mut Problems) -> Option<Host> {
    let at = section.at;
    let address = address(section, "address", problems).map(|at| at.value);
    if let Some(why) = address.and_then(unusable) {
        problems.other(at, format!("hosts.address: {why}"));
    }
    if let Some(address) = address
        && !taken.addresses.insert(address)
    {
        problems.other(at, format!("{address} is the address of two hosts"));
    }
    let coordinator = section.number("coordinator", (1, PROPOSERS_MAX as u32), problems);
    let coordinator = coordinator.and_then(|At { at, value }| {
        if !taken.coordinators.insert(value) {
            problems.other(at, format!("coordinator {value} is on two hosts"));
        }
        u16::try_from(value).ok()
    });
    let [agents, caches, apps] =
        ["agents", "caches", "apps"].map(|key| names(section, key, &mut taken.names, problems));
    let processes = agents.len() + caches.len();
    if processes > PER_HOST_MAX {
        let fault = format!("{processes} agents and caches on one host, which can have {PER_HOST_MAX}");
        problems.other(at, fault);
    }
    let supervisor = section.take("supervisor", "a text in quotes", problems, |path, value| {
        let invalid = |why: String| Problem::Invalid(path.to_owned().into(), why);
        Some(HostSupervisor::parse(value.as_str()?).map_err(invalid))
    });
    let supervisor = supervisor.map(|at| at.value).unwrap_or_default();
    let may_crash = section.flag("may_crash", problems).unwrap_or(false);
    // As they are written: one with a mistake is a path all the same.
    let written = section.value("paths").map_or(Some(0), |value| Some(value.get_ref().as_array()?.len()));
    let paths = paths(section, &mut taken.on_paths, problems);
    if let Some(count) = written.filter(|_| !section.is_misspelt("paths")) {
        let first = *taken.paths.get_or_insert(count);
        if count != first {
            problems.other(
                at,
                format!(
                    "{count} paths, and the first host has {first}; every host needs an address on each path"
                ),
            );
        }
    }
    Some(Host { address: address?, paths, coordinator, agents, caches, apps, supervisor, may_crash })
}

fn paths(
    section: &mut Section<'_, '_>,
    taken: &mut BTreeSet<IpAddr>,
    problems: &mut Problems,
) -> Vec<IpAddr> {
    let wanted = "a list of addresses, [\"..\", \"..\"]";
    let Some(paths) = section.list("paths", wanted, problems, parse_address) else { return Vec::new() };
    if let Some(value) = section.value("paths")
        && !(1..=PATHS_MAX).contains(&value.get_ref().as_array().map_or(0, |array| array.len()))
    {
        let problem = format!("hosts.paths must be 1 to {PATHS_MAX} addresses, one for each path");
        problems.other(value.span().start, problem);
    }
    for At { at, value } in &paths {
        if !taken.insert(*value) {
            problems.other(*at, format!("hosts.paths: {value} is there twice"));
        }
    }
    paths.into_iter().map(|at| at.value).collect()
}

fn names(
    section: &mut Section<'_, '_>,
    key: &str,
    taken: &mut BTreeSet<String>,
    problems: &mut Problems,
) -> Vec<Name> {
    let wanted = "a list of names, [\"..\", \"..\"]";
    let names = section.list(key, wanted, problems, |path, text| {
        Name::new(text).map_err(|error| Problem::Invalid(path.to_owned().into(), error.to_string()))
    });
    let names = names.unwrap_or_default();
    for At { at, value } in &names {
        if !taken.insert(value.to_string()) {
            problems.other(*at, format!("{value} is the name of two processes"));
        }
    }
    names.into_iter().map(|at| at.value).collect()
}
