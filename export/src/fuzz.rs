//! Whatever processes have in their memory is exported, or left out.

use super::collector::{Collector, Scope};
use super::render::{Served, text};
use crate::scrambled::scrambled;
use obol_observe::metrics::text::Format;
use std::time::Duration;

const ROUNDS: u64 = 300;
/// Polls of a collector: differences between them count as well.
const POLLS: u64 = 3;

#[test]
fn regions_of_any_bytes_are_exported() {
    let mut read = 0;
    scrambled(ROUNDS, |root, cluster, scramble| {
        let mut collector = Collector::new(root.to_owned(), cluster, Scope::Cluster, Duration::from_secs(1));
        for _ in 0..POLLS {
            for format in [Format::OpenMetrics, Format::Prometheus] {
                read += u64::from(text(&collector.poll(), Served::default(), format).contains("app-1"));
            }
            scramble();
        }
    });
    assert!(read > ROUNDS / 10, "{read}: hardly a region was read");
}
