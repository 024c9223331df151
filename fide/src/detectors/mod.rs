//! Failure detectors beside each other on the same delays: how soon each suspects a host that fell
//! silent, and how often it suspects one that did not (`obol sim detectors`).

mod beside;
mod jitter;
mod outages;
mod rules;

pub use beside::{Beside, beside};
pub use jitter::{Delays, FRAMES, Model, RecordingError};
pub use outages::{Fault, Outage, WithOutages, first_arrivals, without_outages};
pub use rules::Detector;

use obol_fabric::Nanos;
use obol_fabric::sim::Rng;
use obol_observe::plot::{Axis, Chart, PlotError, Series};
use rules::Failures;
use serde::Serialize;
use std::fmt;

/// Failures behind each line's detection times.
const CRASHES: u64 = 50_000;
/// Timeouts, in permille of the period.
const TIMEOUTS_PERMILLE: [u64; 9] = [1_200, 1_500, 2_000, 3_000, 5_000, 10_000, 20_000, 50_000, 100_000];
/// Thresholds of phi-accrual.
const PHIS: [f64; 9] = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.0, 16.0];

/// What a detector is set to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Setting {
    /// A notice has no setting.
    Nothing,
    /// A timeout; for SWIM the period of its protocol.
    Timeout(Nanos),
    /// The threshold of phi-accrual.
    Phi(f64),
}

impl Setting {
    const fn timeout(self) -> u64 {
        match self {
            Self::Timeout(timeout) => timeout.0,
            Self::Nothing | Self::Phi(_) => 0,
        }
    }

    const fn phi(self) -> f64 {
        match self {
            Self::Phi(phi) => phi,
            Self::Nothing | Self::Timeout(_) => 0.0,
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("-"),
            Self::Timeout(timeout) => f.write_str(&obol_config::duration::print(*timeout)),
            Self::Phi(phi) => write!(f, "phi {phi}"),
        }
    }
}

/// A detector with one setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// The detector.
    pub detector: &'static str,
    /// Its setting: a timeout or a threshold.
    pub setting: String,
    /// False suspicions in the whole run.
    pub false_suspicions: u64,
    /// The same in an hour.
    pub per_hour: f64,
    /// With 95 % confidence no more in an hour, if none was seen in this time.
    pub per_hour_at_most: Option<f64>,
    /// From the failure to the suspicion, in microseconds; absent if it was never detected.
    pub p50_us: Option<f64>,
    /// The 99th percentile.
    pub p99_us: Option<f64>,
    /// The 99.9th percentile.
    pub p999_us: Option<f64>,
    /// The 99.99th percentile.
    pub p9999_us: Option<f64>,
}

impl Line {
    /// What a chart shows for false suspicions in an hour: the bound if none was seen.
    pub fn per_hour_shown(&self) -> f64 {
        self.per_hour_at_most.unwrap_or(self.per_hour)
    }
}

/// All detectors on the same delays.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Where the delays are from.
    pub delays: String,
    /// Frames, one for each period.
    pub frames: usize,
    /// The pause between two frames, in microseconds.
    pub period_us: f64,
    /// How long the frames last, in hours.
    pub hours: f64,
    /// Frames that were lost.
    pub lost: usize,
    /// Quantiles of the delays of those that were not, in microseconds: 50, 99, 99.99 %, and the
    /// largest.
    pub delay_us: [f64; 4],
    /// The lines, by detector and setting.
    pub lines: Vec<Line>,
}

/// The settings with which a detector is compared.
fn settings(detector: Detector, period: u64) -> Vec<Setting> {
    match detector {
        Detector::Notice => vec![Setting::Nothing],
        Detector::Phi => PHIS.map(Setting::Phi).to_vec(),
        _ => TIMEOUTS_PERMILLE.map(|permille| Setting::Timeout(Nanos(period * permille / 1000))).to_vec(),
    }
}

/// Compares all detectors. The same seed gives the same figures.
pub fn compare(delays: &Delays, seed: u64) -> Comparison {
    let hours = delays.span() as f64 / 3.6e12;
    let mut lines = Vec::new();
    for detector in Detector::ALL {
        for setting in settings(detector, delays.period) {
            let outcome = detector.run(delays, setting, Failures::Random(CRASHES), &mut Rng::new(seed));
            lines.push(line(detector, setting, &outcome, hours));
        }
    }
    let mut known: Vec<u64> = delays.frames.iter().filter_map(|frame| frame.delay).collect();
    known.sort_unstable();
    let at = |q: f64| quantile(&known, q).unwrap_or(f64::NAN);
    Comparison {
        delays: delays.source.clone(),
        frames: delays.frames.len(),
        period_us: delays.period as f64 / 1000.0,
        hours,
        lost: delays.frames.len() - known.len(),
        delay_us: [at(0.5), at(0.99), at(0.9999), at(1.0)],
        lines,
    }
}

/// What a detector did.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) false_suspicions: u64,
    /// From each failure to the suspicion, `None` if there is none.
    pub(crate) detected: Vec<Option<u64>>,
}

/// A quantile in microseconds.
fn quantile(sorted: &[u64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = ((sorted.len() as f64 * q).ceil() as usize).saturating_sub(1).min(last);
    Some(sorted[at] as f64 / 1000.0)
}

fn line(detector: Detector, setting: Setting, outcome: &Outcome, hours: f64) -> Line {
    let mut sorted: Vec<u64> = outcome.detected.iter().flatten().copied().collect();
    sorted.sort_unstable();
    let none = outcome.false_suspicions == 0;
    // The rule of three. It does not apply to notices, which are not raised without a death.
    let bound = (none && detector != Detector::Notice).then(|| 3.0 / hours);
    Line {
        detector: detector.name(),
        setting: setting.to_string(),
        false_suspicions: outcome.false_suspicions,
        per_hour: outcome.false_suspicions as f64 / hours,
        per_hour_at_most: bound,
        p50_us: quantile(&sorted, 0.5),
        p99_us: quantile(&sorted, 0.99),
        p999_us: quantile(&sorted, 0.999),
        p9999_us: quantile(&sorted, 0.9999),
    }
}

impl Comparison {
    /// Draws false suspicions over detection times.
    ///
    /// # Errors
    ///
    /// If there is nothing to draw.
    pub fn svg(&self) -> Result<String, PlotError> {
        let mut chart = Chart::new(
            Axis::log("detection time, 99th percentile, us"),
            Axis::log("false suspicions in an hour"),
        );
        let mut widest: Option<(f64, f64)> = None;
        for detector in Detector::ALL.into_iter().filter(|d| *d != Detector::Notice) {
            let of: Vec<&Line> = self.lines.iter().filter(|line| line.detector == detector.name()).collect();
            // Of the settings with which none was seen, the first says all.
            let last = of.iter().position(|line| line.false_suspicions == 0).map_or(of.len(), |n| n + 1);
            let shown = of[..last].iter();
            let points: Vec<(f64, f64)> =
                shown.filter_map(|l| Some((l.p99_us?, l.per_hour_shown()))).collect();
            for (x, _) in &points {
                let (low, high) = widest.unwrap_or((*x, *x));
                widest = Some((low.min(*x), high.max(*x)));
            }
            chart = chart.with(Series::line(detector.name(), points));
        }
        if let Some((low, high)) = widest {
            let bound = 3.0 / self.hours;
            chart = chart.with(Series::dashes("none seen: below (95 %)", vec![(low, bound), (high, bound)]));
        }
        chart.svg()
    }
}
