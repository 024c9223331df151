//! A cluster with replicas and clients in virtual time, and the faults that are injected.

mod work;

use crate::history::{Act, History, Puts, Watched, bytes, stamped_by_client};
use crate::oracle::{Oracle, Seen};
use obol_fabric::memory::copy_out;
use obol_fabric::{Address, Event, Fabric, Group, Instant, Layout, Limits, Machine, Name, Nanos};
use obol_fabric_sim::{Clock, Delay, Network, State, World};
use obol_membership::{ActiveMutant, Config, Coordinator, Kind, Member, Start, Timing, View};
use obol_rng::Rng;
#[cfg(feature = "mutants")]
use obol_smr::Mutant;
use obol_smr::identity::of_first_log;
use obol_smr::{
    Actor, Area, Client, Detector, Guard, KeyValue, Node, Operation, Pace, Replica, ReplicaState, Standing,
};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

mod outdated;
mod replaced;
mod sessions;
mod time;
mod voters;

const COORDINATORS: u32 = 3;
/// One more than there are voters.
const REPLICAS: Range<u32> = 3..7;
const CLIENTS: Range<u32> = 7..10;
const NODES: u32 = CLIENTS.end;
const VOTERS: u32 = 3;
const KEYS: u64 = 2;

const LEASE: Nanos = Nanos::from_micros(120);
const POLL_EVERY: Nanos = Nanos::from_micros(4);
const IDLE_EVERY: Nanos = Nanos::from_micros(12);
const CHUNK_TIMEOUT: Nanos = Nanos::from_micros(150);
const POLL_INTERVAL: Nanos = Nanos::from_micros(10);
/// The rates of clocks differ from that of true time by up to so much, where they do.
const DRIFT_PPB: u64 = 100_000;
const AGAIN_EVERY: Nanos = Nanos::from_micros(300);
const AGAIN_EVERY_MAX: Nanos = Nanos(32 * AGAIN_EVERY.0);
/// A new cluster serves within this time.
const STEADY_WITHIN: u64 = 30_000_000;
/// How long clients work while there are faults, and after them.
const FAULTS_LAST: u64 = 3_000_000;
const RECOVERY_MAX: u64 = 8_000_000;
/// A client's operations, at first; the checker's run time grows fast with a history's length.
const OPERATIONS_MAX: u32 = 60;
/// A replica that was frozen or cut off may still be removed this long after its recovery.
const AFTERMATH: u64 = 600_000;
/// A detector may suspect a leader whose turn stalls, so one look may find a change of leaders.
const STANDINGS_TRIES: u32 = 3;
/// Changes of leaders while one is not reached, at most: to its successor, and as many more as turns that
/// stall may cause. If leaders took turns, there would be up to 20.
const CHANGES_MAX: u64 = 9;
/// The longest pause of a client between two operations.
const THINK: u64 = 100_000;

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
    /// The bug of all replicas.
    #[cfg(feature = "mutants")]
    pub(crate) mutant: Option<Mutant>,
}

impl Plan {
    /// The timing of the membership. A leader that is not reached stays in the view: that excludes it
    /// otherwise before it has taken many turns.
    fn timing(&self, seed: u64) -> Timing {
        let timing = timing(!seed.is_multiple_of(3));
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

enum Role<D, G> {
    Coordinator(Box<Coordinator>),
    Node(Box<Node<Watched, D, G>>),
}

impl<D: Detector, G: Guard> Role<D, G> {
    fn view(&self) -> &Arc<View> {
        match self {
            Self::Coordinator(coordinator) => coordinator.view(),
            Self::Node(node) => node.member().view(),
        }
    }

    fn replica(&self) -> Option<&Replica<Watched, D, G>> {
        match self {
            Self::Coordinator(_) => None,
            Self::Node(node) => node.replica(),
        }
    }
}

impl<D: Detector, G: Guard> Machine for Role<D, G> {
    fn start<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        match self {
            Self::Coordinator(machine) => machine.start(now, fabric),
            Self::Node(machine) => machine.start(now, fabric),
        }
    }

    fn handle<F: Fabric>(&mut self, now: Instant, event: Event<'_>, fabric: &mut F) {
        match self {
            Self::Coordinator(machine) => machine.handle(now, event, fabric),
            Self::Node(machine) => machine.handle(now, event, fabric),
        }
    }

    fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        match self {
            Self::Coordinator(machine) => machine.tick(now, fabric),
            Self::Node(machine) => machine.tick(now, fabric),
        }
    }

