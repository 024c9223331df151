//! Long commands as their sender handles them; see [`staging`](super::staging).

use super::batch::Batch;
use super::staging::{
    DROP, GONE, LARGE, MALFORMED, READ, RUN, SHORT_BYTES_MAX, STAGE, STAGED_ARGS_MAX, STAGED_BYTES_MAX,
};
use crate::limits::PAYLOAD_BYTES_MAX;

/// Bytes of a piece: its batch has room for the name, two numbers, and the lengths of four arguments.
const PIECE_BYTES_MAX: usize = PAYLOAD_BYTES_MAX - 9 - 1 - 4 * 2 - STAGE.len() - 2 * 8;
/// A command that is longer than an entry, or whose reply is, as its sender handles it: the
/// commands for its pieces, and what the replies to them mean.
#[derive(Clone, Debug)]
pub struct Long {
    id: u64,
    bytes: Vec<u8>,
}

/// What a long command has replied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongReply<'a> {
    Short(&'a [u8]),
    /// It has these bytes, which are to be read.
    Kept(usize),
}

impl Long {
    /// A command with these arguments; `None` if it is longer than [`STAGED_BYTES_MAX`], or has more than
    /// [`STAGED_ARGS_MAX`] arguments. `id`: by chance, so that no other one has it.
    pub fn new<'a>(id: u64, args: impl ExactSizeIterator<Item = &'a [u8]> + Clone) -> Option<Self> {
        let len = 4 + args.clone().map(|arg| 4 + arg.len()).sum::<usize>();
        if len > STAGED_BYTES_MAX || args.len() > STAGED_ARGS_MAX {
            return None;
        }
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(&(args.len() as u32).to_le_bytes());
        for arg in args {
            bytes.extend_from_slice(&(arg.len() as u32).to_le_bytes());
            bytes.extend_from_slice(arg);
        }
        Some(Self { id, bytes })
    }

    /// Gives it another id, to send it again.
    pub const fn rename(&mut self, id: u64) {
        self.id = id;
    }

    /// How many pieces it has.
    pub const fn pieces(&self) -> usize {
        self.bytes.len().div_ceil(PIECE_BYTES_MAX)
    }

    /// The entry for a piece, counted from 0.
    pub fn piece(&self, n: usize) -> Batch {
        let at = n * PIECE_BYTES_MAX;
        let end = self.bytes.len().min(at + PIECE_BYTES_MAX);
        let piece = self.bytes.get(at..end).unwrap_or_default();
        batch(&[STAGE, &self.id.to_le_bytes(), &(at as u64).to_le_bytes(), piece])
    }

    /// The entry that executes it.
    pub fn run(&self) -> Batch {
        batch(&[RUN, &self.id.to_le_bytes()])
    }

    /// The query for a part of a reply that is kept, counted from 0.
    pub fn read(&self, n: usize) -> Batch {
        batch(&[READ, &self.id.to_le_bytes(), &((n * SHORT_BYTES_MAX) as u64).to_le_bytes()])
    }

    /// How many parts a reply has.
    pub const fn parts(len: usize) -> usize {
        len.div_ceil(SHORT_BYTES_MAX)
    }

    /// The bytes of a part of a reply: from, and how many.
    pub fn part(len: usize, n: usize) -> (usize, usize) {
        let at = n * SHORT_BYTES_MAX;
        (at, len.saturating_sub(at).min(SHORT_BYTES_MAX))
    }

    /// The entry that forgets it.
    pub fn forget(&self) -> Batch {
        batch(&[DROP, &self.id.to_le_bytes()])
    }

    /// What the reply to [`Long::run`] means.
    pub fn reply(reply: &[u8]) -> LongReply<'_> {
        let kept = reply.strip_prefix(&[0]).and_then(|len| len.try_into().ok()).map(u64::from_le_bytes);
        match kept.and_then(|len| usize::try_from(len).ok()).filter(|len| *len <= STAGED_BYTES_MAX) {
            Some(len) => LongReply::Kept(len),
            None => LongReply::Short(reply),
        }
    }

    /// Whether this reply to a piece says that the store has not what precedes it.
    pub fn is_misplaced(reply: &[u8]) -> bool {
        let why = reply.strip_prefix(b"-").unwrap_or_default();
        [MALFORMED, GONE].iter().any(|misplaced| why.starts_with(misplaced.as_bytes()))
    }

    /// Whether this reply says that a command was not executed because its reply would be too long: it can be
    /// sent as a long one.
    pub fn is_needed(reply: &[u8]) -> bool {
        reply.strip_prefix(b"-").is_some_and(|why| why.starts_with(LARGE.as_bytes()))
    }
}

fn batch(args: &[&[u8]]) -> Batch {
    let mut batch = Batch::default();
    let is_added = batch.push(args);
    assert!(is_added, "a batch has room for a piece");
    batch
}
