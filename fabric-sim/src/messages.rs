//! Datagrams: unordered, lost and repeated at random, and queued at a receiver up to the length of
//! a lane.

use super::core::Core;
use super::datagram::Message;
use super::link::Link;
use super::node::{Input, State};
use super::queue::Pending;
use obol_fabric::contract::Group;
use obol_fabric::metrics::{self, CounterSlot, FabricCounter};
use obol_fabric::types::Address;

impl Core {
    pub(super) fn send(&mut self, source: u32, to: Address, bytes: &[u8], departs: u64) {
        if to.region as usize >= self.nodes.len() || !self.fits(source, bytes) {
            return;
        }
        // Datagrams to a seat go to the region's owner, whose generation is not in the address.
        let generation = if to.seat == 0 { to.generation } else { 0 };
        let payload = self.hold(bytes);
        self.transmit(source, to.region, generation, payload, departs, false);
        self.drop_payload(payload);
    }

    pub(super) fn multicast(&mut self, source: u32, group: Group, bytes: &[u8], departs: u64) {
        if !self.fits(source, bytes) {
            return;
        }
        let payload = self.hold(bytes);
        for target in 0..self.nodes.len() as u32 {
            let addressed = target != source && self.nodes[target as usize].groups & group.bit() != 0;
            if addressed && self.rng.permille(self.network.multicast_loss_permille) {
                self.adverse_events.multicasts_lost += 1;
            } else if addressed {
                self.transmit(source, target, 0, payload, departs, true);
            }
        }
        self.drop_payload(payload);
    }

    /// Whether a datagram is short enough; one that is not is lost and counted.
    fn fits(&mut self, source: u32, bytes: &[u8]) -> bool {
        let fits = bytes.len() <= self.layout.limits().datagram_bytes as usize;
        if !fits {
            self.count(source, FabricCounter::DatagramsLost, 1);
        }
        fits
    }

    /// Sends to one receiver: not at all, once, or twice.
    fn transmit(
        &mut self,
        source: u32,
        target: u32,
        generation: u32,
        payload: u32,
        departs: u64,
        grouped: bool,
    ) {
        if self.is_blocked(source, target) {
            return;
        }
        if self.rng.permille(self.network.loss_permille) || self.is_lost(source, target) {
            self.adverse_events.lost += 1;
            return;
        }
        let way = match source == target {
            _ if grouped => self.network.multicast,
            true => self.network.loopback,
            false => self.network.one_way,
        };
        let life = self.nodes[source as usize].generation;
        let copies = 1 + u32::from(self.rng.permille(self.network.duplicate_permille));
        self.adverse_events.doubled += u64::from(copies) - 1;
        for _ in 0..copies {
            let len = self.payloads[payload].bytes.len() as u32;
            let arrives = match &self.model {
                None => departs + way.draw(&mut self.rng) + self.carry(len),
                Some(model) => {
                    let cost = model.cost_of_datagram(len);
                    let more = if grouped { model.multicast.draw(&mut self.rng) } else { 0 };
                    let latency = cost.latency.draw(&mut self.rng) + more + model.carry(cost, len);
                    self.transit(source, target, departs, latency, len)
                }
            };
            let arrives = arrives.saturating_add(self.links.delay(source, target));
            self.payloads[payload].refs += 1;
            let id = self.messages.take();
            self.messages[id] = Message { source, life, departs, target, generation, payload };
            self.queue.push(arrives, Pending::Datagram(id));
        }
    }

    /// Whether a degraded link loses a datagram. Others draw nothing.
    fn is_lost(&mut self, source: u32, target: u32) -> bool {
        let Some(&Link { degraded, bad, .. }) = self.links.get(source, target) else { return false };
        if degraded.lost == [0; 2] {
            return false;
        }
        let bad = bad ^ self.rng.permille(degraded.turns[usize::from(bad)]);
        self.link(source, target).bad = bad;
        self.rng.permille(degraded.lost[usize::from(bad)])
    }

    /// A datagram arrives; returns where.
    pub(super) fn deliver(&mut self, id: u32) -> u32 {
        let Message { source, life, departs, target, generation, payload } = self.messages[id];
        self.messages.free(id);
        let digest = u64::from(payload_digest(&self.payloads[payload].bytes)) << 32 | u64::from(source);
        self.mix(digest);
        let sender = &self.nodes[source as usize];
        let sent = sender.lives(life) || sender.died_at >= departs;
        let receiver = &self.nodes[target as usize];
        let present = receiver.state != State::Dead;
        if !sent || !present || generation != 0 && generation != receiver.generation {
            self.drop_payload(payload);
            return target;
        }
        let room = self.layout.limits().lane_slots;
        let link = self.link(source, target);
        if link.datagrams >= room {
            self.count(source, FabricCounter::DatagramsLost, 1);
            self.drop_payload(payload);
            return target;
        }
        link.datagrams += 1;
        let input = Input::Datagram { payload, from: source, generation: life };
        self.nodes[target as usize].inbox.push_back(input);
        self.arm(target);
        target
    }

    /// A datagram leaves an inbox.
    pub(super) fn taken(&mut self, source: u32, target: u32, payload: u32) {
        self.link(source, target).datagrams -= 1;
        self.drop_payload(payload);
    }

    fn hold(&mut self, bytes: &[u8]) -> u32 {
        let id = self.payloads.take();
        let payload = &mut self.payloads[id];
        payload.bytes.clear();
        payload.bytes.extend_from_slice(bytes);
        payload.refs = 1;
        id
    }

    fn drop_payload(&mut self, id: u32) {
        let payload = &mut self.payloads[id];
        payload.refs -= 1;
        if payload.refs == 0 {
            self.payloads.free(id);
        }
    }

    /// Adds to a counter of a node's owner.
    pub(super) fn count(&self, at: u32, counter: impl Into<CounterSlot>, by: u64) {
        if self.network.count {
            let offset = self.layout.counters(0) + u32::from(counter.into().number()) * 8;
            metrics::add(self.nodes[at as usize].word(offset), by);
        }
    }
}

/// A fingerprint of a payload for the trace hash: length, head and tail.
fn payload_digest(bytes: &[u8]) -> u32 {
    let head = bytes.first_chunk().map_or(0, |c| u64::from_le_bytes(*c));
    let tail = bytes.last_chunk().map_or(0, |c| u64::from_le_bytes(*c));
    let mixed = (head ^ tail.rotate_left(17) ^ bytes.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32
}
