//! The driver's interface between two steps: faults, true time, and all memory.

use super::clock::Clock;
use super::link::Degraded;
use super::model::Model;
use super::network::{AdverseEvents, Network};
use super::node::{Input, Node, State, page_words, region_memory};
use super::program::Program;
use super::world::World;
use core::sync::atomic::AtomicU64;
use obol_fabric::contract::{Evidence, Machine};
use obol_fabric::layout::Layout;
use obol_fabric::metrics::CounterSlot;
use obol_fabric::types::{Address, Instant, Name, Nanos};
use obol_fabric::{memory, page};

/// Faults of processes.
impl<M: Machine> World<M> {
    /// Ends a node's process. Its region no longer answers, but the programs in its seats live on
    /// and still see it.
    pub fn kill(&mut self, node: u32) {
        self.core.kill(node);
    }

    /// Sends a node's process a fatal signal, which kernels report at once: it runs no more, and
    /// its watchers are notified as after a kill. Its region answers until it has ended, just
    /// before its death is proved.
    pub fn signal(&mut self, node: u32) {
        self.core.signal(node);
    }

    /// Starts a later process in a region, killing the present one. `keep_memory` keeps the words
    /// of the region, as for acceptors; otherwise they are zeroed. Programs of the earlier process
    /// are no longer attached.
    pub fn restart(&mut self, node: u32, machine: M, keep_memory: bool) {
        self.kill(node);
        let now = self.core.now;
        let groups = self.core.nodes[node as usize].groups;
        if !keep_memory {
            let bytes = self.core.nodes[node as usize].memory.len() as u32 * 8;
            self.core.nodes[node as usize].memory = region_memory(node, &self.core.layout, groups, bytes);
        }
        let n = &mut self.core.nodes[node as usize];
        n.generation += 1;
        n.state = State::Running;
        n.inbox.push_back(Input::Start);
        n.busy_until = now;
        n.deadline = Instant::NEVER;
        n.beat_at = now;
        self.machines[node as usize] = machine;
        self.core.arm(node);
    }

    /// Stops a node's process; its region keeps answering. Inputs are queued.
    pub fn freeze(&mut self, node: u32) {
        self.core.beat(node);
        let n = &mut self.core.nodes[node as usize];
        if n.state == State::Running {
            n.state = State::Frozen;
        }
    }

    /// Resumes a stopped process.
    pub fn thaw(&mut self, node: u32) {
        // Programs advance their own heartbeats, which must not be lost to the owner's.
        self.core.beat(node);
        let now = self.core.now;
        let n = &mut self.core.nodes[node as usize];
        if n.state == State::Frozen {
            n.state = State::Running;
            n.beat_at = now;
            self.core.arm(node);
        }
    }

    /// Makes the watchers of a seat's occupant (0: the node itself) suspect it, though it is alive.
    pub fn suspect(&mut self, node: u32, seat: u16) {
        let generation = match seat {
            0 => self.core.nodes[node as usize].generation,
            _ => self.program(node, seat).map_or(0, |program| program.address().generation),
        };
        self.core.announce_suspicion(node, seat, generation);
    }

    /// Makes a node give up another one, whose host does not answer: what it has posted there fails,
    /// and may have been executed, and its watches there report a silence.
    pub fn give_up(&mut self, node: u32, other: u32) {
        self.core.give_up(node, other);
    }

    /// Tells a node at once of a death that it watches for.
    pub fn report_death(&mut self, node: u32, who: Address, evidence: Evidence) {
        self.core.report_death(node, who, evidence);
    }

    /// Makes a node ask once more about those that it watches in a region: their deaths are reported
    /// again.
    pub fn watch_again(&mut self, node: u32, region: u32) {
        self.core.watch_again(node, region);
    }

    /// Puts a new program into a seat and kills a present one. `None` if the node is dead or has no
    /// such seat.
    pub fn attach(&mut self, node: u32, seat: u16, name: Name) -> Option<Address> {
        self.core.attach(node, seat, name)
    }

    /// Makes a program request to join, with a new token, until it is answered.
    pub fn join_program(&mut self, node: u32, seat: u16) {
        self.core.request(node, seat, false);
    }

