//! Replicas of the store that a command starts, clients, and faults.

pub mod check;
pub mod clients;
pub mod replicas;
pub mod store;

use obol_fabric::Nanos;

/// How often a client that shares its core looks for an answer.
pub const POLL_INTERVAL: Nanos = Nanos::from_micros(20);
