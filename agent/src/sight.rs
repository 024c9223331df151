//! What a member sees of its cluster: the newest view, whether that is active, and what comes next.
//!
//! Attached and embedded programs look at a region in the same way; only where their own incarnation stands differs.
//! Nothing here writes to the region.

use obol_fabric::shm::{Region, clock};
use obol_fabric::{Incarnation, Nanos, Page, ViewId, page};
use obol_membership::View;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A view as one member sees it: the view, and whether that member is in it. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnView {
    view: Arc<View>,
    is_mine: bool,
}

impl OwnView {
    /// Whether the program that took this view is a member of it. Only then can it ever be active for that program.
    #[must_use]
    pub const fn is_mine(&self) -> bool {
        self.is_mine
    }

    /// The view itself, to be kept.
    #[must_use]
    pub const fn shared(&self) -> &Arc<View> {
        &self.view
    }
}

impl Deref for OwnView {
    type Target = View;

    fn deref(&self) -> &View {
        &self.view
    }
}

/// Where a program's own incarnation stands.
#[derive(Clone)]
enum Identity {
    /// In the header of the region that it owns.
    Owner,
    /// Here: it is one of several that sit in the region.
    Seated(Arc<AtomicU64>),
}

/// A member's look at a region. Clones are the same look.
#[derive(Clone)]
pub(crate) struct Sight {
    region: Region,
    identity: Identity,
}

impl Sight {
    /// Of a program that owns its region.
    pub(crate) const fn of_owner(region: Region) -> Self {
        Self { region, identity: Identity::Owner }
    }

    /// Of a program in a seat of its agent's region.
    pub(crate) fn of_seat(region: Region) -> Self {
        Self { region, identity: Identity::Seated(Arc::default()) }
    }

    /// Notes as whom a seated program was admitted.
    pub(crate) fn admitted(&self, incarnation: Incarnation) {
        if let Identity::Seated(own) = &self.identity {
            own.store(incarnation.0, Ordering::Release);
        }
    }

    pub(crate) fn incarnation(&self) -> Incarnation {
        match &self.identity {
            Identity::Owner => Incarnation(self.region.reader().header().incarnation),
            Identity::Seated(own) => Incarnation(own.load(Ordering::Acquire)),
        }
    }

    pub(crate) fn view(&self) -> Option<OwnView> {
        self.view_of(self.incarnation())
    }

    /// The newest view, as this incarnation sees it.
    pub(crate) fn view_of(&self, own: Incarnation) -> Option<OwnView> {
        let (_, bytes) = self.region.reader().view()?;
        let view = Arc::new(View::unseal(&bytes)?);
        Some(OwnView { is_mine: view.member(own).is_some(), view })
    }

    pub(crate) fn view_id(&self) -> Option<ViewId> {
        self.region.reader().view_id()
    }

    #[inline]
    pub(crate) fn active(&self, view: &OwnView) -> bool {
        view.is_mine && page::active(self.region.page(), view.view.id, clock::now)
    }

    #[inline]
    pub(crate) fn guard<T>(&self, view: &OwnView, work: impl FnOnce(&OwnView) -> T) -> Option<T> {
        if !self.active(view) {
            return None;
        }
        let done = work(view);
        self.active(view).then_some(done)
    }

    pub(crate) fn lease(&self) -> Option<Page> {
        page::load(self.region.page())
    }

    pub(crate) fn changes(&self) -> u32 {
        self.region.changes()
    }

    pub(crate) fn wait_changed(&self, seen: u32, timeout: Nanos) -> u32 {
        self.region.wait_changed(seen, timeout)
    }
}
