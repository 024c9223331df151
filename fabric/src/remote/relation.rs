//! The relation of another host's clock to this host's, from one request and its reply.

use crate::types::{Instant, Nanos};

/// A reading of another process's clock, taken between this process's request and the reply. It is
/// dated to the middle; the error is at most half of that interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockRelation {
    ours: Instant,
    theirs: Instant,
    error: Nanos,
}

impl ClockRelation {
    /// `theirs` was read after `asked` and before `answered`, which are of this host's clock.
    pub const fn measured(asked: Instant, theirs: Instant, answered: Instant) -> Self {
        let trip = answered.since(asked).0;
        Self { ours: Instant(asked.0.saturating_add(trip / 2)), theirs, error: Nanos(trip.div_ceil(2)) }
    }

    pub const fn measured_at(&self) -> Instant {
        self.ours
    }

    /// Converts a reading of their clock to ours.
    pub const fn to_local(&self, theirs: Instant) -> Instant {
        shift(theirs, self.theirs, self.ours)
    }

    /// Converts a reading of our clock to theirs.
    pub const fn to_remote(&self, ours: Instant) -> Instant {
        shift(ours, self.ours, self.theirs)
    }

    /// The maximum error of [`ClockRelation::to_local`] for a moment near `at`: that of the
    /// measurement, plus the relative drift since then of two clocks with `drift_ppm` each.
    pub fn error(&self, at: Instant, drift_ppm: u32) -> Nanos {
        let apart = u128::from(at.0.abs_diff(self.ours.0)) * 2 * u128::from(drift_ppm) / 1_000_000;
        Nanos(self.error.0.saturating_add(u64::try_from(apart).unwrap_or(u64::MAX)))
    }
}

/// Converts a clock's reading to another clock that showed `to` when this one showed `from`.
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
        // Their clock is 5000 ahead; the request is pending from 100 to 201.
        for read_at in 100..=201 {
            let relation = ClockRelation::measured(Instant(100), Instant(read_at + 5_000), Instant(201));
            let error = relation.error(Instant(150), 0);
            assert_eq!(error, Nanos(51));
            for ours in [0, 150, 9_999] {
                let here = relation.to_local(Instant(ours + 5_000));
                assert!(here.0.abs_diff(ours) <= error.0, "{read_at}: {here:?} for {ours}");
                assert!(relation.to_remote(Instant(ours)).0.abs_diff(ours + 5_000) <= error.0);
            }
        }
    }

    #[test]
    fn the_error_grows_as_two_clocks_drift_apart() {
        let relation = ClockRelation::measured(Instant(0), Instant(7), Instant(20));
        assert_eq!(relation.error(Instant(10), 500), Nanos(10));
        assert_eq!(relation.error(Instant(1_000_000_010), 500), Nanos(10 + 1_000_000));
        assert_eq!(relation.error(Instant::NEVER, 1_000_000), Nanos::MAX, "and never wraps");
    }
}
