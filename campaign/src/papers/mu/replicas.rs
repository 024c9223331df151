//! A simulated cluster of three replicas of the preset `mu`, with a client, on a modelled testbed.
//! The coordinators only admit them: leases, heartbeats and views play no part in what is measured.

use super::super::cluster::{self, ExperimentError, Shape};
use super::inputs::Setting;
use obol_cluster_sim::{Cluster, Process};
use obol_fabric::{Instant, Layout, Limits, Name, Nanos};
use obol_fabric_sim::{Clock, Network, Quantiles, StepInfo, What};
use obol_membership::{ActiveMutant, Config, Kind};
use obol_profiles::Testbed;
use obol_rng::Rng;
use obol_smr::{
    Actor, Area, Client, Grants, LoadError, Node, Operation, Pace, PullScore, Replica, ReplicaState, Service,
};
use std::ops::Range;

const COORDINATORS: u32 = 3;
pub(super) const REPLICAS: Range<u32> = 3..6;
const CLIENT: u32 = REPLICAS.end;
const VOTERS: u32 = REPLICAS.end - REPLICAS.start;
/// Factor of all periods and leases of the membership, so that it does nothing meanwhile.
const STRETCH: u64 = 1000;
/// A cluster must reach a steady state within this true time, and after a failover, too.
const STEADY_WITHIN: u64 = 100_000_000;
/// Looks after which every score is at its maximum.
const SETTLED_AFTER: u64 = 20;
/// Of messages that no one waits for.
const RETRY_INTERVAL: Nanos = Nanos::from_millis(5);
const CLIENT_POLLS_EVERY: Nanos = Nanos(500);

/// The rings are as short as they can be: a successor READs all of them, Mu's a part of one log.
const LIMITS: Limits = Limits {
    slots: 8,
    proposers: COORDINATORS,
    value_bytes: 3456,
    lane_slots: 64,
    datagram_bytes: 4096,
    ..Limits::LEAST
};

/// A service without a state: the leader of Mu's test replicates random bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Nothing;

impl Service for Nothing {
    const KIND: u8 = 0xfe;

    fn apply(&mut self, _command: &[u8], _reply: &mut Vec<u8>) {}
    fn read(&self, _query: &[u8], _reply: &mut Vec<u8>) {}
    fn save(&self, _to: &mut Vec<u8>) {}
    fn load(&mut self, from: &[u8]) -> Result<(), LoadError> {
        if from.is_empty() { Ok(()) } else { Err(LoadError) }
    }
}

type Mu = Node<Nothing, PullScore, Grants<false>>;

/// The moments of a failover, from the leader's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moments {
    /// Its successor takes it for failed.
    pub(super) detected: Nanos,
    /// A majority lets the successor write.
    pub(super) switched: Nanos,
    /// The successor's first entry is committed.
    pub(super) serves: Nanos,
}

/// A running cluster.
pub(super) struct Replicas {
    cluster: Cluster<Process<Mu>>,
    rng: Rng,
    setting: Setting,
    seed: u64,
}

fn name(what: &str, number: u32) -> Name {
    Name::new(&format!("{what}{number}")).unwrap_or_default()
}

