//! The encoding of views and datagrams: little-endian, length-prefixed, with every count checked
//! before use.

mod codec;
mod message;
mod views;

pub use codec::{DecodeError, NUMBER_MAX};
pub use message::{ADDRESS_BYTES_MAX, Addresses, Message, Refusal, acceptors, deciders, encode_addresses};
pub use views::{
    MEMBERS_MAX, apply_step, deciders_of_step, decode_view, encode_step, encode_view, removal_reserve,
};
