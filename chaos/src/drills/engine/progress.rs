//! Progress of a repetition while it runs: one line per stage for the operator. The results are in
//! the journal.
//!
//! ```text
//! repetition 3 kill: armed against app-2
//! repetition 3 kill: over in 156us: notice 21.4us, propose 5.5us, decide 13.1us, fence 12.1us, clear 0.5us, active 104us
//! ```

use super::journal::{Outcome, Trial};
use obol_fabric::Nanos;
use obol_observe::timeline::Phases;
use std::fmt;

/// A step of a repetition and its stage.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The repetition, from 1; warm-ups are counted separately.
    pub number: u32,
    /// The step's name.
    pub step: &'a str,
    /// Its stage.
    pub stage: Stage<'a>,
}

/// The stage of a step.
#[derive(Clone, Copy, Debug)]
pub enum Stage<'a> {
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
    Armed(&'a [String]),
    /// The cue was sent, and the faults were injected.
    Injected,
    /// The failover is over, or was given up.
    Followed(&'a Trial),
    /// Temporary faults were undone.
    Undone,
    /// Ended processes are being restarted.
    Restored,
}

impl fmt::Display for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "repetition {} {}: ", self.number, self.step)?;
        match self.stage {
            Stage::Extends { lacks, most } => {
                write!(f, "repetitions are added, up to {most}, because {lacks} samples are missing")
            }
            Stage::Waits => f.write_str("waits until the cluster is healthy"),
            Stage::Armed([]) => f.write_str("armed"),
            Stage::Armed(victims) => write!(f, "armed against {}", victims.join(", ")),
            Stage::Injected => f.write_str("cued and injected"),
            Stage::Followed(trial) => followed(f, trial),
            Stage::Undone => f.write_str("undone"),
            Stage::Restored => f.write_str("restored"),
        }
    }
}

fn followed(f: &mut fmt::Formatter<'_>, trial: &Trial) -> fmt::Result {
    match (trial.failover_ns, &trial.reason) {
        (_, Some(reason)) if trial.outcome != Outcome::Measured => f.write_str(reason),
        (Some(total), _) => {
            write!(f, "over in {}", Nanos(total))?;
            let mut before = ": ";
            for phase in Phases::NAMES {
                if let Some(span) = trial.phases_ns.get(phase) {
                    write!(f, "{before}{phase} {}", Nanos(*span))?;
                    before = ", ";
                }
            }
            Ok(())
        }
        (None, _) => f.write_str("tolerated, no member failed"),
    }
}
