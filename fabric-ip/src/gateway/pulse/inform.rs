//! Informs the processes of this host of what the pulses of others say. It is done by the thread of
//! the pulses itself, so that no other thread has to be woken before them. Coordinators are woken at
//! once. The others follow a little later: they act on the view that a coordinator makes of it, and
//! would only take the cores that it needs. Where members reach each other by RDMA devices nobody is
//! informed: the silence of another road proves nothing about a device.

use crate::frame::{Seat, encode_sender};
use crate::pulse::Death;
use crate::pulse_word::{self, PulseWord};
use obol_fabric::contract::Group;
use obol_fabric::host::{Cluster, MappedRegions, Region};
use obol_fabric::shm::Links;
use obol_fabric::types::{Instant, Nanos, RegionOwner};

/// How much later others than coordinators are informed.
const LATER: Nanos = Nanos::from_millis(1);

/// The lanes of this host's processes.
pub(in crate::gateway) struct Informant {
    links: Links,
    /// Whether members reach each other by RDMA devices.
    devices: bool,
    buffer: Vec<u8>,
    /// For others than coordinators, and when it is due.
    waiting: Vec<PulseWord>,
    due: Instant,
}

impl Informant {
    /// Of the gateway with this region, whose serving thread has lanes of its own.
    pub(in crate::gateway) fn new(cluster: &Cluster, own: &Region, me: RegionOwner, devices: bool) -> Self {
        let regions = MappedRegions::new(cluster.clone(), me, own.clone());
        let links = Links::new(regions, me).of_second_thread();
        Self { links, devices, buffer: Vec::new(), waiting: Vec::new(), due: Instant::NEVER }
    }

    /// Maps the regions of processes that have started, so that this is done before it is needed.
    pub(super) fn prepare(&mut self) {
        if !self.devices {
            self.links.prepare(Group::Everyone.bit());
        }
    }

    pub(super) fn silent(&mut self, host: u8) {
        self.put(PulseWord::Silent(host));
    }

    pub(super) fn vanished(&mut self, host: u8, region: u32) {
        self.put(PulseWord::Vanished(host, region));
    }

    pub(super) fn died(&mut self, host: u8, death: Death) {
        let Death { region, generation, seat, evidence } = death;
        self.put(PulseWord::Died(host, Seat { region, generation, seat }, evidence));
    }

    fn put(&mut self, word: PulseWord) {
        if self.devices {
            return;
        }
        self.encode(word);
        // A full lane counts at the receiver's end as any other; the connection reports it as well.
        self.links.multicast(Group::Coordinators.bit(), &self.buffer);
        self.waiting.push(word);
    }

    fn encode(&mut self, word: PulseWord) {
        self.buffer.clear();
        encode_sender(pulse_word::FROM, &mut self.buffer);
        word.encode(&mut self.buffer);
    }

    /// Wakes the coordinators that were informed.
    pub(super) fn wake(&mut self, now: Instant) {
        self.links.ring();
        if !self.waiting.is_empty() {
            self.due = self.due.min(now + LATER);
        }
    }

    /// When [`Informant::tick`] is due.
    pub(super) const fn due(&self) -> Instant {
        self.due
    }

    /// Informs the others.
    pub(super) fn tick(&mut self, now: Instant) {
        if now < self.due {
            return;
        }
        self.due = Instant::NEVER;
        for word in core::mem::take(&mut self.waiting) {
            self.encode(word);
            let (all, done) = (Group::Everyone.bit(), Group::Coordinators.bit());
            self.links.multicast_except(all, done, &self.buffer);
        }
        self.links.ring();
    }
}
