//! What a member sees of its cluster: the newest view, whether that is active, and what comes next.
//!
//! Attached and embedded programs look at a region in the same way; only where their own
//! incarnation stands differs. Nothing here writes to the region.

use crate::lost::{Inactive, Lost};
use crate::streams::{Failures, Views};
use obol_fabric::host::{Region, clock};
use obol_fabric::{Incarnation, Instant, Nanos, Page, ViewId, page};
use obol_membership::View;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An agent's death wakes nobody who waits for it to say something, so whoever waits looks up so
/// often.
pub const POLL_INTERVAL: Nanos = Nanos::from_millis(100);

/// A view as one member sees it: the view, and whether that member is in it. Cheap to clone. It is
/// nobody else's, not even the same program's when it has joined again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnView {
    view: Arc<View>,
    /// Whose it is; [`Incarnation::NONE`] if it does not name who took it.
    own: Incarnation,
}

impl OwnView {
    /// Whether the program that took this view is a member of it. Only then can it ever be active
    /// for that program.
    #[must_use]
    pub const fn is_mine(&self) -> bool {
        self.own.0 != Incarnation::NONE.0
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

/// Why a view was not confirmed ([`MembershipHandle::confirm`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotConfirmed {
    /// Nothing more comes from this handle.
    #[error(transparent)]
    Lost(Lost),
    /// The program is no member of this view. A newer one may have it; if not, it joins again.
    #[error("this program is no member of view {0}; look at the newest, or join again")]
    NotMine(ViewId),
    /// There is a newer view, or the coordinators have fenced this one off. Take the newest view
    /// and ask again.
    #[error("view {0} is not the newest any more; take the newest view and ask again")]
    Superseded(ViewId),
    /// No majority of acceptors answered in time, or leases on older views still ran.
    #[error(
        "view {view} was not confirmed within {waited}; a majority of coordinators must run, see `obol status`"
    )]
    Timeout {
        /// The view.
        view: ViewId,
        /// How long the program waited.
        waited: Nanos,
    },
}

/// Where a program's own incarnation stands.
#[derive(Clone)]
enum Identity {
    /// In the header of the region that it owns.
    Owner,
    /// Here: it is one of several that sit in the region.
    Seated(Arc<AtomicU64>),
}

/// What a program sees of the cluster, and whether it may act: the part that
/// [`Attached`](crate::Attached) and [`Embedded`](crate::Embedded) have in common. Clones are the
/// same look.
#[derive(Clone)]
pub struct MembershipHandle {
    region: Region,
    identity: Identity,
}

impl MembershipHandle {
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

