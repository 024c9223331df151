//! The world: nodes with their machines, driven one event at a time, and the faults of a driver.

use super::clock::Clock;
use super::core::Core;
use super::link::{Outcome, Verb};
use super::network::Network;
use super::node::{Input, Node, State};
use super::port::Port;
use super::queue::Pending;
use obol_fabric::contract::{Completion, Event, Machine, Token};
use obol_fabric::layout::Layout;
use obol_fabric::metrics::{self, FabricCounter};
use obol_fabric::page;
use obol_fabric::types::{Address, Instant};

/// The kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum What {
    /// A machine handled an event or its timer.
    Step,
    /// An operation was executed (or its first half), or refused, at its target.
    Arrived,
    /// The second half of an operation was executed.
    Rest,
    /// A completion came back.
    Completed,
    /// A datagram arrived.
    Datagram,
    /// A link's timeout ran out.
    Timeout,
    /// A death notice arrived.
    Notice,
    /// A program sent a request, got an answer, or decided to rejoin.
    Program,
    /// Nothing: the scheduled event was void.
    Idle,
    /// A signalled process ended.
    Exit,
    /// A change of permissions took effect.
    Permitted,
}

/// One executed event. Nothing but clocks changed between `prev_time` and `time`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StepInfo {
    /// True time of the event in nanoseconds.
    pub time: u64,
    /// True time before it.
    pub prev_time: u64,
    pub node: u32,
    /// The kind.
    pub what: What,
}

/// A cluster of nodes in one thread. Region numbers are node numbers, in the order of
/// [`World::add`].
///
/// Methods that take a node number panic if there is no such node.
#[derive(Debug)]
pub struct World<M> {
    pub(super) core: Core,
    pub(super) machines: Vec<M>,
    /// The datagram that is being handled.
    scratch: Vec<u8>,
}

impl<M: Machine> World<M> {
    /// An empty world. The same seed and the same calls give the same run.
    pub fn new(layout: Layout, network: Network, seed: u64) -> Self {
        Self { core: Core::new(layout, network, seed), machines: Vec::new(), scratch: Vec::new() }
    }

    /// Adds a process with a fresh region; `groups` is its mask of [`obol_fabric::Group::bit`]s. It
    /// starts with the next steps of the world.
    pub fn add(&mut self, machine: M, clock: Clock, groups: u32) -> u32 {
        // The simulator transports datagrams itself: there are no lanes.
        self.add_with(machine, clock, groups, self.core.layout.lane(0))
    }

    /// As [`Self::add`], for a process that accepts nothing and publishes no view: its region omits
    /// these areas, so that thousands take little memory.
    pub fn add_small(&mut self, machine: M, clock: Clock, groups: u32) -> u32 {
        self.add_with(machine, clock, groups, self.core.layout.view())
    }

    fn add_with(&mut self, machine: M, clock: Clock, groups: u32, bytes: u32) -> u32 {
        let region = self.core.nodes.len() as u32;
        let mut node = Node::new(region, &self.core.layout, clock, groups, bytes);
        node.beat_at = self.core.now;
        self.core.add(node);
        self.machines.push(machine);
        self.core.arm(region);
        region
    }

    /// Executes exactly one event; `None` if there will be no more.
    pub fn step(&mut self) -> Option<StepInfo> {
        let (time, pending) = self.core.queue.pop()?;
        let prev_time = core::mem::replace(&mut self.core.now, time);
        let (node, what) = self.execute(pending);
        self.core.mix(time);
        self.core.mix(u64::from(node) << 8 | what as u64);
        Some(StepInfo { time, prev_time, node, what })
    }

    /// Executes all events up to and at `time`, and lets true time reach it.
    pub fn run_until(&mut self, time: u64) {
        while self.next_time().is_some_and(|next| next <= time) {
            self.step();
        }
        self.core.now = self.core.now.max(time);
    }

    /// A node handles its input, unless it has died or was stopped since this was planned.
    fn handle_input(&mut self, node: u32, life: u32) -> What {
        let n = &mut self.core.nodes[node as usize];
        if n.generation != life || !n.stepping {
            return What::Idle;
        }
        n.stepping = false;
        if n.state != State::Running {
            return What::Idle;
        }
        self.turn(node);
        What::Step
    }

