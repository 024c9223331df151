//! A replicated cache over one-sided memory, after uKharon-KV (uKharon, section 7.3) and HERD.
//!
//! Clients WRITE their requests into the primary's memory, and it WRITEs its answers into theirs. The primary executes a
//! request at once and, in parallel, WRITEs it to its backup's log if it changes anything; it answers when the backup has it and the
//! view that makes it the primary still is active. So a GET needs no replication. When the primary fails, the backup
//! waits until the view without it is active, applies what is left in its log, and serves. The next server takes a copy of
//! the state through the same log while the new primary serves: the service is redundant again by itself.
//!
//! Everything is here as machines without I/O, like the protocol's: [`Server`] and [`Client`], and a [`Node`] that makes
//! either a member of a cluster. Who is primary is a function of the view alone: the oldest server in it.
//!
//! Values live in memory only. When all servers are gone the state is, too, and the next one begins with nothing.

mod answer;
mod area;
mod client;
mod entry;
mod flaw;
mod lead;
mod node;
mod server;
mod store;
mod words;

pub use answer::Status;
pub use area::{Area, WINDOW};
pub use client::{Client, Done, Operation, Refusal};
pub use flaw::Flaw;
pub use node::{Node, Service};
pub use server::{Server, Standing};

use obol_membership::view::Member;
use obol_membership::{Kind, View};

/// Bytes of the longest value.
pub const VALUE_BYTES_MAX: usize = 1024;

/// The names of the servers of a cluster begin so.
pub const SERVER_PREFIX: &str = "kv-";

/// So often whoever has nothing else to do looks into its memory before it does what is due beside.
const LOOKS: u32 = 32;

/// Whether a member is a server of the cache: it has a core of its own, whose region holds the memory that is written to.
fn is_server(member: &Member) -> bool {
    member.kind == Kind::App && member.has_core() && member.name.as_str().starts_with(SERVER_PREFIX)
}

/// The servers of a view. The first one is the primary, the second one its backup, the others wait.
pub fn servers(view: &View) -> impl Iterator<Item = &Member> {
    view.members.iter().filter(|member| is_server(member))
}

/// The members that may send requests.
fn clients(view: &View) -> impl Iterator<Item = &Member> {
    view.members.iter().filter(|member| member.kind == Kind::App && member.has_core() && !is_server(member))
}
