//! A cluster of two hosts over IP, on loopback addresses of one machine: each has a directory and a
//! gateway of its own.

use crate::keys::Authority;
use crate::support::{self, Child, LIMITS, Root, live, name};
use obol_fabric::host::{Cluster, Origin};
use obol_fabric::{Endpoint, Nanos, Owner, Wait};
use obol_fabric_ip::pulse::Timing;
use obol_fabric_ip::{self as ip, Config, Notes, Outlets, PulseConfig, PulseReports, Question};
use obol_identity::Duty;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Loose: the tests only bound hangs.
const DETECTION: Nanos = Nanos::from_millis(1500);
pub(crate) const PORT: u16 = 7400;
/// The test where the processes of a cluster start.
const CHILD: &str = "contract::child";
pub(crate) const ALL: [Duty; 5] =
    [Duty::Gateway, Duty::Coordinator, Duty::Cache, Duty::Agent, Duty::Observer];

/// The parameters common to all processes of a test.
#[derive(Clone)]
pub(crate) struct Plan {
    /// The network of the test: two bytes of the process, one of the test.
    net: [u8; 3],
    pub(crate) nonce: u64,
    /// Whether there are pulses. Then connections are given up late.
    pulses: bool,
    /// Whether members reach each other by RDMA devices.
    devices: bool,
}

/// The file in a root that says that the gateway has heard pulses.
pub(crate) const HEARD: &str = "heard";
/// Loose as well.
const PULSE: Timing = Timing { period: Nanos::from_millis(10), timeout: Nanos::from_millis(800) };
const LATE: Nanos = Nanos::from_secs(60);

impl Plan {
    /// One of its own for each test.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        static NONCE: AtomicU64 = AtomicU64::new(1);
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let nonce = u64::from(std::process::id()) << 32 | NONCE.fetch_add(1, Ordering::Relaxed);
        Self { net: [high, low, NEXT.fetch_add(1, Ordering::Relaxed)], nonce, pulses: false, devices: false }
    }

    /// The same with pulses.
    pub(crate) fn pulsed() -> Self {
        Self { pulses: true, ..Self::new() }
    }

    /// The same for gateways beside RDMA devices.
    pub(crate) fn beside_devices(self) -> Self {
        Self { devices: true, ..self }
    }

    pub(crate) fn address(&self, host: u8) -> IpAddr {
        // Two hosts of each test, in the last byte.
        let [high, low, test] = self.net;
        Ipv4Addr::new(127, high, low, test * 2 + host - 1).into()
    }

    pub(crate) fn config(&self, root: &Path) -> Config {
        Config {
            gateways: (1..=2).map(|host| SocketAddr::new(self.address(host), PORT)).collect(),
            coordinators: vec![1, 2, 2],
            identity: root.join("keys"),
            detection: if self.pulses { LATE } else { DETECTION },
            raises_fences: false,
            keeps_mailbox: false,
            devices: self.devices,
            pulse: self.pulses.then(|| PulseConfig {
                timing: PULSE,
                paths: (1..=2).map(|host| vec![self.address(host)]).collect(),
                priority: None,
            }),
        }
    }

    /// A host's part of the cluster, created now, with keys for all that its processes do.
    pub(crate) fn host(&self, authority: &Authority, root: &Root, host: u8) -> Cluster {
        let origin = Origin { nonce: self.nonce, host };
        let cluster = Cluster::create_on(root, name("c"), LIMITS, origin).expect("made");
        authority.issue(&root.join("keys"), self.address(host), self.nonce, host, &ALL);
        cluster
    }

    pub(crate) fn open(&self, cluster: &Cluster, root: &Path, owner: Owner) -> Endpoint {
        obol_fabric_ip::open(cluster, owner, Wait::Block, &self.config(root)).expect("opened")
    }

    /// A process on a host, with a role.
    pub(crate) fn child(&self, root: &Path, role: &str, name: &str, region: Option<u32>) -> Child {
        let [high, low, test] = self.net;
        let [pulses, devices] = [self.pulses, self.devices].map(u8::from);
        let plan = format!("{high} {low} {test} {} {pulses} {devices}", self.nonce);
        Child::start_with(CHILD, root, role, name, region, &[("OBOL_TEST_IP", plan)])
    }

    /// The gateway of a host, once it listens.
    pub(crate) fn gateway(&self, cluster: &Cluster, root: &Path) -> Child {
        let child = self.child(root, "gateway", "gateway", None);
        live(cluster, "gateway");
        child
    }
}

/// What an annotation begins with.
pub(crate) const NOTE: &[u8] = b"note";

/// A question that the gateway's program does not answer.
pub(crate) const UNANSWERED: &[u8] = b"unanswered";

/// Plays a role over IP, if the environment has one.
pub(crate) fn play() {
    let Ok(plan) = std::env::var("OBOL_TEST_IP") else { return };
    let var = |key: &str| std::env::var(key).expect("set by the parent");
    let words: Vec<u64> = plan.split(' ').map(|word| word.parse().expect("a number")).collect();
    let [high, low, test, nonce, pulses, devices] = words[..] else { panic!("six words: {plan}") };
    let net = [high, low, test].map(|n| n as u8);
    let plan = Plan { net, nonce, pulses: pulses != 0, devices: devices != 0 };
    support::end_with_parent();
    let root = PathBuf::from(var("OBOL_TEST_ROOT"));
    let cluster = Cluster::open(&root, name("c")).expect("the parent made it");
    let (text, role) = (var("OBOL_TEST_NAME"), var("OBOL_TEST_ROLE"));
    if role == "gateway" {
        let reports = PulseReports::new().expect("made");
        let read = Arc::clone(&reports);
        let heard = root.join(HEARD);
        std::thread::spawn(move || {
            read.each(|report| {
                if report.peers.iter().all(|peer| peer.heard) {
                    std::fs::write(&heard, "").expect("written");
                }
            });
        });
        let (questions, asked) = std::sync::mpsc::sync_channel::<Question>(8);
        std::thread::spawn(move || {
            // All but this one are repeated as their answers.
            let mut kept = Vec::new();
            for question in asked {
                if question.bytes() == UNANSWERED {
                    kept.push(question);
                } else {
                    let bytes = question.bytes().to_vec();
                    question.answer(bytes);
                }
            }
        });
        let (sender, notes) = std::sync::mpsc::sync_channel::<(u8, Vec<u8>)>(8);
        std::thread::spawn(move || notes.into_iter().for_each(drop));
        let notes = Notes { sender, is_note: |bytes| bytes.starts_with(NOTE) };
        let outlets = Outlets {
            pulses: Some(reports),
            questions: Some(questions),
            notes: Some(notes),
            ..Outlets::default()
        };
        let stop = AtomicBool::new(false);
        ip::serve(&cluster, name(&text), &plan.config(&root), &stop, outlets, |_| {}, || {}).expect("served");
        return;
    }
    let owner = match var("OBOL_TEST_REGION").parse() {
        Ok(region) => support::coordinator(&text, region),
        Err(_) => support::process(&text),
    };
    let endpoint = plan.open(&cluster, &root, owner);
    support::act(endpoint, &cluster, &role, Nanos::from_millis(1));
}