    fn deadline(&self) -> Instant {
        match self {
            Self::Coordinator(machine) => machine.deadline(),
            Self::Node(machine) => machine.deadline(),
        }
    }
}

fn name(what: &str, number: u32) -> Name {
    Name::new(&format!("{what}{number}")).expect("a name")
}

fn timing(fencing: bool) -> Timing {
    Timing {
        lease: LEASE,
        lease_max: LEASE,
        lease_calm: Nanos::from_secs(1),
        renew_every: Nanos::from_micros(30),
        renew_timeout: Nanos::from_micros(60),
        cache_lease: LEASE,
        cache_timeout: Nanos::from_micros(40),
        fan_out_from: u32::MAX,
        drift_ppm: 100,
        fencing,
        heartbeat_every: Nanos::from_micros(20),
        heartbeat_period: Nanos::from_micros(200),
        heartbeat_confirm: 2,
        link_every: Nanos::from_micros(250),
        link_timeout: Nanos::from_millis(1),
        notice_every: Nanos::from_micros(50),
        join_every: Nanos::from_micros(200),
        join_burst: 1,
        standby: Nanos::from_millis(2),
        poll_every: Nanos::from_micros(50),
        backoff_max: Nanos::from_micros(10),
        resync_after: Nanos::from_millis(20),
        ..Timing::default()
    }
}

const LIMITS: Limits = Limits {
    slots: 8,
    proposers: COORDINATORS,
    // Rings of some thirty entries, and one block more than there are replicas and clients, so that some
    // begin at the same one.
    value_bytes: 6400,
    lanes: 16,
    lane_slots: 64,
    datagram_bytes: 4096,
    ..Limits::LEAST
};

