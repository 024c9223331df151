//! A member's view of its cluster: the newest view, whether it is active, and what changes.
//!
//! Attached and embedded programs read a region in the same way; they differ only in where their
//! own incarnation is stored. Nothing here writes to the region.

use crate::lost::{Inactive, Lost};
use crate::statements::Statements;
use derive_more::Deref;
use obol_fabric::host::{Region, clock};
use obol_fabric::{Incarnation, Instant, Nanos, Page, ViewId, page};
use obol_membership::View;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// An agent's death wakes no waiting reader, so readers check this often.
pub const POLL_INTERVAL: Nanos = Nanos::from_millis(100);

/// A view as one member sees it: the view, and whether that member is in it. Cheap to clone. It is
/// valid for that incarnation only, not for the same program after it has joined again.
#[derive(Clone, Debug, PartialEq, Eq, Deref)]
pub struct OwnView {
    #[deref(forward)]
    pub(crate) view: Arc<View>,
    /// The member that read it; [`Incarnation::NONE`] if it is not in the view.
    pub(crate) own: Incarnation,
}

impl OwnView {
    /// Whether the program that read this view is a member of it. Only then can it be active for
    /// that program.
    #[must_use]
    pub const fn is_mine(&self) -> bool {
        self.own.0 != Incarnation::NONE.0
    }

    /// The view itself, as a shared pointer.
    #[must_use]
    pub const fn shared(&self) -> &Arc<View> {
        &self.view
    }
}

/// Why a view was not confirmed ([`MembershipHandle::confirm`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotConfirmed {
    /// The handle is no longer usable.
    #[error(transparent)]
    Lost(Lost),
    /// The program is not a member of this view. A newer one may include it; if not, it joins again.
    #[error("this program is not a member of view {0}; take the newest view, or join again")]
    NotMine(ViewId),
    /// There is a newer view, or the coordinators have fenced this one. Retry with the newest view.
    #[error("view {0} is not the newest any more; take the newest view and ask again")]
    Superseded(ViewId),
    /// No majority of acceptors answered in time, or leases on older views were still valid.
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

/// Where a program's own incarnation is stored.
#[derive(Clone)]
enum Identity {
    /// In the header of the region that it owns.
    Owner,
    /// Here: it is one of several programs in the region.
    Seated(Arc<AtomicU64>),
}

/// A program's access to the cluster's views and its right to act: the common part of
/// [`Attached`](crate::Attached) and [`Embedded`](crate::Embedded). Clones share their state.
#[derive(Clone)]
pub struct MembershipHandle {
    region: Region,
    identity: Identity,
    statements: Arc<Statements>,
    /// The newest view that was read. Later reads give no earlier one, also if a region cannot be read
    /// any more, or a lease has ended.
    newest: Arc<Mutex<Option<Arc<View>>>>,
}

impl MembershipHandle {
    /// Of a program that owns its region.
    pub(crate) fn of_owner(region: Region, statements: Statements) -> Self {
        Self::new(region, Identity::Owner, statements)
    }

    /// Of a program in a seat of its agent's region.
    pub(crate) fn of_seat(region: Region, statements: Statements) -> Self {
        Self::new(region, Identity::Seated(Arc::default()), statements)
    }

    fn new(region: Region, identity: Identity, statements: Statements) -> Self {
        Self { region, identity, statements: Arc::new(statements), newest: Arc::default() }
    }

    /// Records the incarnation with which a seated program was admitted.
    pub(crate) fn admitted(&self, incarnation: Incarnation) {
        if let Identity::Seated(own) = &self.identity {
            own.store(incarnation.0, Ordering::Release);
        }
    }

