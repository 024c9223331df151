//! Several commands in one entry of the log, and their replies.

use super::commands::Refusal;
use super::staging::LARGE;
use crate::limits::PAYLOAD_BYTES_MAX;

/// The first byte of such a command.
pub(crate) const BATCH: u8 = 4;
/// The same from a leader whose memory is full: commands that may need more are refused.
pub(crate) const BATCH_IF_FULL: u8 = 5;
/// The name of the command that a transaction is.
const EXEC: &[u8] = b"EXEC";
/// Bytes before the first command.
const HEAD_BYTES: usize = 9;

/// Builds a batch.
#[derive(Clone, Debug)]
pub struct Batch {
    bytes: Vec<u8>,
    count: u8,
}

impl Default for Batch {
    /// An empty one, without a time: the leader gives it one.
    fn default() -> Self {
        Self { bytes: [&[BATCH][..], &[0; 8]].concat(), count: 0 }
    }
}

impl Batch {
    #[cfg(test)]
    pub(super) fn new(at_ms: u64) -> Self {
        let mut batch = Self::default();
        stamp(&mut batch.bytes, at_ms);
        batch
    }

    /// Adds a command; false if there is no room for it.
    pub fn push(&mut self, args: &[impl AsRef<[u8]>]) -> bool {
        self.push_each(args.iter().map(AsRef::as_ref))
    }

    /// The same, from wherever the arguments are.
    pub fn push_each<'a>(&mut self, args: impl ExactSizeIterator<Item = &'a [u8]> + Clone) -> bool {
        let is_added = self.count < u8::MAX && put_command(args, PAYLOAD_BYTES_MAX, &mut self.bytes);
        self.count += u8::from(is_added);
        is_added
    }

    /// The number of commands.
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes that are left for commands.
    pub const fn room(&self) -> usize {
        PAYLOAD_BYTES_MAX - self.bytes.len()
    }

    /// Whether more than half of the room is used.
    pub const fn is_half_full(&self) -> bool {
        self.bytes.len() > PAYLOAD_BYTES_MAX / 2
    }

    /// As the payload of a command or query.
    pub fn bytes(self) -> Box<[u8]> {
        self.bytes.into()
    }

    /// The replies to the commands that were executed, which may be fewer than were sent.
    pub fn replies(reply: &[u8]) -> Option<Vec<&[u8]>> {
        let (&count, mut rest) = reply.split_first()?;
        let mut replies = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let (len, after) = rest.split_first_chunk::<2>()?;
            let (one, after) = after.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
            replies.push(one);
            rest = after;
        }
        Some(replies)
    }
}

/// Commands that take effect as one, between MULTI and EXEC. They travel as the arguments of one command.
#[derive(Clone, Debug)]
pub struct Transaction {
    args: Vec<Vec<u8>>,
    bytes: usize,
}

impl Default for Transaction {
    /// Without commands.
    fn default() -> Self {
        Self { args: vec![EXEC.to_vec()], bytes: HEAD_BYTES + 1 + 2 + EXEC.len() }
    }
}

impl Transaction {
    /// Adds a command; false if there is no room for it.
    pub fn push<'a>(&mut self, args: impl ExactSizeIterator<Item = &'a [u8]> + Clone) -> bool {
        let mut command = Vec::new();
        let room = PAYLOAD_BYTES_MAX.saturating_sub(self.bytes + 2);
        if self.args.len() >= usize::from(u8::MAX) || !put_command(args, room, &mut command) {
            return false;
        }
        self.bytes += 2 + command.len();
        self.args.push(command);
        true
    }

    /// Whether it has no command.
    pub const fn is_empty(&self) -> bool {
        self.args.len() == 1
    }

    /// As the arguments of one command, for which a batch without others has room.
    pub fn args(&self) -> &[Vec<u8>] {
        &self.args
    }
}

/// Writes the time of a batch.
pub(crate) fn stamp(batch: &mut [u8], at_ms: u64) {
    if let Some([BATCH | BATCH_IF_FULL, time @ ..]) = batch.first_chunk_mut::<HEAD_BYTES>() {
        *time = at_ms.to_le_bytes();
    }
}

