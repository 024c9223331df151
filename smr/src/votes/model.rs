//! Every interleaving of three servers in three terms, with the rule by which they vote that ships:
//! requests that are delivered at any time, also again, and candidates that give up. All logs are the
//! same.

use super::is_considered;
use crate::mutants::ActiveMutant;
use crate::position::Term;
use stateright::{Checker, Model, Property};

const SERVERS: usize = 3;
const MAJORITY: u32 = 2;
const TERMS: usize = 3;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    terms: [Term; SERVERS],
    /// By term and candidate: a bit for each server that has voted for it; zero before it stands.
    votes: [[u8; SERVERS]; TERMS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// A server becomes a candidate in the term after its own.
    Stand(usize),
    /// The request of a candidate in a term arrives at a server.
    Ask(usize, usize, usize),
}

struct Elections {
    mutant: ActiveMutant,
}

impl State {
    fn leaders(&self, term: usize) -> usize {
        self.votes[term].iter().filter(|votes| votes.count_ones() >= MAJORITY).count()
    }
}

impl Model for Elections {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State { terms: [Term(0); SERVERS], votes: [[0; SERVERS]; TERMS] }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        actions.extend((0..SERVERS).map(Step::Stand));
        for term in 0..TERMS {
            let candidates = (0..SERVERS).filter(|candidate| state.votes[term][*candidate] != 0);
            let asks = |candidate| (0..SERVERS).map(move |to| Step::Ask(term, candidate, to));
            actions.extend(candidates.flat_map(asks));
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        let (term, candidate, to) = match step {
            Step::Stand(server) => (state.terms[server].0 as usize, server, server),
            Step::Ask(term, candidate, to) => (term, candidate, to),
        };
        let chief = Term(term as u64 + 1);
        if term >= TERMS || !is_considered(state.terms[to], chief, false, self.mutant) {
            return None;
        }
        next.terms[to] = chief;
        next.votes[term][candidate] |= 1 << to;
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let one = |_: &Self, state: &State| (0..TERMS).all(|term| state.leaders(term) <= 1);
        let split = |_: &Self, state: &State| state.votes[0].iter().all(|votes| votes.count_ones() == 1);
        vec![
            Property::always("a term has one leader", one),
            Property::sometimes("a vote is split", split),
            Property::sometimes("the last term has a leader", |_, state: &State| {
                state.leaders(TERMS - 1) == 1
            }),
        ]
    }
}

#[test]
fn a_term_has_one_leader() {
    let checker = Elections { mutant: ActiveMutant::NONE }.checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
    println!("{} states", checker.unique_state_count());
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_that_vote_twice_elect_two() {
    let mutant = ActiveMutant::new(crate::Mutant::VoteTwice);
    let finds = stateright::HasDiscoveries::AnyFailures;
    let checker = Elections { mutant }.checker().threads(2).finish_when(finds).spawn_bfs().join();
    assert!(checker.discovery("a term has one leader").is_some());
}
