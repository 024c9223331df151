//! Machines that keep one copy of each view between them, as thousands of them would fill the memory with equal ones.

use crate::campaign::role::Role;
use obol_fabric::{Event, Fabric, Instant, Machine, ViewId};
use obol_membership::View;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Views kept to be shared: machines that are further behind keep their own.
const SHARED_MAX: usize = 4;

/// The newest views of a simulation.
pub(super) type Views = Rc<RefCell<Vec<Arc<View>>>>;

/// A machine with views that it shares with others.
#[derive(Debug)]
pub(super) struct Shared {
    role: Role,
    views: Views,
    seen: ViewId,
}

impl Shared {
    pub(super) fn new(role: Role, views: &Views) -> Self {
        let seen = role.view().id;
        Self { role, views: Rc::clone(views), seen }
    }

    /// The newest view that the machine knows.
    pub(super) fn view(&self) -> &Arc<View> {
        self.role.view()
    }

    fn share(&mut self) {
        let id = self.role.view().id;
        if core::mem::replace(&mut self.seen, id) == id {
            return;
        }
        let mut views = self.views.borrow_mut();
        match (views.iter().find(|view| view.id == id), &mut self.role) {
            (Some(view), Role::Member(member)) => {
                member.share_view(view);
            }
            (Some(_), Role::Coordinator(_)) => {}
            (None, role) => {
                if views.len() == SHARED_MAX {
                    views.remove(0);
                }
                views.push(Arc::clone(role.view()));
            }
        }
    }
}

impl Machine for Shared {
    fn start<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.role.start(now, fabric);
    }

    fn handle<F: Fabric>(&mut self, now: Instant, event: Event<'_>, fabric: &mut F) {
        self.role.handle(now, event, fabric);
        self.share();
    }

    fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.role.tick(now, fabric);
        self.share();
    }

    fn deadline(&self) -> Instant {
        self.role.deadline()
    }
}
