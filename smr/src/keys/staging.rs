//! Commands and replies that are longer than an entry.
//!
//! ```text
//! \0STAGE id at bytes     appends a piece to a staged command; `at`: how many bytes it has before
//! \0RUN id                executes the staged command; replies with its reply, or, if that is long,
//!                         with 0 (1 byte) and its length (8 bytes), and keeps it
//! \0READ id at            some bytes of a reply that was kept, from `at` on
//! \0DROP id               forgets it
//!
//! staged command          number of arguments (4 bytes), each: length (4 bytes), bytes
//! ```
//!
//! The front sends these; clients of Redis cannot. Numbers are little-endian words of 8 bytes. An
//! id is chosen at random. What is staged is a part of the state, so that all replicas execute the
//! same command, but no key: FLUSHALL leaves it. It is dropped when nothing was added or read by an
//! entry for [`KEPT_MS`], because its front may have died.

use crate::limits::PAYLOAD_BYTES_MAX;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of the longest value.
pub(super) const VALUE_BYTES_MAX: usize = 1 << 20;
/// Bytes of the longest staged command, and of the longest reply: of one value with its key, or of
/// many short ones.
pub const STAGED_BYTES_MAX: usize = VALUE_BYTES_MAX + (128 << 10);
/// Arguments of a staged command.
pub const STAGED_ARGS_MAX: usize = 1024;
/// Commands and replies that are staged at once. Each front has two; those of a front that died are
/// dropped after [`KEPT_MS`].
const STAGED_MAX: usize = 64;
/// How long it is kept, in ms of the log's time.
const KEPT_MS: u64 = 60_000;

pub(super) const STAGE: &[u8] = b"\0STAGE";
pub(super) const RUN: &[u8] = b"\0RUN";
pub(super) const READ: &[u8] = b"\0READ";
pub(super) const DROP: &[u8] = b"\0DROP";

/// How the error begins that answers a command whose reply is longer than an entry has room for. It
/// was not executed, and can be staged.
pub(super) const LARGE: &str = "LARGE";

/// Bytes of a reply that a batch has room for.
pub(super) const SHORT_BYTES_MAX: usize = PAYLOAD_BYTES_MAX - 3;

/// A command that is being staged, or its reply.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Staged {
    /// Shared with a save that is under way.
    bytes: Arc<Vec<u8>>,
    is_reply: bool,
    until: u64,
}

/// All of them, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Staging(BTreeMap<u64, Staged>);

impl Staging {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends a piece.
    pub(super) fn stage(&mut self, now: u64, args: &[&[u8]]) -> Result<(), String> {
        let [id, at, piece] = args else { return Err(malformed()) };
        let (id, at) = (number(id)?, number(at)?);
        if at == 0 && self.0.len() >= STAGED_MAX && !self.0.contains_key(&id) {
            return Err("ERR too many long commands at once; send it again".to_owned());
        }
        if at == 0 {
            let new = Staged { bytes: Arc::default(), is_reply: false, until: 0 };
            self.0.entry(id).or_insert(new);
        }
        let staged = self.0.get_mut(&id).filter(|staged| !staged.is_reply).ok_or_else(gone)?;
        let fits = staged.bytes.len() as u64 == at && staged.bytes.len() + piece.len() <= STAGED_BYTES_MAX;
        if !fits {
            return Err(malformed());
        }
        Arc::make_mut(&mut staged.bytes).extend_from_slice(piece);
        staged.until = now.saturating_add(KEPT_MS);
        Ok(())
    }

    /// Takes a command out, to execute it.
    pub(super) fn take(&mut self, args: &[&[u8]]) -> Result<(u64, Arc<Vec<u8>>), String> {
        let [id] = args else { return Err(malformed()) };
        let id = number(id)?;
        if self.0.get(&id).is_none_or(|staged| staged.is_reply) {
            return Err(gone());
        }
        self.0.remove(&id).map(|staged| (id, staged.bytes)).ok_or_else(gone)
    }

    /// Keeps the reply to a command that was staged.
    pub(super) fn keep(&mut self, now: u64, id: u64, reply: Vec<u8>) {
        let until = now.saturating_add(KEPT_MS);
        self.0.insert(id, Staged { bytes: Arc::new(reply), is_reply: true, until });
    }

