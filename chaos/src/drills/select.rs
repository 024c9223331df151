//! Who is hit: the processes that a drill's targets stand for, chosen anew for each repetition from the drill's seed.

use crate::drillfile::{Drill, Select, Step, Target, TargetKind};
use crate::observe::{Process, Snapshot};
use obol_membership::rng::mix;
use obol_membership::{Kind, source};
use std::fmt;

/// A process that is to be hit.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The target that it was chosen for.
    pub target: String,
    /// It.
    pub process: Process,
}

/// Why a target stands for nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectError {
    /// No live process fits.
    Empty {
        /// The target.
        target: String,
        /// What it wants.
        wants: String,
    },
    /// Whoever fits is another target already.
    Taken {
        /// The target.
        target: String,
        /// The kind that it wants.
        wants: &'static str,
    },
    /// Fewer fit than it wants.
    TooFew {
        /// The target.
        target: String,
        /// How many it wants.
        wants: usize,
        /// How many there are.
        there: usize,
    },
}

impl fmt::Display for SelectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty { target, wants } => {
                write!(f, "target {target} wants {wants}, and ")?;
                if wants.contains("lease-cache") {
                    f.write_str(
                        "there is no lease cache that lives; start the cluster with `obol up --caches N`",
                    )
                } else {
                    f.write_str("no live process fits; see `obol status`")
                }
            }
            Self::Taken { target, wants } => {
                write!(f, "target {target} wants a {wants}, and each that lives is another target already")
            }
            Self::TooFew { target, wants, there } => {
                write!(f, "target {target} wants {wants} processes, and {there} fit; see `obol status`")
            }
        }
    }
}

impl std::error::Error for SelectError {}

/// Chooses the processes that a step hits, in the order of its targets. `number` is the repetition's.
pub fn choose(
    drill: &Drill,
    step: &Step,
    snapshot: &Snapshot,
    number: u32,
) -> Result<Vec<Chosen>, SelectError> {
    let mut chosen: Vec<Chosen> = Vec::new();
    // Targets that others refer to come first: a cache is chosen for the app that it serves.
    let used = |target: &&Target| step.faults.iter().any(|fault| fault.targets.contains(&target.name));
    let (referring, plain): (Vec<&Target>, Vec<&Target>) =
        drill.targets.iter().filter(used).partition(|target| target.serving.is_some());
    // Nobody is hit as two targets, so whoever wants everybody takes what the others leave.
    let (greedy, modest): (Vec<&Target>, Vec<&Target>) =
        plain.into_iter().partition(|target| matches!(target.select, Select::All | Select::Percent(100)));
    for target in modest.into_iter().chain(referring).chain(greedy) {
        let turn = mix(
            mix(u64::from(drill.seed), u64::from(number)),
            target.name.bytes().fold(0, |h, b| mix(h, u64::from(b))),
        );
        let served = target.serving.as_ref().and_then(|name| chosen.iter().find(|c| c.target == *name));
        let mut found = match served {
            Some(served) => vec![serving(snapshot, &served.process).ok_or_else(|| empty(target))?],
            None => pick(target, snapshot, &chosen, turn)?,
        };
        if target.kind == TargetKind::Node {
            let apps = |agent: &Process| {
                let region = agent.region;
                snapshot
                    .processes
                    .iter()
                    .filter(move |p| p.region == region && p.seat != 0 && p.alive)
                    .cloned()
            };
            found = found
                .into_iter()
                .flat_map(|agent| std::iter::once(agent.clone()).chain(apps(&agent)).collect::<Vec<_>>())
                .collect();
        }
        chosen.extend(found.into_iter().map(|process| Chosen { target: target.name.clone(), process }));
    }
    Ok(chosen)
}

fn empty(target: &Target) -> SelectError {
    let kind = target.kind.name();
    let wants = match &target.select {
        Select::Named(name) => format!("the {kind} {name}"),
        Select::Leader => "the leading coordinator".to_owned(),
        _ => format!("a {kind}"),
    };
    SelectError::Empty { target: target.name.clone(), wants }
}

/// The lease cache that renews a process's leases: the first in the order of its holder.
fn serving(snapshot: &Snapshot, process: &Process) -> Option<Process> {
    let view = snapshot.view.as_ref()?;
    let holder = snapshot.processes.iter().find(|p| p.region == process.region && p.seat == 0)?;
    let cache = source::preferred(view, holder.incarnation)?;
    snapshot.processes.iter().find(|p| p.alive && p.incarnation == cache).cloned()
}

fn pick(
    target: &Target,
    snapshot: &Snapshot,
    chosen: &[Chosen],
    turn: u64,
) -> Result<Vec<Process>, SelectError> {
    let kind = match target.kind {
        TargetKind::App => Kind::App,
        TargetKind::Agent | TargetKind::Node => Kind::Agent,
        TargetKind::Coordinator => Kind::Coordinator,
        TargetKind::LeaseCache => Kind::LeaseCache,
    };
    let taken = |p: &&Process| chosen.iter().any(|c| c.process.name == p.name);
    let fits = |p: &&Process| p.kind == kind && p.alive && !p.frozen;
    let mut all: Vec<&Process> = snapshot.processes.iter().filter(fits).filter(|p| !taken(p)).collect();
    let many = all.len();
    let wants = match &target.select {
        Select::Leader => {
            let leader = snapshot.leader().filter(|p| !taken(p)).ok_or_else(|| empty(target))?;
            return Ok(vec![leader.clone()]);
        }
        Select::Named(name) => {
            let named = all.into_iter().find(|p| p.name == *name).ok_or_else(|| empty(target))?;
            return Ok(vec![named.clone()]);
        }
        Select::One => 1,
        Select::All => many,
        Select::Fixed(n) => *n as usize,
        Select::Percent(p) => (many * *p as usize / 100).max(1),
        Select::Minority => many.saturating_sub(1) / 2,
        Select::Majority => many / 2 + 1,
    };
    if many == 0 && snapshot.processes.iter().any(|p| fits(&p)) {
        return Err(SelectError::Taken { target: target.name.clone(), wants: target.kind.name() });
    }
    if many == 0 || wants == 0 {
        return Err(empty(target));
    }
    if wants > many {
        return Err(SelectError::TooFew { target: target.name.clone(), wants, there: many });
    }
    // A choice without repetition whose order depends on nothing but the seed and the names.
    all.sort_by_key(|p| p.name);
    all.sort_by_key(|p| mix(turn, p.name.as_str().bytes().fold(0, |h, b| mix(h, u64::from(b)))));
    Ok(all.into_iter().take(wants).cloned().collect())
}
