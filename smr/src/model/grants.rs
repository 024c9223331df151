//! Leaders that take the permission to write from each other: no view says who leads, so an earlier
//! one may go on at any time, and come back with a higher term. Permissions are those of processes:
//! what a leader has posted in an earlier term counts as its own.
//!
//! Every interleaving, with exceptions that hide nothing. A leader READs a memory as soon as it may:
//! later it would find more. What a majority has is committed at once, whether or not its leader
//! knows: nothing else keeps it from committing that. A leader's own memory comes first: if that can
//! be READ, the leader lives. The last leader only shows what a successor finds, so it asks for no
//! more than that.

use super::{COMMAND, Cell, MAJORITY, REPLICAS, Rings, adopted, area, replicated};
use crate::Mutant;
use crate::area::Area;
use crate::mutants::ActiveMutant;
use stateright::{Checker, Model, Property};

const TERMS: usize = 3;

/// The memory of a replica and who may write to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Owner {
    rings: Rings,
    /// Number of the term after the last one whose leader has the permission.
    granted: usize,
    /// The processes whose WRITEs are executed.
    may_write: [bool; REPLICAS],
    /// With a planted bug: it has answered, and the change is not in force.
    switches: bool,
}

/// The leader of a term.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Leader {
    /// Who has granted it the permission.
    confirmed: [bool; REPLICAS],
    read: [Option<Rings>; REPLICAS],
    log: Option<Vec<u64>>,
    /// Entries that it has written at each replica, and whether the next one is half written.
    written: [(usize, bool); REPLICAS],
    /// The replicas that have refused a WRITE, or cannot be reached: later ones fail as well.
    failed: [bool; REPLICAS],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    dead: Option<usize>,
    owners: [Owner; REPLICAS],
    leaders: [Leader; TERMS],
    committed: Vec<u64>,
    /// A committed entry was replaced, or a leader began without one.
    broken: bool,
}

