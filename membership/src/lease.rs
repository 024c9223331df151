//! A holder's lease: which view its page is on, from when and until when.
//!
//! uKharon, section 6.2, Algorithm 2, with four differences: the wait covers every view whose
//! lease may still run, not just the last; views may be compatible (6.3); with CLEAR the
//! coordinators announce that the wait is over; and a lease goes over to the next view without
//! another poll. Safety rests on these rules; `docs/design/leases.md` argues each.

use crate::mutants::{ActiveMutant, Mutant};
use crate::timing::Timing;
use crate::view::{Kind, Numbers, View};
use obol_fabric::{Instant, Nanos, Page, ViewId};

/// Parts per million.
const MILLION: u64 = 1_000_000;

/// The longest that a lease of `span` can last on a clock that is slow by the bound, as measured by
/// a newcomer with a fast one.
pub fn lengthened(span: Nanos, drift_ppm: u32) -> Nanos {
    Nanos(span.0.saturating_add(span.0.saturating_mul(u64::from(drift_ppm)).div_ceil(MILLION)))
}

/// The part of `span` that may be used whatever the clock's drift.
pub fn shortened(span: Nanos, drift_ppm: u32) -> Nanos {
    span.saturating_sub(Nanos(span.0.saturating_mul(u64::from(drift_ppm)).div_ceil(MILLION)))
}

/// What a holder knows about the newest decided view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Known {
    view: ViewId,
    base: ViewId,
    wait: Nanos,
    lease: Nanos,
    retired: Numbers,
    /// When the holder learned that it is decided.
    at: Instant,
}

/// The lease of one holder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    page: Page,
    known: Option<Known>,
    /// The latest CLEAR applied.
    clear: Option<ViewId>,
    /// The holder's kind: a cache's lease has its own duration.
    kind: Kind,
    drift_ppm: u32,
    mutant: ActiveMutant,
}

/// Who confirmed a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Voucher {
    /// A majority of the acceptors.
    Acceptors,
    /// A lease cache, whose knowledge may be as old as its own lease.
    Cache,
}

/// The result of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Renewed {
    /// The first lease on this view.
    First,
    /// Before the lease had ended.
    OnTime,
    /// After the lease had ended.
    Late,
    /// For a view other than the newest known one: ignored.
    Outdated,
}

impl Lease {
    /// No lease.
    pub fn new(timing: &Timing, kind: Kind, mutant: ActiveMutant) -> Self {
        let page = Page::default();
        Self { page, known: None, clear: None, kind, drift_ppm: timing.drift_ppm, mutant }
    }

    /// The page to publish.
    pub const fn page(&self) -> &Page {
        &self.page
    }

    /// The latest CLEAR applied.
    pub const fn clear_known(&self) -> Option<ViewId> {
        self.clear
    }

    /// Records that `view` is decided. The running lease stays until READs for the new view
    /// succeed, unless those of the lease suffice for the new view as well: then this returns true.
    ///
    /// They do for the next view. They found its slot empty, so it was decided later, and whatever
    /// follows it later still. So a lease on it may be dated from them. It is not longer than one on
    /// the view before: if only this holder knows the new view, a recovery from the loss of all
    /// acceptors waits for the leases of the view before.
    pub fn learn(&mut self, view: &View, now: Instant) -> bool {
        let at = if self.mutant.has(Mutant::WaitFromProposal) { now - view.lease } else { now };
        assert!(
            self.known.is_none_or(|known| known.view < view.id) || self.mutant.has(Mutant::AcceptLateView),
            "views are learned in order"
        );
        assert!(self.page.verified <= now, "READs are posted before their view is learned");
        let (wait, lease) = (view.wait, view.lease_of(self.kind));
        let careless = self.mutant.has(Mutant::UncachedShortWait) && self.kind == Kind::App;
        let wait = if careless { wait.min(view.lease) } else { wait };
        let known = Known { view: view.id, base: view.base, wait, lease, retired: view.retired, at };
        let before = self.known.replace(known).map_or(lease, |before| before.lease);
        let verified = self.page.verified;
        let from = if self.mutant.has(Mutant::CarryFromLearning) { now } else { verified };
        let lease = lease.min(before);
        let end = self.end(from, lease);
        // A recovered view is not decided by those who were READ.
        let follows = view.id == self.page.view.next() && !view.is_recovered();
        let carries = follows && verified != Instant::ZERO && now < end;
        if carries {
            self.hold(&known, end);
            (self.page.verified, self.page.lease) = (verified, lease);
        }
        carries
    }

