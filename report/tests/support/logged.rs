//! Reads HdrHistogram logs, for the tests of all that writes them.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use std::collections::BTreeMap;

/// The number of samples of each histogram in an HdrHistogram log, by a standard reader.
pub(crate) fn logged(log: &str) -> BTreeMap<String, u64> {
    let mut counted: BTreeMap<String, u64> = BTreeMap::new();
    for entry in IntervalLogIterator::new(log.as_bytes()) {
        if let LogEntry::Interval(interval) = entry.expect("a line of a log") {
            let raw = BASE64_STANDARD.decode(interval.encoded_histogram()).expect("base 64");
            let histogram: hdrhistogram::Histogram<u64> =
                Deserializer::new().deserialize(&mut raw.as_slice()).expect("a histogram");
            *counted.entry(interval.tag().expect("a tag").as_str().to_owned()).or_default() +=
                histogram.len();
        }
    }
    counted
}
