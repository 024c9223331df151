//! RDMA: two hosts on one device; the driven coordinator is on the first, all others are processes
//! on the second.

use crate::cluster::Plan;
use crate::suite::{Fault, Feature, ME, Post, Testbed, of_processes};
use crate::support::{Child, Probe, Root, coordinator, kill, live, until};
use obol_fabric::host::{Cluster, Impairment, clock};
use obol_fabric::metrics::FabricCounter;
use obol_fabric::verbs::Endpoint;
use obol_fabric::{Address, Drive, Fabric, Layout, Nanos, ViewId};
use std::collections::HashMap;

mod plain {
    use crate::suite::contract_tests;
    crate::suite::contract!(super::Rdma<false>);
}

mod authenticated {
    use crate::suite::contract_tests;
    crate::suite::contract!(super::Rdma<true>);
}

/// With keys of the hosts, or without.
struct Rdma<const KEYS: bool> {
    // Children end before their directories do.
    peers: HashMap<u32, Child>,
    me: Endpoint,
    probe: Probe,
    plan: Plan,
    there: Cluster,
    roots: [Root; 2],
}

impl<const KEYS: bool> Testbed for Rdma<KEYS> {
    const NAME: &'static str = "verbs";
    const LACKS: &'static [(Feature, &'static str)] = &[
        (Feature::Permits, "a log has no registration and connection of its own"),
        (Feature::Loss, "drills impair shared memory only; a network is to be broken by its own means"),
        (Feature::Cuts, "drills impair shared memory only; a network is to be broken by its own means"),
        (
            Feature::CountsLosses,
            "the sender of a datagram is not notified that the receiver had no room for it",
        ),
        (Feature::TearsOften, "a device copies a few words at once"),
        (Feature::ProvesDeaths, "of a process of another host, a successor is the proof"),
    ];
    const PATIENCE: Nanos = Nanos::from_secs(60);

    fn new() -> Option<Self> {
        let plan = if KEYS { Plan::with_keys()?.0 } else { Plan::new()? };
        let roots = [Root::new(), Root::new()];
        let (here, there) = (plan.host(&roots[0], 1), plan.host(&roots[1], 2));
        let me = plan.open(&here, coordinator("me", ME));
        Some(Self { peers: HashMap::new(), me, probe: Probe::default(), plan, there, roots })
    }

    // Impairments do this to shared memory; they must do nothing here.
    of_processes!(there);

    fn start(&mut self, region: u32) -> Address {
        let name = format!("peer{region}");
        let before = self.there.region_info(region).map_or(0, |info| info.generation);
        self.peers.insert(region, self.plan.child(&self.roots[1], "scribble", &name, Some(region)));
        loop {
            let at = live(&self.there, &name);
            if at.generation > before {
                return at;
            }
        }
    }

    fn start_member(&mut self) -> Address {
        // It says where it listens, and nobody else knows.
        let child = self.plan.child(&self.roots[1], "greet", "member", None);
        let hello =
            |probe: &Probe| probe.datagrams.iter().find(|(_, bytes)| bytes == b"hello").map(|(at, _)| *at);
        until(&mut self.me, &mut self.probe, |probe| hello(probe).is_some());
        let at = hello(&self.probe).expect("it has come");
        self.peers.insert(at.region, child);
        while !self.me.is_in_groups() {
            self.turn();
            let troubles: Vec<_> = self.me.group_errors().collect();
            assert!(troubles.is_empty(), "{troubles:?}");
        }
        at
    }
}
