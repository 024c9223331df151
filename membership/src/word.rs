//! A slot's word: the whole state of one acceptor in one instance of Paxos, small enough for one CAS.

use core::fmt;
use obol_fabric::ViewId;

/// `instance:16 | min_proposal:16 | accepted_proposal:16 | accepted_value:16`, from the high bits down.
///
/// Proposal numbers start at 1, so zero means none. `accepted_value` is the number of the proposer whose value area
/// holds the view (uKharon 5.3.1). `instance` is the low half of the slot's view id: the ring's words are recycled, and
/// a word of an earlier lap reads as empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Word(pub u64);

/// How a word relates to the slot that a reader means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lap {
    /// Of an earlier slot of the ring: this slot is untouched.
    Earlier,
    /// Of this slot.
    This,
    /// Of a later slot: this one was decided long ago and its place recycled.
    Later,
}

/// What an acceptor says about one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// Promised: no lower proposal may be accepted any more.
    pub min_proposal: u16,
    /// Number of the accepted proposal, 0 if none.
    pub accepted_proposal: u16,
    /// Whose value area holds the accepted value.
    pub accepted_value: u16,
}

impl Word {
    /// The word of a slot in a state.
    #[must_use]
    pub const fn new(slot: ViewId, state: State) -> Self {
        Self(
            (slot.0 & 0xffff) << 48
                | (state.min_proposal as u64) << 32
                | (state.accepted_proposal as u64) << 16
                | state.accepted_value as u64,
        )
    }

    /// Whether this is a word of `slot`, of an earlier or a later lap.
    ///
    /// Instances are compared as serial numbers: right as long as nobody lags by 2^15 views, which
    /// `Timing::resync_after` prevents. An all-zero word has never been touched.
    #[must_use]
    pub const fn lap(self, slot: ViewId) -> Lap {
        if self.0 == 0 {
            return Lap::Earlier;
        }
        let ahead = ((self.0 >> 48) as u16).wrapping_sub(slot.0 as u16);
        match ahead {
            0 if self.raw().min_proposal == 0 => Lap::Earlier,
            0 => Lap::This,
            1..0x8000 => Lap::Later,
            _ => Lap::Earlier,
        }
    }

    const fn raw(self) -> State {
        State {
            min_proposal: (self.0 >> 32) as u16,
            accepted_proposal: (self.0 >> 16) as u16,
            accepted_value: self.0 as u16,
        }
    }

    /// The acceptor's state for `slot`: empty if the word is of an earlier lap, `None` if it is of a later one.
    #[must_use]
    pub const fn state(self, slot: ViewId) -> Option<State> {
        match self.lap(slot) {
            Lap::Earlier => Some(State { min_proposal: 0, accepted_proposal: 0, accepted_value: 0 }),
            Lap::This => Some(self.raw()),
            Lap::Later => None,
        }
    }
}

/// A ballot: a proposal number of a slot, and the proposer that it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ballot {
    /// The slot.
    pub slot: ViewId,
    /// The proposal number.
    pub number: u16,
    /// The proposer, from 1.
    pub proposer: u16,
}

/// What an acceptor's ring says of its newest slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The newest slot in which it accepted anything, and under which ballot.
    pub accepted: Option<Ballot>,
    /// The slot beyond that which somebody has prepared.
    pub prepared: Option<Ballot>,
}

impl Head {
    /// What the words of a ring say. `near` is any view less than 2^15 from the newest; `proposers` is how many a cluster
    /// can have, in whose steps each of them counts its proposals.
    #[must_use]
    pub fn of(ring: &[u64], near: ViewId, proposers: u32) -> Self {
        let touched = |raw: &u64| {
            let ahead = ((raw >> 48) as u16).wrapping_sub(near.0 as u16) as i16;
            let slot = ViewId(near.0.checked_add_signed(i64::from(ahead))?);
            let state = Word(*raw).raw();
            (state.min_proposal > 0).then_some((slot, state))
        };
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

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State { min_proposal, accepted_proposal, accepted_value } = self.raw();
        write!(f, "{}|{min_proposal}|{accepted_proposal}|{accepted_value}", self.0 >> 48)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: State = State { min_proposal: 9, accepted_proposal: 2, accepted_value: 3 };

    #[test]
    fn a_word_gives_back_its_state() {
        let word = Word::new(ViewId(70_000), STATE);
        assert_eq!(word.state(ViewId(70_000)), Some(STATE));
        assert_eq!(word.to_string(), "4464|9|2|3");
    }

    #[test]
    fn a_ring_tells_what_was_accepted_last_and_which_slot_is_prepared() {
        let ballot = |slot, number, proposer| Ballot { slot: ViewId(slot), number, proposer };
        let accepted = |slot, n, by| {
            let state = State { min_proposal: n, accepted_proposal: n, accepted_value: by };
            Word::new(ViewId(slot), state).0
        };
        let promised = |slot, n| Word::new(ViewId(slot), State { min_proposal: n, ..State::default() }).0;
        assert_eq!(Head::of(&[0; 4], ViewId(0), 7), Head::default());
        let ring =
            [accepted(65_536, 1, 1), promised(65_537, 9), accepted(65_534, 2, 2), accepted(65_535, 1, 1)];
        let head = Head { accepted: Some(ballot(65_536, 1, 1)), prepared: Some(ballot(65_537, 9, 2)) };
        for near in [65_530, 65_536, 65_540] {
            assert_eq!(Head::of(&ring, ViewId(near), 7), head);
        }
        // Nobody has prepared the next one.
        assert_eq!(Head::of(&ring[2..], ViewId(65_536), 7).prepared, None);
        // A ring of the first views, read by somebody who knows none.
        assert_eq!(Head::of(&[0, promised(1, 3)], ViewId(0), 7).prepared, Some(ballot(1, 3, 3)));
    }

    #[test]
    fn an_earlier_lap_reads_as_empty_and_a_later_one_as_gone() {
        let word = Word::new(ViewId(70_000), STATE);
        assert_eq!(word.state(ViewId(70_008)), Some(State::default()));
        assert_eq!(word.state(ViewId(69_992)), None);
        assert_eq!(Word(0).state(ViewId(65_536)), Some(State::default()));
    }
}