    /// Makes a program with the region of a node, or the node itself, request a confirmation of its
    /// view as of now ([`obol_fabric::page::confirmed`]); returns that time of the node's clock.
    pub fn want_confirmed(&mut self, node: u32) -> Instant {
        self.core.want(node)
    }

    /// Makes a program request to leave until it is answered.
    pub fn leave_program(&mut self, node: u32, seat: u16) {
        self.core.request(node, seat, true);
    }

    /// Ends a program.
    pub fn kill_program(&mut self, node: u32, seat: u16) {
        self.core.kill_program(node, seat);
    }

    /// Stops a program.
    pub fn freeze_program(&mut self, node: u32, seat: u16) {
        self.core.freeze_program(node, seat);
    }

    /// Makes a program promise progress from now on; zero cancels the promise.
    pub fn promise_progress(&mut self, node: u32, seat: u16, within: Nanos) {
        self.core.promise(node, seat, within);
    }

    /// Hangs a program: its process lives and its heartbeat advances, but it makes no progress.
    pub fn hang_program(&mut self, node: u32, seat: u16) {
        self.core.hang(node, seat, true);
    }

    /// Resumes the progress of a hung program.
    pub fn unhang_program(&mut self, node: u32, seat: u16) {
        self.core.hang(node, seat, false);
    }

    /// Resumes a stopped program.
    pub fn thaw_program(&mut self, node: u32, seat: u16) {
        self.core.thaw_program(node, seat);
    }
}

/// Faults of the network.
impl<M: Machine> World<M> {
    /// Cuts one direction between two nodes. Messages already sent still arrive.
    pub fn partition(&mut self, from: u32, to: u32) {
        if from != to {
            self.core.link(from, to).cut = true;
        }
    }

    /// Keeps the others from reaching a node, as over IP without its host's gateway: their
    /// operations on it fail, datagrams to it and notices of its death are lost. Its own operations
    /// and datagrams reach the others.
    pub fn close(&mut self, node: u32) {
        self.core.nodes[node as usize].closed = true;
    }

    /// Keeps a node from connecting to another one, as over IP a firewall does that blocks outgoing
    /// connections: its operations and datagrams there fail, while the other one reaches it.
    pub fn refuse(&mut self, from: u32, to: u32) {
        if from != to {
            self.core.nodes[from as usize].refused_by.insert(to);
        }
    }

    /// Lets a node connect to another one again.
    pub fn accept(&mut self, from: u32, to: u32) {
        if self.core.nodes[from as usize].refused_by.remove(&to) && !self.core.is_blocked(from, to) {
            self.core.heal(from, to);
        }
    }

    /// Whether a node cannot connect to another one.
    pub fn is_refused(&self, from: u32, to: u32) -> bool {
        self.core.is_refused(from, to)
    }

    /// Lets the others reach a node again.
    pub fn open(&mut self, node: u32) {
        if core::mem::take(&mut self.core.nodes[node as usize].closed) {
            for from in 0..self.len() {
                if from != node && !self.is_cut(from, node) {
                    self.core.heal(from, node);
                }
            }
        }
    }

    /// Whether the others do not reach a node.
    pub fn is_closed(&self, node: u32) -> bool {
        self.node(node).closed
    }

    /// Restores a direction.
    pub fn heal(&mut self, from: u32, to: u32) {
        if self.is_cut(from, to) {
            self.core.heal(from, to);
        }
    }

    /// Makes a direction lose and delay from now on; the default is a direction without faults.
    pub fn degrade(&mut self, from: u32, to: u32, how: Degraded) {
        if from != to {
            let link = self.core.link(from, to);
            (link.degraded, link.bad) = (how, false);
        }
    }

    /// Whether a direction is cut.
    pub fn is_cut(&self, from: u32, to: u32) -> bool {
        self.core.links.is_cut(from, to)
    }

    /// Uses the durations of a modelled testbed from now on. Of the [`Network`], only faults,
    /// timeouts, and the behaviour of programs still apply.
    pub fn calibrate(&mut self, model: Model) {
        self.core.model = Some(Box::new(model));
    }

