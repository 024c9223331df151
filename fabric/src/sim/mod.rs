//! A deterministic cluster in virtual time: all nodes of a [`World`] in one thread, one seed for
//! everything drawn.
//!
//! A machine sees what an RDMA fabric would show it: ordered links that break, torn long READs,
//! datagrams that get lost, deaths that are noticed late, and a clock that is not quite right. A
//! driver adds faults and watches the whole memory of the cluster in true time. Nothing here reads
//! a clock, a thread or an unordered map.

mod clock;
mod core;
mod deaths;
mod faults;
mod link;
mod messages;
mod model;
mod network;
mod node;
mod ops;
mod port;
mod queue;
mod rng;
mod seats;
mod slab;
mod world;

#[cfg(test)]
mod tests;

pub use clock::Clock;
pub use model::{BILLION, Cost, Model, Quantiles, QuantilesError};
pub use network::{Delay, Mishaps, Network};
pub use node::State;
pub use port::Port;
pub use rng::Rng;
pub use seats::Program;
pub use world::{StepInfo, What, World};
