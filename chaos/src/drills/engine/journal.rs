//! The results of a run: every repetition, the figures, and the verdict.

use crate::drillfile::{AT_MOST, Drill, Metric, Probe};
use crate::drills::agent::channel::Stamp;
use obol_fabric::Nanos;
use obol_observe::calendar;
use obol_observe::figures::total;
use obol_observe::stats::{Distribution, Summary, shown as us};
use obol_observe::timeline::Phases;
use obol_observe::{Percentile, named_enum};
use obol_term::output::{INTERRUPTED, VOID};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::thread;

/// The schema of a journal. In 2, the names of times end with their units, and `began` is a text in UTC.
pub const SCHEMA: u32 = 2;

/// The machine that a drill ran on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    /// Cores that this process may use.
    pub cores: usize,
    /// The kernel's release.
    pub kernel: String,
}

impl Host {
    /// The current machine.
    pub fn this() -> Self {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            cores: thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel.trim().to_owned(),
        }
    }
}

named_enum! {
    /// The verdict of a run.
    Verdict {
        /// Everything held.
        Passed = "passed",
        /// A figure missed its bound, or a steady state did not hold.
        Deviated = "deviated",
        /// A failover did not complete.
        Failed = "failed",
        /// A guard or an abort condition ended it.
        Aborted = "aborted",
        /// The operator, or the drill's timeout, ended it.
        Interrupted = "interrupted",
        /// Too few repetitions could be measured, or there was nothing to judge.
        Void = "void",
    }
}

impl Verdict {
    /// The exit code of the program.
    pub const fn code(self) -> u8 {
        match self {
            Self::Passed => 0,
            Self::Deviated => 3,
            Self::Failed => 1,
            Self::Aborted => 4,
            Self::Interrupted => INTERRUPTED,
            Self::Void => VOID,
        }
    }
}

named_enum! {
    /// The outcome of one step of one repetition.
    #[derive(Default)]
    Outcome {
        /// It was measured.
        #[default]
        Measured = "measured",
        /// It could not be measured, for a reason outside the cluster.
        Void = "void",
        /// The cluster did not recover, or violated an invariant.
        Failed = "failed",
    }
}

/// A process that a fault hit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Victim {
    /// The target for which it was chosen.
    pub target: String,
    /// Its name.
    pub process: String,
    /// The number of its host.
    pub host: u8,
    /// Its process id.
    pub pid: u32,
    /// Its incarnation; 0 if it was not a member.
    pub incarnation: u64,
}

/// One step of one repetition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// The repetition, from 1; warm-ups are counted separately.
    pub number: u32,
    /// Whether it is a warm-up, which does not count.
    pub warmup: bool,
    /// The step.
    pub step: String,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it was not measured.
    pub reason: Option<String>,
    /// The victims.
    pub victims: Vec<Victim>,
    /// When each fault was injected, as stamped by the fault agent.
    #[serde(serialize_with = "injected", deserialize_with = "stamps")]
    #[schemars(with = "Vec<Injected<'static>>")]
    pub stamps: Vec<Stamp>,
    /// Between the first stamp and the last, in nanoseconds.
    pub skew_ns: u64,
    /// How much larger the true skew may be, because hosts have different clocks.
    pub skew_error_ns: u64,
    /// By how much times of other hosts may be off, in nanoseconds; 0 if there are none.
    pub clock_error_ns: u64,
    /// From the first stamp to the `active` of the last program that survives, in nanoseconds; of the
    /// last agent, if no program survives.
    pub failover_ns: Option<u64>,
    /// The same of the last agent.
    pub agents_ns: Option<u64>,
    /// From the first stamp until the last coordinator that survives had the view, in nanoseconds.
    pub coordinators_ns: Option<u64>,
    /// From the first stamp until every surviving program was active again, also where the failover could not
    /// be measured; where they were not seen to be, for how long they were watched. Where no program
    /// survived, until the cluster was healthy again.
    pub unavailable_ns: Option<u64>,
    /// Its phases, in nanoseconds.
    #[schemars(extend("propertyNames" = { "enum": Phases::NAMES }))]
    pub phases_ns: BTreeMap<String, u64>,
    /// From the first stamp until any other process suspected a victim, or a coordinator had a notice of
    /// it, in nanoseconds; also where the failover could not be measured.
    pub suspected_ns: Option<u64>,
    /// Why it was suspected: `deadbeat`, `heartbeat`, `timeout`, or another reason of a removal.
    pub suspected_as: Option<String>,
    /// The wait of the survivors by the lease rule alone, in nanoseconds.
    pub lease_wait_ns: u64,
    /// Members that were removed as failed.
    pub failed: u64,
    /// Those that no fault had hit.
    pub falsely_failed: u64,
    /// How long a victim could still use the old view after the new one was active, in
    /// nanoseconds; must be 0.
    pub overlap_ns: u64,
}

