//! How long a gap between two pulses has to be before it counts as a silence, for a wanted rate of
//! false alarms: from the longest gap of each second of a measurement, or of a simulation.
//!
//! Where the measurement lasted long enough, the answer is counted: an exact bound on the rate of gaps
//! beyond a level. Beyond that it is extrapolated from the longest tenth of the maxima or fewer: a
//! generalised Pareto distribution is fitted to what they exceed a threshold by (L-moments; Hosking,
//! Wallis, Technometrics 1987), with the upper bound of a parametric bootstrap. The threshold is the
//! lowest whose fit the maxima do not contradict, so pauses of another kind than the usual jitter, such
//! as those of a hypervisor, are extrapolated by themselves once there are enough of them. What the
//! maxima do not bear is refused, with the reason: too few of them, a tail that is too heavy, fits that
//! they contradict, or a bound that says nothing.

use crate::poisson;
use obol_rng::Rng;
use serde::Serialize;

/// One maximum in this many exceeds the lowest threshold.
const TAIL: usize = 10;
/// A threshold that fewer exceed is not extrapolated from.
const EXCESSES_MIN: usize = 30;
/// Fewer maxima are not extrapolated from.
pub const BLOCKS_MIN: usize = TAIL * EXCESSES_MIN;
/// Nothing is said about times that are more often as long as the measurement.
pub const EXTRAPOLATION_MAX: f64 = 1000.0;
/// The heaviest tail that is extrapolated: beyond it, the variance is infinite.
pub const SHAPE_MAX: f64 = 0.5;
/// A bound that is more often as large as the estimate says nothing.
pub const SPREAD_MAX: f64 = 3.0;
/// The distance of Kolmogorov and Smirnov at which excesses contradict the fit, times the root of
/// their number: about 1 % for a distribution that was fitted to them.
const DISTANCE_MAX: f64 = 1.0;
/// Repetitions of the bootstrap.
const RESAMPLES: usize = 400;
/// The same answer for the same samples.
const SEED: u64 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Wanted {
    /// At most one gap beyond the level in this many seconds.
    #[serde(rename = "every_s")]
    pub every_seconds: f64,
    /// The confidence of that, between 0.5 and 1.
    pub confidence: f64,
}

/// How the longest maxima are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// What it is fitted beyond.
    pub threshold: f64,
    /// The share of maxima beyond the threshold.
    pub share: f64,
    /// What they exceed it by.
    #[serde(flatten)]
    pub excess: Pareto,
}

/// A generalised Pareto distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pareto {
    /// How wide it is.
    pub scale: f64,
    /// How heavy its tail is; 0 for an exponential one, negative for one that ends.
    pub shape: f64,
}

/// How a level was found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase", tag = "method")]
pub enum Method {
    /// Counted: `beyond` maxima lie beyond it.
    Counted {
        /// Maxima beyond the level.
        beyond: u64,
    },
    Extrapolated {
        /// The distribution.
        fit: Fit,
        /// The level that it gives; the bound is higher.
        estimate: f64,
        /// The wanted time in lengths of the measurement.
        factor: f64,
    },
}

/// A level for a wanted rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Level {
    /// The level, with the wanted confidence, in the unit of the maxima.
    pub level: f64,
    /// How it was found.
    #[serde(flatten)]
    pub method: Method,
}

