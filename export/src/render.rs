//! A poll as text.

use crate::collector::{Polled, Reading, Row};
use obol_fabric::{Instant, Nanos};
use obol_fabric_ip::GatewayCounter;
use obol_membership::Kind;
use obol_membership::metrics::{Counter, Histogram};
use obol_observe::failovers::PHASES;
use obol_observe::metrics::Derived;
use obol_observe::metrics::text::{Exposition, Format, seconds};
use obol_observe::{Gateway, Health, spare};

/// What the HTTP server counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Served {
    pub(crate) scrapes: u64,
    pub(crate) refused: u64,
}

/// All metrics of a poll.
pub(crate) fn text(polled: &Polled, served: Served, format: Format) -> String {
    let mut text = Exposition::new(format, polled.cluster);
    text.family(Derived::Build).value(&[env!("CARGO_PKG_VERSION")], 1);
    text.value(Derived::Up, u8::from(polled.reading.is_ok()));
    if let Ok(reading) = &polled.reading {
        cluster(&mut text, reading);
        gateway(&mut text, reading.gateway.as_ref(), polled.unix);
        failovers(&mut text, polled);
        processes(&mut text, reading);
    }
    exporter(&mut text, polled, served);
    text.finish()
}

fn cluster(text: &mut Exposition, reading: &Reading) {
    let snapshot = &reading.snapshot;
    let mut health = text.family(Derived::Health);
    for state in
        [Health::Healthy, Health::Degraded, Health::Unreachable, Health::Unavailable, Health::Unknown]
    {
        health.value(&[state.name()], u8::from(state == snapshot.health));
    }
    if let Some(serves) = snapshot.health.is_known_to_serve() {
        text.value(Derived::Serves, u8::from(serves));
    }
    text.value(Derived::HealthReasons, snapshot.reasons.len());
    let Some(view) = snapshot.view.as_deref() else { return };
    text.value(Derived::View, view.id);
    text.value(Derived::ViewMembers, view.members.len());
    text.value(Derived::LeaseDuration, seconds(view.lease));
    let (deciders, running) = (view.acceptors.len(), reading.deciders_running);
    text.value(Derived::Deciders, deciders);
    text.value(Derived::DecidersRunning, running);
    let left = spare(deciders, running).and_then(|n| i64::try_from(n).ok());
    text.value(Derived::DecidersSpare, left.unwrap_or(-1));
}

fn gateway(text: &mut Exposition, gateway: Option<&Gateway>, unix: u64) {
    let Some(gateway) = gateway else { return };
    text.value(Derived::GatewayRuns, u8::from(gateway.counters.is_some()));
    text.value(Derived::CertificateValid, u8::from(gateway.valid_for.is_some()));
    if let Some(left) = gateway.valid_for {
        // To the minute, so that the same certificate has the same time in every poll.
        let end = (unix / 1_000_000_000).saturating_add(left.as_secs());
        text.value(Derived::CertificateExpiry, end / 60 * 60);
    }
    for (counter, value) in GatewayCounter::ALL.iter().zip(gateway.counters.iter().flatten()) {
        text.value(*counter, value);
    }
}

fn failovers(text: &mut Exposition, polled: &Polled) {
    let counted = &polled.failovers;
    text.value(Derived::Failovers, counted.failovers);
    text.value(Derived::FailoversIncomplete, counted.incomplete);
    let exemplars: Vec<_> = counted.exemplars.iter().cloned().collect();
    text.family(Derived::Failover).histogram(&[], &counted.total, &exemplars);
    let mut phases = text.family(Derived::FailoverPhase);
    for (phase, counted) in PHASES.iter().zip(&counted.phases) {
        phases.histogram(&[phase], counted, &[]);
    }
    text.value(Derived::EventsLost, counted.events_lost);
}

/// What of a process is a gauge; `None` where it does not apply.
type Gauge = fn(&Row, &Reading) -> Option<String>;

fn flag(is_so: bool) -> Option<String> {
    Some(u8::from(is_so).to_string())
}

fn at(reading: &Reading) -> Instant {
    reading.snapshot.at
}

const GAUGES: [(Derived, Gauge); 10] = [
    (Derived::Runs, |row, _| flag(row.process.alive && !row.process.frozen)),
    (Derived::Frozen, |row, _| flag(row.process.frozen).filter(|_| row.is_here)),
    (Derived::Left, |row, _| flag(!row.process.alive && row.process.left)),
    (Derived::Active, |row, reading| {
        flag(row.process.is_active(at(reading))).filter(|_| row.process.kind != Kind::Coordinator)
    }),
    (Derived::Leads, |row, reading| {
        flag(reading.leader == Some(row.process.name)).filter(|_| row.process.kind == Kind::Coordinator)
    }),
    (Derived::ProcessView, |row, _| row.process.view.as_ref().map(|view| view.id.to_string())),
    (Derived::LeaseRemaining, |row, reading| row.process.margin(at(reading)).map(seconds)),
    (Derived::MarginLeast, |row, _| row.least.map(seconds)),
    (Derived::ReadAge, |row, _| Some(seconds(row.age)).filter(|_| row.process.alive && !row.process.frozen)),
    (Derived::JoinHold, |row, reading| {
        let left: Nanos = row.process.hold_left(at(reading));
        Some(seconds(left)).filter(|_| row.process.alive)
    }),
];

/// Whether a process of this kind has such a distribution.
fn has(kind: Kind, of: Histogram) -> bool {
    let decides = matches!(of, Histogram::Decide | Histogram::Clear);
    decides == (kind == Kind::Coordinator)
}

fn processes(text: &mut Exposition, reading: &Reading) {
    for (metric, gauge) in GAUGES {
        let mut family = text.family(metric);
        for row in &reading.rows {
            let Some(value) = gauge(row, reading) else { continue };
            family.value(&[row.process.name.as_str(), row.process.kind.name()], value);
        }
    }
    for (which, of) in Histogram::ALL.iter().enumerate() {
        let mut family = text.family(*of);
        for row in &reading.rows {
            let Some(all) = row.durations.as_ref().and_then(|durations| durations.get(which)) else {
                continue;
            };
            if has(row.process.kind, *of) || !all.counts().is_empty() {
                family.histogram(&[row.process.name.as_str(), row.process.kind.name()], all, &[]);
            }
        }
    }
    for counter in Counter::ALL {
        let mut family = text.family(*counter);
        for Row { process, .. } in &reading.rows {
            family.value(&[process.name.as_str(), process.kind.name()], process.counter(*counter));
        }
    }
}

fn exporter(text: &mut Exposition, polled: &Polled, served: Served) {
    let own = polled.own;
    text.value(Derived::Polls, own.polls);
    text.value(Derived::PollsFailed, own.polls_failed);
    text.value(Derived::PollDuration, seconds(polled.took));
    text.value(Derived::LastPoll, seconds(Nanos(polled.unix)));
    text.value(Derived::Reads, own.load.reads);
    text.value(Derived::ReadBytes, own.load.bytes);
    text.value(Derived::ReadsTorn, own.load.torn);
    text.value(Derived::Scrapes, served.scrapes);
    text.value(Derived::ConnectionsRefused, served.refused);
}
