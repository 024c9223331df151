//! A simulated cluster of a deployment, as `obol up` would start it, with the interface of a real
//! one: snapshots, and flight recorder events. Drills run on it, checked by the oracle.

use super::act::Act;
use super::driver::Driver;
use super::oracle::{Verdict, Violation};
use super::scenario::{Processes, Scenario};
use obol_deaths::Detection;
use obol_fabric::layout::LimitError;
use obol_fabric::version::Version;
use obol_fabric::{Incarnation, Instant, Name, Nanos, SeatStatus, host, page};
use obol_fabric_sim::{Clock, Network, State};
use obol_membership::consensus::Head;
use obol_membership::view::coordinator_name;
use obol_membership::{ActiveMutant, Kind, View};
use obol_node::Deployment;
use obol_node::deployment::{app_node_names, cache_name};
use obol_observe::judge::{self, Expected};
use obol_observe::{Deciders, Health, ObservedEvent, Process, Snapshot, timeline};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Every clock's offset: as on one host, all show the same time.
const EPOCH: Instant = Instant(1_000_000_000);
/// The seat of the app of an app node.
const APP_SEAT: u16 = 1;
/// Poll interval until a process has left, or an app can attach.
const POLL_INTERVAL: u64 = 200_000;
/// Artificial process ids: this many per node.
const PIDS_PER_NODE: u32 = 16;

/// A node, and a seat of its region: 0 is the process of the node, 1 its app.
pub type NodeSeat = (u32, u16);

/// A simulated cluster.
#[derive(Debug)]
pub struct Cluster {
    driver: Driver,
    deployment: Deployment,
    /// By node, the next event of its flight recorder.
    unread: Vec<u64>,
    /// Apps that attach as soon as their agent accepts them.
    attaching: BTreeSet<NodeSeat>,
    /// Processes that end when they have left.
    leaving: BTreeSet<NodeSeat>,
    /// Pending acts, by true time.
    later: Vec<(u64, Act)>,
    violation: Option<Violation>,
}

/// A scenario without faults of its own.
fn scenario(deployment: &Deployment, seed: u64, mutant: ActiveMutant) -> Result<Scenario, LimitError> {
    let processes = Processes {
        coordinators: deployment.coordinators.into(),
        agents: deployment.apps.into(),
        caches: deployment.caches.into(),
    };
    let config = obol_membership::Config { mutant, ..deployment.config()? };
    let clocks = vec![Clock::new(EPOCH, 0); processes.count() as usize];
    // As over shared memory.
    let network = Network { pages_outlive: true, ..Network::default() };
    Ok(Scenario::without_faults(seed, processes, config, network, clocks))
}

impl Cluster {
    /// Starts a cluster: coordinators, app nodes with an agent and an app each, lease caches.
    pub fn start(deployment: Deployment, seed: u64, mutant: ActiveMutant) -> Result<Self, LimitError> {
        let driver = Driver::new(scenario(&deployment, seed, mutant)?, &[], false);
        let agents = (0..driver.scenario.nodes()).filter(|node| driver.scenario.is_agent(*node));
        let attaching = agents.map(|node| (node, APP_SEAT)).collect();
        let unread = vec![0; driver.scenario.nodes() as usize];
        let (leaving, later) = (BTreeSet::new(), Vec::new());
        Ok(Self { driver, deployment, unread, attaching, leaving, later, violation: None })
    }

    pub const fn deployment(&self) -> &Deployment {
        &self.deployment
    }

    /// The time on every process's clock.
    pub fn now(&self) -> Instant {
        self.driver.cluster.local_now(0)
    }

    /// The first violated invariant, if any.
    pub const fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// Nodes with a process.
    pub const fn nodes(&self) -> u32 {
        self.driver.scenario.nodes()
    }

    /// Runs until no act is pending.
    pub fn run_until_undone(&mut self) {
        while let Some((at, _)) = self.later.first() {
            self.run_for(Nanos(at.saturating_sub(self.driver.cluster.now())));
        }
    }

    fn note(&mut self, verdict: Verdict) {
        if let Err(violation) = verdict {
            self.violation.get_or_insert(violation);
        }
    }