    /// This program's incarnation; [`Incarnation::NONE`] while it is not a member, and in the child
    /// of a fork.
    #[inline]
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        match &self.identity {
            Identity::Owner => self.region.incarnation(),
            // Like the memory of a region, it does not belong to the child.
            Identity::Seated(_) if !self.region.is_here() => Incarnation::NONE,
            Identity::Seated(own) => Incarnation(own.load(Ordering::Acquire)),
        }
    }

    /// The newest view: the one that the core or the agent knows to be decided, or the next one, if a
    /// coordinator of this host knows it and it is active for this program. `None` before the first.
    #[must_use]
    pub fn view(&self) -> Option<OwnView> {
        self.view_of(self.incarnation())
    }

    /// The newest view, as this incarnation sees it.
    pub(crate) fn view_of(&self, own: Incarnation) -> Option<OwnView> {
        if !self.region.is_here() {
            // In a child, a thread that does not exist there may hold the lock.
            return None;
        }
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let id_of = |view: &Option<Arc<View>>| view.as_ref().map(|view| view.id);
        let reader = self.region.reader();
        // Reading the number is much cheaper than decoding a known view.
        if reader.view_id() > id_of(&newest)
            && let Some((_, bytes)) = reader.view()
            && let Some(view) = View::from_frame(&bytes)
        {
            *newest = Some(Arc::new(view));
        }
        if let Some(view) = self.statements.next(id_of(&newest), own, self.region.page()) {
            *newest = Some(Arc::new(view));
        }
        let view = Arc::clone(newest.as_ref()?);
        Some(OwnView { own: view.member(own).map_or(Incarnation::NONE, |_| own), view })
    }

    fn view_id(&self) -> Option<ViewId> {
        self.view().map(|view| view.id)
    }

    /// Whether `view` is active for this program now: the program is a member of it, and no later
    /// view that excludes an application has been active anywhere.
    ///
    /// One full fence, one seqlock read, one fence read, one clock read; no system call, no
    /// allocation, from any thread. Earlier reads and writes of this thread, also in shared memory,
    /// precede the check. (uKharon, Algorithm 2, with the fence.) A view that the core or the agent
    /// has no lease on yet takes a second look, at what the coordinators of this host state.
    #[inline]
    #[must_use]
    pub fn active(&self, view: &OwnView) -> bool {
        self.owns(view)
            && (page::still_active(self.region.page(), view.view.id, clock::now) || self.is_ahead(view))
    }

    /// Whether the view is active for this program ahead of its core or agent. What counts has a full
    /// fence before it.
    #[cold]
    fn is_ahead(&self, view: &OwnView) -> bool {
        self.statements.allow(&view.view, view.own, self.region.page())
    }

    /// Whether the program is still the member that read the view.
    #[inline]
    fn owns(&self, view: &OwnView) -> bool {
        view.is_mine() && view.own == self.incarnation()
    }

    /// As [`MembershipHandle::active`]; says why not.
    pub fn check(&self, view: &OwnView) -> Result<(), Inactive> {
        // A lease outlives an agent by a few milliseconds, and remains usable.
        if self.active(view) {
            return Ok(());
        }
        self.lost().map_or(Ok(()), |lost| Err(Inactive::Lost(lost)))?;
        Err(if self.owns(view) { Inactive::NoLease } else { Inactive::NotMine })
    }

    /// Why this handle is no longer usable; `None` as long as the lease is being renewed.
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

    /// Runs `work` if `view` is active before it, and returns its result if `view` is still active
    /// after it.
    ///
    /// The effect of `work` must not count before this returns `Some`. (uKharon, section 6.1.)
    #[inline]
    pub fn guard<T>(&self, view: &OwnView, work: impl FnOnce(&OwnView) -> T) -> Option<T> {
        // Safety does not depend on this check, which only saves work and needs no full fence.
        let is_active = || page::active(self.region.page(), view.view.id, clock::now) || self.is_ahead(view);
        let begins = self.owns(view) && is_active();
        begins.then(|| work(view)).filter(|_| self.active(view))
    }

    /// As [`MembershipHandle::active`], also where the lease has expired: then the core, or the
    /// agent, asks the acceptors, and `Ok` means that `view` was active at some moment between the
    /// call and its return. Waits for at most `timeout`.
    ///
    /// It works where delays are longer than leases, and costs a round trip to a majority of
    /// coordinators. As with `active`, an action is safe if it takes effect before the call.
    /// (uKharon, Algorithm 2, lines 9 to 12.)
    ///
    /// # Errors
    ///
    /// If `view` cannot be confirmed; it may have been active nevertheless.
    pub fn confirm(&self, view: &OwnView, timeout: Nanos) -> Result<(), NotConfirmed> {
        let id = view.view.id;
        let words = || self.region.page();
        if self.active(view) {
            return Ok(());
        }
        // Answers are compared with this moment: READs posted before it prove nothing about it.
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
            if page::confirmed(words(), id, since) || self.active(view) {
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
                // Leases on older views may still be valid: a confirmation counts only from then
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

    /// As [`MembershipHandle::guard`], also where leases are too short for the delays. It replaces
    /// the two lease checks by a check before the work that older leases are over, and a
    /// [`MembershipHandle::confirm`] after it. Waits for at most `timeout`, not counting the work.
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

    /// Whether all leases on older views are over. If `view` is confirmed later, it was active
    /// throughout.
    fn has_begun(&self, view: &OwnView) -> bool {
        let words = self.region.page();
        let page = page::load(words).filter(|page| page.view == view.view.id && page.end != Instant::ZERO);
        self.owns(view)
            && page.is_some_and(|page| page.start <= clock::now() && page::fenced(words) <= page.view)
    }

    /// The lease that `active` reads; `None` if its holder stopped in the middle of an update.
    #[must_use]
    pub fn lease(&self) -> Option<Page> {
        page::load(self.region.page())
    }

    /// The number of changes of view and lease start, and of what coordinators of this host have
    /// stated; for `wait_changed`.
    #[must_use]
    pub fn changes(&self) -> u32 {
        self.region.changes(&self.statements.cluster)
    }

    /// Sleeps until there are changes since `seen`, or for at most `timeout`;
    /// returns the number of changes. Ends within [`POLL_INTERVAL`] if nothing can change any more:
    /// see [`MembershipHandle::lost`].
    pub fn wait_changed(&self, seen: u32, timeout: Nanos) -> u32 {
        let end = clock::now() + timeout;
        loop {
            let left = end.since(clock::now());
            let most = left.min(POLL_INTERVAL);
            let changes = self.region.wait_changed(&self.statements.cluster, seen, most);
            if changes != seen || left <= POLL_INTERVAL || self.lost().is_some() {
                return changes;
            }
        }
    }
}
