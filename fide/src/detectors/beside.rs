//! Detectors on what was recorded while real faults were injected: they get the same arrivals and the
//! same moments of failure as those that ran (`obol drill detectors`).

use super::line::{CRASHES, Line, line, quantile};
use super::outages::WithOutages;
use super::rules::{Detector, Failures};
use super::setting::{Outcome, Setting};
use obol_rng::Rng;
use serde::Serialize;

/// A detector on recorded arrivals.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Beside {
    /// False suspicions of all directions, and detection times at random moments.
    #[serde(flatten)]
    pub line: Line,
    /// For how long arrivals were recorded, of all directions together, in hours.
    pub hours: f64,
    /// Faults that were injected, once for each direction that they silenced.
    pub faults: usize,
    /// Those that it would have noticed before their end.
    pub detected: usize,
    /// From the faults to the suspicion: the median, in microseconds.
    pub at_faults_p50_us: Option<f64>,
    /// The longest.
    pub at_faults_max_us: Option<f64>,
}

/// Runs a detector on each direction. The same seed gives the same figures.
pub fn beside(detector: Detector, setting: Setting, recorded: &[WithOutages], seed: u64) -> Beside {
    let share = CRASHES / recorded.len().max(1) as u64;
    let (mut all, mut at_faults) = (Outcome::default(), Vec::new());
    let (mut hours, mut faults) = (0.0, 0);
    for WithOutages { delays, outages } in recorded {
        let outcome = detector.run(delays, setting, Failures::Random(share), &mut Rng::new(seed));
        all.false_suspicions += outcome.false_suspicions;
        all.detected.extend(outcome.detected);
        hours += delays.span() as f64 / 3.6e12;
        let moments: Vec<u64> = outages.iter().map(|outage| outage.at).collect();
        let found = detector.run(delays, setting, Failures::At(&moments), &mut Rng::new(seed)).detected;
        let in_time = found.iter().zip(outages).filter_map(|(took, of)| took.filter(|took| *took < of.lasts));
        at_faults.extend(in_time);
        faults += outages.len();
    }
    at_faults.sort_unstable();
    Beside {
        line: line(detector, setting, &all, hours),
        hours,
        faults,
        detected: at_faults.len(),
        at_faults_p50_us: quantile(&at_faults, 0.5),
        at_faults_max_us: quantile(&at_faults, 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Delays, Model, Outage};
    use super::*;
    use obol_fabric::Nanos;

    const PERIOD: u64 = 1_000_000;
    const TIMEOUT: Nanos = Nanos(20_000_000);

    /// Delays of exactly 20 us.
    fn exact() -> Delays {
        let never = Nanos(u64::MAX >> 4);
        let model = Model {
            floor: Nanos(20_000),
            jitter: Nanos(0),
            between_pauses: never,
            pause: Nanos(0),
            pause_max: Nanos(0),
            lost_ppm: 0,
        };
        model.draw(Nanos(PERIOD), 10_000, 1)
    }

    fn recorded(lasts: u64) -> [WithOutages; 2] {
        let outage = |n: u64| Outage { at: n * PERIOD + PERIOD / 2, lasts };
        [
            WithOutages { delays: exact(), outages: vec![outage(3000), outage(6000)] },
            WithOutages { delays: exact(), outages: Vec::new() },
        ]
    }

    #[test]
    fn a_pulse_is_late_by_its_timeout_from_the_last_arrival_at_each_fault() {
        let found = beside(Detector::Pulse, Setting::Timeout(TIMEOUT), &recorded(100 * PERIOD), 1);
        assert_eq!((found.faults, found.detected, found.line.false_suspicions), (2, 2, 0));
        // It arrived 20 us after it was sent, half a period before the fault.
        let expected = (TIMEOUT.0 + 20_000 - PERIOD / 2) as f64 / 1000.0;
        assert_eq!(found.at_faults_p50_us, Some(expected));
        assert_eq!(found.at_faults_max_us, Some(expected));
        assert!(found.line.p9999_us.is_some_and(|us| us <= 20_020.0), "{found:?}");
    }

    #[test]
    fn a_fault_that_ends_before_the_suspicion_is_not_detected() {
        let found = beside(Detector::Pulse, Setting::Timeout(TIMEOUT), &recorded(10 * PERIOD), 1);
        assert_eq!((found.faults, found.detected, found.at_faults_p50_us), (2, 0, None));
    }

    #[test]
    fn every_detector_notices_a_long_fault_without_jitter() {
        for detector in [Detector::Operation, Detector::Phi, Detector::Swim, Detector::Sentinel] {
            let setting =
                if detector == Detector::Phi { Setting::Phi(8.0) } else { Setting::Timeout(TIMEOUT) };
            let found = beside(detector, setting, &recorded(1000 * PERIOD), 1);
            assert_eq!((found.faults, found.detected, found.line.false_suspicions), (2, 2, 0), "{found:?}");
        }
    }
}
