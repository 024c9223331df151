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
use obol_fabric::Name;
use obol_fabric::layout::PROPOSERS_MAX;
use obol_fabric_ip::pulse::PATHS_MAX;
use obol_fabric_verbs::DATAGRAM_PAYLOAD_MAX;
use obol_profiles::document::{self, Faults, nearest, shortened};
use obol_profiles::{Fault, FileError, Profile};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Version of the file.
const HOSTS_SCHEMA: i64 = 1;
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
    /// Over IP, the port of all gateways. Over RDMA, the port of coordinator 1 on its host; coordinator n listens n - 1 above.
    pub port: u16,
    /// The hosts. A host is identified by its index, so new ones are added at the end.
    pub hosts: Vec<Host>,
}

/// One host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its address on the network.
    pub address: IpAddr,
    /// Its addresses for pulses, one for each path; empty for its address alone.
    pub paths: Vec<IpAddr>,
    /// The number of its coordinator, if it has one.
    pub coordinator: Option<u16>,
    /// Its agents.
    pub agents: Vec<Name>,
    /// Its lease caches.
    pub caches: Vec<Name>,
    /// Programs that its supervisor runs.
    pub apps: Vec<Name>,
    /// What restarts its processes.
    pub supervisor: HostSupervisor,
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
        /// The file.
        path: PathBuf,
        /// The profile.
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
        /// The file.
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
        let text = document::text(path, "file of hosts")
            .map_err(|reason| FileError::Unreadable { path: path.display().to_string(), reason })?;
        Self::parse(&text, path)
    }

    /// Reads and checks a text; `origin` names its source in errors.
    pub fn parse(text: &str, origin: &Path) -> Result<Self, HostsError> {
        let mut reader = Reader { text, faults: Faults::default() };
        let hosts = reader.file();
        Ok(reader.faults.judge(hosts, text, &origin.display().to_string())?)
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
        let beside_file = |keys: &Path| origin.parent().unwrap_or(origin).join(keys);
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

type Table<'a> = DeTable<'a>;
type Value<'a> = Spanned<DeValue<'a>>;

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

const KEYS: [&str; 9] = ["schema", "cluster", "id", "profile", "fabric", "keys", "port", "groups", "hosts"];
const FABRICS: [&str; 2] = ["rdma", "ip"];
/// In the place of a directory of keys: the network is trusted.
const NO_KEYS: &str = "none";
const GROUP_KEYS: [&str; 2] = ["coordinators", "everyone"];
const HOST_KEYS: [&str; 7] = ["address", "paths", "coordinator", "agents", "caches", "apps", "supervisor"];

struct Reader<'t> {
    text: &'t str,
    faults: Faults,
}

