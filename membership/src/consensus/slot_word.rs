//! A slot's word: the whole state of one acceptor in one instance of Paxos, small enough for one
//! CAS.

use crate::mutants::{ActiveMutant, Mutant};
use core::fmt;
use obol_fabric::ViewId;
use serde::{Deserialize, Serialize};

/// `instance:32 | min_proposal:14 | accepted_proposal:14 | accepted_value:4`, from the high bits
/// down.
/// Proposal numbers start at 1, so zero means none. `accepted_value` is the number of the proposer
/// whose value area holds the view (uKharon 5.3.1). `instance` is the low half of the slot's view
/// id: the ring's words are recycled, and a word of an earlier lap reads as empty.
///
/// The paper's word has 16 bits for each. Here the instance has most of the bits, because an
/// acceptor may be away for any number of views and return with its old words: see [`LAG_MAX`] and
/// [`AGE_MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SlotWord(u64);

const VALUE_BITS: u32 = 4;
const PROPOSAL_BITS: u32 = 14;
const ACCEPTED_SHIFT: u32 = VALUE_BITS;
const PROMISED_SHIFT: u32 = ACCEPTED_SHIFT + PROPOSAL_BITS;
const INSTANCE_SHIFT: u32 = PROMISED_SHIFT + PROPOSAL_BITS;
const PROPOSAL_MASK: u64 = (1 << PROPOSAL_BITS) - 1;
const VALUE_MASK: u64 = (1 << VALUE_BITS) - 1;

const _: () = assert!(obol_fabric::layout::PROPOSERS_MAX as u64 <= VALUE_MASK);

/// The largest proposal number that a word can hold.
const NUMBER_MAX: u16 = PROPOSAL_MASK as u16;
/// The last usable proposal number of a slot: uKharon A.6, with headroom for every proposer in what
/// a word holds.
pub const PROPOSAL_MAX: u16 = NUMBER_MAX - obol_fabric::layout::PROPOSERS_MAX as u16;
/// The number of instances that words can distinguish.
pub const INSTANCES: u64 = 1 << (64 - INSTANCE_SHIFT);
/// A reader that lags by at most this many views still recognises a word of a later slot. A leader
/// that decides one view per microsecond stays far below this within `Timing::resync_after`, which
/// is a minute at most.
pub const LAG_MAX: u64 = 1 << 30;
/// A word more than this many views old may be mistaken for one of a later slot. It takes days of
/// uninterrupted decisions.
pub const AGE_MAX: u64 = INSTANCES - LAG_MAX - 1;

/// How a word relates to the slot of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lap {
    /// Of an earlier slot of the ring: this slot is untouched.
    Earlier,
    /// Of this slot.
    This,
    /// Of a later slot: this one was decided long ago and its place recycled.
    Later,
}

/// An acceptor's state for one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SlotState {
    /// Promised: no lower proposal may be accepted any more.
    pub min_proposal: u16,
    /// Number of the accepted proposal, 0 if none.
    pub accepted_proposal: u16,
    /// The proposer whose value area holds the accepted value.
    pub accepted_value: u16,
}

impl SlotWord {
    /// The word of a slot in this state.
    pub const fn new(slot: ViewId, state: SlotState) -> Self {
        let SlotState { min_proposal, accepted_proposal, accepted_value } = state;
        // A number that does not fit would overwrite its neighbours.
        assert!(min_proposal <= NUMBER_MAX && accepted_proposal <= NUMBER_MAX);
        assert!(accepted_value as u64 <= VALUE_MASK);
        Self(
            slot.0 << INSTANCE_SHIFT
                | (min_proposal as u64) << PROMISED_SHIFT
                | (accepted_proposal as u64) << ACCEPTED_SHIFT
                | accepted_value as u64,
        )
    }

    /// A word as stored in an acceptor's slot.
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// As [`SlotWord::from_raw`], for the machines; `near` is the slot of interest.
    #[inline(always)]
    pub(crate) fn read(raw: u64, near: ViewId, mutant: ActiveMutant) -> Self {
        let word = Self(raw);
        if mutant.has(Mutant::NarrowIndex) { word.narrowed(near) } else { word }
    }

    /// The stored form of the word.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The low bits of its slot's id.
    const fn instance(self) -> u32 {
        (self.0 >> INSTANCE_SHIFT) as u32
    }

