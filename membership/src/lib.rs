//! The membership core: views, the CAS engine, detectors, leases and fencing as plain state
//! machines.
//!
//! Two state machines make a cluster: [`Coordinator`] decides views and clears leases. [`Member`]
//! runs beside applications, renews the lease that their `active` check reads, and represents the
//! programs attached to it; as a lease cache it vouches for the leases of others instead. Both take
//! events and the clock and post operations to a [`Fabric`](obol_fabric::Fabric). They own no
//! socket, thread or clock, so the model checker explores, and the simulator drives, the code that
//! ships.
//!
//! The caller provides a fabric, a [`Config`], and a number for each coordinator. Where the
//! processes run, how they are started and who observes them is outside this crate.

pub mod adapt;
pub mod attached_apps;
pub mod cache;
pub mod clearing;
pub mod clique;
mod config;
pub mod consensus;
pub mod coordinator;
pub mod detectors;
pub mod drift;
pub mod frame;
pub mod holds;
pub mod lease;
pub mod log;
pub mod member;
pub mod metrics;
pub mod mutants;
pub mod notices;
mod peer;
pub mod poll;
pub mod reach;
pub mod recorder;
pub mod renewal_source;
pub mod replace;
pub mod rng;
mod role;
pub mod start;
pub mod stream;
pub mod successor_lease;
mod timers;
pub mod timing;
pub mod tokens;
pub mod view;
pub mod wire;

pub use config::Config;
pub use coordinator::Coordinator;
pub use member::Member;
pub use mutants::{ActiveMutant, Mutant};
pub use role::Role;
pub use start::Start;
pub use timing::Timing;
pub use view::{Change, Kind, Reason, View};
