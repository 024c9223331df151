//! A cluster with replicas and clients in virtual time, and the faults that are injected.

mod work;

use crate::history::{Act, History, Puts, WallClock, Watched, bytes, stamped_by_client, true_time_is};
use crate::oracle::{Oracle, Seen};
use obol_cluster_sim::service::{
    self, AFTERMATH, AGAIN_EVERY, AGAIN_EVERY_MAX, COORDINATORS, FAULTS, FAULTS_LAST, LEASE, LINGERING,
    OPERATIONS_MAX, POLL_EVERY, ServiceRun, THINK,
};
use obol_cluster_sim::{Cluster, Process};
use obol_fabric::memory::copy_out;
use obol_fabric::{Address, Instant, Layout, Limits, Name, Nanos};
use obol_fabric_sim::{Clock, Delay, Network};
use obol_membership::{ActiveMutant, Config, Kind, Member, Timing};
use obol_rng::Rng;
#[cfg(feature = "mutants")]
use obol_smr::Mutant;
use obol_smr::identity::of_first_log;
use obol_smr::{
    Actor, Area, Client, Detector, Guard, KeyValue, Node, Operation, Pace, Replica, ReplicaState, Standing,
};
use std::collections::BTreeMap;
use std::ops::Range;

mod locks;
mod outdated;
mod replaced;
mod sessions;
mod time;
mod voters;

/// One more than there are voters.
const REPLICAS: Range<u32> = 3..7;
const CLIENTS: Range<u32> = 7..10;
const NODES: u32 = CLIENTS.end;
const VOTERS: u32 = 3;
const KEYS: u64 = 2;

const IDLE_EVERY: Nanos = Nanos::from_micros(12);
const CHUNK_TIMEOUT: Nanos = Nanos::from_micros(150);
const POLL_INTERVAL: Nanos = Nanos::from_micros(10);
/// Clocks differ by up to this, in ns, or by days: each is up to a day slow or fast.
const DIFFER_MAX: u64 = 1 << 40;
const DIFFER_DAYS: u64 = 2 * 86_400 * 1_000_000_000;
/// The rates of clocks differ from that of true time by up to so much, where they do.
const DRIFT_PPB: u64 = 100_000;
/// A new cluster serves within this time.
const STEADY_WITHIN: u64 = 30_000_000;
/// How long a recovery takes at most.
const RECOVERY_MAX: u64 = 8_000_000;
/// A detector may suspect a leader whose turn stalls, so one look may find a change of leaders.
const STANDINGS_TRIES: u32 = 3;
/// Changes of leaders while one is not reached, at most: to its successor, and as many more as turns that
/// stall may cause. If leaders took turns, there would be up to 20.
const CHANGES_MAX: u64 = 9;

/// How faults follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Faults {
    /// One at a time: a minority. The service resumes within [`RECOVERY_MAX`].
    Single,
    /// Several at once. The service may stop, and resumes when a majority is back.
    Overlapping,
    /// The leader and a client that reads hear nothing of the view that excludes them, while other
    /// clients write. Without views, another replica leads that they do not hear of.
    Deaf,
    /// The leader's replication plane stops, and all else of it goes on: another one has to lead.
    Stuck,
    /// The others do not reach the leader, and it reaches them: another one has to lead, and to stay.
    Unreached,
}

/// The faults of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) fault_count: u32,
    pub(crate) faults: Faults,
    /// The clients that work are beside replicas, and die with them.
    pub(crate) beside: bool,
    /// Clocks differ in their rates as well.
    pub(crate) drifts: bool,
    /// Clocks differ by days.
    pub(crate) days: bool,
    /// A bug of all services: each reads the wall clock of its host.
    pub(crate) reads_wall_clock: bool,
    /// The bug of all replicas.
    #[cfg(feature = "mutants")]
    pub(crate) mutant: Option<Mutant>,
}

impl Plan {
    /// The timing of the membership. A leader that is not reached stays in the view: that excludes it
    /// otherwise before it has taken many turns.
    fn timing(&self, seed: u64) -> Timing {
        let timing = service::timing(!seed.is_multiple_of(3));
        if self.faults == Faults::Unreached {
            let (heartbeat_period, link_timeout) = (Nanos::from_millis(20), Nanos::from_millis(100));
            return Timing { heartbeat_period, link_timeout, ..timing };
        }
        timing
    }

