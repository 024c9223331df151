//! RDMA: two hosts on one device; the driven coordinator is on the first, all others are processes
//! on the second.

use crate::cluster::Plan;
use crate::planted::{Broken, Defect, PRESENT, Sound};
use crate::suite::{self, Fault, Feature, ME, Post, Testbed, of_processes};
use crate::support::{Child, FLOOD_WORDS, Probe, Root, coordinator, kill, live, until};
use obol_fabric::host::{Cluster, Impairment, clock};
use obol_fabric::metrics::FabricCounter;
use obol_fabric::{Address, Endpoint, Fabric, Layout, Nanos, ViewId};
use obol_fabric_verbs::LinkStatus;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

mod plain {
    use crate::suite::contract_tests;
    crate::suite::contract!(super::Rdma<false>);
}

mod authenticated {
    use crate::suite::contract_tests;
    crate::suite::contract!(super::Rdma<true>);
}

#[test]
fn permissions_on_a_part_of_the_memory_concern_that_part_alone() {
    suite::run(suite::a_permission_concerns_its_part_of_the_memory_alone::<Rdma<false, true>>);
}

#[test]
fn permissions_that_are_ignored_or_not_in_force_yet_are_caught() {
    let test = suite::no_revoked_write_is_executed_after_the_permits_completion::<Broken<Rdma<false>>>;
    if crate::devices::nic().is_none() {
        return;
    }
    for defect in [Defect::IgnoresPermits, Defect::PermitsEarly] {
        PRESENT.set(Some(defect));
        let caught = catch_unwind(AssertUnwindSafe(|| suite::run(test))).is_err();
        PRESENT.set(None);
        assert!(caught, "{defect:?} is not caught");
    }
}

impl Sound for Rdma<false> {
    const LATE_BY: u32 = 5_000;
    const HANGS_AFTER: Nanos = Self::HANG_TIMEOUT;
}

/// What it lacks, the first unless the log is a part of the value areas.
const LACKS: &[(Feature, &str)] = &[
    (Feature::Parts, "a process names its log when it opens its endpoint"),
    (Feature::Loss, "drills impair shared memory only; a network is to be broken by its own means"),
    (Feature::Cuts, "drills impair shared memory only; a network is to be broken by its own means"),
    (Feature::CountsLosses, "the sender of a datagram is not notified that the receiver had no room for it"),
    (Feature::TearsOften, "a device copies a few words at once"),
    (Feature::ProvesDeaths, "of a process of another host, a successor is the proof"),
];

/// With keys of the hosts, or without. The log of the driven process, and with keys of the others, too,
/// is all of the value areas, or the part that the tests name.
struct Rdma<const KEYS: bool, const PART: bool = false> {
    // Children end before their directories do.
    peers: HashMap<u32, Child>,
    me: Endpoint,
    probe: Probe,
    plan: Plan,
    there: Cluster,
    roots: [Root; 2],
}

impl<const KEYS: bool, const PART: bool> Testbed for Rdma<KEYS, PART> {
    const NAME: &'static str = "verbs";
    const LACKS: &'static [(Feature, &'static str)] = if PART { LACKS.split_at(1).1 } else { LACKS };
    const HANG_TIMEOUT: Nanos = Nanos::from_secs(60);

    fn new() -> Option<Self> {
        let plan = if KEYS { Plan::with_keys()?.0 } else { Plan::new()? };
        let roots = [Root::new(), Root::new()];
        let (here, there) = (plan.host(&roots[0], 1), plan.host(&roots[1], 2));
        let (values, area) = (here.layout().values(), here.layout().value(0, 1));
        let log = if PART { area..area + FLOOD_WORDS as u32 * 8 } else { values };
        let plan = plan.with_log(Some(log));
        let me = plan.open(&here, coordinator("me", ME));
        let plan = if KEYS { plan } else { plan.with_log(None) };
        Some(Self { peers: HashMap::new(), me, probe: Probe::default(), plan, there, roots })
    }

    // Impairments do this to shared memory; they must do nothing here.
    of_processes!(there);

    fn is_connected(&self, to: u32) -> bool {
        let is_lacking = |link: &LinkStatus| link.region == to && link.log == Some(false);
        !self
            .me
            .transport::<obol_fabric_verbs::Rdma>()
            .expect("its transport")
            .link_status()
            .iter()
            .any(is_lacking)
    }

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
        while !self.me.transport::<obol_fabric_verbs::Rdma>().expect("its transport").is_in_groups() {
            self.turn();
            let troubles: Vec<_> = self
                .me
                .transport::<obol_fabric_verbs::Rdma>()
                .expect("its transport")
                .group_errors()
                .collect();
            assert!(troubles.is_empty(), "{troubles:?}");
        }
        at
    }
}
