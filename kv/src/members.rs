//! What the members of a view are for the cache.

use crate::shard::Shard;
use obol_membership::view::Member;
use obol_membership::{Kind, View};

/// The members that have a core of their own, whose region holds the service's memory, with the
/// shards of those that serve one.
pub(crate) fn parties(view: &View) -> impl Iterator<Item = (&Member, Option<Shard>)> {
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
pub(crate) fn clients(view: &View) -> impl Iterator<Item = &Member> {
    parties(view).filter(|(_, shard)| shard.is_none()).map(|(member, _)| member)
}
