//! Replicas of the store that a command starts, clients, and faults.

pub mod check;
pub mod clients;
pub mod replicas;
pub mod store;
