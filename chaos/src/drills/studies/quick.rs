//! Drills without a file: kill a process, wait, start a replacement, repeat. They use the same
//! engine, and report one flat object for scripts.

use crate::drillfile::{
    Drill, Expect, Guards, Metric, On, Probe, Repeat, ReportFiles, Rollback, Select, Steady, Step, StepFault,
    Strategy, Target, TargetKind,
};
use crate::drills::engine::journal::{Host, Journal, Outcome, Trial, Verdict, counted, distribution};
use crate::faults::Kill;
use obol_fabric::{Name, Nanos};
use obol_observe::figures::total;
use obol_observe::stats::Summary;
use obol_observe::timeline::Phases;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use strum::IntoStaticStr;

/// Timeout that never ends a drill whose repetitions are counted.
const TIMEOUT: Nanos = Nanos::from_secs(24 * 3600);
/// No bound: such a drill measures the skew.
const SKEW: Nanos = Nanos::MAX;

/// Before and after: above all, every replacement has joined and may act.
const STEADY: [Probe; 4] =
    [Probe::ProcessesUp, Probe::ViewConverged, Probe::LeaderPresent, Probe::LeasesActive];

/// The processes to kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Victims {
    App,
    /// The leading coordinator.
    Leader,
    /// A lease cache.
    Cache,
    /// An app and the leader on one cue.
    #[strum(serialize = "app+coordinator")]
    AppAndLeader,
    /// An app and a lease cache.
    #[strum(serialize = "app+cache")]
    AppAndCache,
    /// All three.
    #[strum(serialize = "app+coordinator+cache")]
    AppLeaderAndCache,
}

impl Victims {
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The drill that kills them `count` times, on any cluster of this label.
    pub fn drill(self, environment: Name, count: u32, gap: Nanos) -> Drill {
        let target = |name: &str| {
            let (kind, select) = match name {
                "leader" | "coordinator" => (TargetKind::Coordinator, Select::Leader),
                "cache" => (TargetKind::LeaseCache, Select::One),
                _ => (TargetKind::App, Select::One),
            };
            Target { name: name.to_owned(), kind, select, serving: None }
        };
        let targets: Vec<Target> = self.name().split('+').map(target).collect();
        let names: Vec<String> = targets.iter().map(|target| target.name.clone()).collect();
        let kind = Arc::new(Kill { graceful: false });
        let kill = StepFault { kind, targets: names.clone(), lasts: None, tolerated: false };
        Drill {
            id: self.name().to_owned(),
            title: format!("{} on one cue", self.name()),
            environment,
            seed: 1,
            repeat: Repeat { count, warmup: 0, gap, stop_after_failures: 1 },
            timeout: TIMEOUT,
            guards: Guards::default(),
            targets,
            steady: STEADY
                .map(|probe| Steady { probe, external: None, tolerance: true, before: true, after: true })
                .to_vec(),
            steps: vec![Step {
                name: "kill".to_owned(),
                on: On::Cue,
                max_cue_skew: Some(SKEW),
                faults: vec![kill],
            }],
            expect: vec![Expect { metric: Metric::FalselyFailed, bounds: Vec::new(), at_most: Some(0) }],
            rollback: Rollback { strategy: Strategy::Always, restart: names },
            report: ReportFiles::default(),
        }
    }
}

/// The results of such a drill. Times in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub drill: String,
    pub verdict: Verdict,
    /// Repetitions that were begun.
    pub count: u32,
    /// Repetitions added in place of void ones.
    pub extended: u32,
    /// Repetitions that could not be measured.
    pub void: u32,
    /// Members that were removed although no fault had hit them.
    pub false_suspicions: u64,
    /// The longest time for which two incompatible views could be used at once, in nanoseconds;
    /// must be 0.
    pub overlap_ns: u64,
    /// First fault to the `active` of the last program that survives, or, if none does, of the last
    /// agent.
    pub failover_us: Summary,
    /// First fault to the `active` of the last agent that survives.
    pub agents_us: Summary,
    /// First fault until the last coordinator that survives has the view.
    pub coordinators_us: Summary,
    /// The phases of `failover_us`.
    pub phases_us: BTreeMap<&'static str, Summary>,
    /// The wait of the survivors after the decision by the lease rule alone.
    pub lease_wait_us: f64,
    /// The cluster's profile.
    pub profile: String,
    /// The machine.
    pub host: Host,
    /// Why repetitions were void or failed, with their numbers.
    pub remarks: Vec<String>,
}

impl Report {
    /// The flat form of a journal.
    pub fn of(journal: &Journal) -> Self {
        let counted = || counted(&journal.trials);
        let summary = |metric| distribution(&journal.trials, metric).summary();
        let phases = Metric::ALL.iter().filter_map(|&(name, metric)| {
            let phase = name.strip_prefix("failover.")?;
            Phases::NAMES.contains(&phase).then(|| (phase, summary(metric)))
        });
        let why = |trial: &Trial| {
            let how = match trial.outcome {
                Outcome::Measured => return None,
                Outcome::Void => "is void",
                Outcome::Failed => "failed",
            };
            Some(format!(
                "repetition {} {how}: {}",
                trial.number,
                trial.reason.as_deref().unwrap_or("unknown")
            ))
        };
        Self {
            drill: journal.drill.clone(),
            verdict: journal.verdict,
            count: journal.count,
            extended: journal.extended,
            void: journal.void,
            false_suspicions: total(counted().map(|trial| trial.falsely_failed)),
            overlap_ns: journal.trials.iter().map(|trial| trial.overlap_ns).max().unwrap_or(0),
            failover_us: summary(Metric::CueToActive),
            agents_us: summary(Metric::ToAgents),
            coordinators_us: summary(Metric::ToCoordinators),
            phases_us: phases.collect(),
            lease_wait_us: counted()
                .map(|trial| Nanos(trial.lease_wait_ns).as_micros_f64())
                .fold(0.0, f64::max),
            profile: journal.profile.clone(),
            host: journal.host.clone(),
            remarks: counted()
                .filter_map(why)
                .chain(journal.after.iter().filter(|one| !one.holds).map(|one| {
                    format!("afterwards the steady state does not hold: {}: {}", one.probe.name(), one.saw)
                }))
                .chain(journal.remarks.iter().cloned())
                .collect(),
        }
    }

    /// The exit code of the program.
    pub const fn code(&self) -> u8 {
        self.verdict.code()
    }
}
