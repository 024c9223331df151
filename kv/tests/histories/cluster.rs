//! A cluster with servers and clients in virtual time, and the faults that are injected.

use crate::history::{History, bytes};
use obol_cluster_sim::service::{
    self, AFTERMATH, AGAIN_EVERY, COORDINATORS, FAULTS, FAULTS_LAST, LEASE, LINGERING, OPERATIONS_MAX,
    POLL_EVERY, ServiceRun, THINK,
};
use obol_cluster_sim::{Cluster, Process};
use obol_fabric::{Instant, Layout, Limits, Name};
use obol_fabric_sim::Clock;
#[cfg(feature = "mutants")]
use obol_kv::Mutant;
use obol_kv::{Area, Client, Node, Operation, Server, ServerState, Service, Shard};
use obol_membership::{ActiveMutant, Config, Kind};
use obol_rng::Rng;
use std::ops::Range;
use std::sync::Arc;

/// Processes of the cache. Each is a node for each shard, as threads that are members.
const PROCESSES: u32 = 3;
/// With one shard, the nodes in between are idle members.
const CLIENTS: Range<u32> = 9..12;
const NODES: u32 = CLIENTS.end;
/// With two shards, one key each.
const KEYS: u64 = 2;

/// Seven blocks, so that some clients collide.
const LIMITS: Limits = Limits { value_bytes: 5504, ..service::LIMITS };
/// A new cluster serves within this time.
const STEADY_WITHIN: u64 = 20_000_000;
/// How long clients work after faults, and how long a recovery takes at most.
const RECOVERY_MAX: u64 = 4_000_000;

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

fn name(what: &str, number: u32) -> Name {
    Name::new(&format!("{what}-{number}")).expect("a name")
}

#[derive(Default)]
struct ClientState {
    waits_for: Option<Operation>,
    begun: u32,
    /// When it begins its next operation.
    next_at: u64,
}

/// The cache and what its clients do.
struct Cache {
    cluster: Cluster<Process<Node>>,
    rng: Rng,
    #[cfg(feature = "mutants")]
    mutant: Option<Mutant>,
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
    /// Whether the last fault is over: suspects are removed, or not, within [`AFTERMATH`].
    lingers: bool,
}

impl Run {
    /// Runs a plan; the error describes the violation.
    pub(crate) fn of(seed: u64, plan: Plan) -> Result<Self, String> {
        let mut cache = Cache::start(seed, &plan);
        cache.steady()?;
        let begun = cache.cluster.now();
        for at in cache.fault_times(plan.fault_count) {
            cache.work_until(at)?;
            match plan.faults {
                Faults::Single => cache.inject()?,
                Faults::Overlapping => cache.inject_overlapping()?,
                Faults::Catastrophic => cache.inject_catastrophic()?,
            }
        }
        cache.work_until(begun + FAULTS_LAST)?;
        // Faults wait for each other, so the last one may end long after that.
        cache.end_faults();
        let recovered = cache.cluster.now();
        cache.work_until(recovered + RECOVERY_MAX)?;
        let stopped = Shard::split(plan.shards).filter(|shard| cache.has_stopped(*shard)).count();
        if stopped == 0 {
            cache.all_answered()?;
        }
        cache.history.judge()?;
        Ok(Self {
            stopped,
            yields: cache.yields,
            operations: cache.history.operations,
            failovers: cache.failovers,
            is_redundant: Shard::split(plan.shards)
                .all(|shard| cache.serving(shard).is_some_and(|node| cache.has_backup(node))),
            server_states: format!("{:?}", cache.server_states()),
            trace: cache.cluster.hash(),
        })
    }
}

