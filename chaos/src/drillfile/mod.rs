//! Drill files: steady states, faults and their cues, repetitions, and bounds on the figures.
//!
//! Files are parsed strictly. Unknown keys, values out of bounds, and percentiles that need more
//! repetitions are rejected, all at once, with line, column and the nearest known name. Nothing
//! here touches a cluster.

mod external;
pub(crate) mod guards;
mod limits;
mod places;
mod probe;
mod read;
mod schema;
mod shipped;
mod store;
pub(crate) mod target;

pub use crate::faults::order::TargetKind;
pub use crate::faults::{Allowed, Key};
pub use external::{Comparison, External, Operator, Watch};
pub use guards::{Abort, AbortMetric, Guards, Keep};
pub use places::Places;
pub use probe::Probe;
pub use read::parse;
pub use schema::schema;
pub use shipped::{Shipped, load, shipped};
pub use store::{Change, StoreDrill, StoreStep};
pub use target::{Select, Target};

use crate::faults::{Fault, Scope};
use obol_fabric::{Name, Nanos};
use obol_observe::{Percentile, named_enum};
use std::sync::Arc;

/// The schema version of this program.
pub const SCHEMA: u32 = 1;

#[derive(Clone, Debug, PartialEq)]
pub struct Drill {
    pub id: String,
    /// Title of one line.
    pub title: String,
    /// The label that the cluster must have been started with.
    pub environment: Name,
    /// Seed of all random choices.
    pub seed: u32,
    /// Repetitions.
    pub repeat: Repeat,
    /// Time limit of the whole drill.
    pub timeout: Nanos,
    /// Limits for each repetition.
    pub guards: Guards,
    /// The possible victims, by name.
    pub targets: Vec<Target>,
    /// The states that must hold before and after.
    pub steady: Vec<Steady>,
    /// The steps of each repetition, in this order.
    pub steps: Vec<Step>,
    /// Bounds on the figures.
    pub expect: Vec<Expect>,
    /// What is undone after a repetition.
    pub rollback: Rollback,
    /// Files that the run writes.
    pub report: ReportFiles,
}

impl Drill {
    /// Whether it can reach a verdict: it has a bound, a state that must hold afterwards, or a fault that
    /// must be tolerated.
    pub fn judges(&self) -> bool {
        let tolerates = self.steps.iter().flat_map(|step| &step.faults).any(|fault| fault.tolerated);
        tolerates || !self.expect.is_empty() || self.steady.iter().any(|steady| steady.after)
    }
}

/// Repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// Repetitions that count.
    pub count: u32,
    /// Warm-ups before them, which do not count.
    pub warmup: u32,
    /// Pause after each.
    pub gap: Nanos,
    /// The drill ends after this many failed repetitions.
    pub stop_after_failures: u32,
}

/// A state that must hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Steady {
    pub probe: Probe,
    /// Its parameters, if it is one of something outside of the cluster.
    pub external: Option<External>,
    /// The required result of the probe.
    pub tolerance: bool,
    /// Before the first cue.
    pub before: bool,
    /// After the last repetition.
    pub after: bool,
}

/// One step of a repetition.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub name: String,
    /// When it happens.
    pub on: On,
    /// A repetition with a larger skew is void; by default 200 us on one host, 10 ms between hosts.
    pub max_cue_skew: Option<Nanos>,
    /// Its faults, all on the same cue.
    pub faults: Vec<StepFault>,
}

/// When a step happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// On the repetition's cue.
    Cue,
    /// On a cue of its own, when the previous step has been undone and the cluster is healthy.
    Settled,
}

/// A fault of a step.
#[derive(Clone, Debug)]
pub struct StepFault {
    pub kind: Arc<dyn Fault>,
    /// Names of its targets. Faults of the whole host have none.
    pub targets: Vec<String>,
    /// How long it lasts; `None` for a kill, which only a restart undoes.
    pub lasts: Option<Nanos>,
    /// Whether its targets are expected to stay members: it is over before they are suspected.
    pub tolerated: bool,
}

impl PartialEq for StepFault {
    fn eq(&self, other: &Self) -> bool {
        let Self { kind, targets, lasts, tolerated } = self;
        (&**kind, targets, lasts, tolerated) == (&*other.kind, &other.targets, &other.lasts, &other.tolerated)
    }
}

impl StepFault {
    /// Whether it hits the hosts of its targets, with all their processes.
    pub fn hits_hosts(&self) -> bool {
        self.kind.scope() == Scope::Network
    }

    /// Whether it ends the hosts of its targets, so that nothing but an operator undoes it.
    pub fn crashes_hosts(&self) -> bool {
        self.hits_hosts() && self.kind.effect().ends()
    }

