//! State machines that share one copy of each view, because thousands of copies would fill the
//! memory.

use obol_cluster_sim::{ClusterMachine, Process};
use obol_fabric::metrics::{CounterSlot, HistogramSlot};
use obol_fabric::recorder::{EventCode, Record};
use obol_fabric::{
    Address, Event, Fabric, Group, Incarnation, Instant, Machine, Nanos, Page, Permission, Remote,
    SeatStatus, Token, ViewId, Writers,
};
use obol_membership::{Member, Role, View};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

/// The views that any machine of a simulation knows.
pub(super) type Views = Rc<RefCell<BTreeMap<ViewId, Weak<View>>>>;

/// A machine with shared views.
#[derive(Debug)]
pub(super) struct Shared {
    process: Process<Member>,
    views: Views,
    seen: ViewId,
}

impl Shared {
    pub(super) fn new(process: Process<Member>, views: &Views) -> Self {
        let seen = process.view().id;
        Self { process, views: Rc::clone(views), seen }
    }

    const fn is_member(&self) -> bool {
        matches!(self.process, Process::Member(_))
    }

    fn share(&mut self) {
        let id = self.process.view().id;
        if core::mem::replace(&mut self.seen, id) == id {
            return;
        }
        let mut views = self.views.borrow_mut();
        match (views.get(&id).and_then(Weak::upgrade), &mut self.process) {
            (Some(view), Process::Member(member)) => {
                member.share_view(&view);
            }
            (Some(view), Process::Coordinator(coordinator)) => {
                coordinator.share_view(&view);
            }
            (None, process) => {
                views.retain(|_, view| view.strong_count() > 0);
                views.insert(id, Arc::downgrade(process.view()));
            }
        }
    }
}

impl ClusterMachine for Shared {
    type Member = Member;

    fn process(&self) -> &Process<Member> {
        &self.process
    }
}

impl Machine for Shared {
    fn start<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        let mut fabric = Quiet { inner: fabric, member: self.is_member() };
        self.process.start(now, &mut fabric);
    }

    fn handle<F: Fabric>(&mut self, now: Instant, event: Event<'_>, fabric: &mut F) {
        let mut fabric = Quiet { inner: fabric, member: self.is_member() };
        self.process.handle(now, event, &mut fabric);
        self.share();
    }

    fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        let mut fabric = Quiet { inner: fabric, member: self.is_member() };
        self.process.tick(now, &mut fabric);
        self.share();
    }

    fn deadline(&self) -> Instant {
        self.process.deadline()
    }
}

/// A fabric on which members do not publish their views, because nothing reads them here and there
/// are thousands.
struct Quiet<'a, F> {
    inner: &'a mut F,
    member: bool,
}

impl<F: Fabric> Fabric for Quiet<'_, F> {
    fn address(&self) -> Address {
        self.inner.address()
    }
    fn read(&mut self, from: Remote, len: u32, token: Token) {
        self.inner.read(from, len, token);
    }
    fn write(&mut self, to: Remote, bytes: &[u8], token: Token) {
        self.inner.write(to, bytes, token);
    }
    fn write_unsignaled(&mut self, to: Remote, bytes: &[u8], token: Token) {
        self.inner.write_unsignaled(to, bytes, token);
    }
    fn own(&self, offset: u32, len: usize) -> Option<&[AtomicU64]> {
        self.inner.own(offset, len)
    }
    fn cas(&mut self, at: Remote, expected: u64, desired: u64, token: Token) {
        self.inner.cas(at, expected, desired, token);
    }
    fn permit(&mut self, whom: Writers, part: Range<u32>, permission: Permission, token: Token) {
        self.inner.permit(whom, part, permission, token);
    }
    fn send(&mut self, to: Address, bytes: &[u8]) {
        self.inner.send(to, bytes);
    }
    fn multicast(&mut self, group: Group, bytes: &[u8]) {
        self.inner.multicast(group, bytes);
    }
    fn watch(&mut self, whom: Address) {
        self.inner.watch(whom);
    }
    fn watch_lazily(&mut self, whom: Address) {
        self.inner.watch_lazily(whom);
    }
    fn unwatch(&mut self, whom: Address) {
        self.inner.unwatch(whom);
    }
    fn publish_page(&mut self, page: &Page) {
        self.inner.publish_page(page);
    }
    fn is_active(&self, view: ViewId) -> bool {
        self.inner.is_active(view)
    }
    fn publish_view(&mut self, id: ViewId, bytes: &[u8]) {
        if !self.member {
            self.inner.publish_view(id, bytes);
        }
    }
    fn publish_cleared(&mut self, base: ViewId) {
        self.inner.publish_cleared(base);
    }
    fn publish_incarnation(&mut self, incarnation: Incarnation) {
        self.inner.publish_incarnation(incarnation);
    }
    fn publish_unreachable(&mut self, coordinators: u64) {
        self.inner.publish_unreachable(coordinators);
    }
    fn publish_seat(&mut self, seat: u16, status: SeatStatus) {
        self.inner.publish_seat(seat, status);
    }
    fn record(&mut self, record: Record<impl Into<EventCode>>) {
        self.inner.record(record);
    }
    fn count(&mut self, counter: impl Into<CounterSlot>, by: u64) {
        self.inner.count(counter, by);
    }
    fn observe(&mut self, histogram: impl Into<HistogramSlot>, value: Nanos) {
        self.inner.observe(histogram, value);
    }
    fn observe_since(&mut self, histogram: impl Into<HistogramSlot>, begin: Instant) {
        self.inner.observe_since(histogram, begin);
    }
}
