//! A cluster with servers and clients in virtual time, and the faults that are injected.

use crate::history::{History, bytes};
use obol_fabric::{Address, Event, Fabric, Group, Instant, Layout, Limits, Machine, Name, Nanos};
use obol_fabric_sim::{Clock, Delay, Network, State, World};
#[cfg(feature = "mutants")]
use obol_kv::Mutant;
use obol_kv::{Area, Client, Node, Operation, Server, ServerState, Service, Shard};
use obol_membership::{ActiveMutant, Config, Coordinator, Kind, Start, Timing, View};
use obol_rng::Rng;
use std::ops::Range;
use std::sync::Arc;

const COORDINATORS: u32 = 3;
/// Processes of the cache. Each is a node for each shard, as threads that are members.
const PROCESSES: u32 = 3;
/// With one shard, the nodes in between are idle members.
const CLIENTS: Range<u32> = 9..12;
const NODES: u32 = CLIENTS.end;
/// With two shards, one key each.
const KEYS: u64 = 2;

const LEASE: Nanos = Nanos::from_micros(120);
const POLL_EVERY: Nanos = Nanos::from_micros(4);
const AGAIN_EVERY: Nanos = Nanos::from_micros(300);
const AGAIN_EVERY_MAX: Nanos = Nanos(32 * AGAIN_EVERY.0);
/// A new cluster serves within this time.
const STEADY_WITHIN: u64 = 20_000_000;
/// How long clients work while there are faults, and after them.
const FAULTS_LAST: u64 = 3_000_000;
const RECOVERY_MAX: u64 = 4_000_000;
/// A client's operations; the checker's run time grows fast with a history's length.
const OPERATIONS_MAX: u32 = 60;
/// A server that was frozen or cut off may still be removed this long after its recovery.
const AFTERMATH: u64 = 600_000;
/// The longest pause of a client between two operations.
const THINK: u64 = 100_000;

/// The faults of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Kills or freezes of servers.
    pub(crate) fault_count: u32,
    pub(crate) shards: u32,
    pub(crate) faults: Faults,
    /// The bug of all servers.
    #[cfg(feature = "mutants")]
    pub(crate) mutant: Option<Mutant>,
}

/// How faults follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Faults {
    /// One at a time.
    Single,
    /// A server is frozen, and another dies before redundancy is restored.
    Overlapping,
    /// Servers are frozen and die until possibly none with the complete state is left.
    Catastrophic,
}

impl Plan {
    pub(crate) const fn faults(seed: u64) -> Self {
        Self::of(seed, Faults::Single)
    }

    pub(crate) const fn of(seed: u64, faults: Faults) -> Self {
        Self {
            fault_count: 1 + (seed % 3) as u32,
            shards: 1 + (seed % 2) as u32,
            faults,
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }
}

/// The outcome of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) operations: usize,
    /// Changes of primaries.
    pub(crate) failovers: u64,
    /// Whether the last primary of each shard has a backup with everything.
    pub(crate) is_redundant: bool,
    /// The servers' final states.
    pub(crate) server_states: String,
    /// Shards that have stopped at the end, because the state is missing.
    pub(crate) stopped: usize,
    /// Servers that were excluded with the state and served it again.
    pub(crate) yields: u64,
    /// Differs between different runs.
    pub(crate) trace: u64,
}

enum Role {
    Coordinator(Box<Coordinator>),
    Node(Box<Node>),
}

impl Role {
    fn view(&self) -> &Arc<View> {
        match self {
            Self::Coordinator(coordinator) => coordinator.view(),
            Self::Node(node) => node.member().view(),
        }
    }
}

impl Machine for Role {
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
    Name::new(&format!("{what}-{number}")).expect("a name")
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
    // Seven blocks, so that some clients collide.
    value_bytes: 5504,
    lanes: 16,
    lane_slots: 64,
    datagram_bytes: 4096,
    ..Limits::LEAST
};

fn network() -> Network {
    Network {
        one_way: Delay::new(800, 600),
        tear: Delay::new(10, 300),
        loss_permille: 10,
        duplicate_permille: 10,
        // Long enough for a frozen primary's lease to be fenced, short enough for it to resume what
        // it had begun.
        stall_permille: 10,
        stall: Delay::new(5_000, 20_000),
        link_timeout: Delay::new(100_000, 50_000),
        record: false,
        count: false,
        ..Network::default()
    }
}

#[derive(Default)]
struct ClientState {
    waits_for: Option<Operation>,
    begun: u32,
    /// When it begins its next operation.
    next_at: u64,
}