    /// Whether this is a word of `slot`, of an earlier lap (by at most [`AGE_MAX`] views) or of a
    /// later one (by at most [`LAG_MAX`]). An all-zero word was never written.
    const fn lap(self, slot: ViewId) -> Lap {
        if self.0 == 0 {
            return Lap::Earlier;
        }
        match self.ahead(slot) {
            0 if self.fields().min_proposal == 0 => Lap::Earlier,
            0 => Lap::This,
            1.. => Lap::Later,
            _ => Lap::Earlier,
        }
    }

    /// By how many slots it is ahead of `near`; negative if it is behind.
    const fn ahead(self, near: ViewId) -> i64 {
        let ahead = self.instance().wrapping_sub(near.0 as u32) as i64;
        if ahead <= LAG_MAX as i64 { ahead } else { ahead - INSTANCES as i64 }
    }

    /// Its slot, as seen from a view near it; `None` if it was never written.
    pub fn slot(self, near: ViewId) -> Option<ViewId> {
        let slot = near.0.checked_add_signed(self.ahead(near)).map(ViewId);
        slot.filter(|_| self.fields().min_proposal != 0)
    }

    /// The planted bug: a word is taken for one of the slot nearest to `near` with the same 16
    /// bits.
    fn narrowed(self, near: ViewId) -> Self {
        let ahead = (self.instance() as u16).wrapping_sub(near.0 as u16).cast_signed();
        match near.0.checked_add_signed(i64::from(ahead)) {
            Some(slot) if self.0 != 0 => Self::new(ViewId(slot), self.fields()),
            _ => self,
        }
    }

    const fn fields(self) -> SlotState {
        SlotState {
            min_proposal: (self.0 >> PROMISED_SHIFT & PROPOSAL_MASK) as u16,
            accepted_proposal: (self.0 >> ACCEPTED_SHIFT & PROPOSAL_MASK) as u16,
            accepted_value: (self.0 & VALUE_MASK) as u16,
        }
    }

    /// Whether it is of a later lap than `slot`, so that `slot` was decided long ago.
    pub(crate) fn is_later(self, slot: ViewId, mutant: ActiveMutant) -> bool {
        match mutant.has(Mutant::WrapIndex) {
            false => self.lap(slot) == Lap::Later,
            true => self.0 >> INSTANCE_SHIFT > slot.0 & 0xffff_ffff,
        }
    }

    /// The acceptor's state for `slot`: empty if the word is of an earlier lap, `None` if it is of
    /// a later one.
    pub const fn state(self, slot: ViewId) -> Option<SlotState> {
        match self.lap(slot) {
            Lap::Earlier => Some(SlotState { min_proposal: 0, accepted_proposal: 0, accepted_value: 0 }),
            Lap::This => Some(self.fields()),
            Lap::Later => None,
        }
    }
}

/// A ballot: a proposal number of a slot, and its proposer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ballot {
    pub slot: ViewId,
    /// The proposal number.
    #[serde(rename = "ballot")]
    pub number: u16,
    /// The proposer, from 1.
    pub proposer: u16,
}

/// The newest slots of an acceptor's ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The newest slot in which it accepted anything, and the ballot.
    pub accepted: Option<Ballot>,
    /// The slot after that one, if a proposer has prepared it.
    pub prepared: Option<Ballot>,
}

impl Head {
    /// Summarises the words of a ring. `near` is any view that is at most [`LAG_MAX`] behind the
    /// newest; `proposers` is the maximum number of proposers, which is the stride of proposal
    /// numbers.
    pub fn of(ring: &[u64], near: ViewId, proposers: u32) -> Self {
        let touched = |raw: &u64| Some((SlotWord(*raw).slot(near)?, SlotWord(*raw).fields()));
        let accepted = ring.iter().filter_map(touched).filter(|(_, state)| state.accepted_proposal > 0);
        let accepted = accepted.max_by_key(|(slot, _)| *slot).map(|(slot, state)| Ballot {
            slot,
            number: state.accepted_proposal,
            proposer: state.accepted_value,
        });
        let newest = ring.iter().filter_map(touched).max_by_key(|(slot, _)| *slot);
        let beyond = newest.filter(|(slot, _)| accepted.is_none_or(|accepted| *slot > accepted.slot));
        let prepared = beyond.map(|(slot, state)| Ballot {
            slot,
            number: state.min_proposal,
            proposer: ((u32::from(state.min_proposal) - 1) % proposers.max(1)) as u16 + 1,
        });
        Self { accepted, prepared }
    }
}