/// Why the maxima do not bear an answer.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    #[error("{have} seconds of samples, and {BLOCKS_MIN} are needed")]
    TooFew { have: usize },
    /// The wanted time is too long for the measurement.
    #[error(
        "the wanted time is {factor:.0} times as long as the measurement; at most {EXTRAPOLATION_MAX} times can be \
         extrapolated"
    )]
    TooFar {
        /// How many times as long.
        factor: f64,
    },
    /// The tail is too heavy.
    #[error("the longest gaps grow too fast to extrapolate (shape {shape:.2}, at most {SHAPE_MAX})")]
    HeavyTail { shape: f64 },
    /// No threshold has a fit that the maxima do not contradict.
    #[error(
        "the longest gaps are not of one kind (distance {distance:.3} from the fit, at most {limit:.3}): \
         something disturbs the measurement at times, and not often enough to say how long"
    )]
    PoorFit {
        /// The largest difference of the two distributions.
        distance: f64,
        /// The largest that is accepted.
        limit: f64,
    },
    /// The bound is too far from the estimate.
    #[error("the bound is {spread:.1} times the estimate, and more than {SPREAD_MAX} says nothing")]
    Undetermined {
        /// How many times.
        spread: f64,
    },
}

/// The level that gaps exceed no more often than wanted, from the maximum of each block of
/// `block_seconds`.
///
/// # Errors
/// If the maxima do not bear it.
pub fn level(maxima: &[f64], block_seconds: f64, wanted: Wanted) -> Result<Level, Refusal> {
    let mut sorted = maxima.to_vec();
    sorted.sort_by(f64::total_cmp);
    let measured = block_seconds * sorted.len() as f64;
    if let Some(level) = counted(&sorted, measured, wanted) {
        return Ok(level);
    }
    extrapolated(&sorted, block_seconds, measured, wanted)
}

/// The lowest of the maxima beyond which so few lie that the bound on their rate is as wanted.
fn counted(sorted: &[f64], measured: f64, wanted: Wanted) -> Option<Level> {
    let allowed = measured / wanted.every_seconds;
    let bears =
        |beyond: u64| poisson::above_at(beyond, wanted.confidence).is_some_and(|most| most <= allowed);
    let beyond = (0..sorted.len() as u64).take_while(|beyond| bears(*beyond)).last()?;
    let level = *sorted.get(sorted.len() - 1 - beyond as usize)?;
    // Others may be as long.
    let beyond = sorted.iter().filter(|maximum| **maximum > level).count() as u64;
    Some(Level { level, method: Method::Counted { beyond } })
}

fn extrapolated(sorted: &[f64], block: f64, measured: f64, wanted: Wanted) -> Result<Level, Refusal> {
    if sorted.len() < BLOCKS_MIN {
        return Err(Refusal::TooFew { have: sorted.len() });
    }
    let factor = wanted.every_seconds / measured;
    if factor > EXTRAPOLATION_MAX {
        return Err(Refusal::TooFar { factor });
    }
    let (fit, count) = Fit::to(sorted)?;
    if fit.excess.shape > SHAPE_MAX {
        return Err(Refusal::HeavyTail { shape: fit.excess.shape });
    }
    let blocks = wanted.every_seconds / block;
    let estimate = fit.beyond_once_in(blocks);
    let mut rng = Rng::new(SEED);
    let mut resample = vec![0.0; count];
    let mut levels: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            resample.fill_with(|| fit.excess.draw(&mut rng));
            resample.sort_by(f64::total_cmp);
            let excess = Pareto::to(&resample).unbounded();
            // As many as there might have been beyond the threshold.
            let share = fit.share * (1.0 + normal(&mut rng) / (count as f64).sqrt()).max(0.0);
            Fit { excess, share, ..fit }.beyond_once_in(blocks)
        })
        .collect();
    levels.sort_by(f64::total_cmp);
    // Half of the errors that are allowed. The others are for what a resample does not vary: the
    // threshold, and that beyond it the maxima follow the distribution only nearly.
    let error = (1.0 - wanted.confidence) / 2.0;
    let resampled =
        |share: f64| levels.get(((share * RESAMPLES as f64) as usize).min(RESAMPLES - 1)).copied();
    let [low, high] = [error, 1.0 - error].map(|share| resampled(share).unwrap_or(estimate));
    // The basic bootstrap: the estimate may be as far below the truth as resamples fall below it.
    let bound = (2.0 * estimate - low).max(high).max(estimate);
    let spread = bound / estimate;
    if spread.is_nan() || spread > SPREAD_MAX {
        return Err(Refusal::Undetermined { spread });
    }
    let longest = sorted.last().copied().unwrap_or(bound);
    let method = Method::Extrapolated { fit, estimate, factor };
    Ok(Level { level: bound.max(longest), method })
}

