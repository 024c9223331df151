//! A deterministic cluster in virtual time: all nodes of a [`World`] in one thread, with one seed
//! for all draws.
//!
//! A machine experiences an RDMA fabric: ordered links that break, torn long READs, lost datagrams,
//! delayed death notices, and an inexact clock. A driver injects faults and observes the whole
//! memory of the cluster in true time. Nothing here reads a clock, a thread or an unordered map.

mod clock;
mod core;
mod datagram;
mod deaths;
mod faults;
mod link;
mod messages;
mod model;
mod network;
mod node;
mod ops;
mod permits;
mod port;
mod program;
mod queue;
mod seats;
mod slab;
mod world;

#[cfg(test)]
mod tests;

pub use clock::Clock;
pub use link::Degraded;
pub use model::{BILLION, Cost, Model, Quantiles, QuantilesError};
pub use network::{AdverseEvents, Delay, Network};
pub use node::State;
pub use port::Port;
pub use program::Program;
pub use world::{StepInfo, What, World};