    pub(crate) const fn of(seed: u64, faults: Faults) -> Self {
        Self {
            fault_count: 1 + (seed % 3) as u32,
            faults,
            beside: false,
            drifts: false,
            days: false,
            reads_wall_clock: false,
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }
}

/// The outcome of a run.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) operations: usize,
    /// Changes of leaders.
    pub(crate) failovers: u64,
    /// Configurations that leaders appended.
    pub(crate) configs: u64,
    /// Bytes of entries whose places were used again.
    pub(crate) recycled: u64,
    /// Replicas that were the oldest and had no place.
    pub(crate) yields: u64,
    /// Differs between different runs.
    pub(crate) trace: u64,
}

type Machine<D, G> = Node<Watched, D, G>;

fn name(what: &str, number: u32) -> Name {
    Name::new(&format!("{what}{number}")).expect("a name")
}

/// Rings of some thirty entries, and one block more than there are replicas and clients, so that some
/// begin at the same one.
const LIMITS: Limits = Limits { value_bytes: 6400, ..service::LIMITS };

fn network(seed: u64) -> Network {
    Network {
        // Two of them take a small part of a lease, or up to all of it.
        permit: if seed.is_multiple_of(2) { Delay::new(1_000, 4_000) } else { Delay::new(4_000, 50_000) },
        ..service::network()
    }
}

#[derive(Default)]
struct ClientState {
    waits_for: Option<Act>,
    begun: u32,
    /// When it begins its next operation.
    next_at: u64,
    /// It begins none.
    is_held: bool,
    /// What is added to its node's number in the history.
    name: u32,
}

/// The cluster and what its clients do.
pub(crate) struct Store<D, G> {
    cluster: Cluster<Process<Machine<D, G>>>,
    rng: Rng,
    #[cfg(feature = "mutants")]
    mutant: Option<Mutant>,
    history: History,
    puts: Puts,
    oracle: Oracle,
    /// By node.
    asked: BTreeMap<u32, ClientState>,
    beside: bool,
    reads_wall_clock: bool,
    next_value: u64,
    /// Operations that each client may begin.
    operations_max: u32,
    yields: u64,
    /// The store has begun: no replica may begin a log any more.
    has_begun: bool,
    /// A client that only reads at present, without a pause.
    reader: Option<u32>,
    /// Whether the last fault is over: suspects are removed, or not, within [`AFTERMATH`].
    lingers: bool,
}

impl Run {
    /// Runs a plan; the error describes the violation.
    pub(crate) fn of<D: Detector, G: Guard>(seed: u64, plan: Plan) -> Result<Self, String> {
        let mut store = Store::<D, G>::start(seed, &plan);
        store.steady()?;
        let begun = store.cluster.now();
        for at in store.fault_times(plan.fault_count) {
            store.work_until(at)?;
            match plan.faults {
                Faults::Single => store.inject()?,
                Faults::Overlapping => store.inject_several()?,
                Faults::Deaf => store.deafen()?,
                Faults::Stuck => store.stick()?,
                Faults::Unreached => store.close()?,
            }
        }
        store.work_until(begun + FAULTS_LAST)?;
        store.recover()?;
        store.all_answered()?;
        store.standings()?;
        store.history.judge()?;
        store.judge_time()?;
        Ok(Self {
            yields: store.yields,
            operations: store.history.operations,
            failovers: store.oracle.failovers,
            configs: store.oracle.configs,
            recycled: store.oracle.recycled,
            trace: store.cluster.hash(),
        })
    }
}

impl<D: Detector, G: Guard> Store<D, G> {
    fn start(seed: u64, plan: &Plan) -> Self {
        let layout = Layout::new(LIMITS).expect("within the bounds");
        let config = Config {
            release: obol_fabric::Release::THIS,
            timing: plan.timing(seed),
            layout,
            mutant: ActiveMutant::default(),
        };
        let mut store = Self {
            cluster: Cluster::new(config, COORDINATORS, network(seed), seed),
            rng: Rng::new(seed ^ 0x736d_7200_0000_0000),
            #[cfg(feature = "mutants")]
            mutant: plan.mutant,
            history: History::default(),
            puts: Puts::default(),
            oracle: Oracle::default(),
            asked: BTreeMap::new(),
            beside: plan.beside,
            reads_wall_clock: plan.reads_wall_clock,
            next_value: 1,
            operations_max: OPERATIONS_MAX,
            yields: 0,
            has_begun: false,
            reader: None,
            lingers: false,
        };
        for node in 0..NODES {
            let machine = store.machine(node);
            // No two clocks agree.
            let offset =
                Instant(1_000_000 + store.rng.below(if plan.days { DIFFER_DAYS } else { DIFFER_MAX }));
            let rate = if plan.drifts { store.rng.below(2 * DRIFT_PPB) as i64 - DRIFT_PPB as i64 } else { 0 };
            let clock = Clock::new(offset, rate);
            store.cluster.add_process(machine, clock);
        }
        store
    }

