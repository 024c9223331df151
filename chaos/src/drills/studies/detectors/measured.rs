//! What the faults of a drill have shown of a detector that ran.

use super::{Detector, Fault, Silence, setting};
use crate::drills::engine::journal::{Journal, Outcome, Trial, Verdict, counted};
use obol_fabric::{Instant, Nanos};
use obol_fide::detectors as fide;
use obol_membership::Reason;
use obol_observe::figures::total;
use obol_profiles::Profile;
use serde::Serialize;
use std::collections::BTreeMap;

/// Samples from which on a percentile is reported: one of them has reached it with 95 % confidence.
const P50_MIN: usize = 5;
const P99_MIN: usize = 299;
const P999_MIN: usize = 2_995;
const P9999_MIN: usize = 29_957;

/// Times in microseconds; percentiles only with enough samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// Samples.
    pub n: usize,
    /// The median.
    pub p50: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
    /// The 99.9th percentile.
    pub p999: Option<f64>,
    /// The 99.99th percentile.
    pub p9999: Option<f64>,
    /// The longest.
    pub max: Option<f64>,
}

impl Times {
    fn of(mut samples: Vec<Nanos>) -> Self {
        samples.sort_unstable();
        let n = samples.len();
        let at = |q: f64, least: usize| {
            let index = ((n as f64 * q).ceil() as usize).saturating_sub(1);
            samples.get(index).filter(|_| n >= least).map(|time| time.as_micros_f64())
        };
        Self {
            n,
            p50: at(0.5, P50_MIN),
            p99: at(0.99, P99_MIN),
            p999: at(0.999, P999_MIN),
            p9999: at(0.9999, P9999_MIN),
            max: at(1.0, 1),
        }
    }
}

/// A detector that ran.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    pub detector: Detector,
    /// What was injected.
    pub fault: Fault,
    /// What the profile sets it to.
    pub setting: String,
    /// The verdict of the drill.
    pub drill: Verdict,
    /// Faults that were injected, once for each observer.
    pub faults: usize,
    /// Those that it noticed.
    pub detected: usize,
    /// Faults that were noticed first for another reason, and how many for each.
    pub otherwise: BTreeMap<String, usize>,
    /// From the fault until it noticed.
    pub detection_us: Times,
    /// From the fault until a process suspects the victim: for pulses it follows what the gateway has
    /// noticed, for all others it is the same.
    pub suspicion_us: Times,
    /// Suspicions without a fault: members that were removed, and hosts that a gateway found silent.
    pub false_suspicions: u64,
    /// For how long they were counted, in seconds.
    #[serde(rename = "counted_s")]
    pub seconds: f64,
    /// What kept repetitions from being measured, and what the drill remarks.
    pub remarks: Vec<String>,
}

/// The faults of a journal: trial, moment and host.
fn injected(journal: &Journal) -> impl Iterator<Item = (&Trial, Instant, u8)> {
    counted(&journal.trials).filter_map(|trial| {
        let stamp = trial.stamps.iter().find(|stamp| stamp.error.is_none())?;
        Some((trial, Instant(stamp.at), trial.victims.first()?.host))
    })
}

/// The times for which the hosts of victims were silent.
pub fn silenced(journal: &Journal, lasts: Nanos) -> Vec<fide::Fault> {
    let all = injected(journal);
    all.map(|(_, at, host)| fide::Fault { host, from: at.0, until: (at + lasts).0 }).collect()
}

/// The silences that gateways have reported.
#[derive(Clone, Copy)]
pub struct Watched<'a> {
    /// The silences, in any order.
    pub seen: &'a [Silence],
    /// The hosts whose gateways were asked.
    pub hosts: &'a [u8],
    /// How many hosts the cluster has.
    pub all: usize,
}

