//! How long a gap between two pulses has to be before it counts as a silence, for a wanted rate of
//! false alarms: from the longest gap of each second of a measurement, or of a simulation.
//!
//! Where the measurement lasted long enough, the answer is counted: an exact bound on the rate of gaps
//! beyond a level. Beyond that it is extrapolated, by a generalised extreme-value distribution that is
//! fitted to the maxima (L-moments; Hosking, Wallis, Wood, Technometrics 1985), with the upper bound of
//! a parametric bootstrap. What the maxima do not bear is refused, with the reason: too few of them, a
//! tail that is too heavy, a fit that they contradict, or a bound that says nothing.

use crate::poisson;
use obol_fabric::sim::Rng;
use serde::Serialize;

/// Fewer maxima are not extrapolated from.
pub const BLOCKS_MIN: usize = 60;
/// Nothing is said about times that are more often as long as the measurement.
pub const EXTRAPOLATION_MAX: f64 = 1000.0;
/// The heaviest tail that is extrapolated: beyond it, the variance is infinite.
pub const SHAPE_MAX: f64 = 0.5;
/// A bound that is more often as large as the estimate says nothing.
pub const SPREAD_MAX: f64 = 3.0;
/// The distance of Kolmogorov and Smirnov at which the maxima contradict the fit, times the root of
/// their number: 1 % if the distribution were known; that it is fitted makes the test milder.
const DISTANCE_MAX: f64 = 1.63;
/// Repetitions of the bootstrap.
const RESAMPLES: usize = 400;
/// The same answer for the same samples.
const SEED: u64 = 1;
/// Euler's constant.
const EULER: f64 = 0.577_215_664_901_532_9;

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Wanted {
    /// At most one gap beyond the level in this many seconds.
    pub every_seconds: f64,
    /// The confidence of that, between 0.5 and 1.
    pub confidence: f64,
}

/// A generalised extreme-value distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// Where it lies.
    pub location: f64,
    /// How wide it is.
    pub scale: f64,
    /// How heavy its tail is; 0 for an exponential one. Never below: a measurement does not show that
    /// delays are bounded.
    pub shape: f64,
}

/// How a level was found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase", tag = "method")]
pub enum Method {
    /// Counted: so many maxima lie beyond it.
    Counted {
        /// Maxima beyond the level.
        beyond: u64,
    },
    /// Extrapolated.
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
    /// Too few of them.
    #[error("{have} seconds of samples, and {BLOCKS_MIN} are needed")]
    TooFew {
        /// Their number.
        have: usize,
    },
    /// The wanted time is too long for the measurement.
    #[error(
        "the wanted time is {factor:.0} times as long as the measurement, and more than {EXTRAPOLATION_MAX} is \
         no measurement any more"
    )]
    TooFar {
        /// How many times as long.
        factor: f64,
    },
    /// The tail is too heavy.
    #[error("the longest gaps grow too fast to extrapolate (shape {shape:.2}, at most {SHAPE_MAX})")]
    HeavyTail {
        /// The shape.
        shape: f64,
    },
    /// The maxima are not of one distribution.
    #[error(
        "the longest gaps are not of one kind (distance {distance:.3} from the fit, at most {limit:.3}): \
         something disturbs the measurement at times"
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
    if maxima.len() < BLOCKS_MIN {
        return Err(Refusal::TooFew { have: maxima.len() });
    }
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
    let factor = wanted.every_seconds / measured;
    if factor > EXTRAPOLATION_MAX {
        return Err(Refusal::TooFar { factor });
    }
    let fit = Fit::to(sorted);
    if fit.shape > SHAPE_MAX {
        return Err(Refusal::HeavyTail { shape: fit.shape });
    }
    let (distance, limit) = (fit.distance(sorted), DISTANCE_MAX / (sorted.len() as f64).sqrt());
    if distance > limit {
        return Err(Refusal::PoorFit { distance, limit });
    }
    let blocks = wanted.every_seconds / block;
    let estimate = fit.beyond_once_in(blocks);
    let mut rng = Rng::new(SEED);
    let mut resample = vec![0.0; sorted.len()];
    let mut levels: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            resample.fill_with(|| fit.draw(&mut rng));
            resample.sort_by(f64::total_cmp);
            Fit::to(&resample).beyond_once_in(blocks)
        })
        .collect();
    levels.sort_by(f64::total_cmp);
    // The basic bootstrap: the estimate may be as far below the truth as resamples fall below it.
    let low =
        levels.get(((1.0 - wanted.confidence) * RESAMPLES as f64) as usize).copied().unwrap_or(estimate);
    let high = levels.get(((wanted.confidence * RESAMPLES as f64) as usize).min(RESAMPLES - 1)).copied();
    let bound = (2.0 * estimate - low).max(high.unwrap_or(estimate)).max(estimate);
    let spread = bound / estimate;
    if spread.is_nan() || spread > SPREAD_MAX {
        return Err(Refusal::Undetermined { spread });
    }
    let longest = sorted.last().copied().unwrap_or(bound);
    let method = Method::Extrapolated { fit, estimate, factor };
    Ok(Level { level: bound.max(longest), method })
}

