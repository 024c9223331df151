//! Proposers with shipped engines, three acceptors that are memory, and FIFO links between them: what an exploration
//! of the CAS engine moves.
//!
//! Reductions, all exact. A crash is no step of its own: a proposer that never moves again is among the paths, and so
//! is every prefix of its posted operations. A completion that the engine drops (of a WRITE, or of a CAS after which
//! another was posted on that link) is not queued; that it would be dropped is asserted. Round numbers are no part of
//! a state, see [`WithoutRounds`].

use crate::common::{LIMITS, Noted, Post, WithoutRounds};
use obol_fabric::{Address, Completion, Layout, LinkError, Token, ViewId};
use obol_membership::engine::{Engine, Outcome, Phase};
use obol_membership::mutants::{Mutant, Plant};
use obol_membership::view::Acceptor;
use obol_membership::word::{Lap, State as SlotState, Word};
use obol_membership::{sealed, tokens};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

pub(crate) const ACCEPTORS: usize = 3;
pub(crate) const PROPOSERS: usize = 2;
const MAJORITY: u32 = 2;
/// Areas of one acceptor: slots of the ring times proposers.
const AREAS: usize = LIMITS.slots as usize * PROPOSERS;
/// A proposer that is alone decides in so many attempts.
const ALONE_MAX: u8 = 3;
/// Words of one sealed value: two for the head, two for the body.
const BODY_BYTES: usize = 16;

/// What is explored, and how far.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    pub(crate) layout: Layout,
    pub(crate) plant: Plant,
    /// One slot, or two of which the second is opened when the first is decided.
    pub(crate) slots: Vec<ViewId>,
    /// How often each proposer may prepare, whatever slot.
    pub(crate) attempts: [u8; PROPOSERS],
    /// How often each proposer may turn to its slot anew, in any phase, with or without a guess.
    pub(crate) reopens: [u8; PROPOSERS],
    /// How many links may fail, all to the first acceptor: one of three alike.
    pub(crate) failures: u8,
    /// Whether a WRITE takes effect in two steps.
    pub(crate) torn: bool,
    /// Whether proposers may start with a guess about each other.
    pub(crate) guesses: bool,
    /// `values[i]` is value `i + 1`.
    pub(crate) values: Vec<Arc<[u8]>>,
    pub(crate) acceptors: Vec<Acceptor>,
}

/// A value area: whose head and whose body it holds; 0 for nothing. Whole if both are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Area {
    head: u8,
    body: u8,
}

impl Area {
    pub(crate) fn whole(self) -> Option<u8> {
        (self.head == self.body && self.head != 0).then_some(self.head)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Deed {
    Write {
        area: u8,
        value: u8,
    },
    /// The second half of a torn WRITE.
    Finish {
        area: u8,
        value: u8,
    },
    Cas {
        expected: Word,
        desired: Word,
    },
    Read {
        area: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Op {
    pub(crate) deed: Deed,
    token: Token,
    /// Whether the engine waits for its completion.
    fresh: bool,
}

impl Hash for Op {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.deed, self.fresh).hash(state);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Result_ {
    Swapped(Word),
    Read(Area),
    Written,
    Lost,
}

/// From one proposer to one acceptor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) posted: Vec<Op>,
    done: Option<(Token, Result_)>,
    down: bool,
}

impl Hash for Link {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.posted, self.done.map(|(_, result)| result), self.down).hash(state);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proposer {
    pub(crate) engine: Arc<Engine>,
    /// Index of its slot.
    slot: u8,
    pub(crate) attempts: u8,
    /// Whether it has proposed a value of its own in this slot; the next one is another.
    spoke: bool,
    pub(crate) links: [Link; ACCEPTORS],
}

impl Hash for Proposer {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.engine.hash(&mut WithoutRounds(state));
        (self.slot, self.attempts, self.spoke, &self.links).hash(state);
    }
}

/// One proposal number of one slot: who accepted it, and what its area held then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Votes {
    slot: u8,
    number: u16,
    value: u8,
    mask: u8,
}

/// What must never be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Broken {
    Agreement,
    Unchosen,
    Invalid,
    Unreadable,
    Reused,
    Backwards,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) proposers: [Proposer; PROPOSERS],
    /// The slots of a model share one word or have one each.
    words: [[Word; LIMITS.slots as usize]; ACCEPTORS],
    areas: [[Area; AREAS]; ACCEPTORS],
    reopens: [u8; PROPOSERS],
    failures: u8,
    votes: Vec<Votes>,
    /// By slot: what a majority accepted under one number, and the lowest such number.
    pub(crate) chosen: [(u8, u16); 2],
    pub(crate) broken: Option<Broken>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Prepare(usize),
    Propose(usize),
    Reopen { proposer: usize, guess: bool },
    OpenNext(usize),
    Execute { proposer: usize, acceptor: usize },
    Deliver { proposer: usize, acceptor: usize },
    FailLink { proposer: usize, acceptor: usize },
}