/// A [`Stamp`] in a journal. Between runner and fault agent, its names are those of the channel.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Injected<'a> {
    /// The victim; `host` for a fault of the host.
    name: Cow<'a, str>,
    /// The clock of the runner's host right before, in nanoseconds.
    at_ns: u64,
    /// Why it missed.
    error: Option<Cow<'a, str>>,
    /// The number of the fault agent's host.
    host: u8,
    /// By how much the time may be off, in nanoseconds.
    clock_error_ns: u64,
}

fn injected<S: Serializer>(stamps: &[Stamp], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(stamps.iter().map(|Stamp { name, at, error, host, clock_error }| Injected {
        name: name.into(),
        at_ns: *at,
        error: error.as_deref().map(Cow::from),
        host: *host,
        clock_error_ns: *clock_error,
    }))
}

fn stamps<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Stamp>, D::Error> {
    let all = Vec::<Injected<'_>>::deserialize(from)?;
    let stamp = |Injected { name, at_ns, error, host, clock_error_ns }| Stamp {
        name: Cow::into_owned(name),
        at: at_ns,
        error: error.map(Cow::into_owned),
        host,
        clock_error: clock_error_ns,
    };
    Ok(all.into_iter().map(stamp).collect())
}

/// Seconds since 1970 as a text.
fn in_utc<S: Serializer>(seconds: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&calendar::utc(Nanos::from_secs(*seconds).0, "%FT%TZ"))
}

fn from_utc<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let text = String::deserialize(from)?;
    calendar::seconds_of(&text).ok_or_else(|| de::Error::custom(format!("{text:?} is not a moment in UTC")))
}

impl Trial {
    /// Sets how it ended, and why.
    pub(super) fn ends(&mut self, outcome: Outcome, reason: impl Into<String>) {
        (self.outcome, self.reason) = (outcome, Some(reason.into()));
    }
}

/// A bound and the measured value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Judged {
    /// The figure.
    pub metric: Metric,
    /// The percentile, or [`AT_MOST`]: the key of the drill file.
    pub of: String,
    /// The bound: microseconds, or a count.
    pub bound: f64,
    /// The measured value; null with too few repetitions.
    pub found: Option<f64>,
    /// Number of samples.
    pub samples: u64,
    /// Measured repetitions with a failover but without this figure: with any, it does not hold.
    #[serde(default)]
    pub lacking: u64,
    /// Whether it holds; null with too few samples.
    pub holds: Option<bool>,
}

impl Judged {
    /// The figure.
    pub fn figure(&self) -> String {
        let Self { metric, of, .. } = self;
        if of == AT_MOST { metric.to_string() } else { format!("{metric} {of}") }
    }

    /// A value of it: a count, or a time.
    pub fn shown(&self, value: f64) -> String {
        if self.of == AT_MOST { value.to_string() } else { us(value) }
    }

    /// Why it does not hold.
    pub fn deviation(&self) -> String {
        let found = self.found.map_or("not claimed".to_owned(), |found| self.shown(found));
        let bound = self.shown(self.bound);
        format!("{} is {found}, its bound is {bound}{}", self.figure(), self.without())
    }

    /// What is said of measured repetitions without the figure, if there are any.
    fn without(&self) -> String {
        match self.lacking {
            0 => String::new(),
            n => format!("; measured repetitions without it: {n}"),
        }
    }

    /// The figure and its bound.
    pub fn expectation(&self) -> String {
        let sign = if self.of == AT_MOST { AT_MOST } else { "<=" };
        format!("{} {sign} {}", self.figure(), self.shown(self.bound))
    }
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { found, samples, holds, .. } = self;
        let mark = match (holds, found) {
            (Some(true), Some(_)) => "holds",
            (Some(false), _) => "DEVIATES",
            (None, _) | (Some(true), None) => "not judged",
        };
        let found = found.map_or(format!("{samples} samples are too few"), |found| self.shown(found));
        write!(f, "expect {}: {mark} ({found}{})", self.expectation(), self.without())
    }
}

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Probed {
    /// The probe.
    pub probe: Probe,
    /// Whether the result is as required.
    pub holds: bool,
    /// The observation.
    pub saw: String,
}

