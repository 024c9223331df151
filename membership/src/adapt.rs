//! Leases that grow with the delays of the network, and shrink again. (uKharon 6.3.)
//!
//! A holder whose renewals are late twice within `lease_calm` reports it to the coordinators. The
//! leader then doubles the lease, up to `lease_max`, and halves it again after `lease_calm` without
//! such a report. Both changes make a compatible view: no lease is disturbed, and every wait covers
//! the longest lease granted. A single late renewal is a pause of one process, not a slow network.
//! Each halving that has to be taken back doubles the time until the next one, so that delays which
//! last do not change the view again and again.
//!
//! Every coordinator keeps what it knows of reports, and may lead much later. So each decided view is
//! compared with it: an operator's lease stays, whether or not a coordinator got the request.

use crate::Config;
use crate::mutants::Mutant;
use crate::timing::Timing;
use crate::view::View;
use obol_fabric::{Instant, Nanos};

/// How many times `lease_calm` a leader waits at most before it shortens a lease.
pub const CALM_LIMIT: u32 = 64;

/// The holder's side: whether late renewals are worth a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LateRenewals {
    late: Option<Instant>,
}

impl LateRenewals {
    /// Records a renewal that came after the lease had expired; true if the coordinators should
    /// know.
    pub fn late(&mut self, view: &View, timing: &Timing, now: Instant) -> bool {
        let before = self.late.replace(now);
        let again = before.is_some_and(|before| now.since(before) <= timing.lease_calm);
        again && view.lease < timing.lease_max
    }
}

/// The leader's side. Every coordinator keeps it, so that a new leader has it at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseScaler {
    /// When a holder last reported late renewals, or the lease was last shortened.
    since: Option<Instant>,
    /// The last change was to shorten the lease.
    shortened: bool,
    /// How many times `lease_calm` has to pass before the lease is shortened: a power of two, up to
    /// [`CALM_LIMIT`].
    calms: u32,
    /// The lease before the first report, below which it is not shortened again.
    floor: Nanos,
    /// The lease that the last report asks for, until a view decides about it.
    asked: Option<Nanos>,
}

impl Default for LeaseScaler {
    fn default() -> Self {
        Self { since: None, shortened: false, calms: 1, floor: Nanos::ZERO, asked: None }
    }
}

fn halved(lease: Nanos, least: Nanos) -> Nanos {
    Nanos(lease.0 / 2).max(least)
}

impl LeaseScaler {
    /// A holder reports that leases of `lease` are too short. Returns the new duration, if the
    /// report is about `view`.
    pub fn grow(&mut self, lease: Nanos, view: &View, config: &Config, now: Instant) -> Option<Nanos> {
        let most = config.timing.lease_max;
        if lease != view.lease || lease >= most || config.mutant.has(Mutant::DeafToStrain) {
            return None;
        }
        if self.since.replace(now).is_none() {
            self.floor = view.lease;
        }
        if std::mem::take(&mut self.shortened) {
            self.calms = (self.calms * 2).min(CALM_LIMIT);
        }
        let most = if config.mutant.has(Mutant::StretchPastMax) { Nanos(u64::MAX) } else { most };
        assert!(self.calms.is_power_of_two() && self.calms <= CALM_LIMIT);
        assert!(lease < most, "a lease at its limit does not grow");
        self.asked = Some(lease.saturating_mul(2).min(most));
        self.asked
    }

    /// An operator has set the lease: it is not shortened automatically.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// A view was decided after `before`. What this process knows of earlier reports justifies only
    /// changes of the lease that followed from them. Any other change was an operator's, whose request
    /// this process may have missed; so may those in views that it has skipped have been.
    pub fn follow(&mut self, before: &View, view: &View, config: &Config, now: Instant) {
        if config.mutant.has(Mutant::AdaptOperatorsLease) {
            return;
        }
        if view.id != before.id.next() {
            return self.reset();
        }
        if view.lease == before.lease {
            return;
        }
        let grown = self.asked.take() == Some(view.lease);
        let shortened = self.since.is_some() && view.lease == halved(before.lease, self.least(config));
        if !grown && !shortened {
            return self.reset();
        }
        (self.since, self.shortened) = (Some(now), !grown);
    }

    /// The shortest lease that adaptation makes.
    fn least(&self, config: &Config) -> Nanos {
        config.timing.lease.max(self.floor)
    }

    /// When the lease should be shortened.
    pub fn due(&self, timing: &Timing) -> Instant {
        assert!(self.calms.is_power_of_two() && self.calms <= CALM_LIMIT);
        self.since.map_or(Instant::NEVER, |since| since + timing.lease_calm.saturating_mul(self.calms.into()))
    }

    /// The new duration after a time without reports, if it differs from the current one.
    pub fn shrink(&mut self, view: &View, config: &Config, now: Instant) -> Option<Nanos> {
        if now < self.due(&config.timing) {
            return None;
        }
        let least = self.least(config);
        if view.lease <= least {
            self.reset();
            return None;
        }
        (self.since, self.shortened) = (Some(now), true);
        let least = if config.mutant.has(Mutant::ShrinkPastLeast) { Nanos::ZERO } else { least };
        let lease = halved(view.lease, least);
        assert!(least <= lease && lease < view.lease, "a lease shrinks, and not below its least");
        Some(lease)
    }
}
