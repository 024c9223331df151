//! The fabric as seen by a machine during a step.

use super::core::Core;
use super::link::Verb;
use super::node::{Permit, State, page_words};
use super::ops::Order;
use core::mem::offset_of;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use obol_fabric::contract::{Fabric, Group, Remote, SeatStatus, Token};
use obol_fabric::host::reader;
use obol_fabric::layout::{Header, ViewHead};
use obol_fabric::memory;
use obol_fabric::metrics::{self, CounterSlot, HistogramSlot};
use obol_fabric::page::{self, Page};
use obol_fabric::recorder::{self, EventCode, Record};
use obol_fabric::rights::{Permission, Writers};
use obol_fabric::types::{Address, Incarnation, Instant, Nanos, ViewId};

/// One node's access to the world during one step. Posts leave at the end of the step; writes to
/// its own region take effect at once.
#[derive(Debug)]
pub struct Port<'a> {
    pub(super) core: &'a mut Core,
    pub(super) me: u32,
    /// When posts leave.
    pub(super) departs: u64,
}

impl Port<'_> {
    /// When a post leaves: each occupies the processor for its overhead, which delays later ones.
    fn departs(&mut self, overhead: u64) -> u64 {
        self.departs += overhead;
        let node = &mut self.core.nodes[self.me as usize];
        node.busy_until = node.busy_until.max(self.departs);
        self.departs
    }

    pub(super) fn page(&self) -> &[AtomicU64; page::WORDS] {
        page_words(self.memory(), self.core.layout.page())
    }

    fn memory(&self) -> &[AtomicU64] {
        debug_assert!(self.core.nodes[self.me as usize].state == State::Running, "only what runs steps");
        &self.core.nodes[self.me as usize].memory
    }
}

impl Fabric for Port<'_> {
    fn address(&self) -> Address {
        let generation = self.core.nodes[self.me as usize].generation;
        Address { region: self.me, generation, ..Address::default() }
    }

    fn read(&mut self, from: Remote, len: u32, token: Token) {
        let departs = self.departs(self.core.overhead(|model| model.cost(Verb::Read, len)));
        self.core.post(self.me, from, &Order::Read(len), token, departs);
    }

    fn write(&mut self, to: Remote, bytes: &[u8], token: Token) {
        let len = bytes.len() as u32;
        let departs = self.departs(self.core.overhead(|model| model.cost(Verb::Write, len)));
        self.core.post(self.me, to, &Order::Write(bytes), token, departs);
    }

    fn own(&self, offset: u32, len: usize) -> Option<&[AtomicU64]> {
        memory::span(self.memory(), offset, len)
    }

    fn cas(&mut self, at: Remote, expected: u64, desired: u64, token: Token) {
        let departs = self.departs(self.core.overhead(|model| model.cost(Verb::Cas, 8)));
        self.core.post(self.me, at, &Order::Cas(expected, desired), token, departs);
    }

    fn permit(&mut self, whom: Writers, part: Range<u32>, permission: Permission, token: Token) {
        self.core.permit(self.me, Permit { whom, part, permission, token: token.0 }, self.departs);
    }

    fn send(&mut self, to: Address, bytes: &[u8]) {
        let len = bytes.len() as u32;
        let departs = self.departs(self.core.overhead(|model| model.cost_of_datagram(len)));
        self.core.send(self.me, to, bytes, departs);
    }

    fn multicast(&mut self, group: Group, bytes: &[u8]) {
        let len = bytes.len() as u32;
        let departs = self.departs(self.core.overhead(|model| model.cost_of_datagram(len)));
        self.core.multicast(self.me, group, bytes, departs);
    }

    fn watch(&mut self, whom: Address) {
        self.core.watch(self.me, whom);
    }

    fn unwatch(&mut self, whom: Address) {
        self.core.unwatch(self.me, whom);
    }

    fn publish_page(&mut self, page: &Page) {
        page::publish(page_words(self.memory(), self.core.layout.page()), page);
        self.core.mix(page.view.0 ^ page.end.0);
    }

    fn is_active(&self, view: ViewId) -> bool {
        let node = &self.core.nodes[self.me as usize];
        page::active(page_words(self.memory(), self.core.layout.page()), view, || {
            node.clock.local(self.core.now)
        })
    }

    /// # Panics
    ///
    /// If the view is longer than the layout's `value_bytes`: its proposer should have rejected it.
    fn publish_view(&mut self, id: ViewId, bytes: &[u8]) {
        if size_of_val(self.memory()) <= self.core.layout.view() as usize {
            // A small region has no area for it.
            return;
        }
        let fits = reader::publish_view(self.memory(), &self.core.layout, id, bytes);
        assert!(fits, "a view of {} bytes in an area of {}", bytes.len(), self.core.layout.view_bytes());
        self.core.mix(id.0);
    }

    fn publish_cleared(&mut self, base: ViewId) {
        let at = self.core.layout.view() + offset_of!(ViewHead, cleared) as u32;
        self.core.nodes[self.me as usize].word(at).fetch_max(base.0, Ordering::Release);
    }

    fn publish_incarnation(&mut self, incarnation: Incarnation) {
        self.core.store(self.me, offset_of!(Header, incarnation) as u32, incarnation.0);
    }

    fn publish_unreachable(&mut self, coordinators: u64) {
        self.core.store(self.me, self.core.layout.unreachable(), coordinators);
    }

    fn publish_seat(&mut self, seat: u16, status: SeatStatus) {
        self.core.publish_seat(self.me, seat, status, self.departs);
    }

    fn record(&mut self, record: Record<impl Into<EventCode>>) {
        let record = Record { kind: record.kind.into(), reason: record.reason, a: record.a, b: record.b };
        self.core.mix(record.a ^ u64::from(record.kind.number()) << 48);
        if self.core.network.record {
            let first = self.core.layout.recorder(0) as usize / 8;
            let words = &self.memory()[first..first + self.core.layout.recorder_bytes() / 8];
            let now = self.core.nodes[self.me as usize].clock.local(self.core.now);
            recorder::write(words, now, record);
        }
    }

    fn count(&mut self, counter: impl Into<CounterSlot>, by: u64) {
        self.core.count(self.me, counter, by);
    }

    fn observe(&mut self, histogram: impl Into<HistogramSlot>, value: Nanos) {
        if self.core.network.count {
            let first = self.core.layout.histogram(histogram.into()) as usize / 8;
            metrics::observe(&self.memory()[first..first + metrics::HISTOGRAM_WORDS], value);
        }
    }

    fn observe_since(&mut self, histogram: impl Into<HistogramSlot>, begin: Instant) {
        let now = self.core.nodes[self.me as usize].clock.local(self.core.now);
        self.observe(histogram, now.since(begin));
    }
}
