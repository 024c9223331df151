//! Every interleaving of three replicas in three views, one after the other, with the codec and the
//! adoption that ship: WRITEs that are executed late or are torn, a leader that returns, and one
//! death. The leader of the first view has a command, the second one its blank entry; the third one
//! shows what a successor finds. A leader whose view was succeeded does not begin any more.

use super::{COMMAND, Cell, MAJORITY, REPLICAS, Rings, adopted, area, replicated};
use crate::Mutant;
use crate::area::Area;
use crate::mutants::ActiveMutant;
use stateright::{Checker, Model, Property};

const VIEWS: usize = 3;

/// The leader of a view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Leader {
    read: [Option<Rings>; REPLICAS],
    /// Its log, once it has begun.
    log: Option<Vec<u64>>,
    /// Entries that it has written at each replica, and whether the next one is half written.
    written: [(usize, bool); REPLICAS],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// The view that is active.
    active: usize,
    dead: Option<usize>,
    memory: [Rings; REPLICAS],
    leaders: [Leader; VIEWS],
    committed: Vec<u64>,
    /// A committed entry was replaced, or a leader began without one.
    broken: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// The next view becomes active.
    Activate,
    /// A replica dies, and what it has posted and was not executed.
    Die(usize),
    /// The leader of a view READs a replica's memory.
    Read(usize, usize),
    /// It continues from what it has READ.
    Begin(usize),
    /// Its next WRITE to a replica is executed, or a half of it.
    Write(usize, usize),
    /// It commits what a majority has.
    Commit(usize),
}

/// Who leads in each view.
#[derive(Clone)]
struct Views {
    leaders: [usize; VIEWS],
    area: Area,
    mutant: ActiveMutant,
}

impl Views {
    fn new(leaders: [usize; VIEWS], mutant: ActiveMutant) -> Self {
        Self { leaders, area: area(), mutant }
    }

    /// The ring into which the leader of a view writes.
    fn place(&self, view: usize) -> usize {
        if self.mutant.has(Mutant::SharedRing) { 0 } else { self.leaders[view] }
    }

    /// Whether an earlier leader that is the same process has WRITEs on the way to a replica: they
    /// precede its later operations.
    fn is_held_up(&self, state: &State, view: usize, at: usize) -> bool {
        let pending = |earlier: usize| {
            let leader = &state.leaders[earlier];
            leader.log.as_ref().is_some_and(|log| leader.written[at].0 < log.len())
        };
        (0..view).any(|earlier| self.leaders[earlier] == self.leaders[view] && pending(earlier))
    }

    fn write(&self, state: &mut State, view: usize, at: usize) {
        let leader = &mut state.leaders[view];
        let Some(log) = &leader.log else { return };
        let (written, is_half) = leader.written[at];
        let (term, value) = (view as u64 + 1, log[written]);
        let cell = &mut state.memory[at][self.place(view)][written];
        leader.written[at] = match cell.write(term, value, is_half, self.mutant) {
            Cell::Torn => (written, true),
            Cell::Empty | Cell::Whole { .. } => (written + 1, false),
        };
    }
}

