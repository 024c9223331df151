//! Breadth-first search over all states. The shipped binary prints counterexamples, so it contains
//! this search; the checker that the models in tests use is not linked into it.

use super::machine::Machine;
use super::world::{Action, Setup, World};
use rustc_hash::FxHashSet;
use std::rc::Rc;

/// A state that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The property, and by what it is broken.
    pub what: String,
    /// The shortest path there.
    pub path: Vec<Action>,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explored {
    /// States visited.
    pub states: usize,
    /// Whether these are all: no disagreement ended the search, nor the limit.
    pub complete: bool,
    /// The nearest state that breaks agreement or validity.
    pub disagreement: Option<Broken>,
    /// The nearest state from which a process does not terminate.
    pub stalled: Option<Broken>,
}

/// A state that was found.
struct Visited<W> {
    world: W,
    /// The place of the state before it.
    before: usize,
    /// What led from there to it; `None` for the first one.
    action: Option<Action>,
}

/// Visits all states, at most `states_max`, until agreement is broken.
pub fn explore<M: Machine>(setup: &Setup, states_max: usize) -> Explored {
    let first = Rc::new(World::<M>::new(setup));
    let mut seen: FxHashSet<Rc<World<M>>> = FxHashSet::default();
    seen.insert(Rc::clone(&first));
    let mut order = vec![Visited { world: first, before: 0, action: None }];
    let mut result = Explored { states: 0, complete: true, disagreement: None, stalled: None };
    let mut at = 0;
    while at < order.len() {
        let world = Rc::clone(&order[at].world);
        let broken = |what: String| Broken { what, path: path(&order, at) };
        if let Some(what) = world.fault(setup) {
            result.disagreement = Some(broken(what));
            result.complete = false;
            break;
        }
        if result.stalled.is_none()
            && let Some(what) = world.stalled(setup)
        {
            result.stalled = Some(broken(what));
        }
        for (action, next) in world.next(setup) {
            let next = Rc::new(next);
            if seen.contains(&next) {
                continue;
            }
            if order.len() == states_max {
                result.complete = false;
                break;
            }
            seen.insert(Rc::clone(&next));
            order.push(Visited { world: next, before: at, action: Some(action) });
        }
        at += 1;
    }
    result.states = order.len();
    result
}

fn path<W>(order: &[Visited<W>], mut at: usize) -> Vec<Action> {
    let mut path = Vec::new();
    while let Visited { before, action: Some(action), .. } = &order[at] {
        path.push(action.clone());
        at = *before;
    }
    path.reverse();
    path
}