    /// A replica without a log.
    fn new_replica(&self, node: u32) -> Replica<Watched, D, G> {
        let pace = Pace {
            poll_every: POLL_EVERY,
            idle_every: IDLE_EVERY,
            patience: CHUNK_TIMEOUT,
            look_every: POLL_INTERVAL,
        };
        let area = Area::of(self.cluster.layout()).expect("there is room");
        let service = Watched::default();
        let service = if self.reads_wall_clock { service.with_wall_clock(WallClock(node)) } else { service };
        let replica = Replica::new(area, pace, service);
        #[cfg(feature = "mutants")]
        let replica = match self.mutant {
            Some(mutant) => replica.with_mutant(mutant),
            None => replica,
        };
        replica
    }

    /// The member of a replica or a client.
    fn member(&self, node: u32, seed: u64) -> Member {
        let name = name(if REPLICAS.contains(&node) { "smr-" } else { "smrc-" }, node);
        self.cluster.start(seed).member(Kind::App, name)
    }

    fn replica(&self, node: u32) -> Option<&Replica<Watched, D, G>> {
        self.cluster.member(node).and_then(Node::replica)
    }

    fn states(&self) -> String {
        let state = |node| {
            let replica = self.replica(node);
            let index = replica.map(|it| (it.term().0, it.applied().0, it.last().0));
            (node, self.cluster.state(node), replica.map(Replica::state), index)
        };
        let config = self.leader().and_then(|node| self.replica(node)).map(|it| it.config().voters.clone());
        format!("{:?}, {config:?}", REPLICAS.map(state).collect::<Vec<_>>())
    }

    /// The replica that serves.
    fn leader(&self) -> Option<u32> {
        let serves = |node: &u32| {
            let state = self.replica(*node).map(Replica::state);
            self.cluster.runs(*node) && matches!(state, Some(ReplicaState::Leading { ready: true, .. }))
        };
        REPLICAS.filter(serves).max_by_key(|node| self.replica(*node).map(Replica::term))
    }

    /// The leader, if all processes that run are members and all voters have everything.
    fn whole(&self) -> Option<u32> {
        let leader = self.leader()?;
        let view = self.cluster.view(leader);
        let newest = (0..NODES).map(|node| self.cluster.view(node).id).max()?;
        let is_named = |node: &u32| {
            !self.cluster.runs(*node) || view.members.iter().any(|it| it.address.region == *node)
        };
        let state = self.replica(leader)?.state();
        let is_redundant = state == ReplicaState::Leading { ready: true, redundancy: VOTERS as usize };
        let voters = &self.replica(leader)?.config().voters;
        let is_live = |at: Address| {
            self.cluster.runs(at.region) && self.cluster.address(at.region).generation == at.generation
        };
        let live = voters.iter().all(|voter| is_live(voter.address));
        let is_whole = view.id == newest && (0..NODES).all(|node| is_named(&node)) && is_redundant && live;
        is_whole.then_some(leader)
    }

    /// Runs until all are members and all voters have everything.
    fn steady(&mut self) -> Result<(), String> {
        while self.cluster.now() < STEADY_WITHIN {
            let end = self.cluster.now() + LEASE.0;
            self.run_until(end)?;
            let all = self.cluster.view(0).members.len() == NODES as usize;
            if all && self.whole().is_some() {
                self.has_begun = true;
                return Ok(());
            }
        }
        Err(format!("invariant 12: no steady state: {}", self.states()))
    }

    /// Runs until all clients have their answers.
    fn all_answered(&mut self) -> Result<(), String> {
        self.unanswered()?.map_or(Ok(()), |client| {
            Err(format!("invariant 12: client {client} has no answer although no fault is left"))
        })
    }

