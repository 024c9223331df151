//! Clients and faults for the replicated cache and store of a cluster, and checks of every answer: what
//! `obol kv check` and `obol smr check` run, and what drills and measurements start for themselves.

pub mod drill;
pub mod failovers;
pub mod history;
pub mod kv;
pub mod process;
pub mod smr;

use hdrhistogram::Histogram;
use obol_fabric::Nanos;
use obol_term::output::Failure;

/// The longest latency that is kept as it is; longer ones count as this.
pub(crate) const LATENCY_MAX: Nanos = Nanos::from_secs(100);
/// Significant figures of latencies.
const FIGURES: u8 = 3;

/// Counts latencies in nanoseconds.
pub fn latencies() -> Result<Histogram<u64>, Failure> {
    Histogram::new_with_bounds(1, LATENCY_MAX.0, FIGURES).map_err(Failure::failed)
}
