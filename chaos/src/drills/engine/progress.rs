//! Progress of a run while it lasts, as `obol drill run --progress` reports it on standard error: one
//! JSON object a line, which programs read by [`Line`]. The results are in the journal.
//!
//! ```text
//! {"step":{"number":3,"step":"kill","stage":{"armed":["app-2"]}}}
//! {"step":{"number":3,"step":"kill","stage":{"followed":{"over":{"failover_ns":156000,"phases_ns":{"notice":21400}}}}}}
//! {"repetitions":{"done":3,"of":20}}
//! ```

use super::journal::{Outcome, Trial};
use obol_fabric::Nanos;
use obol_observe::timeline::Phases;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// Completed repetitions, and their total.
    Repetitions {
        /// Completed ones.
        done: u32,
        /// Their total.
        of: u32,
    },
    /// A step of the running repetition has reached a stage.
    Step(Progress),
    /// Why the run waits until the cluster is healthy.
    Unhealthy {
        /// One part each.
        reasons: Vec<String>,
    },
    /// The run ended without results.
    Failed { reason: String },
}

/// A step of a repetition and its stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The repetition, from 1; warm-ups are counted separately.
    pub number: u32,
    pub step: String,
    pub stage: Stage,
}

/// The stage of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Void repetitions are replaced by further ones, up to this one.
    Extends {
        /// Samples that are missing.
        lacks: u64,
        /// The last repetition that may be added.
        most: u32,
    },
    /// It waits until the cluster is healthy.
    Waits,
    /// The fault agent holds these victims.
    Armed(Vec<String>),
    /// The cue was sent, and the faults were injected.
    Injected,
    /// The failover is over, or was given up.
    Followed(Followed),
    /// Temporary faults were undone.
    Undone,
    /// Ended processes are being restarted.
    Restored,
}

/// What became of a failover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Followed {
    Over {
        /// From the first stamp to the last program's `active`, in nanoseconds.
        failover_ns: u64,
        /// Its phases, in nanoseconds.
        phases_ns: BTreeMap<String, u64>,
    },
    /// No member failed.
    Tolerated,
    /// It was not measured.
    NotMeasured { reason: String },
}

impl Followed {
    /// As a trial says it.
    pub fn of(trial: &Trial) -> Self {
        match (trial.failover_ns, &trial.reason) {
            (_, Some(reason)) if trial.outcome != Outcome::Measured => {
                Self::NotMeasured { reason: reason.clone() }
            }
            (Some(failover_ns), _) => Self::Over { failover_ns, phases_ns: trial.phases_ns.clone() },
            (None, _) => Self::Tolerated,
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Extends { lacks, most } => {
                write!(f, "repetitions are added, up to {most}, because {lacks} samples are missing")
            }
            Self::Waits => f.write_str("waits until the cluster is healthy"),
            Self::Armed(victims) if victims.is_empty() => f.write_str("armed"),
            Self::Armed(victims) => write!(f, "armed against {}", victims.join(", ")),
            Self::Injected => f.write_str("cued and injected"),
            Self::Followed(followed) => followed.fmt(f),
            Self::Undone => f.write_str("undone"),
            Self::Restored => f.write_str("restored"),
        }
    }
}

impl fmt::Display for Followed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (total, phases) = match self {
            Self::Over { failover_ns, phases_ns } => (*failover_ns, phases_ns),
            Self::Tolerated => return f.write_str("tolerated, no member failed"),
            Self::NotMeasured { reason } => return f.write_str(reason),
        };
        write!(f, "over in {}", Nanos(total))?;
        let mut before = ": ";
        for phase in Phases::NAMES {
            if let Some(span) = phases.get(phase) {
                write!(f, "{before}{phase} {}", Nanos(*span))?;
                before = ", ";
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn step(stage: Stage) -> Line {
        Line::Step(Progress { number: 3, step: "kill".to_owned(), stage })
    }

    #[test]
    fn every_line_has_the_form_that_programs_read() {
        let phases_ns = BTreeMap::from([("notice".to_owned(), 21_400)]);
        let over = Followed::Over { failover_ns: 156_000, phases_ns };
        let at = |stage: Value| json!({ "step": { "number": 3, "step": "kill", "stage": stage } });
        let lines: [(Line, Value); 8] = [
            (Line::Repetitions { done: 3, of: 20 }, json!({ "repetitions": { "done": 3, "of": 20 } })),
            (Line::Unhealthy { reasons: vec!["a".to_owned()] }, json!({ "unhealthy": { "reasons": ["a"] } })),
            (Line::Failed { reason: "b".to_owned() }, json!({ "failed": { "reason": "b" } })),
            (step(Stage::Injected), at(json!("injected"))),
            (step(Stage::Armed(vec!["app-2".to_owned()])), at(json!({ "armed": ["app-2"] }))),
            (
                step(Stage::Extends { lacks: 2, most: 30 }),
                at(json!({ "extends": { "lacks": 2, "most": 30 } })),
            ),
            (step(Stage::Followed(Followed::Tolerated)), at(json!({ "followed": "tolerated" }))),
            (
                step(Stage::Followed(over)),
                at(
                    json!({ "followed": { "over": { "failover_ns": 156_000, "phases_ns": { "notice": 21_400 } } } }),
                ),
            ),
        ];
        for (line, json) in lines {
            assert_eq!(serde_json::to_value(&line).expect("JSON"), json);
            assert_eq!(serde_json::from_value::<Line>(json).expect("a line"), line);
        }
    }

    #[test]
    fn a_stage_reads_as_a_sentence() {
        let reason = Some("no view excludes app-2".to_owned());
        let void = Trial { outcome: Outcome::Void, reason, failover_ns: Some(9), ..Trial::default() };
        assert_eq!(Stage::Followed(Followed::of(&void)).to_string(), "no view excludes app-2");
        let phases_ns = BTreeMap::from([("notice".to_owned(), 21_400), ("active".to_owned(), 104_000)]);
        let measured = Trial { failover_ns: Some(156_000), phases_ns, ..Trial::default() };
        let text = Stage::Followed(Followed::of(&measured)).to_string();
        assert_eq!(text, "over in 156us: notice 21.4us, active 104us");
        assert_eq!(Followed::of(&Trial::default()), Followed::Tolerated);
        assert_eq!(Stage::Armed(vec!["app-2".to_owned()]).to_string(), "armed against app-2");
    }
}