    /// When a lease ends that is dated from `from`.
    fn end(&self, from: Instant, lease: Nanos) -> Instant {
        let undrifted = self.mutant.has(Mutant::UndriftedEnd);
        from + shortened(lease, if undrifted { 0 } else { self.drift_ppm })
    }

    /// Resets everything: the holder is no longer a member.
    pub fn drop_lease(&mut self) {
        self.page = Page::default();
        self.known = None;
    }

    /// Whether the lease on `view`, the newest known view, is still valid. If so, no later view was
    /// decided longer than this lease's duration ago.
    #[must_use]
    pub fn vouches(&self, view: ViewId, now: Instant) -> bool {
        let newest = self.known.is_some_and(|known| known.view == view);
        newest && self.page.view == view && (now < self.page.end || self.mutant.has(Mutant::AnswerExpired))
    }

    /// Records a renewal: READs of the slot after `view`, posted at `posted`, found nothing
    /// accepted at a majority; or a cache vouched for `view` in reply to a request posted at
    /// `posted`.
    pub fn renewed(&mut self, view: ViewId, by: Voucher, posted: Instant, now: Instant) -> Renewed {
        let Some(known) = self.known.filter(|known| known.view == view) else { return Renewed::Outdated };
        assert!(posted <= now, "a renewal is dated from before its answer");
        let from = if self.mutant.has(Mutant::DateFromCompletion) { now } else { posted };
        let end = self.end(from, known.lease);
        assert!(end <= from + known.lease, "drift shortens a lease");
        let before = self.page;
        let how = if self.page.view == view && self.page.end != Instant::ZERO {
            let how = if now < self.page.end { Renewed::OnTime } else { Renewed::Late };
            self.page.end = self.page.end.max(end);
            how
        } else {
            self.hold(&known, end);
            Renewed::First
        };
        if by == Voucher::Cache && self.mutant.has(Mutant::CacheDatesCarry) {
            self.page.verified = self.page.verified.max(posted);
        }
        if by == Voucher::Acceptors {
            // This answers earlier requests to confirm, whether or not the lease is still valid.
            let from = if self.mutant.has(Mutant::ConfirmFromCompletion) { now } else { posted };
            self.page.confirmed = self.page.confirmed.max(from);
            self.page.verified = self.page.verified.max(posted);
            self.page.lease = known.lease;
        }
        assert_eq!(self.page.view, view, "the page is on the view that was renewed");
        assert!(
            before.view != view || before.end <= self.page.end,
            "the end of a lease on one view never goes back"
        );
        how
    }

    /// Holds the first lease on a view, which ends at `end`.
    fn hold(&mut self, known: &Known, end: Instant) {
        assert!(self.page.view <= known.view || self.mutant.has(Mutant::AcceptLateView));
        let holds_run = self.page.end != Instant::ZERO && self.page.base == known.base
            || self.mutant.has(Mutant::InheritUnheld) && known.base != known.view;
        let start = if holds_run {
            self.page.start
        } else if self.clear == Some(known.base) {
            known.at
        } else {
            known.at + self.wait(known)
        };
        let end = if self.mutant.has(Mutant::EndFromStart) { start + known.lease } else { end };
        let end = if holds_run { end.max(self.page.end) } else { end };
        assert!(
            holds_run
                || start >= known.at
                || self.clear == Some(known.base)
                || self.mutant != ActiveMutant::NONE,
            "a page that inherits nothing starts after its view was learned"
        );
        self.page = Page {
            view: known.view,
            base: known.base,
            start,
            end,
            confirmed: Instant::ZERO,
            verified: Instant::ZERO,
            lease: Nanos::ZERO,
            retired: u64::from(known.retired.to_bits()),
        };
    }

    fn wait(&self, known: &Known) -> Nanos {
        if self.mutant.has(Mutant::DropWait) {
            return Nanos::ZERO;
        }
        let undrifted = self.mutant.has(Mutant::UndriftedWait);
        let wait = lengthened(known.wait, if undrifted { 0 } else { self.drift_ppm });
        if self.mutant.has(Mutant::ShortWait) { Nanos(wait.0 - wait.0 / 20) } else { wait }
    }

