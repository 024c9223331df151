//! An artificial hour of history for `obol bench console`, extrapolated from the newest samples.

use crate::state::{Event, Model};
use obol_fabric::{Instant, Nanos};
use obol_membership::Kind;
use obol_membership::recorder::EventKind;
use obol_node::ClusterLocation;
use obol_observe::sampling::Update;
use obol_observe::sampling::live::Live;
use obol_observe::sampling::sample::{EventRow, Sample};
use std::sync::mpsc;
use std::time::Duration;

/// The length of the history.
pub const HOUR: Nanos = Nanos::from_secs(3600);
/// Its samples, by age: as dense as the console keeps them.
const DENSE: [(Nanos, Nanos); 2] =
    [(Nanos::from_secs(90), Nanos::from_millis(250)), (HOUR, Nanos::from_secs(1))];
/// Interval of view changes, which every process records.
const VIEWS_EVERY: Nanos = Nanos::from_secs(600);

/// Adds an hour of history to a console.
pub(super) fn add_history(model: &mut Model, location: &ClusterLocation) {
    let looks = |location: ClusterLocation| {
        let mut live = Live::new(location);
        let mut poll = || match live.poll(false) {
            Update::Sample(sample) => Some(*sample),
            Update::Lost { .. } => None,
        };
        let before = poll()?;
        // Two polls apart, so that counters have advanced and histograms were read twice.
        std::thread::sleep(Duration::from_millis(1100));
        Some((before, poll()?))
    };
    let location = location.clone();
    // On a thread of its own, like live samples, for a realistic memory layout.
    let (tx, rx) = mpsc::sync_channel(1);
    let sender = move || {
        let Some((before, now)) = looks(location) else { return };
        // The clock starts at boot; nothing precedes it.
        let mut ago = HOUR.min(Nanos(now.at.0));
        let mut last = Nanos(u64::MAX);
        while ago > Nanos::ZERO {
            let mut sample = earlier(&before, &now, ago);
            if last.0 / VIEWS_EVERY.0 > ago.0 / VIEWS_EVERY.0 {
                sample.events = views(&sample);
            }
            last = ago;
            if tx.send(Box::new(sample)).is_err() {
                return;
            }
            let apart = DENSE.iter().find(|(reach, _)| ago <= *reach).map_or(HOUR, |(_, apart)| *apart);
            ago = Nanos(ago.0.saturating_sub(apart.0));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(sender);
        for sample in rx {
            model.reduce(Event::Update(Update::Sample(sample)), &mut Vec::new());
        }
    });
}

/// The newest sample as of an earlier time, at the rates between these two samples.
fn earlier(before: &Sample, now: &Sample, ago: Nanos) -> Sample {
    let span = now.at.since(before.at).0.max(1);
    let back = |then: u64, value: u64, noise: u64| {
        let grown = u128::from(value.saturating_sub(then));
        let back = (grown * u128::from(ago.0) / u128::from(span)) as u64;
        value.saturating_sub(back).saturating_sub(noise % (grown as u64 / 16 + 1))
    };
    let shift = |at: Instant| Instant(at.0.saturating_sub(ago.0));
    let mut sample = now.clone();
    sample.at = shift(now.at);
    sample.unix = now.unix.saturating_sub(ago.0);
    sample.events = Vec::new();
    sample.marks = Vec::new();
    if !(ago.0 / 250_000_000).is_multiple_of(4) {
        sample.spans = Vec::new();
    }
    for (n, (row, old)) in sample.processes.iter_mut().zip(&before.processes).enumerate() {
        let noise = ago.0.wrapping_mul(n as u64 | 1) >> 20;
        for (value, then) in row.counters.iter_mut().zip(&old.counters) {
            *value = back(*then, *value, noise);
        }
        row.heartbeat = back(old.heartbeat, row.heartbeat, noise);
        if let Some(lease) = &mut row.lease {
            lease.start = shift(lease.start);
            lease.end = shift(lease.end);
        }
    }
    sample
}

/// The events that all flight recorders have of a view.
fn views(sample: &Sample) -> Vec<EventRow> {
    let view = sample.view.as_ref().map_or(0, |view| view.id.0);
    let each = sample.processes.iter().enumerate().map(|(n, row)| EventRow {
        at: Instant(sample.at.0.saturating_sub(1_000_000) + 500 * n as u64),
        process: row.name,
        kind: row.kind,
        number: sample.at.0 / VIEWS_EVERY.0,
        event: if row.kind == Kind::App { EventKind::Active } else { EventKind::ViewReceived },
        reason: None,
        a: view,
        b: 0,
        doubt: Nanos::ZERO,
    });
    each.collect()
}