impl Slots {
    pub(crate) fn new(slots: &[u64], plant: Plant) -> Self {
        let slots: Vec<ViewId> = slots.iter().map(|&id| ViewId(id)).collect();
        let values = slots
            .iter()
            .flat_map(|&slot| (1..=4).map(move |n| sealed::seal(slot, &[n; BODY_BYTES])))
            .collect();
        let acceptors =
            (1..=ACCEPTORS as u16).map(|n| Acceptor { proposer: n, address: Address::region(n.into()) });
        Self {
            layout: Layout::new(LIMITS).expect("in bounds"),
            plant,
            slots,
            attempts: [2, 2],
            reopens: [0, 0],
            failures: 0,
            torn: false,
            guesses: false,
            values,
            acceptors: acceptors.collect(),
        }
    }

    /// The number of a value by its bytes; a number beyond all values if nobody proposed it.
    fn number(&self, bytes: &[u8]) -> u8 {
        self.values.iter().position(|value| value[..] == *bytes).map_or(u8::MAX, |at| at as u8 + 1)
    }

    fn bytes(&self, area: Area) -> Vec<u8> {
        let empty: &[u8] = &[0; 2 * BODY_BYTES];
        let of = |n: u8| n.checked_sub(1).map_or(empty, |at| &self.values[usize::from(at)][..]);
        [&of(area.head)[..BODY_BYTES], &of(area.body)[BODY_BYTES..]].concat()
    }

    /// The slot that a value is for.
    fn slot_of(value: u8) -> u8 {
        (value - 1) / 4
    }

    /// The index of the area at `offset`.
    fn area_at(&self, offset: u32) -> u8 {
        ((offset - self.layout.value(0, 1)) / LIMITS.value_bytes) as u8
    }

    /// Where a reader of a slot looks for the value of this proposer.
    fn home(&self, slot: u8, proposer: u16) -> u8 {
        let id = if self.plant.has(Mutant::ReuseValueArea) { 0 } else { self.slots[usize::from(slot)].0 };
        self.area_at(self.layout.value(id, proposer))
    }

    fn ring(&self, slot: u8) -> usize {
        (self.slots[usize::from(slot)].0 % u64::from(LIMITS.slots)) as usize
    }

    fn accepted(&self, slot: u8, word: Word) -> Option<SlotState> {
        let id = self.slots[usize::from(slot)];
        (word.lap(id) == Lap::This)
            .then(|| word.state(id))
            .flatten()
            .filter(|state| state.accepted_proposal != 0)
    }

    pub(crate) fn init(&self) -> Vec<State> {
        let guesses: &[[bool; 2]] =
            if self.guesses { &[[false, false], [false, true], [true, true]] } else { &[[false, false]] };
        guesses
            .iter()
            .map(|guess| State {
                proposers: core::array::from_fn(|p| {
                    let mut engine = Engine::new(p as u16 + 1, self.layout, self.plant);
                    engine.open(self.slots[0], &self.acceptors, guess[p].then_some(2 - p as u16));
                    Proposer {
                        engine: Arc::new(engine),
                        slot: 0,
                        attempts: self.attempts[p],
                        spoke: false,
                        links: core::array::from_fn(|_| Link::default()),
                    }
                }),
                words: [[Word::default(); LIMITS.slots as usize]; ACCEPTORS],
                areas: [[Area::default(); AREAS]; ACCEPTORS],
                reopens: self.reopens,
                failures: self.failures,
                votes: Vec::new(),
                chosen: [(0, 0); 2],
                broken: None,
            })
            .collect()
    }

