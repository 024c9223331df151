//! Commands of Redis on the store, several in one entry of the log.
//!
//! ```text
//! command, query   4, or 5 if the leader's memory is full (1 byte), time in ms (8 bytes), commands:
//!                  number of arguments (1 byte), each: length (2 bytes), bytes
//! reply            commands that were executed (1 byte), each: length (2 bytes), reply in RESP2
//! ```
//!
//! Time is a part of the state: the latest time of an entry. The leader writes it into each batch that
//! it takes ([`stamp`]). Replicas that apply the batch read no clock, so all of them agree on what has
//! expired.

mod batch;
mod commands;
mod long;
mod scan;
mod staging;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use batch::{BATCH, BATCH_IF_FULL, stamp, stamped};
pub use batch::{Batch, Transaction};
pub use long::{Long, LongReply};
pub use staging::{STAGED_ARGS_MAX, STAGED_BYTES_MAX};

use crate::service::sort_freed;
use batch::{Commands, Replies, decode};
use commands::{Command, Refusal};
use staging::Staging;
use std::collections::{BTreeMap, BTreeSet};
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
    Command::of(name).filter(|command| !command.is_staging()).map(Command::access)
}

/// Why a command cannot be part of a transaction, in the words of Redis; `None` if it can.
pub fn refused_in_transaction(args: &[&[u8]]) -> Option<String> {
    commands::refused_in_transaction(args)
}

/// The names of all commands of the store, with the arguments of each, and what it needs.
pub fn commands() -> impl Iterator<Item = (&'static str, &'static str, Access)> {
    commands::TABLE.iter().map(|(name, command, args)| (*name, *args, command.access()))
}

/// A command with a time from now instead of a time of day, if it has one; `unix_ms` returns the time of day.
pub fn from_now<'a>(
    args: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    unix_ms: impl FnOnce() -> u64,
) -> Option<Vec<Vec<u8>>> {
    commands::from_now(args, unix_ms)
}

/// A value, and when it expires; 0 for never.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Stored {
    value: Box<[u8]>,
    until: u64,
}

impl Stored {
    /// Whether it has not expired.
    const fn is_valid(&self, now: u64) -> bool {
        self.until == 0 || self.until > now
    }

    /// Replaces the value, in its place if it has the same length.
    fn replace(&mut self, value: &[u8]) {
        if self.value.len() == value.len() {
            self.value.copy_from_slice(value);
        } else {
            self.value = value.into();
        }
    }
}

/// Keys that one batch removes because they have expired, at most. A batch has room for fewer commands
/// that set keys, so there are never ever more of them.
const EXPIRED_MAX: usize = 128;
/// Deadlines that [`Keys::work`] drops at once.
const DROPPED_DEADLINES: usize = 1024;
/// Bytes of a saved key besides itself and its value; of what precedes all keys.
const SAVED_BYTES: u64 = 16;
const TIME_BYTES: usize = 8;
/// The seed of the order of keys follows the time, if there is one: where keys have their length there is
/// this, which no key has; then 4 bytes of no use, and the seed.
const SEED_MARK: u32 = u32::MAX - 1;
const SEED_BYTES: usize = 16;
/// Bytes of memory for a key besides itself and its value, about: its place in a table, two allocations.
const OVERHEAD_BYTES: u64 = 100;
/// As Redis words it.
const FULL: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// What keys had before a transaction.
type Before = BTreeMap<Box<[u8]>, Option<Stored>>;

/// What expires when, the first one first.
type Deadlines = BTreeSet<(u64, Box<[u8]>)>;

/// Keys and values in memory, at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Keys {
    stored: Table<Stored>,
    deadlines: Deadlines,
    /// In ms since the log began. What has expired by then has no effect, and is removed step by step.
    now: u64,
    /// Bytes of all keys and values.
    bytes: u64,
    /// Long commands, and replies to them.
    staging: Staging,
    aside: Aside,
}

/// What does not belong to the state.
#[derive(Clone, Debug, Default)]
struct Aside {
    /// Bytes of memory from which on this replica, as the leader, has commands refused.
    memory_max: Option<u64>,
    /// Deadlines that are not needed any more.
    dropped: Vec<Deadlines>,
    /// The time is to be loaded.
    is_timeless: bool,
    /// The time of a save that has written nothing yet, and the seed.
    saved_head: Option<(u64, u64)>,
    /// What a save has still to write of what was staged when it began.
    saved_staging: Staging,
    /// What was staged in states that are not needed any more.
    dropped_staging: Staging,
}

impl PartialEq for Aside {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Aside {}

impl core::hash::Hash for Aside {
    fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
}

impl Keys {
    pub(crate) fn len(&self) -> usize {
        self.stored.len()
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.stored.get(key).filter(|stored| stored.is_valid(self.now)).map(|stored| &stored.value[..])
    }