impl Measured {
    /// By the stamps of processes.
    pub fn of(detector: Detector, fault: Fault, profile: &Profile, journal: &Journal) -> Self {
        let expected = match detector {
            Detector::Notice => Reason::Deadbeat,
            Detector::Heartbeat => Reason::Heartbeat,
            _ => Reason::Timeout,
        };
        let mut otherwise = BTreeMap::new();
        let (mut times, mut faults) = (Vec::new(), 0);
        for (trial, _, _) in injected(journal) {
            faults += 1;
            match trial.suspected_as.as_deref().zip(trial.suspected_ns) {
                Some((reason, took)) if reason == expected.name() => times.push(Nanos(took)),
                Some((reason, _)) => *otherwise.entry(reason.to_owned()).or_insert(0) += 1,
                None => {}
            }
        }
        let times = Times::of(times);
        Self {
            detector,
            fault,
            setting: setting(detector, profile),
            drill: journal.verdict,
            faults,
            detected: times.n,
            otherwise,
            detection_us: times,
            suspicion_us: times,
            false_suspicions: total(counted(&journal.trials).map(|trial| trial.falsely_failed)),
            seconds: journal.took,
            remarks: remarks(journal),
        }
    }

    /// Judges the pulse detector by what gateways have seen; `lasts` is the fault's duration.
    pub fn by_pulses(profile: &Profile, journal: &Journal, watched: Watched<'_>, lasts: Nanos) -> Self {
        let Watched { seen, hosts, all } = watched;
        let by_processes = Self::of(Detector::Pulse, Fault::CutOff, profile, journal);
        let (mut times, mut faults) = (Vec::new(), 0);
        let mut expected = vec![false; seen.len()];
        for (_, at, victim) in injected(journal) {
            for host in hosts {
                let mut during = (0..seen.len())
                    .filter(|n| seen[*n].by == *host && seen[*n].at >= at && seen[*n].at <= at + lasts);
                if host == &victim {
                    // It has lost all others.
                    during.take(all.saturating_sub(1)).for_each(|n| expected[n] = true);
                    continue;
                }
                faults += 1;
                if let Some(n) = during.next() {
                    expected[n] = true;
                    times.push(seen[n].at.since(at));
                }
            }
        }
        let mistakes = expected.iter().filter(|expected| !**expected).count() as u64;
        let times = Times::of(times);
        Self {
            faults,
            detected: times.n,
            otherwise: BTreeMap::new(),
            detection_us: times,
            false_suspicions: by_processes.false_suspicions + mistakes,
            ..by_processes
        }
    }

    /// Whether each fault was noticed, by this detector, and nothing else.
    pub const fn holds(&self) -> bool {
        self.faults > 0 && self.detected == self.faults && self.false_suspicions == 0
    }

    /// Its verdict. That failovers could not be measured says nothing about a detector.
    pub fn verdict(&self) -> Verdict {
        match self.drill {
            verdict @ (Verdict::Failed | Verdict::Aborted | Verdict::Interrupted) => verdict,
            _ if self.faults == 0 => Verdict::Void,
            _ if self.holds() => Verdict::Passed,
            _ => Verdict::Deviated,
        }
    }
}

