//! An HdrHistogram interval log: one line per second and histogram, of a long recording for a longer
//! time. Values in nanoseconds; the
//! maximum of a line is in milliseconds, as the log's header says.

use crate::{Interval, Report};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use obol_fabric::Nanos;
use obol_observe::histograms::floor;
use obol_term::output::Failure;
use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

/// Larger values count as this: ten minutes.
const VALUE_MAX: u64 = 600_000_000_000;
/// Nanoseconds of a millisecond.
const DIVISOR: f64 = 1e6;

/// The whole text.
pub(super) fn text(report: &Report) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let began = report.first.1;
    let start = UNIX_EPOCH + Duration::from_nanos(began);
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment(&format!("[obol cluster {}, values in nanoseconds]", report.cluster))
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(DIVISOR)
        .begin_log_with(&mut bytes, &mut serializer)
        .map_err(Failure::failed)?;
    let mut before: BTreeMap<u16, u64> = BTreeMap::new();
    for Interval { unix, of, counts } in &report.intervals {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, VALUE_MAX, 3).map_err(Failure::failed)?;
        for (bucket, n) in counts.pairs() {
            histogram.saturating_record_n(floor(bucket).0.max(1), n);
        }
        // Counts since the previous part, or since the beginning.
        let last = before.insert(*of as u16, *unix).unwrap_or(began);
        let from = Nanos(last.saturating_sub(began)).to_std();
        let span = Nanos(unix.saturating_sub(last)).to_std();
        log.write_histogram(&histogram, from, span, Tag::new(of.name()))
            .map_err(|error| Failure::Failed(format!("the log cannot be written: {error:?}")))?;
    }
    drop(log);
    String::from_utf8(bytes).map_err(Failure::failed)
}
