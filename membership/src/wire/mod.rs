//! The encoding of views and datagrams: little-endian, length-prefixed, with every count checked
//! before use.

mod codec;
mod message;
mod views;

pub use message::{ADDRESS_BYTES_MAX, Addresses, Message, Refusal, acceptors, deciders, encode_addresses};
pub use views::{apply_step, deciders_of_step, decode_view, encode_step, encode_view, removal_reserve};

/// The limit of members in one view. Bounds what a decoder allocates; a cluster's own limit is
/// `Limits::value_bytes`.
pub const MEMBERS_MAX: usize = 8192;

/// The limit of views, incarnations and clocks. They are counted from small numbers, so no real
/// cluster comes near it.
pub const NUMBER_MAX: u64 = 1 << 62;
/// Why a decoder rejects bytes.
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
