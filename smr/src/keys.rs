//! Commands of Redis on the store, several in one entry of the log.
//!
//! ```text
//! command, query   4 (1 byte), time in ms since 1970 (8 bytes), commands:
//!                  number of arguments (1 byte), each: length (2 bytes), bytes
//! reply            commands that were executed (1 byte), each: length (2 bytes), reply in RESP2
//! ```
//!
//! Time is a part of the state: the latest time of an entry. The leader writes it into each batch that
//! it takes ([`stamp`]). Replicas that apply the batch read no clock, so all of them agree on what has
//! expired.

mod batch;
mod commands;
mod table;
#[cfg(test)]
mod tests;

pub use batch::Batch;
pub(crate) use batch::{BATCH, stamp, stamped};

use batch::{Replies, decode};
use commands::Command;
use std::collections::BTreeSet;
use table::Table;

/// What a command of Redis needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The state.
    Read,
    /// An entry of the log.
    Write,
}

/// What a command does; `None` if the store does not have it. Its name may be in any case.
pub fn access(name: &[u8]) -> Option<Access> {
    Command::of(name).map(Command::access)
}

/// A value, and when it expires; 0 for never.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Stored {
    value: Box<[u8]>,
    until: u64,
}

impl Stored {
    /// Replaces the value, in its place if it has the same length.
    fn replace(&mut self, value: &[u8]) {
        if self.value.len() == value.len() {
            self.value.copy_from_slice(value);
        } else {
            self.value = value.into();
        }
    }
}

/// Keys and values in memory, at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Keys {
    stored: Table<Stored>,
    /// What expires, the first one first.
    deadlines: BTreeSet<(u64, Box<[u8]>)>,
    /// In ms since 1970. Nothing in the state has expired by then.
    now: u64,
}

impl Keys {
    pub(crate) fn len(&self) -> usize {
        self.stored.len()
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.stored.get(key).map(|stored| &stored.value[..])
    }

    pub(crate) fn set(&mut self, key: &[u8], value: &[u8], until: u64) {
        let before = match self.stored.get_mut(key) {
            Some(stored) => {
                stored.replace(value);
                core::mem::replace(&mut stored.until, until)
            }
            None => {
                self.stored.insert(key, Stored { value: value.into(), until });
                0
            }
        };
        if before != 0 {
            self.deadlines.remove(&(before, key.into()));
        }
        if until != 0 {
            self.deadlines.insert((until, key.into()));
        }
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        let Some(before) = self.stored.remove(key) else { return false };
        if before.until != 0 {
            self.deadlines.remove(&(before.until, key.into()));
        }
        true
    }

    /// The latest time of an entry.
    pub(crate) const fn time(&self) -> u64 {
        self.now
    }

    fn until(&self, key: &[u8]) -> Option<u64> {
        self.stored.get(key).map(|stored| stored.until)
    }

    /// Time passes, but never backwards: what has expired is removed.
    fn advance(&mut self, to: u64) {
        self.now = self.now.max(to);
        while let Some((until, key)) = self.deadlines.first().filter(|(until, _)| *until <= self.now) {
            let at = (*until, key.clone());
            self.deadlines.remove(&at);
            self.stored.remove(&at.1);
        }
    }

    /// Executes a batch that is an entry of the log.
    pub(crate) fn apply(&mut self, batch: &[u8], reply: &mut Vec<u8>) {
        let Some((at, mut commands)) = decode(batch) else { return reply.push(0) };
        self.advance(at);
        let (mut outcome, mut args) = (Replies::new(reply), Vec::new());
        while commands.next(&mut args) {
            let command = args.first().and_then(|name| Command::of(name));
            let has_room = outcome.has_room(self.reply_bytes(command, &args));
            if !has_room || !outcome.take(|out| self.execute(command, &args, out)) {
                break;
            }
        }
    }

    /// Executes a batch of commands that only read. It ends before a command whose result depends on
    /// time that has not passed in the log.
    pub(crate) fn read(&self, batch: &[u8], reply: &mut Vec<u8>) {
        let Some((at, mut commands)) = decode(batch) else { return reply.push(0) };
        let has_passed = self.deadlines.first().is_none_or(|(until, _)| *until > at);
        let (mut outcome, mut args) = (Replies::new(reply), Vec::new());
        while has_passed && commands.next(&mut args) {
            let command = args.first().and_then(|name| Command::of(name));
            let read = command.filter(|command| command.access() == Access::Read);
            let Some(read) = read.filter(|_| outcome.has_room(self.reply_bytes(command, &args))) else {
                break;
            };
            if !outcome.take(|out| self.query(at.max(self.now), read, &args, out)) {
                break;
            }
        }
    }

    pub(crate) fn save(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.now.to_le_bytes());
        for (key, Stored { value, until }) in self.stored.iter() {
            to.extend_from_slice(&(key.len() as u32).to_le_bytes());
            to.extend_from_slice(&(value.len() as u32).to_le_bytes());
            to.extend_from_slice(&until.to_le_bytes());
            to.extend_from_slice(key);
            to.extend_from_slice(value);
        }
    }

    /// `None` if the bytes are no saved state.
    pub(crate) fn load(from: &[u8]) -> Option<Self> {
        let (now, mut from) = from.split_first_chunk::<8>()?;
        let mut keys = Self { now: u64::from_le_bytes(*now), ..Self::default() };
        while !from.is_empty() {
            let (key, rest) = from.split_first_chunk::<4>()?;
            let (value, rest) = rest.split_first_chunk::<4>()?;
            let (until, rest) = rest.split_first_chunk::<8>()?;
            let (key, rest) = rest.split_at_checked(u32::from_le_bytes(*key) as usize)?;
            let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*value) as usize)?;
            keys.set(key, value, u64::from_le_bytes(*until));
            from = rest;
        }
        Some(keys)
    }
}