    /// The parameters; a change applies to later draws.
    pub const fn network_mut(&mut self) -> &mut Network {
        &mut self.core.network
    }
}

/// Observations of the driver.
impl<M: Machine> World<M> {
    /// True time in nanoseconds.
    pub const fn now(&self) -> u64 {
        self.core.now
    }

    /// When the next event is due.
    pub fn next_time(&self) -> Option<u64> {
        self.core.queue.next_time()
    }

    /// A hash of all events. Runs with equal hashes are identical.
    pub const fn hash(&self) -> u64 {
        self.core.hash
    }

    /// The parameters.
    pub const fn network(&self) -> &Network {
        &self.core.network
    }

    /// The layout of all regions.
    pub const fn layout(&self) -> &Layout {
        &self.core.layout
    }

    /// The number of nodes, including dead ones.
    pub const fn len(&self) -> u32 {
        self.machines.len() as u32
    }

    /// Whether there is no node yet.
    pub const fn is_empty(&self) -> bool {
        self.machines.is_empty()
    }

    fn node(&self, node: u32) -> &Node {
        &self.core.nodes[node as usize]
    }

    /// Counts of the fabric's adverse behaviour so far.
    pub const fn adverse_events(&self) -> AdverseEvents {
        self.core.adverse_events
    }

    /// Whether a node's process runs.
    pub fn state(&self, node: u32) -> State {
        self.node(node).state
    }

    /// The address of a node's present (or last) process.
    pub fn address(&self, node: u32) -> Address {
        Address { region: node, generation: self.node(node).generation, ..Address::default() }
    }

    pub fn clock(&self, node: u32) -> Clock {
        self.node(node).clock
    }

    /// What a node's clock shows now.
    pub fn local_now(&self, node: u32) -> Instant {
        self.node(node).clock.local(self.core.now)
    }

    /// The first true time at which a node's clock shows `local`.
    pub fn to_true(&self, node: u32, local: Instant) -> u64 {
        self.node(node).clock.to_true(local)
    }

    /// The words of a node's region, up to the lanes. Heartbeat words are updated when a READ or a
    /// fault needs them, so they may lag here.
    pub fn memory(&self, node: u32) -> &[AtomicU64] {
        &self.node(node).memory
    }

    /// The words of a node's own flight recorder.
    pub fn recorder(&self, node: u32) -> &[AtomicU64] {
        let first = self.core.layout.recorder(0) as usize / 8;
        &self.memory(node)[first..first + self.core.layout.recorder_bytes() / 8]
    }

    /// The counters of a node's own process.
    pub fn counter(&self, node: u32, counter: impl Into<CounterSlot>) -> u64 {
        let first = self.core.layout.counters(0) as usize / 8;
        memory::relaxed(&self.memory(node)[first + usize::from(counter.into().number())])
    }

    /// The lease page of a node's region, including the fence.
    pub fn page(&self, node: u32) -> &[AtomicU64; page::WORDS] {
        page_words(&self.node(node).memory, self.core.layout.page())
    }

    /// The lease page that a program reads.
    pub fn program_page<'a>(&self, program: &'a Program) -> &'a [AtomicU64; page::WORDS] {
        page_words(program.memory(), self.core.layout.page())
    }

    /// A node's machine. For a dead node, its last state.
    pub fn machine(&self, node: u32) -> &M {
        &self.machines[node as usize]
    }

    /// A node's machine, for changes outside its steps. A changed deadline counts from the next
    /// step on.
    pub fn machine_mut(&mut self, node: u32) -> &mut M {
        &mut self.machines[node as usize]
    }

    /// The present or last program in a seat.
    pub fn program(&self, node: u32, seat: u16) -> Option<&Program> {
        self.node(node).seats.get(usize::from(seat))?.occupant.as_ref()
    }

    /// The programs in a node's seats, including dead ones.
    pub fn programs(&self, node: u32) -> impl Iterator<Item = &Program> {
        self.node(node).seats.iter().filter_map(|place| place.occupant.as_ref())
    }
}