    /// A node's deadline has come, unless it has another one by now.
    fn reach_deadline(&mut self, node: u32, life: u32) -> What {
        let core = &mut self.core;
        let n = &mut core.nodes[node as usize];
        if n.generation != life || n.wake_at != core.now {
            return What::Idle;
        }
        n.wake_at = u64::MAX;
        let idle = n.state == State::Running && !n.stepping && n.busy_until <= core.now;
        if idle && n.deadline <= n.clock.local(core.now) {
            self.turn(node);
            return What::Step;
        }
        core.arm(node);
        What::Idle
    }

    fn execute(&mut self, pending: Pending) -> (u32, What) {
        let core = &mut self.core;
        match pending {
            Pending::Step { node, life } => (node, self.handle_input(node, life)),
            Pending::Wake { node, life } => (node, self.reach_deadline(node, life)),
            Pending::Arrive(id) => {
                let node = core.ops[id].target;
                core.arrive(id);
                (node, What::Arrived)
            }
            Pending::Rest(id) => {
                let node = core.ops[id].target;
                core.arrive_rest(id);
                (node, What::Rest)
            }
            Pending::Complete(id) => {
                let node = core.ops[id].source;
                if !core.completed(id) {
                    return (node, What::Idle);
                }
                core.nodes[node as usize].inbox.push_back(Input::Completion(id));
                core.arm(node);
                (node, What::Completed)
            }
            Pending::Datagram(id) => (core.deliver(id), What::Datagram),
            Pending::Permit { node, life } => {
                core.permitted(node, life);
                (node, What::Permitted)
            }
            Pending::Timeout { source, target, epoch } => {
                core.link_timeout(source, target, epoch);
                (source, What::Timeout)
            }
            Pending::Notice { watcher, watch, evidence } => {
                core.notice(watcher, watch, evidence);
                (watcher, What::Notice)
            }
            Pending::Exit { node, life, notified } => {
                core.exit(node, life, notified);
                (node, What::Exit)
            }
            Pending::Want { node, life } => {
                core.wanted(node, life);
                (node, What::Program)
            }
            Pending::Ask { node, seat, generation } => {
                core.deliver_request(node, seat, generation);
                (node, What::Program)
            }
            Pending::Answered { node, seat, generation } => {
                core.answered(node, seat, generation);
                (node, What::Program)
            }
            Pending::Rejoin { node, seat, generation } => {
                core.rejoin(node, seat, generation);
                (node, What::Program)
            }
        }
    }

    /// Occupies a node for one drawn step; returns its clock and when its posts leave.
    fn begin_turn(&mut self, at: u32) -> (Instant, u64) {
        let core = &mut self.core;
        let mut cost = match &core.model {
            None => core.network.step.draw(&mut core.rng).max(1),
            Some(model) => {
                let taking = match core.nodes[at as usize].inbox.front() {
                    Some(Input::Completion(_)) => model.poll.0,
                    Some(&Input::Datagram { payload, .. }) => {
                        let bytes = core.payloads[payload].bytes.len() as u32;
                        model.cost_of_datagram(bytes).overhead.0
                    }
                    _ => 0,
                };
                (model.step.draw(&mut core.rng) + taking).max(1)
            }
        };
        if core.rng.permille(core.network.stall_permille) {
            cost += core.network.stall.draw(&mut core.rng);
            core.adverse_events.stalls += 1;
        }
        let departs = core.nodes[at as usize].busy_until.max(core.now) + cost;
        core.nodes[at as usize].busy_until = departs;
        metrics::add(core.nodes[at as usize].word(core.layout.heartbeat(0)), 1);
        core.count(at, FabricCounter::Loops, 1);
        (core.nodes[at as usize].clock.local(core.now), departs)
    }

    fn end_turn(&mut self, at: u32) {
        self.core.nodes[at as usize].deadline = self.machines[at as usize].deadline();
        self.core.arm(at);
    }

