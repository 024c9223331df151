//! Bytes of views and datagrams: little-endian, length-prefixed, every count checked before it is
//! believed.

mod codec;
mod message;
mod views;

pub use message::{ADDRESS_BYTES_MAX, Addresses, Message, Refusal, acceptors, deciders, encode_addresses};
pub use views::{apply_step, decode_view, encode_step, encode_view, removal_reserve};

/// Members of one view. Bounds what a decoder allocates; a cluster's own limit is
/// `Limits::value_bytes`.
pub const MEMBERS_MAX: usize = 8192;

/// Views, incarnations and clocks are counted from small numbers, one by one: nothing that a
/// cluster gives out comes near.
pub const NUMBER_MAX: u64 = 1 << 62;
/// Why bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// They end too early.
    Short,
    /// A count or a number is out of bounds.
    OutOfBounds,
    /// An unknown kind of message, member or change.
    Unknown(u8),
    /// Bytes are left over.
    Trailing,
}
