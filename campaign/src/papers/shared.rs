//! State machines that share one copy of each view, because thousands of copies would fill the
//! memory.

use obol_cluster_sim::{ClusterMachine, Process};
use obol_fabric::{Event, Fabric, Instant, Machine, ViewId};
use obol_membership::{Member, View};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
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
        self.process.start(now, fabric);
    }

    fn handle<F: Fabric>(&mut self, now: Instant, event: Event<'_>, fabric: &mut F) {
        self.process.handle(now, event, fabric);
        self.share();
    }

    fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.process.tick(now, fabric);
        self.share();
    }

    fn deadline(&self) -> Instant {
        self.process.deadline()
    }
}