    /// What an observer reads in the voters' memory is what the voters know of themselves, once the
    /// newest commit index has arrived everywhere.
    fn standings(&mut self) -> Result<(), String> {
        let mut last = Ok(());
        for _ in 0..STANDINGS_TRIES {
            let end = self.cluster.now() + AGAIN_EVERY_MAX.0;
            self.run_until(end)?;
            last = self.compare_standings();
            if last.is_ok() {
                break;
            }
        }
        last
    }

    fn compare_standings(&self) -> Result<(), String> {
        let leader =
            self.leader().ok_or_else(|| format!("no replica leads after all faults: {}", self.states()))?;
        let known = self.replica(leader).ok_or("the leader is a replica")?;
        let area = Area::of(self.cluster.layout()).expect("there is room");
        let part = area.shared();
        for voter in &known.config().voters {
            let node = voter.address.region;
            let replica = self.replica(node).ok_or("a voter is a replica")?;
            if Some(replica.applied()) < known.commit() {
                return Err(format!(
                    "invariant 12: {node} lacks entries although no fault is left: {}",
                    self.states()
                ));
            }
            let mut memory = vec![0; part.len()];
            copy_out(&self.cluster.memory(node)[part.start as usize / 8..], &mut memory);
            let read = Standing::of(&area, &memory).ok_or(format!("{node}: no standing"))?;
            let fresh =
                (read.log, read.term, read.accepted, Some(read.committed), read.applied, read.sessions);
            let sessions = replica.sessions() as u64;
            let own =
                (replica.log(), known.term(), replica.last(), known.commit(), replica.applied(), sessions);
            if read.granted != replica.granted() {
                return Err(format!("{node}: an observer reads {read:?}, not {}", replica.granted()));
            }
            if fresh != own || read.needs_snapshot == replica.is_whole() || read.pruned > read.applied {
                return Err(format!("{node}: an observer reads {read:?}, but the replica is at {own:?}"));
            }
            // All is applied, so nothing waits in the ring.
            if read.accepted == read.applied && read.ring_used != 0 {
                return Err(format!("{node}: {read:?}"));
            }
        }
        Ok(())
    }

    /// Waits until the last fault is over and all voters have everything.
    fn recover(&mut self) -> Result<u32, String> {
        self.end_faults();
        if std::mem::take(&mut self.lingers) {
            let aftermath = self.cluster.now() + AFTERMATH;
            self.work_until(aftermath)?;
        }
        self.work_until_found(RECOVERY_MAX, Self::whole)?
            .ok_or_else(|| format!("invariant 12: not redundant again: {}", self.states()))
    }

    /// Injects a fault into one replica, mostly the leader, after the previous one is over.
    fn inject(&mut self) -> Result<(), String> {
        let leader = self.recover()?;
        let victim = if self.rng.permille(800) { leader } else { self.any_replica() };
        let fault = self.rng.below(FAULTS);
        self.lingers = LINGERING.contains(&fault);
        self.inject_into(fault, victim..victim + 1, REPLICAS, CLIENTS)
    }

    /// The leader's replication plane stops. Clients have to get answers, and more than those that are
    /// on the way.
    fn stick(&mut self) -> Result<(), String> {
        let leader = self.recover()?;
        self.lingers = true;
        self.hold(leader, true);
        let (begun, before) = (self.cluster.now(), self.begun());
        while self.begun() < before + 2 * u32::from(CLIENTS.end as u8 - CLIENTS.start as u8) {
            if self.asked.values().all(|asked| asked.begun >= self.operations_max) {
                break;
            }
            if self.cluster.now() > begun + RECOVERY_MAX {
                return Err(format!(
                    "invariant 12: {leader} is stuck, and no other replica leads: {}",
                    self.states()
                ));
            }
            self.pause(40_000)?;
        }
        self.hold(leader, false);
        Ok(())
    }

    /// The others do not reach the leader, as over IP without its host's gateway. The next one has to
    /// lead, and the two must not lead in turns.
    fn close(&mut self) -> Result<(), String> {
        let leader = self.recover()?;
        self.lingers = true;
        let before = self.oracle.failovers;
        self.cluster.close(leader);
        self.pause(2_500_000)?;
        let changes = self.oracle.failovers - before;
        if changes > CHANGES_MAX {
            return Err(format!(
                "invariant 12: {leader} is not reached, and leaders changed {changes} times"
            ));
        }
        Ok(())
    }

