//! Replicated state machines over one-sided memory: a deterministic [`Service`] that a few
//! processes keep, and that survives the death of any minority of them.
//!
//! The oldest replica in the view leads. It WRITEs each command to the others' memory, and answers
//! when a majority of the voters has it and its view is still active. A read takes no round. When
//! the leader fails, the next replica waits until the view without it is active, READs the memory
//! of a majority, and continues. Who votes is an entry of the log itself, so views may shrink and
//! grow without a committed entry being lost.
//!
//! That is the preset `view`. Others find out in other ways who leads, and exclude the leader before in
//! other ways: see [`Preset`].
//!
//! All parts are state machines without I/O, like the membership's: [`Replica`], [`Client`], and a
//! [`Node`] that makes either a member of a cluster. [`KeyValue`] and [`OrderBook`] are services. What a
//! reader has to know first is in `docs/design/smr.md`.

mod area;
mod beats;
mod book;
mod client;
mod clients;
mod config;
mod departure;
mod direct;
mod entry;
mod feed;
mod follow;
mod grants;
pub mod identity;
mod keys;
mod lead;
mod limits;
mod lines;
mod log;
mod members;
mod message;
#[cfg(test)]
mod model;
mod mutants;
mod node;
mod position;
mod preset;
mod presets;
mod relatives;
mod replica;
mod replicated;
mod scores;
mod service;
mod session;
mod snapshot;
mod standing;
mod state;
mod store;
mod takeover;
mod time;
mod tokens;
mod votes;

pub use area::{Area, PLACES, REPLICAS_MAX, WINDOW};
pub use beats::Beats;
pub use book::{Depth, Executed, FILLS_MAX, Fill, LEVELS_MAX, Level, Order, OrderBook, Side, Verdict};
pub use client::{BeginError, Client, ClientError, Done, Operation};
pub use config::{Config, VOTERS_MAX, Voter};
pub use departure::Departure;
pub use follow::Activity;
pub use grants::Grants;
pub use keys::{
    Access, Batch, Long, LongReply, STAGED_ARGS_MAX, STAGED_BYTES_MAX, Transaction, access, commands,
    from_now, refused_in_transaction,
};
pub use limits::PAYLOAD_BYTES_MAX;
pub use members::{CLIENT_PREFIX, REPLICA_PREFIX, clients, replicas};
pub use mutants::Mutant;
pub use node::{Actor, Node};
pub use position::{Index, Term};
pub use preset::{Active, Detector, Election, Guard, Known, Leadership, Look, Others, Reads, Turn, Views};
pub use presets::Preset;
pub use replica::{Pace, Replica, ReplicaState};
pub use scores::PullScore;
pub use service::{LoadError, Service};
pub use session::SESSIONS_MAX;
pub use snapshot::Transfer;
pub use standing::{Brief, Standing};
pub use store::{EncodeError, KEY_BYTES_MAX, KeyValue, VALUE_BYTES_MAX};
pub use votes::Votes;
