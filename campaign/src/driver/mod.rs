//! A world with its oracle: every change to a node goes through here, so that the oracle observes
//! it.

mod acts;
mod confirm;
mod pulses;
mod uses;
mod watcher;
mod work;

use crate::act::Timed;
use crate::marks::Mark;
use crate::oracle::{Cue, Oracle, Verdict, Violation, broken};
use crate::role::Instrumented;
use crate::scenario::Scenario;
use confirm::PendingConfirm;
use obol_cluster_sim::{Cluster, Process};
use obol_fabric::layout::ViewHead;
use obol_fabric::{Address, Instant, Name, SeatStatus, ViewId, memory, page};
use obol_fabric_sim::{Degraded, Network, StepInfo, What};
use obol_membership::consensus::{SlotState, SlotWord};
use obol_membership::recorder::Record;
use obol_membership::view::{Departed, JOIN_WINDOW, Newcomer, Reason};
use obol_membership::{Change, Coordinator, Kind, Start, View, wire};
use obol_rng::Rng;
use pulses::Pulses;
use std::fmt;
use std::sync::Arc;
use uses::Uses;
use watcher::{Watcher, watchers};
use work::Work;

/// Within this many link timeouts, reports about a link have expired or led to a decision.
const FORGET_TIMEOUTS: u64 = 3;

/// Seats for programs in an agent's region: `1..=PROGRAMS`.
pub(crate) const PROGRAMS: u16 = 3;

/// The state of one run.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) scenario: Scenario,
    pub(crate) cluster: Cluster<Instrumented>,
    pub(crate) oracle: Oracle,
    pub(crate) rng: Rng,
    lives: u64,
    /// Programs that want to be members: `[node][seat]`.
    pub(crate) wants: Vec<[bool; PROGRAMS as usize + 1]>,
    /// Whether a member was frozen in its present life.
    pub(crate) frozen_once: Vec<bool>,
    /// Events of each node's flight recorder that have been logged.
    logged: Vec<u64>,
    absent: Vec<u32>,
    /// Steps of the world at its present time.
    steps: (u64, u32),
    /// The programs' pending work.
    pub(crate) works: Vec<Work>,
    /// Programs that compute by themselves whether a view is active.
    pub(crate) uses: Uses,
    /// Pending confirmations.
    pub(crate) pending_confirms: Vec<PendingConfirm>,
    /// At the end: the view that all have to confirm, and since when on each one's clock.
    pub(crate) confirming: (ViewId, Vec<(u32, Instant)>),
    /// Draws who requests confirmations, independently of all other draws.
    pub(crate) confirm_rng: Rng,
    /// The pulses of its hosts, if they exchange any.
    pub(crate) pulses: Option<Box<Pulses>>,
    /// Draws faults of pulses, independently of all other draws.
    pub(crate) pulse_rng: Rng,
    /// Programs that follow the views without being members.
    pub(crate) watchers: Vec<Watcher>,
    /// The adversary's acts.
    pub(crate) record: Vec<Timed>,
    /// The event log, if requested.
    pub(crate) log: Option<Vec<String>>,
}

fn name(what: &str, number: u32) -> Name {
    Name::new(&format!("{what}-{number}")).unwrap_or_default()
}

/// By how many bytes a view grows at most when some of its members are removed later, or its lease
/// changes: as the encoding shows for each of them.
fn reserve(view: &View) -> usize {
    let bytes = wire::encode_view(view).len();
    let growth = |gone: &obol_membership::view::Member| {
        let mut less = view.clone();
        less.members.retain(|m| m.incarnation != gone.incarnation);
        less.departed.push(Departed::of(gone, view.id, false));
        let accused = gone.incarnation;
        less.changes.push(Change::Failed { accused, accuser: accused, reason: Reason::Deadbeat });
        wire::encode_view(&less).len().saturating_sub(bytes)
    };
    view.members.iter().map(growth).sum::<usize>() + 1
}

