//! How a machine names what it posts: which part of it asked, at which peer, in which round. A
//! completion of a round that is over is told by its number and dropped.

use obol_fabric::Token;

/// The part of a machine that posted an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Fences.
    Fence = 7,
    /// Heartbeats.
    Heartbeat = 8,
    /// Silent members, to see whether the link to them is down.
    Link = 9,
}

impl Part {
    const ALL: [Self; 9] = [
        Self::EngineCas,
        Self::EngineWrite,
        Self::EngineRead,
        Self::PollWord,
        Self::PollValue,
        Self::PollView,
        Self::Fence,
        Self::Heartbeat,
        Self::Link,
    ];
}

/// Packs part, peer and round into a token.
#[must_use]
pub const fn pack(part: Part, peer: u16, round: u32) -> Token {
    Token((part as u64) << 56 | (peer as u64) << 32 | round as u64)
}

/// The reverse of [`pack`]; `None` for a token that this crate never made.
#[must_use]
pub fn unpack(token: Token) -> Option<(Part, u16, u32)> {
    let part = *Part::ALL.get(((token.0 >> 56) as usize).wrapping_sub(1))?;
    Some((part, (token.0 >> 32) as u16, token.0 as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_back_as_it_went_out() {
        for part in Part::ALL {
            assert_eq!(unpack(pack(part, 4095, u32::MAX)), Some((part, 4095, u32::MAX)));
        }
        assert_eq!(unpack(Token(0)), None);
        assert_eq!(unpack(Token(u64::MAX)), None);
    }
}
