//! A client's operation, and how it ended.

use crate::answer::Status;

/// A client's operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// The value of a key.
    Get(u64),
    /// Set the value of a key.
    Put(u64, Box<[u8]>),
}

/// An operation that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Its number, as returned by [`crate::Client::begin`].
    pub number: u64,
    /// The index of its shard.
    pub shard: u32,
    /// How it ended.
    pub status: Status,
    /// The value that a GET found.
    pub value: Box<[u8]>,
}
