//! What may go wrong later in a cluster, and what waits; its health does not count it.

use crate::{Process, Snapshot};
use obol_fabric::Nanos;
use obol_membership::view::Member;
use obol_profiles::Profile;

/// Joins that are on hold.
pub fn held_joins(snapshot: &Snapshot) -> impl Iterator<Item = String> {
    snapshot.all_processes().filter_map(|p| {
        let left = p.hold_left(snapshot.at);
        (left > Nanos::ZERO).then(|| {
            format!(
                "join of {} on hold for {left} more: members of its name died, left or were suspected repeatedly; find out why (`obol events`)",
                p.name
            )
        })
    })
}

/// During an upgrade: what is left to do.
pub fn two_releases(snapshot: &Snapshot) -> Option<String> {
    let view = snapshot.view.as_ref()?;
    let spoken = view.release()?;
    let (old, new): (Vec<&Member>, Vec<&Member>) = view.members.iter().partition(|m| m.release == spoken);
    let names: Vec<&str> = old.iter().map(|m| m.name.as_str()).collect();
    new.first().map(|m| {
        format!(
            "members of two releases: {} of {} have been upgraded to {}; {spoken} is spoken until the others are, too: {}",
            new.len(),
            view.members.len(),
            m.release,
            names.join(", ")
        )
    })
}

/// Processes of this host that are not scheduled as the profile asks. They may be suspected
/// before the kernel runs them.
pub fn not_real_time(profile: &Profile, snapshot: &Snapshot) -> Option<String> {
    profile.scheduling.priority()?;
    let lacks = |p: &&Process| p.alive && p.process.is_real_time() == Some(false);
    let names: Vec<&str> = snapshot.processes.iter().filter(lacks).map(|p| p.name.as_str()).collect();
    if names.is_empty() {
        return None;
    }
    Some(format!(
        "no real-time scheduling, which the profile {} asks for: {}. While the machine is busy they may be removed though they \
         are healthy: grant CAP_SYS_NICE, or use the profile laptop",
        profile.name,
        names.join(", ")
    ))
}
