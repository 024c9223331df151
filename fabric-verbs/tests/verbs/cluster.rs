//! A cluster of several hosts on one: each host has a directory of its own, all share the device.

use crate::keys::Authority;
use crate::support::{self, Child, LIMITS, Root, name};
use obol_fabric::host::{Cluster, Origin};
use obol_fabric::{Endpoint, Limits, Nanos, Owner, Wait};
use obol_fabric_verbs::arena::HugePages;
use obol_fabric_verbs::device::DeviceSelector;
use obol_fabric_verbs::{Config, HostKeys};
use obol_identity::Duty;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

/// Loose: an emulated device on a busy host answers late, and the tests only bound hangs.
const DETECTION: Nanos = Nanos::from_millis(400);

/// The parameters common to all processes of a test.
#[derive(Clone)]
pub(crate) struct Plan {
    ip: IpAddr,
    first_port: u16,
    pub(crate) nonce: u64,
    /// The directory of all hosts' keys; `None` in a cluster without.
    pub(crate) keys: Option<PathBuf>,
    /// The log of coordinators, if they keep one.
    log: Option<Range<u32>>,
    _keys: Option<Arc<Root>>,
}

/// Where coordinators 1 to 3 are.
const HOST_OF_COORDINATOR: [u8; 3] = [1, 2, 2];
/// What processes of all hosts may be.
pub(crate) const DUTIES: [Duty; 4] = [Duty::Coordinator, Duty::Cache, Duty::Agent, Duty::Observer];

impl Plan {
    /// One of its own for each test; `None` where there is no device and none is required.
    pub(crate) fn new() -> Option<Self> {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        static NONCE: AtomicU64 = AtomicU64::new(1);
        let nic = crate::devices::nic()?;
        let ip = nic.choice().address.expect("peers reach the port by an address");
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let first_port = 20_000 + (std::process::id() % 2_000) as u16 * 8 + n * 4 % 16_000;
        let nonce = u64::from(std::process::id()) << 32 | NONCE.fetch_add(1, Ordering::Relaxed);
        Some(Self { ip, first_port, nonce, keys: None, log: None, _keys: None })
    }

    /// The same with keys for hosts 1 to 4, and their authority.
    pub(crate) fn with_keys() -> Option<(Self, Authority)> {
        let plan = Self::new()?;
        let (root, authority) = (Arc::new(Root::new()), Authority::new());
        let plan = Self { keys: Some(root.to_path_buf()), _keys: Some(root), ..plan };
        (1..=4).for_each(|host| authority.issue(&plan.keys_of(host), plan.ip, plan.nonce, host, &DUTIES));
        Some((plan, authority))
    }

    /// The same where coordinators keep this log, or none.
    pub(crate) fn with_log(self, log: Option<Range<u32>>) -> Self {
        Self { log, ..self }
    }

    /// Where a host has its keys.
    pub(crate) fn keys_of(&self, host: u8) -> PathBuf {
        self.keys.as_ref().expect("a cluster with keys").join(host.to_string())
    }

    pub(crate) const fn ip(&self) -> IpAddr {
        self.ip
    }

    /// As [`Plan::config`], with the keys of a host if there are any.
    pub(crate) fn config_of(&self, host: u8, region: Option<u32>) -> Config {
        let keys = self.keys.as_ref().map(|_| HostKeys {
            directory: self.keys_of(host),
            coordinators: HOST_OF_COORDINATOR.to_vec(),
            hosts: vec![self.ip; 4],
        });
        Config { keys, ..self.config(region) }
    }

    pub(crate) fn config(&self, region: Option<u32>) -> Config {
        let place = |n: u16| SocketAddr::new(self.ip, self.first_port + n);
        let coordinators: Vec<SocketAddr> = (1..=3).map(place).collect();
        let listen = match region {
            Some(number) => coordinators[number as usize - 1],
            None => SocketAddr::new(self.ip, 0),
        };
        let group = |n: u8| IpAddr::from([239, 1, 7, n]);
        Config {
            coordinators,
            listen,
            groups: [group(1), group(2)],
            device: DeviceSelector::default(),
            traffic_class: 0,
            pages: HugePages::Plain,
            detection: DETECTION,
            raises_fences: false,
            keeps_mailbox: false,
            log: self.log.clone().filter(|_| region.is_some()),
            keys: None,
        }
    }

    /// A host's part of the cluster, created now.
    pub(crate) fn host(&self, root: &Root, host: u8) -> Cluster {
        // The payload of one packet with Ethernet's usual MTU.
        let limits = Limits { datagram_bytes: 512, ..LIMITS };
        Cluster::create_on(root, name("c"), limits, Origin { nonce: self.nonce, host }).expect("made")
    }

    pub(crate) fn open(&self, cluster: &Cluster, owner: Owner) -> Endpoint {
        obol_fabric_verbs::open(cluster, owner, Wait::Block, &self.config_of(cluster.host(), owner.region))
            .expect("opened")
    }

    /// A process on a host, with a role.
    pub(crate) fn child(&self, root: &Path, role: &str, name: &str, region: Option<u32>) -> Child {
        let plan = format!("{} {} {}", self.ip, self.first_port, self.nonce);
        let keys = self.keys.as_deref().unwrap_or(Path::new(""));
        let log = self.log.clone();
        Child::start_with(
            "links::child",
            root,
            role,
            name,
            region,
            &[
                ("OBOL_TEST_VERBS", plan),
                ("OBOL_TEST_KEYS", keys.display().to_string()),
                (
                    "OBOL_TEST_LOG",
                    log.map(|Range { start, end }| format!("{start} {end}")).unwrap_or_default(),
                ),
            ],
        )
    }
}

/// Plays a role over RDMA, if the environment has one.
pub(crate) fn play() {
    let Ok(plan) = std::env::var("OBOL_TEST_VERBS") else { return };
    let var = |key: &str| std::env::var(key).expect("set by the parent");
    let words: Vec<&str> = plan.split(' ').collect();
    let [ip, port, nonce] = words[..] else { panic!("three words: {plan}") };
    let (log, number) = (var("OBOL_TEST_LOG"), |text: &str| text.parse().expect("a number"));
    let plan = Plan {
        ip: ip.parse().expect("an address"),
        first_port: port.parse().expect("a port"),
        nonce: nonce.parse().expect("a number"),
        keys: Some(PathBuf::from(var("OBOL_TEST_KEYS"))).filter(|keys| *keys != Path::new("")),
        log: log.split_once(' ').map(|(start, end)| number(start)..number(end)),
        _keys: None,
    };
    support::end_with_parent();
    let root = std::path::PathBuf::from(var("OBOL_TEST_ROOT"));
    let cluster = Cluster::open(&root, name("c")).expect("the parent made it");
    let text = var("OBOL_TEST_NAME");
    let owner = match var("OBOL_TEST_REGION").parse() {
        Ok(region) => support::coordinator(&text, region),
        Err(_) => support::process(&text),
    };
    let endpoint = plan.open(&cluster, owner);
    let role = var("OBOL_TEST_ROLE");
    let tick_every = match &role[..] {
        "greet" => Nanos::from_millis(20),
        "scribble" => Nanos::from_millis(5),
        _ => Nanos::MAX,
    };
    support::act(endpoint, &cluster, &role, tick_every);
}