/// Freezes a server that must not rejoin until it is excluded. Returns whether it and the view know
/// that, and how many members joined afterwards.
pub(crate) fn excluded(seed: u64) -> Result<(bool, bool, u64), String> {
    let plan = Plan { shards: 1, ..Plan::faults(seed) };
    let mut cache = Cache::start(seed, &plan);
    cache.steady()?;
    let spare = cache.servers().end - 1;
    let Process::Member(node) = cache.machine(spare) else { return Err("no server".to_owned()) };
    cache.cluster.kill(spare);
    let removed = cache.cluster.now() + RECOVERY_MAX;
    cache.cluster.run_until(removed);
    cache.cluster.restart(spare, Process::Member(Box::new(node.once())), false);
    let wait = |cache: &mut Cache| {
        let end = cache.cluster.now() + RECOVERY_MAX;
        cache.cluster.run_until(end);
        let view = cache.cluster.view(0);
        (view.members.iter().any(|member| member.address.region == spare), view.next_incarnation.0)
    };
    if !wait(&mut cache).0 {
        return Err("it is not a member".to_owned());
    }
    cache.cluster.freeze(spare);
    let (is_member, before) = wait(&mut cache);
    cache.cluster.thaw(spare);
    let (_, after) = wait(&mut cache);
    let is_over = cache.cluster.member(spare).is_some_and(Node::is_over);
    Ok((is_over, !is_member, after - before))
}

/// Freezes a server and kills the others, which come back without the state while it is excluded.
/// It resumes with the only copy, and often learns late of the views without those that yield to it.
/// Returns the number of yields, and the states of the servers.
pub(crate) fn only_copy(seed: u64) -> Result<(u64, Vec<Option<ServerState>>), String> {
    let plan = Plan { shards: 1, ..Plan::of(seed, Faults::Catastrophic) };
    let mut cache = Cache::start(seed, &plan);
    cache.steady()?;
    let has_state = cache.servers().start + cache.rng.below(u64::from(PROCESSES)) as u32;
    for node in cache.servers().filter(|node| *node != has_state) {
        cache.cluster.kill(node);
    }
    cache.cluster.freeze(has_state);
    let excluded = cache.cluster.now() + RECOVERY_MAX;
    cache.work_until(excluded)?;
    for node in cache.servers().filter(|node| *node != has_state) {
        cache.restart(node);
        cache.pause(400_000)?;
    }
    cache.cluster.thaw(has_state);
    let end = cache.cluster.now() + RECOVERY_MAX;
    let mut yields = 0;
    while cache.cluster.now() < end {
        let soon = cache.cluster.now() + 10_000;
        cache.work_until(soon)?;
        if cache.yields > yields && cache.rng.coin() {
            for coordinator in 0..COORDINATORS {
                cache.cluster.partition(coordinator, has_state);
            }
            cache.pause(100_000)?;
            cache.end_faults();
        }
        yields = cache.yields;
    }
    cache.all_answered()?;
    cache.history.judge()?;
    Ok((yields, cache.server_states()))
}

/// The state of a server with another number of shards that joins a cache of one shard, and the
/// states of the cache's servers.
pub(crate) fn misfit(seed: u64) -> Result<(Option<ServerState>, Vec<Option<ServerState>>), String> {
    let plan = Plan { shards: 1, ..Plan::faults(seed) };
    let mut cache = Cache::start(seed, &plan);
    cache.steady()?;
    // An idle member until then.
    let odd = CLIENTS.start - 1;
    let shard = Shard::split(2).next().ok_or("no shard")?;
    let area = Area::of(cache.cluster.layout()).ok_or("no room")?;
    let server = Server::new(area, shard, POLL_EVERY, Arc::clone(cache.cluster.genesis()));
    let name = shard.name(name("kv", 9)).map_err(|error| error.to_string())?;
    let member = cache.cluster.start(seed).member(Kind::App, name);
    let node = Node::new(member, Service::Server(Box::new(server)));
    cache.cluster.kill(odd);
    cache.cluster.restart(odd, Process::Member(Box::new(node)), false);
    let end = cache.cluster.now() + RECOVERY_MAX;
    cache.work_until(end)?;
    cache.history.judge()?;
    Ok((cache.server_state(odd), cache.server_states()))
}