/// In (0, 1).
fn uniform(rng: &mut Rng) -> f64 {
    (rng.below(1 << 53) as f64 + 0.5) / (1u64 << 53) as f64
}

/// Nearly normal, with mean 0 and variance 1.
fn normal(rng: &mut Rng) -> f64 {
    (0..12).map(|_| uniform(rng)).sum::<f64>() - 6.0
}

impl Fit {
    /// To the maxima, in ascending order, beyond the lowest threshold for which they do not contradict
    /// it; and how many those are.
    fn to(sorted: &[f64]) -> Result<(Self, usize), Refusal> {
        let n = sorted.len();
        let mut count = n / TAIL;
        loop {
            let (below, beyond) = sorted.split_at(n - count);
            let threshold = below.last().copied().unwrap_or_default();
            let excesses: Vec<f64> = beyond.iter().map(|maximum| maximum - threshold).collect();
            let excess = Pareto::to(&excesses);
            let (distance, limit) = (excess.distance(&excesses), DISTANCE_MAX / (count as f64).sqrt());
            if distance <= limit {
                let share = count as f64 / n as f64;
                return Ok((Self { threshold, share, excess: excess.unbounded() }, count));
            }
            count /= 2;
            if count < EXCESSES_MIN {
                return Err(Refusal::PoorFit { distance, limit });
            }
        }
    }

    /// The level that one of this many blocks exceeds; the threshold, if that is exceeded more often.
    pub fn beyond_once_in(&self, blocks: f64) -> f64 {
        self.threshold + self.excess.beyond((blocks * self.share).max(1.0).recip())
    }
}

impl Pareto {
    /// To excesses in ascending order, by their L-moments.
    fn to(sorted: &[f64]) -> Self {
        let n = sorted.len() as f64;
        let mean = sorted.iter().sum::<f64>() / n;
        let weighted = sorted.iter().enumerate().map(|(i, x)| x * i as f64).sum::<f64>();
        let second = 2.0 * weighted / (n * (n - 1.0)) - mean;
        // All are alike.
        if second <= 0.0 {
            return Self { scale: mean, shape: 0.0 };
        }
        let shape = 2.0 - mean / second;
        Self { scale: (1.0 - shape) * mean, shape }
    }

    /// The exponential one with the same mean, if this one ends: a measurement does not show that
    /// delays are bounded.
    fn unbounded(self) -> Self {
        if self.shape >= 0.0 { self } else { Self { scale: self.scale / (1.0 - self.shape), shape: 0.0 } }
    }

    /// What is exceeded with this probability.
    fn beyond(self, probability: f64) -> f64 {
        if self.shape == 0.0 {
            -self.scale * probability.ln()
        } else {
            self.scale / self.shape * (probability.powf(-self.shape) - 1.0)
        }
    }

    fn draw(self, rng: &mut Rng) -> f64 {
        self.beyond(uniform(rng))
    }

    /// The probability of at most this.
    fn share(self, x: f64) -> f64 {
        let z = x / self.scale;
        let more = if self.shape == 0.0 {
            (-z).exp()
        } else {
            (1.0 + self.shape * z).max(0.0).powf(-1.0 / self.shape)
        };
        1.0 - more
    }