/// The cluster and what its clients do.
struct Cluster {
    world: World<Role>,
    rng: Rng,
    #[cfg(feature = "mutants")]
    mutant: Option<Mutant>,
    config: Config,
    genesis: Arc<View>,
    history: History,
    /// By client.
    asked: [ClientState; CLIENTS.end as usize - CLIENTS.start as usize],
    next_value: u64,
    failovers: u64,
    yields: u64,
    faults: Faults,
    /// The cache has begun: no server may start empty any more.
    has_begun: bool,
    shards: u32,
    /// By shard.
    primaries: Vec<Option<u32>>,
    trace: u64,
    /// Whether the last fault is over: suspects are removed, or not, within [`AFTERMATH`].
    lingers: bool,
}

impl Run {
    /// Runs a plan; the error describes the violation.
    pub(crate) fn of(seed: u64, plan: Plan) -> Result<Self, String> {
        let mut cluster = Cluster::start(seed, &plan);
        cluster.steady()?;
        let begun = cluster.world.now();
        let mut fault_count: Vec<u64> = (0..plan.fault_count)
            .map(|_| begun + 200_000 + cluster.rng.below(FAULTS_LAST - 400_000))
            .collect();
        fault_count.sort_unstable();
        for at in fault_count {
            cluster.work_until(at)?;
            match plan.faults {
                Faults::Single => cluster.inject()?,
                Faults::Overlapping => cluster.inject_overlapping()?,
                Faults::Catastrophic => cluster.inject_catastrophic()?,
            }
        }
        cluster.work_until(begun + FAULTS_LAST)?;
        // Faults wait for each other, so the last one may end long after that.
        cluster.end_faults();
        let recovered = cluster.world.now();
        cluster.work_until(recovered + RECOVERY_MAX)?;
        let stopped = Shard::split(plan.shards).filter(|shard| cluster.has_stopped(*shard)).count();
        if stopped == 0 {
            cluster.all_answered()?;
        }
        cluster.history.judge()?;
        Ok(Self {
            stopped,
            yields: cluster.yields,
            operations: cluster.history.operations,
            failovers: cluster.failovers,
            is_redundant: Shard::split(plan.shards)
                .all(|shard| cluster.serving(shard).is_some_and(|node| cluster.has_backup(node))),
            server_states: format!("{:?}", cluster.server_states()),
            trace: cluster.trace,
        })
    }
}

/// Freezes a server that must not rejoin until it is excluded. Returns whether it and the view know
/// that, and how many members joined afterwards.
pub(crate) fn excluded(seed: u64) -> Result<(bool, bool, u64), String> {
    let plan = Plan { shards: 1, ..Plan::faults(seed) };
    let mut cluster = Cluster::start(seed, &plan);
    cluster.steady()?;
    let spare = cluster.servers().end - 1;
    let Role::Node(node) = cluster.machine(spare) else { return Err("no server".to_owned()) };
    cluster.world.kill(spare);
    let removed = cluster.world.now() + RECOVERY_MAX;
    cluster.world.run_until(removed);
    cluster.world.restart(spare, Role::Node(Box::new(node.once())), false);
    let wait = |cluster: &mut Cluster| {
        let end = cluster.world.now() + RECOVERY_MAX;
        cluster.world.run_until(end);
        let view = cluster.world.machine(0).view();
        (view.members.iter().any(|member| member.address.region == spare), view.next_incarnation.0)
    };
    if !wait(&mut cluster).0 {
        return Err("it is not a member".to_owned());
    }
    cluster.world.freeze(spare);
    let (is_member, before) = wait(&mut cluster);
    cluster.world.thaw(spare);
    let (_, after) = wait(&mut cluster);
    let is_over = matches!(cluster.world.machine(spare), Role::Node(node) if node.is_over());
    Ok((is_over, !is_member, after - before))
}