    pub(crate) fn set(&mut self, key: &[u8], value: &[u8], until: u64) {
        let before = match self.stored.get_mut(key) {
            Some(stored) => {
                self.bytes -= stored.value.len() as u64;
                stored.replace(value);
                core::mem::replace(&mut stored.until, until)
            }
            None => {
                self.bytes += key.len() as u64;
                self.stored.insert(key, Stored { value: value.into(), until });
                0
            }
        };
        self.bytes += value.len() as u64;
        if before != 0 {
            self.deadlines.remove(&(before, key.into()));
        }
        if until != 0 {
            self.deadlines.insert((until, key.into()));
        }
    }

    /// Gives a key another deadline; 0 for none.
    fn expires(&mut self, key: &[u8], until: u64) {
        let Some(stored) = self.stored.get_mut(key) else { return };
        let before = core::mem::replace(&mut stored.until, until);
        if before != 0 {
            self.deadlines.remove(&(before, key.into()));
        }
        if until != 0 {
            self.deadlines.insert((until, key.into()));
        }
    }

    /// Removes a key; false if it was not there, or had expired.
    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        let Some(before) = self.stored.remove(key) else { return false };
        self.bytes -= (key.len() + before.value.len()) as u64;
        if before.until != 0 {
            self.deadlines.remove(&(before.until, key.into()));
        }
        before.is_valid(self.now)
    }

    /// Removes all keys.
    fn clear(&mut self) {
        self.stored.clear();
        self.bytes = 0;
        self.aside.dropped.push(core::mem::take(&mut self.deadlines));
    }

    /// A number that all replicas have in common: keys that have no order yet are ordered by it.
    pub(crate) const fn seed(&mut self, random: u64) {
        self.stored.seed(random);
    }

    /// While this replica leads, refuses commands that may need memory when the keys take this number of bytes.
    pub(crate) const fn bound(&mut self, memory_max: u64) {
        self.aside.memory_max = Some(memory_max);
    }

    /// Whether commands that may need memory are to be refused.
    pub(crate) fn is_full(&self) -> bool {
        let memory = self.bytes + OVERHEAD_BYTES * self.len() as u64 + self.staging.bytes();
        self.aside.memory_max.is_some_and(|most| memory >= most)
    }

    /// The latest time of an entry.
    pub(crate) const fn time(&self) -> u64 {
        self.now
    }

    fn until(&self, key: &[u8]) -> Option<u64> {
        self.stored.get(key).map(|stored| stored.until)
    }

    /// Time passes, but never backwards: some of what has expired is removed.
    fn advance(&mut self, to: u64) {
        self.now = self.now.max(to);
        if !self.staging.is_empty() {
            self.staging.expire(self.now);
        }
        let mut is_any = false;
        for _ in 0..EXPIRED_MAX {
            if !self.has_expired() {
                break;
            }
            let Some((_, key)) = self.deadlines.pop_first() else { break };
            self.remove(&key);
            is_any = true;
        }
        if is_any {
            sort_freed();
        }
    }

    /// Whether keys are there that have expired.
    fn has_expired(&self) -> bool {
        self.deadlines.first().is_some_and(|(until, _)| *until <= self.now)
    }

    /// Removes the keys among the arguments of a command that have expired.
    fn expire_named(&mut self, args: &[&[u8]]) {
        for key in args.iter().skip(1) {
            if self.stored.get(key).is_some_and(|stored| !stored.is_valid(self.now)) {
                self.remove(key);
            }
        }
    }

    /// Executes a batch that is an entry of the log.
    pub(crate) fn apply(&mut self, batch: &[u8], reply: &mut Vec<u8>) {
        let Some((at, mut commands)) = decode(batch) else { return reply.push(0) };
        self.advance(at);
        let is_full = batch.first() == Some(&BATCH_IF_FULL);
        let (mut outcome, mut args) = (Replies::new(reply), Vec::new());
        while commands.next(&mut args) {
            let command = args.first().and_then(|name| Command::of(name));
            if self.has_expired() {
                self.expire_named(&args);
            }
            match command {
                Some(Command::Exec) => {
                    let (before, reply) = self.transact(&args[1..], is_full);
                    let len = reply.as_ref().map_or_else(|why| why.len() + 3, Vec::len);
                    if !outcome.has_room(len) {
                        self.restore(before);
                        break;
                    }
                    if !outcome.take(|out| reply.map(|reply| out.extend_from_slice(&reply))) {
                        break;
                    }
                    continue;
                }
                Some(Command::Run) => {
                    // It needs the whole room, so its sender has put nothing before it.
                    if !outcome.is_empty() {
                        break;
                    }
                    outcome.take(|out| self.run(&args[1..], is_full, out));
                    break;
                }
                _ => {}
            }
            if is_full && command.is_some_and(Command::grows) {
                if !outcome.has_room(FULL.len()) || !outcome.take(|_| Err(FULL.to_owned())) {
                    break;
                }
                continue;
            }
            let has_room = outcome.has_room(self.reply_bytes(command, &args));
            if !has_room || !outcome.take(|out| self.execute(command, &args, out)) {
                break;
            }
        }
    }

