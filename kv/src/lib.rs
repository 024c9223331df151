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
mod limits;
mod members;
mod mutants;
mod node;
mod operation;
mod primary;
mod server;
mod session;
mod shard;
mod store;
mod tokens;

pub use answer::Status;
pub use area::{Area, WINDOW};
pub use client::{BeginError, Client, ClientError};
pub use completeness::Copy;
pub use limits::VALUE_BYTES_MAX;
pub use members::{servers, shards};
pub use mutants::Mutant;
pub use node::{Node, Service};
pub use operation::{Done, Operation};
pub use server::{Server, ServerState};
pub use shard::{CLIENT_PREFIX, SERVER_PREFIX, SHARDS_MAX, Shard};