fn remarks(journal: &Journal) -> Vec<String> {
    let why = |trial: &Trial| {
        let reason = trial.reason.as_deref()?;
        (trial.outcome == Outcome::Failed).then(|| format!("repetition {}: {reason}", trial.number))
    };
    counted(&journal.trials).filter_map(why).chain(journal.remarks.iter().cloned()).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::drills::agent::channel::Stamp;
    use crate::drills::engine::journal::{Host, SCHEMA, Victim};

    const LASTS: Nanos = Nanos::from_secs(1);

    fn by_pulses(journal: &Journal, seen: &[Silence]) -> Measured {
        Measured::by_pulses(&lan(), journal, Watched { seen, hosts: &[1, 2, 3], all: 3 }, LASTS)
    }

    fn trial(number: u32, at: u64, host: u8, suspected: Option<(u64, &'static str)>) -> Trial {
        let stamp = Stamp { name: "app-3".to_owned(), at, error: None, host, clock_error: 0 };
        let victim =
            Victim { target: "victim".to_owned(), process: "app-3".to_owned(), host, pid: 7, incarnation: 9 };
        Trial {
            number,
            victims: vec![victim],
            stamps: vec![stamp],
            suspected_ns: suspected.map(|(took, _)| took),
            suspected_as: suspected.map(|(_, reason)| reason.to_owned()),
            ..Trial::default()
        }
    }

    pub(in super::super) fn journal(trials: Vec<Trial>) -> Journal {
        Journal {
            schema: SCHEMA,
            drill: "d".to_owned(),
            title: "t".to_owned(),
            began: 1,
            took: 60.0,
            verdict: Verdict::Passed,
            count: trials.len() as u32,
            extended: 0,
            void: 0,
            profile: "lan".to_owned(),
            environment: "local".to_owned(),
            host: Host::this(),
            ssh: None,
            before: Vec::new(),
            after: Vec::new(),
            figures_us: BTreeMap::new(),
            judged: Vec::new(),
            trials,
            remarks: Vec::new(),
        }
    }

    fn lan() -> Profile {
        Profile::builtin("lan").expect("it is built in")
    }

    #[test]
    fn only_what_is_noticed_for_the_right_reason_counts() {
        let trials = vec![
            trial(1, 10, 1, Some((100_000, "deadbeat"))),
            trial(2, 20, 1, Some((300_000, "heartbeat"))),
            trial(3, 30, 1, None),
        ];
        let found = Measured::of(Detector::Notice, Fault::Kill, &lan(), &journal(trials));
        assert_eq!((found.faults, found.detected), (3, 1));
        assert_eq!(found.otherwise, BTreeMap::from([("heartbeat".to_owned(), 1)]));
        assert_eq!((found.detection_us.max, found.detection_us.p50), (Some(100.0), None));
        assert_eq!(found.verdict(), Verdict::Deviated);
        let all = journal((1..=5).map(|n| trial(n, 10, 1, Some((100_000, "deadbeat")))).collect());
        let found = Measured::of(Detector::Notice, Fault::Kill, &lan(), &all);
        assert_eq!((found.verdict(), found.detection_us.p50), (Verdict::Passed, Some(100.0)));
        assert_eq!(
            Measured::of(Detector::Notice, Fault::Kill, &lan(), &journal(Vec::new())).verdict(),
            Verdict::Void
        );
    }

    #[test]
    fn each_gateway_notices_a_host_that_is_cut_off_and_anything_beyond_is_a_mistake() {
        let journal = journal(vec![trial(1, 1_000, 3, Some((30_000, "timeout")))]);
        let silence = |by, at| Silence { by, at: Instant(at) };
        // Host 3 loses both others.
        let seen = [silence(1, 21_000), silence(2, 22_000), silence(3, 23_000), silence(3, 24_000)];
        let found = by_pulses(&journal, &seen);
        assert_eq!((found.faults, found.detected, found.false_suspicions), (2, 2, 0));
        assert_eq!((found.detection_us.max, found.suspicion_us.max), (Some(21.0), Some(30.0)));
        assert!(found.holds());
        let wrong = [&seen[..], &[silence(1, 25_000), silence(2, 500)]].concat();
        let found = by_pulses(&journal, &wrong);
        assert_eq!((found.detected, found.false_suspicions, found.verdict()), (2, 2, Verdict::Deviated));
        let found = by_pulses(&journal, &seen[..1]);
        assert_eq!((found.faults, found.detected, found.verdict()), (2, 1, Verdict::Deviated));
    }

    #[test]
    fn a_percentile_needs_its_samples() {
        let times = |n: u64| Times::of((1..=n).map(|us| Nanos(us * 1000)).collect());
        assert_eq!((times(4).p50, times(5).p50), (None, Some(3.0)));
        assert_eq!((times(298).p99, times(299).p99), (None, Some(297.0)));
        assert_eq!((times(2994).p999, times(2995).p999), (None, Some(2993.0)));
        assert_eq!((times(29_956).p9999, times(29_957).p9999), (None, Some(29_955.0)));
        assert_eq!(times(0), Times::default());
    }

    #[test]
    fn faults_are_times_of_silence_of_the_victims_host() {
        let found = silenced(&journal(vec![trial(1, 1_000, 3, None)]), LASTS);
        assert_eq!(found, [fide::Fault { host: 3, from: 1_000, until: 1_000_001_000 }]);
    }
}
