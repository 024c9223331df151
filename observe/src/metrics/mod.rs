//! The metrics that monitoring systems get: names, types, units, labels and help, in one table for
//! the exporter, reports, alert rules, dashboards and documentation. [`text`] writes them.

pub mod text;

use obol_fabric::metrics::{CounterSlot, FabricCounter};
use obol_fabric_ip::GatewayCounter;
use obol_membership::metrics::{Counter, Histogram};

/// The type of a metric, as in OpenMetrics 1.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// It only grows.
    Counter,
    /// It has some value now.
    Gauge,
    /// A distribution by cumulative buckets.
    Histogram,
    /// A distribution by quantiles.
    Summary,
    /// Facts as labels, with the value 1.
    Info,
}

impl Type {
    /// Its name in OpenMetrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
            Self::Info => "info",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// `obol export` only.
    Export,
    /// `obol report --format openmetrics` only.
    Report,
    Both,
}

/// The labels of what one process counts, besides `cluster`.
const PROCESS: &[&str] = &["process", "kind"];

/// Declares the metrics that are not slots of a region.
macro_rules! derived {
    ($($(#[doc = $doc:literal])* $variant:ident = $kind:ident $name:literal $labels:expr, $writer:ident;)+) => {
        /// A metric that is derived from what was read.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Derived { $($(#[doc = $doc])* $variant,)+ }

        impl Derived {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            const fn row(self) -> (&'static str, Type, &'static [&'static str], &'static str, Writer) {
                match self {
                    $(Self::$variant => (
                        $name,
                        Type::$kind,
                        $labels,
                        concat!($($doc),*).trim_ascii(),
                        Writer::$writer,
                    ),)+
                }
            }
        }
    };
}

derived! {
    /// Whether the last poll could read the cluster.
    Up = Gauge "up" &[], Export;
    /// The health of the cluster: 1 for its state, 0 for the others.
    Health = Gauge "health" &["state"], Export;
    /// Whether at least some programs may act under leases: the cluster is healthy or degraded. Absent while that is not known.
    Serves = Gauge "serves" &[], Export;
    /// How many reasons there are why the cluster is not healthy; `obol status` has their text.
    HealthReasons = Gauge "health_reasons" &[], Export;
    /// The newest decided view.
    View = Gauge "view" &[], Both;
    /// Members of the newest view.
    ViewMembers = Gauge "view_members" &[], Export;
    /// How long a lease on the newest view lasts.
    LeaseDuration = Gauge "lease_duration_seconds" &[], Export;
    /// Coordinators that decide in the newest view.
    Deciders = Gauge "deciders" &[], Export;
    /// Deciding coordinators that run or are frozen: their memory answers.
    DecidersRunning = Gauge "deciders_running" &[], Export;
    /// How many more deciding coordinators may fail without loss of the majority; -1 if it is lost.
    DecidersSpare = Gauge "deciders_spare" &[], Export;
    /// Whether a process runs: neither stopped nor dead.
    Runs = Gauge "runs" PROCESS, Both;
    /// Whether a process is stopped (SIGSTOP). Known on its own host only.
    Frozen = Gauge "frozen" PROCESS, Export;
    /// Whether a process left on request, so that it is not missed.
    Left = Gauge "left" PROCESS, Export;
    /// Whether the newest view is active for a process.
    Active = Gauge "active" PROCESS, Both;
    /// Whether a coordinator leads, by the newest view.
    Leads = Gauge "leads" PROCESS, Export;
    /// The newest view that a process knows.
    ProcessView = Gauge "process_view" PROCESS, Export;
    /// What was left of the lease of a process when it was read.
    LeaseRemaining = Gauge "lease_remaining_seconds" PROCESS, Export;
    /// The least margin of a lease at a renewal in the last minute.
    MarginLeast = Gauge "margin_least_seconds" PROCESS, Export;
    /// The age of the last consistent read of a running process.
    ReadAge = Gauge "read_age_seconds" PROCESS, Export;
    /// For how long the join of a process is still on hold, because members of its name died, left or
    /// were suspected repeatedly.
    JoinHold = Gauge "join_hold_seconds" PROCESS, Export;
    /// Failovers that the exporter has seen.
    Failovers = Counter "failovers" &[], Export;
    /// Failovers without a duration, because stamps are missing or within the error of clocks.
    FailoversIncomplete = Counter "failovers_incomplete" &[], Export;
    /// From the first notice of a death at the decider to the last process that became active
    /// without the dead.
    Failover = Histogram "failover_seconds" &[], Export;
    /// The phases of a failover.
    FailoverPhase = Histogram "failover_phase_seconds" &["phase"], Export;
    /// Events of flight recorders that were overwritten before the exporter read them.
    EventsLost = Counter "events_lost" &[], Export;
    /// Whether the gateway of this host runs.
    GatewayRuns = Gauge "gateway_runs" &[], Export;
    /// Whether the certificate of this host is valid.
    CertificateValid = Gauge "gateway_certificate_valid" &[], Export;
    /// When the certificate of this host expires; there is none if it is not valid.
    CertificateExpiry = Gauge "gateway_certificate_expiry_timestamp_seconds" &[], Export;
    /// The version of obol.
    Build = Info "build" &["version"], Export;
    /// Polls of the cluster by the exporter.
    Polls = Counter "export_polls" &[], Export;
    /// Polls that could not read the cluster.
    PollsFailed = Counter "export_polls_failed" &[], Export;
    /// How long the last poll took.
    PollDuration = Gauge "export_poll_duration_seconds" &[], Export;
    /// When the last poll ended.
    LastPoll = Gauge "export_last_poll_timestamp_seconds" &[], Export;
    /// READs of parts of regions by the exporter.
    Reads = Counter "export_reads" &[], Export;
    /// Bytes that the exporter has READ.
    ReadBytes = Counter "export_read_bytes" &[], Export;
    /// READs that were repeated because of a concurrent writer.
    ReadsTorn = Counter "export_reads_torn" &[], Export;
    /// Scrapes that were answered.
    Scrapes = Counter "export_scrapes" &[], Export;
    /// Connections that were closed at once, because too many were open.
    ConnectionsRefused = Counter "export_connections_refused" &[], Export;
    /// How long no program could act, in the time of the report.
    NoService = Gauge "no_service_seconds" &[], Report;
    /// Durations; for the margin, the time left, from above.
    Span = Summary "span_seconds" &["of"], Report;
}

/// One metric family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// A counter of each process.
    Process(Counter),
    /// A distribution of each process that owns a region.
    Duration(Histogram),
    /// A counter of this host's gateway.
    Gateway(GatewayCounter),
    Derived(Derived),
}

impl From<Counter> for Metric {
    fn from(counter: Counter) -> Self {
        Self::Process(counter)
    }
}

impl From<Histogram> for Metric {
    fn from(histogram: Histogram) -> Self {
        Self::Duration(histogram)
    }
}

impl From<GatewayCounter> for Metric {
    fn from(counter: GatewayCounter) -> Self {
        Self::Gateway(counter)
    }
}

impl From<Derived> for Metric {
    fn from(derived: Derived) -> Self {
        Self::Derived(derived)
    }
}

impl Metric {
    /// All metrics, in the order in which they are written.
    pub fn all() -> impl Iterator<Item = Self> {
        let derived = Derived::ALL.iter().copied().map(Self::Derived);
        let durations = Histogram::ALL.iter().copied().map(Self::Duration);
        let gateways = GatewayCounter::ALL.iter().copied().map(Self::Gateway);
        derived.chain(durations).chain(gateways).chain(Counter::ALL.iter().copied().map(Self::Process))
    }

    /// The name of the family, with the unit and without a suffix such as `_total`.
    pub fn name(self) -> String {
        match self {
            Self::Process(counter) => format!("obol_{}", counter.name()),
            Self::Duration(histogram) => format!("obol_{}_seconds", histogram.name()),
            Self::Gateway(counter) => format!("obol_gateway_{}", counter.name()),
            Self::Derived(derived) => format!("obol_{}", derived.row().0),
        }
    }

    /// The name of its series in queries: with `_total` for a counter and `_info` for facts.
    /// Histograms have [`Metric::part`].
    pub fn series(self) -> String {
        self.name() + self.suffix()
    }

    /// The name of one of the series of a histogram: `bucket`, `count` or `sum`.
    pub fn part(self, part: Part) -> String {
        format!("{}_{}", self.name(), part.name())
    }

    /// What its samples have behind the family's name.
    pub const fn suffix(self) -> &'static str {
        match self.kind() {
            Type::Counter => "_total",
            Type::Info => "_info",
            Type::Gauge | Type::Histogram | Type::Summary => "",
        }
    }

    pub const fn kind(self) -> Type {
        match self {
            Self::Process(_) | Self::Gateway(_) => Type::Counter,
            Self::Duration(_) => Type::Histogram,
            Self::Derived(derived) => derived.row().1,
        }
    }

    /// Its unit, with which its name ends; `None` for numbers.
    pub fn unit(self) -> Option<&'static str> {
        let name = self.name();
        ["seconds", "bytes"].into_iter().find(|unit| name.ends_with(unit))
    }

    /// The names of its labels, besides `cluster`.
    pub const fn labels(self) -> &'static [&'static str] {
        match self {
            Self::Process(_) | Self::Duration(_) => PROCESS,
            Self::Gateway(_) => &[],
            Self::Derived(derived) => derived.row().2,
        }
    }

    /// What it is: one or more sentences without markup.
    pub fn help(self) -> String {
        let text = match self {
            Self::Process(counter) => match FabricCounter::try_from(CounterSlot::from(counter)) {
                Ok(own) => own.help(),
                Err(_) => counter.help(),
            },
            Self::Duration(histogram) => histogram.help(),
            Self::Gateway(counter) => counter.help(),
            Self::Derived(derived) => derived.row().3,
        };
        text.replace(['`', '[', ']'], "")
    }

    pub const fn writer(self) -> Writer {
        match self {
            Self::Process(_) => Writer::Both,
            Self::Duration(_) | Self::Gateway(_) => Writer::Export,
            Self::Derived(derived) => derived.row().4,
        }
    }
}