    pub(crate) fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        for (proposer, p) in state.proposers.iter().enumerate() {
            match p.engine.phase() {
                Phase::Idle if p.attempts > 0 => steps.push(Step::Prepare(proposer)),
                Phase::Prepared(_) => steps.push(Step::Propose(proposer)),
                _ => {}
            }
            if p.engine.phase() != Phase::Decided && state.reopens[proposer] > 0 {
                steps.extend([true, false].map(|guess| Step::Reopen { proposer, guess }));
            }
            if usize::from(p.slot) + 1 < self.slots.len() && state.chosen[usize::from(p.slot)].0 != 0 {
                steps.push(Step::OpenNext(proposer));
            }
            for (acceptor, link) in p.links.iter().enumerate() {
                if !link.posted.is_empty() {
                    steps.push(Step::Execute { proposer, acceptor });
                }
                if link.done.is_some() {
                    steps.push(Step::Deliver { proposer, acceptor });
                }
                if state.failures > 0 && acceptor == 0 && !link.down {
                    steps.push(Step::FailLink { proposer, acceptor });
                }
            }
        }
    }

    pub(crate) fn step(&self, state: &mut State, step: Step) {
        match step {
            Step::Prepare(p) => {
                state.proposers[p].attempts -= 1;
                self.drive(state, p, &|engine, fabric| engine.prepare(fabric));
            }
            Step::Propose(p) => {
                let proposer = &mut state.proposers[p];
                let nth = usize::from(proposer.slot) * 4 + p * 2 + usize::from(proposer.spoke);
                proposer.spoke = true;
                self.drive(state, p, &|engine, fabric| engine.accept(Arc::clone(&self.values[nth]), fabric));
            }
            Step::Reopen { proposer, guess } => {
                state.reopens[proposer] -= 1;
                self.open(&mut state.proposers[proposer], guess.then_some(2 - proposer as u16));
            }
            Step::OpenNext(p) => {
                let proposer = &mut state.proposers[p];
                proposer.slot += 1;
                proposer.spoke = false;
                self.open(proposer, None);
            }
            Step::Execute { proposer, acceptor } => self.execute(state, proposer, acceptor),
            Step::Deliver { proposer, acceptor } => self.deliver(state, proposer, acceptor),
            Step::FailLink { proposer, acceptor } => {
                state.failures -= 1;
                let link = &mut state.proposers[proposer].links[acceptor];
                link.down = true;
                // What was posted may still be executed, but nobody hears of it.
                let waiting = link.posted.iter_mut().find(|op| op.fresh).map(|op| {
                    op.fresh = false;
                    op.token
                });
                link.done = waiting.or(link.done.map(|(token, _)| token)).map(|token| (token, Result_::Lost));
            }
        }
        self.look(state);
    }

    fn open(&self, proposer: &mut Proposer, guess: Option<u16>) {
        let slot = self.slots[usize::from(proposer.slot)];
        Arc::make_mut(&mut proposer.engine).open(slot, &self.acceptors, guess);
        for link in &mut proposer.links {
            link.done = None;
            link.posted.iter_mut().for_each(|op| op.fresh = false);
        }
    }

    /// Calls an engine, queues what it posts, and takes what it tells as a leader would.
    fn drive(&self, state: &mut State, p: usize, call: &dyn Fn(&mut Engine, &mut Noted) -> Option<Outcome>) {
        let mut fabric = Noted::default();
        let proposer = &mut state.proposers[p];
        let outcome = call(Arc::make_mut(&mut proposer.engine), &mut fabric);
        for (post, token) in fabric.posts {
            self.queue(proposer, post, token);
        }
        match outcome {
            Some(Outcome::Adopted) => {
                let proposer = &state.proposers[p];
                let nth = usize::from(proposer.slot) * 4 + p * 2 + usize::from(proposer.spoke);
                let own = match self.plant.has(Mutant::AnnounceOwnValue) {
                    true => Arc::clone(&self.values[nth]),
                    false => Arc::from([]),
                };
                self.drive(state, p, &|engine, fabric| engine.accept(Arc::clone(&own), fabric));
            }
            Some(Outcome::Decided { value, .. }) => {
                let slot = state.proposers[p].slot;
                let value = self.number(&value);
                if value == u8::MAX || Self::slot_of(value) != slot {
                    state.broken = Some(Broken::Invalid);
                } else if state.chosen[usize::from(slot)].0 == 0 {
                    state.broken = Some(Broken::Unchosen);
                } else if state.chosen[usize::from(slot)].0 != value {
                    state.broken = Some(Broken::Agreement);
                }
            }
            None | Some(Outcome::Prepared | Outcome::Aborted(_)) => {}
        }
    }

    fn queue(&self, proposer: &mut Proposer, post: Post, token: Token) {
        let (at, deed) = match post {
            Post::Read { from, len } => {
                assert_eq!(len, LIMITS.value_bytes);
                (from.at, Deed::Read { area: self.area_at(from.offset) })
            }
            Post::Write { to, bytes } => {
                (to.at, Deed::Write { area: self.area_at(to.offset), value: self.number(&bytes) })
            }
            Post::Cas { at, expected, desired } => {
                assert_eq!(at.offset, self.layout.slot(self.slots[usize::from(proposer.slot)].0));
                (at.at, Deed::Cas { expected: Word(expected), desired: Word(desired) })
            }
        };
        let link = &mut proposer.links[at.region as usize - 1];
        let fresh = !matches!(deed, Deed::Write { .. });
        if fresh {
            link.done = None;
            link.posted.iter_mut().for_each(|op| op.fresh = false);
        }
        if !link.down {
            link.posted.push(Op { deed, token, fresh });
        } else if fresh {
            link.done = Some((token, Result_::Lost));
        }
    }

    fn execute(&self, state: &mut State, p: usize, a: usize) {
        let Op { deed, token, fresh } = state.proposers[p].links[a].posted.remove(0);
        let areas = &mut state.areas[a];
        let result = match deed {
            Deed::Write { area, value } if self.torn => {
                areas[usize::from(area)].head = value;
                let rest = Op { deed: Deed::Finish { area, value }, token, fresh };
                state.proposers[p].links[a].posted.insert(0, rest);
                return;
            }
            Deed::Write { area, value } => {
                areas[usize::from(area)] = Area { head: value, body: value };
                Result_::Written
            }
            Deed::Finish { area, value } => {
                areas[usize::from(area)].body = value;
                Result_::Written
            }
            Deed::Read { area } => Result_::Read(areas[usize::from(area)]),
            Deed::Cas { expected, desired } => {
                let slot = (0..self.slots.len())
                    .find(|&at| desired.lap(self.slots[at]) == Lap::This)
                    .expect("a CAS puts a word of one of the slots") as u8;
                let word = &mut state.words[a][self.ring(slot)];
                let found = *word;
                if found == expected {
                    *word = desired;
                    self.check_word(state, slot, a, found, desired);
                }
                Result_::Swapped(found)
            }
        };
        if fresh {
            state.proposers[p].links[a].done = Some((token, result));
        } else if !state.proposers[p].links[a].down {
            let mut engine = (*state.proposers[p].engine).clone();
            let mut fabric = Noted::default();
            let told = self.complete(&mut engine, token, result, &mut fabric);
            let deaf = told.is_none() && fabric.posts.is_empty() && engine == *state.proposers[p].engine;
            assert!(deaf, "a completion that should be stale was taken");
        }
    }

    fn deliver(&self, state: &mut State, p: usize, a: usize) {
        let Some((token, result)) = state.proposers[p].links[a].done.take() else { return };
        self.drive(state, p, &|engine, fabric| self.complete(engine, token, result, fabric));
    }

    fn complete(
        &self,
        engine: &mut Engine,
        token: Token,
        result: Result_,
        fabric: &mut Noted,
    ) -> Option<Outcome> {
        let (part, peer, round) = tokens::unpack(token).expect("the engine's token");
        let bytes;
        let result = match result {
            Result_::Swapped(found) => Ok(Completion::Swapped(found.0)),
            Result_::Read(area) => {
                bytes = self.bytes(area);
                Ok(Completion::Read(&bytes))
            }
            Result_::Written => Ok(Completion::Written),
            Result_::Lost => Err(LinkError::PeerDead),
        };
        engine.complete(part, peer, round, &result, fabric)
    }

    /// A word changes forwards only, and an accepted one names a whole value.
    fn check_word(&self, state: &mut State, slot: u8, a: usize, old: Word, new: Word) {
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

    /// Row 2: whoever is sent to a value of a decided slot finds it, whole.
    fn look(&self, state: &mut State) {
        for slot in 0..self.slots.len() as u8 {
            let (value, lowest) = state.chosen[usize::from(slot)];
            if value == 0 {
                continue;
            }
            // The ring's next lap may be under way: then the reader must see that, and look again.
            let recycled = usize::from(slot) + 1 < self.slots.len() && self.ring(slot) == self.ring(slot + 1);
            for a in 0..ACCEPTORS {
                let word = state.words[a][self.ring(slot)];
                let Some(accepted) = self.accepted(slot, word) else { continue };
                if accepted.accepted_proposal < lowest {
                    continue;
                }
                let held = state.areas[a][usize::from(self.home(slot, accepted.accepted_value))];
                let other_lap = |n: u8| n != 0 && n != u8::MAX && Self::slot_of(n) > slot;
                let excused = recycled && (other_lap(held.head) || other_lap(held.body));
                if held.whole() != Some(value) && !excused {
                    state.broken = Some(Broken::Unreadable);
                }
            }
        }
    }

    /// Whether proposer `p` decides its slot, or learns that it is behind, within `attempts_max` more attempts if from
    /// now on it runs alone: the other's posts are never executed, all links are up but those to `dead`, and answers
    /// come in this order.
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
                Phase::Idle if state.words.iter().any(|w| w[self.ring(slot)].lap(id) == Lap::Later) => {
                    return true;
                }
                Phase::Idle if proposer.attempts == 0 => return false,
                Phase::Idle => self.step(&mut state, Step::Prepare(p)),
                Phase::Preparing | Phase::Reading(_) | Phase::Accepting => {
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

    /// Whether every proposer that is not done decides alone, whichever acceptor answers first or not at all.
    pub(crate) fn is_live(&self, state: &State) -> bool {
        let orders = [[0, 1, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0], [1, 0, 2], [0, 2, 1]];
        (0..PROPOSERS).all(|p| {
            orders.into_iter().all(|order| {
                [None, Some(order[2])]
                    .into_iter()
                    .all(|dead| self.decides_alone(state, p, order, dead, ALONE_MAX))
            })
        })
    }
}