    /// Some bytes of a reply that is kept.
    pub(super) fn read(&self, args: &[&[u8]]) -> Result<&[u8], String> {
        let [id, at] = args else { return Err(malformed()) };
        let (id, at) = (number(id)?, number(at)?);
        let kept = self.0.get(&id).filter(|staged| staged.is_reply).ok_or_else(gone)?;
        let rest = usize::try_from(at).ok().and_then(|at| kept.bytes.get(at..)).ok_or_else(malformed)?;
        Ok(&rest[..rest.len().min(SHORT_BYTES_MAX)])
    }

    pub(super) fn forget(&mut self, args: &[&[u8]]) -> Result<(), String> {
        let [id] = args else { return Err(malformed()) };
        self.0.remove(&number(id)?);
        Ok(())
    }

    /// Drops one that was kept for too long, if there is one: one at a time, since a megabyte takes a while
    /// to be given back.
    pub(super) fn expire(&mut self, now: u64) {
        let id = self.0.iter().find(|(_, staged)| staged.until <= now).map(|(id, _)| *id);
        if let Some(id) = id {
            self.0.remove(&id);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Staged)> {
        self.0.iter().map(|(id, staged)| (*id, staged))
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.values().map(|staged| staged.bytes.len() as u64).sum()
    }

    /// Bytes that [`save`] writes of all.
    pub(super) fn saved_bytes(&self) -> u64 {
        self.bytes() + (SAVED_HEAD_BYTES * self.0.len()) as u64
    }

    /// Takes all of others that are only dropped.
    pub(super) fn append(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
    }

    /// Takes one out, if there is any.
    pub(super) fn pop(&mut self) -> Option<(u64, Staged)> {
        self.0.pop_first()
    }
}

/// The length of the key of what is saved here, which no key has.
const SAVED_MARK: u32 = u32::MAX;
const SAVED_HEAD_BYTES: usize = 4 + 4 + 8 + 8 + 1;

/// Appends one to a saved state: a mark where keys have their length, the number of bytes (4), until
/// when it is kept (8), its id (8), whether it is a reply (1), its bytes.
pub(super) fn save(id: u64, staged: &Staged, to: &mut Vec<u8>) {
    to.extend_from_slice(&SAVED_MARK.to_le_bytes());
    to.extend_from_slice(&(staged.bytes.len() as u32).to_le_bytes());
    to.extend_from_slice(&staged.until.to_le_bytes());
    to.extend_from_slice(&id.to_le_bytes());
    to.push(u8::from(staged.is_reply));
    to.extend_from_slice(&staged.bytes);
}

/// Whether a saved state goes on with what is staged, and not with a key.
pub(super) fn is_next(from: &[u8]) -> bool {
    from.starts_with(&SAVED_MARK.to_le_bytes())
}

/// Loads what [`save`] wrote; returns what follows. `None` if it is not whole.
pub(super) fn load<'a>(from: &'a [u8], to: &mut Staging) -> Option<&'a [u8]> {
    let (head, rest) = from.split_first_chunk::<SAVED_HEAD_BYTES>()?;
    let word = |at: usize| Some(u64::from_le_bytes(*head[at..].first_chunk::<8>()?));
    let len = u32::from_le_bytes(*head[4..].first_chunk::<4>()?) as usize;
    let (until, id, is_reply) = (word(8)?, word(16)?, head[24] != 0);
    let (bytes, rest) = rest.split_at_checked(len)?;
    to.0.insert(id, Staged { bytes: Arc::new(bytes.to_vec()), is_reply, until });
    Some(rest)
}

fn number(text: &[u8]) -> Result<u64, String> {
    text.try_into().map(u64::from_le_bytes).map_err(|_| malformed())
}

pub(super) const MALFORMED: &str = "ERR a piece of a long command does not follow the one before";
pub(super) const GONE: &str = "ERR the long command is not there any more";

fn malformed() -> String {
    MALFORMED.to_owned()
}

/// It was not executed, or has been, and its reply is lost.
fn gone() -> String {
    GONE.to_owned()
}

/// The arguments of a staged command; `None` if it is not whole.
pub(super) fn arguments(bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let (count, mut rest) = bytes.split_first_chunk::<4>()?;
    let count = u32::from_le_bytes(*count) as usize;
    if count > STAGED_ARGS_MAX {
        return None;
    }
    let mut args = Vec::with_capacity(count);
    for _ in 0..count {
        let (len, after) = rest.split_first_chunk::<4>()?;
        let (arg, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        args.push(arg);
        rest = after;
    }
    rest.is_empty().then_some(args)
}

/// Stands for a reply that is kept.
pub(super) fn put_mark(len: usize, out: &mut Vec<u8>) {
    out.push(0);
    out.extend_from_slice(&(len as u64).to_le_bytes());
}
