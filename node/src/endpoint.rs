//! A process's endpoint in a cluster, over any fabric: the only place that chooses the fabric.

use crate::keys::{self, KeysError};
use crate::network::{Fabric, Network};
use crate::service::ServiceManager;
use crate::voted::Voted;
use crate::{Deployment, Site};
use obol_fabric::host::sched::pin_to_core;
use obol_fabric::host::{Cluster, HostError, NameClaim, clock};
use obol_fabric::remote::RegionCopy;
use obol_fabric::version::Advice;
use obol_fabric::{Address, Endpoint, Group, Instant, LinkError, Name, Nanos, Owner, Release, ViewId, Wait};
use obol_fabric_ip::pulse::Timing;
use obol_fabric_ip::{self as ip, GatewayError, Outlets};
use obol_fabric_verbs::device::DeviceSelector;
use obol_fabric_verbs::{self as verbs, OpenError};
use obol_membership::{Kind, Role, View};
use obol_profiles::{Profile, Pulse, Rdma};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// How long a leaving process waits for the view without it; then it exits, and counts as failed.
pub const LEAVE_TIMEOUT: Nanos = Nanos::from_secs(1);

/// No member's kind: observers ignore the region.
const NO_KIND: u32 = 0;

/// Why a process has no endpoint in its cluster.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// Its memory, or its device, is not available.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Its memory, or the keys of its host, are not available.
    #[error(transparent)]
    Ip(#[from] ip::OpenError),
    /// The gateway cannot start.
    #[error(transparent)]
    Gateway(#[from] GatewayError),
    /// The keys of a trusted network cannot be made.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// The cluster has no gateways.
    #[error("cluster {0} is of one host, which needs no gateway: nobody is elsewhere")]
    NoGateway(Name),
    /// It cannot be pinned to the core of the profile.
    #[error(
        "rdma.core is {core}, but this thread cannot be pinned to it: {error}; `nproc --all` shows how \
         many there are"
    )]
    Core {
        core: u32,
        /// The kernel's error.
        error: std::io::Error,
    },
    /// The coordinator has lost its votes.
    #[error(
        "coordinator {number} has voted on this host before and its memory is gone, as after a boot. With an empty \
         memory it could vote twice, so it does not start; the others continue while a majority lives. Start one of \
         another number here, and let it take this one's place (`obol coordinator replace`); if a majority is lost: \
         `obol coordinator recover`"
    )]
    MemoryLost {
        /// The coordinator.
        number: u16,
    },
    /// An operator has retired the coordinator, and the cluster continued without it.
    #[error(
        "coordinator {number} was given up in a recovery, and the cluster has continued without it (view \
         {view} says so). What its memory holds is of before, so it votes no more and does not start. Start one of another \
         number here, and let it decide: `obol coordinator add`"
    )]
    Retired {
        /// The coordinator.
        number: u16,
        /// The newest view known on this host.
        view: ViewId,
    },
    /// The cluster has been upgraded, or this program has skipped a release.
    #[error("the cluster does not admit {name}: {advice}")]
    Release {
        /// The process.
        name: Name,
        /// Both releases, and what to do.
        advice: Advice,
    },
    /// The record that the coordinator votes could not be written to persistent storage.
    #[error("{at}: cannot note that a coordinator votes on this host: {error}")]
    Unnoted { at: PathBuf, error: std::io::Error },
    /// The view of an operator's recovery cannot be read, and starting from an older one is not
    /// safe.
    #[error("{at}: the view that was recovered {why}; run `obol coordinator recover` again")]
    Recovered { at: PathBuf, why: String },
}

/// What other members may WRITE of a process's value areas.
enum Written {
    Nothing,
    Mailbox,
    /// All, with a part for which the process gives permissions.
    MailboxWithLog(Range<u32>),
}

impl From<HostError> for EndpointError {
    fn from(error: HostError) -> Self {
        Self::Open(error.into())
    }
}

impl Site {
    /// Opens the endpoint of a coordinator, by its number.
    pub fn coordinator(&self, number: u16) -> Result<Endpoint, EndpointError> {
        let (name, address) = Deployment::coordinator(number);
        let claim = NameClaim::take(&self.cluster, name)?;
        self.require_votes(number, &*self.newest()?)?;
        if let Some(network) = &self.deployment.network
            && let Some(state) = &network.state
        {
            let voted = Voted::new(state, self.cluster.name(), network.id, number);
            voted.note().map_err(|error| EndpointError::Unnoted { at: voted.path().to_owned(), error })?;
        }
        let groups = Group::Coordinators.bit() | Group::Everyone.bit();
        let kind = Kind::Coordinator as u32;
        let owner = Owner { kind, name, region: Some(address.region), groups };
        self.open_as(claim, owner, Written::Nothing)
    }