/// The same view under another number, as if nothing had changed since.
fn dated(view: &View, id: ViewId) -> View {
    View { id, base: id, cleared: id, ..view.clone() }
}

/// The pulses of a scenario's hosts, if they exchange any.
fn pulses(scenario: &Scenario) -> Option<Box<Pulses>> {
    let plan = scenario.pulses?;
    let clocks = scenario.clocks.iter().take(plan.hosts as usize).copied().collect();
    let mutant = scenario.config.mutant;
    Some(Box::new(Pulses::new(plan, clocks, scenario.nodes(), scenario.seed, mutant)))
}

impl Driver {
    /// Nodes that are absent never run.
    pub(crate) fn new(scenario: Scenario, absent: &[u32], log: bool) -> Self {
        let (config, first) = (scenario.config, scenario.first_view);
        let mut cluster = Cluster::new(config, scenario.deciders(), scenario.rough, scenario.seed);
        let retired = uses::given_up_before(scenario.seed, scenario.coordinators);
        cluster.begin_with(|genesis| View { id: first, base: first, cleared: first, retired, ..genesis });
        let genesis = cluster.genesis();
        let watchers = watchers(&scenario, genesis);
        let mut driver = Self {
            oracle: Oracle::new(&scenario, genesis),
            cluster,
            rng: Rng::new(scenario.seed ^ 0x5ee_d0f5_7042_0000),
            lives: 0,
            wants: vec![[false; PROGRAMS as usize + 1]; scenario.nodes() as usize],
            frozen_once: vec![false; scenario.nodes() as usize],
            logged: vec![0; scenario.nodes() as usize],
            absent: absent.to_vec(),
            steps: (0, 0),
            works: Vec::new(),
            uses: Uses::new(scenario.seed, scenario.coordinators),
            pending_confirms: Vec::new(),
            confirming: (ViewId(u64::MAX), Vec::new()),
            confirm_rng: Rng::new(scenario.seed ^ 0xc0f1_4300_0000_0000),
            pulses: pulses(&scenario),
            pulse_rng: Rng::new(scenario.seed ^ 0x9015_e5fa_1700_0000),
            watchers,
            record: Vec::new(),
            log: log.then(Vec::new),
            scenario,
        };
        for node in 0..driver.scenario.nodes() {
            let machine = driver.machine(node, Vec::new());
            driver.cluster.add_process(machine, driver.scenario.clocks[node as usize]);
            let early = driver.scenario.coordinators + driver.scenario.early;
            if node >= early && !driver.scenario.is_cache(node) || absent.contains(&node) {
                driver.cluster.kill(node);
            }
        }
        driver.exhaust();
        driver.outdate();
        driver
    }

    /// Gives the coordinator that was away the memory as of its departure: a ring of the slots
    /// decided then, with their values.
    fn outdate(&mut self) {
        let Some((node, views)) = self.scenario.away else { return };
        let (layout, last) = (self.scenario.config.layout, self.scenario.first_view.0 - views);
        let limits = layout.limits();
        let memory = self.cluster.memory(node);
        for slot in last - u64::from(limits.slots) + 1..=last {
            let proposer = 1 + (slot % u64::from(limits.proposers)) as u16;
            let number = proposer + (views % 3) as u16 * limits.proposers as u16;
            let accepted =
                SlotState { min_proposal: number, accepted_proposal: number, accepted_value: proposer };
            let word = SlotWord::new(ViewId(slot), accepted).raw();
            memory[layout.slot(slot) as usize / 8].store(word, std::sync::atomic::Ordering::Relaxed);
            let value = dated(self.cluster.genesis(), ViewId(slot)).to_frame();
            if let Some(area) = memory::span(memory, layout.value(slot, proposer), value.len()) {
                memory::copy_in(area, &value);
            }
        }
        // What its process published last.
        let value = dated(self.cluster.genesis(), ViewId(last)).to_frame();
        let published = layout.view() + std::mem::offset_of!(ViewHead, id_plus_one) as u32;
        let parts = [
            memory::span(memory, published, 8).map(|to| (to, (last + 1).to_le_bytes().to_vec())),
            memory::span(memory, layout.view() + size_of::<ViewHead>() as u32, value.len())
                .map(|to| (to, value.to_vec())),
        ];
        parts.into_iter().flatten().for_each(|(to, bytes)| memory::copy_in(to, &bytes));
        self.oracle.decisions.start(&self.cluster, node);
        if !self.cluster.is_dead(node) {
            let found = self.found(node);
            let machine = self.machine(node, found);
            self.cluster.restart(node, machine, true);
        }
    }