/// Freezes a server and kills the others, which come back without the state while it is excluded.
/// It resumes with the only copy, and often learns late of the views without those that yield to it.
/// Returns the number of yields, and the states of the servers.
pub(crate) fn only_copy(seed: u64) -> Result<(u64, Vec<Option<ServerState>>), String> {
    let plan = Plan { shards: 1, ..Plan::of(seed, Faults::Catastrophic) };
    let mut cluster = Cluster::start(seed, &plan);
    cluster.steady()?;
    let has_state = cluster.servers().start + cluster.rng.below(u64::from(PROCESSES)) as u32;
    for node in cluster.servers().filter(|node| *node != has_state) {
        cluster.world.kill(node);
    }
    cluster.world.freeze(has_state);
    let excluded = cluster.world.now() + RECOVERY_MAX;
    cluster.work_until(excluded)?;
    for node in cluster.servers().filter(|node| *node != has_state) {
        let machine = cluster.machine(node);
        cluster.world.restart(node, machine, false);
        cluster.pause(400_000)?;
    }
    cluster.world.thaw(has_state);
    let end = cluster.world.now() + RECOVERY_MAX;
    let mut yields = 0;
    while cluster.world.now() < end {
        let soon = cluster.world.now() + 10_000;
        cluster.work_until(soon)?;
        if cluster.yields > yields && cluster.rng.coin() {
            for coordinator in 0..COORDINATORS {
                cluster.world.partition(coordinator, has_state);
            }
            cluster.pause(100_000)?;
            cluster.end_faults();
        }
        yields = cluster.yields;
    }
    cluster.all_answered()?;
    cluster.history.judge()?;
    Ok((yields, cluster.server_states()))
}

/// The state of a server with another number of shards that joins a cache of one shard, and the
/// states of the cache's servers.
pub(crate) fn misfit(seed: u64) -> Result<(Option<ServerState>, Vec<Option<ServerState>>), String> {
    let plan = Plan { shards: 1, ..Plan::faults(seed) };
    let mut cluster = Cluster::start(seed, &plan);
    cluster.steady()?;
    // An idle member until then.
    let odd = CLIENTS.start - 1;
    let shard = Shard::split(2).next().ok_or("no shard")?;
    let area = Area::of(&cluster.config.layout).ok_or("no room")?;
    let server = Server::new(area, shard, POLL_EVERY, Arc::clone(&cluster.genesis));
    let name = shard.name(name("kv", 9)).map_err(|error| error.to_string())?;
    let member = Start::new(cluster.config, &cluster.genesis, [], seed).member(Kind::App, name);
    let node = Node::new(member, Service::Server(Box::new(server)));
    cluster.world.kill(odd);
    cluster.world.restart(odd, Role::Node(Box::new(node)), false);
    let end = cluster.world.now() + RECOVERY_MAX;
    cluster.work_until(end)?;
    cluster.history.judge()?;
    Ok((cluster.server_state(odd), cluster.server_states()))
}

impl Cluster {
    fn start(seed: u64, plan: &Plan) -> Self {
        let layout = Layout::new(LIMITS).expect("within the bounds");
        let config = Config {
            release: obol_fabric::Release::THIS,
            timing: timing(!seed.is_multiple_of(3)),
            layout,
            mutant: ActiveMutant::default(),
        };
        let seats: Vec<(Name, Address)> = (0..COORDINATORS)
            .map(|n| (name("coord", n + 1), Address { generation: 1, ..Address::region(n) }))
            .collect();
        let genesis = Arc::new(View::genesis(&seats, LEASE, LEASE));
        let mut cluster = Self {
            world: World::new(layout, network(), seed),
            rng: Rng::new(seed ^ 0x6b76_0000_0000_0000),
            #[cfg(feature = "mutants")]
            mutant: plan.mutant,
            config,
            genesis: Arc::clone(&genesis),
            history: History::default(),
            asked: Default::default(),
            next_value: 1,
            failovers: 0,
            yields: 0,
            faults: plan.faults,
            has_begun: false,
            shards: plan.shards,
            primaries: Vec::new(),
            trace: 0,
            lingers: false,
        };
        for node in 0..NODES {
            let machine = cluster.machine(node);
            let group = if node < COORDINATORS { Group::Coordinators.bit() } else { 0 };
            let clock = Clock::new(Instant(1_000_000 + cluster.rng.below(1 << 40)), 0);
            cluster.world.add(machine, clock, group | Group::Everyone.bit());
        }
        cluster
    }

