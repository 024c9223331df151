//! The simulator: all processes in one world, in virtual time.

use crate::suite::{Fault, Feature, ME, Post, Testbed, contract, contract_tests};
use crate::support::{Actor, LIMITS, Probe};
use obol_fabric::metrics::FabricCounter;
use obol_fabric::{Address, Event, Fabric, Group, Instant, Layout, Machine, Nanos, ViewId};
use obol_fabric_sim::{Clock, Delay, Network, World};

contract!(Simulator);

pub(crate) enum Player {
    Driven(Probe),
    Peer(Actor),
}

impl Machine for Player {
    fn start<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        match self {
            Self::Driven(probe) => probe.start(now, fabric),
            Self::Peer(actor) => actor.start(now, fabric),
        }
    }
    fn handle<F: Fabric>(&mut self, now: Instant, event: Event<'_>, fabric: &mut F) {
        match self {
            Self::Driven(probe) => probe.handle(now, event, fabric),
            Self::Peer(actor) => actor.handle(now, event, fabric),
        }
    }
    fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        match self {
            Self::Driven(probe) => probe.tick(now, fabric),
            Self::Peer(actor) => actor.tick(now, fabric),
        }
    }
    fn deadline(&self) -> Instant {
        match self {
            Self::Driven(probe) => probe.deadline(),
            Self::Peer(actor) => actor.deadline(),
        }
    }
}

/// Region 0, and those of coordinators that have not been started, belong to dead processes.
pub(crate) struct Simulator {
    world: World<Player>,
    pub(crate) keeps_memory: bool,
}

const COORDINATORS: u32 = 4;

fn peer(layout: &Layout) -> Player {
    // Often enough that a torn READ shows a change.
    Player::Peer(Actor::scribbler(*layout, Nanos::from_micros(2)))
}

impl Testbed for Simulator {
    const NAME: &'static str = "sim";
    const LACKS: &'static [(Feature, &'static str)] =
        &[(Feature::Rights, "protocol code is trusted to keep to its own parts of a region")];
    const HANG_TIMEOUT: Nanos = Nanos::from_millis(200);

    fn new() -> Option<Self> {
        let layout = Layout::new(LIMITS).expect("in bounds");
        // With as much reordering as possible.
        let network =
            Network { one_way: Delay::new(500, 2_000), tear: Delay::new(100, 2_000), ..Network::default() };
        let mut world = World::new(layout, network, 1);
        let groups = Group::Everyone.bit() | Group::Coordinators.bit();
        for region in 0..COORDINATORS {
            let player = if region == ME { Player::Driven(Probe::default()) } else { peer(&layout) };
            world.add(player, Clock::default(), groups);
        }
        (0..COORDINATORS).filter(|region| *region != ME).for_each(|region| world.kill(region));
        world.run_until(10_000);
        Some(Self { world, keeps_memory: true })
    }

    fn layout(&self) -> Layout {
        *self.world.layout()
    }

    fn now(&self) -> Nanos {
        Nanos(self.world.now())
    }

    fn probe(&mut self) -> &mut Probe {
        match self.world.machine_mut(ME) {
            Player::Driven(probe) => probe,
            Player::Peer(_) => unreachable!("this process is driven"),
        }
    }

    fn post(&mut self, posts: &[Post]) {
        let posted = self.world.with_machine(ME, |_, _, port| posts.iter().for_each(|post| post.post(port)));
        posted.expect("it runs");
    }

    fn turn(&mut self) {
        self.world.run_until(self.world.now() + 20_000);
    }

    fn is_active(&self, view: ViewId) -> bool {
        obol_fabric::page::active(self.world.page(ME), view, || self.world.local_now(ME))
    }

    fn counter(&self, counter: FabricCounter) -> u64 {
        self.world.counter(ME, counter)
    }

    fn start(&mut self, region: u32) -> Address {
        let peer = peer(self.world.layout());
        self.world.restart(region, peer, self.keeps_memory);
        self.world.address(region)
    }

    fn start_member(&mut self) -> Address {
        let peer = peer(self.world.layout());
        let region = self.world.add(peer, Clock::default(), Group::Everyone.bit());
        self.world.address(region)
    }

    fn kill(&mut self, region: u32) {
        self.world.kill(region);
    }

    fn freeze(&mut self, region: u32) {
        self.world.freeze(region);
    }

    fn thaw(&mut self, region: u32) {
        self.world.thaw(region);
    }

    fn impair(&mut self, region: u32, fault: Fault) {
        self.world.network_mut().loss_permille = if fault == Fault::Loss { 500 } else { 0 };
        for (from, to) in [(ME, region), (region, ME)] {
            match fault {
                Fault::Cut => self.world.partition(from, to),
                Fault::None | Fault::Loss => self.world.heal(from, to),
            }
        }
    }
}
