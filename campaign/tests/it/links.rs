//! How soon the processes of a host are excluded whose links are broken, with the constants of the profiles
//! for IP. Times are true ones, which only a simulation has.

use obol_cluster_sim::{Cluster, Process};
use obol_fabric::{Instant, Name};
use obol_fabric_sim::{Clock, Delay, Network};
use obol_membership::{ActiveMutant, Config, Kind, Member};
use obol_node::Deployment;
use obol_profiles::Profile;
use obol_rng::Rng;

/// A coordinator, which is at the node of this number, and an agent.
const HOSTS: u32 = 3;
const NODES: u32 = 2 * HOSTS;
const SEEDS: u64 = 6;
/// Between two looks at a cluster.
const LOOK: u64 = 1_000_000;

/// The processes of a host.
const fn of_host(host: u32) -> [u32; 2] {
    [host, HOSTS + host]
}

struct Run {
    cluster: Cluster<Process<Member>>,
    profile: Profile,
    rng: Rng,
}

impl Run {
    /// A cluster whose processes are all members.
    fn new(profile: &Profile, seed: u64) -> Self {
        let deployment = Deployment::new(3, 3, 0, profile.clone()).expect("there is room");
        let config = Config { mutant: ActiveMutant::NONE, ..deployment.config().expect("within bounds") };
        let network = Network {
            one_way: Delay::new(50_000, 20_000),
            multicast: Delay::new(60_000, 20_000),
            link_timeout: Delay::fixed(profile.ip.detection.0),
            ..Network::default()
        };
        let mut cluster = Cluster::new(config, HOSTS, network, seed);
        for node in 0..NODES {
            let start = cluster.start(seed << 8 | u64::from(node));
            let process = if node < HOSTS {
                Process::Coordinator(Box::new(start.coordinator(node as u16 + 1)))
            } else {
                let name = Name::new(&format!("node-{}", node - HOSTS + 1)).expect("a name");
                Process::Member(Box::new(start.member(Kind::Agent, name)))
            };
            cluster.add_process(process, Clock::new(Instant(1_000_000 * u64::from(node + 1)), 0));
        }
        let mut run = Self { cluster, profile: profile.clone(), rng: Rng::new(seed) };
        run.until(30_000_000_000, |cluster| {
            (0..NODES).all(|at| cluster.view(at).members.len() == NODES as usize)
        });
        // In any phase of what is done periodically.
        let phase = run.rng.below(2 * profile.timing.link_timeout.0);
        run.cluster.run_for(phase);
        run
    }

    /// Runs until something holds; how long that takes.
    fn until(&mut self, most: u64, holds: impl Fn(&Cluster<Process<Member>>) -> bool) -> u64 {
        let begun = self.cluster.now();
        while !holds(&self.cluster) {
            let span = self.cluster.now() - begun;
            assert!(span < most, "after {span} ns: {:?}", self.cluster.view(1));
            self.cluster.run_for(LOOK);
        }
        self.cluster.now() - begun
    }

    /// Breaks the links of a host, in the direction of its own connections, or in both; how long it takes until
    /// the processes of the other hosts are in a view without it.
    fn exclusion(&mut self, host: u32, both: bool) -> u64 {
        let (own, others): (Vec<u32>, Vec<u32>) = (0..NODES).partition(|node| of_host(host).contains(node));
        let begun = self.cluster.now();
        let pairs: Vec<(u32, u32)> = own.iter().flat_map(|a| others.iter().map(|b| (*a, *b))).collect();
        for &(a, b) in &pairs {
            if both {
                self.cluster.cut_link(a, b);
            } else {
                self.cluster.refuse(a, b);
            }
        }
        // Who has made the connection gives it up: at the earliest after the bound, and half of it later where
        // nothing was asked before.
        let bound = self.profile.ip.detection.0;
        self.cluster.run_for(bound + self.rng.below(bound / 2));
        for &(a, b) in &pairs {
            self.cluster.give_up(a, b);
            if both {
                self.cluster.give_up(b, a);
            }
        }
        let is_out = |cluster: &Cluster<Process<Member>>| {
            let gone = own.iter().map(|node| cluster.address(*node)).collect::<Vec<_>>();
            others
                .iter()
                .all(|at| cluster.view(*at).members.iter().all(|member| !gone.contains(&member.address)))
        };
        self.until(60_000_000_000, is_out);
        self.cluster.now() - begun
    }
}

/// The longest exclusion in some runs.
fn longest(profile: &Profile, host: u32, both: bool) -> u64 {
    (1..=SEEDS).map(|seed| Run::new(profile, seed).exclusion(host, both)).max().expect("there are some")
}

/// Detection by the profile: a silence of `ip.detection`, which is noticed up to half of that later, and the
/// wait for the reports of others.
#[test]
fn a_host_that_cannot_connect_is_excluded_within_twice_the_profile_s_detection() {
    for name in ["lan", "cloud"] {
        let profile = Profile::builtin(name).expect("it is built in");
        let detection = profile.ip.detection.0 * 3 / 2 + profile.timing.link_timeout.0;
        for (host, what) in [(0, "the leader's host"), (2, "a host")] {
            let cut_off = longest(&profile, host, true);
            let refused = longest(&profile, host, false);
            println!("{name}, {what}: detection {detection}, cut off {cut_off}, cannot connect {refused}");
            assert!(cut_off <= 2 * detection, "{name}, {what}");
            assert!(refused <= 2 * detection, "{name}, {what}");
        }
    }
}