    /// Whether the cluster is expected to detect it, and to go on without its targets.
    pub fn silences(&self) -> bool {
        self.kind.effect().silences() && !self.tolerated
    }

    /// Whether it ends processes of this target.
    pub fn ends(&self, target: &str) -> bool {
        self.kind.effect().ends() && self.targets.iter().any(|name| name == target)
    }
}

/// Why hosts are crashed once.
pub(crate) const CRASHED_ONCE: &str =
    "a host that has crashed is started by an operator, so it is crashed once";

/// The key of the bound on a count.
pub const AT_MOST: &str = "at_most";

/// Bounds on a figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    /// The figure.
    pub metric: Metric,
    /// Bounds on its percentiles.
    pub bounds: Vec<(Percentile, Nanos)>,
    /// Bound on a count.
    pub at_most: Option<u32>,
}

named_enum! {
    /// A figure of a drill.
    Metric {
        /// First stamp of the cue to the `active` of the last program that survives, or, if none does,
        /// of the last agent.
        CueToActive = "failover.cue_to_active",
        /// The same of the last agent that survives.
        ToAgents = "failover.to_agents",
        /// First stamp of the cue until the last coordinator that survives has the view.
        ToCoordinators = "failover.to_coordinators",
        /// Its phases.
        Notice = "failover.notice",
        /// Notice to proposal.
        Propose = "failover.propose",
        /// Proposal to decision.
        Decide = "failover.decide",
        /// Decision to the end of older leases.
        Fence = "failover.fence",
        Clear = "failover.clear",
        /// CLEAR to the last program's `active`.
        Active = "failover.active",
        /// Between the first and the last stamp of a cue.
        Skew = "cue.skew",
        /// Members that were removed as failed although no fault had hit them: a count.
        FalselyFailed = "members.falsely_failed",
        /// Members that were removed as failed: a count.
        Failed = "members.failed",
    }
}

impl Metric {
    /// All that are distributions of durations.
    pub fn figures() -> impl Iterator<Item = Self> {
        Self::ALL.iter().map(|(_, metric)| *metric).filter(|metric| !metric.is_count())
    }

    /// Whether it is part of a failover, and so measured only if a fault silences a process.
    pub const fn is_of_failover(self) -> bool {
        !self.is_count() && !matches!(self, Self::Skew)
    }

    /// Whether it is a phase of a failover.
    pub const fn is_phase(self) -> bool {
        let whole = matches!(self, Self::CueToActive | Self::ToAgents | Self::ToCoordinators);
        self.is_of_failover() && !whole
    }

    /// Whether it is a count and not a distribution of durations.
    pub const fn is_count(self) -> bool {
        matches!(self, Self::FalselyFailed | Self::Failed)
    }
}

/// What is undone after a repetition. Reversible faults are always undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollback {
    /// When.
    pub strategy: Strategy,
    /// Targets to restart if they are down.
    pub restart: Vec<String>,
}

/// When a rollback happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// After each repetition.
    Always,
    /// After a repetition that failed.
    Deviated,
    /// Never.
    Never,
}

/// Files that a run writes to its output directory: plain names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportFiles {
    /// Every repetition, as JSON.
    pub journal: Option<String>,
    /// Chrome trace events, for Perfetto.
    pub trace: Option<String>,
    /// OpenMetrics.
    pub metrics: Option<String>,
    /// HdrHistogram log.
    pub histogram: Option<String>,
    /// JUnit XML, for build servers.
    pub junit: Option<String>,
    /// The postmortem as Markdown, with its charts beside it.
    pub markdown: Option<String>,
    /// The postmortem as one self-contained page.
    pub html: Option<String>,
}

impl ReportFiles {
    /// The keys, with the file names that are used by default.
    pub const DEFAULTS: [(&'static str, &'static str); 7] = [
        ("journal", "journal.json"),
        ("trace", "timeline.json"),
        ("metrics", "metrics.txt"),
        ("histogram", "figures.hlog"),
        ("junit", "junit.xml"),
        ("markdown", "postmortem.md"),
        ("html", "postmortem.html"),
    ];

    /// The field of a key.
    pub fn place(&mut self, key: &str) -> Option<&mut Option<String>> {
        Some(match key {
            "journal" => &mut self.journal,
            "trace" => &mut self.trace,
            "metrics" => &mut self.metrics,
            "histogram" => &mut self.histogram,
            "junit" => &mut self.junit,
            "markdown" => &mut self.markdown,
            "html" => &mut self.html,
            _ => return None,
        })
    }

    /// Every file under its default name.
    pub fn all() -> Self {
        let mut files = Self::default();
        for (key, name) in Self::DEFAULTS {
            if let Some(place) = files.place(key) {
                *place = Some(name.to_owned());
            }
        }
        files
    }

    /// Whether no file is named.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