fn network(seed: u64) -> Network {
    Network {
        one_way: Delay::new(800, 600),
        tear: Delay::new(10, 300),
        loss_permille: 10,
        duplicate_permille: 10,
        // Long enough for a frozen leader's lease to be fenced, short enough for it to resume what
        // it had begun.
        stall_permille: 10,
        stall: Delay::new(5_000, 20_000),
        // Two of them take a small part of a lease, or up to all of it.
        permit: if seed.is_multiple_of(2) { Delay::new(1_000, 4_000) } else { Delay::new(4_000, 50_000) },
        link_timeout: Delay::new(100_000, 50_000),
        record: false,
        count: false,
        ..Network::default()
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
pub(crate) struct Cluster<D, G> {
    world: World<Role<D, G>>,
    rng: Rng,
    #[cfg(feature = "mutants")]
    mutant: Option<Mutant>,
    config: Config,
    genesis: Arc<View>,
    history: History,
    puts: Puts,
    oracle: Oracle,
    /// By node.
    asked: BTreeMap<u32, ClientState>,
    beside: bool,
    next_value: u64,
    /// Operations that each client may begin.
    operations_max: u32,
    yields: u64,
    /// The store has begun: no replica may begin a log any more.
    has_begun: bool,
    trace: u64,
    /// A client that only reads at present, without a pause.
    reader: Option<u32>,
    /// Whether the last fault is over: suspects are removed, or not, within [`AFTERMATH`].
    lingers: bool,
}

impl Run {
    /// Runs a plan; the error describes the violation.
    pub(crate) fn of<D: Detector, G: Guard>(seed: u64, plan: Plan) -> Result<Self, String> {
        let mut cluster = Cluster::<D, G>::start(seed, &plan);
        cluster.steady()?;
        let begun = cluster.world.now();
        let mut faults: Vec<u64> = (0..plan.fault_count)
            .map(|_| begun + 200_000 + cluster.rng.below(FAULTS_LAST - 400_000))
            .collect();
        faults.sort_unstable();
        for at in faults {
            cluster.work_until(at)?;
            match plan.faults {
                Faults::Single => cluster.inject()?,
                Faults::Overlapping => cluster.inject_several()?,
                Faults::Deaf => cluster.deafen()?,
                Faults::Stuck => cluster.stick()?,
                Faults::Unreached => cluster.close()?,
            }
        }
        cluster.work_until(begun + FAULTS_LAST)?;
        cluster.recover()?;
        cluster.all_answered()?;
        cluster.standings()?;
        cluster.history.judge()?;
        cluster.judge_time()?;
        Ok(Self {
            yields: cluster.yields,
            operations: cluster.history.operations,
            failovers: cluster.oracle.failovers,
            configs: cluster.oracle.configs,
            recycled: cluster.oracle.recycled,
            trace: cluster.trace,
        })
    }
}

impl<D: Detector, G: Guard> Cluster<D, G> {
    fn start(seed: u64, plan: &Plan) -> Self {
        let layout = Layout::new(LIMITS).expect("within the bounds");
        let config = Config {
            release: obol_fabric::Release::THIS,
            timing: plan.timing(seed),
            layout,
            mutant: ActiveMutant::default(),
        };
        let seats: Vec<(Name, Address)> = (0..COORDINATORS)
            .map(|n| (name("coord-", n + 1), Address { generation: 1, ..Address::region(n) }))
            .collect();
        let genesis = Arc::new(View::genesis(&seats, LEASE, LEASE));
        let mut cluster = Self {
            world: World::new(layout, network(seed), seed),
            rng: Rng::new(seed ^ 0x736d_7200_0000_0000),
            #[cfg(feature = "mutants")]
            mutant: plan.mutant,
            config,
            genesis: Arc::clone(&genesis),
            history: History::default(),
            puts: Puts::default(),
            oracle: Oracle::default(),
            asked: BTreeMap::new(),
            beside: plan.beside,
            next_value: 1,
            operations_max: OPERATIONS_MAX,
            yields: 0,
            has_begun: false,
            trace: 0,
            reader: None,
            lingers: false,
        };
        for node in 0..NODES {
            let machine = cluster.machine(node);
            let group = if node < COORDINATORS { Group::Coordinators.bit() } else { 0 };
            // No two clocks agree.
            let offset = Instant(1_000_000 + cluster.rng.below(1 << 40));
            let rate =
                if plan.drifts { cluster.rng.below(2 * DRIFT_PPB) as i64 - DRIFT_PPB as i64 } else { 0 };
            let clock = Clock::new(offset, rate);
            cluster.world.add(machine, clock, group | Group::Everyone.bit());
        }
        cluster
    }

    fn machine(&mut self, node: u32) -> Role<D, G> {
        let (config, genesis, seed) = (self.config, Arc::clone(&self.genesis), self.rng.next_u64());
        if node < COORDINATORS {
            let start = Start::new(config, &genesis, [], seed);
            return Role::Coordinator(Box::new(start.coordinator(node as u16 + 1)));
        }
        let area = Area::of(&config.layout).expect("there is room");
        let actor = if REPLICAS.contains(&node) {
            let replica = self.new_replica();
            let may_bootstrap = node == REPLICAS.start && !self.has_begun;
            let replica = if may_bootstrap { replica.founding(of_first_log(seed), VOTERS) } else { replica };
            Actor::Replica(Box::new(replica))
        } else {
            let client = Client::new(area, seed, POLL_EVERY, AGAIN_EVERY);
            let client = if node == CLIENTS.start { client.with_wakeups() } else { client };
            Actor::Client(Box::new(client))
        };
        let machine = Node::new(self.member(node, seed), actor);
        Role::Node(Box::new(if self.beside { self.with_client(node, area, machine) } else { machine }))
    }

    /// A replica without a log.
    fn new_replica(&self) -> Replica<Watched, D, G> {
        let pace = Pace {
            poll_every: POLL_EVERY,
            idle_every: IDLE_EVERY,
            patience: CHUNK_TIMEOUT,
            look_every: POLL_INTERVAL,
        };
        let area = Area::of(&self.config.layout).expect("there is room");
        let replica = Replica::new(area, pace, Watched::default());
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
        Start::new(self.config, &self.genesis, [], seed).member(Kind::App, name)
    }

    fn replica(&self, node: u32) -> Option<&Replica<Watched, D, G>> {
        self.world.machine(node).replica()
    }

    fn states(&self) -> String {
        let state = |node| {
            let replica = self.replica(node);
            let index = replica.map(|it| (it.term().0, it.applied().0, it.last().0));
            (node, self.world.state(node), replica.map(Replica::state), index)
        };
        let config = self.leader().and_then(|node| self.replica(node)).map(|it| it.config().voters.clone());
        format!("{:?}, {config:?}", REPLICAS.map(state).collect::<Vec<_>>())
    }

    /// The replica that serves.
    fn leader(&self) -> Option<u32> {
        let serves = |node: &u32| {
            let state = self.replica(*node).map(Replica::state);
            self.world.state(*node) == State::Running
                && matches!(state, Some(ReplicaState::Leading { ready: true, .. }))
        };
        REPLICAS.filter(serves).max_by_key(|node| self.replica(*node).map(Replica::term))
    }

    /// The leader, if all processes that run are members and all voters have everything.
    fn whole(&self) -> Option<u32> {
        let leader = self.leader()?;
        let view = self.world.machine(leader).view();
        let newest = (0..NODES).map(|node| self.world.machine(node).view().id).max()?;
        let is_named = |node: &u32| {
            self.world.state(*node) != State::Running
                || view.members.iter().any(|it| it.address.region == *node)
        };
        let state = self.replica(leader)?.state();
        let is_redundant = state == ReplicaState::Leading { ready: true, redundancy: VOTERS as usize };
        let voters = &self.replica(leader)?.config().voters;
        let is_live = |at: Address| {
            self.world.state(at.region) == State::Running
                && self.world.address(at.region).generation == at.generation
        };
        let live = voters.iter().all(|voter| is_live(voter.address));
        let is_whole = view.id == newest && (0..NODES).all(|node| is_named(&node)) && is_redundant && live;
        is_whole.then_some(leader)
    }

    /// Runs until all are members and all voters have everything.
    fn steady(&mut self) -> Result<(), String> {
        while self.world.now() < STEADY_WITHIN {
            let end = self.world.now() + LEASE.0;
            self.run_until(end)?;
            let all = self.world.machine(0).view().members.len() == NODES as usize;
            if all && self.whole().is_some() {
                self.has_begun = true;
                return Ok(());
            }
        }
        Err(format!("invariant 12: no steady state: {}", self.states()))
    }

    /// Executes one event, and checks all that must hold.
    fn step(&mut self) -> Result<bool, String> {
        let Some(step) = self.world.step() else { return Ok(false) };
        self.trace = self.trace.rotate_left(7) ^ step.time ^ u64::from(step.node);
        if REPLICAS.contains(&step.node) {
            let world = &self.world;
            let seen = |node| {
                let (state, generation) = (world.state(node), world.address(node).generation);
                Some(Seen { node, state, generation, replica: world.machine(node).replica()? })
            };
            let all: Vec<Seen<'_, D, G>> = REPLICAS.filter_map(seen).collect();
            self.oracle.check(step.node, &all)?;
            // Like the real process: it leaves, and starts again.
            let state = self.replica(step.node).map(Replica::state);
            if state == Some(ReplicaState::Yields) && self.world.state(step.node) == State::Running {
                self.yields += 1;
                let machine = self.machine(step.node);
                self.world.restart(step.node, machine, false);
            }
            // And it ends.
            if state == Some(ReplicaState::Misfit) && self.world.state(step.node) == State::Running {
                self.world.kill(step.node);
            }
        }
        Ok(true)
    }

    fn run_until(&mut self, end: u64) -> Result<(), String> {
        while self.world.now() < end && self.step()? {}
        Ok(())
    }

    /// Lets clients work until a time.
    fn work_until(&mut self, end: u64) -> Result<(), String> {
        while self.world.now() < end {
            for client in self.callers() {
                self.work(client)?;
            }
            if !self.step()? {
                break;
            }
        }
        Ok(())
    }

    /// Runs until all clients have their answers, which includes the longest retry interval.
    fn all_answered(&mut self) -> Result<(), String> {
        let end = self.world.now() + 2 * AGAIN_EVERY_MAX.0;
        let waits = |cluster: &Self| {
            cluster.asked.iter().find(|(_, asked)| asked.waits_for.is_some()).map(|(client, _)| *client)
        };
        while let Some(client) = waits(self) {
            let now = self.world.now();
            if now >= end {
                return Err(format!("invariant 12: client {client} has no answer although no fault is left"));
            }
            self.work_until(now + AGAIN_EVERY.0)?;
        }
        Ok(())
    }

    /// What an observer reads in the voters' memory is what the voters know of themselves, once the
    /// newest commit index has arrived everywhere.
    fn standings(&mut self) -> Result<(), String> {
        let mut last = Ok(());
        for _ in 0..STANDINGS_TRIES {
            let end = self.world.now() + AGAIN_EVERY_MAX.0;
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
        let area = Area::of(&self.config.layout).expect("there is room");
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
            copy_out(&self.world.memory(node)[part.start as usize / 8..], &mut memory);
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
            let aftermath = self.world.now() + AFTERMATH;
            self.work_until(aftermath)?;
        }
        let deadline = self.world.now() + RECOVERY_MAX;
        loop {
            if let Some(leader) = self.whole() {
                return Ok(leader);
            }
            if self.world.now() > deadline {
                return Err(format!("invariant 12: not redundant again: {}", self.states()));
            }
            let soon = self.world.now() + 20_000;
            self.work_until(soon)?;
        }
    }

    /// Injects a fault into one replica, mostly the leader, after the previous one is over.
    fn inject(&mut self) -> Result<(), String> {
        let leader = self.recover()?;
        let victim = if self.rng.permille(800) { leader } else { self.any_replica() };
        let fault = self.rng.below(5);
        self.lingers = matches!(fault, 1..=3);
        match fault {
            0 => self.world.kill(victim),
            1 => {
                self.world.freeze(victim);
                // It resumes what it had begun, before or after the others notice.
                self.pause(900_000)?;
                self.world.thaw(victim);
            }
            2 => {
                self.cut_off(victim, true);
                self.pause(900_000)?;
            }
            // It receives nothing but can send: the view without it is decided while its lease
            // runs.
            3 => {
                self.cut_off(victim, false);
                self.world.suspect(victim, 0);
                self.pause(600_000)?;
            }
            // What is not replicated dies with it.
            _ => {
                for peer in REPLICAS.filter(|peer| *peer != victim) {
                    self.cut(victim, peer);
                }
                self.pause(70_000)?;
                self.world.kill(victim);
            }
        }
        Ok(())
    }

    /// The leader's replication plane stops. Clients have to get answers, and more than those that are
    /// on the way.
    fn stick(&mut self) -> Result<(), String> {
        let leader = self.recover()?;
        self.lingers = true;
        self.hold(leader, true);
        let (begun, before) = (self.world.now(), self.begun());
        while self.begun() < before + 2 * u32::from(CLIENTS.end as u8 - CLIENTS.start as u8) {
            if self.asked.values().all(|asked| asked.begun >= self.operations_max) {
                break;
            }
            if self.world.now() > begun + RECOVERY_MAX {
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
        self.world.close(leader);
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
        if let Role::Node(node) = self.world.machine_mut(node)
            && let Some(replica) = node.replica_mut()
        {
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
                    self.world.kill(victim);
                    kills = false;
                }
                0 | 1 => self.world.freeze(victim),
                2 => self.cut_off(victim, true),
                _ => {
                    let peer = self.any_replica();
                    self.cut(victim, peer);
                }
            }
            if self.rng.coin() {
                self.pause(500_000)?;
            }
            if self.rng.permille(300) {
                REPLICAS.for_each(|node| self.world.thaw(node));
            }
        }
        self.pause(900_000)
    }

    fn pause(&mut self, longest: u64) -> Result<(), String> {
        let end = self.world.now() + longest / 4 + self.rng.below(longest);
        self.work_until(end)
    }

    fn cut(&mut self, one: u32, other: u32) {
        self.world.partition(one, other);
        self.world.partition(other, one);
    }

    /// Cuts a replica off from the coordinators, and mostly a client with it, which then knows no
    /// other leader.
    fn cut_off(&mut self, victim: u32, both_ways: bool) {
        let client = CLIENTS.start + self.rng.below(3) as u32;
        let with_client = self.rng.permille(700);
        for coordinator in 0..COORDINATORS {
            for node in [victim].into_iter().chain(with_client.then_some(client)) {
                self.world.partition(coordinator, node);
                if both_ways {
                    self.world.partition(node, coordinator);
                }
            }
        }
    }

    fn end_faults(&mut self) {
        for node in 0..NODES {
            self.world.open(node);
            for peer in 0..NODES {
                self.world.heal(node, peer);
            }
        }
        for node in COORDINATORS..NODES {
            self.world.thaw(node);
            if self.world.state(node) == State::Dead {
                let machine = self.machine(node);
                self.world.restart(node, machine, false);
            }
        }
    }
}
