//! The invariants.

use super::*;

impl Slots {
    /// A word only advances, and an accepted one names a whole value.
    pub(super) fn check_word(&self, state: &mut State, slot: u8, a: usize, old: SlotWord, new: SlotWord) {
        let id = self.slots[usize::from(slot)];
        let (before, after) = (old.state(id), new.state(id));
        let (Some(before), Some(after)) = (before, after) else {
            state.broken = Some(Broken::Backwards);
            return;
        };
        if after.min_proposal < before.min_proposal
            || after.accepted_proposal < before.accepted_proposal
            || after.accepted_proposal > after.min_proposal
        {
            state.broken = Some(Broken::Backwards);
        }
        if after.accepted_proposal == before.accepted_proposal {
            return;
        }
        let held = state.areas[a][usize::from(self.home(slot, after.accepted_value))].whole();
        let Some(value) = held.filter(|&value| value == u8::MAX || Self::slot_of(value) == slot) else {
            state.broken = Some(Broken::Unreadable);
            return;
        };
        if value == u8::MAX {
            state.broken = Some(Broken::Invalid);
            return;
        }
        let number = after.accepted_proposal;
        let at = state.votes.iter().position(|v| (v.slot, v.number) == (slot, number)).unwrap_or_else(|| {
            state.votes.push(Votes { slot, number, value, mask: 0 });
            state.votes.sort_unstable();
            state.votes.iter().position(|v| (v.slot, v.number) == (slot, number)).expect("just put there")
        });
        let votes = &mut state.votes[at];
        if votes.value != value {
            state.broken = Some(Broken::Reused);
        }
        votes.mask |= 1 << a;
        if votes.mask.count_ones() >= MAJORITY {
            let chosen = &mut state.chosen[usize::from(slot)];
            match *chosen {
                (0, _) => *chosen = (value, number),
                (other, _) if other != value => state.broken = Some(Broken::Agreement),
                (_, lowest) => chosen.1 = lowest.min(number),
            }
        }
    }

    /// Row 2: a reader of a decided slot's value finds it, whole, until the acceptor's word is of
    /// the ring's next lap.
    pub(super) fn check(&self, state: &mut State) {
        for slot in 0..self.slots.len() as u8 {
            let (value, lowest) = state.chosen[usize::from(slot)];
            if value == 0 {
                continue;
            }
            for a in 0..ACCEPTORS {
                let word = state.words[a][self.ring(slot)];
                let Some(accepted) = self.accepted(slot, word) else { continue };
                if accepted.accepted_proposal < lowest {
                    continue;
                }
                let held = state.areas[a][usize::from(self.home(slot, accepted.accepted_value))];
                if held.whole() != Some(value) {
                    state.broken = Some(Broken::Unreadable);
                }
            }
        }
    }

    /// Whether an acceptor holds a half-written value.
    pub(crate) fn is_torn(&self, state: &State) -> bool {
        state.areas.iter().flatten().any(|area| area.head != area.body)
    }

    /// Whether proposer `p` decides its slot, or learns that it is behind, within `attempts_max`
    /// more attempts if it runs alone from now on: the other's posts are never executed, all links
    /// except those to `dead` are up, and answers come in this order.
    pub(crate) fn decides_alone(
        &self,
        state: &State,
        p: usize,
        order: [usize; ACCEPTORS],
        dead: Option<usize>,
        attempts_max: u8,
    ) -> bool {
        let mut state = state.clone();
        state.proposers[1 - p].links.iter_mut().for_each(|link| link.posted.clear());
        state.proposers[p].attempts = attempts_max;
        for (a, link) in state.proposers[p].links.iter_mut().enumerate() {
            let waiting = link.posted.iter().find(|op| op.fresh).map(|op| op.token);
            if dead == Some(a) {
                link.down = true;
                link.posted.clear();
                link.done = waiting.map(|token| (token, Result_::Lost)).or(link.done);
            } else if link.down {
                link.down = false;
                link.posted.clear();
            }
        }
        loop {
            let proposer = &state.proposers[p];
            let slot = proposer.slot;
            let id = self.slots[usize::from(slot)];
            match proposer.engine.phase() {
                Phase::Decided => return true,
                Phase::Prepared(_) => self.step(&mut state, Step::Propose(p)),
                Phase::Idle if state.words.iter().any(|w| w[self.ring(slot)].state(id).is_none()) => {
                    return true;
                }
                Phase::Idle if proposer.attempts == 0 => return false,
                Phase::Idle => self.step(&mut state, Step::Prepare(p)),
                Phase::Preparing | Phase::Reading(_) | Phase::Checking(_) | Phase::Accepting => {
                    for a in order {
                        while !state.proposers[p].links[a].posted.is_empty() {
                            self.execute(&mut state, p, a);
                        }
                    }
                    let Some(a) = order.into_iter().find(|&a| state.proposers[p].links[a].done.is_some())
                    else {
                        return false;
                    };
                    self.deliver(&mut state, p, a);
                }
            }
        }
    }

    /// Executes and delivers everything that proposer `p` has posted to acceptor `a`.
    pub(crate) fn run_link(&self, state: &mut State, p: usize, a: usize) {
        while !state.proposers[p].links[a].posted.is_empty() {
            self.execute(state, p, a);
        }
        if state.proposers[p].links[a].done.is_some() {
            self.deliver(state, p, a);
        }
    }

    /// Whether every unfinished proposer decides alone, whichever acceptor answers first or not at
    /// all.
    pub(crate) fn is_live(&self, state: &State) -> bool {
        let orders = [[0, 1, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0], [1, 0, 2], [0, 2, 1]];
        (0..PROPOSERS).all(|p| {
            orders.into_iter().all(|order| {
                // An acceptor without numbers is as good as dead; two are a majority.
                let dead = Some(order[2]).filter(|_| self.promised == [0; ACCEPTORS]);
                [None, dead].into_iter().all(|dead| self.decides_alone(state, p, order, dead, ALONE_MAX))
            })
        })
    }
}