impl Reader<'_> {
    fn fault(&mut self, at: usize, fault: impl Into<String>) {
        self.faults.add(at, Fault::Other(fault.into()));
    }

    /// Reports unknown keys and finds the known ones.
    fn unknown(&mut self, table: &Table<'_>, prefix: &str, known: &[&'static str]) {
        for name in table.keys().filter(|name| !known.contains(&name.get_ref().as_ref())) {
            let written = shortened(name.get_ref());
            let hint = match nearest(name.get_ref(), known.iter().copied()) {
                Some(meant) => format!("did you mean {prefix}{meant}?"),
                None => format!("known are {}", known.join(", ")),
            };
            self.fault(name.span().start, format!("{prefix}{written} is unknown; {hint}"));
        }
    }

    fn must<'v, 'i>(
        &mut self,
        table: &'v Table<'i>,
        at: usize,
        key: &str,
        name: &str,
    ) -> Option<&'v Value<'i>> {
        let value = table.get(key);
        if value.is_none() {
            self.fault(at, format!("{name} is missing"));
        }
        value
    }

    fn text(&mut self, value: &Value<'_>, name: &str) -> Option<String> {
        let text = value.get_ref().as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        if text.is_none() {
            self.fault(value.span().start, format!("{name} must be a text in quotes"));
        }
        text
    }

    fn number(&mut self, value: &Value<'_>, name: &str, low: i64, high: i64) -> Option<i64> {
        let number = value
            .get_ref()
            .as_integer()
            .and_then(|n| i64::from_str_radix(n.as_str(), n.radix()).ok())
            .filter(|n| (low..=high).contains(n));
        if number.is_none() {
            self.fault(value.span().start, format!("{name} must be a whole number from {low} to {high}"));
        }
        number
    }

    fn name(&mut self, value: &Value<'_>, key: &str) -> Option<Name> {
        let text = self.text(value, key)?;
        match Name::new(&text) {
            Ok(name) => Some(name),
            Err(error) => {
                self.fault(value.span().start, format!("{key}: {text:?} is not a name: {error}"));
                None
            }
        }
    }

    fn address(&mut self, value: &Value<'_>, key: &str) -> Option<IpAddr> {
        let text = self.text(value, key)?;
        let address = text.parse().ok();
        if address.is_none() {
            let fault =
                format!("{key} is {:?}, but must be an IP address such as \"10.0.0.1\"", shortened(&text));
            self.fault(value.span().start, fault);
        }
        address
    }

    fn file(&mut self) -> Option<Hosts> {
        let (document, syntax) = DeTable::parse_recoverable(self.text);
        if !syntax.is_empty() {
            self.faults.with_syntax(self.text, &syntax);
            return None;
        }
        let table = document.get_ref();
        if let Some(schema) = self.must(table, 0, "schema", "schema")
            && schema.get_ref().as_integer().map(|n| n.as_str()) != Some(&HOSTS_SCHEMA.to_string())
        {
            // Other apparent errors may be valid in that schema.
            self.fault(
                schema.span().start,
                format!("schema must be {HOSTS_SCHEMA}: this obol reads no other"),
            );
            return None;
        }
        self.unknown(table, "", &KEYS);
        let cluster = self.must(table, 0, "cluster", "cluster").and_then(|v| self.name(v, "cluster"));
        let id = self.must(table, 0, "id", "id").and_then(|value| {
            let id = value.get_ref().as_str().and_then(parse_id);
            if id.is_none() {
                self.fault(value.span().start, format!("id must be {WANTED_ID}, drawn once for the cluster"));
            }
            id
        });
        let profile = self.must(table, 0, "profile", "profile").and_then(|v| self.text(v, "profile"));
        let port = match table.get("port") {
            None => Some(PORT),
            Some(value) => self.number(value, "port", 1, 65_000).and_then(|n| u16::try_from(n).ok()),
        };
        let fabric = self.fabric(table);
        let groups = match table.get("groups") {
            None => Some(GROUPS),
            Some(value) => self.groups(value),
        };
        let hosts = self.must(table, 0, "hosts", "[[hosts]]").map(|value| self.hosts(value));
        let (fabric, rdma_keys) = fabric?;
        Some(Hosts {
            cluster: cluster?,
            id: id?,
            profile: profile?,
            fabric,
            rdma_keys,
            groups: groups?,
            port: port?,
            hosts: hosts?,
        })
    }

    /// The fabric, and the directory of keys over RDMA.
    fn fabric(&mut self, table: &Table<'_>) -> Option<(Fabric, Option<PathBuf>)> {
        let name = match table.get("fabric") {
            None => FABRICS[0].to_owned(),
            Some(value) => {
                let name = self.text(value, "fabric")?;
                if !FABRICS.contains(&name.as_str()) {
                    let fault = format!("fabric is {:?}, but must be rdma or ip", shortened(&name));
                    self.fault(value.span().start, fault);
                    return None;
                }
                name
            }
        };
        let keys = table.get("keys").map(|value| (value.span().start, self.text(value, "keys")));
        match (name.as_str(), keys) {
            ("ip", None) => Some((Fabric::Ip { keys: KEYS_DIRECTORY.into() }, None)),
            ("ip", Some((at, keys))) => {
                let keys = keys?;
                if keys == NO_KEYS {
                    self.fault(at, "keys must be a directory: over IP, hosts always know each other by keys");
                    return None;
                }
                Some((Fabric::Ip { keys: keys.into() }, None))
            }
            (_, None) => {
                // A network is not trusted because a line was forgotten.
                self.fault(
                    table.get("fabric").map_or(0, |value| value.span().start),
                    format!(
                        "keys is missing: over RDMA, say keys = \"{KEYS_DIRECTORY}\", where `obol host keys` puts the keys by which the \
                         hosts know each other, or keys = \"{NO_KEYS}\" to trust anyone who can send packets on the network"
                    ),
                );
                None
            }
            (_, Some((_, keys))) => {
                let keys = keys?;
                Some((Fabric::Rdma, (keys != NO_KEYS).then(|| keys.into())))
            }
        }
    }

    fn groups(&mut self, value: &Value<'_>) -> Option<Groups> {
        let at = value.span().start;
        let Some(table) = value.get_ref().as_table() else {
            self.fault(at, "groups must be a table, [groups]");
            return None;
        };
        self.unknown(table, "groups.", &GROUP_KEYS);
        let [coordinators, everyone] = GROUP_KEYS.map(|key| {
            let name = format!("groups.{key}");
            let value = self.must(table, at, key, &name)?;
            let address = self.address(value, &name)?;
            if !address.is_multicast() {
                self.fault(
                    value.span().start,
                    format!("{name} is {address}, which is not a multicast address"),
                );
            }
            Some(address)
        });
        let groups = Groups { coordinators: coordinators?, everyone: everyone? };
        if groups.coordinators == groups.everyone {
            self.fault(at, "groups.coordinators and groups.everyone must be two groups");
        }
        Some(groups)
    }

    fn hosts(&mut self, value: &Value<'_>) -> Vec<Host> {
        let at = value.span().start;
        let Some(array) = value.get_ref().as_array().filter(|array| !array.is_empty()) else {
            self.fault(at, "hosts must be one table for each host, [[hosts]]");
            return Vec::new();
        };
        if array.len() > HOSTS_MAX {
            self.fault(at, format!("{} hosts, but a cluster can have {HOSTS_MAX}", array.len()));
        }
        let (mut addresses, mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let (mut on_paths, mut count_of_paths) = (BTreeSet::new(), None);
        let mut hosts = Vec::new();
        for entry in array.iter() {
            let at = entry.span().start;
            let Some(table) = entry.get_ref().as_table() else {
                self.fault(at, "a host must be a table, [[hosts]]");
                continue;
            };
            self.unknown(table, "hosts.", &HOST_KEYS);
            let address = self
                .must(table, at, "address", "hosts.address")
                .and_then(|value| self.address(value, "hosts.address"));
            if let Some(why) = address.and_then(unusable) {
                self.fault(at, format!("hosts.address: {why}"));
            }
            if let Some(address) = address
                && !addresses.insert(address)
            {
                self.fault(at, format!("{address} is the address of two hosts"));
            }
            let coordinator = table.get("coordinator").and_then(|value| {
                let number = self.number(value, "hosts.coordinator", 1, PROPOSERS_MAX as i64)?;
                if !numbers.insert(number) {
                    self.fault(value.span().start, format!("coordinator {number} is on two hosts"));
                }
                u16::try_from(number).ok()
            });
            let [agents, caches, apps] = ["agents", "caches", "apps"].map(|key| {
                table
                    .get(key)
                    .map_or_else(Vec::new, |value| self.names(value, &format!("hosts.{key}"), &mut names))
            });
            let processes = agents.len() + caches.len();
            if processes > PER_HOST_MAX {
                self.fault(
                    at,
                    format!("{processes} agents and caches on one host, which can have {PER_HOST_MAX}"),
                );
            }
            let supervisor = table.get("supervisor").map(|value| self.supervisor(value)).unwrap_or_default();
            let paths = table.get("paths").map_or_else(Vec::new, |value| self.paths(value, &mut on_paths));
            let first = *count_of_paths.get_or_insert(paths.len());
            if paths.len() != first {
                self.fault(
                    at,
                    format!(
                        "{} paths, and the first host has {first}; every host needs an address on each path",
                        paths.len()
                    ),
                );
            }
            let host = |address| Host { address, paths, coordinator, agents, caches, apps, supervisor };
            hosts.extend(address.map(host));
        }
        let count = i64::try_from(numbers.len()).unwrap_or(i64::MAX);
        if count == 0 {
            self.fault(at, "no host has a coordinator; give one to each of 3 or 5 hosts, numbered from 1");
        } else if !numbers.iter().copied().eq(1..=count) {
            let found: Vec<_> = numbers.iter().map(i64::to_string).collect();
            self.fault(
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
            self.fault(at, format!("hosts.address: {} {why}", host.address));
        }
        hosts
    }

    fn paths(&mut self, value: &Value<'_>, taken: &mut BTreeSet<IpAddr>) -> Vec<IpAddr> {
        let Some(array) = value.get_ref().as_array() else {
            let fault = "hosts.paths must be a list of addresses, [\"..\", \"..\"]";
            self.fault(value.span().start, fault);
            return Vec::new();
        };
        if array.is_empty() || array.len() > PATHS_MAX {
            let fault = format!("hosts.paths must be 1 to {PATHS_MAX} addresses, one for each path");
            self.fault(value.span().start, fault);
        }
        let mut paths = Vec::new();
        for value in array.iter() {
            let Some(address) = self.address(value, "hosts.paths") else { continue };
            if !taken.insert(address) {
                self.fault(value.span().start, format!("hosts.paths: {address} is there twice"));
            }
            paths.push(address);
        }
        paths
    }

    fn supervisor(&mut self, value: &Value<'_>) -> HostSupervisor {
        let Some(text) = self.text(value, "hosts.supervisor") else { return HostSupervisor::None };
        HostSupervisor::parse(&text).unwrap_or_else(|fault| {
            self.fault(value.span().start, format!("hosts.supervisor: {fault}"));
            HostSupervisor::None
        })
    }

    fn names(&mut self, value: &Value<'_>, key: &str, taken: &mut BTreeSet<String>) -> Vec<Name> {
        let Some(array) = value.get_ref().as_array() else {
            self.fault(value.span().start, format!("{key} must be a list of names, [\"..\", \"..\"]"));
            return Vec::new();
        };
        let mut names = Vec::new();
        for value in array.iter() {
            let Some(name) = self.name(value, key) else { continue };
            if !taken.insert(name.to_string()) {
                self.fault(value.span().start, format!("{name} is the name of two processes"));
            }
            names.push(name);
        }
        names
    }
}
