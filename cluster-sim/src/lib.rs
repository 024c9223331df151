//! A cluster in virtual time. [`Cluster`] owns the simulated fabric and the processes on it: it builds
//! coordinators and members as daemons do, runs them, cuts them off from each other, and shows in true
//! time what they hold and record.
//!
//! What runs at a node is a [`Process`]: a coordinator, or a machine with a member in it, as a server
//! of the cache or a replica is. What the faults are, when they come and what must hold meanwhile is
//! the caller's: the campaign has its oracle, the tests of services have histories.

mod cluster;
mod process;
pub mod service;

pub use cluster::{Cluster, HeldLease};
pub use process::{ClusterMachine, Process};
