//! Percentiles of simulated durations with their confidence intervals. All samples are kept, so that
//! no bucket of a histogram rounds what is compared with a paper.

use obol_fabric::Nanos;
use obol_observe::stats::P99_SAMPLES_MIN;

/// Standard deviations of a 95 % interval.
const DEVIATIONS: f64 = 1.96;

/// Durations in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Samples(Vec<Nanos>);

impl FromIterator<Nanos> for Samples {
    fn from_iter<I: IntoIterator<Item = Nanos>>(samples: I) -> Self {
        let mut all: Vec<Nanos> = samples.into_iter().collect();
        all.sort_unstable();
        Self(all)
    }
}

impl Samples {
    /// The smallest sample that is not exceeded by this share of all; `None` if there are too few for
    /// a statement about it.
    pub(super) fn quantile(&self, q: f64) -> Option<Nanos> {
        let needed = if q > 0.5 { P99_SAMPLES_MIN } else { 1 };
        let rank = (q * self.0.len() as f64).ceil().max(1.0) as usize;
        self.0.get(rank - 1).copied().filter(|_| self.0.len() as u64 >= needed)
    }

    /// The 95 % confidence interval of a quantile, from order statistics: how many samples lie below
    /// the true one is binomial, whatever their distribution. `None` if it reaches beyond the samples.
    pub(super) fn interval(&self, q: f64) -> Option<[Nanos; 2]> {
        let n = self.0.len() as f64;
        let half = DEVIATIONS * (n * q * (1.0 - q)).sqrt();
        let (low, high) = ((q * n - half).floor(), (q * n + half).ceil());
        let at = |rank: f64| self.0.get(rank as usize - 1).copied();
        if low < 1.0 { None } else { Some([at(low)?, at(high)?]) }
    }

    pub(super) fn mean(&self) -> Option<Nanos> {
        let sum: u128 = self.0.iter().map(|span| u128::from(span.0)).sum();
        Some(Nanos(u64::try_from(sum.checked_div(self.0.len() as u128)?).ok()?))
    }

    /// The share of samples up to a duration.
    pub(super) fn share_up_to(&self, span: Nanos) -> f64 {
        self.0.partition_point(|sample| *sample <= span) as f64 / self.0.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_rng::Rng;

    #[test]
    fn percentiles_are_samples_and_need_enough_of_them() {
        let samples: Samples = (1..=1000).rev().map(Nanos).collect();
        assert_eq!(samples.quantile(0.5), Some(Nanos(500)));
        assert_eq!(samples.quantile(0.99), Some(Nanos(990)));
        assert_eq!((samples.mean(), samples.share_up_to(Nanos(250))), (Some(Nanos(500)), 0.25));
        let few: Samples = (1..=P99_SAMPLES_MIN - 1).map(Nanos).collect();
        assert_eq!(few.quantile(0.99), None);
        let none = Samples::default();
        assert_eq!((none.quantile(0.5), none.interval(0.5), none.mean()), (None, None, None));
        let few: Samples = (1..=300).map(Nanos).collect();
        assert_eq!(few.interval(0.99), None, "it reaches beyond the largest sample");
    }

    #[test]
    fn intervals_hold_the_true_percentile_in_about_95_of_100_draws() {
        let mut rng = Rng::new(1);
        for (q, truth) in [(0.5, 50_000), (0.99, 99_000)] {
            let held = (0..1000).filter(|_| {
                let samples: Samples = (0..1000).map(|_| Nanos(rng.below(100_000))).collect();
                samples.interval(q).is_some_and(|[low, high]| (low.0..=high.0).contains(&truth))
            });
            let held = held.count();
            assert!((930..=985).contains(&held), "{held} of 1000 at {q}");
        }
    }
}
