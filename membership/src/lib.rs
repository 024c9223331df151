//! The membership core: views, the CAS engine, detectors, leases and fencing as plain state
//! machines.
//!
//! Two machines make a cluster: [`Coordinator`] decides views and clears leases, [`Member`] runs
//! beside applications, renews the lease that their `active` check reads, and speaks for the
//! programs that are attached to it; as a lease cache it vouches for the leases of others instead.
//! Both take events and the clock and give posts to a [`Fabric`](obol_fabric::Fabric); they own no
//! socket, thread or clock, so the model checker explores, and the simulator drives, the very code
//! that ships.
//!
//! Bring a fabric, a [`Config`], and for each coordinator its number. What this crate does not care
//! about: where the processes run, how they are started, and who looks at them.

pub mod adapt;
pub mod attached_apps;
pub mod cache;
pub mod clearing;
pub mod clique;
pub mod consensus;
pub mod coordinator;
pub mod detectors;
pub mod drift;
pub mod holdback;
pub mod lease;
pub mod log;
pub mod member;
pub mod metrics;
pub mod mutants;
pub mod notices;
mod peer;
pub mod poll;
pub mod recorder;
pub mod renewal_source;
pub mod replace;
pub mod rng;
mod role;
pub mod sealed;
pub mod start;
pub mod stream;
mod timers;
pub mod timing;
pub mod tokens;
pub mod view;
pub mod wire;

pub use coordinator::Coordinator;
pub use member::Member;
pub use mutants::{ActiveMutant, Mutant};
pub use role::Role;
pub use start::Start;
pub use timing::Timing;
pub use view::{Change, Kind, Level, View};

use obol_fabric::Layout;

/// What every machine of a cluster is built with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Durations and counts.
    pub timing: Timing,
    /// Where things lie in a region.
    pub layout: Layout,
    /// The planted bug, in builds that can have one.
    pub mutant: ActiveMutant,
}
