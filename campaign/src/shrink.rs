//! Minimizes a violation: drops acts and nodes as long as the same row is violated.
//!
//! Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002), without
//! complements: a dropped act changes all later draws, so the rest is another run, not a part of
//! the same one.

use super::runner::replay;
use super::script::Script;
use obol_membership::ActiveMutant;

/// The result of shrinking.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The smallest script that was found.
    pub script: Script,
    /// Acts before.
    pub acts_before: usize,
    /// Runs that it took.
    pub runs: u32,
}

struct Shrinker {
    best: Script,
    plant: ActiveMutant,
    runs: u32,
    budget: u32,
}

impl Shrinker {
    /// Accepts a candidate if it violates the same row.
    fn take(&mut self, candidate: &Script) -> bool {
        if self.runs >= self.budget {
            return false;
        }
        self.runs += 1;
        let run = replay(candidate, self.plant, false);
        match (run.violation, run.script) {
            (Some(violation), Some(script)) if Some(violation.row) == self.best.row => {
                self.best = *script;
                true
            }
            _ => false,
        }
    }

    /// Drops irrelevant nodes.
    fn without_nodes(&mut self, nodes: core::ops::Range<u32>) -> bool {
        let mut changed = false;
        for node in nodes {
            if self.best.absent.contains(&node) {
                continue;
            }
            let mut candidate = self.best.clone();
            candidate.absent.push(node);
            candidate.acts.retain(|timed| !timed.act.is_at(node));
            changed |= self.take(&candidate);
        }
        changed
    }

    /// Drops irrelevant acts: halves, quarters, single ones.
    fn without_acts(&mut self) -> bool {
        let mut changed = false;
        let mut size = self.best.acts.len().div_ceil(2);
        while size > 0 {
            let mut from = 0;
            while from < self.best.acts.len() {
                let mut candidate = self.best.clone();
                let to = (from + size).min(candidate.acts.len());
                candidate.acts.drain(from..to);
                if self.take(&candidate) {
                    changed = true;
                } else {
                    from += size;
                }
            }
            size /= 2;
        }
        changed
    }
}

/// Shrinks a script that violates a row, in at most `budget` runs; `None` if its replay does not.
#[must_use]
pub fn shrink(script: &Script, plant: ActiveMutant, budget: u32) -> Option<Shrunk> {
    let acts_before = script.acts.len();
    let mut shrinker = Shrinker { best: script.clone(), plant, runs: 0, budget };
    if !shrinker.take(script) {
        return None;
    }
    let drawn = super::Scenario::draw(script.seed, plant);
    if !shrinker.best.survivors.is_empty() {
        let everybody = Script { survivors: (0..drawn.coordinators).collect(), ..shrinker.best.clone() };
        shrinker.take(&everybody);
    }
    if drawn.trial == super::Trial::Faults {
        shrinker.take(&Script { calm: true, ..shrinker.best.clone() });
    }
    loop {
        let nodes = shrinker.without_nodes(drawn.coordinators..drawn.nodes());
        let acts = shrinker.without_acts();
        if !(nodes || acts) || shrinker.runs >= budget {
            break;
        }
    }
    Some(Shrunk { script: shrinker.best, acts_before, runs: shrinker.runs })
}
