//! The table of parameters: the single definition of a testbed's contents. Reading, bounds,
//! suggestions and the reference are derived from it.

use super::Testbed;
use obol_config::duration::print;
use obol_fabric::Nanos;
use obol_fabric_sim::{BILLION, Quantiles};
use serde::Serialize;

/// One parameter.
pub(super) struct Key {
    /// Its table and name, such as `read.latency`.
    pub(super) path: &'static str,
    /// Its type, and where the value is stored.
    pub(super) kind: Kind,
    /// Its description.
    pub(super) doc: &'static str,
}

/// The type of a parameter.
pub(super) enum Kind {
    /// A constant duration.
    Span(fn(&mut Testbed) -> &mut Nanos),
    /// A distribution of durations.
    Spread(fn(&mut Testbed) -> &mut Quantiles),
    /// A whole number.
    Number { unit: &'static str, low: u32, high: u32, at: fn(&mut Testbed) -> &mut u32 },
}

/// The maximum duration in a testbed: anything longer is probably a wrong unit.
pub(super) const LONGEST: Nanos = Nanos::from_millis(100);

impl Key {
    pub(super) fn table(&self) -> &'static str {
        self.path.split_once('.').map_or(self.path, |(table, _)| table)
    }

    pub(super) fn name(&self) -> &'static str {
        self.path.split_once('.').map_or(self.path, |(_, name)| name)
    }

    /// The required form in a file.
    pub(super) fn wanted(&self) -> String {
        let source = "source = \"paper, section\" }";
        match self.kind {
            Kind::Span(_) => format!("{{ value = \"1.5us\", {source}, at most {}", print(LONGEST)),
            Kind::Spread(_) => format!(
                "{{ value = \"1.5us\", {source}, or with points = [[0, \"1us\"], [0.5, \"2us\"], [1, \"9us\"]] for value"
            ),
            Kind::Number { unit, low, high, .. } => {
                format!("{{ value = {low}, {source}, {low} to {high} {unit}")
            }
        }
    }
}

/// Tables in the order of [`KEYS`].
pub(super) fn tables() -> impl Iterator<Item = &'static str> {
    let mut last = None;
    KEYS.iter().map(Key::table).filter(move |table| last.replace(*table) != Some(*table))
}

const fn span(path: &'static str, at: fn(&mut Testbed) -> &mut Nanos, doc: &'static str) -> Key {
    Key { path, kind: Kind::Span(at), doc }
}

const fn spread(path: &'static str, at: fn(&mut Testbed) -> &mut Quantiles, doc: &'static str) -> Key {
    Key { path, kind: Kind::Spread(at), doc }
}

const OVERHEAD: &str = "LogGP o: how long the poster's processor is busy.";
const LATENCY: &str = "LogGP L: from the post to the completion, both ways, without overheads.";
const ONE_WAY: &str = "LogGP L: from the post to the receiver's queue, without overheads.";
const PER_KIB: &str = "LogGP G: added for each KiB within the first packet.";