impl Fit {
    /// Fits to maxima in ascending order, by their L-moments.
    pub fn to(sorted: &[f64]) -> Self {
        let n = sorted.len() as f64;
        let (mut b0, mut b1, mut b2) = (0.0, 0.0, 0.0);
        for (i, x) in sorted.iter().enumerate() {
            let i = i as f64;
            b0 += x / n;
            b1 += x * i / (n - 1.0) / n;
            b2 += x * i * (i - 1.0) / ((n - 1.0) * (n - 2.0)) / n;
        }
        let (mean, second) = (b0, (2.0 * b1 - b0).max(0.0));
        if second == 0.0 {
            return Self { location: mean, scale: 0.0, shape: 0.0 };
        }
        let c = second / (3.0 * b2 - b0) - core::f64::consts::LN_2 / 3f64.ln();
        let k = 7.859_0 * c + 2.955_4 * c * c;
        if k >= -1e-6 {
            // Gumbel.
            let scale = second / core::f64::consts::LN_2;
            return Self { location: mean - EULER * scale, scale, shape: 0.0 };
        }
        let gamma = gamma(1.0 + k);
        let scale = second * k / ((1.0 - (-k * core::f64::consts::LN_2).exp()) * gamma);
        Self { location: mean - scale * (1.0 - gamma) / k, scale, shape: -k }
    }

    /// The value that is exceeded with the probability `1 - (-e).exp()`.
    fn at(&self, e: f64) -> f64 {
        if self.shape == 0.0 {
            self.location - self.scale * e.ln()
        } else {
            self.location + self.scale / self.shape * (e.powf(-self.shape) - 1.0)
        }
    }

    /// The level that one of this many blocks exceeds.
    pub fn beyond_once_in(&self, blocks: f64) -> f64 {
        self.at(-(-1.0 / blocks.max(1.0 + 1e-9)).ln_1p())
    }

    fn draw(&self, rng: &mut Rng) -> f64 {
        // In (0, 1).
        let uniform = (rng.below(1 << 53) as f64 + 0.5) / (1u64 << 53) as f64;
        self.at(-uniform.ln())
    }

    /// The share of blocks whose maximum is at most this.
    fn share(&self, x: f64) -> f64 {
        if self.scale == 0.0 {
            return f64::from(u8::from(x >= self.location));
        }
        let z = (x - self.location) / self.scale;
        let e = if self.shape == 0.0 {
            (-z).exp()
        } else {
            let base = 1.0 + self.shape * z;
            if base <= 0.0 {
                return 0.0;
            }
            base.powf(-1.0 / self.shape)
        };
        (-e).exp()
    }

    /// The largest difference of the two distributions.
    fn distance(&self, sorted: &[f64]) -> f64 {
        let n = sorted.len() as f64;
        let differences = sorted.iter().enumerate().map(|(i, x)| {
            let share = self.share(*x);
            (share - i as f64 / n).abs().max((share - (i as f64 + 1.0) / n).abs())
        });
        differences.fold(0.0, f64::max)
    }
}