impl State {
    /// Commits what a majority has of a leader.
    fn commit(&mut self, term: usize) {
        let leader = &self.leaders[term];
        let Some(log) = &leader.log else { return };
        let commit = &log[..replicated(leader.written)];
        let both = commit.len().min(self.committed.len());
        self.broken |= commit[..both] != self.committed[..both];
        if commit.len() > both {
            self.committed = commit.to_vec();
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// A replica dies, and what it has posted and was not executed.
    Die(usize),
    /// An owner revokes the permission of all others, grants it to the leader of a term, and answers.
    Grant(usize, usize),
    /// A change of permissions that was answered before is in force.
    Force(usize),
    /// The leader of a term READs the memory of a replica that has answered, after its WRITEs of an
    /// earlier term.
    Read(usize, usize),
    /// It continues from what it has READ.
    Begin(usize),
    /// Its next WRITE to a replica is executed, or a half of it, or it is refused.
    Write(usize, usize),
}

/// Who leads in each term.
#[derive(Clone)]
struct Terms {
    leaders: [usize; TERMS],
    area: Area,
    mutant: ActiveMutant,
}

impl Terms {
    fn new(leaders: [usize; TERMS], mutant: ActiveMutant) -> Self {
        Self { leaders, area: area(), mutant }
    }

    /// Whether WRITEs of the same process in an earlier term are on the way to a replica: they
    /// precede its later operations.
    fn is_held_up(&self, state: &State, term: usize, at: usize) -> bool {
        let pending = |earlier: usize| {
            let leader = &state.leaders[earlier];
            let begun = leader.log.as_ref().is_some_and(|log| leader.written[at].0 < log.len());
            begun && leader.confirmed[at] && !leader.failed[at]
        };
        (0..term).any(|earlier| self.leaders[earlier] == self.leaders[term] && pending(earlier))
    }

    /// Whether the leader of a term asks for permissions in a later one: it does nothing more in this
    /// one, but what it has posted is still executed.
    fn has_given_up(&self, state: &State, term: usize) -> bool {
        let own = self.leaders[term];
        (term + 1..TERMS).any(|later| self.leaders[later] == own && state.leaders[later].confirmed[own])
    }

    fn may_write(&self, term: usize) -> [bool; REPLICAS] {
        core::array::from_fn(|who| who == self.leaders[term])
    }

    fn grant(&self, owner: &mut Owner, term: usize) {
        owner.granted = term + 1;
        if self.mutant.has(Mutant::AnswerBeforePermit) {
            owner.switches = true;
        } else if self.mutant.has(Mutant::GrantWithoutRevoke) {
            owner.may_write[self.leaders[term]] = true;
        } else {
            owner.may_write = self.may_write(term);
        }
    }

    fn read(&self, state: &mut State, term: usize, at: usize) {
        let leader = &state.leaders[term];
        let has_enough = leader.log.is_some() || leader.read.iter().flatten().count() == MAJORITY;
        if !has_enough && state.dead != Some(self.leaders[term]) && !self.is_held_up(state, term, at) {
            state.leaders[term].read[at] = Some(state.owners[at].rings);
        }
    }

    fn write(&self, state: &mut State, term: usize, at: usize) {
        let leader = &mut state.leaders[term];
        let Some(log) = &leader.log else { return };
        let (written, is_half) = leader.written[at];
        if !state.owners[at].may_write[self.leaders[term]] {
            if self.mutant.has(Mutant::RefusalCounts) {
                leader.written[at] = (written + 1, false);
            } else {
                leader.failed[at] = true;
            }
            return;
        }
        let cell = &mut state.owners[at].rings[self.leaders[term]][written];
        leader.written[at] = match cell.write(term as u64 + 1, log[written], is_half, self.mutant) {
            Cell::Torn => (written, true),
            Cell::Empty | Cell::Whole { .. } => (written + 1, false),
        };
    }
}

impl Model for Terms {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        // Before an owner has granted anything, all may write.
        let owner =
            Owner { rings: Rings::default(), granted: 0, may_write: [true; REPLICAS], switches: false };
        let leaders = Default::default();
        vec![State { dead: None, owners: [owner; REPLICAS], leaders, committed: Vec::new(), broken: false }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if state.dead.is_none() {
            steps.extend((0..REPLICAS).map(Step::Die));
        }
        let lives = |at: &usize| state.dead != Some(*at);
        steps.extend((0..REPLICAS).filter(|at| state.owners[*at].switches).map(Step::Force));
        for (term, leader) in state.leaders.iter().enumerate() {
            if !lives(&self.leaders[term]) {
                continue;
            }
            let gives_up = self.has_given_up(state, term);
            let count = leader.read.iter().flatten().count();
            for at in (0..REPLICAS).filter(lives) {
                let owner = &state.owners[at];
                let own = self.leaders[term];
                let is_next = at == own || leader.confirmed[own];
                let is_enough = term + 1 == TERMS && leader.log.is_some();
                if owner.granted <= term && !owner.switches && is_next && !is_enough && !gives_up {
                    steps.push(Step::Grant(term, at));
                }
                if !leader.confirmed[at] || leader.failed[at] || self.is_held_up(state, term, at) {
                    continue;
                }
                match &leader.log {
                    None if !gives_up && count < MAJORITY && leader.read[at].is_none() => {
                        steps.push(Step::Read(term, at));
                    }
                    Some(log) if term + 1 < TERMS && leader.written[at].0 < log.len() => {
                        steps.push(Step::Write(term, at));
                    }
                    _ => {}
                }
            }
            let has_read_own = leader.read[self.leaders[term]].is_some();
            let least = if self.mutant.has(Mutant::NoDrain) { 1 } else { MAJORITY };
            if leader.log.is_none() && !gives_up && has_read_own && count >= least {
                steps.push(Step::Begin(term));
            }
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        match step {
            Step::Die(who) => next.dead = Some(who),
            Step::Grant(term, at) => {
                self.grant(&mut next.owners[at], term);
                next.leaders[term].confirmed[at] = true;
                self.read(&mut next, term, at);
            }
            Step::Force(at) => {
                let owner = &mut next.owners[at];
                owner.may_write = self.may_write(owner.granted.checked_sub(1)?);
                owner.switches = false;
            }
            Step::Read(term, at) => self.read(&mut next, term, at),
            Step::Begin(term) => {
                let log = adopted(self.area, term, &next.leaders[term].read, self.mutant);
                // One that a later leader has asked after may begin from too little: it commits nothing.
                let is_last = next.owners.iter().all(|owner| owner.granted <= term + 1);
                next.broken |= is_last && !log.starts_with(&next.committed);
                next.leaders[term].log = Some(log);
                // They differ in nothing that matters from now on.
                next.leaders[term].read = Default::default();
                let own = self.leaders[term];
                let has_own = |leader: &Leader| {
                    leader.failed[own]
                        || leader.log.as_ref().is_none_or(|log| leader.written[own].0 >= log.len())
                };
                while term + 1 < TERMS && !has_own(&next.leaders[term]) {
                    self.write(&mut next, term, own);
                }
                next.commit(term);
            }
            Step::Write(term, at) => {
                self.write(&mut next, term, at);
                if !self.has_given_up(&next, term) {
                    next.commit(term);
                }
            }
        }
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(SAFE, |_, s: &State| !s.broken),
            Property::sometimes("the last leader has what both others committed", |_, s: &State| {
                s.committed == [COMMAND, 2] && s.leaders[TERMS - 1].log.is_some()
            }),
            Property::sometimes("a WRITE is refused after its leader was succeeded", |_, s: &State| {
                s.leaders[0].failed.contains(&true) && s.committed == [2]
            }),
            Property::sometimes("a WRITE is cut off in the middle", |_, s: &State| {
                let leader = &s.leaders[0];
                (0..REPLICAS).any(|at| leader.failed[at] && leader.written[at].1)
            }),
        ]
    }
}

/// One replica after the other; two that take the permission from each other; one that begins again.
const SUCCESSIONS: [[usize; TERMS]; 3] = [[0, 1, 2], [0, 1, 0], [0, 0, 2]];

const SAFE: &str = "what is committed stays, and every leader has it";

#[test]
fn what_is_committed_stays_whoever_takes_the_permission() {
    for leaders in SUCCESSIONS {
        let checker = Terms::new(leaders, ActiveMutant::NONE).checker().threads(2).spawn_bfs().join();
        if leaders[0] == leaders[1] {
            checker.assert_no_discovery(SAFE);
        } else {
            checker.assert_properties();
        }
        println!("{leaders:?}: {} states", checker.unique_state_count());
    }
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_are_caught() {
    let all = [
        Mutant::GrantWithoutRevoke,
        Mutant::AnswerBeforePermit,
        Mutant::RefusalCounts,
        Mutant::NoDrain,
        Mutant::LowestTerm,
        Mutant::RewriteInPlace,
    ];
    for mutant in all {
        let is_caught = SUCCESSIONS.into_iter().any(|leaders| {
            let model = Terms::new(leaders, ActiveMutant::new(mutant));
            let finds = stateright::HasDiscoveries::AnyFailures;
            let checker = model.checker().threads(2).finish_when(finds).spawn_bfs().join();
            checker.discovery(SAFE).is_some()
        });
        assert!(is_caught, "{mutant:?}");
    }
}