    /// Injects a fault, or undoes one, now.
    pub fn act(&mut self, act: Act) {
        match act {
            Act::Leave(node) => drop(self.leaving.insert((node, 0))),
            Act::LeaveProgram(node, seat) => drop(self.leaving.insert((node, seat))),
            _ => {}
        }
        let verdict = self.driver.act(act);
        self.note(verdict);
    }

    /// Schedules an act after this time.
    pub fn act_later(&mut self, after: Nanos, act: Act) {
        self.later.push((self.driver.cluster.now() + after.0, act));
        self.later.sort_by_key(|(at, _)| *at);
    }

    /// Executes all pending acts now.
    pub fn act_now(&mut self) {
        std::mem::take(&mut self.later).into_iter().for_each(|(_, act)| self.act(act));
    }

    /// Starts a process that is down; an app as soon as its agent accepts it.
    pub fn start_process(&mut self, (node, seat): NodeSeat) {
        if seat == 0 {
            self.leaving.remove(&(node, 0));
            self.act(Act::Start(node));
        }
        if self.driver.scenario.is_agent(node) {
            self.attaching.insert((node, APP_SEAT));
        }
    }

    pub fn run_for(&mut self, time: Nanos) {
        let end = self.driver.cluster.now() + time.0;
        loop {
            self.supervise();
            let due = self.later.first().map_or(u64::MAX, |(at, _)| *at);
            let until = end.min(due).min(self.driver.cluster.now() + POLL_INTERVAL);
            while self.driver.cluster.next_time().is_some_and(|next| next <= until) {
                if let Err(violation) = self.driver.step() {
                    self.violation.get_or_insert(violation);
                }
            }
            self.driver.cluster.run_until(until);
            while let Some((_, act)) = self.later.first().copied().filter(|(at, _)| *at <= until) {
                self.later.remove(0);
                self.act(act);
            }
            if self.driver.cluster.now() >= end {
                return;
            }
        }
    }

    /// Emulates supervisors and leaving processes.
    fn supervise(&mut self) {
        for (node, seat) in self.attaching.clone() {
            if self.driver.programs(node).contains(&seat) {
                self.attaching.remove(&(node, seat));
            } else if self.driver.is_inside(node) && self.driver.cluster.runs(node) {
                self.act(Act::Attach(node, seat));
            }
        }
        for process in self.leaving.clone() {
            if self.has_left(process) {
                self.leaving.remove(&process);
                let (node, seat) = process;
                self.act(if seat == 0 { Act::Kill(node) } else { Act::KillProgram(node, seat) });
            }
        }
    }

    fn has_left(&self, (node, seat): NodeSeat) -> bool {
        if seat == 0 {
            return self.driver.cluster.machine(node).process.has_left();
        }
        let Some(program) = self.driver.cluster.program(node, seat) else { return true };
        !self.driver.oracle.newest().members.iter().any(|member| member.address == program.address())
    }

    /// The name of a process, as `obol up` gives it.
    fn name(&self, (node, seat): NodeSeat) -> Name {
        let scenario = &self.driver.scenario;
        let number = |first: u32| (node - first + 1) as u16;
        if node < scenario.coordinators {
            return coordinator_name(number(0));
        }
        let first_cache = scenario.coordinators + scenario.agents;
        let text = match (scenario.is_agent(node), seat) {
            (true, 0) => app_node_names(number(scenario.coordinators))[0].clone(),
            (true, _) => app_node_names(number(scenario.coordinators))[1].clone(),
            (false, _) => cache_name(number(first_cache)),
        };
        Name::new(&text).unwrap_or_default()
    }

    const fn kind(&self, node: u32) -> Kind {
        let scenario = &self.driver.scenario;
        if node < scenario.coordinators {
            Kind::Coordinator
        } else if scenario.is_agent(node) {
            Kind::Agent
        } else {
            Kind::LeaseCache
        }
    }

    /// The process of this name.
    pub fn find(&self, name: &str) -> Option<NodeSeat> {
        let nodes = 0..self.nodes();
        nodes
            .flat_map(|node| [(node, 0), (node, APP_SEAT)])
            .find(|process| self.name(*process).as_str() == name)
    }