    /// Refuses a coordinator that may not vote on this host: its memory is lost, it was given up, or this
    /// program does not work with the release that the cluster speaks. `newest` is the newest view.
    pub fn require_votes(&self, number: u16, newest: &View) -> Result<(), EndpointError> {
        let network = self.deployment.network.as_ref();
        if network.is_some_and(|network| network.memory_lost.contains(&number)) {
            return Err(EndpointError::MemoryLost { number });
        }
        let region = u32::from(number);
        if self.cluster.has_lost_memory(region) {
            let path = self.cluster.region_path(region);
            return Err(HostError::MemoryLost { path, number: region }.into());
        }
        if newest.retired.contains(number) {
            return Err(EndpointError::Retired { number, view: newest.id });
        }
        // Coordinators of the first view do not ask to be admitted.
        let (name, _) = Deployment::coordinator(number);
        match newest.release().filter(|spoken| !spoken.works_with(Release::own())) {
            Some(spoken) => Err(EndpointError::Release { name, advice: Release::own().advice(spoken) }),
            None => Ok(()),
        }
    }

    /// Opens the endpoint of an agent, a lease cache or an embedded app.
    pub fn member(&self, kind: Kind, name: Name) -> Result<Endpoint, EndpointError> {
        self.open_member(kind, name, Written::Nothing)
    }

    /// As [`Site::member`]; other members may WRITE the value areas of its region, over an RDMA
    /// device as over shared memory.
    pub fn mailbox(&self, kind: Kind, name: Name) -> Result<Endpoint, EndpointError> {
        self.open_member(kind, name, Written::Mailbox)
    }

    /// As [`Site::mailbox`]; this process changes who may WRITE into a part of the value areas
    /// ([`obol_fabric::Fabric::permit`]), which over RDMA has to be known in advance.
    pub fn log(&self, kind: Kind, name: Name, part: Range<u32>) -> Result<Endpoint, EndpointError> {
        self.open_member(kind, name, Written::MailboxWithLog(part))
    }

    /// Opens the endpoint of a process that only sends to the cluster: no member, and of no
    /// member's kind.
    pub fn operator(&self, name: Name) -> Result<Endpoint, EndpointError> {
        self.place(Owner { kind: NO_KIND, name, region: None, groups: 0 }, Written::Nothing)
    }

    /// Opens the endpoint of a drill's runner or fault agent: no member, and of this kind. It reaches
    /// other hosts by their gateways, whatever the members' fabric.
    pub fn drill(&self, kind: u32, name: Name, groups: u32) -> Result<Endpoint, EndpointError> {
        let owner = Owner { kind, name, region: None, groups };
        match &self.deployment.network {
            Some(network) if network.has_gateways() => {
                self.by_gateways(network, owner, &Written::Nothing, Wait::Block)
            }
            _ => Ok(Endpoint::open(&self.cluster, owner, Wait::Block)?),
        }
    }

    fn by_gateways(
        &self,
        network: &Network,
        owner: Owner,
        written: &Written,
        wait: Wait,
    ) -> Result<Endpoint, EndpointError> {
        let config = ip::Config {
            raises_fences: owner.kind == Kind::LeaseCache as u32,
            keeps_mailbox: !matches!(written, Written::Nothing),
            ..ip_config(network, &self.cluster, &self.deployment.profile)
        };
        Ok(ip::open(&self.cluster, owner, wait, &config)?)
    }

    fn open_member(&self, kind: Kind, name: Name, written: Written) -> Result<Endpoint, EndpointError> {
        self.deployment.check_name(kind, name)?;
        let claim = NameClaim::take(&self.cluster, name)?;
        let groups = Group::Everyone.bit();
        self.open_as(claim, Owner { kind: kind as u32, name, region: None, groups }, written)
    }

    fn open_as(&self, claim: NameClaim, owner: Owner, written: Written) -> Result<Endpoint, EndpointError> {
        if self.deployment.network.is_some()
            && let Some(core) = self.deployment.profile.rdma.core
        {
            pin_to_core(core).map_err(|error| EndpointError::Core { core, error })?;
        }
        Ok(self.place(owner, written)?.with_claim(claim))
    }