    /// Executes the commands of a transaction. Returns what the keys had before, and the reply to all of
    /// them as one, for which there may be no room.
    fn transact(&mut self, commands: &[&[u8]], is_full: bool) -> (Before, Result<Vec<u8>, Refusal>) {
        let (mut reply, mut before, mut args) = (Vec::new(), Before::new(), Vec::new());
        commands::put_count(commands.len(), &mut reply);
        let mut grows = false;
        for command in commands {
            Commands::of_transaction(command).next(&mut args);
            let command = args.first().and_then(|name| Command::of(name));
            grows |= command.is_some_and(Command::grows);
            self.expire_named(&args);
            for key in args.iter().skip(1) {
                before.entry((*key).into()).or_insert_with(|| self.stored.get(key).cloned());
            }
            let at = reply.len();
            let result = match refused_in_transaction(&args) {
                Some(why) => Err(why),
                None => self.execute(command, &args, &mut reply),
            };
            if let Err(why) = result {
                reply.truncate(at);
                reply.extend_from_slice(format!("-{why}\r\n").as_bytes());
            }
        }
        if is_full && grows {
            self.restore(core::mem::take(&mut before));
            return (before, Err(FULL.to_owned()));
        }
        (before, Ok(reply))
    }

    /// Executes a staged command. Its reply is kept if it is long.
    fn run(&mut self, args: &[&[u8]], is_full: bool, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let (id, bytes) = self.staging.take(args)?;
        let args = staging::arguments(&bytes).filter(|args| !args.is_empty());
        let args = args.ok_or("ERR the long command is not whole")?;
        if let Some(long) = args.iter().find(|arg| arg.len() > staging::VALUE_BYTES_MAX) {
            let most = staging::VALUE_BYTES_MAX;
            return Err(format!("ERR a key or value has at most {most} bytes, this one {}", long.len()));
        }
        let command = Command::of(args[0]).filter(|command| !command.is_staging());
        self.expire_named(&args);
        if is_full && command.is_some_and(Command::grows) && command != Some(Command::Exec) {
            return Err(FULL.to_owned());
        }
        let too_long = || {
            let most = staging::STAGED_BYTES_MAX;
            format!("ERR a reply has at most {most} bytes here; ask for fewer keys")
        };
        let reply = if command == Some(Command::Exec) {
            let (before, reply) = self.transact(&args[1..], is_full);
            let reply = reply?;
            if reply.len() > staging::STAGED_BYTES_MAX {
                self.restore(before);
                return Err(too_long());
            }
            reply
        } else {
            if self.reply_bytes(command, &args) > staging::STAGED_BYTES_MAX {
                return Err(too_long());
            }
            let mut reply = Vec::new();
            self.execute(command, &args, &mut reply)?;
            reply
        };
        if reply.len() <= staging::SHORT_BYTES_MAX {
            out.extend_from_slice(&reply);
        } else {
            staging::put_mark(reply.len(), out);
            self.staging.keep(self.now, id, reply);
        }
        Ok(())
    }

