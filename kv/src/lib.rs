//! A replicated cache over one-sided memory, after uKharon-KV (uKharon, section 7.3) and HERD.
//!
//! Clients WRITE their requests into the primary's memory, and it WRITEs its answers into theirs.
//! The primary executes a request at once and, in parallel, WRITEs each PUT to the logs of its two
//! backups. It answers when both have it and the view that makes it the primary is still active. So
//! a GET needs no replication. When the primary fails, the older backup waits until the view
//! without it is active, applies the rest of its log, and serves. A server that joins receives a
//! copy of the state through the same kind of log while the primary serves, which restores
//! redundancy.
//!
//! If no server has a complete copy left, the service stops until a server with the newest state
//! returns, for example one that was frozen. Only a server created by [`Server::beginning`] starts
//! with an empty state.
//!
//! All parts are state machines without I/O, like the protocol's: [`Server`], [`Client`], and a
//! [`Node`] that makes either a member of a cluster. Keys are split among shards, each with servers
//! of its own, which share nothing. The primary of a shard is a function of the view alone: the
//! oldest of its servers in it.
//!
//! Values are kept in memory only. When all servers are gone, the state is lost, and the next cache
//! starts empty.

mod answer;
mod area;
mod backup;
mod client;
mod completeness;
mod entry;
mod follow;
mod mutants;
mod node;
mod primary;
mod server;
mod session;
mod shard;
mod store;
mod words;

pub use answer::Status;
pub use area::{Area, WINDOW};
pub use client::{BeginError, Client, ClientError, Done, Operation};
pub use completeness::Copy;
pub use mutants::Mutant;
pub use node::{Node, Service};
pub use server::{Server, ServerState};
pub use shard::{CLIENT_PREFIX, SERVER_PREFIX, SHARDS_MAX, Shard};

use obol_membership::view::Member;
use obol_membership::{Kind, View};

/// Bytes of the longest value.
pub const VALUE_BYTES_MAX: usize = 1024;

/// PUTs that a primary executes at most before all its backups have the first of them.
const AHEAD_MAX: usize = 256;

/// Polls of an idle node between two rounds of other work.
const POLLS_PER_TICK: u32 = 32;

/// The members that have a core of their own, whose region holds the service's memory, with the
/// shards of those that serve one.
fn parties(view: &View) -> impl Iterator<Item = (&Member, Option<Shard>)> {
    let able = view.members.iter().filter(|member| member.kind == Kind::App && member.has_core());
    able.map(|member| (member, Shard::of_server(member.name.as_str())))
}

/// The servers of a shard in a view: first the primary, then two backups; the others wait.
pub fn servers(view: &View, shard: Shard) -> impl Iterator<Item = &Member> {
    parties(view).filter(move |(_, whose)| *whose == Some(shard)).map(|(member, _)| member)
}

/// The number of shards of the cache in a view, by the oldest server. `None` if there is no server.
pub fn shards(view: &View) -> Option<u32> {
    parties(view).find_map(|(_, shard)| shard).map(Shard::count)
}

/// The members that may send requests.
fn clients(view: &View) -> impl Iterator<Item = &Member> {
    parties(view).filter(|(_, shard)| shard.is_none()).map(|(member, _)| member)
}
