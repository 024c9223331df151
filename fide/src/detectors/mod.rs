//! Failure detectors beside each other on the same delays: how soon each suspects a host that fell
//! silent, and how often it suspects one that did not (`obol sim detectors`).

mod beside;
mod jitter;
mod line;
mod outages;
mod rules;
mod setting;

pub use beside::{Beside, beside};
pub use jitter::{Delays, FRAMES, Model, RecordingError};
pub use line::Line;
pub use outages::{Fault, Outage, WithOutages, first_arrivals, without_outages};
pub use rules::Detector;
pub use setting::Setting;

use line::{CRASHES, line, quantile};
use obol_fabric::Nanos;
use obol_observe::plot::{Axis, Chart, PlotError, Series};
use obol_rng::Rng;
use rules::Failures;
use serde::Serialize;

/// Timeouts, in permille of the period.
const TIMEOUTS_PERMILLE: [u64; 9] = [1_200, 1_500, 2_000, 3_000, 5_000, 10_000, 20_000, 50_000, 100_000];
/// Thresholds of phi-accrual.
const PHIS: [f64; 9] = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.0, 16.0];

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
