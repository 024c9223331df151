//! Leases that grow with the delays of the network, and shrink again. (uKharon 6.3.)
//!
//! A holder whose renewals come too late twice within `lease_calm` notifies the coordinators; the
//! leader doubles the lease, up to `lease_max`, and halves it again when no holder has complained
//! for `lease_calm`. Either makes a compatible view: no lease is disturbed, and every wait follows
//! the longest lease that was given out. Once is a pause of one process, not a slow network.

use crate::Config;
use crate::mutants::Mutant;
use crate::timing::Timing;
use crate::view::View;
use obol_fabric::{Instant, Nanos};

/// The holder's part: whether late renewals are worth a complaint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LateRenewals {
    late: Option<Instant>,
}

impl LateRenewals {
    /// Takes a renewal that came after the lease had run out; true if the coordinators should know.
    pub fn late(&mut self, view: &View, timing: &Timing, now: Instant) -> bool {
        let before = self.late.replace(now);
        let again = before.is_some_and(|before| now.since(before) <= timing.lease_calm);
        again && view.lease < timing.lease_max
    }
}

/// The leader's part. Every coordinator keeps it, so that a new leader knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LeaseScaler {
    /// When a holder last complained, or the lease was last shortened.
    since: Option<Instant>,
}

impl LeaseScaler {
    /// A holder complains about leases of `lease`; the duration that it should be, if the complaint
    /// is about `view`.
    pub fn grow(&mut self, lease: Nanos, view: &View, config: &Config, now: Instant) -> Option<Nanos> {
        let most = config.timing.lease_max;
        if lease != view.lease || lease >= most || config.mutant.has(Mutant::DeafToStrain) {
            return None;
        }
        self.since = Some(now);
        let most = if config.mutant.has(Mutant::StretchPastMax) { Nanos(u64::MAX) } else { most };
        Some(lease.saturating_mul(2).min(most))
    }

    /// An operator has decided how long leases are: they are not shortened.
    pub const fn reset(&mut self) {
        self.since = None;
    }

    /// When the lease should be shortened.
    #[must_use]
    pub fn due(&self, timing: &Timing) -> Instant {
        self.since.map_or(Instant::NEVER, |since| since + timing.lease_calm)
    }

    /// The duration that the lease should have now that no holder complains any more, if it is
    /// another.
    pub fn shrink(&mut self, view: &View, config: &Config, now: Instant) -> Option<Nanos> {
        if now < self.due(&config.timing) {
            return None;
        }
        let least = config.timing.lease;
        if view.lease <= least {
            self.since = None;
            return None;
        }
        self.since = Some(now);
        let least = if config.mutant.has(Mutant::ShrinkPastLeast) { Nanos::ZERO } else { least };
        Some(Nanos(view.lease.0 / 2).max(least))
    }
}
