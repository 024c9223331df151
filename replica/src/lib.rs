//! Replicas and clients of a replicated state machine (`obol_smr`) as processes of a cluster: what
//! the command `obol smr`, and programs that replicate a service of their own, run.
//!
//! [`Store`] is the whole for such a program: a replica of its service on one thread, and a client
//! of it on another, for calls from any thread.

#![warn(missing_docs, reason = "others write programs and backends against this")]

mod client;
mod holders;
mod marks;
mod server;
mod store;

pub use client::{ClientMember, Work};
pub use marks::{MarkOwner, end_recovery, recover};
pub use server::{LogState, Observer, Settings, serve, serve_preset};
pub use store::{CallError, Store};

use obol_fabric::{Endpoint, Name, Nanos, Wait};
use obol_membership::Kind;
use obol_node::Site;
use obol_node::endpoint::EndpointError;
use obol_smr::{Actor, Area, CLIENT_PREFIX, ClientError, Detector, Guard, Node, Service};
use std::io;
use std::path::PathBuf;

/// How long a client waits for an answer before it asks again.
pub(crate) const AGAIN_EVERY: Nanos = Nanos::from_millis(2);

/// Why a replica or client cannot run, or runs no more.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    /// The areas of the regions are too small.
    #[error(
        "the regions of this cluster have no room for a log: raise limits.slots or limits.value_bytes of its profile"
    )]
    NoRoom,
    /// It has no place in the cluster.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// Its replicas have another log.
    #[error(
        "{0}: the replicas of this cluster have another store than this one: it was begun anew with --force-empty \
         (`obol_replica_open_empty` in C), or continued with what another one had (`obol smr recover`), and this one starts again \
         without its own; or they keep another --service or have another --preset: end those of one of the two"
    )]
    Misfit(Name),
    /// It is to begin an empty store, and others have one.
    #[error(
        "{name}: an empty store is not begun while one is there: {holders} have it in memory and take no part at present. Continue \
         them (`kill -CONT {pids}`), and they serve again when a majority is back; or end them first, and what they have is lost"
    )]
    Held {
        /// The replica.
        name: Name,
        /// Those that have the store.
        holders: String,
        /// Their process ids.
        pids: String,
    },
    /// Its service refuses their state.
    #[error(
        "{0}: its service refuses the state of the other replicas (`on_load` in C): it is another service than theirs, or a \
         version that cannot read it; end those of one of the two"
    )]
    Refuses(Name),
    /// The fabric lacks what the preset needs.
    #[error(
        "{0}: its preset needs permissions to write that can be revoked, which this host does not give: its kernel has no \
         membarrier(2), or its RDMA device does not end a connection; use preset {preset}",
        preset = obol_smr::Preset::View
    )]
    Unsupported(Name),
    /// A live process of another host has its name.
    #[error("{0}")]
    NameTaken(String),
    /// Its session in the log has ended.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A service has to begin anew.
    #[error("the service refuses to begin with its initial state, an empty one")]
    InitialState,
    /// A client's name follows from its own, and is too long.
    #[error("{0}; a shorter name of the replica is needed")]
    Name(String),
    /// A file of the cluster's directory cannot be read or written.
    #[error("{}: {error}", at.display())]
    File {
        /// The file, or the directory.
        at: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The kernel gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// Where replicas of a cluster keep the log, in the region of each.
pub fn area(site: &Site) -> Result<Area, ReplicaError> {
    Area::of(&site.config.layout).ok_or(ReplicaError::NoRoom)
}

/// Has processes of the site sleep at once while they wait: to yield after each wakeup is for the
/// few events of a failover, but requests follow each other.
pub fn for_requests(site: &mut Site) {
    if matches!(site.deployment.profile.wait, Wait::Hybrid { .. }) {
        site.deployment.profile.wait = Wait::Block;
    }
}

/// A place in the cluster for a replica or a client.
pub(crate) fn join<S: Service, E: Detector, G: Guard>(
    site: &Site,
    name: Name,
    actor: Actor<S, E, G>,
) -> Result<(Endpoint, Node<S, E, G>), ReplicaError> {
    let endpoint = match &actor {
        Actor::Replica(_) if G::REVOKES => site.log(Kind::App, name, area(site)?.permitted())?,
        Actor::Replica(_) | Actor::Client(_) => site.mailbox(Kind::App, name)?,
    };
    let member = site.start(obol_agent::seed())?.member(Kind::App, name);
    Ok((endpoint, Node::new(member, actor)))
}

/// A name that begins with `prefix`, as those of replicas and clients do.
pub fn named(text: &str, prefix: &str) -> Result<Name, String> {
    let name = Name::new(text).map_err(|error| error.to_string())?;
    if text.len() > prefix.len() && text.starts_with(prefix) {
        return Ok(name);
    }
    let what = if prefix == CLIENT_PREFIX { "client" } else { "replica" };
    Err(format!("a {what}'s name begins with `{prefix}`, such as {prefix}1"))
}