    /// CLEAR(`base`): no lease on a view below `base` exists. It applies to the current page if
    /// that is of this base, and to a later page of this base when it is installed; to nothing
    /// else. True if the page may start earlier because of it.
    pub fn clear(&mut self, base: ViewId, now: Instant) -> bool {
        if self.clear.is_none_or(|clear| clear < base) {
            self.clear = Some(base);
        }
        assert!(self.clear >= Some(base), "a CLEAR holds for ever");
        let held = self.page.end != Instant::ZERO;
        let applies = self.page.base == base || self.mutant.has(Mutant::ClearAnyView);
        if held && applies && now < self.page.start {
            self.page.start = now;
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A recovery from the loss of all acceptors may know only the view before, and waits for its
    /// leases.
    #[test]
    fn a_lease_that_goes_over_to_a_view_with_longer_leases_is_no_longer_than_before() {
        let timing = Timing { drift_ppm: 0, ..Timing::default() };
        let (short, posted) = (Nanos(100), Instant(1_000));
        for (next, ends) in [(Nanos(500), 100), (short, 100), (Nanos(60), 60)] {
            let before = View::genesis(&[], short, short);
            let id = before.id.next();
            let next = View { id, base: id, lease: next, ..before.clone() };
            let mut lease = Lease::new(&timing, Kind::App, ActiveMutant::NONE);
            assert!(!lease.learn(&before, Instant(900)));
            lease.renewed(before.id, Voucher::Acceptors, posted, Instant(1_010));
            assert!(lease.learn(&next, Instant(1_020)));
            assert_eq!((lease.page().view, lease.page().end), (id, posted + Nanos(ends)));
        }
    }

    /// A lease of this duration on a view that was verified at this time, by acceptors.
    fn held(lease: Nanos, posted: Instant) -> (Lease, View) {
        let view = View::genesis(&[], lease, lease);
        let timing = Timing { drift_ppm: 0, ..Timing::default() };
        let mut held = Lease::new(&timing, Kind::App, ActiveMutant::NONE);
        assert!(!held.learn(&view, posted));
        held.renewed(view.id, Voucher::Acceptors, posted, posted);
        (held, view)
    }

    /// The cache may have answered long after that view was decided, by its own lease on the one before.
    #[test]
    fn a_caches_answer_does_not_date_a_lease_that_goes_over_to_the_next_view() {
        let posted = Instant(1_000);
        let (mut lease, before) = held(Nanos(100), posted);
        lease.renewed(before.id, Voucher::Cache, posted + Nanos(50), posted + Nanos(55));
        assert_eq!(lease.page().end, posted + Nanos(150));
        let next = View { id: before.id.next(), base: before.id.next(), ..before };
        assert!(lease.learn(&next, posted + Nanos(60)));
        assert_eq!(lease.page().end, posted + Nanos(100));
    }

    /// From which a program may go on to the view after that.
    #[test]
    fn the_page_shows_what_a_lease_on_the_next_view_is_dated_from() {
        let posted = Instant(1_000);
        let (mut lease, before) = held(Nanos(100), posted);
        let shows = |lease: &Lease| (lease.page().verified, lease.page().lease);
        assert_eq!(shows(&lease), (posted, Nanos(100)));
        let next = View { id: before.id.next(), lease: Nanos(300), ..before.clone() };
        assert!(lease.learn(&next, posted + Nanos(10)));
        assert_eq!(shows(&lease), (posted, Nanos(100)), "as long as it was carried on");
        lease.renewed(next.id, Voucher::Cache, posted + Nanos(20), posted + Nanos(20));
        assert_eq!(shows(&lease), (posted, Nanos(100)), "a cache verifies nothing");
        lease.renewed(next.id, Voucher::Acceptors, posted + Nanos(30), posted + Nanos(30));
        assert_eq!(shows(&lease), (posted + Nanos(30), Nanos(300)));
        let later = View { id: next.id.next(), retired: Numbers::NONE.with(2), ..next };
        assert!(lease.learn(&later, posted + Nanos(40)));
        assert_eq!(lease.page().retired, 2);
        lease.drop_lease();
        assert_eq!(shows(&lease), (Instant::ZERO, Nanos::ZERO));
    }

    #[test]
    fn a_lease_goes_over_to_the_next_view_only() {
        let posted = Instant(1_000);
        let (mut lease, before) = held(Nanos(100), posted);
        let later = View { id: before.id.next().next(), ..before };
        assert!(!lease.learn(&later, posted + Nanos(10)), "what was decided in between is not known");
    }

    #[test]
    fn a_lease_on_a_slow_clock_ends_before_a_wait_on_a_fast_one() {
        for drift in [0, 1, 200, 9_999] {
            for lease in [1, 23_000, 20_000_000] {
                let rate = |sign: f64| 1.0 + sign * f64::from(drift) / 1e6;
                let longest = shortened(Nanos(lease), drift).0 as f64 / rate(-1.0);
                let shortest = lengthened(Nanos(lease), drift).0 as f64 / rate(1.0);
                assert!(longest <= shortest + 1e-6, "{lease}ns at {drift}ppm: {longest} > {shortest}");
            }
        }
    }
}
