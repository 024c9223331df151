//! A key-value store as a service.
//!
//! ```text
//! command, query   operation (1 byte), length of the key (1 byte), key, value
//! reply            outcome (1 byte), value
//! ```
//!
//! Commands of Redis, several at once, have a format of their own (`keys.rs`).

use crate::keys::{self, Keys};
use crate::limits::PAYLOAD_BYTES_MAX;
use crate::service::{LoadError, Service};
use strum::FromRepr;
use thiserror::Error;

/// Bytes of the longest key.
pub const KEY_BYTES_MAX: usize = 255;
/// Bytes of the longest value with the longest key.
pub const VALUE_BYTES_MAX: usize = PAYLOAD_BYTES_MAX - 2 - KEY_BYTES_MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromRepr)]
#[repr(u8)]
enum Operation {
    Get = 1,
    Put = 2,
    Delete = 3,
    /// A Put that the leader has refused, because its memory is full.
    Refused = 6,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromRepr)]
#[repr(u8)]
enum Outcome {
    Done = 1,
    Missing = 2,
    Invalid = 3,
    Full = 4,
    /// The value is too long for a reply.
    Large = 5,
}

/// Why a key or value cannot be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// The key is empty or too long.
    #[error("a key has 1 to {KEY_BYTES_MAX} bytes, this one has {0}")]
    Key(usize),
    /// The value is too long.
    #[error("a value has at most {VALUE_BYTES_MAX} bytes, this one has {0}")]
    Value(usize),
}

/// The store: keys and values in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KeyValue(Keys);

fn encode(operation: Operation, key: &[u8], value: &[u8]) -> Result<Box<[u8]>, EncodeError> {
    let len = u8::try_from(key.len()).ok().filter(|len| *len > 0).ok_or(EncodeError::Key(key.len()))?;
    if value.len() > VALUE_BYTES_MAX {
        return Err(EncodeError::Value(value.len()));
    }
    Ok([&[operation as u8, len], key, value].concat().into())
}

fn decode(bytes: &[u8]) -> Option<(Operation, &[u8], &[u8])> {
    let (&[operation, len], rest) = bytes.split_first_chunk::<2>()?;
    let (key, value) = rest.split_at_checked(usize::from(len)).filter(|_| len > 0)?;
    Some((Operation::from_repr(operation)?, key, value))
}

impl KeyValue {
    /// A query for a key's value.
    pub fn get(key: &[u8]) -> Result<Box<[u8]>, EncodeError> {
        encode(Operation::Get, key, &[])
    }

    /// A command that sets a key's value.
    pub fn put(key: &[u8], value: &[u8]) -> Result<Box<[u8]>, EncodeError> {
        encode(Operation::Put, key, value)
    }

    /// A command that removes a key.
    pub fn delete(key: &[u8]) -> Result<Box<[u8]>, EncodeError> {
        encode(Operation::Delete, key, &[])
    }

    /// What a reply says: the value, or that there was none; the error is that of an invalid
    /// request.
    pub fn outcome(reply: &[u8]) -> Result<Option<&[u8]>, LoadError> {
        let (outcome, value) = reply.split_first().ok_or(LoadError)?;
        match Outcome::from_repr(*outcome) {
            Some(Outcome::Done) => Ok(Some(value)),
            Some(Outcome::Missing) => Ok(None),
            Some(Outcome::Invalid | Outcome::Full | Outcome::Large) | None => Err(LoadError),
        }
    }

    /// Whether a reply says that a command was refused because the leader's memory is full.
    pub fn is_full(reply: &[u8]) -> bool {
        reply == [Outcome::Full as u8]
    }

    /// Whether a reply says that the value is too long for one: a client of Redis has written it, and can
    /// read it.
    pub fn is_large(reply: &[u8]) -> bool {
        reply == [Outcome::Large as u8]
    }

