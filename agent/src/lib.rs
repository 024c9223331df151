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

use obol_fabric::Name;
use obol_membership::{Kind, Member};
use obol_profiles::Site;
use obol_profiles::endpoint::{Endpoint, EndpointError};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::AtomicBool;

/// A seed that differs between processes and lives: the standard library's per-process random keys.
#[must_use]
pub fn seed() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

fn member(site: &Site, kind: Kind, name: Name, seed: u64) -> Result<(Endpoint, Member), EndpointError> {
    let endpoint = site.member(kind, name)?;
    Ok((endpoint, Member::new(site.config, kind, name, site.newest(), seed)))
}

/// Runs an agent or a lease cache on this thread until `stop` is set; then it leaves the cluster. `seed` must differ
/// between lives.
pub fn run(site: &Site, kind: Kind, name: Name, seed: u64, stop: &AtomicBool) -> Result<(), EndpointError> {
    let (mut endpoint, mut machine) = member(site, kind, name, seed)?;
    endpoint.serve(&mut machine, stop);
    Ok(())
}