/// The time of a batch.
pub(crate) fn stamped(batch: &[u8]) -> Option<u64> {
    match batch.first_chunk::<HEAD_BYTES>() {
        Some([BATCH | BATCH_IF_FULL, time @ ..]) => Some(u64::from_le_bytes(*time)),
        _ => None,
    }
}

/// The commands of a batch that was checked, one after the other.
pub(super) struct Commands<'a>(&'a [u8]);

impl<'a> Commands<'a> {
    /// The command that is an argument of a transaction.
    pub(super) const fn of_transaction(arg: &'a [u8]) -> Self {
        Self(arg)
    }

    /// Puts the arguments of the next command into a vector, instead of what it has. False if there is
    /// none.
    pub(super) fn next(&mut self, args: &mut Vec<&'a [u8]>) -> bool {
        args.clear();
        let rest = split_command(self.0, |arg| args.push(arg));
        self.0 = rest.unwrap_or_default();
        rest.is_some()
    }
}

/// Appends a command, unless there are more than `bytes_max` bytes then; whether it did.
fn put_command<'a>(
    args: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    bytes_max: usize,
    out: &mut Vec<u8>,
) -> bool {
    let len = 1 + args.clone().map(|arg| 2 + arg.len()).sum::<usize>();
    let (Ok(count), true) = (u8::try_from(args.len()), out.len() + len <= bytes_max) else { return false };
    out.push(count);
    for arg in args {
        out.extend_from_slice(&(arg.len() as u16).to_le_bytes());
        out.extend_from_slice(arg);
    }
    true
}

/// Splits off the first command, and calls a function with each of its arguments; returns the rest.
fn split_command<'a>(bytes: &'a [u8], mut each: impl FnMut(&'a [u8])) -> Option<&'a [u8]> {
    let (&count, mut rest) = bytes.split_first()?;
    for _ in 0..count {
        let (len, after) = rest.split_first_chunk::<2>()?;
        let (arg, after) = after.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
        each(arg);
        rest = after;
    }
    Some(rest)
}

/// The time and the commands of a batch; `None` if one of them is cut off.
pub(super) fn decode(batch: &[u8]) -> Option<(u64, Commands<'_>)> {
    let (head, commands) = batch.split_first_chunk::<HEAD_BYTES>()?;
    let at = u64::from_le_bytes(*head[1..].first_chunk::<8>()?);
    let mut rest = commands;
    while !rest.is_empty() {
        rest = split_command(rest, |_| {})?;
    }
    Some((at, Commands(commands)))
}

/// The replies to a batch.
pub(super) struct Replies<'a> {
    out: &'a mut Vec<u8>,
    /// Where they begin.
    at: usize,
}

impl<'a> Replies<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        let at = out.len();
        out.push(0);
        Self { out, at }
    }

    /// Whether there is none yet.
    pub(super) fn is_empty(&self) -> bool {
        self.out[self.at] == 0
    }

    /// Whether another one of this length fits. A first one that does not is an error, by which the sender
    /// knows that it has to stage the command.
    pub(super) fn has_room(&mut self, len: usize) -> bool {
        let fits = self.out.len() - self.at + 2 + len <= PAYLOAD_BYTES_MAX;
        if !fits && self.is_empty() {
            let why = format!("{LARGE} the reply has more than {PAYLOAD_BYTES_MAX} bytes");
            self.take(|_| Err(why));
        }
        fits
    }

    /// Executes one; false if no more can be counted.
    pub(super) fn take(&mut self, execute: impl FnOnce(&mut Vec<u8>) -> Result<(), Refusal>) -> bool {
        let at = self.out.len();
        self.out.extend_from_slice(&[0; 2]);
        if let Err(why) = execute(self.out) {
            self.out.truncate(at + 2);
            self.out.extend_from_slice(format!("-{why}\r\n").as_bytes());
        }
        let len = (self.out.len() - at - 2) as u16;
        self.out[at..at + 2].copy_from_slice(&len.to_le_bytes());
        self.out[self.at] += 1;
        self.out[self.at] < u8::MAX
    }
}