/// The results of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Journal {
    /// The version of this schema.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: u32,
    /// The drill.
    pub drill: String,
    /// Its title.
    pub title: String,
    /// When it began, in UTC.
    #[serde(serialize_with = "in_utc", deserialize_with = "from_utc")]
    #[schemars(with = "String")]
    pub began: u64,
    /// Seconds that it took.
    #[serde(rename = "took_s")]
    pub took: f64,
    /// How it ended.
    pub verdict: Verdict,
    /// Repetitions that count and were begun.
    pub count: u32,
    /// Of these, repetitions added in place of void ones.
    pub extended: u32,
    /// Steps that could not be measured.
    pub void: u32,
    /// The cluster's profile.
    pub profile: String,
    /// The cluster's label.
    pub environment: String,
    /// The machine.
    pub host: Host,
    /// The host of the fault agent, if it was reached by ssh.
    pub ssh: Option<String>,
    /// The steady state before.
    pub before: Vec<Probed>,
    /// The steady state after.
    pub after: Vec<Probed>,
    /// Durations in microseconds, by figure.
    #[schemars(extend("propertyNames" = { "enum": Metric::figures().map(Metric::name).collect::<Vec<_>>() }))]
    pub figures_us: BTreeMap<String, Summary>,
    /// Bounds and measured values.
    pub judged: Vec<Judged>,
    /// Every step of every repetition, including warm-ups.
    pub trials: Vec<Trial>,
    /// Remarks for the operator.
    pub remarks: Vec<String>,
}

/// The trials that count: all except warm-ups.
pub fn counted(trials: &[Trial]) -> impl Iterator<Item = &Trial> {
    trials.iter().filter(|trial| !trial.warmup)
}

/// The measured ones among them.
pub fn measured(trials: &[Trial]) -> impl Iterator<Item = &Trial> {
    counted(trials).filter(|trial| trial.outcome == Outcome::Measured)
}

/// A duration of a trial, if it has that.
fn figure(trial: &Trial, metric: Metric) -> Option<Nanos> {
    let phase = |at: usize| trial.phases_ns.get(Phases::NAMES[at]).copied();
    let found = match metric {
        Metric::CueToActive => trial.failover_ns,
        Metric::ToAgents => trial.agents_ns,
        Metric::ToCoordinators => trial.coordinators_ns,
        Metric::Notice => phase(0),
        Metric::Propose => phase(1),
        Metric::Decide => phase(2),
        Metric::Fence => phase(3),
        Metric::Clear => phase(4),
        Metric::Active => phase(5),
        Metric::Skew => Some(trial.skew_ns.saturating_add(trial.skew_error_ns)),
        Metric::FalselyFailed | Metric::Failed => None,
    };
    found.map(Nanos)
}

/// The durations of a figure in the order of the trials.
pub fn samples(trials: &[Trial], metric: Metric) -> impl Iterator<Item = Nanos> {
    measured(trials).filter_map(move |trial| figure(trial, metric))
}

/// The distribution of a figure.
pub fn distribution(trials: &[Trial], metric: Metric) -> Distribution {
    let mut distribution = Distribution::new();
    samples(trials, metric).for_each(|span| distribution.add(span));
    distribution
}

/// Checks the figures against the drill's bounds.
pub fn judge(drill: &Drill, trials: &[Trial]) -> Vec<Judged> {
    let mut judged = Vec::new();
    for expect in &drill.expect {
        let metric = expect.metric;
        if let Some(most) = expect.at_most {
            let found: u64 = match metric {
                Metric::Failed => total(counted(trials).map(|trial| trial.failed)),
                _ => total(counted(trials).map(|trial| trial.falsely_failed)),
            };
            let (bound, holds) = (f64::from(most), Some(found <= u64::from(most)));
            let samples = counted(trials).count() as u64;
            let of = AT_MOST.to_owned();
            judged.push(Judged { metric, of, bound, found: Some(found as f64), samples, lacking: 0, holds });
            continue;
        }
        let distribution = distribution(trials, metric);
        let lacks = |trial: &&Trial| trial.failover_ns.is_some() && figure(trial, metric).is_none();
        let lacking = measured(trials).filter(lacks).count() as u64;
        for (percentile, bound) in &expect.bounds {
            let enough = distribution.len() >= u64::from(percentile.samples_min());
            let value = distribution.quantile(percentile.quantile());
            judged.push(Judged {
                metric,
                of: percentile.name().to_owned(),
                bound: bound.as_micros_f64(),
                found: enough.then(|| value.as_micros_f64()),
                samples: distribution.len(),
                lacking,
                holds: if lacking > 0 { Some(false) } else { enough.then_some(value <= *bound) },
            });
        }
    }
    judged
}

/// The verdict of a run that was completed.
pub fn verdict(drill: &Drill, trials: &[Trial], judged: &[Judged], after: &[Probed]) -> Verdict {
    if counted(trials).any(|trial| trial.outcome == Outcome::Failed) {
        Verdict::Failed
    } else if judged.iter().any(|one| one.holds == Some(false)) || after.iter().any(|one| !one.holds) {
        Verdict::Deviated
    } else if is_void(drill, trials) || judged_nothing(drill, trials, judged, after) {
        Verdict::Void
    } else {
        Verdict::Passed
    }
}

