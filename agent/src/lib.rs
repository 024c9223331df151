//! Membership beside an application.
//!
//! Three forms. [`run`] is the daemon of a node: one core, one lease, for all programs of the node.
//! [`Attached`] is a program in an agent's seat that reads the agent's lease page: its `active`
//! check costs the same as the agent's own. [`Embedded`] is a program with a core on a thread of
//! its own. A program outside of the view follows the views with an [`Observer`].
//!
//! An application that acts only while its view is active checks that before it starts, and again
//! before its effect counts:
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use obol_agent::Attached;
//! # use obol_fabric::{Name, Nanos};
//! # use obol_node::Site;
//! let site = Site::open(&obol_fabric::host::default_root(), Name::new("default")?)?;
//! let app = Attached::open(&site, Name::new("node-1")?, Name::new("web-1")?)?;
//! app.join(Nanos::from_secs(5))?;
//! let view = app.view().ok_or("the agent knows no view yet")?;
//! let served = app.guard(&view, |_view| "the answer");
//! # let _ = served;
//! # Ok(()) }
//! ```
//!
//! Changes are available as two streams. [`Views`] returns the newest view whenever it changes and
//! skips superseded ones. [`Failures`] returns each failed member once:
//!
//! ```no_run
//! # use obol_agent::Attached;
//! # use obol_fabric::Nanos;
//! # fn take_over(app: &Attached) -> Result<(), obol_agent::Lost> {
//! let mut failures = app.failures();
//! while let Some(failure) = failures.next(Nanos::from_secs(60))? {
//!     println!("{} failed; view {} continues without it", failure.incarnation, failure.view);
//! }
//! # Ok(()) }
//! ```
//!
//! A view that shows a failure is decided, but need not be active yet: before a program acts in it,
//! it checks [`MembershipHandle::active`]. [`MembershipHandle::check`] also returns the reason.
//!
//! An attached program's membership ends with its agent. Streams, joins and leaves then return
//! [`Lost::AgentDied`], and [`Attached::attach_again`] takes a seat at the agent's successor. A
//! process that forks keeps its membership: in the child, all handles are inactive and return
//! [`Lost::Forked`]. So a server that forks workers, or daemonizes by a fork, attaches after the
//! fork. The examples `attach` and `embed` are complete programs.

#![warn(missing_docs, reason = "others write programs and backends against this")]

mod attached;
mod embedded;
mod handle;
mod lost;
mod observer;
mod streams;

pub use attached::{AttachError, Attached, Obstacle};
pub use embedded::Embedded;
pub use handle::{MembershipHandle, NotConfirmed, OwnView, POLL_INTERVAL};
pub use lost::{Inactive, Lost};
pub use obol_membership::stream::Item;
pub use observer::Observer;
pub use streams::{Failure, Failures, Views};

use obol_fabric::{Endpoint, Name};
use obol_membership::{Kind, Member};
use obol_node::Site;
use obol_node::endpoint::{self, EndpointError};
use obol_node::service::ServiceManager;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::AtomicBool;

/// A seed that differs between processes and lives: the standard library's per-process random keys.
#[must_use]
pub fn seed() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

fn member(site: &Site, kind: Kind, name: Name, seed: u64) -> Result<(Endpoint, Member), EndpointError> {
    let endpoint = site.member(kind, name)?;
    Ok((endpoint, site.start(seed)?.member(kind, name)))
}

/// Runs an agent or a lease cache on this thread until `stop` is set; then it leaves the cluster.
/// `manager` learns when it is a member. `seed` must differ between lives.
pub fn run(
    site: &Site,
    kind: Kind,
    name: Name,
    seed: u64,
    stop: &AtomicBool,
    manager: &mut ServiceManager,
) -> Result<(), EndpointError> {
    let (mut endpoint, mut machine) = member(site, kind, name, seed)?;
    endpoint::serve_under(manager, &mut endpoint, &mut machine, stop);
    EndpointError::refused(name, &machine)
}