    fn machine(&mut self, node: u32) -> Role {
        let (config, genesis, seed) = (self.config, Arc::clone(&self.genesis), self.rng.next_u64());
        if node < COORDINATORS {
            let start = Start::new(config, &genesis, [], seed);
            return Role::Coordinator(Box::new(start.coordinator(node as u16 + 1)));
        }
        let area = Area::of(&config.layout).expect("there is room");
        let (name, service) = if let Some((process, shard)) = self.serves(node) {
            let server = Server::new(area, shard, POLL_EVERY, Arc::clone(&genesis));
            let server = if self.has_begun { server } else { server.beginning() };
            #[cfg(feature = "mutants")]
            let server = match self.mutant {
                Some(mutant) => server.with_mutant(mutant),
                None => server,
            };
            (shard.name(name("kv", process)).expect("a name"), Service::Server(Box::new(server)))
        } else {
            let client = Client::new(area, seed, POLL_EVERY, AGAIN_EVERY);
            let client = if node == CLIENTS.start { client.with_wakeups() } else { client };
            (name("client", node), Service::Client(Box::new(client)))
        };
        let member = Start::new(config, &genesis, [], seed).member(Kind::App, name);
        Role::Node(Box::new(Node::new(member, service)))
    }

    /// The nodes of a process, one for each shard.
    const fn nodes_of(&self, process: u32) -> Range<u32> {
        let begin = COORDINATORS + process * self.shards;
        begin..begin + self.shards
    }

    const fn servers(&self) -> Range<u32> {
        COORDINATORS..COORDINATORS + PROCESSES * self.shards
    }

    /// The process and the shard of a server's node.
    fn serves(&self, node: u32) -> Option<(u32, Shard)> {
        let at = node.checked_sub(COORDINATORS).filter(|_| self.servers().contains(&node))?;
        let shard = Shard::split(self.shards).nth((at % self.shards) as usize)?;
        Some((at / self.shards, shard))
    }

    fn server_states(&self) -> Vec<Option<ServerState>> {
        self.servers().map(|node| self.server_state(node)).collect()
    }

    fn server_state(&self, node: u32) -> Option<ServerState> {
        match self.world.machine(node) {
            Role::Node(machine) => machine.server().map(Server::state),
            Role::Coordinator(_) => None,
        }
    }

    /// Whether the backup has what existed when it joined; a PUT may be outstanding.
    fn has_backup(&self, node: u32) -> bool {
        match self.world.machine(node) {
            Role::Node(machine) => machine.server().is_some_and(Server::has_synced_backups),
            Role::Coordinator(_) => false,
        }
    }

    /// The server that acts as primary of a shard, in the newest view of any server.
    fn serving(&self, shard: Shard) -> Option<u32> {
        let serves = |node: &u32| {
            self.serves(*node).is_some_and(|(_, whose)| whose == shard)
                && self.world.state(*node) == State::Running
                && matches!(self.server_state(*node), Some(ServerState::Primary { .. }))
        };
        self.servers().filter(serves).max_by_key(|node| self.world.machine(*node).view().id)
    }

    /// The primaries by shard, if all processes run and know the newest view, and all backups have
    /// everything.
    fn complete(&self) -> Option<Vec<u32>> {
        Shard::split(self.shards).map(|shard| self.whole_shard(shard)).collect()
    }

    fn whole_shard(&self, shard: Shard) -> Option<u32> {
        let views = (0..NODES).map(|node| self.world.machine(node).view());
        let newest = views.max_by_key(|view| view.id)?;
        let named: Vec<u32> = obol_kv::servers(newest, shard).map(|member| member.address.region).collect();
        let stand = |node: &u32| {
            let knows = self.world.machine(*node).view().id == newest.id;
            self.server_state(*node).filter(|_| knows && self.world.state(*node) == State::Running)
        };
        let server_states: Vec<Option<ServerState>> = named.iter().map(stand).collect();
        let is_complete = matches!(
            server_states[..],
            [
                Some(ServerState::Primary { redundant: true }),
                Some(ServerState::Backup { synced: true }),
                Some(ServerState::Backup { synced: true })
            ]
        );
        named.first().copied().filter(|_| is_complete)
    }

    /// Runs until all are members and the primaries have backups.
    fn steady(&mut self) -> Result<(), String> {
        while self.world.now() < STEADY_WITHIN {
            let end = self.world.now() + LEASE.0;
            self.world.run_until(end);
            let all = self.world.machine(0).view().members.len() == NODES as usize;
            if let Some(primaries) = self.complete().filter(|_| all) {
                self.primaries = primaries.into_iter().map(Some).collect();
                self.has_begun = true;
                return Ok(());
            }
        }
        Err(format!("no steady state: {:?}, {:?}", self.world.machine(0).view(), self.server_states()))
    }