    /// One turn of a node's loop: its timer, or its next input.
    fn turn(&mut self, at: u32) {
        let (now, departs) = self.begin_turn(at);
        let node = &self.core.nodes[at as usize];
        let due = node.deadline <= now && !matches!(node.inbox.front(), Some(Input::Start));
        // Neither a full inbox nor an always expired timer starves the other.
        let tick = due && (node.inbox.is_empty() || self.core.rng.coin());
        let input = if tick { None } else { self.core.nodes[at as usize].inbox.pop_front() };
        let machine = &mut self.machines[at as usize];
        let mut port = Port { core: &mut self.core, me: at, departs };
        match input {
            None if tick => machine.tick(now, &mut port),
            None => {}
            Some(Input::Start) => machine.start(now, &mut port),
            Some(Input::Completion(id)) => complete(machine, now, id, &mut port),
            Some(Input::Permitted(token)) => {
                let (token, result) = (Token(token), Ok(Completion::Permitted));
                machine.handle(now, Event::Completion { token, result }, &mut port);
            }
            Some(Input::Datagram { payload, from, generation }) => {
                self.scratch.clear();
                self.scratch.extend_from_slice(&port.core.payloads[payload].bytes);
                port.core.taken(from, at, payload);
                port.core.count(at, FabricCounter::DatagramsReceived, 1);
                let from = Address { region: from, generation, ..Address::default() };
                machine.handle(now, Event::Datagram { from, bytes: &self.scratch }, &mut port);
            }
            Some(Input::Death { watch, evidence }) => {
                let known = port.core.nodes[at as usize].watches.iter().find(|w| w.id == watch);
                if let Some(who) = known.map(|w| w.whom) {
                    machine.handle(now, Event::Death { who, evidence }, &mut port);
                }
            }
            Some(Input::Confirm) => {
                port.core.nodes[at as usize].wanted = false;
                let since = page::wanted(port.page());
                machine.handle(now, Event::Confirm { since }, &mut port);
            }
            Some(Input::Seat { seat, generation }) => {
                if let Some(request) = port.core.request_of(at, seat, generation) {
                    machine.handle(now, Event::Seat { seat, request }, &mut port);
                }
            }
        }
        self.end_turn(at);
    }

    /// Lets a driver call a machine, as a user of the process would, in a separate step. `None` if
    /// the node does not run, or has not started yet.
    pub fn with_machine<R>(
        &mut self,
        node: u32,
        call: impl FnOnce(&mut M, Instant, &mut Port<'_>) -> R,
    ) -> Option<R> {
        let n = &self.core.nodes[node as usize];
        if n.state != State::Running || matches!(n.inbox.front(), Some(Input::Start)) {
            return None;
        }
        let (now, departs) = self.begin_turn(node);
        let mut port = Port { core: &mut self.core, me: node, departs };
        let result = call(&mut self.machines[node as usize], now, &mut port);
        self.end_turn(node);
        Some(result)
    }
}

/// Hands a completion to a machine.
fn complete<M: Machine>(machine: &mut M, now: Instant, id: u32, port: &mut Port<'_>) {
    let op = &mut port.core.ops[id];
    let bytes = core::mem::take(&mut op.bytes);
    let shared = op.shared.take();
    let long = shared.as_deref().unwrap_or(&bytes);
    let word = op.word.to_le_bytes();
    let token = Token(op.token);
    let result = match (op.outcome, op.verb) {
        (Outcome::Failed(error), _) => Err(error),
        (_, Verb::Read) if op.len > 8 => Ok(Completion::Read(long)),
        (_, Verb::Read) => Ok(Completion::Read(&word[..op.len as usize])),
        (_, Verb::Write) => Ok(Completion::Written),
        (_, Verb::Cas) => Ok(Completion::Swapped(op.word)),
    };
    if op.breaks {
        // The poster learns of the failure now; later posts use a new connection.
        let (source, target) = (op.source, op.target);
        let link = port.core.link(source, target);
        link.broken = false;
        link.connection = 0;
    }
    machine.handle(now, Event::Completion { token, result }, port);
    port.core.ops[id].bytes = bytes;
    port.core.release(id);
}
