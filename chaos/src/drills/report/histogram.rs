//! The HdrHistogram log (format version 1.2, V2 deflate): an interval for each figure, tagged with
//! its name. Values are nanoseconds; the tools divide by the unit of their plots.

use crate::drillfile::Metric;
use crate::drills::engine::journal::{Journal, distribution};
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use std::io;
use std::time::{Duration, UNIX_EPOCH};

/// The whole log.
pub(super) fn log(journal: &Journal) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let began = UNIX_EPOCH + Duration::from_secs(journal.began);
    let failed = |error: &dyn std::fmt::Debug| io::Error::other(format!("no histogram log: {error:?}"));
    let mut writer = IntervalLogWriterBuilder::new()
        .add_comment(&format!("obol drill {}, nanoseconds", journal.drill))
        .with_start_time(began)
        .with_base_time(began)
        .with_max_value_divisor(1.0)
        .begin_log_with(&mut text, &mut serializer)?;
    for &(name, metric) in Metric::ALL {
        let figure = distribution(&journal.trials, metric);
        if figure.is_empty() {
            continue;
        }
        // A journal is a file, and may say anything.
        let took = Duration::try_from_secs_f64(journal.took).unwrap_or_default();
        writer
            .write_histogram(figure.histogram(), Duration::ZERO, took, Tag::new(name))
            .map_err(|error| failed(&error))?;
    }
    drop(writer);
    Ok(text)
}
