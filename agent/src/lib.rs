//! Membership beside an application.
//!
//! Three forms. [`run`] is the daemon of a node: one core, one lease, for all programs of the node. [`Attached`]
//! is a program that sits in an agent's seat and reads the agent's lease page: its `active` check costs the same as
//! the agent's own. [`Embedded`] is a program with a core of its own on a thread of its own.
//! A program that is no member and only wants to know follows the views with an [`Observer`].
//!
//! An application that acts only while its view is active asks before it starts and again before its effect counts:
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use obol_agent::Attached;
//! # use obol_fabric::{Name, Nanos};
//! # use obol_profiles::Site;
//! let site = Site::open(&obol_fabric::shm::default_root(), Name::new("default")?)?;
//! let mut app = Attached::open(&site, Name::new("node-1")?, Name::new("cache-1")?)?;
//! app.join(Nanos::from_secs(5))?;
//! let view = app.view().ok_or("the agent knows no view yet")?;
//! let served = app.guard(view.id, || "the answer");
//! # let _ = served;
//! # Ok(()) }
//! ```

mod attached;
mod embedded;
mod observer;

pub use attached::{AttachError, Attached};
pub use embedded::Embedded;
pub use obol_membership::stream::Item;
pub use observer::Observer;

use obol_fabric::shm::{Endpoint, Owner, ShmError, clock};
use obol_fabric::{Drive, Group, Instant, Name, Nanos};
use obol_membership::{Kind, Member};
use obol_profiles::Site;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};

/// A seed that differs between processes and lives: the standard library's per-process random keys.
#[must_use]
pub fn seed() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

fn member(site: &Site, kind: Kind, name: Name, seed: u64) -> Result<(Endpoint, Member), ShmError> {
    let owner = Owner { kind: kind as u32, name, region: None, groups: Group::Everyone.bit() };
    let profile = &site.deployment.profile;
    let mut endpoint = Endpoint::open(&site.cluster, owner, profile.wait)?;
    endpoint.beat_every(profile.timing.heartbeat_every);
    Ok((endpoint, Member::new(site.config, kind, name, site.newest(), seed)))
}

/// A process that wants to leave waits so long for the view without it; then it just ends, and counts as failed.
pub const LEAVE_TIMEOUT: Nanos = Nanos::from_secs(1);

/// Runs an agent or a lease cache on this thread until `stop` is set; then it leaves the cluster. `seed` must differ
/// between lives.
pub fn run(site: &Site, kind: Kind, name: Name, seed: u64, stop: &AtomicBool) -> Result<(), ShmError> {
    let (mut endpoint, mut machine) = member(site, kind, name, seed)?;
    let done = AtomicBool::new(false);
    let mut end = Instant::NEVER;
    endpoint.run(&mut machine, &done, |machine, endpoint| {
        if !stop.load(Ordering::Relaxed) {
            return;
        }
        if end == Instant::NEVER {
            end = clock::now() + LEAVE_TIMEOUT;
            machine.leave(clock::now(), endpoint);
        }
        done.store(machine.has_left() || end <= clock::now(), Ordering::Relaxed);
    });
    Ok(())
}