    /// The own incarnation; [`Incarnation::NONE`] while this program is no member, and in the child
    /// of a fork.
    #[inline]
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        match &self.identity {
            Identity::Owner => self.region.incarnation(),
            // As the memory of a region: it is not the child's.
            Identity::Seated(_) if !self.region.is_here() => Incarnation::NONE,
            Identity::Seated(own) => Incarnation(own.load(Ordering::Acquire)),
        }
    }

    /// The newest view that the own core, or the agent, knows to be decided; `None` before there is
    /// one.
    #[must_use]
    pub fn view(&self) -> Option<OwnView> {
        self.view_of(self.incarnation())
    }

    /// The newest view, as this incarnation sees it.
    pub(crate) fn view_of(&self, own: Incarnation) -> Option<OwnView> {
        let (_, bytes) = self.region.reader().view()?;
        let view = Arc::new(View::unseal(&bytes)?);
        Some(OwnView { own: view.member(own).map_or(Incarnation::NONE, |_| own), view })
    }

    pub(crate) fn view_id(&self) -> Option<ViewId> {
        self.region.reader().view_id()
    }

    /// The views as they come, beginning with the newest.
    #[must_use]
    pub fn views(&self) -> Views {
        Views::new(self.clone())
    }

    /// The failures of other members from now on.
    #[must_use]
    pub fn failures(&self) -> Failures {
        Failures::new(self.clone())
    }

    /// Whether `view` is active for this program now: it is a member of it, and no later view that
    /// excludes an application has been active anywhere.
    ///
    /// One full fence, one seqlock read, one fence read, one clock read; no system call, no
    /// allocation, from any thread. What this thread has read or written before, in shared memory
    /// also, was so before the look. (uKharon, Algorithm 2, with the fence.)
    #[inline]
    #[must_use]
    pub fn active(&self, view: &OwnView) -> bool {
        self.owns(view) && page::still_active(self.region.page(), view.view.id, clock::now)
    }

    /// Whether the program is still the member that took the view.
    #[inline]
    fn owns(&self, view: &OwnView) -> bool {
        view.is_mine() && view.own == self.incarnation()
    }

    /// As [`MembershipHandle::active`]; says why not.
    pub fn check(&self, view: &OwnView) -> Result<(), Inactive> {
        // A lease outlives an agent by a few milliseconds, and may be used as long.
        if self.active(view) {
            return Ok(());
        }
        self.lost().map_or(Ok(()), |lost| Err(Inactive::Lost(lost)))?;
        Err(if self.owns(view) { Inactive::NoLease } else { Inactive::NotMine })
    }

    /// Why nothing more will be seen here; `None` as long as there is somebody who renews the
    /// lease.
    #[must_use]
    pub fn lost(&self) -> Option<Lost> {
        if !self.region.is_here() {
            return Some(Lost::Forked);
        }
        let owner = self.region.reader().seat(0).filter(|owner| owner.dead)?;
        Some(match self.identity {
            Identity::Owner => Lost::CoreEnded(owner.name),
            Identity::Seated(_) => Lost::AgentDied(owner.name),
        })
    }

    /// Runs `work` if `view` is active before it, and gives its result if `view` still is active
    /// after it.
    ///
    /// The effect of `work` must not count before this returns `Some`. (uKharon, section 6.1.)
    #[inline]
    pub fn guard<T>(&self, view: &OwnView, work: impl FnOnce(&OwnView) -> T) -> Option<T> {
        if !self.owns(view) {
            return None;
        }
        page::guard(|| self.region.page(), view.view.id, clock::now, || work(view))
    }

    /// As [`MembershipHandle::active`], also where the lease has run out: then the core, or the agent, asks
    /// the acceptors, and `Ok` means that `view` was active at some moment between the call and its
    /// return. Waits for `timeout` at most.
    ///
    /// It works where delays are longer than leases, and costs a round trip to a majority of
    /// coordinators. As with `active`, what the program does is safe if it takes effect before it
    /// asks. (uKharon, Algorithm 2, lines 9 to 12.)
    ///
    /// # Errors
    ///
    /// If it can not be said that `view` was active; it may have been all the same.
    pub fn confirm(&self, view: &OwnView, timeout: Nanos) -> Result<(), NotConfirmed> {
        let id = view.view.id;
        let words = || self.region.page();
        // Behind all that the program has written before it asks.
        let active = || self.owns(view) && page::still_active(words(), id, clock::now);
        if active() {
            return Ok(());
        }
        // Every answer is held against this moment: READs that were posted before it prove nothing
        // about it.
        let since = clock::now();
        let end = since + timeout;
        if let Some(lost) = self.lost() {
            return Err(NotConfirmed::Lost(lost));
        }
        self.region.want_confirmed(since);
        loop {
            let seen = self.changes();
            if !self.owns(view) {
                return Err(self.lost().map_or(NotConfirmed::NotMine(id), NotConfirmed::Lost));
            }
            if page::confirmed(words(), id, since) || active() {
                return Ok(());
            }
            if let Some(lost) = self.lost() {
                return Err(NotConfirmed::Lost(lost));
            }
            if self.view_id() > Some(id) || page::fenced(words()) > id {
                return Err(NotConfirmed::Superseded(id));
            }
            let now = clock::now();
            let left = end.since(now);
            if left == Nanos::ZERO {
                return Err(NotConfirmed::Timeout { view: id, waited: timeout });
            }
            let mut wait = left.min(POLL_INTERVAL);
            match page::load(words()) {
                // Leases on older views may still run: what is confirmed now counts only from then
                // on.
                Some(page) if page.view == id && page.start > now => wait = wait.min(page.start.since(now)),
                Some(page) if page.view == id && page.start > page.confirmed => {
                    self.region.want_confirmed(now);
                }
                _ => {}
            }
            self.wait_changed(seen, wait);
        }
    }

    /// As [`MembershipHandle::guard`], also where leases are too short for the delays: instead of two looks at
    /// a lease, one look that older leases are over, and [`MembershipHandle::confirm`] after the work. Waits
    /// for `timeout` at most, beside the work.
    ///
    /// # Errors
    ///
    /// As [`MembershipHandle::confirm`]; the work is not done, or must not count.
    pub fn guard_within<T>(
        &self,
        view: &OwnView,
        timeout: Nanos,
        work: impl FnOnce(&OwnView) -> T,
    ) -> Result<T, NotConfirmed> {
        let began = clock::now();
        if !self.has_begun(view) {
            self.confirm(view, timeout)?;
        }
        let waited = clock::now().since(began);
        let done = work(view);
        self.confirm(view, timeout.saturating_sub(waited))?;
        Ok(done)
    }

    /// Whether all leases on older views are over. If `view` is confirmed later it was active all
    /// the time from now to then.
    fn has_begun(&self, view: &OwnView) -> bool {
        let words = self.region.page();
        let page = page::load(words).filter(|page| page.view == view.view.id && page.end != Instant::ZERO);
        self.owns(view)
            && page.is_some_and(|page| page.start <= clock::now() && page::fenced(words) <= page.view)
    }

    /// The lease that `active` reads; `None` if its holder stopped in the middle of changing it.
    #[must_use]
    pub fn lease(&self) -> Option<Page> {
        page::load(self.region.page())
    }

    /// Counts changes of view and lease start; for `wait_changed`.
    #[must_use]
    pub fn changes(&self) -> u32 {
        self.region.changes()
    }

    /// Sleeps until view or lease start have changed since `seen`, or for so long; returns their
    /// count.
    /// Ends within [`POLL_INTERVAL`] if nothing can change any more: see [`MembershipHandle::lost`].
    pub fn wait_changed(&self, seen: u32, timeout: Nanos) -> u32 {
        let end = clock::now() + timeout;
        loop {
            let left = end.since(clock::now());
            let changes = self.region.wait_changed(seen, left.min(POLL_INTERVAL));
            if changes != seen || left <= POLL_INTERVAL || self.lost().is_some() {
                return changes;
            }
        }
    }
}