    /// A snapshot, as an observer takes of a real cluster.
    pub fn snapshot(&self) -> Snapshot {
        let mut processes: Vec<Process> = Vec::new();
        for node in 0..self.nodes() {
            processes.push(self.owner(node));
            processes.extend(self.app(node));
        }
        processes.sort_by_key(|process| (process.kind, process.name));
        let view = processes.iter().filter_map(|p| p.view.clone()).max_by_key(|view| view.rank());
        let (health, reasons) = (Health::Unreachable, Vec::new());
        let mut snapshot = Snapshot { at: self.now(), view, processes, remote: Vec::new(), health, reasons };
        let kind = |name: String| {
            let kind = Name::new(&name).map_or(Kind::Agent, |name| self.deployment.kind(name));
            (name, kind)
        };
        let expected = Expected {
            pulses: Vec::new(),
            deciders: Deciders::expected(&self.deployment, snapshot.view.as_deref()),
            others: self.others().into_iter().map(kind).collect(),
            // All that it has are of the deployment.
            missed: Vec::new(),
            store: None,
            absent: std::collections::BTreeMap::new(),
            fates: std::collections::BTreeMap::new(),
            trouble: None,
            forgotten: Vec::new(),
            unsaved: Vec::new(),
            gateway: judge::Gateway::Serves,
            has_devices: false,
            lost_addresses: Vec::new(),
            newest_since: obol_fabric::Instant::ZERO,
        };
        let (health, reasons) = judge::judge(&snapshot, &expected);
        snapshot.health = health;
        snapshot.reasons = reasons.into_iter().map(|reason| reason.text).collect();
        snapshot
    }

    /// The names of all processes except the coordinators.
    pub fn others(&self) -> Vec<String> {
        self.deployment.names().split_off(self.deployment.coordinators.into())
    }

    fn owner(&self, node: u32) -> Process {
        let world = &self.driver.cluster;
        let (state, address, view) = (world.state(node), world.address(node), world.machine(node).view());
        let words = world.page(node);
        let kind = self.kind(node);
        Process {
            name: self.name((node, 0)),
            kind,
            host: 1,
            process: host::Process { pid: 1 + node * PIDS_PER_NODE, started: address.generation.into() },
            region: node,
            seat: 0,
            alive: state != State::Dead,
            frozen: state == State::Frozen,
            left: kind != Kind::Coordinator && self.has_left((node, 0)),
            incarnation: incarnation(view, |member| member.address == address),
            view: Some(Arc::clone(view)),
            lease: page::load(words).map(|page| (page, page::fenced(words))),
            detection: Detection::FutexPidfd,
            version: Version::THIS,
            held_until: None,
            heartbeat: 0,
            head: Head::default(),
            counters: Vec::new(),
            elsewhere: None,
        }
    }

    fn app(&self, node: u32) -> Option<Process> {
        let world = &self.driver.cluster;
        let program = world.program(node, APP_SEAT)?;
        let words = world.program_page(program);
        let view = world.machine(node).view();
        let incarnation = match program.status() {
            Some(SeatStatus::Member(incarnation)) => incarnation,
            _ => Incarnation::NONE,
        };
        Some(Process {
            name: self.name((node, APP_SEAT)),
            kind: Kind::App,
            process: host::Process {
                pid: 1 + node * PIDS_PER_NODE + u32::from(APP_SEAT),
                started: program.address().generation.into(),
            },
            seat: APP_SEAT,
            alive: program.is_alive(),
            frozen: program.is_frozen(),
            left: false,
            incarnation,
            lease: page::load(words).map(|page| (page, page::fenced(words))),
            view: Some(Arc::clone(view)),
            ..self.owner(node)
        })
    }

    /// The events of all flight recorders since the last call, by time.
    pub fn events(&mut self) -> Vec<ObservedEvent> {
        let mut events = Vec::new();
        for node in 0..self.nodes() {
            let records = self.driver.cluster.records_since(node, &mut self.unread[node as usize]);
            let (process, kind) = (self.name((node, 0)), self.kind(node));
            let seen = |event| ObservedEvent { process, kind, event, clock_error: Nanos::ZERO };
            events.extend(records.into_iter().map(seen));
        }
        timeline::merge(events, self.driver.scenario.config.mutant)
    }
}

fn incarnation(view: &View, is: impl Fn(&&obol_membership::view::Member) -> bool) -> Incarnation {
    view.members.iter().find(is).map_or(Incarnation::NONE, |member| member.incarnation)
}
