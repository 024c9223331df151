//! The newest figures for monitoring, as OpenMetrics text (specification 1.0.0): all counters and
//! states of processes, and the distributions as summaries in seconds.

use crate::Report;
use obol_membership::metrics::Counter;
use obol_observe::metrics::Derived;
use obol_observe::metrics::text::{Exposition, Format, seconds};
use obol_observe::sampling::sample::{Life, ProcessRow};
use obol_observe::sampling::windows::PERCENTILES;
use std::collections::BTreeMap;

/// Whether a process is in a state.
type State = fn(&ProcessRow) -> bool;

/// One row of each name, which is all that distinguishes series: of several, the newest that runs. Two
/// hosts may have a process of one name each, and a dead one may be beside its successor.
fn one_of_each(rows: &[ProcessRow]) -> Vec<&ProcessRow> {
    let rank = |row: &ProcessRow| (row.life == Life::Runs, row.incarnation);
    let mut best = BTreeMap::new();
    for row in rows {
        let known = best.entry((row.kind, row.name)).or_insert(row);
        if rank(known) < rank(row) {
            *known = row;
        }
    }
    best.into_values().collect()
}

/// The whole text.
pub(super) fn text(report: &Report) -> String {
    let sample = &report.last;
    let mut text = Exposition::new(Format::OpenMetrics, report.cluster);
    let rows = one_of_each(&sample.processes);
    let labels = |row: &ProcessRow| (row.name.to_string(), row.kind.name());
    for counter in Counter::ALL {
        let mut family = text.family(*counter);
        for row in &rows {
            let (name, kind) = labels(row);
            family.value(&[&name, kind], row.counter(*counter));
        }
    }
    let states: [(Derived, State); 2] =
        [(Derived::Runs, |row| row.life == Life::Runs), (Derived::Active, |row| row.active)];
    for (state, is_so) in states {
        let mut family = text.family(state);
        for row in &rows {
            let (name, kind) = labels(row);
            family.value(&[&name, kind], u8::from(is_so(row)));
        }
    }
    if let Some(view) = &sample.view {
        text.value(Derived::View, view.id);
    }
    text.value(Derived::NoService, seconds(report.outages.without_service().0));
    let mut spans = text.family(Derived::Span);
    for latency in report.latencies() {
        let known = PERCENTILES.iter().zip(latency.percentiles);
        let quantiles = known.filter_map(|((_, q, _), found)| Some((*q, found?)));
        spans.summary(&[latency.of.name()], quantiles, latency.n);
    }
    text.finish()
}