    /// Lets an acceptor have promised one of the last proposal numbers in the first slots.
    fn exhaust(&mut self) {
        let Some((node, min_proposal)) = self.scenario.exhausted else { return };
        let (layout, first) = (self.scenario.config.layout, self.scenario.first_view.0);
        for slot in first + 1..=first + u64::from(layout.limits().slots) {
            let promised = SlotState { min_proposal, ..SlotState::default() };
            let word = SlotWord::new(ViewId(slot), promised);
            let at = layout.slot(slot) as usize / 8;
            self.cluster.memory(node)[at].store(word.raw(), std::sync::atomic::Ordering::Relaxed);
        }
        self.oracle.decisions.start(&self.cluster, node);
    }

    /// The views in the coordinators' regions on a node's host, for a process that starts there.
    fn found(&self, node: u32) -> Vec<View> {
        let here = |region: &u32| match self.scenario.pulses {
            Some(plan) => plan.host_of(*region) == plan.host_of(node),
            None => self.scenario.one_host || *region == node,
        };
        let here = (0..self.scenario.coordinators).filter(here);
        self.cluster.published_views(here)
    }

    /// The state machine for the next life of a node, built like the daemons'.
    fn machine(&mut self, node: u32, found: Vec<View>) -> Instrumented {
        self.lives += 1;
        let seed = self.scenario.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.lives << 32;
        let start = Start::new(self.scenario.config, &self.first_of(node), found, seed);
        if start.newest().id > self.cluster.genesis().id {
            self.oracle.marks.hit(Mark::StartedLater);
        }
        Instrumented::new(if node < self.scenario.coordinators {
            Process::Coordinator(Box::new(start.coordinator(node as u16 + 1)))
        } else if self.scenario.is_agent(node) {
            Process::Member(Box::new(start.member(Kind::Agent, name("node", node))))
        } else if self.scenario.is_cache(node) {
            Process::Member(Box::new(start.member(Kind::LeaseCache, name("cache", node))))
        } else {
            Process::Member(Box::new(start.member(Kind::App, name("app", node))))
        })
    }

    /// The first view of a node's deployment. A coordinator that was away has one from before the
    /// run.
    fn first_of(&self, node: u32) -> Arc<View> {
        if self.scenario.away.is_none_or(|(away, _)| away != node) {
            return Arc::clone(self.cluster.genesis());
        }
        Arc::new(dated(self.cluster.genesis(), ViewId::GENESIS))
    }

    /// Adds a line to the log.
    pub(crate) fn log(&mut self, what: fmt::Arguments<'_>) {
        let now = self.cluster.now();
        if let Some(log) = &mut self.log {
            log.push(format!("{now:>10} {what}"));
        }
    }

    /// True time of the next step.
    pub(crate) fn next_time(&self) -> Option<u64> {
        let pulses = Some(self.pulses_due()).filter(|due| *due != u64::MAX);
        self.cluster.next_time().into_iter().chain(pulses).min()
    }

    /// Counts a step at the present time.
    fn count_step(&mut self) {
        self.steps = self.moment();
        self.steps.1 += 1;
    }