impl Cache {
    fn start(seed: u64, plan: &Plan) -> Self {
        let layout = Layout::new(LIMITS).expect("within the bounds");
        let config = Config {
            release: obol_fabric::Release::THIS,
            timing: service::timing(!seed.is_multiple_of(3)),
            layout,
            mutant: ActiveMutant::default(),
        };
        let mut cache = Self {
            cluster: Cluster::new(config, COORDINATORS, service::network(), seed),
            rng: Rng::new(seed ^ 0x6b76_0000_0000_0000),
            #[cfg(feature = "mutants")]
            mutant: plan.mutant,
            history: History::default(),
            asked: Default::default(),
            next_value: 1,
            failovers: 0,
            yields: 0,
            faults: plan.faults,
            has_begun: false,
            shards: plan.shards,
            primaries: Vec::new(),
            lingers: false,
        };
        for node in 0..NODES {
            let machine = cache.machine(node);
            let clock = Clock::new(Instant(1_000_000 + cache.rng.below(1 << 40)), 0);
            cache.cluster.add_process(machine, clock);
        }
        cache
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
        self.cluster.member(node).and_then(Node::server).map(Server::state)
    }

    /// Whether the backup has what existed when it joined; a PUT may be outstanding.
    fn has_backup(&self, node: u32) -> bool {
        self.cluster.member(node).and_then(Node::server).is_some_and(Server::has_synced_backups)
    }

    /// The server that acts as primary of a shard, in the newest view of any server.
    fn serving(&self, shard: Shard) -> Option<u32> {
        let serves = |node: &u32| {
            self.serves(*node).is_some_and(|(_, whose)| whose == shard)
                && self.cluster.runs(*node)
                && matches!(self.server_state(*node), Some(ServerState::Primary { .. }))
        };
        self.servers().filter(serves).max_by_key(|node| self.cluster.view(*node).id)
    }

    /// The primaries by shard, if all processes run and know the newest view, and all backups have
    /// everything.
    fn complete(&self) -> Option<Vec<u32>> {
        Shard::split(self.shards).map(|shard| self.whole_shard(shard)).collect()
    }

    fn whole_shard(&self, shard: Shard) -> Option<u32> {
        let views = (0..NODES).map(|node| self.cluster.view(node));
        let newest = views.max_by_key(|view| view.id)?;
        let named: Vec<u32> = obol_kv::servers(newest, shard).map(|member| member.address.region).collect();
        let stand = |node: &u32| {
            let knows = self.cluster.view(*node).id == newest.id;
            self.server_state(*node).filter(|_| knows && self.cluster.runs(*node))
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
        while self.cluster.now() < STEADY_WITHIN {
            let end = self.cluster.now() + LEASE.0;
            self.cluster.run_until(end);
            let all = self.cluster.view(0).members.len() == NODES as usize;
            if let Some(primaries) = self.complete().filter(|_| all) {
                self.primaries = primaries.into_iter().map(Some).collect();
                self.has_begun = true;
                return Ok(());
            }
        }
        Err(format!("no steady state: {:?}, {:?}", self.cluster.view(0), self.server_states()))
    }

    /// Runs until all clients have their answers.
    fn all_answered(&mut self) -> Result<(), String> {
        self.unanswered()?
            .map_or(Ok(()), |client| Err(format!("client {client} has no answer although no fault is left")))
    }

    /// Injects a fault into a server, mostly the primary, after the previous one is over: the
    /// service tolerates one at a time.
    fn inject(&mut self) -> Result<(), String> {
        self.end_faults();
        if std::mem::take(&mut self.lingers) {
            let aftermath = self.cluster.now() + AFTERMATH;
            self.work_until(aftermath)?;
        }
        let Some(primaries) = self.work_until_found(RECOVERY_MAX, Self::complete)? else {
            return Err(format!("not redundant again: {:?}", self.server_states()));
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
        let fault = self.rng.below(FAULTS);
        self.lingers = LINGERING.contains(&fault);
        // An idle member goes as well, which may move a client to another block.
        let idle = u64::from(CLIENTS.start - all.end);
        if idle > 0 && self.rng.coin() {
            let gone = all.end + self.rng.below(idle) as u32;
            self.cluster.kill(gone);
        }
        self.inject_into(fault, victims, all, CLIENTS)
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
        let end = self.cluster.now() + AFTERMATH;
        self.work_until(end)?;
        self.work_until_found(RECOVERY_MAX, Self::complete)
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
        self.nodes_of(one).for_each(|node| self.cluster.freeze(node));
        if self.rng.coin() {
            // Soon, and cut off the third process, which must have what was answered already.
            let third = PROCESSES - one - other;
            for (node, peer) in self.nodes_of(other).zip(self.nodes_of(third)) {
                self.cluster.cut_link(node, peer);
            }
            self.pause(70_000)?;
        } else {
            self.pause(600_000)?;
        }
        self.nodes_of(other).for_each(|node| self.cluster.kill(node));
        self.pause(600_000)?;
        self.nodes_of(one).for_each(|node| self.cluster.thaw(node));
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
                if freezes { self.cluster.freeze(node) } else { self.cluster.kill(node) }
            }
            if self.rng.coin() {
                self.pause(400_000)?;
            }
            if !freezes && self.rng.coin() {
                for node in self.nodes_of(process) {
                    self.restart(node);
                }
            }
        }
        self.pause(900_000)
    }
}