    /// While its replica leads, refuses commands that may need memory when this number of bytes is in use:
    /// keys, values, and about a hundred bytes for each key.
    #[must_use]
    pub const fn with_memory_max(mut self, bytes: u64) -> Self {
        self.0.bound(bytes);
        self
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.len() == 0
    }
}

impl Service for KeyValue {
    const KIND: u8 = 1;

    fn apply(&mut self, command: &[u8], reply: &mut Vec<u8>) {
        if matches!(command.first(), Some(&(keys::BATCH | keys::BATCH_IF_FULL))) {
            return self.0.apply(command, reply);
        }
        let outcome = match decode(command) {
            Some((Operation::Put, key, value)) => {
                self.0.set(key, value, 0);
                Outcome::Done
            }
            Some((Operation::Delete, key, _)) if self.0.remove(key) => Outcome::Done,
            Some((Operation::Delete, ..)) => Outcome::Missing,
            Some((Operation::Refused, ..)) => Outcome::Full,
            Some((Operation::Get, ..)) | None => Outcome::Invalid,
        };
        reply.push(outcome as u8);
    }

    fn admit(&self, command: &mut [u8]) {
        if let Some(kind) = command.first_mut().filter(|_| self.0.is_full()) {
            *kind = match *kind {
                keys::BATCH => keys::BATCH_IF_FULL,
                put if put == Operation::Put as u8 => Operation::Refused as u8,
                other => other,
            };
        }
    }

    fn stamp(command: &mut [u8], at_ms: u64) {
        keys::stamp(command, at_ms);
    }

    fn stamped(command: &[u8]) -> Option<u64> {
        keys::stamped(command)
    }

    fn time(&self) -> u64 {
        self.0.time()
    }

    fn seed(&mut self, random: u64) {
        self.0.seed(random);
    }

    fn read(&self, query: &[u8], reply: &mut Vec<u8>) {
        if query.first() == Some(&keys::BATCH) {
            return self.0.read(query, reply);
        }
        match decode(query) {
            Some((Operation::Get, key, _)) => match self.0.get(key) {
                Some(value) if value.len() >= PAYLOAD_BYTES_MAX => reply.push(Outcome::Large as u8),
                Some(value) => {
                    reply.push(Outcome::Done as u8);
                    reply.extend_from_slice(value);
                }
                None => reply.push(Outcome::Missing as u8),
            },
            _ => reply.push(Outcome::Invalid as u8),
        }
    }

    fn save(&self, to: &mut Vec<u8>) {
        self.0.save(to);
    }

    fn load(&mut self, from: &[u8]) -> Result<(), LoadError> {
        self.0 = Keys::load(from).ok_or(LoadError)?;
        Ok(())
    }

    fn begin_save(&mut self) -> Option<u64> {
        Some(self.0.begin_save())
    }

    fn save_part(&mut self, to: &mut Vec<u8>) -> Option<bool> {
        self.0.save_part(to)
    }

    fn end_save(&mut self) {
        self.0.end_save();
    }

    fn begin_load(&self) -> Self {
        Self(self.0.begin_load())
    }

    fn load_part(&mut self, from: &mut Vec<u8>) -> Result<(), LoadError> {
        self.0.load_part(from);
        Ok(())
    }

    fn end_load(&mut self, rest: &[u8]) -> Result<(), LoadError> {
        if rest.is_empty() && self.0.is_loaded() { Ok(()) } else { Err(LoadError) }
    }

    fn work(&mut self) -> bool {
        self.0.work()
    }

    fn discard(&mut self, other: Self) {
        self.0.discard(other.0);
    }

