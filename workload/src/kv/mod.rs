//! Servers of the cache that a command starts, clients, and faults.

pub mod check;
pub mod failover;
mod freeze;
pub mod load;
pub mod servers;