/// How many samples are missing for the highest percentile that `count` repetitions could support.
pub fn lacks(trials: &[Trial], count: u32) -> u64 {
    let claims = Percentile::ALL.iter().filter(|(_, percentile)| *percentile != Percentile::Max);
    let claimed = claims.map(|(_, percentile)| percentile.samples_min()).filter(|least| *least <= count);
    let failovers = distribution(trials, Metric::CueToActive).len();
    // Without a silenced process there is no failover, and every measured repetition counts.
    let sound = if failovers == 0 { measured(trials).count() as u64 } else { failovers };
    u64::from(claimed.max().unwrap_or(0)).saturating_sub(sound)
}

/// Whether nothing was judged: no bound had enough samples, no state had to hold afterwards, and no pause
/// that had to be tolerated was injected.
pub fn judged_nothing(drill: &Drill, trials: &[Trial], judged: &[Judged], after: &[Probed]) -> bool {
    let tolerates = |step: &str| {
        let mut steps = drill.steps.iter().filter(|one| one.name == step);
        steps.any(|one| one.faults.iter().any(|fault| fault.tolerated))
    };
    let tolerated = measured(trials).any(|trial| tolerates(&trial.step));
    !tolerated && after.is_empty() && judged.iter().all(|one| one.holds.is_none())
}

/// Whether too many repetitions were void: most of them, or enough to leave a percentile with too few
/// samples that all repetitions together would have supported.
fn is_void(drill: &Drill, trials: &[Trial]) -> bool {
    let all = counted(trials).count();
    let sound = counted(trials).filter(|trial| trial.outcome != Outcome::Void).count();
    let bounds = drill.expect.iter().flat_map(|expect| &expect.bounds);
    let mut claims = bounds.map(|(percentile, _)| percentile.samples_min() as usize);
    sound * 2 < all || claims.any(|least| (sound + 1..=all).contains(&least))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_does_not_hold_where_a_measured_failover_lacks_the_figure() {
        let text = "[drill]\nschema = 1\nid = \"d\"\ntitle = \"t\"\nenvironment = \"local\"\n[targets]\n\
                    app = { kind = \"app\", select = \"one\" }\n[[step]]\nname = \"s\"\n\
                    fault = { kind = \"kill\", target = \"app\" }\n\
                    [[expect]]\nmetric = \"failover.to_coordinators\"\nmax = \"1ms\"\n";
        let drill = crate::drillfile::parse(text, "d.toml").expect("a good file");
        let trial = |coordinators_ns| Trial { failover_ns: Some(9), coordinators_ns, ..Trial::default() };
        let verdict = |trials: &[Trial]| {
            let judged = judge(&drill, trials);
            (verdict(&drill, trials, &judged, &[]), judged[0].to_string(), judged[0].deviation())
        };
        assert_eq!(verdict(&[trial(Some(7)), trial(Some(8))]).0, Verdict::Passed);
        for lacking in [vec![trial(Some(7)), trial(None)], vec![trial(None)]] {
            let (verdict, says, why) = verdict(&lacking);
            assert_eq!(verdict, Verdict::Deviated);
            assert!(says.contains("DEVIATES"), "{says}");
            for text in [says, why] {
                assert!(text.contains("measured repetitions without it: 1"), "{text}");
            }
        }
        // Without a failover there is no such figure, and a void repetition has none.
        let void = Trial { outcome: Outcome::Void, ..trial(None) };
        let others = [trial(Some(7)), trial(Some(8)), void, Trial::default()];
        assert_eq!(judge(&drill, &others)[0].holds, Some(true));
    }

    #[test]
    fn a_bound_holds_only_if_it_was_judged_and_found_to() {
        let of = |found, holds| {
            let of = "p50".to_owned();
            Judged { metric: Metric::CueToActive, of, bound: 100.0, found, samples: 3, lacking: 0, holds }
                .to_string()
        };
        assert!(of(Some(90.0), Some(true)).ends_with(" p50 <= 100us: holds (90.0us)"));
        let (metric, of_count) = (Metric::FalselyFailed, AT_MOST.to_owned());
        let (found, holds) = (Some(0.0), Some(true));
        let none = Judged { metric, of: of_count, bound: 0.0, found, samples: 5, lacking: 0, holds };
        assert_eq!(none.to_string(), "expect members.falsely_failed at_most 0: holds (0)");
        for (found, holds, says) in [
            (Some(110.0), Some(false), "DEVIATES (110us)"),
            (None, Some(false), "DEVIATES"),
            (None, None, "not judged (3 samples are too few)"),
            (Some(90.0), None, "not judged"),
            // No run writes that, but a journal is a file.
            (None, Some(true), "not judged (3 samples are too few)"),
        ] {
            let text = of(found, holds);
            assert!(!text.contains("holds") && text.contains(says), "{text}");
        }
    }
}
