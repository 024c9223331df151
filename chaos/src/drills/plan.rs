//! A dry run: which victims would be chosen, and what each guard decides. Touches nothing.

use super::guard::{self, Answer};
use super::select::{Chosen, Supervisor, choose};
use super::subject::Subject;
use crate::drillfile::Drill;
use obol_observe::{Process, Snapshot};
use obol_profiles::duration;
use serde::Serialize;
use std::path::PathBuf;

/// The plan of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// The drill.
    pub drill: String,
    /// Its title.
    pub title: String,
    /// Repetitions that count.
    pub count: u32,
    /// Its steps in the first repetition.
    pub steps: Vec<PlannedStep>,
    /// The guards' decisions.
    pub guards: Vec<Answer>,
    /// Whether all of them allow it.
    pub allowed: bool,
    /// Whether the drill can reach a verdict. If not, it cannot pass.
    pub judges: bool,
}

/// A step.
#[derive(Clone, Debug, Serialize)]
pub struct PlannedStep {
    /// Its name.
    pub step: String,
    /// Its faults.
    pub faults: Vec<PlannedFault>,
    /// Why no victim can be chosen.
    pub refusal: Option<String>,
}

/// A fault.
#[derive(Clone, Debug, Serialize)]
pub struct PlannedFault {
    /// The fault.
    pub fault: String,
    /// How long it lasts.
    #[serde(rename = "for")]
    pub lasts: Option<String>,
    /// Its victims if the cluster does not change until then.
    pub hits: Vec<Hit>,
}

/// A process that would be hit.
#[derive(Clone, Debug, Serialize)]
pub struct Hit {
    /// The target for which it is chosen.
    pub target: String,
    /// Its name.
    pub process: String,
    /// Its process id.
    pub pid: u32,
    /// Its program.
    pub program: Option<PathBuf>,
    /// Whether `obol up` started it, and so can restart it.
    pub supervised: bool,
}

/// The program that a process runs.
pub fn program(process: &Process) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{}/exe", process.process.pid)).ok()
}

/// Plans repetition `number`.
pub fn plan<S: Subject>(
    drill: &Drill,
    subject: &S,
    snapshot: &Snapshot,
    supervisor: Supervisor,
    number: u32,
) -> Plan {
    let mut guards = vec![guard::environment(drill.environment.as_str(), subject.deployment())];
    let mut steps = Vec::new();
    for step in &drill.steps {
        guards.extend(
            step.faults
                .iter()
                .map(|fault| guard::supported(drill, fault, subject.deployment()))
                .filter(|answer| !answer.allows),
        );
        let (chosen, refusal) = match choose(drill, step, snapshot, supervisor, number) {
            Ok(chosen) => (chosen, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let of_fault = |targets: &[String]| {
            chosen.iter().filter(|c| targets.contains(&c.target)).collect::<Vec<&Chosen>>()
        };
        let out: Vec<&Chosen> = step
            .faults
            .iter()
            .filter(|f| f.kind.effect().takes_out())
            .flat_map(|f| of_fault(&f.targets))
            .collect();
        guards.extend(guard::check(&drill.guards, subject.deployment(), snapshot, &out, chosen.len()));
        let faults = step.faults.iter().map(|fault| PlannedFault {
            fault: fault.kind.describe(),
            lasts: fault.lasts.map(duration::print),
            hits: of_fault(&fault.targets)
                .into_iter()
                .map(|c| Hit {
                    target: c.target.clone(),
                    process: c.process.name.to_string(),
                    pid: c.process.process.pid,
                    program: program(&c.process),
                    supervised: c.supervised,
                })
                .collect(),
        });
        steps.push(PlannedStep { step: step.name.clone(), faults: faults.collect(), refusal });
    }
    let allowed =
        guards.iter().all(|answer| answer.allows) && steps.iter().all(|step| step.refusal.is_none());
    Plan {
        drill: drill.id.clone(),
        title: drill.title.clone(),
        count: drill.repeat.count,
        steps,
        guards,
        allowed,
        judges: drill.judges(),
    }
}
