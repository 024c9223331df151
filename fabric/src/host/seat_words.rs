//! What a program in a seat and its owner tell each other.
//!
//! Requests are numbered, and an answer names the last request passed to the machine. So an answer
//! to an earlier request, including a refusal, never counts for a later one.
//!
//! ```text
//! request  kind:8 | sequence:16 << 8 | rings << 32
//! status   code:8 | sequence answered:16 << 8 | changes:8 << 24     a futex in its low half
//! ```

use crate::contract::SeatStatus;
use crate::types::Incarnation;

pub(super) const JOIN: u8 = 1;
pub(super) const LEAVE: u8 = 2;

pub(super) const MEMBER: u8 = 1;
pub(super) const EXCLUDED: u8 = 2;
pub(super) const LEFT: u8 = 3;
pub(super) const FULL: u8 = 4;
pub(super) const ON_HOLD: u8 = 5;
pub(super) const NAME_TAKEN: u8 = 6;

/// A program's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) kind: u8,
    pub(super) sequence: u16,
    /// Counts repetitions.
    pub(super) rings: u32,
}

impl Request {
    pub(super) const fn word(self) -> u64 {
        self.kind as u64 | (self.sequence as u64) << 8 | (self.rings as u64) << 32
    }

    pub(super) const fn of(word: u64) -> Self {
        Self { kind: word as u8, sequence: (word >> 8) as u16, rings: (word >> 32) as u32 }
    }
}

/// An owner's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) code: u8,
    /// The number of the last answered request.
    pub(super) sequence: u16,
    pub(super) changes: u8,
}

impl Answer {
    pub(super) const fn word(self) -> u32 {
        self.code as u32 | (self.sequence as u32) << 8 | (self.changes as u32) << 24
    }

    pub(super) const fn of(word: u32) -> Self {
        Self { code: word as u8, sequence: (word >> 8) as u16, changes: (word >> 24) as u8 }
    }

    /// Whether the last answer is that the view has no room.
    pub(super) const fn is_full(self) -> bool {
        self.code == FULL
    }

    /// Whether it says that the program has left, and answers the program's last request.
    pub(super) const fn is_left_since(self, request: Request) -> bool {
        self.code == LEFT && self.sequence == request.sequence
    }

    /// Whether the last answer is that its name failed too often.
    pub(super) const fn is_on_hold(self) -> bool {
        self.code == ON_HOLD
    }

    /// Whether the last answer is that another member has its name.
    pub(super) const fn is_name_taken(self) -> bool {
        self.code == NAME_TAKEN
    }

    /// The answer; `None` before the first.
    pub(super) const fn status(self, incarnation: Incarnation) -> Option<SeatStatus> {
        match self.code {
            MEMBER => Some(SeatStatus::Member(incarnation)),
            EXCLUDED => Some(SeatStatus::Excluded),
            LEFT => Some(SeatStatus::Left),
            _ => None,
        }
    }

    pub(super) const fn is_answered(self, request: Request) -> bool {
        request.kind == 0 || self.sequence == request.sequence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_names_the_request_that_it_answers() {
        let request = Request { kind: JOIN, sequence: 7, rings: 3 };
        assert_eq!(Request::of(request.word()), request);
        let answer = Answer { code: MEMBER, sequence: 7, changes: 255 };
        assert_eq!(Answer::of(answer.word()), answer);
        assert!(answer.is_answered(request));
        assert!(!answer.is_answered(Request { sequence: 8, ..request }));
        assert_eq!(answer.status(Incarnation(5)), Some(SeatStatus::Member(Incarnation(5))));
        assert_eq!(Answer::of(0).status(Incarnation(5)), None);
    }
}