impl Replicas {
    /// A cluster that serves, with all votes, the replica with the lowest id leading.
    pub(super) fn steady(testbed: &Testbed, setting: Setting, seed: u64) -> Result<Self, ExperimentError> {
        let refused = |error: &dyn std::fmt::Display| ExperimentError(format!("seed {seed}: {error}"));
        let layout = Layout::new(LIMITS).map_err(|error| refused(&error))?;
        let area = Area::of(&layout).ok_or_else(|| refused(&"the limits leave no room for a replica"))?;
        let shape = Shape { stretch: STRETCH, ..Shape::default() };
        let timing = cluster::timing(testbed, &shape);
        let config =
            Config { release: obol_fabric::Release::THIS, timing, layout, mutant: ActiveMutant::NONE };
        let network = Network {
            permit: super::inputs::CHANGE,
            link_timeout: super::inputs::LINK_TIMEOUT,
            record: false,
            count: false,
            ..cluster::network(testbed, &shape)
        };
        let mut cluster = Cluster::new(config, COORDINATORS, network, seed);
        let mut model = testbed.model.clone();
        model.interval = Quantiles::fixed(super::inputs::TURN_EVERY);
        model.inline_bytes = super::inputs::INLINE_BYTES;
        cluster.calibrate(model);
        let mut rng = Rng::new(seed ^ 0x6d75_0000_0000_0000);
        for node in 0..=CLIENT {
            let drawn = rng.next_u64();
            let start = cluster.start(drawn);
            let process = if node < COORDINATORS {
                Process::Coordinator(Box::new(start.coordinator(node as u16 + 1)))
            } else if node == CLIENT {
                let client = Client::new(area, drawn, CLIENT_POLLS_EVERY, RETRY_INTERVAL);
                let member = start.member(Kind::App, name("smrc-", node));
                Process::Member(Box::new(Node::new(member, Actor::Client(Box::new(client)))))
            } else {
                let pace = Pace {
                    poll_every: setting.poll_every,
                    idle_every: setting.poll_every,
                    patience: RETRY_INTERVAL,
                    look_every: setting.look_every,
                };
                let replica = Replica::new(area, pace, Nothing);
                let may_bootstrap = node == REPLICAS.start;
                let replica = if may_bootstrap { replica.founding(drawn, VOTERS) } else { replica };
                let member = start.member(Kind::App, name("smr-", node));
                Process::Member(Box::new(Node::new(member, Actor::Replica(Box::new(replica)))))
            };
            let clock = Clock::new(Instant(1_000_000 + rng.below(1 << 40)), 0);
            cluster.add_process(process, clock);
        }
        let mut replicas = Self { cluster, rng, setting, seed };
        replicas.settle()?;
        Ok(replicas)
    }

    fn replica(&self, node: u32) -> Option<&Replica<Nothing, PullScore, Grants<false>>> {
        self.cluster.member(node).and_then(Node::replica)
    }

    /// The voter with this id: its place in the configuration.
    fn voter(&self, place: u8) -> Option<u32> {
        let config = self.replica(REPLICAS.start)?.config();
        let voter = config.voters.iter().find(|voter| voter.place == place)?;
        Some(voter.address.region)
    }

    /// Waits until the voter with the lowest id leads, and all others follow it with everything.
    fn settle(&mut self) -> Result<(), ExperimentError> {
        let until = self.cluster.now() + STEADY_WITHIN;
        let every = self.setting.look_every.0;
        while !self.is_steady() {
            if self.cluster.now() > until {
                let states: Vec<Option<ReplicaState>> =
                    REPLICAS.map(|node| self.replica(node).map(Replica::state)).collect();
                let within = Nanos(STEADY_WITHIN);
                return Err(self.failed(&format!("not steady within {within}: {states:?}")));
            }
            self.cluster.run_for(every);
        }
        // A random point between two looks.
        let more = self.rng.below(2 * every);
        self.cluster.run_for(SETTLED_AFTER * every + more);
        if self.is_steady() { Ok(()) } else { Err(self.failed("it does not stay steady")) }
    }

    fn is_steady(&self) -> bool {
        let all = ReplicaState::Leading { ready: true, redundancy: VOTERS as usize };
        let Some(leader) = self.voter(0) else { return false };
        REPLICAS.filter_map(|node| Some((node, self.replica(node)?))).all(|(node, replica)| {
            let expected = if node == leader { all } else { ReplicaState::Following { whole: true } };
            replica.state() == expected && replica.config().voters.len() == VOTERS as usize
        })
    }

    fn failed(&self, what: &str) -> ExperimentError {
        let Setting { look_every, .. } = self.setting;
        ExperimentError(format!("seed {}, looks each {look_every}: {what}", self.seed))
    }

    fn step(&mut self) -> Result<StepInfo, ExperimentError> {
        self.cluster.step().ok_or_else(|| self.failed("nothing is left to happen"))
    }

    /// The leader is delayed (7.3): it runs no more, and its memory answers. When another one serves it
    /// continues, and leads again.
    pub(super) fn delay(&mut self) -> Result<Moments, ExperimentError> {
        let leader = self.leader()?;
        self.cluster.freeze(leader);
        let moments = self.succeed(leader)?;
        self.cluster.thaw(leader);
        self.settle()?;
        Ok(moments)
    }