impl ServiceRun for Cache {
    type Machine = Process<Node>;

    fn cluster(&mut self) -> &mut Cluster<Process<Node>> {
        &mut self.cluster
    }

    fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    fn clients(&self) -> Range<u32> {
        CLIENTS
    }

    fn waits(&self, client: u32) -> bool {
        self.asked[(client - CLIENTS.start) as usize].waits_for.is_some()
    }

    fn machine(&mut self, node: u32) -> Process<Node> {
        let seed = self.rng.next_u64();
        let start = self.cluster.start(seed);
        if node < COORDINATORS {
            return Process::Coordinator(Box::new(start.coordinator(node as u16 + 1)));
        }
        let area = Area::of(self.cluster.layout()).expect("there is room");
        let (name, service) = if let Some((process, shard)) = self.serves(node) {
            let server = Server::new(area, shard, POLL_EVERY, Arc::clone(self.cluster.genesis()));
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
        Process::Member(Box::new(Node::new(start.member(Kind::App, name), service)))
    }

    fn step(&mut self) -> Result<bool, String> {
        let Some(step) = self.cluster.step() else { return Ok(false) };
        let Some((_, shard)) = self.serves(step.node) else { return Ok(true) };
        match self.server_state(step.node) {
            Some(ServerState::Stopped) if self.faults != Faults::Catastrophic => {
                return Err(format!("server {} has lost the state, though one was left", step.node));
            }
            // Like the real process: it leaves, and rejoins as the youngest.
            Some(ServerState::Yields) => {
                self.yields += 1;
                self.cluster.kill(step.node);
                self.restart(step.node);
            }
            _ => {}
        }
        let serving = self.serving(shard);
        let known = &mut self.primaries[shard.index() as usize];
        if serving.is_some() && serving != *known {
            self.failovers += u64::from(known.is_some());
            *known = serving;
        }
        Ok(true)
    }

    fn work(&mut self, client: u32) -> Result<(), String> {
        let at = (client - CLIENTS.start) as usize;
        let now = self.cluster.now();
        let Some(machine) = self.cluster.machine_mut(client).member_mut() else { return Ok(()) };
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
        let begun = self.cluster.with_machine(client, |process, now, port| {
            let client = process.member_mut().and_then(Node::client)?;
            Some(client.begin(now, operation.clone(), port).is_ok())
        });
        if begun.flatten() == Some(true) {
            self.history.begins(client, &operation)?;
            self.asked[at].waits_for = Some(operation);
            self.asked[at].begun += 1;
        }
        Ok(())
    }
}
