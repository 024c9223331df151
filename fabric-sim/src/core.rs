//! The state of a world except its machines, and the shared parts: time, draws, the trace hash.

use super::datagram::{Message, Payload};
use super::link::{Link, Links, Op};
use super::model::{Cost, Model};
use super::network::{AdverseEvents, Network};
use super::node::{Node, State};
use super::queue::{Pending, Queue};
use super::slab::Slab;
use core::sync::atomic::Ordering;
use obol_fabric::layout::Layout;
use obol_fabric::metrics;
use obol_rng::Rng;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Core {
    pub(super) layout: Layout,
    pub(super) network: Network,
    /// The model of the testbed, if any; it replaces the network's delays.
    pub(super) model: Option<Box<Model>>,
    pub(super) rng: Rng,
    pub(super) adverse_events: AdverseEvents,
    /// True time.
    pub(super) now: u64,
    pub(super) queue: Queue,
    pub(super) hash: u64,
    pub(super) nodes: Vec<Node>,
    pub(super) links: Links,
    pub(super) ops: Slab<Op>,
    pub(super) messages: Slab<Message>,
    pub(super) payloads: Slab<Payload>,
    /// The values that long READs found last.
    pub(super) snapshots: Vec<Arc<[u8]>>,
    /// Numbers watches; never reused, so that a notice of an ended watch is ignored.
    pub(super) watches: u32,
}

impl Core {
    pub(super) fn new(layout: Layout, network: Network, seed: u64) -> Self {
        Self {
            layout,
            network,
            model: None,
            rng: Rng::new(seed),
            adverse_events: AdverseEvents::default(),
            now: 0,
            queue: Queue::default(),
            hash: seed,
            nodes: Vec::new(),
            links: Links::default(),
            ops: Slab::default(),
            messages: Slab::default(),
            payloads: Slab::default(),
            snapshots: Vec::new(),
            watches: 0,
        }
    }

    pub(super) fn add(&mut self, node: Node) -> u32 {
        self.nodes.push(node);
        self.links.add();
        self.nodes.len() as u32 - 1
    }

    /// Adds to the trace hash.
    #[inline]
    pub(super) const fn mix(&mut self, value: u64) {
        self.hash = (self.hash.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    pub(super) fn link(&mut self, source: u32, target: u32) -> &mut Link {
        self.links.at(source, target)
    }

    /// Draws the one-way time of this many bytes.
    #[inline]
    pub(super) const fn travel(&mut self, source: u32, target: u32, bytes: u32) -> u64 {
        let way = if source == target { self.network.loopback } else { self.network.one_way };
        way.draw(&mut self.rng) + self.carry(bytes)
    }

    /// The additional time of further bytes.
    #[inline]
    pub(super) const fn carry(&self, bytes: u32) -> u64 {
        (bytes as u64 * self.network.per_kib.0) >> 10
    }

    /// The duration of a drawn latency or delay of `cost` in a modelled testbed, from when it
    /// leaves `from`. It includes waiting for the ports of both NICs, and for other traffic.
    pub(super) fn transit(&mut self, from: u32, to: u32, departs: u64, latency: u64, bytes: u32) -> u64 {
        let Some(model) = &self.model else { return departs + latency };
        if from == to {
            return departs + latency;
        }
        let occupied = model.occupation(bytes);
        let queued = model.queueing.draw(&mut self.rng);
        let sender = &mut self.nodes[from as usize];
        let leaves = departs.max(sender.port_out_free);
        sender.port_out_free = leaves + occupied;
        let receiver = &mut self.nodes[to as usize];
        let arrives = (leaves + latency + queued).max(receiver.port_in_free);
        receiver.port_in_free = arrives + occupied;
        arrives
    }

    /// The overhead of a post.
    pub(super) fn overhead(&self, cost: impl Fn(&Model) -> &Cost) -> u64 {
        self.model.as_ref().map_or(0, |model| cost(model).overhead.0)
    }

    /// The polling delay of an idle node.
    fn wake_up(&mut self) -> u64 {
        match &self.model {
            Some(model) => model.pick_up(&mut self.rng),
            None => self.network.wake_up.draw(&mut self.rng),
        }
    }

    /// Ensures that a node with pending work gets a step, or a wake-up at its deadline.
    pub(super) fn arm(&mut self, at: u32) {
        let node = &self.nodes[at as usize];
        if node.stepping || node.state != State::Running {
            return;
        }
        if !node.inbox.is_empty() {
            let idle = node.busy_until < self.now;
            let time = if idle { self.now + self.wake_up() } else { node.busy_until };
            let node = &mut self.nodes[at as usize];
            node.stepping = true;
            self.queue.push(time, Pending::Step { node: at, life: node.generation });
            return;
        }
        let due = node.clock.to_true(node.deadline);
        let floor = node.busy_until.max(self.now);
        if due == u64::MAX || due.max(floor) >= node.wake_at {
            // An early wake-up checks the deadline again.
            return;
        }
        let time = if due > floor { due + self.wake_up() } else { floor };
        let node = &mut self.nodes[at as usize];
        if time < node.wake_at {
            node.wake_at = time;
            self.queue.push(time, Pending::Wake { node: at, life: node.generation });
        }
    }

    /// Brings the heartbeat words of a region up to date. Doing so on demand gives the same words
    /// as a timer, without an event per increment.
    pub(super) fn beat(&mut self, at: u32) {
        let every = self.network.heartbeat_every.0;
        if every == 0 {
            return;
        }
        let node = &mut self.nodes[at as usize];
        if node.state == State::Running {
            let beats = (self.now - node.beat_at) / every;
            if beats > 0 {
                node.beat_at += beats * every;
                metrics::add(node.word(self.layout.heartbeat(0)), beats);
            }
        }
        for (seat, place) in node.seats.iter_mut().enumerate() {
            let Some(program) = &mut place.occupant else { continue };
            if program.is_running() {
                let beats = (self.now - program.beat_at) / every;
                program.beat_at += beats * every;
                let word = self.layout.heartbeat(seat as u16) as usize / 8;
                metrics::add(&program.memory[word], beats);
                if !program.hung {
                    metrics::add(&program.memory[self.layout.progress(seat as u16) as usize / 8], beats);
                }
            }
        }
    }

    /// Writes a word of a region.
    pub(super) fn store(&self, at: u32, offset: u32, value: u64) {
        self.nodes[at as usize].word(offset).store(value, Ordering::Release);
    }
}
