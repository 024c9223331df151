//! What the members of a view are for the log.

use obol_membership::view::Member;
use obol_membership::{Kind, View};

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