    /// One step of the world, or of pulses, checked by the oracle. False if no event is left.
    pub(crate) fn step(&mut self) -> Result<bool, Violation> {
        self.oracle.cues.clear();
        let due = self.pulses_due();
        if due < self.cluster.next_time().unwrap_or(u64::MAX) {
            // No event of the world is passed.
            self.cluster.run_until(due);
            self.count_step();
            return self.step_pulses().map(|()| true);
        }
        let newest = self.oracle.newest().id;
        let Some(step) = self.cluster.step() else { return Ok(false) };
        self.count_step();
        let verdict = self.oracle.after(&self.cluster, &step);
        let verdict = verdict.and_then(|()| self.use_views(step.node));
        if !self.pending_confirms.is_empty() && step.what == What::Step {
            self.finish_confirms(step.node)?;
        }
        if self.log.is_some() {
            self.account(&step, newest);
        }
        verdict.map(|()| true)
    }

    /// A hash of all events.
    pub(crate) fn hash(&self) -> u64 {
        self.cluster.hash() ^ self.pulses.as_ref().map_or(0, |pulses| pulses.hash())
    }

    /// The present time, and the number of steps at it.
    pub(crate) fn moment(&self) -> (u64, u32) {
        let now = self.cluster.now();
        (now, if self.steps.0 == now { self.steps.1 } else { 0 })
    }

    /// Logs the effects of a step.
    fn account(&mut self, step: &StepInfo, newest: ViewId) {
        let node = step.node;
        if self.oracle.newest().id != newest {
            let v = Arc::clone(self.oracle.newest());
            self.log(format_args!(
                "view {} is decided at acceptor {node}: base {} cleared {} wait {} lease {} members {} {:?}",
                v.id,
                v.base,
                v.cleared,
                v.wait,
                v.lease,
                v.members.len(),
                v.changes
            ));
        }
        for cue in self.oracle.cues.clone() {
            match cue {
                Cue::Renewed(node) => {
                    let (words, clock) = (self.cluster.page(node), self.cluster.clock(node));
                    let page = page::load(words).unwrap_or_default();
                    let (from, until) = (clock.to_true(page.start), clock.to_true(page.end));
                    let (view, base, fence) = (page.view, page.base, page::fenced(words));
                    self.log(format_args!(
                        "node {node} holds view {view} of base {base} from {from} until {until}, fence {fence}"
                    ));
                }
                Cue::Proposed(_) | Cue::Outbid(_) | Cue::Chosen | Cue::ClearSent | Cue::Takeover => {}
                Cue::Accepted => self.log(format_args!("acceptor {node} is the first to accept a value")),
            }
        }
        if step.what != What::Step {
            return;
        }
        for event in self.cluster.records_since(node, &mut self.logged[node as usize]) {
            let Record { kind, reason, a, b } = event.record;
            self.log(format_args!("node {node} records {} {a} {b} {reason}", kind.name()));
        }
    }

    pub(crate) fn leader(&self) -> Option<u32> {
        let leads = |n: &u32| {
            self.cluster.runs(*n)
                && self.cluster.machine(*n).coordinator().is_some_and(Coordinator::is_leading)
        };
        (0..self.scenario.coordinators).find(leads)
    }

    pub(crate) fn kill(&mut self, node: u32) -> Verdict {
        if self.cluster.is_dead(node) {
            return Ok(());
        }
        self.log(format_args!("kill node {node}"));
        self.oracle.before_fault(&self.cluster)?;
        self.cluster.kill(node);
        self.oracle.killed(&self.cluster, node);
        self.report_by_pulses(self.cluster.address(node));
        Ok(())
    }

    pub(crate) fn restart(&mut self, node: u32) -> Verdict {
        if !self.cluster.is_dead(node) || self.absent.contains(&node) || self.is_paused(node) {
            return Ok(());
        }
        self.log(format_args!("start node {node}"));
        self.oracle.before_fault(&self.cluster)?;
        let keep = node < self.scenario.coordinators;
        let seen = self.cluster.machine(node).marks;
        self.oracle.marks.merge(seen);
        let found = self.found(node);
        let machine = self.machine(node, found);
        self.cluster.restart(node, machine, keep);
        self.wants[node as usize] = Default::default();
        self.frozen_once[node as usize] = false;
        Ok(())
    }