/// Every parameter.
pub(super) static KEYS: &[Key] = &[
    span("read.overhead", |t| &mut t.model.read.overhead, OVERHEAD),
    spread("read.latency", |t| &mut t.model.read.latency, LATENCY),
    span("read.per_kib", |t| &mut t.model.read.per_kib, PER_KIB),
    span("write.overhead", |t| &mut t.model.write.overhead, OVERHEAD),
    spread("write.latency", |t| &mut t.model.write.latency, LATENCY),
    span("write.per_kib", |t| &mut t.model.write.per_kib, PER_KIB),
    span("write_inline.overhead", |t| &mut t.model.write_inline.overhead, OVERHEAD),
    spread("write_inline.latency", |t| &mut t.model.write_inline.latency, LATENCY),
    span("write_inline.per_kib", |t| &mut t.model.write_inline.per_kib, PER_KIB),
    span("cas.overhead", |t| &mut t.model.cas.overhead, OVERHEAD),
    spread("cas.latency", |t| &mut t.model.cas.latency, LATENCY),
    span("cas.per_kib", |t| &mut t.model.cas.per_kib, PER_KIB),
    span(
        "datagram.overhead",
        |t| &mut t.model.datagram.overhead,
        "LogGP o: how long the sender's processor is busy, and the receiver's.",
    ),
    spread("datagram.latency", |t| &mut t.model.datagram.latency, ONE_WAY),
    span("datagram.per_kib", |t| &mut t.model.datagram.per_kib, PER_KIB),
    span(
        "datagram_inline.overhead",
        |t| &mut t.model.datagram_inline.overhead,
        "LogGP o: how long the sender's processor is busy, and the receiver's.",
    ),
    spread("datagram_inline.latency", |t| &mut t.model.datagram_inline.latency, ONE_WAY),
    span("datagram_inline.per_kib", |t| &mut t.model.datagram_inline.per_kib, PER_KIB),
    spread(
        "multicast.extra",
        |t| &mut t.model.multicast,
        "Added to a datagram's latency when it goes to a group.",
    ),
    Key {
        path: "nic.inline_bytes",
        kind: Kind::Number { unit: "bytes", low: 8, high: 1024, at: |t| &mut t.model.inline_bytes },
        doc: "The longest payload that goes with its post.",
    },
    Key {
        path: "nic.mtu_bytes",
        kind: Kind::Number { unit: "bytes", low: 256, high: 9000, at: |t| &mut t.model.mtu_bytes },
        doc: "Bytes of a packet.",
    },
    span(
        "nic.gap",
        |t| &mut t.model.gap,
        "A NIC's time for one message, out or in: the inverse of its message rate.",
    ),
    span(
        "nic.link_per_kib",
        |t| &mut t.model.link_per_kib,
        "A link's time for one KiB: the inverse of its bandwidth.",
    ),
    spread(
        "network.saturated",
        |t| &mut t.saturated,
        "Delay that a saturated network adds in each direction: full queues in front of a port.",
    ),
    span("core.poll", |t| &mut t.model.poll, "LogGP op: processor time for taking a completion."),
    spread("core.step", |t| &mut t.model.step, "Time of a machine to handle an event."),
    spread(
        "core.interval",
        |t| &mut t.model.interval,
        "Polling interval of a core: completions wait for the next poll.",
    ),
    spread("core.interval_loaded", |t| &mut t.interval_loaded, "The same under the full memory load."),
    spread(
        "death.exit",
        |t| &mut t.model.notice,
        "From a kill to its notice at a watcher, when the kernel reports the exit. Also the proof.",
    ),
    spread(
        "death.signal",
        |t| &mut t.signal,
        "From a kill to its notice at a watcher, when the kernel reports the signal. No proof: user code still runs.",
    ),
    spread("death.spread", |t| &mut t.spread, "Interval between kills that are meant to be simultaneous."),
    span("deployment.lease", |t| &mut t.deployment.lease, "How long a lease lasts, delta."),
    span(
        "deployment.cache_lease",
        |t| &mut t.deployment.cache_lease,
        "How long a lease cache's own lease lasts, Delta.",
    ),
    span(
        "deployment.renew_every",
        |t| &mut t.deployment.renew_every,
        "Pause between a renewal and the next.",
    ),
    span(
        "deployment.heartbeat_every",
        |t| &mut t.deployment.heartbeat_every,
        "Longest pause between two increments of a process's heartbeat.",
    ),
    span(
        "deployment.heartbeat_period",
        |t| &mut t.deployment.heartbeat_period,
        "Pause between two READs of a successor's heartbeat.",
    ),
    Key {
        path: "deployment.drift_ppm",
        kind: Kind::Number { unit: "ppm", low: 1, high: 10_000, at: |t| &mut t.deployment.drift_ppm },
        doc: "Assumed drift of a clock: waits are lengthened and leases shortened by it.",
    },
];

/// A parameter for reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Parameter {
    /// Its table and name.
    pub key: &'static str,
    /// The value, or the median and the range of a distribution.
    pub value: String,
    /// The source of the value.
    pub source: String,
    /// Its description.
    pub meaning: &'static str,
}

pub(super) fn parameters(testbed: &Testbed) -> Vec<Parameter> {
    let mut copy = testbed.clone();
    let shown = |kind: &Kind, copy: &mut Testbed| match kind {
        Kind::Span(at) => at(copy).to_string(),
        Kind::Number { unit, at, .. } => format!("{} {unit}", at(copy)),
        Kind::Spread(at) => {
            let spread = at(copy);
            let (low, high) = (spread.at(0), spread.at(BILLION));
            if low == high { low.to_string() } else { format!("{} ({low} to {high})", spread.median()) }
        }
    };
    KEYS.iter()
        .map(|key| Parameter {
            key: key.path,
            value: shown(&key.kind, &mut copy),
            source: testbed.sources.get(key.path).cloned().unwrap_or_default(),
            meaning: key.doc,
        })
        .collect()
}