impl fmt::Display for SlotWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SlotState { min_proposal, accepted_proposal, accepted_value } = self.fields();
        write!(f, "{}|{min_proposal}|{accepted_proposal}|{accepted_value}", self.instance())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: SlotState = SlotState { min_proposal: 9, accepted_proposal: 2, accepted_value: 3 };

    #[test]
    fn a_slot_word_round_trips() {
        let word = SlotWord::new(ViewId(INSTANCES + 4464), STATE);
        assert_eq!(word.state(ViewId(INSTANCES + 4464)), Some(STATE));
        assert_eq!(word.to_string(), "4464|9|2|3");
        let most = SlotState { min_proposal: NUMBER_MAX, accepted_proposal: NUMBER_MAX, accepted_value: 15 };
        assert_eq!(SlotWord::new(ViewId(0), most).state(ViewId(0)), Some(most));
        assert_eq!(SlotWord::new(ViewId(u64::MAX), STATE).state(ViewId(u64::MAX)), Some(STATE));
    }

    #[test]
    fn a_word_is_of_an_earlier_lap_however_long_its_acceptor_was_away() {
        for newest in [INSTANCES - 1, INSTANCES, INSTANCES + 12_345, 5 * INSTANCES + 7] {
            let powers = (3..32).flat_map(|k| [(1 << k) - 1, 1 << k, (1 << k) + 1, 3 << (k - 1)]);
            for age in powers.chain([AGE_MAX - 1, AGE_MAX]).filter(|age| (1..=AGE_MAX).contains(age)) {
                let Some(old) = newest.checked_sub(age).filter(|old| *old > 0) else { continue };
                let word = SlotWord::new(ViewId(old), STATE);
                assert_eq!(word.lap(ViewId(newest)), Lap::Earlier, "{age} views old, at {newest}");
                assert_eq!(word.state(ViewId(newest)), Some(SlotState::default()));
                assert_eq!(word.slot(ViewId(newest)), Some(ViewId(old)));
            }
            for lag in (0..=30).map(|k| 1 << k).filter(|lag| *lag <= LAG_MAX) {
                let word = SlotWord::new(ViewId(newest + lag), STATE);
                assert_eq!(word.lap(ViewId(newest)), Lap::Later, "{lag} views ahead of {newest}");
                assert_eq!(word.state(ViewId(newest)), None);
            }
        }
    }

    #[test]
    fn a_rings_head_has_the_last_accepted_and_the_prepared_slot() {
        let ballot = |slot, number, proposer| Ballot { slot: ViewId(slot), number, proposer };
        let accepted = |slot, n, by| {
            let state = SlotState { min_proposal: n, accepted_proposal: n, accepted_value: by };
            SlotWord::new(ViewId(slot), state).0
        };
        let promised =
            |slot, n| SlotWord::new(ViewId(slot), SlotState { min_proposal: n, ..SlotState::default() }).0;
        assert_eq!(Head::of(&[0; 4], ViewId(0), 7), Head::default());
        let end = INSTANCES;
        let ring =
            [accepted(end, 1, 1), promised(end + 1, 9), accepted(end - 2, 2, 2), accepted(end - 1, 1, 1)];
        let head = Head { accepted: Some(ballot(end, 1, 1)), prepared: Some(ballot(end + 1, 9, 2)) };
        for near in [end + 1 - LAG_MAX, end - 6, end, end + 4, end + (1 << 16)] {
            assert_eq!(Head::of(&ring, ViewId(near), 7), head);
        }
        // The next one is not prepared.
        assert_eq!(Head::of(&ring[2..], ViewId(end), 7).prepared, None);
        // A ring of the first views, read without knowing any.
        assert_eq!(Head::of(&[0, promised(1, 3)], ViewId(0), 7).prepared, Some(ballot(1, 3, 3)));
    }

    #[test]
    fn an_earlier_lap_reads_as_empty_and_a_later_one_as_gone() {
        let word = SlotWord::new(ViewId(70_000), STATE);
        assert_eq!(word.state(ViewId(70_008)), Some(SlotState::default()));
        assert_eq!(word.state(ViewId(69_992)), None);
        assert_eq!(SlotWord(0).state(ViewId(65_536)), Some(SlotState::default()));
    }
}
