//! IP: two hosts on loopback addresses; the driven coordinator is on the first, all others are
//! processes on the second.

use crate::hosts::{Plan, play};
use crate::keys::Authority;
use crate::planted::{Broken, Defect, PRESENT, Sound};
use crate::suite::{self, Fault, Feature, ME, Post, Testbed, contract, contract_tests, of_processes};
use crate::support::{Child, Probe, Root, coordinator, kill, live};
use obol_fabric::host::{Cluster, Impairment, clock};
use obol_fabric::metrics::FabricCounter;
use obol_fabric::{Address, Endpoint, Fabric, Layout, Nanos, ViewId};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

contract!(Hosts);

#[test]
fn permissions_that_are_ignored_or_not_in_force_yet_are_caught() {
    let test = suite::no_revoked_write_is_executed_after_the_permits_completion::<Broken<Hosts>>;
    for defect in [Defect::IgnoresPermits, Defect::PermitsEarly] {
        PRESENT.set(Some(defect));
        let caught = catch_unwind(AssertUnwindSafe(|| suite::run(test))).is_err();
        PRESENT.set(None);
        assert!(caught, "{defect:?} is not caught");
    }
}

impl Sound for Hosts {
    const LATE_BY: u32 = 5_000;
    const HANGS_AFTER: Nanos = Self::HANG_TIMEOUT;
}

/// Where its processes start, if they have a role.
#[test]
fn child() {
    play();
}

pub(crate) struct Hosts {
    // Children end before their directories do.
    peers: HashMap<u32, Child>,
    _gateways: [Child; 2],
    me: Endpoint,
    probe: Probe,
    plan: Plan,
    there: Cluster,
    roots: [Root; 2],
}

impl Testbed for Hosts {
    const NAME: &'static str = "ip";
    const LACKS: &'static [(Feature, &'static str)] =
        &[(Feature::TearsOften, "a copy of a few words is seldom interrupted")];
    const HANG_TIMEOUT: Nanos = Nanos::from_secs(60);

    fn new() -> Option<Self> {
        let (plan, authority) = (Plan::new(), Authority::new());
        let roots = [Root::new(), Root::new()];
        let here = plan.host(&authority, &roots[0], 1);
        let there = plan.host(&authority, &roots[1], 2);
        let gateways = [plan.gateway(&here, &roots[0]), plan.gateway(&there, &roots[1])];
        let me = plan.open(&here, &roots[0], coordinator("me", ME));
        Some(Self {
            peers: HashMap::new(),
            _gateways: gateways,
            me,
            probe: Probe::default(),
            plan,
            there,
            roots,
        })
    }

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
        let child = self.plan.child(&self.roots[1], "scribble", "member", None);
        let at = live(&self.there, "member");
        self.peers.insert(at.region, child);
        at
    }
}
