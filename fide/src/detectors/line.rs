//! A line of a comparison.

use super::rules::Detector;
use super::setting::{Outcome, Setting};
use serde::Serialize;

/// Failures behind each line's detection times.
pub(super) const CRASHES: u64 = 50_000;

/// A detector with one setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
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

/// A quantile in microseconds.
pub(super) fn quantile(sorted: &[u64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = ((sorted.len() as f64 * q).ceil() as usize).saturating_sub(1).min(last);
    Some(sorted[at] as f64 / 1000.0)
}

pub(super) fn line(detector: Detector, setting: Setting, outcome: &Outcome, hours: f64) -> Line {
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
