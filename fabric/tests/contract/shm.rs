//! Shared memory: peers are processes of this host, which are killed and stopped by signals.

use crate::suite::{Fault, Feature, ME, Post, Testbed, contract, contract_tests, of_processes};
use crate::support::{Child, LIMITS, Probe, Root, coordinator, kill, live, name};
use obol_fabric::host::{Cluster, Impairment, clock};
use obol_fabric::metrics::FabricCounter;
use obol_fabric::shm::Endpoint;
use obol_fabric::{Address, Drive, Fabric, Layout, Nanos, ViewId, Wait};
use std::collections::HashMap;

contract!(SharedMemory);

struct SharedMemory {
    // Children end before their directory does.
    peers: HashMap<u32, Child>,
    me: Endpoint,
    probe: Probe,
    cluster: Cluster,
    root: Root,
}

impl SharedMemory {
    fn start_as(&mut self, who: &str, region: Option<u32>) -> (Child, Address) {
        let before =
            region.and_then(|region| self.cluster.region_info(region)).map_or(0, |info| info.generation);
        let child = Child::start(&self.root, "scribble", who, region);
        loop {
            let at = live(&self.cluster, who);
            if region.is_none() || at.generation > before {
                return (child, at);
            }
        }
    }
}

impl Testbed for SharedMemory {
    const NAME: &'static str = "shm";
    const LACKS: &'static [(Feature, &'static str)] = &[
        (Feature::Rights, "whoever maps a region may write all of it"),
        (Feature::TearsOften, "a copy of a few words is seldom interrupted"),
    ];
    const PATIENCE: Nanos = Nanos::from_secs(60);

    fn new() -> Option<Self> {
        let root = Root::new();
        let cluster = Cluster::create(&root, name("c"), LIMITS).expect("made");
        let me = Endpoint::open(&cluster, coordinator("me", ME), Wait::Block).expect("opened");
        Some(Self { peers: HashMap::new(), me, probe: Probe::default(), cluster, root })
    }

    of_processes!(cluster);

    fn start(&mut self, region: u32) -> Address {
        let (child, at) = self.start_as(&format!("peer{region}"), Some(region));
        self.peers.insert(region, child);
        at
    }

    fn start_member(&mut self) -> Address {
        let (child, at) = self.start_as("member", None);
        self.peers.insert(at.region, child);
        at
    }
}