    #[cfg(feature = "mutants")]
    fn plant(&mut self, mutant: crate::Mutant) {
        if mutant == crate::Mutant::SaveLate {
            self.0.save_late();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(store: &mut KeyValue, command: &[u8]) -> Vec<u8> {
        let mut reply = Vec::new();
        store.apply(command, &mut reply);
        reply
    }

    fn read(store: &KeyValue, key: &[u8]) -> Option<Vec<u8>> {
        let mut reply = Vec::new();
        store.read(&KeyValue::get(key).expect("a key"), &mut reply);
        KeyValue::outcome(&reply).expect("valid").map(<[u8]>::to_vec)
    }

    #[test]
    fn a_key_has_the_value_that_was_put_last_until_it_is_deleted() {
        let mut store = KeyValue::default();
        assert_eq!(read(&store, b"a"), None);
        for value in [&b"1"[..], b"", b"three"] {
            let reply = apply(&mut store, &KeyValue::put(b"a", value).expect("short"));
            assert_eq!(KeyValue::outcome(&reply), Ok(Some(&b""[..])));
            assert_eq!(read(&store, b"a").as_deref(), Some(value));
        }
        let delete = KeyValue::delete(b"a").expect("short");
        assert_eq!(KeyValue::outcome(&apply(&mut store, &delete)), Ok(Some(&b""[..])));
        assert_eq!(KeyValue::outcome(&apply(&mut store, &delete)), Ok(None));
    }

    #[test]
    fn invalid_commands_change_nothing() {
        let mut store = KeyValue::default();
        for bytes in [&b""[..], &[2], &[2, 0, 1], &[2, 5, 1], &[9, 1, 1], &[1, 1, 1]] {
            assert_eq!(KeyValue::outcome(&apply(&mut store, bytes)), Err(LoadError), "{bytes:?}");
        }
        assert!(store.is_empty());
        assert_eq!(KeyValue::put(b"", b"x"), Err(EncodeError::Key(0)));
        assert_eq!(KeyValue::put(&[1; 256], b"x"), Err(EncodeError::Key(256)));
        assert_eq!(KeyValue::put(b"k", &[1; 800]), Err(EncodeError::Value(800)));
    }

    #[test]
    fn a_full_store_refuses_what_needs_memory_and_nothing_else() {
        let put = |n: u64| KeyValue::put(&n.to_le_bytes(), &[7; 92]).expect("short");
        let mut leader = KeyValue::default().with_memory_max(20_000);
        let mut follower = KeyValue::default();
        let mut replies = Vec::new();
        for n in 0..200 {
            let mut command = put(n);
            leader.admit(&mut command);
            replies.push(apply(&mut leader, &command));
            apply(&mut follower, &command);
        }
        let full = replies.iter().position(|reply| KeyValue::is_full(reply));
        assert_eq!((full, leader.len()), (Some(100), 100), "of 200 bytes each");
        assert_eq!(follower, leader, "it follows from the command");
        let mut batch = crate::Batch::default();
        for command in [&["SET", "a", "b"][..], &["INCR", "c"], &["GET", "a"], &["FLUSHALL"], &["DBSIZE"]] {
            assert!(batch.push(command));
        }
        let mut command = batch.bytes();
        leader.admit(&mut command);
        KeyValue::stamp(&mut command, 77);
        assert_eq!(KeyValue::stamped(&command), Some(77));
        let reply = apply(&mut leader, &command);
        let replies = crate::Batch::replies(&reply).expect("replies");
        let refused = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n";
        assert_eq!(replies, [&refused[..], refused, b"$-1\r\n", b"+OK\r\n", b":0\r\n"]);
        let mut command = put(1);
        leader.admit(&mut command);
        assert!(!KeyValue::is_full(&apply(&mut leader, &command)), "there is room again");
    }

    #[test]
    fn a_saved_store_is_loaded_and_a_damaged_one_is_refused() {
        let mut store = KeyValue::default();
        for key in [&b"a"[..], b"bc"] {
            apply(&mut store, &KeyValue::put(key, b"value").expect("short"));
        }
        let mut bytes = Vec::new();
        store.save(&mut bytes);
        let mut other = KeyValue::default();
        assert_eq!((other.load(&bytes), &other), (Ok(()), &store));
        assert_eq!(other.load(&bytes[..bytes.len() - 1]), Err(LoadError));
    }
}
