//! A simulated cluster for disasters, whose machines start like those of the daemons. Coordinators are
//! the first nodes, then come agents; more processes are added as a run goes on.

use obol_cluster_sim::{Cluster, HeldLease, Process};
use obol_fabric::{Address, Fabric, Instant, Layout, Limits, Name, Nanos, ViewId};
use obol_fabric_sim::{Clock, Delay, Network};
use obol_membership::timing::Timing;
use obol_membership::view::Acceptor;
use obol_membership::wire::Message;
use obol_membership::{ActiveMutant, Config, Coordinator, Kind, Member, View};
use obol_rng::Rng;

pub(crate) const COORDINATORS: u32 = 3;
pub(crate) const AGENTS: u32 = 3;
/// A run that has not reached its goal after this true time never will.
const HANG: u64 = 400_000_000;
/// Another life's memory must not be taken for the first one's.
pub(crate) const LEASE: u64 = 200_000;
/// What an operator may set with `--beyond-max`.
pub(crate) const LONG_LEASE: u64 = 12 * LEASE;

/// What runs at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Post {
    Coordinator(u16),
    Agent,
    Cache,
}

pub(crate) fn config() -> Config {
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

pub(crate) struct Run {
    pub(crate) cluster: Cluster<Process<Member>>,
    pub(crate) rng: Rng,
    pub(crate) seed: u64,
    pub(crate) lives: u64,
    posts: Vec<Post>,
    pub(crate) overlap: Option<String>,
}

/// A coordinator at this node as an acceptor.
pub(crate) fn acceptor(node: u32, number: u16) -> Acceptor {
    Acceptor { proposer: number, address: Address::region(node) }
}

impl Run {
    pub(crate) fn new(seed: u64) -> Self {
        let config = config();
        let mut rng = Rng::new(seed ^ 0x0d15_a57e_0000_0000);
        let network = Network {
            one_way: Delay::new(500 + rng.below(1_500), 400),
            multicast: Delay::new(600 + rng.below(1_500), 400),
            link_timeout: Delay::new(10_000, 5_000),
            loss_permille: rng.below(30) as u32,
            multicast_loss_permille: rng.below(30) as u32,
            ..Network::default()
        };
        let cluster = Cluster::new(config, COORDINATORS, network, seed);
        let mut run = Self { cluster, rng, seed, lives: 0, posts: Vec::new(), overlap: None };
        for node in 0..COORDINATORS + AGENTS {
            let post = if node < COORDINATORS { Post::Coordinator(node as u16 + 1) } else { Post::Agent };
            run.add(post, None);
        }
        run
    }

    /// Starts another process; returns its node.
    pub(crate) fn add(&mut self, post: Post, found: Option<View>) -> u32 {
        let node = self.posts.len() as u32;
        self.posts.push(post);
        let machine = self.machine(node, found);
        // Within the assumed drift.
        let rate = self.rng.below(200_000) as i64 - 100_000;
        let clock = Clock::new(Instant(1 + self.rng.below(1 << 40)), rate);
        assert_eq!(self.cluster.add_process(machine, clock), node);
        node
    }

    /// Created like a daemon's: from the views of its own host.
    pub(crate) fn machine(&mut self, node: u32, found: Option<View>) -> Process<Member> {
        self.lives += 1;
        let seed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.lives;
        let start = self.cluster.start_with(found, seed);
        let member = |kind, name: &str| {
            let name = Name::new(&format!("{name}-{node}")).expect("a name");
            Process::Member(Box::new(start.clone().member(kind, name)))
        };
        match self.posts[node as usize] {
            Post::Coordinator(number) => Process::Coordinator(Box::new(start.coordinator(number))),
            Post::Agent => member(Kind::Agent, "node"),
            Post::Cache => member(Kind::LeaseCache, "cache"),
        }
    }

    /// An operator's request to all first coordinators, sent once from this node. Some may miss it.
    pub(crate) fn request_lease(&mut self, from: u32, lease: u64) {
        self.cluster.with_machine(from, |_, _, port| {
            (0..COORDINATORS)
                .for_each(|n| port.send(Address::region(n), &Message::SetLease(Nanos(lease)).encode()));
        });
    }

    /// Repeats the request until this is so, as the command does. False if it never will be.
    pub(crate) fn set_lease(&mut self, from: u32, lease: u64, done: impl Fn(&Self) -> bool) -> bool {
        let end = self.cluster.now() + HANG;
        while !done(self) && self.cluster.now() < end {
            self.request_lease(from, lease);
            let again = self.cluster.now() + 4 * LEASE;
            while !done(self) && self.cluster.now() < again {
                self.step();
            }
        }
        done(self)
    }

    pub(crate) fn agents() -> std::ops::Range<u32> {
        COORDINATORS..COORDINATORS + AGENTS
    }

    /// When an agent that runs may act.
    fn lease(&self, node: u32) -> Option<HeldLease> {
        self.cluster.lease(node).filter(|_| self.cluster.runs(node))
    }

    pub(crate) fn holds(&self, node: u32) -> Option<ViewId> {
        let now = self.cluster.now();
        self.lease(node).filter(|lease| (lease.from..lease.until).contains(&now)).map(|lease| lease.view)
    }

    /// One step; records two agents that may act under incompatible views before the next one.
    pub(crate) fn step(&mut self) {
        assert!(self.cluster.step().is_some(), "something always is to come");
        self.end_retired();
        let (now, next) = (self.cluster.now(), self.cluster.next_time().unwrap_or(u64::MAX));
        let acts = |node: &u32| self.posts[*node as usize] == Post::Agent;
        let agents = (0..self.posts.len() as u32).filter(acts);
        let leases: Vec<_> = agents.filter_map(|node| Some((node, self.lease(node)?))).collect();
        for (n, (one, a)) in leases.iter().enumerate() {
            for (other, b) in &leases[n + 1..] {
                let (from, until) = (a.from.max(b.from).max(now), a.until.min(b.until).min(next));
                if a.base != b.base && from < until {
                    let text = format!("seed {}: nodes {one} and {other} at {from}: {a:?} {b:?}", self.seed);
                    self.overlap.get_or_insert(text);
                }
            }
        }
    }

    /// The process of a retired coordinator ends, as the daemon does.
    fn end_retired(&mut self) {
        let is_retired = |node: &u32| self.cluster.coordinator(*node).is_some_and(Coordinator::is_retired);
        let retired = (0..self.posts.len() as u32).filter(|node| self.cluster.runs(*node)).find(is_retired);
        retired.into_iter().for_each(|node| self.cluster.kill(node));
    }

    /// Runs for less than a span, drawn.
    pub(crate) fn run_below(&mut self, most: u64) {
        let span = self.rng.below(most);
        self.run_for(span);
    }

    pub(crate) fn run_for(&mut self, span: u64) {
        let end = self.cluster.now() + span;
        while self.cluster.next_time().is_some_and(|next| next <= end) {
            self.step();
        }
    }

    /// Runs until this is so.
    pub(crate) fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let end = self.cluster.now() + HANG;
        while !done(self) && self.cluster.now() < end {
            self.step();
        }
        assert!(done(self), "seed {}: {what}", self.seed);
    }
}