    /// Gives keys what they had before a transaction.
    fn restore(&mut self, before: Before) {
        for (key, stored) in before {
            match stored {
                Some(Stored { value, until }) => self.set(&key, &value, until),
                None => drop(self.remove(&key)),
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
        save_head(self.now, self.stored.seeded(), to);
        for (id, staged) in self.staging.iter() {
            staging::save(id, staged, to);
        }
        for (key, stored) in self.stored.iter() {
            save_one(key, stored, to);
        }
    }

    /// Begins a save in parts; returns the bytes that follow.
    pub(crate) fn begin_save(&mut self) -> u64 {
        self.stored.begin_save();
        let seed = self.stored.seeded();
        self.aside.saved_head = Some((self.now, seed));
        self.aside.saved_staging = self.staging.clone();
        let staged = self.staging.saved_bytes();
        let head = TIME_BYTES + if seed == 0 { 0 } else { SEED_BYTES };
        head as u64 + staged + self.bytes + SAVED_BYTES * self.len() as u64
    }

    /// Appends the time, then what is staged, one after the other, and then the keys of one table after
    /// the other. Returns whether it was the last one.
    pub(crate) fn save_part(&mut self, to: &mut Vec<u8>) -> Option<bool> {
        if let Some((time, seed)) = self.aside.saved_head.take() {
            save_head(time, seed, to);
        }
        if let Some((id, staged)) = self.aside.saved_staging.pop() {
            staging::save(id, &staged, to);
            return Some(false);
        }
        self.stored.save_part(|key, stored| save_one(key, stored, to))
    }

    pub(crate) fn end_save(&mut self) {
        self.aside.saved_staging = Staging::default();
        self.stored.end_save();
    }

    /// Keys without any, to load parts into.
    pub(crate) fn begin_load(&self) -> Self {
        let aside = Aside { is_timeless: true, memory_max: self.aside.memory_max, ..Aside::default() };
        Self { aside, ..Self::default() }
    }

    /// Loads what is whole of the bytes, and removes it from them.
    pub(crate) fn load_part(&mut self, from: &mut Vec<u8>) {
        let mut rest = &from[..];
        if self.aside.is_timeless
            && let Some((now, after)) = rest.split_first_chunk::<TIME_BYTES>()
        {
            (self.now, self.aside.is_timeless) = (u64::from_le_bytes(*now), false);
            rest = after;
        }
        while !self.aside.is_timeless && !rest.is_empty() {
            if rest.starts_with(&SEED_MARK.to_le_bytes()) {
                let Some((record, after)) = rest.split_first_chunk::<SEED_BYTES>() else { break };
                self.seed(record[8..].first_chunk().map_or(0, |seed| u64::from_le_bytes(*seed)));
                rest = after;
                continue;
            }
            if staging::is_next(rest) {
                let Some(after) = staging::load(rest, &mut self.staging) else { break };
                rest = after;
                continue;
            }
            let Some(saved) = split_one(rest) else { break };
            self.set(saved.key, saved.value, saved.until);
            rest = saved.rest;
        }
        let loaded = from.len() - rest.len();
        from.drain(..loaded);
    }

    /// Whether all was loaded, if nothing follows.
    pub(crate) const fn is_loaded(&self) -> bool {
        !self.aside.is_timeless
    }

    /// `None` if the bytes are not a saved state.
    pub(crate) fn load(from: &[u8]) -> Option<Self> {
        let (mut keys, mut from) = (Self::default().begin_load(), from.to_vec());
        keys.load_part(&mut from);
        (keys.is_loaded() && from.is_empty()).then_some(keys)
    }

    /// Drops some of what is not needed any more. Returns whether more is left.
    pub(crate) fn work(&mut self) -> bool {
        if let Some(deadlines) = self.aside.dropped.last_mut() {
            let is_over = (0..DROPPED_DEADLINES).any(|_| deadlines.pop_first().is_none());
            if is_over {
                self.aside.dropped.pop();
            }
        }
        drop(self.aside.dropped_staging.pop());
        let is_left = !self.aside.dropped.is_empty() || !self.aside.dropped_staging.is_empty();
        self.stored.tidy() || is_left
    }

    /// Takes keys that are not needed any more, to drop them in steps.
    pub(crate) fn discard(&mut self, other: Self) {
        self.stored.discard(other.stored);
        self.aside.dropped.extend(other.aside.dropped);
        self.aside.dropped.push(other.deadlines);
        let staging = [other.staging, other.aside.saved_staging, other.aside.dropped_staging];
        staging.into_iter().for_each(|staging| self.aside.dropped_staging.append(staging));
    }

    #[cfg(feature = "mutants")]
    pub(crate) const fn save_late(&mut self) {
        self.stored.save_late();
    }
}

fn save_head(time: u64, seed: u64, to: &mut Vec<u8>) {
    to.extend_from_slice(&time.to_le_bytes());
    if seed != 0 {
        to.extend_from_slice(&SEED_MARK.to_le_bytes());
        to.extend_from_slice(&[0; 4]);
        to.extend_from_slice(&seed.to_le_bytes());
    }
}

fn save_one(key: &[u8], Stored { value, until }: &Stored, to: &mut Vec<u8>) {
    to.extend_from_slice(&(key.len() as u32).to_le_bytes());
    to.extend_from_slice(&(value.len() as u32).to_le_bytes());
    to.extend_from_slice(&until.to_le_bytes());
    to.extend_from_slice(key);
    to.extend_from_slice(value);
}

/// A key of a saved state, with its value, its deadline, and what follows.
struct SavedKey<'a> {
    key: &'a [u8],
    value: &'a [u8],
    until: u64,
    rest: &'a [u8],
}

/// The first key of a saved state, with its value, its deadline, and what follows; `None` if it is not
/// whole.
fn split_one(from: &[u8]) -> Option<SavedKey<'_>> {
    let (key, rest) = from.split_first_chunk::<4>()?;
    let (value, rest) = rest.split_first_chunk::<4>()?;
    let (until, rest) = rest.split_first_chunk::<8>()?;
    let (key, rest) = rest.split_at_checked(u32::from_le_bytes(*key) as usize)?;
    let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*value) as usize)?;
    Some(SavedKey { key, value, until: u64::from_le_bytes(*until), rest })
}
