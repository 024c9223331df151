//! A clock beyond the bound of the profile is found by its peers, and one within it is not.

use crate::disaster::config;
use obol_cluster_sim::{Cluster, Process};
use obol_fabric::{Instant, Name};
use obol_fabric_sim::{Clock, Network};
use obol_membership::metrics::Counter;
use obol_membership::{Kind, Member};

const COORDINATORS: u32 = 3;

/// The number of alarms at each of three coordinators and three agents, whose clocks are off by
/// these ppm, after a simulated second.
fn alarms(off_ppm: [i64; 6]) -> [u64; 6] {
    let mut cluster = Cluster::<Process<Member>>::new(config(), COORDINATORS, Network::default(), 7);
    for (n, off) in (0_u32..).zip(off_ppm) {
        let start = cluster.start(n.into());
        let process = if n < COORDINATORS {
            Process::Coordinator(Box::new(start.coordinator(n as u16 + 1)))
        } else {
            let name = Name::new(&format!("node-{n}")).expect("a name");
            Process::Member(Box::new(start.member(Kind::Agent, name)))
        };
        cluster.add_process(process, Clock::new(Instant(1_000_000), off * 1_000));
    }
    cluster.run_for(1_000_000_000);
    core::array::from_fn(|n| cluster.counter(n as u32, Counter::DriftAlarms))
}

#[test]
fn clocks_within_the_bound_raise_no_alarm() {
    let bound = i64::from(config().timing.drift_ppm);
    assert_eq!(alarms([bound, -bound, 0, bound, -bound, bound / 2]), [0; 6]);
}

#[test]
fn a_clock_beyond_the_bound_is_found_by_its_peers() {
    for off in [-5, 5] {
        let found = alarms([0, 0, 0, 0, off * i64::from(config().timing.drift_ppm), 0]);
        assert!(found.iter().all(|n| *n > 0), "{off}: {found:?}");
    }
}
