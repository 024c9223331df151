//! A cluster of several hosts on one: each host has a directory of its own, all share the device.

use crate::support::{self, Child, LIMITS, Root, name};
use obol_fabric::host::{Cluster, Origin};
use obol_fabric::verbs::arena::HugePages;
use obol_fabric::verbs::device::DeviceSelector;
use obol_fabric::verbs::{Config, Endpoint};
use obol_fabric::{Limits, Nanos, Owner, Wait};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

/// Loose: an emulated device on a busy host answers late, and the tests only bound hangs.
const DETECTION: Nanos = Nanos::from_millis(400);

/// The parameters common to all processes of a test.
#[derive(Clone)]
pub(crate) struct Plan {
    ip: IpAddr,
    first_port: u16,
    pub(crate) nonce: u64,
}

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
        Some(Self { ip, first_port, nonce })
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
        }
    }

    /// A host's part of the cluster, created now.
    pub(crate) fn host(&self, root: &Root, host: u8) -> Cluster {
        // The payload of one packet with Ethernet's usual MTU.
        let limits = Limits { datagram_bytes: 512, ..LIMITS };
        Cluster::create_on(root, name("c"), limits, Origin { nonce: self.nonce, host }).expect("made")
    }

    pub(crate) fn open(&self, cluster: &Cluster, owner: Owner) -> Endpoint {
        Endpoint::open(cluster, owner, Wait::Block, &self.config(owner.region)).expect("opened")
    }

    /// A process on a host, with a role.
    pub(crate) fn child(&self, root: &Path, role: &str, name: &str, region: Option<u32>) -> Child {
        let plan = format!("{} {} {}", self.ip, self.first_port, self.nonce);
        Child::start_with("links::child", root, role, name, region, &[("OBOL_TEST_VERBS", plan)])
    }
}

/// Plays a role over RDMA, if the environment has one.
pub(crate) fn play() {
    let Ok(plan) = std::env::var("OBOL_TEST_VERBS") else { return };
    let var = |key: &str| std::env::var(key).expect("set by the parent");
    let words: Vec<&str> = plan.split(' ').collect();
    let [ip, port, nonce] = words[..] else { panic!("three words: {plan}") };
    let plan = Plan {
        ip: ip.parse().expect("an address"),
        first_port: port.parse().expect("a port"),
        nonce: nonce.parse().expect("a number"),
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
