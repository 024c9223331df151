//! Servers of the cache that a command starts, clients, and faults.

pub mod check;
pub mod failover;
mod freeze;
pub mod load;
pub mod servers;

use hdrhistogram::Histogram;
use obol_fabric::Nanos;
use obol_term::output::Failure;

/// How often a client that shares its core looks for an answer.
pub const POLL_INTERVAL: Nanos = Nanos::from_micros(20);

/// The longest latency that is kept as it is; longer ones count as this.
pub(crate) const LATENCY_MAX: Nanos = Nanos::from_secs(100);
/// Significant figures of latencies.
const FIGURES: u8 = 3;

/// Counts latencies in nanoseconds.
pub fn latencies() -> Result<Histogram<u64>, Failure> {
    Histogram::new_with_bounds(1, LATENCY_MAX.0, FIGURES).map_err(Failure::failed)
}
