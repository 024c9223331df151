//! Tokens of the operations that replicas and clients post.

use obol_fabric::{Completion, LinkError, Token};
use strum::FromRepr;

/// The wakeup datagram, distinct from all messages of the membership protocol.
pub(crate) const WAKEUP: &[u8] = &[0xcc];

/// What posted an operation; with an argument in the low half of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromRepr)]
#[repr(u8)]
pub(crate) enum Part {
    /// A WRITE of entries or of a head, to the peer that is the argument.
    Feed = 0xf1,
    /// A READ of a peer's ring before entries are sent to it.
    Survey = 0xf2,
    /// A READ of a voter's memory by a successor.
    Adopt = 0xf3,
    /// A READ of a snapshot's chunk.
    Chunk = 0xf4,
    /// A change of permissions.
    Permit = 0xf5,
    /// A READ whose only purpose is to establish the link.
    Link = 0xf6,
    /// Requests, answers, reports: repeated if lost.
    Send = 0xf7,
    /// A READ of another replica's header and counter, by [`crate::PullScore`].
    Pull = 0xf8,
    /// The same by a client that looks for the leader.
    Seek = 0xf9,
    /// A READ of a voter's term, by [`crate::Votes`].
    Terms = 0xfa,
    /// A READ of another replica's header, by [`crate::relatives`].
    Relatives = 0xfb,
}

pub(crate) const fn token(part: Part, argument: u32) -> Token {
    Token((part as u64) << 56 | argument as u64)
}

/// What a READ has brought.
pub(crate) const fn bytes_of(result: Result<Completion<'_>, LinkError>) -> Result<&[u8], LinkError> {
    match result {
        Ok(Completion::Read(bytes)) => Ok(bytes),
        Ok(_) => Err(LinkError::OutOfBounds),
        Err(error) => Err(error),
    }
}

/// The reverse of [`token`]; `None` for tokens of the membership protocol.
pub(crate) fn part_of(token: Token) -> Option<(Part, u32)> {
    Some((Part::from_repr((token.0 >> 56) as u8)?, token.0 as u32))
}
