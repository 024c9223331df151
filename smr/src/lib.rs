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
mod direct;
mod entry;
mod feed;
mod follow;
mod grants;
pub mod identity;
mod keys;
mod lead;
mod lines;
mod log;
#[cfg(test)]
mod model;
mod mutants;
mod node;
mod preset;
mod relatives;
mod replica;
mod scores;
mod sealed;
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
pub use follow::Activity;
pub use grants::Grants;
pub use keys::{
    Access, Batch, Long, LongReply, STAGED_ARGS_MAX, STAGED_BYTES_MAX, Transaction, access, commands,
    from_now, refused_in_transaction,
};
pub use log::{Index, Term};
pub use mutants::Mutant;
pub use node::{Actor, Node};
pub use preset::{Active, Detector, Election, Guard, Known, Look, Others, Preset, Reads, Reign, Turn, Views};
pub use replica::{Departure, Pace, Replica, ReplicaState};
pub use scores::PullScore;
pub use service::{LoadError, Service};
pub use session::SESSIONS_MAX;
pub use snapshot::Transfer;
pub use standing::{Brief, Standing};
pub use store::{EncodeError, KEY_BYTES_MAX, KeyValue, VALUE_BYTES_MAX};
pub use votes::Votes;

use obol_membership::view::Member;
use obol_membership::{Kind, View};

/// Bytes of the longest command, query or reply.
pub const PAYLOAD_BYTES_MAX: usize = 1024;

/// The names of replicas begin so.
pub const REPLICA_PREFIX: &str = "smr-";
/// The names of clients begin so.
pub const CLIENT_PREFIX: &str = "smrc-";

/// The members with a core of their own, whose region holds the service's memory, whose names begin
/// so.
fn named<'a>(view: &'a View, prefix: &'static str) -> impl Iterator<Item = &'a Member> {
    let able = view.members.iter().filter(|member| member.kind == Kind::App && member.has_core());
    able.filter(move |member| member.name.as_str().starts_with(prefix))
}

/// The replicas in a view, the oldest first.
pub fn replicas(view: &View) -> impl Iterator<Item = &Member> {
    named(view, REPLICA_PREFIX)
}

/// The members that may send requests.
pub fn clients(view: &View) -> impl Iterator<Item = &Member> {
    named(view, CLIENT_PREFIX)
}
