//! Distributions of durations for reports: microseconds with fractions, and percentiles only if
//! there are enough samples.

use crate::percentile::Percentile;
use hdrhistogram::Histogram;
use obol_fabric::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Samples needed to report a p99: with fewer, the largest sample may well lie below the true p99
/// (1 - 0.99^n reaches 95 % at n = 299).
pub const P99_SAMPLES_MIN: u64 = 299;

/// Longer durations count as ten minutes.
const LONGEST: Nanos = Nanos::from_secs(600);

/// A distribution of durations.
#[derive(Clone, Debug)]
pub struct Distribution(Histogram<u64>);

/// Microseconds of a [`Summary`] with a suitable unit.
pub fn shown(us: f64) -> String {
    Nanos((us * 1000.0) as u64).to_string()
}

/// A distribution in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Samples.
    pub n: u64,
    /// The smallest.
    pub min: f64,
    /// The median; null with fewer than 5 samples.
    pub p50: Option<f64>,
    /// The 90th percentile; null with fewer than 29 samples.
    pub p90: Option<f64>,
    /// The 99th percentile; null with fewer than 299 samples.
    pub p99: Option<f64>,
    /// The largest.
    pub max: f64,
}

impl Default for Distribution {
    fn default() -> Self {
        Self::new()
    }
}

impl Distribution {
    /// An empty distribution; three significant figures are kept.
    pub fn new() -> Self {
        // Constant bounds that the library accepts: 1 < 2 * lowest <= highest, at most 5 figures.
        #[expect(clippy::expect_used, reason = "constant arguments, held by a test")]
        Self(Histogram::new_with_bounds(1, LONGEST.0, 3).expect("constant bounds are valid"))
    }

    /// Adds a sample; longer ones count as the longest.
    pub fn add(&mut self, span: Nanos) {
        self.0.saturating_record(span.0);
    }

    /// Adds equal samples.
    pub fn add_many(&mut self, span: Nanos, n: u64) {
        self.0.saturating_record_n(span.0, n);
    }

    /// Adds all samples of another one.
    pub fn add_all(&mut self, other: &Self) {
        // Only a distribution with other bounds could be refused, and there is none.
        let _ = self.0.add(&other.0);
    }

    /// Samples so far.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The underlying histogram, in nanoseconds.
    pub const fn histogram(&self) -> &Histogram<u64> {
        &self.0
    }

    /// The value at a quantile.
    pub fn quantile(&self, q: f64) -> Nanos {
        Nanos(self.0.value_at_quantile(q))
    }

    /// The 95 % confidence interval of the median, from order statistics: for any distribution, a
    /// sample lies below the true median with probability one half, so the rank of the median is
    /// binomial.
    pub fn median_interval(&self) -> (Nanos, Nanos) {
        let half = 0.98 / (self.0.len().max(1) as f64).sqrt();
        (self.quantile((0.5 - half).max(0.0)), self.quantile((0.5 + half).min(1.0)))
    }

    /// The figures of a report.
    pub fn summary(&self) -> Summary {
        let us = |n: u64| if self.0.is_empty() { 0.0 } else { n as f64 / 1000.0 };
        let claimed = |percentile: Percentile| {
            let value = || us(self.0.value_at_quantile(percentile.quantile()));
            (self.0.len() >= u64::from(percentile.samples_min())).then(value)
        };
        Summary {
            n: self.0.len(),
            min: us(self.0.min()),
            p50: claimed(Percentile::P50),
            p90: claimed(Percentile::P90),
            p99: claimed(Percentile::P99),
            max: us(self.0.max()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_p99_needs_its_samples() {
        let mut times = Distribution::new();
        for n in 1..P99_SAMPLES_MIN {
            times.add(Nanos(n * 1000));
        }
        assert_eq!(times.summary().p99, None);
        times.add(Nanos(299_000));
        let summary = times.summary();
        assert!(summary.p50.is_some_and(|p50| (p50 - 150.0).abs() < 0.5), "{summary:?}");
        assert!(summary.p99.is_some_and(|p99| (p99 - 297.0).abs() < 0.5), "{summary:?}");
    }

    #[test]
    fn the_interval_of_a_median_holds_it_in_about_95_of_100_draws() {
        let mut rng = obol_rng::Rng::new(1);
        let held = (0..2000).filter(|_| {
            let mut times = Distribution::new();
            for _ in 0..200 {
                times.add(Nanos(1000 + rng.below(1000)));
            }
            let (low, high) = times.median_interval();
            (low.0..=high.0).contains(&1500)
        });
        let held = held.count();
        assert!((1850..=1970).contains(&held), "{held} of 2000");
    }

    #[test]
    fn no_samples_give_zeros_and_no_percentiles() {
        let Summary { n, min, p50, p90, p99, max } = Distribution::new().summary();
        assert_eq!((n, min, max, [p50, p90, p99]), (0, 0.0, 0.0, [None; 3]));
    }

    #[test]
    fn each_percentile_needs_its_samples() {
        let mut times = Distribution::new();
        for n in 1..=P99_SAMPLES_MIN {
            times.add(Nanos(1000));
            let Summary { p50, p90, p99, .. } = times.summary();
            assert_eq!([p50, p90, p99].map(|found| found.is_some()), [n >= 5, n >= 29, n >= 299], "{n}");
        }
    }

    #[test]
    fn zero_durations_are_counted() {
        let mut times = Distribution::new();
        (0..5).for_each(|_| times.add(Nanos::ZERO));
        let Summary { min, p50, max, .. } = times.summary();
        assert_eq!((min, p50, max), (0.0, Some(0.0), 0.0));
        assert_eq!(shown(max), Nanos::ZERO.to_string());
    }
}