    /// The largest difference from the distribution of these, which ascend.
    fn distance(self, sorted: &[f64]) -> f64 {
        // All are zero, or all but one: then the shape is 1, which is refused as too heavy.
        if self.scale == 0.0 {
            return 0.0;
        }
        let n = sorted.len() as f64;
        let differences = sorted.iter().enumerate().map(|(i, x)| {
            let share = self.share(*x);
            (share - i as f64 / n).abs().max((share - (i as f64 + 1.0) / n).abs())
        });
        differences.fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Maxima of a kind, and the level that one in a given number exceeds.
    #[derive(Clone, Copy, Debug)]
    enum Kind {
        /// Generalised extreme values with this shape: maxima of many gaps of one kind.
        Usual(f64),
        /// In this share of the seconds there is a pause, evenly between these.
        Pauses(f64, [f64; 2]),
        /// The same, from the first on with this mean and no end.
        Endless(f64, [f64; 2]),
    }

    fn usual(shape: f64, e: f64) -> f64 {
        if shape == 0.0 { 1000.0 - 100.0 * e.ln() } else { 1000.0 + 100.0 / shape * (e.powf(-shape) - 1.0) }
    }

    impl Kind {
        fn draw(self, rng: &mut Rng) -> f64 {
            let (often, paused) = (uniform(rng), uniform(rng));
            match self {
                Self::Usual(shape) => usual(shape, -often.ln()),
                Self::Pauses(share, [from, to]) if paused < share => from + (to - from) * often,
                Self::Endless(share, [from, mean]) if paused < share => from - mean * often.ln(),
                Self::Pauses(..) | Self::Endless(..) => usual(0.0, -often.ln()),
            }
        }

        fn once_in(self, blocks: f64) -> f64 {
            match self {
                Self::Usual(shape) => usual(shape, -(-1.0 / blocks).ln_1p()),
                Self::Pauses(share, [from, to]) => to - (to - from) / (share * blocks),
                Self::Endless(share, [from, mean]) => from + mean * (share * blocks).ln(),
            }
        }

        fn maxima(self, n: usize, seed: u64) -> Vec<f64> {
            let mut rng = Rng::new(seed);
            (0..n).map(|_| self.draw(&mut rng)).collect()
        }
    }

    const fn wanted(every_seconds: f64) -> Wanted {
        Wanted { every_seconds, confidence: 0.95 }
    }

    #[test]
    fn a_fit_finds_the_distribution_that_the_excesses_are_of() {
        for shape in [-0.5, 0.0, 0.3] {
            let truth = Pareto { scale: 100.0, shape };
            let mut rng = Rng::new(7);
            let mut drawn: Vec<f64> = (0..20_000).map(|_| truth.draw(&mut rng)).collect();
            drawn.sort_by(f64::total_cmp);
            let fit = Pareto::to(&drawn);
            assert!((fit.scale - truth.scale).abs() < 5.0 && (fit.shape - shape).abs() < 0.03, "{fit:?}");
            assert!(fit.distance(&drawn) < 0.01 && truth.distance(&drawn) < 0.01);
            // Half exceed the median.
            assert!((fit.share(fit.beyond(0.5)) - 0.5).abs() < 1e-9);
            let unbounded = fit.unbounded();
            assert!(unbounded.shape >= 0.0 && unbounded.beyond(1e-3) >= fit.beyond(1e-3), "{unbounded:?}");
        }
    }

    #[test]
    fn maxima_that_are_all_alike_are_a_level() {
        for n in [BLOCKS_MIN, 600] {
            let found = level(&vec![7.0; n], 1.0, wanted(6000.0)).map(|found| found.level);
            assert_eq!(found, Ok(7.0));
        }
    }

    #[test]
    fn what_was_measured_long_enough_is_counted() {
        // 600 seconds: none beyond the longest bounds the rate by 3 in 600 s.
        let drawn: Vec<f64> = (1..=600).map(f64::from).collect();
        let found = level(&drawn, 1.0, wanted(200.0)).expect("counted");
        assert_eq!(found, Level { level: 600.0, method: Method::Counted { beyond: 0 } });
        let found = level(&drawn, 1.0, wanted(100.0)).expect("counted");
        assert_eq!(found, Level { level: 599.0, method: Method::Counted { beyond: 1 } });
        // Also where they are too few to extrapolate.
        assert_eq!(level(&drawn[..60], 1.0, wanted(20.0)).map(|found| found.level), Ok(60.0));
        assert_eq!(level(&[], 1.0, wanted(20.0)), Err(Refusal::TooFew { have: 0 }));
        // 201 s are not borne by counting.
        let found = level(&drawn, 1.0, wanted(201.0));
        assert!(!matches!(found, Ok(Level { method: Method::Counted { .. }, .. })), "{found:?}");
    }

    const MEASUREMENTS: u64 = 200;

    /// How many measurements have an answer, and how many of those answers hold.
    fn answers(kind: Kind, seconds: usize, factor: f64) -> (u32, u32) {
        let every = factor * seconds as f64;
        let (mut answered, mut held) = (0, 0);
        for seed in 0..MEASUREMENTS {
            let Ok(found) = level(&kind.maxima(seconds, seed), 1.0, wanted(every)) else { continue };
            answered += 1;
            held += u32::from(found.level >= kind.once_in(every));
            assert!(matches!(found.method, Method::Extrapolated { .. }));
        }
        (answered, held)
    }

    #[test]
    fn an_extrapolated_bound_holds_as_often_as_it_says() {
        for (kind, seconds, factor) in [
            (Kind::Usual(0.0), 600, 36.0),
            (Kind::Usual(0.0), 600, 200.0),
            (Kind::Usual(0.2), 600, 36.0),
            (Kind::Usual(0.2), 1800, 36.0),
            (Kind::Pauses(0.07, [7000.0, 8000.0]), 600, 36.0),
            (Kind::Pauses(0.2, [7000.0, 8000.0]), 1800, 200.0),
            (Kind::Endless(0.05, [2000.0, 1500.0]), 1800, 36.0),
            (Kind::Endless(0.2, [2000.0, 1500.0]), 600, 36.0),
        ] {
            let (answered, held) = answers(kind, seconds, factor);
            // 95 of 100 are promised; the method is approximate, and the seeds are fixed.
            assert!(
                u64::from(answered) * 2 >= MEASUREMENTS && held * 100 >= answered * 88,
                "{kind:?}, {seconds} s, {factor} times: {held} of {answered}"
            );
        }
    }

    #[test]
    fn pauses_that_are_too_rare_to_know_are_mostly_refused() {
        for (kind, seconds) in [
            (Kind::Pauses(0.01, [7000.0, 8000.0]), 1800),
            (Kind::Pauses(0.01, [7000.0, 8000.0]), 600),
            (Kind::Endless(0.01, [2000.0, 1500.0]), 1800),
        ] {
            let (answered, held) = answers(kind, seconds, 36.0);
            assert!(
                u64::from(answered - held) * 10 <= MEASUREMENTS,
                "{kind:?}, {seconds} s: {held} of {answered}"
            );
        }
    }

    #[test]
    fn what_the_maxima_do_not_bear_is_refused() {
        let drawn = Kind::Usual(0.0).maxima(600, 3);
        assert_eq!(level(&drawn[..299], 1.0, wanted(200.0)), Err(Refusal::TooFew { have: 299 }));
        let far = level(&drawn, 1.0, wanted(601_000.0));
        assert!(matches!(far, Err(Refusal::TooFar { .. })), "{far:?}");
        let refused = level(&Kind::Usual(0.9).maxima(2000, 3), 1.0, wanted(20_000.0));
        assert!(matches!(refused, Err(Refusal::HeavyTail { .. })), "{refused:?}");
        // Ten pauses are too few to say how long others are.
        let disturbed = |(i, x): (usize, &f64)| if i % 60 == 0 { 7000.0 + i as f64 } else { *x };
        let two: Vec<f64> = drawn.iter().enumerate().map(disturbed).collect();
        let refused = level(&two, 1.0, wanted(6000.0));
        assert!(matches!(refused, Err(Refusal::PoorFit { .. })), "{refused:?}");
    }
}