    /// Lets clients work until a time.
    fn work_until(&mut self, end: u64) -> Result<(), String> {
        while self.world.now() < end {
            for client in CLIENTS {
                self.work(client)?;
            }
            let Some(step) = self.world.step() else { break };
            self.trace = self.trace.rotate_left(7) ^ step.time ^ u64::from(step.node);
            if let Some((_, shard)) = self.serves(step.node) {
                match self.server_state(step.node) {
                    Some(ServerState::Stopped) if self.faults != Faults::Catastrophic => {
                        return Err(format!("server {} has lost the state, though one was left", step.node));
                    }
                    // Like the real process: it leaves, and rejoins as the youngest.
                    Some(ServerState::Yields) => {
                        self.yields += 1;
                        self.world.kill(step.node);
                        let machine = self.machine(step.node);
                        self.world.restart(step.node, machine, false);
                    }
                    _ => {}
                }
                let serving = self.serving(shard);
                let known = &mut self.primaries[shard.index() as usize];
                if serving.is_some() && serving != *known {
                    self.failovers += u64::from(known.is_some());
                    *known = serving;
                }
            }
        }
        Ok(())
    }

    /// Runs until all clients have their answers, which includes the longest retry interval.
    fn all_answered(&mut self) -> Result<(), String> {
        let end = self.world.now() + 2 * AGAIN_EVERY_MAX.0;
        while let Some(client) = self.asked.iter().position(|asked| asked.waits_for.is_some()) {
            let now = self.world.now();
            if now >= end {
                return Err(format!("client {client} has no answer although no fault is left"));
            }
            self.work_until(now + AGAIN_EVERY.0)?;
        }
        Ok(())
    }

    /// Takes a client's answer, and begins its next operation.
    fn work(&mut self, client: u32) -> Result<(), String> {
        let at = (client - CLIENTS.start) as usize;
        let now = self.world.now();
        let Role::Node(machine) = self.world.machine_mut(client) else { return Ok(()) };
        if let Some(done) = machine.client().and_then(Client::take)
            && let Some(asked) = self.asked[at].waits_for.take()
        {
            self.history.ends(client, &asked, &done)?;
            // Mostly at once, to detect lost or stale values.
            let pause = if self.rng.coin() { 0 } else { self.rng.below(THINK) };
            self.asked[at].next_at = now + pause;
        }
        let asked = &self.asked[at];
        if asked.waits_for.is_some() || asked.begun >= OPERATIONS_MAX || now < asked.next_at {
            return Ok(());
        }
        let key = self.rng.below(KEYS);
        let operation = if self.rng.coin() {
            self.next_value += 1;
            Operation::Put(key, bytes(self.next_value))
        } else {
            Operation::Get(key)
        };
        let begun = self.world.with_machine(client, |role, now, port| match role {
            Role::Node(node) => node.client().map(|it| it.begin(now, operation.clone(), port).is_ok()),
            Role::Coordinator(_) => None,
        });
        if begun.flatten() == Some(true) {
            self.history.begins(client, &operation)?;
            self.asked[at].waits_for = Some(operation);
            self.asked[at].begun += 1;
        }
        Ok(())
    }

    /// Injects a fault into a server, mostly the primary, after the previous one is over: the
    /// service tolerates one at a time.
    fn inject(&mut self) -> Result<(), String> {
        self.end_faults();
        if std::mem::take(&mut self.lingers) {
            let aftermath = self.world.now() + AFTERMATH;
            self.work_until(aftermath)?;
        }
        let deadline = self.world.now() + RECOVERY_MAX;
        let primaries = loop {
            if let Some(primaries) = self.complete() {
                break primaries;
            }
            if self.world.now() > deadline {
                return Err(format!("not redundant again: {:?}", self.server_states()));
            }
            let soon = self.world.now() + 20_000;
            self.work_until(soon)?;
        };
        let primary = primaries[self.rng.below(u64::from(self.shards)) as usize];
        let all = self.servers();
        let victim = if self.rng.permille(800) {
            primary
        } else {
            all.start + self.rng.below(u64::from(all.end - all.start)) as u32
        };
        // A process with all its threads, or one thread.
        let process = self.serves(victim).map_or(0, |(process, _)| process);
        let victims = if self.rng.coin() { self.nodes_of(process) } else { victim..victim + 1 };
        let fault = self.rng.below(5);
        self.lingers = matches!(fault, 1..=3);
        // An idle member goes as well, which may move a client to another block.
        let idle = u64::from(CLIENTS.start - all.end);
        if idle > 0 && self.rng.coin() {
            let gone = all.end + self.rng.below(idle) as u32;
            self.world.kill(gone);
        }
        match fault {
            0 => victims.for_each(|victim| self.world.kill(victim)),
            1 => {
                victims.clone().for_each(|victim| self.world.freeze(victim));
                // It resumes what it had begun, before or after the others notice.
                self.pause(900_000)?;
                victims.for_each(|victim| self.world.thaw(victim));
            }
            2 => {
                self.cut_off(&victims, true);
                self.pause(900_000)?;
            }
            // It receives nothing but can send: the view without it is decided while its lease
            // runs.
            3 => {
                self.cut_off(&victims, false);
                victims.for_each(|victim| self.world.suspect(victim, 0));
                self.pause(600_000)?;
            }
            // PUTs that are not replicated die with it. A longer cut would be a fault of its own.
            _ => {
                for victim in victims.clone() {
                    for server in self.servers().filter(|server| !victims.contains(server)) {
                        self.cut(victim, server);
                    }
                }
                self.pause(70_000)?;
                victims.for_each(|victim| self.world.kill(victim));
            }
        }
        Ok(())
    }

