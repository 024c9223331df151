//! A clock beyond the bound of the profile is found by its peers, and one within it is not.

use crate::instant::{LIMITS, Role, TIMING};
use obol_fabric::{Address, Event, Fabric, Group, Instant, Layout, Machine, Name};
use obol_fabric_sim::{Clock, Network, World};
use obol_membership::metrics::Counter;
use obol_membership::{ActiveMutant, Config, Kind, Start, View};
use std::sync::Arc;

struct Either(Role);

impl Machine for Either {
    fn start<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        match &mut self.0 {
            Role::Coordinator(c) => c.start(now, fabric),
            Role::Member(m) => m.start(now, fabric),
        }
    }
    fn handle<F: Fabric>(&mut self, now: Instant, event: Event<'_>, fabric: &mut F) {
        match &mut self.0 {
            Role::Coordinator(c) => c.handle(now, event, fabric),
            Role::Member(m) => m.handle(now, event, fabric),
        }
    }
    fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        match &mut self.0 {
            Role::Coordinator(c) => c.tick(now, fabric),
            Role::Member(m) => m.tick(now, fabric),
        }
    }
    fn deadline(&self) -> Instant {
        match &self.0 {
            Role::Coordinator(c) => c.deadline(),
            Role::Member(m) => m.deadline(),
        }
    }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// The number of alarms at each of three coordinators and three agents, whose clocks are off by
/// these ppm, after a simulated second.
fn alarms(off_ppm: [i64; 6]) -> [u64; 6] {
    let layout = Layout::new(LIMITS).expect("in bounds");
    let config =
        Config { release: obol_fabric::Release::THIS, timing: TIMING, layout, mutant: ActiveMutant::NONE };
    let seat = |n: u32| (name(&format!("coord-{}", n + 1)), Address { generation: 1, ..Address::region(n) });
    let seats: Vec<(Name, Address)> = (0..3).map(seat).collect();
    let genesis = Arc::new(View::genesis(&seats, TIMING.lease, TIMING.cache_lease));
    let mut world = World::new(layout, Network::default(), 7);
    for (n, off) in (0_u32..).zip(off_ppm) {
        let start = Start::new(config, &genesis, [], u64::from(n));
        let role = if n < 3 {
            Role::Coordinator(Box::new(start.coordinator(n as u16 + 1)))
        } else {
            Role::Member(Box::new(start.member(Kind::Agent, name(&format!("node-{n}")))))
        };
        let groups = Group::Everyone.bit() | if n < 3 { Group::Coordinators.bit() } else { 0 };
        world.add(Either(role), Clock::new(Instant(1_000_000), off * 1_000), groups);
    }
    world.run_until(1_000_000_000);
    core::array::from_fn(|n| world.counter(n as u32, Counter::DriftAlarms))
}

#[test]
fn clocks_within_the_bound_raise_no_alarm() {
    let bound = i64::from(TIMING.drift_ppm);
    assert_eq!(alarms([bound, -bound, 0, bound, -bound, bound / 2]), [0; 6]);
}

#[test]
fn a_clock_beyond_the_bound_is_found_by_its_peers() {
    for off in [-5, 5] {
        let found = alarms([0, 0, 0, 0, off * i64::from(TIMING.drift_ppm), 0]);
        assert!(found.iter().all(|n| *n > 0), "{off}: {found:?}");
    }
}