    fn place(&self, owner: Owner, written: Written) -> Result<Endpoint, EndpointError> {
        let profile = &self.deployment.profile;
        let wait = profile.wait;
        let mut endpoint = match &self.deployment.network {
            None => Endpoint::open(&self.cluster, owner, wait)?,
            Some(network @ Network { fabric: Fabric::Ip { .. }, .. }) => {
                self.by_gateways(network, owner, &written, wait)?
            }
            Some(network) => {
                let keeps_mailbox = !matches!(written, Written::Nothing);
                let log = match written {
                    Written::MailboxWithLog(part) => Some(part),
                    Written::Nothing | Written::Mailbox => None,
                };
                let config = verbs::Config { keeps_mailbox, log, ..config(network, &profile.rdma, &owner) };
                verbs::open(&self.cluster, owner, wait, &config)?
            }
        };
        endpoint.beat_every(profile.timing.heartbeat_every);
        Ok(endpoint)
    }
}

impl Deployment {
    /// Opens the network for reading the regions of other hosts; `None` if the cluster has none. A host
    /// without a device reads by the gateways of the others.
    pub fn reader(&self, cluster: &Cluster) -> Result<Option<RegionReader>, OpenError> {
        let Some(network) = &self.network else { return Ok(None) };
        let gateways = self.gateways(cluster).map(|observer| RegionReader::Ip(Box::new(observer)));
        if !network.has_devices() {
            return Ok(gateways);
        }
        let anonymous = Owner { kind: Kind::App as u32, name: Name::default(), region: None, groups: 0 };
        let config = config(network, &self.profile.rdma, &anonymous);
        match verbs::Observer::open(&config, cluster.nonce(), cluster.layout()) {
            Err(OpenError::Verbs(error)) if error.is_absence() && gateways.is_some() => Ok(gateways),
            opened => Ok(Some(RegionReader::Rdma(Box::new(opened?)))),
        }
    }

    /// What asks the gateways of the other hosts; `None` if the cluster has none. Nothing is connected
    /// yet.
    pub fn gateways(&self, cluster: &Cluster) -> Option<ip::Observer> {
        let network = self.network.as_ref().filter(|network| network.has_gateways())?;
        let config = ip_config(network, cluster, &self.profile);
        Some(ip::Observer::new(&config, cluster.host(), cluster.nonce(), cluster.layout()))
    }
}

/// Reads the regions of other hosts, over any network.
pub enum RegionReader {
    /// By an RDMA device.
    Rdma(Box<verbs::Observer>),
    /// By the gateways.
    Ip(Box<ip::Observer>),
}

impl RegionReader {
    /// Whether the regions of a host answer together or not at all, because its gateway reads them. A
    /// device reaches each by a link of its own.
    pub const fn reads_by_host(&self) -> bool {
        matches!(self, Self::Ip(_))
    }

    /// Reads a region once. Blocks until its host has answered, or is given up.
    pub fn read(&mut self, at: Address) -> Result<RegionCopy, LinkError> {
        match self {
            Self::Rdma(observer) => observer.read(at),
            Self::Ip(observer) => observer.read(at),
        }
    }

    /// Reads a part of the space of a region's values once, in ascending order, after the region.
    /// Blocks as [`RegionReader::read`] does.
    pub fn read_values(&mut self, at: Address, part: Range<u32>) -> Result<Vec<u8>, LinkError> {
        match self {
            Self::Rdma(observer) => observer.read_values(at, part),
            Self::Ip(observer) => observer.read_values(at, part),
        }
    }
}

impl Site {
    /// Runs the gateway of this host until `stop` is set. `ready` is called with its address.
    pub fn gateway(
        &self,
        name: Name,
        stop: &AtomicBool,
        outlets: Outlets,
        manager: &mut ServiceManager,
        ready: impl FnOnce(SocketAddr),
    ) -> Result<(), EndpointError> {
        let network = self.deployment.network.as_ref().filter(|network| network.has_gateways());
        let Some(network) = network else { return Err(EndpointError::NoGateway(self.cluster.name())) };
        let _claim = NameClaim::take(&self.cluster, name)?;
        // Memory that an earlier release has prepared lacks them.
        keys::trust(network, self.cluster.dir())?;
        let config = ip_config(network, &self.cluster, &self.deployment.profile);
        let alive = || manager.turned(|| true);
        let ended = ip::serve(&self.cluster, name, &config, stop, outlets, ready, alive);
        manager.stopping();
        Ok(ended?)
    }
}

/// The number of the host of each coordinator, 0 for none.
fn hosts_of_coordinators(network: &Network) -> Vec<u8> {
    let number = |number: u32| network.number_of(number).unwrap_or_default();
    (1..).take(network.coordinators.len()).map(number).collect()
}

/// The configuration of gateways and links, from the network and the profile.
fn ip_config(network: &Network, cluster: &Cluster, profile: &Profile) -> ip::Config {
    ip::Config {
        gateways: network.gateways(),
        coordinators: hosts_of_coordinators(network),
        identity: network.gateway_keys(cluster.dir()).to_owned(),
        detection: profile.ip.detection,
        raises_fences: false,
        keeps_mailbox: false,
        devices: network.has_devices(),
        pulse: profile.pulse.enabled.then(|| pulse_config(network, &profile.pulse)),
    }
}