    pub(crate) fn freeze(&mut self, node: u32) {
        self.log(format_args!("freeze node {node}"));
        self.cluster.freeze(node);
        self.frozen_once[node as usize] = true;
    }

    pub(crate) fn thaw(&mut self, node: u32) {
        if self.is_paused(node) {
            return;
        }
        self.log(format_args!("thaw node {node}"));
        self.cluster.thaw(node);
        self.resume_work(node, 0);
    }

    pub(crate) fn thaw_program(&mut self, node: u32, seat: u16) {
        if self.is_paused(node) {
            return;
        }
        self.log(format_args!("thaw the program in seat {seat} of node {node}"));
        self.cluster.thaw_program(node, seat);
        self.resume_work(node, seat);
    }

    pub(crate) fn cut(&mut self, from: u32, to: u32) {
        self.log(format_args!("cut {from} -> {to}"));
        self.cluster.partition(from, to);
    }

    pub(crate) fn degrade(&mut self, from: u32, to: u32, how: Degraded) {
        self.log(format_args!("degrade {from} -> {to}: {how:?}"));
        self.cluster.degrade(from, to, how);
    }

    pub(crate) fn close(&mut self, node: u32) {
        self.log(format_args!("close node {node}: it reaches the others, and they do not reach it"));
        self.cluster.close(node);
    }

    pub(crate) fn refuse(&mut self, from: u32, to: u32) {
        self.log(format_args!("node {from} cannot connect to node {to}, which reaches it"));
        self.cluster.refuse(from, to);
    }

    pub(crate) fn open(&mut self, node: u32) {
        if self.cluster.is_closed(node) {
            self.log(format_args!("open node {node}"));
            self.cluster.open(node);
        }
    }

    pub(crate) fn heal(&mut self, from: u32, to: u32) {
        if self.cluster.is_refused(from, to) {
            self.log(format_args!("node {from} can connect to node {to} again"));
            self.cluster.accept(from, to);
        }
        if self.cluster.is_cut(from, to) {
            self.log(format_args!("heal {from} -> {to}"));
            self.cluster.heal(from, to);
        }
    }

    pub(crate) fn attach(&mut self, node: u32, seat: u16) -> Verdict {
        if self.cluster.is_dead(node) || self.is_paused(node) {
            return Ok(());
        }
        self.log(format_args!("a program takes seat {seat} of node {node} and requests to join"));
        self.oracle.before_fault(&self.cluster)?;
        let name = self.program_name(node, seat);
        if self.cluster.attach(node, seat, name).is_some() {
            let promise = self.scenario.promise;
            self.cluster.promise_progress(node, seat, promise);
            self.cluster.join_program(node, seat);
            self.wants[node as usize][usize::from(seat)] = true;
        }
        Ok(())
    }

    fn program_name(&self, node: u32, seat: u16) -> Name {
        let of_node = if self.scenario.namesakes { 0 } else { node * 10 };
        name("prog", of_node + u32::from(seat))
    }

    pub(crate) fn kill_program(&mut self, node: u32, seat: u16) -> Verdict {
        self.log(format_args!("kill the program in seat {seat} of node {node}"));
        self.oracle.before_fault(&self.cluster)?;
        if let Some(who) = self.cluster.program(node, seat).filter(|p| p.is_alive()).map(|p| p.address()) {
            self.oracle.died(&self.cluster, who);
            self.report_by_pulses(who);
        }
        self.cluster.kill_program(node, seat);
        Ok(())
    }

    pub(crate) fn leave_program(&mut self, node: u32, seat: u16) {
        self.log(format_args!("the program in seat {seat} of node {node} requests to leave"));
        self.cluster.leave_program(node, seat);
        self.wants[node as usize][usize::from(seat)] = false;
    }

