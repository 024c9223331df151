//! Tokens of the operations that the service posts, and the datagram that wakes a party.

use obol_fabric::Token;
use strum::FromRepr;

/// The wakeup datagram, distinct from all messages of the membership protocol.
pub(crate) const WAKEUP: &[u8] = &[0xcb];

/// What posted an operation of the service; with an argument in the low half of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromRepr)]
#[repr(u8)]
pub(crate) enum Part {
    /// A WRITE of a record to the backup.
    Record = 0xf4,
    /// A READ of own memory, which makes earlier WRITEs visible.
    Drain = 0xf5,
    /// A READ whose only purpose is to establish the link.
    Link = 0xf6,
    /// Requests, answers, reports: repeated if lost.
    Send = 0xf7,
    /// A WRITE by which this server, which has no state, yields.
    Yield = 0xf8,
}

pub(crate) const fn token(part: Part, argument: u32) -> Token {
    Token((part as u64) << 56 | argument as u64)
}

/// The reverse of [`token`]; `None` for tokens of the membership protocol.
pub(crate) fn part_of(token: Token) -> Option<(Part, u32)> {
    Some((Part::from_repr((token.0 >> 56) as u8)?, token.0 as u32))
}