impl Model for Views {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            active: 0,
            dead: None,
            memory: Default::default(),
            leaders: Default::default(),
            committed: Vec::new(),
            broken: false,
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if state.active + 1 < VIEWS {
            steps.push(Step::Activate);
        }
        if state.dead.is_none() {
            steps.extend((0..REPLICAS).map(Step::Die));
        }
        for (view, leader) in state.leaders.iter().enumerate() {
            let is_too_late = leader.log.is_none() && view < state.active;
            if state.dead == Some(self.leaders[view]) || is_too_late {
                continue;
            }
            let count = leader.read.iter().flatten().count();
            let is_early = view > state.active && !self.mutant.has(Mutant::TakeoverBeforeActive);
            let may_read = count < MAJORITY && !is_early;
            for at in (0..REPLICAS).filter(|at| state.dead != Some(*at)) {
                let is_free = !self.is_held_up(state, view, at);
                match &leader.log {
                    None if may_read && is_free && leader.read[at].is_none() => {
                        steps.push(Step::Read(view, at));
                    }
                    Some(log) if is_free && view + 1 < VIEWS && leader.written[at].0 < log.len() => {
                        steps.push(Step::Write(view, at));
                    }
                    _ => {}
                }
            }
            let least = if self.mutant.has(Mutant::NoDrain) { 1 } else { MAJORITY };
            let has_read_own = leader.read[self.leaders[view]].is_some();
            if leader.log.is_none() && has_read_own && count >= least {
                steps.push(Step::Begin(view));
            }
            let may_commit = state.active == view || self.mutant.has(Mutant::AnswerWithoutLook);
            if may_commit && leader.log.is_some() && replicated(leader.written) > 0 {
                steps.push(Step::Commit(view));
            }
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        match step {
            Step::Activate => next.active += 1,
            Step::Die(who) => next.dead = Some(who),
            Step::Read(view, at) => next.leaders[view].read[at] = Some(next.memory[at]),
            Step::Begin(view) => {
                let log = adopted(self.area, view, &next.leaders[view].read, self.mutant);
                // One that is deposed already may begin from too little: it commits nothing.
                next.broken |= view == next.active && !log.starts_with(&next.committed);
                next.leaders[view].log = Some(log);
                // Its own memory comes first: if that can be read, the leader lives.
                let own = self.leaders[view];
                while view + 1 < VIEWS
                    && next.leaders[view].written[own].0 < next.leaders[view].log.as_ref().map_or(0, Vec::len)
                {
                    self.write(&mut next, view, own);
                }
                // They differ in nothing that matters from now on.
                next.leaders[view].read = Default::default();
            }
            Step::Write(view, at) => self.write(&mut next, view, at),
            Step::Commit(view) => {
                let leader = &next.leaders[view];
                let log = leader.log.as_ref()?;
                let commit = &log[..replicated(leader.written)];
                let both = commit.len().min(next.committed.len());
                next.broken |= commit[..both] != next.committed[..both];
                if commit.len() > both {
                    next.committed = commit.to_vec();
                }
            }
        }
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("what is committed stays, and every leader has it", |_, s: &State| !s.broken),
            Property::sometimes("the last leader has what both others committed", |_, s: &State| {
                s.committed == [COMMAND, 2] && s.leaders[VIEWS - 1].log.is_some()
            }),
            Property::sometimes("a command is committed", |_, s: &State| s.committed.contains(&COMMAND)),
        ]
    }
}

/// The successions that differ: three leaders, one that returns after another, one that returns at
/// once.
const SUCCESSIONS: [[usize; VIEWS]; 3] = [[0, 1, 2], [0, 1, 0], [0, 0, 2]];

#[test]
fn what_is_committed_stays_whoever_leads() {
    for leaders in SUCCESSIONS {
        let checker = Views::new(leaders, ActiveMutant::NONE).checker().threads(2).spawn_bfs().join();
        checker.assert_properties();
        assert!(checker.unique_state_count() > 10_000, "{leaders:?}: {}", checker.unique_state_count());
        println!("{leaders:?}: {} states", checker.unique_state_count());
    }
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_are_caught() {
    let all = [
        Mutant::AnswerWithoutLook,
        Mutant::TakeoverBeforeActive,
        Mutant::NoDrain,
        Mutant::SharedRing,
        Mutant::LowestTerm,
        Mutant::RewriteInPlace,
    ];
    for mutant in all {
        let is_caught = SUCCESSIONS.into_iter().any(|leaders| {
            let model = Views::new(leaders, ActiveMutant::new(mutant));
            let finds = stateright::HasDiscoveries::AnyFailures;
            let checker = model.checker().threads(2).finish_when(finds).spawn_bfs().join();
            checker.discovery("what is committed stays, and every leader has it").is_some()
        });
        assert!(is_caught, "{mutant:?}");
    }
}