    /// A program that has left requests to join again.
    pub(crate) fn join_again(&mut self, node: u32, seat: u16) {
        self.log(format_args!("the program in seat {seat} of node {node} requests to join again"));
        self.cluster.join_program(node, seat);
        self.wants[node as usize][usize::from(seat)] = true;
    }

    pub(crate) fn leave(&mut self, node: u32) -> Verdict {
        self.log(format_args!("node {node} requests to leave"));
        self.oracle.before_fault(&self.cluster)?;
        self.cluster.with_machine(node, |machine, now, port| machine.process.leave(now, port));
        self.oracle.node(&self.cluster, node)
    }

    /// An operator requests another lease duration from some coordinators.
    pub(crate) fn set_lease(&mut self, lease: u64, to: u32) {
        use obol_fabric::{Fabric, Nanos};
        self.log(format_args!("leases of {lease} ns are requested from coordinators {to:b}"));
        self.oracle.decisions.leases.request(Nanos(lease));
        let bytes = obol_membership::wire::Message::SetLease(Nanos(lease)).encode();
        let Some(from) = (0..self.scenario.nodes()).rev().find(|n| self.cluster.runs(*n)) else { return };
        let targets = (0..self.scenario.coordinators).filter(|n| to >> n & 1 == 1);
        self.cluster.with_machine(from, |_, _, port| {
            for target in targets {
                port.send(Address::region(target), &bytes);
            }
        });
    }

    /// An operator requests from all coordinators that one becomes an acceptor, or stops being one.
    pub(crate) fn set_acceptor(&mut self, node: u32, decides: bool) {
        use obol_fabric::Fabric;
        let as_of = self.oracle.newest().id;
        self.log(format_args!("coordinator {node} is requested as acceptor: {decides}, as of view {as_of}"));
        let number = node as u16 + 1;
        self.oracle.decisions.request_acceptor(number, decides);
        let bytes = obol_membership::wire::Message::SetAcceptor { number, decides, as_of }.encode();
        let Some(from) = (0..self.scenario.nodes()).rev().find(|n| self.cluster.runs(*n)) else { return };
        let targets = 0..self.scenario.coordinators;
        self.cluster.with_machine(from, |_, _, port| {
            for target in targets {
                port.send(Address::region(target), &bytes);
            }
        });
    }

    /// Every join that may still be valid arrives once more, like datagrams delayed by the network.
    pub(crate) fn repeat_joins(&mut self) {
        use obol_fabric::Fabric;
        let newest = self.oracle.newest().id.0;
        let mut joins = Vec::new();
        for id in (newest + 1).saturating_sub(JOIN_WINDOW)..=newest {
            let Some(decided) = self.oracle.decisions.get(ViewId(id)) else { continue };
            for change in &decided.view.changes {
                let Change::Joined(who) = *change else { continue };
                let Some(member) = decided.view.member(who) else { continue };
                let newcomer = member.newcomer();
                // It was requested before this view was decided.
                let as_of = ViewId(id.saturating_sub(1));
                joins.push(wire::Message::Join { newcomer, as_of, proved: true }.encode());
            }
        }
        self.log(format_args!("{} joins arrive again", joins.len()));
        let Some(from) = (0..self.scenario.nodes()).rev().find(|n| self.cluster.runs(*n)) else { return };
        let targets = 0..self.scenario.coordinators;
        self.cluster.with_machine(from, |_, _, port| {
            for target in targets {
                joins.iter().for_each(|join| port.send(Address::region(target), join));
            }
        });
    }

    /// The view after the one that a running node knows, if it is decided.
    pub(crate) fn missed_view(&self, node: u32) -> Option<Arc<View>> {
        let known = self.cluster.machine(node).view().id;
        let decided = self.oracle.decisions.get(known.next()).filter(|_| self.cluster.runs(node))?;
        Some(Arc::clone(&decided.view))
    }