    /// The leader's process dies: its memory answers no more.
    pub(super) fn kill(&mut self) -> Result<Moments, ExperimentError> {
        let leader = self.leader()?;
        self.cluster.kill(leader);
        self.succeed(leader)
    }

    fn leader(&self) -> Result<u32, ExperimentError> {
        self.voter(0).ok_or_else(|| self.failed("there is no leader"))
    }

    /// Follows the failover from a leader that has just failed.
    fn succeed(&mut self, leader: u32) -> Result<Moments, ExperimentError> {
        let began = self.cluster.now();
        let term = self.replica(leader).map(Replica::term).unwrap_or_default();
        let heir = self.voter(1).ok_or_else(|| self.failed("there is no successor"))?;
        let (mut detected, mut switched) = (None, None);
        let until = began + super::inputs::LINK_TIMEOUT.min.0 + STEADY_WITHIN;
        while self.cluster.now() < until {
            let info = self.step()?;
            let is_turn = matches!(info.what, What::Step | What::Permitted);
            if !is_turn || !REPLICAS.contains(&info.node) {
                continue;
            }
            let since = Nanos(info.time - began);
            let Some(successor) = self.replica(heir).filter(|replica| replica.term() > term) else {
                continue;
            };
            let (state, term) = (successor.state(), successor.term());
            let takes_over = matches!(state, ReplicaState::TakingOver | ReplicaState::Leading { .. });
            if takes_over && detected.is_none() {
                detected = Some(since);
            }
            let has_granted = |node: &u32| {
                *node != leader && self.replica(*node).is_some_and(|replica| replica.granted() == term)
            };
            if switched.is_none() && REPLICAS.filter(has_granted).count() > VOTERS as usize / 2 {
                switched = Some(since);
            }
            if let (ReplicaState::Leading { ready: true, .. }, Some(detected), Some(switched)) =
                (state, detected, switched)
            {
                return Ok(Moments { detected, switched, serves: since });
            }
        }
        Err(self.failed("no other replica serves in time"))
    }

    /// Has the client propose `count` commands of this size, one after the other. Returns how long the
    /// leader takes for each, from the turn in which it takes it to the one in which it knows that a
    /// majority has it.
    pub(super) fn replicate(&mut self, count: u32, bytes: usize) -> Result<Vec<Nanos>, ExperimentError> {
        let leader = self.leader()?;
        let mut took = Vec::new();
        // The first one waits for the client's session, which is an entry of its own.
        for n in 0..=count {
            let operation = Operation::Propose(vec![0xa5; bytes].into());
            let begun = self.cluster.with_machine(CLIENT, |process, now, port| {
                let client = process.member_mut().and_then(Node::client)?;
                Some(client.begin(now, operation, port).is_ok())
            });
            if begun.flatten() != Some(true) {
                return Err(self.failed("the client cannot propose"));
            }
            let one = self.one(leader)?;
            took.extend((n > 0).then_some(one));
        }
        Ok(took)
    }

    /// Waits until the client has its answer.
    fn one(&mut self, leader: u32) -> Result<Nanos, ExperimentError> {
        let until = self.cluster.now() + STEADY_WITHIN;
        let before = self.replica(leader).map(Replica::last).unwrap_or_default();
        let (mut taken, mut committed) = (None, None);
        while self.cluster.now() < until {
            let info = self.step()?;
            if info.node == leader && info.what == What::Step {
                let replica = self.replica(leader);
                if taken.is_none() && replica.is_some_and(|replica| replica.last() > before) {
                    taken = Some(info.time);
                }
                if committed.is_none() && replica.is_some_and(|replica| replica.commit() > Some(before)) {
                    committed = Some(info.time);
                }
            }
            let client = self.cluster.machine_mut(CLIENT).member_mut().and_then(Node::client);
            if client.is_some_and(|client| client.take().is_some()) {
                let times = taken.zip(committed).map(|(taken, committed)| Nanos(committed - taken));
                return times.ok_or_else(|| self.failed("an answer came before its entry was committed"));
            }
        }
        Err(self.failed("the client gets no answer"))
    }
}
