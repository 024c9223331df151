//! How a machine labels its posts: the part that posted, the peer, and the round. Completions of
//! earlier rounds are recognised by their number and dropped.

use obol_fabric::{Completion, LinkError, Token};
use strum::FromRepr;

/// The part of a machine that posted an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromRepr)]
#[repr(u8)]
pub enum Part {
    /// The CAS engine's compare-and-swaps.
    EngineCas = 1,
    /// The CAS engine's WRITEs of a value.
    EngineWrite = 2,
    /// The CAS engine's READ of a value that it adopts.
    EngineRead = 3,
    /// Slot words read for a renewal or a poll.
    PollWord = 4,
    /// A value read by a poll.
    PollValue = 5,
    /// A coordinator's newest view read by a poll.
    PollView = 6,
    Fence = 7,
    /// A detector's probe; see `detectors`. The numbers up to 39 belong to further detectors.
    Probe = 8,
    /// A leader's READ of a newcomer.
    Newcomer = 40,
    /// A member's READ of a newcomer, for the leader.
    Reach = 41,
}

/// The number of detectors that tokens can distinguish.
const DETECTORS_MAX: u8 = 32;

const _: () = assert!(Part::Probe as u8 + DETECTORS_MAX <= Part::Newcomer as u8);

/// Packs part, peer and round into a token.
pub const fn pack(part: Part, peer: u16, round: u32) -> Token {
    Token((part as u64) << 56 | (peer as u64) << 32 | round as u64)
}

/// As [`pack`], for a probe of the detector with this index in the registry.
pub(crate) const fn pack_probe(detector: u8, peer: u16, round: u32) -> Token {
    assert!(detector < DETECTORS_MAX);
    Token(((Part::Probe as u8 + detector) as u64) << 56 | (peer as u64) << 32 | round as u64)
}

/// The registry index of the detector whose probe this is.
pub(crate) const fn detector(token: Token) -> Option<u8> {
    let detector = ((token.0 >> 56) as u8).checked_sub(Part::Probe as u8);
    match detector {
        Some(detector) if detector < DETECTORS_MAX => Some(detector),
        _ => None,
    }
}

/// The reverse of [`pack`] and `pack_probe`; `None` for a foreign token.
pub fn unpack(token: Token) -> Option<(Part, u16, u32)> {
    let part = match detector(token) {
        Some(_) => Part::Probe,
        None => Part::from_repr((token.0 >> 56) as u8)?,
    };
    Some((part, (token.0 >> 32) as u16, token.0 as u32))
}

/// A completion with the label of its post.
#[derive(Clone, Copy, Debug)]
pub struct Labelled<'a> {
    /// The part that posted.
    pub part: Part,
    pub peer: u16,
    /// The round of the post.
    pub round: u32,
    /// What came of it.
    pub result: Result<Completion<'a>, LinkError>,
}

impl<'a> Labelled<'a> {
    /// `None` for a foreign token.
    pub fn new(token: Token, result: Result<Completion<'a>, LinkError>) -> Option<Self> {
        unpack(token).map(|(part, peer, round)| Self { part, peer, round, result })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_round_trips() {
        for part in (0..=u8::MAX).filter_map(Part::from_repr) {
            assert_eq!(unpack(pack(part, 4095, u32::MAX)), Some((part, 4095, u32::MAX)));
        }
        let probe = pack_probe(DETECTORS_MAX - 1, 4095, u32::MAX);
        assert_eq!(
            (detector(probe), unpack(probe)),
            (Some(DETECTORS_MAX - 1), Some((Part::Probe, 4095, u32::MAX)))
        );
        assert_eq!(unpack(Token(0)), None);
        assert_eq!(unpack(Token(u64::MAX)), None);
    }
}