/// How gateways send pulses. Hosts without named paths have one, by their addresses.
fn pulse_config(network: &Network, pulse: &Pulse) -> ip::PulseConfig {
    let used = |paths: &Vec<IpAddr>| paths.iter().copied().take(pulse.paths as usize).collect();
    let paths = if network.paths.is_empty() {
        network.hosts.iter().map(|host| vec![*host]).collect()
    } else {
        network.paths.iter().map(used).collect()
    };
    let timing = Timing { period: pulse.period, timeout: pulse.timeout };
    ip::PulseConfig { timing, paths, priority: pulse.priority }
}

/// The device's configuration, from the network and the profile.
fn config(network: &Network, rdma: &Rdma, owner: &Owner) -> verbs::Config {
    let byte = |n: u32| u8::try_from(n).unwrap_or(u8::MAX);
    let place = |number: u32| network.coordinators.get((number as usize).wrapping_sub(1)).copied();
    verbs::Config {
        coordinators: network.coordinators.clone(),
        listen: owner.region.and_then(place).unwrap_or_else(|| SocketAddr::new(network.address, 0)),
        groups: [network.groups.coordinators, network.groups.everyone],
        device: DeviceSelector {
            device: rdma.device.clone(),
            port: rdma.port.map(byte),
            gid_index: rdma.gid_index.map(byte),
            address: Some(network.address),
        },
        traffic_class: byte(rdma.traffic_class),
        pages: rdma.pages,
        detection: rdma.detection,
        raises_fences: owner.kind == Kind::LeaseCache as u32,
        keeps_mailbox: false,
        log: None,
        keys: network.rdma_keys.clone().map(|directory| verbs::HostKeys {
            directory,
            coordinators: hosts_of_coordinators(network),
            hosts: network.hosts.clone(),
        }),
    }
}

/// Drives a machine until `stop` is set; then it leaves the cluster. Ends by itself if the cluster has
/// retired it, or does not admit its release.
pub fn serve<R: Role>(endpoint: &mut Endpoint, machine: &mut R, stop: &AtomicBool) {
    serve_under(&mut ServiceManager::none(), endpoint, machine, stop);
}

/// The same, reporting to the service manager that started this process.
pub fn serve_under<R: Role>(
    manager: &mut ServiceManager,
    endpoint: &mut Endpoint,
    machine: &mut R,
    stop: &AtomicBool,
) {
    let done = AtomicBool::new(false);
    let mut end = Instant::NEVER;
    endpoint.run(machine, &done, |machine, endpoint| {
        manager.turned(|| machine.is_ready());
        if machine.is_retired() || machine.refused_by().is_some() {
            done.store(true, Ordering::Relaxed);
            return;
        }
        if !stop.load(Ordering::Relaxed) {
            return;
        }
        if end == Instant::NEVER {
            end = clock::now() + LEAVE_TIMEOUT;
            manager.stopping();
            machine.leave(clock::now(), endpoint);
        }
        done.store(machine.has_left() || end <= clock::now(), Ordering::Relaxed);
    });
}

impl EndpointError {
    /// Why a process of this name that the cluster did not admit has ended; nothing if it was
    /// admitted.
    pub fn refused(name: Name, machine: &impl Role) -> Result<(), Self> {
        let refused = |spoken| Self::Release { name, advice: Release::own().advice(spoken) };
        machine.refused_by().map_or(Ok(()), |spoken| Err(refused(spoken)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_a_coordinator_from_voting_is_found_without_starting_it() {
        let root = tempfile::tempdir().expect("made");
        let name = Name::new("c").expect("a name");
        let deployment = Deployment::new(3, 1, 0, Profile::default()).expect("it fits");
        let site = Site::create(&root.path().join("root"), name, deployment).expect("made");
        let votes = |number| site.require_votes(number, &site.genesis);
        assert!(votes(2).is_ok(), "one that has never run begins with empty memory");
        drop(site.coordinator(2).expect("it starts"));
        assert!(votes(2).is_ok(), "its memory is there");
        std::fs::remove_file(site.cluster.region_path(2)).expect("it is there");
        let refused = votes(2).expect_err("its memory is gone").to_string();
        assert!(refused.contains("obol coordinator replace 2"), "{refused}");
        let started = site.coordinator(2).map(drop).expect_err("as a start finds").to_string();
        assert_eq!(started, refused);
        assert!(votes(1).is_ok(), "the others may");
    }
}