    /// The announcement of that view arrives, like a datagram delayed by the network.
    pub(crate) fn late_view(&mut self, node: u32) {
        use obol_fabric::Fabric;
        let Some(view) = self.missed_view(node) else { return };
        let reaches = |n: &u32| self.cluster.runs(*n) && *n != node && !self.cluster.is_cut(*n, node);
        let Some(from) = (0..self.scenario.nodes()).rev().find(reaches) else { return };
        self.log(format_args!("the announcement of view {} arrives late at node {node}", view.id));
        let cleared = self.oracle.cleared() >= view.base;
        let bytes = wire::Message::View { frame: &view.to_frame(), cleared }.encode();
        self.cluster.with_machine(from, |_, _, port| port.send(Address::region(node), &bytes));
    }

    /// The acceptors after the newest view.
    pub(crate) fn acceptors(&self) -> Vec<u32> {
        self.oracle.newest().acceptors.iter().map(|a| a.address.region).collect()
    }

    pub(crate) fn suspect(&mut self, node: u32, seat: u16) {
        self.log(format_args!("seat {seat} of node {node} is suspected"));
        self.cluster.suspect(node, seat);
    }

    /// A notice that a member is suspected arrives at one coordinator, and is not repeated.
    pub(crate) fn accuse_once(&mut self, accused: u32, to: u32) {
        use obol_fabric::{Evidence, Fabric};
        let at = self.cluster.address(accused);
        let members = &self.oracle.newest().members;
        let Some(accused) = members.iter().find(|m| m.address == at).map(|m| m.incarnation) else { return };
        let accuser = members.iter().find(|m| m.address.region != to && m.incarnation != accused);
        let Some((from, accuser)) = accuser.map(|m| (m.address.region, m.incarnation)) else { return };
        let (reason, evidence) = (Reason::Heartbeat, Evidence::Suspicion);
        let bytes = wire::Message::Notice { accuser, accused, reason, evidence }.encode();
        self.log(format_args!("coordinator {to} alone is told that {accused:?} is suspected"));
        self.cluster.with_machine(from, |_, _, port| port.send(Address::region(to), &bytes));
    }

    pub(crate) fn set_network(&mut self, network: Network) {
        *self.cluster.network_mut() = network;
    }

    /// Live programs in seats of this node's present life.
    pub(crate) fn programs(&self, node: u32) -> Vec<u16> {
        let region = self.cluster.memory(node).as_ptr();
        let lives = |p: &&obol_fabric_sim::Program| p.is_alive() && p.memory().as_ptr() == region;
        self.cluster.programs(node).filter(lives).map(|p| p.address().seat).collect()
    }

    /// Whether the newest view contains the present life of a node.
    pub(crate) fn is_inside(&self, node: u32) -> bool {
        let address = self.cluster.address(node);
        !self.cluster.is_dead(node) && self.oracle.newest().members.iter().any(|m| m.address == address)
    }

    /// Runs until reports about cut links and suspected members have expired or led to decisions.
    pub(crate) fn expire_reports(&mut self) -> Verdict {
        let timing = self.scenario.config.timing;
        let end = self.cluster.now() + FORGET_TIMEOUTS * timing.link_timeout.0;
        while self.cluster.now() < end && self.step()? {}
        Ok(())
    }

    /// Row 21: why the cluster is not healthy, or `None` if all live processes are active in the
    /// newest view, and it contains exactly them.
    pub(crate) fn problem(&self) -> Option<String> {
        self.problem_of(|_| true)
    }