/// A series of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Samples up to a bound, the label `le`.
    Bucket,
    /// All samples.
    Count,
    Sum,
}

impl Part {
    const fn name(self) -> &'static str {
        match self {
            Self::Bucket => "bucket",
            Self::Count => "count",
            Self::Sum => "sum",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_name_is_unique_and_follows_the_rules_of_openmetrics() {
        let mut names = BTreeSet::new();
        for metric in Metric::all() {
            let name = metric.name();
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
            for reserved in ["_total", "_count", "_sum", "_bucket", "_created", "_info"] {
                assert!(!name.ends_with(reserved), "{name}");
            }
            let series = match metric.kind() {
                Type::Histogram => {
                    [Part::Bucket, Part::Count, Part::Sum].map(|part| metric.part(part)).to_vec()
                }
                _ => vec![metric.series()],
            };
            for series in series {
                assert!(names.insert(series.clone()), "{series} is there twice");
            }
            assert!(!metric.labels().contains(&"cluster"), "{name}: every metric has this label");
        }
    }

    #[test]
    fn every_metric_has_help_of_whole_sentences() {
        for metric in Metric::all() {
            let help = metric.help();
            assert!(help.len() > 10 && help.ends_with('.'), "{}: {help:?}", metric.name());
            assert!(!help.contains(['\n', '"', '\\', '`', '[']), "{}: {help:?}", metric.name());
            assert!(!help.starts_with("As Fabric"), "{}: {help:?}", metric.name());
        }
    }
}
