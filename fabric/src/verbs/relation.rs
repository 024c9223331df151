//! How the clock of another host relates to this host's: one question, one answer, and the middle
//! between them.

use crate::types::{Instant, Nanos};

/// What a process of another host read off its clock while this one waited for the answer. The
/// reading falls somewhere between question and answer; it is dated to the middle, and is off by
/// half of that time at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockRelation {
    ours: Instant,
    theirs: Instant,
    doubt: Nanos,
}

impl ClockRelation {
    /// `theirs` was read after `asked` and before `answered`, which are of this host's clock.
    #[must_use]
    pub const fn measured(asked: Instant, theirs: Instant, answered: Instant) -> Self {
        let trip = answered.since(asked).0;
        Self { ours: Instant(asked.0.saturating_add(trip / 2)), theirs, doubt: Nanos(trip.div_ceil(2)) }
    }

    /// When it was measured.
    #[must_use]
    pub const fn measured_at(&self) -> Instant {
        self.ours
    }

    /// A reading of their clock on ours.
    #[must_use]
    pub const fn here(&self, theirs: Instant) -> Instant {
        shift(theirs, self.theirs, self.ours)
    }

    /// A reading of our clock on theirs.
    #[must_use]
    pub const fn there(&self, ours: Instant) -> Instant {
        shift(ours, self.ours, self.theirs)
    }

    /// By how much [`ClockRelation::here`] may be off for a moment near `at`: what the measurement
    /// left open, and what two clocks that are each off by `drift_ppm` have gone apart since.
    #[must_use]
    pub fn doubt(&self, at: Instant, drift_ppm: u32) -> Nanos {
        let apart = u128::from(at.0.abs_diff(self.ours.0)) * 2 * u128::from(drift_ppm) / 1_000_000;
        Nanos(self.doubt.0.saturating_add(u64::try_from(apart).unwrap_or(u64::MAX)))
    }
}

/// A clock's reading on another clock that showed `to` when this one showed `from`.
const fn shift(at: Instant, from: Instant, to: Instant) -> Instant {
    if at.0 >= from.0 {
        Instant(to.0.saturating_add(at.0 - from.0))
    } else {
        Instant(to.0.saturating_sub(from.0 - at.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wherever_the_clock_was_read_the_truth_is_within_the_doubt() {
        // Their clock is 5000 ahead; the question is out from 100 to 201.
        for read_at in 100..=201 {
            let relation = ClockRelation::measured(Instant(100), Instant(read_at + 5_000), Instant(201));
            let doubt = relation.doubt(Instant(150), 0);
            assert_eq!(doubt, Nanos(51));
            for ours in [0, 150, 9_999] {
                let here = relation.here(Instant(ours + 5_000));
                assert!(here.0.abs_diff(ours) <= doubt.0, "{read_at}: {here:?} for {ours}");
                assert!(relation.there(Instant(ours)).0.abs_diff(ours + 5_000) <= doubt.0);
            }
        }
    }

    #[test]
    fn the_doubt_grows_as_two_clocks_go_apart() {
        let relation = ClockRelation::measured(Instant(0), Instant(7), Instant(20));
        assert_eq!(relation.doubt(Instant(10), 500), Nanos(10));
        assert_eq!(relation.doubt(Instant(1_000_000_010), 500), Nanos(10 + 1_000_000));
        assert_eq!(relation.doubt(Instant::NEVER, 1_000_000), Nanos::MAX, "and never wraps");
    }
}