    /// The same if only some of the live processes have to be members.
    pub(crate) fn problem_of(&self, belongs: impl Fn(u32) -> bool) -> Option<String> {
        let newest = self.oracle.newest();
        let mut live = Vec::new();
        for node in 0..self.scenario.nodes() {
            let tapped = self.cluster.machine(node);
            if self.cluster.is_dead(node) || tapped.process.has_left() {
                continue;
            }
            let address = self.cluster.address(node);
            if !newest.members.iter().any(|m| m.address == address) {
                if self.is_full() || !belongs(node) {
                    continue;
                }
                return Some(format!("node {node} lives but is not in view {}", newest.id));
            }
            live.push(address);
            if tapped.view().id != newest.id {
                return Some(format!("node {node} knows view {} of {}", tapped.view().id, newest.id));
            }
            if tapped.member().is_none() {
                continue;
            }
            if !self.may_act(node) {
                return Some(format!("node {node} is not active in view {}", newest.id));
            }
            for seat in self.programs(node) {
                let program = self.cluster.program(node, seat)?;
                let member = newest.members.iter().find(|m| m.address == program.address());
                if !self.wants[node as usize][usize::from(seat)] {
                    if member.is_some() {
                        return Some(format!("the program in seat {seat} of node {node} has not left yet"));
                    }
                    continue;
                }
                let wanted = self.program_name(node, seat);
                if self.scenario.namesakes
                    && member.is_none()
                    && newest.members.iter().any(|m| m.name == wanted)
                {
                    continue;
                }
                live.push(program.address());
                match (member, program.status()) {
                    (Some(m), Some(SeatStatus::Member(who))) if m.incarnation == who => {}
                    (None, _) if self.is_full() => {}
                    _ => return Some(format!("the program in seat {seat} of node {node} is not a member")),
                }
            }
        }
        // In a full view no coordinator may be a member. One of them still has to learn what was
        // decided: others read it in its region.
        let knows =
            |node: u32| !self.cluster.is_dead(node) && self.cluster.machine(node).view().id == newest.id;
        if !(0..self.scenario.coordinators).any(knows) {
            return Some(format!("no coordinator knows view {}", newest.id));
        }
        let ghost = newest.members.iter().find(|m| !live.contains(&m.address));
        ghost.map(|m| {
            let Address { region, seat, generation, .. } = m.address;
            format!(
                "view {} contains seat {seat} of node {region}, generation {generation}, which does not exist",
                newest.id
            )
        })
    }

    /// Whether the newest view has no room for another member, so that joins are rejected.
    fn is_full(&self) -> bool {
        let name = self.cluster.genesis().members.first().map(|m| m.name).unwrap_or_default();
        let newcomer = Newcomer::new(Kind::Agent, name, Address::region(u32::MAX), 0);
        let mut next = View::clone(self.oracle.newest());
        next.id = next.id.next();
        next.members.push(newcomer.admitted(next.next_incarnation));
        next.departed.retain(|gone| gone.at.0 + JOIN_WINDOW >= next.id.0);
        next.changes = vec![Change::Joined(next.next_incarnation)];
        // A name may be two bytes longer than this one, and the encoding is padded to eight bytes.
        let bytes = next.to_frame().len() + 8 + reserve(&next);
        bytes > self.scenario.config.layout.limits().value_bytes as usize
    }

    /// A violation of row 21, or of a row that covers a special case of it, with the problem.
    pub(crate) fn unhealthy(&self, since: u64) -> Verdict {
        let problem = self.problem().unwrap_or_default();
        let waited = self.cluster.now() - since;
        let row = self.row_of_unhealthy();
        broken!(row, self.cluster.now(), "{waited} ns after the faults have stopped: {problem}")
    }

    fn row_of_unhealthy(&self) -> u8 {
        let leads = |n: &u32| {
            self.cluster.runs(*n)
                && self.cluster.machine(*n).coordinator().is_some_and(Coordinator::is_leading)
        };
        // It may rely on a cache, and get no lease on the newest view.
        let relies_on_cache = |n: u32| {
            let tapped = self.cluster.machine(n);
            let has_cache = tapped.view().of_kind(Kind::LeaseCache).next().is_some();
            has_cache && self.cluster.runs(n) && tapped.member().is_some() && !self.may_act(n)
        };
        if (0..self.scenario.coordinators).filter(leads).count() > 1 {
            15
        } else if (0..self.scenario.nodes()).any(relies_on_cache) {
            17
        } else if self.cluster.network().multicast_loss_permille == 1000 {
            11
        } else {
            21
        }
    }
}
