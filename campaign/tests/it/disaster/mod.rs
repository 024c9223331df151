//! A simulated cluster for disasters, whose machines start like those of the daemons. Coordinators are
//! the first nodes, then come agents; more processes are added as a run goes on.

#![allow(dead_code, reason = "each test crate uses a part")]
#![expect(unreachable_pub, reason = "shared by test crates")]

use obol_fabric::{
    Address, Event, Fabric, Group, Instant, Layout, Limits, Machine, Name, Nanos, ViewId, page,
};
use obol_fabric_sim::{Clock, Delay, Network, State, World};
use obol_membership::timing::Timing;
use obol_membership::view::{Acceptor, coordinator_name};
use obol_membership::wire::Message;
use obol_membership::{ActiveMutant, Config, Coordinator, Kind, Member, Start, View};
use obol_rng::Rng;
use std::sync::Arc;

pub const COORDINATORS: u32 = 3;
pub const AGENTS: u32 = 3;
/// A run that has not reached its goal after this true time never will.
const HANG: u64 = 400_000_000;
/// Another life's memory must not be taken for the first one's.
pub const LEASE: u64 = 200_000;
/// What an operator may set with `--beyond-max`.
pub const LONG_LEASE: u64 = 12 * LEASE;

/// What runs at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Post {
    Coordinator(u16),
    Agent,
    Cache,
}

pub enum Role {
    Coordinator(Box<Coordinator>),
    Member(Box<Member>),
}

impl Role {
    pub fn view(&self) -> &Arc<View> {
        match self {
            Self::Coordinator(machine) => machine.view(),
            Self::Member(machine) => machine.view(),
        }
    }

    pub fn is_retired(&self) -> bool {
        matches!(self, Self::Coordinator(machine) if machine.is_retired())
    }
}

macro_rules! each {
    ($role:expr, $machine:ident => $what:expr) => {
        match $role {
            Role::Coordinator($machine) => $what,
            Role::Member($machine) => $what,
        }
    };
}

impl Machine for Role {
    fn start<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        each!(self, machine => machine.start(now, fabric));
    }

    fn handle<F: Fabric>(&mut self, now: Instant, event: Event<'_>, fabric: &mut F) {
        each!(self, machine => machine.handle(now, event, fabric));
    }

    fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        each!(self, machine => machine.tick(now, fabric));
    }

    fn deadline(&self) -> Instant {
        each!(self, machine => machine.deadline())
    }
}

fn config() -> Config {
    let timing = Timing {
        lease: Nanos(LEASE),
        lease_max: Nanos(LEASE),
        lease_calm: Nanos(8 * LEASE),
        renew_every: Nanos(LEASE / 3),
        renew_timeout: Nanos(LEASE / 4),
        cache_lease: Nanos(LEASE),
        cache_timeout: Nanos(LEASE / 4),
        fan_out_from: u32::MAX,
        drift_ppm: 200,
        fencing: true,
        heartbeat_every: Nanos(2_000),
        heartbeat_period: Nanos(LEASE / 4),
        heartbeat_confirm: 3,
        link_every: Nanos(LEASE),
        link_timeout: Nanos(4 * LEASE),
        notice_after: Nanos(5_000),
        notice_every: Nanos(LEASE / 2),
        join_every: Nanos(LEASE / 2),
        join_burst: 1,
        standby: Nanos(LEASE / 2),
        poll_every: Nanos(LEASE / 2),
        backoff_max: Nanos(5_000),
        announce_hold: Nanos(LEASE / 8),
        resync_after: Nanos(4 * LEASE),
        ..Timing::default()
    };
    let limits = Limits {
        seats: 2,
        slots: 16,
        proposers: 7,
        value_bytes: 2048,
        lanes: 8,
        lane_slots: 4,
        datagram_bytes: 2048,
        recorder_events: 16,
    };
    Config {
        release: obol_fabric::Release::THIS,
        timing,
        layout: Layout::new(limits).expect("these limits are in bounds"),
        mutant: ActiveMutant::NONE,
    }
}

pub struct Run {
    pub config: Config,
    pub genesis: Arc<View>,
    pub world: World<Role>,
    pub rng: Rng,
    pub seed: u64,
    pub lives: u64,
    posts: Vec<Post>,
    pub overlap: Option<String>,
}

/// A coordinator at this node as an acceptor.
pub fn acceptor(node: u32, number: u16) -> Acceptor {
    Acceptor { proposer: number, address: Address::region(node) }
}

impl Run {
    pub fn new(seed: u64) -> Self {
        let config = config();
        let seats: Vec<(Name, Address)> = (0..COORDINATORS)
            .map(|n| (coordinator_name(n as u16 + 1), Address { generation: 1, ..Address::region(n) }))
            .collect();
        let genesis = View::genesis(&seats, config.timing.lease, config.timing.cache_lease);
        let mut rng = Rng::new(seed ^ 0x0d15_a57e_0000_0000);
        let network = Network {
            one_way: Delay::new(500 + rng.below(1_500), 400),
            multicast: Delay::new(600 + rng.below(1_500), 400),
            link_timeout: Delay::new(10_000, 5_000),
            loss_permille: rng.below(30) as u32,
            multicast_loss_permille: rng.below(30) as u32,
            ..Network::default()
        };
        let world = World::new(config.layout, network, seed);
        let mut run = Self {
            config,
            genesis: Arc::new(genesis),
            world,
            rng,
            seed,
            lives: 0,
            posts: Vec::new(),
            overlap: None,
        };
        for node in 0..COORDINATORS + AGENTS {
            let post = if node < COORDINATORS { Post::Coordinator(node as u16 + 1) } else { Post::Agent };
            run.add(post, None);
        }
        run
    }