    fn hold(&mut self, node: u32, is_held: bool) {
        if let Some(replica) = self.cluster.machine_mut(node).member_mut().and_then(Node::replica_mut) {
            replica.hold_replication(is_held);
        }
    }

    /// Operations that clients have begun.
    fn begun(&self) -> u32 {
        self.asked.values().map(|asked| asked.begun).sum()
    }

    fn any_replica(&mut self) -> u32 {
        REPLICAS.start + self.rng.below(u64::from(REPLICAS.end - REPLICAS.start)) as u32
    }

    /// Freezes or cuts off several replicas, the leader among them mostly, and kills one at most:
    /// a majority of memories remains, or comes back.
    fn inject_several(&mut self) -> Result<(), String> {
        let leader = self.recover()?;
        self.lingers = true;
        let mut kills = self.rng.coin();
        let first = if self.rng.permille(700) { leader } else { self.any_replica() };
        let count = 2 + self.rng.below(3);
        for n in 0..count {
            let victim = if n == 0 { first } else { self.any_replica() };
            match self.rng.below(4) {
                0 if kills => {
                    self.cluster.kill(victim);
                    kills = false;
                }
                0 | 1 => self.cluster.freeze(victim),
                2 => self.cut_off(&(victim..victim + 1), &CLIENTS, true),
                _ => {
                    let peer = self.any_replica();
                    self.cluster.cut_link(victim, peer);
                }
            }
            if self.rng.coin() {
                self.pause(500_000)?;
            }
            if self.rng.permille(300) {
                REPLICAS.for_each(|node| self.cluster.thaw(node));
            }
        }
        self.pause(900_000)
    }
}

impl<D: Detector, G: Guard> ServiceRun for Store<D, G> {
    type Machine = Process<Machine<D, G>>;

    fn cluster(&mut self) -> &mut Cluster<Self::Machine> {
        &mut self.cluster
    }

    fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    fn clients(&self) -> Range<u32> {
        if self.beside { REPLICAS } else { CLIENTS }
    }

    fn waits(&self, client: u32) -> bool {
        self.asked.get(&client).is_some_and(|asked| asked.waits_for.is_some())
    }

    fn machine(&mut self, node: u32) -> Self::Machine {
        let seed = self.rng.next_u64();
        if node < COORDINATORS {
            let coordinator = self.cluster.start(seed).coordinator(node as u16 + 1);
            return Process::Coordinator(Box::new(coordinator));
        }
        let area = Area::of(self.cluster.layout()).expect("there is room");
        let actor = if REPLICAS.contains(&node) {
            let replica = self.new_replica(node);
            let may_bootstrap = node == REPLICAS.start && !self.has_begun;
            let replica = if may_bootstrap { replica.founding(of_first_log(seed), VOTERS) } else { replica };
            Actor::Replica(Box::new(replica))
        } else {
            let client = Client::new(area, seed, POLL_EVERY, AGAIN_EVERY);
            let client = if node == CLIENTS.start { client.with_wakeups() } else { client };
            Actor::Client(Box::new(client))
        };
        let machine = Node::new(self.member(node, seed), actor);
        Process::Member(Box::new(if self.beside { self.with_client(node, area, machine) } else { machine }))
    }

    fn step(&mut self) -> Result<bool, String> {
        true_time_is(self.cluster.now());
        let Some(step) = self.cluster.step() else { return Ok(false) };
        if !REPLICAS.contains(&step.node) {
            return Ok(true);
        }
        let cluster = &self.cluster;
        let seen = |node| {
            let (state, generation) = (cluster.state(node), cluster.address(node).generation);
            Some(Seen { node, state, generation, replica: cluster.member(node)?.replica()? })
        };
        let all: Vec<Seen<'_, D, G>> = REPLICAS.filter_map(seen).collect();
        self.oracle.check(step.node, &all)?;
        // Like the real process: it leaves, and starts again.
        let state = self.replica(step.node).map(Replica::state);
        if state == Some(ReplicaState::Yields) && self.cluster.runs(step.node) {
            self.yields += 1;
            self.restart(step.node);
        }
        // And it ends.
        if state == Some(ReplicaState::Misfit) && self.cluster.runs(step.node) {
            self.cluster.kill(step.node);
        }
        Ok(true)
    }

    fn work(&mut self, client: u32) -> Result<(), String> {
        self.take_and_begin(client)
    }
}