    /// Whether a shard is not served because the state is missing.
    fn has_stopped(&self, shard: Shard) -> bool {
        let stops = |node: u32| {
            self.serves(node).is_some_and(|(_, whose)| whose == shard)
                && self.server_state(node) == Some(ServerState::Stopped)
        };
        self.serving(shard).is_none() && self.servers().any(stops)
    }

    /// Waits until redundancy is restored and the last fault is over.
    fn recover(&mut self) -> Result<Option<Vec<u32>>, String> {
        self.end_faults();
        let end = self.world.now() + AFTERMATH;
        self.work_until(end)?;
        let deadline = self.world.now() + RECOVERY_MAX;
        loop {
            if let Some(primaries) = self.complete() {
                return Ok(Some(primaries));
            }
            if self.world.now() > deadline {
                return Ok(None);
            }
            let soon = self.world.now() + 20_000;
            self.work_until(soon)?;
        }
    }

    /// Freezes a process, and kills another while it is frozen or just afterwards. The frozen one
    /// may have been removed meanwhile.
    fn inject_overlapping(&mut self) -> Result<(), String> {
        let Some(primaries) = self.recover()? else {
            return Err(format!("not redundant again: {:?}", self.server_states()));
        };
        let leads = self.serves(primaries[0]).map_or(0, |(process, _)| process);
        let one = if self.rng.coin() { leads } else { self.rng.below(u64::from(PROCESSES)) as u32 };
        let other = (one + 1 + self.rng.below(u64::from(PROCESSES) - 1) as u32) % PROCESSES;
        self.nodes_of(one).for_each(|node| self.world.freeze(node));
        if self.rng.coin() {
            // Soon, and cut off the third process, which must have what was answered already.
            let third = PROCESSES - one - other;
            for (node, peer) in self.nodes_of(other).zip(self.nodes_of(third)) {
                self.cut(node, peer);
            }
            self.pause(70_000)?;
        } else {
            self.pause(600_000)?;
        }
        self.nodes_of(other).for_each(|node| self.world.kill(node));
        self.pause(600_000)?;
        self.nodes_of(one).for_each(|node| self.world.thaw(node));
        Ok(())
    }

    /// Freezes and kills processes one after the other, without time to restore redundancy.
    fn inject_catastrophic(&mut self) -> Result<(), String> {
        if self.recover()?.is_none() {
            // It has stopped for good, or until a frozen server resumes, which is what the test
            // covers.
            return Ok(());
        }
        let first = self.rng.below(u64::from(PROCESSES)) as u32;
        for n in 0..PROCESSES {
            let process = (first + n) % PROCESSES;
            let freezes = self.rng.coin();
            for node in self.nodes_of(process) {
                if freezes { self.world.freeze(node) } else { self.world.kill(node) }
            }
            if self.rng.coin() {
                self.pause(400_000)?;
            }
            if !freezes && self.rng.coin() {
                for node in self.nodes_of(process) {
                    let machine = self.machine(node);
                    self.world.restart(node, machine, false);
                }
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

    /// Cuts servers off from the coordinators, and mostly a client with them, which then knows no
    /// other primary.
    fn cut_off(&mut self, victims: &Range<u32>, both_ways: bool) {
        let client = CLIENTS.start + self.rng.below(3) as u32;
        let with_client = self.rng.permille(700);
        for coordinator in 0..COORDINATORS {
            for node in victims.clone().chain(with_client.then_some(client)) {
                self.world.partition(coordinator, node);
                if both_ways {
                    self.world.partition(node, coordinator);
                }
            }
        }
    }

    fn end_faults(&mut self) {
        for node in 0..NODES {
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