    /// Starts another process; returns its node.
    pub fn add(&mut self, post: Post, found: Option<View>) -> u32 {
        let node = self.posts.len() as u32;
        self.posts.push(post);
        let machine = self.machine(node, found);
        let is_coordinator = matches!(machine, Role::Coordinator(_));
        let groups = Group::Everyone.bit() | if is_coordinator { Group::Coordinators.bit() } else { 0 };
        // Within the assumed drift.
        let rate = self.rng.below(200_000) as i64 - 100_000;
        let clock = Clock::new(Instant(1 + self.rng.below(1 << 40)), rate);
        assert_eq!(self.world.add(machine, clock, groups), node);
        node
    }

    /// Created like a daemon's: from the views of its own host.
    pub fn machine(&mut self, node: u32, found: Option<View>) -> Role {
        self.lives += 1;
        let seed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.lives;
        let start = Start::new(self.config, &self.genesis, found, seed);
        let member = |kind, name: &str| {
            let name = Name::new(&format!("{name}-{node}")).expect("a name");
            Role::Member(Box::new(start.clone().member(kind, name)))
        };
        match self.posts[node as usize] {
            Post::Coordinator(number) => Role::Coordinator(Box::new(start.coordinator(number))),
            Post::Agent => member(Kind::Agent, "node"),
            Post::Cache => member(Kind::LeaseCache, "cache"),
        }
    }

    /// An operator's request to all first coordinators, sent from this node.
    pub fn set_lease(&mut self, from: u32, lease: u64) {
        self.world.with_machine(from, |_, _, port| {
            (0..COORDINATORS)
                .for_each(|n| port.send(Address::region(n), &Message::SetLease(Nanos(lease)).encode()));
        });
    }

    pub fn agents() -> std::ops::Range<u32> {
        COORDINATORS..COORDINATORS + AGENTS
    }

    /// When, in true time, an agent may act, and under which base.
    pub fn lease(&self, node: u32) -> Option<(u64, u64, ViewId, ViewId)> {
        let words = self.world.page(node);
        let page = page::load(words).filter(|page| page::fenced(words) <= page.view)?;
        let clock = self.world.clock(node);
        let (from, until) = (clock.to_true(page.start), clock.to_true(page.end));
        let lives = self.world.state(node) == State::Running && from < until;
        lives.then_some((from, until, page.base, page.view))
    }

    pub fn holds(&self, node: u32) -> Option<ViewId> {
        let now = self.world.now();
        self.lease(node).filter(|(from, until, ..)| *from <= now && now < *until).map(|lease| lease.3)
    }

    /// One step; records two agents that may act under incompatible views before the next one.
    pub fn step(&mut self) {
        assert!(self.world.step().is_some(), "something always is to come");
        let (now, next) = (self.world.now(), self.world.next_time().unwrap_or(u64::MAX));
        let acts = |node: &u32| self.posts[*node as usize] == Post::Agent;
        let agents = (0..self.posts.len() as u32).filter(acts);
        let leases: Vec<_> = agents.filter_map(|node| Some((node, self.lease(node)?))).collect();
        for (n, (one, a)) in leases.iter().enumerate() {
            for (other, b) in &leases[n + 1..] {
                let (from, until) = (a.0.max(b.0).max(now), a.1.min(b.1).min(next));
                if a.2 != b.2 && from < until {
                    let text = format!("seed {}: nodes {one} and {other} at {from}: {a:?} {b:?}", self.seed);
                    self.overlap.get_or_insert(text);
                }
            }
        }
    }

    /// Runs for less than a span, drawn.
    pub fn run_below(&mut self, most: u64) {
        let span = self.rng.below(most);
        self.run_for(span);
    }

    pub fn run_for(&mut self, span: u64) {
        let end = self.world.now() + span;
        while self.world.next_time().is_some_and(|next| next <= end) {
            self.step();
        }
    }

    pub fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let end = self.world.now() + HANG;
        while !done(self) {
            assert!(self.world.now() < end, "seed {}: {what}", self.seed);
            self.step();
        }
    }

    pub fn cut(&mut self, node: u32) {
        for other in (0..self.posts.len() as u32).filter(|other| *other != node) {
            self.world.partition(node, other);
            self.world.partition(other, node);
        }
    }

    /// Cuts these off from all others, and not from each other.
    pub fn cut_apart(&mut self, these: &[u32]) {
        for other in (0..self.posts.len() as u32).filter(|other| !these.contains(other)) {
            for node in these {
                self.world.partition(*node, other);
                self.world.partition(other, *node);
            }
        }
    }

    pub fn heal(&mut self) {
        let nodes = self.posts.len() as u32;
        for (node, other) in (0..nodes).flat_map(|node| (0..nodes).map(move |other| (node, other))) {
            self.world.heal(node, other);
        }
    }
}
