//! A holder's lease: which view its page is on, from when and until when.
//!
//! uKharon, section 6.2, Algorithm 2, with three differences: the wait covers every view whose
//! lease may still run, not just the last; views may be compatible (6.3); and with CLEAR the
//! coordinators announce that the wait is over. Safety rests on these rules;
//! `docs/design/leases.md` argues each.

use crate::mutants::{ActiveMutant, Mutant};
use crate::timing::Timing;
use crate::view::{Kind, View};
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
        Self { page: Page::default(), known: None, clear: None, kind, drift_ppm: timing.drift_ppm, mutant }
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
    /// succeed.
    pub fn learn(&mut self, view: &View, now: Instant) {
        let at = if self.mutant.has(Mutant::WaitFromProposal) { now - view.lease } else { now };
        let (wait, lease) = (view.wait, view.lease_of(self.kind));
        let careless = self.mutant.has(Mutant::UncachedShortWait) && self.kind == Kind::App;
        let wait = if careless { wait.min(view.lease) } else { wait };
        self.known = Some(Known { view: view.id, base: view.base, wait, lease, at });
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
    pub fn renewed(&mut self, view: ViewId, posted: Instant, now: Instant) -> Renewed {
        let Some(known) = self.known.filter(|known| known.view == view) else { return Renewed::Outdated };
        let from = if self.mutant.has(Mutant::DateFromCompletion) { now } else { posted };
        let undrifted = self.mutant.has(Mutant::UndriftedEnd);
        let end = from + shortened(known.lease, if undrifted { 0 } else { self.drift_ppm });
        if self.page.view == view && self.page.end != Instant::ZERO {
            let how = if now < self.page.end { Renewed::OnTime } else { Renewed::Late };
            self.page.end = self.page.end.max(end);
            return how;
        }
        let holds_run = self.page.end != Instant::ZERO && self.page.base == known.base
            || self.mutant.has(Mutant::InheritUnheld) && known.base != known.view;
        let start = if holds_run {
            self.page.start
        } else if self.clear == Some(known.base) {
            known.at
        } else {
            known.at + self.wait(&known)
        };
        let end = if self.mutant.has(Mutant::EndFromStart) { start + known.lease } else { end };
        let end = if holds_run { end.max(self.page.end) } else { end };
        self.page = Page { view, base: known.base, start, end, confirmed: Instant::ZERO };
        Renewed::First
    }

    /// The acceptors confirmed, by READs posted at `posted`, that `view` was the newest then. This
    /// answers earlier requests to confirm, whether or not the lease is still valid. A cache's
    /// answer does not suffice: it is as old as the cache's own lease.
    pub fn confirmed(&mut self, view: ViewId, posted: Instant, now: Instant) {
        let from = if self.mutant.has(Mutant::ConfirmFromCompletion) { now } else { posted };
        if self.page.view == view && self.page.end != Instant::ZERO {
            self.page.confirmed = self.page.confirmed.max(from);
        }
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