/// The gamma function for 0.5 and more (Lanczos, g = 7).
fn gamma(x: f64) -> f64 {
    const C: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let sum = C.iter().enumerate().skip(1).fold(C[0], |sum, (i, c)| sum + c / (x + i as f64));
    let t = x + 7.5;
    (2.0 * core::f64::consts::PI).sqrt() * t.powf(x + 0.5) * (-t).exp() * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUMBEL: Fit = Fit { location: 1000.0, scale: 100.0, shape: 0.0 };
    const HEAVY: Fit = Fit { location: 1000.0, scale: 100.0, shape: 0.2 };

    fn maxima(fit: Fit, n: usize, seed: u64) -> Vec<f64> {
        let mut rng = Rng::new(seed);
        (0..n).map(|_| fit.draw(&mut rng)).collect()
    }

    const fn wanted(every_seconds: f64) -> Wanted {
        Wanted { every_seconds, confidence: 0.95 }
    }

    #[test]
    fn gamma_is_that_of_tables() {
        for (x, value) in
            [(0.5, 1.772_453_850_905_516), (1.0, 1.0), (1.3, 0.897_470_696_306_277_2), (5.0, 24.0)]
        {
            assert!((gamma(x) - value).abs() < 1e-9, "{x}: {}", gamma(x));
        }
    }

    #[test]
    fn a_fit_finds_the_distribution_that_the_maxima_are_of() {
        for truth in [GUMBEL, HEAVY] {
            let mut drawn = maxima(truth, 20_000, 7);
            drawn.sort_by(f64::total_cmp);
            let fit = Fit::to(&drawn);
            assert!((fit.location - truth.location).abs() < 5.0, "{fit:?}");
            assert!((fit.scale - truth.scale).abs() < 5.0, "{fit:?}");
            assert!((fit.shape - truth.shape).abs() < 0.03, "{fit:?}");
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
        // 201 s are not borne by counting.
        let found = level(&drawn, 1.0, wanted(201.0));
        assert!(!matches!(found, Ok(Level { method: Method::Counted { .. }, .. })), "{found:?}");
    }

    #[test]
    fn an_extrapolated_bound_holds_as_often_as_it_says() {
        for truth in [GUMBEL, HEAVY] {
            let every = 100.0 * 600.0;
            let right = truth.beyond_once_in(every);
            let (mut held, mut answered) = (0, 0);
            for seed in 0..100 {
                let Ok(found) = level(&maxima(truth, 600, seed), 1.0, wanted(every)) else { continue };
                answered += 1;
                held += u32::from(found.level >= right);
                assert!(matches!(found.method, Method::Extrapolated { .. }));
            }
            // 95 of 100 are promised; the method is approximate, and the seeds are fixed.
            assert!(answered >= 95 && held * 100 >= answered * 88, "{truth:?}: {held} of {answered}");
        }
    }

    #[test]
    fn what_the_maxima_do_not_bear_is_refused() {
        let drawn = maxima(GUMBEL, 600, 3);
        assert_eq!(level(&drawn[..59], 1.0, wanted(10.0)), Err(Refusal::TooFew { have: 59 }));
        let far = level(&drawn, 1.0, wanted(601_000.0));
        assert!(matches!(far, Err(Refusal::TooFar { .. })), "{far:?}");
        let heavy = maxima(Fit { shape: 0.9, ..GUMBEL }, 2000, 3);
        let refused = level(&heavy, 1.0, wanted(20_000.0));
        assert!(matches!(refused, Err(Refusal::HeavyTail { .. })), "{refused:?}");
        // A disturbance in every second second.
        let disturbed = |(i, x): (usize, &f64)| if i % 2 == 0 { x + 3000.0 } else { *x };
        let two: Vec<f64> = drawn.iter().enumerate().map(disturbed).collect();
        let refused = level(&two, 1.0, wanted(6000.0));
        assert!(matches!(refused, Err(Refusal::PoorFit { .. })), "{refused:?}");
    }
}
