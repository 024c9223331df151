//! Proposers with shipped engines, three acceptors that are memory, and FIFO links between them:
//! the state of an exploration of the CAS engine.
//!
//! All reductions are exact. A crash is not a separate step: a proposer that never moves again is
//! among the paths, and so is every prefix of its posts. Only the continuation in a next life is a
//! step, which includes the crash. A completion that the engine drops (of a WRITE, or of a CAS
//! followed by another post on that link) is not queued; an assertion checks that it would be
//! dropped. A WRITE without observers is executed at once, see `hasten`. Round numbers are not part
//! of a state, see [`WithoutRounds`].

mod act;
mod judge;

use crate::common::{LIMITS, Noted, Post, WithoutRounds};
use obol_fabric::{Address, Completion, Layout, LinkError, Token, ViewId};
use obol_membership::consensus::{Consensus, Engine, Outcome, Phase, SlotState, SlotWord};
use obol_membership::mutants::{ActiveMutant, Mutant};
use obol_membership::view::Acceptor;
use obol_membership::{frame, tokens};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

pub(crate) const ACCEPTORS: usize = 3;
pub(crate) const PROPOSERS: usize = 2;
const MAJORITY: u32 = 2;
/// Areas of one acceptor: slots of the ring times proposers.
const AREAS: usize = LIMITS.slots as usize * PROPOSERS;
/// A proposer that runs alone decides in this many attempts.
const ALONE_MAX: u8 = 3;
/// Words of one framed value: two for the head, two for the body.
const BODY_BYTES: usize = 16;

/// The model and its limits.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    pub(crate) layout: Layout,
    pub(crate) mutant: ActiveMutant,
    /// One slot, or two: the second is opened when the first is decided.
    pub(crate) slots: Vec<ViewId>,
    /// The limit of prepares per proposer, in any slot.
    pub(crate) attempts: [u8; PROPOSERS],
    /// The limit of reopening its slot per proposer, in any phase, with or without a guess.
    pub(crate) reopens: [u8; PROPOSERS],
    /// The limit of crashes per proposer: pending posts are lost on each link from any point on,
    /// and so is its knowledge.
    pub(crate) restarts: [u8; PROPOSERS],
    /// The limit of link failures, all to the first acceptor: the three are symmetric.
    pub(crate) failures: u8,
    /// Whether a WRITE takes effect in two steps.
    pub(crate) torn: bool,
    /// The proposers that start with a guess about the other; each row is a start.
    pub(crate) guesses: Vec<[bool; PROPOSERS]>,
    /// `values[i]` is value `i + 1`.
    pub(crate) values: Vec<Arc<[u8]>>,
    pub(crate) acceptors: Vec<Acceptor>,
    /// Each acceptor's initial promise to the first proposer in the first slot; 0 for none.
    pub(crate) promised: [u16; ACCEPTORS],
}

/// A value area: the sources of its head and body; 0 for none. Whole if both are the same.
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
        expected: SlotWord,
        desired: SlotWord,
    },
    Read {
        area: u8,
    },
    ReadWord,
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
    Swapped(SlotWord),
    Read(Area),
    Word(SlotWord),
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
    /// Whether it has proposed its own value in this slot; the next one is another.
    spoke: bool,
    pub(crate) links: [Link; ACCEPTORS],
}

impl Hash for Proposer {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.engine.hash(&mut WithoutRounds(state));
        (self.slot, self.attempts, self.spoke, &self.links).hash(state);
    }
}

/// One proposal number of one slot: its acceptors, and the contents of its area then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Votes {
    slot: u8,
    number: u16,
    value: u8,
    mask: u8,
}

/// Violations.
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
    pub(crate) words: [[SlotWord; LIMITS.slots as usize]; ACCEPTORS],
    areas: [[Area; AREAS]; ACCEPTORS],
    reopens: [u8; PROPOSERS],
    restarts: [u8; PROPOSERS],
    failures: u8,
    votes: Vec<Votes>,
    /// By slot: the value accepted by a majority under one number, and the lowest such number.
    pub(crate) chosen: [(u8, u16); 2],
    pub(crate) broken: Option<Broken>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Prepare(usize),
    Propose(usize),
    Reopen { proposer: usize, guess: bool },
    Restart(usize),
    OpenNext(usize),
    Execute { proposer: usize, acceptor: usize },
    Deliver { proposer: usize, acceptor: usize },
    FailLink { proposer: usize, acceptor: usize },
}

impl Slots {
    pub(crate) fn new(slots: &[u64], mutant: ActiveMutant) -> Self {
        let slots: Vec<ViewId> = slots.iter().map(|&id| ViewId(id)).collect();
        let values = slots
            .iter()
            .flat_map(|&slot| (1..=4).map(move |n| frame::encode_frame(slot, &[n; BODY_BYTES])))
            .collect();
        let acceptors =
            (1..=ACCEPTORS as u16).map(|n| Acceptor { proposer: n, address: Address::region(n.into()) });
        Self {
            layout: Layout::new(LIMITS).expect("in bounds"),
            mutant,
            slots,
            attempts: [2, 2],
            reopens: [0, 0],
            restarts: [0, 0],
            failures: 0,
            torn: false,
            guesses: vec![[false, false]],
            values,
            acceptors: acceptors.collect(),
            promised: [0; ACCEPTORS],
        }
    }

    fn words(&self) -> [[SlotWord; LIMITS.slots as usize]; ACCEPTORS] {
        self.promised.map(|min_proposal| {
            let mut words = [SlotWord::default(); LIMITS.slots as usize];
            if min_proposal != 0 {
                let promised = SlotState { min_proposal, ..SlotState::default() };
                words[self.ring(0)] = SlotWord::new(self.slots[0], promised);
            }
            words
        })
    }

    /// The number of a value by its bytes; beyond all values if it was never proposed.
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
        let id = if self.mutant.has(Mutant::ReuseValueArea) { 0 } else { self.slots[usize::from(slot)].0 };
        self.area_at(self.layout.value(id, proposer))
    }

    fn ring(&self, slot: u8) -> usize {
        (self.slots[usize::from(slot)].0 % u64::from(LIMITS.slots)) as usize
    }

    fn accepted(&self, slot: u8, word: SlotWord) -> Option<SlotState> {
        let id = self.slots[usize::from(slot)];
        word.state(id).filter(|state| state.accepted_proposal != 0)
    }

    pub(crate) fn init(&self) -> Vec<State> {
        self.guesses
            .iter()
            .map(|guess| State {
                proposers: core::array::from_fn(|p| {
                    let mut engine = Engine::new(p as u16 + 1, self.layout, self.mutant);
                    engine.open(self.slots[0], &self.acceptors, guess[p].then_some(2 - p as u16));
                    Proposer {
                        engine: Arc::new(engine),
                        slot: 0,
                        attempts: self.attempts[p],
                        spoke: false,
                        links: core::array::from_fn(|_| Link::default()),
                    }
                }),
                words: self.words(),
                areas: [[Area::default(); AREAS]; ACCEPTORS],
                reopens: self.reopens,
                restarts: self.restarts,
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
            if p.engine.phase() != Phase::Decided && state.restarts[proposer] > 0 {
                steps.push(Step::Restart(proposer));
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
}
