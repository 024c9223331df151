//! A key-value store as a service.
//!
//! ```text
//! command, query   operation (1 byte), length of the key (1 byte), key, value
//! reply            outcome (1 byte), value
//! ```
//!
//! Commands of Redis, several at once, have a format of their own (`keys.rs`).

use crate::PAYLOAD_BYTES_MAX;
use crate::keys::{self, Keys};
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromRepr)]
#[repr(u8)]
enum Outcome {
    Done = 1,
    Missing = 2,
    Invalid = 3,
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
            Some(Outcome::Invalid) | None => Err(LoadError),
        }
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
        if command.first() == Some(&keys::BATCH) {
            return self.0.apply(command, reply);
        }
        let outcome = match decode(command) {
            Some((Operation::Put, key, value)) => {
                self.0.set(key, value, 0);
                Outcome::Done
            }
            Some((Operation::Delete, key, _)) if self.0.remove(key) => Outcome::Done,
            Some((Operation::Delete, ..)) => Outcome::Missing,
            Some((Operation::Get, ..)) | None => Outcome::Invalid,
        };
        reply.push(outcome as u8);
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

    fn read(&self, query: &[u8], reply: &mut Vec<u8>) {
        if query.first() == Some(&keys::BATCH) {
            return self.0.read(query, reply);
        }
        match decode(query) {
            Some((Operation::Get, key, _)) => match self.0.get(key) {
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
