//! Drill files: what must hold, what breaks, on which cue, how often, and which bounds the figures
//! must meet.
//!
//! A file is read strictly: unknown keys, values out of bounds, and percentiles that so few
//! repetitions can not claim are refused, all at once, with line, column and the nearest known
//! name. Nothing here touches a cluster.

mod read;
pub(crate) mod schema;
pub(crate) mod section;
mod shipped;

pub use read::parse;
pub(crate) use schema::names;
pub use schema::schema;
pub use shipped::{Shipped, load, shipped};

use crate::faults::Fault;
use obol_fabric::{Name, Nanos};
use obol_observe::{Percentile, words};
use std::sync::Arc;

/// The schema that this program reads.
pub const SCHEMA: u32 = 1;

/// A drill.
#[derive(Clone, Debug, PartialEq)]
pub struct Drill {
    /// What it is called.
    pub id: String,
    /// What it does, in one line.
    pub title: String,
    /// The label that the cluster must have been started with.
    pub environment: Name,
    /// Every random choice derives from it.
    pub seed: u32,
    /// How often.
    pub repeat: Repeat,
    /// The drill ends after this time, however many repetitions are left.
    pub timeout: Nanos,
    /// What no repetition may do.
    pub guards: Guards,
    /// Who may be hit, by name.
    pub targets: Vec<Target>,
    /// What must hold before and after.
    pub steady: Vec<Steady>,
    /// What happens in each repetition, in this order.
    pub steps: Vec<Step>,
    /// Bounds on the figures.
    pub expect: Vec<Expect>,
    /// What is undone after a repetition.
    pub rollback: Rollback,
    /// Files that the run leaves.
    pub report: ReportFiles,
}

impl Drill {
    /// Whether it has anything to hold what it finds against: a bound, or a state that must hold
    /// afterwards.
    #[must_use]
    pub fn judges(&self) -> bool {
        !self.expect.is_empty() || self.steady.iter().any(|steady| steady.after)
    }
}

/// How often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// Repetitions that count.
    pub count: u32,
    /// Repetitions before them, which do not.
    pub warmup: u32,
    /// Pause after each.
    pub gap: Nanos,
    /// The drill ends after so many failed repetitions.
    pub stop_after_failures: u32,
}

/// What no repetition may do. The runner and each fault agent check them, each by what it sees
/// itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Guards {
    /// Processes that one repetition may hit.
    pub max_targets: u32,
    /// Coordinators that must be left.
    pub keep_acceptors: Keep,
    /// Lease caches that must be left.
    pub keep_lease_caches: u32,
    /// Host names that are never touched; `*` stands for any text.
    pub deny_hosts: Vec<String>,
    /// Whether a person has to say yes.
    pub require_confirm: bool,
    /// Whether `CLOCK_REALTIME` may jump, for all programs of the host.
    pub allow_clock_step: bool,
    /// A fault agent undoes its faults if it hears nothing for so long.
    pub dead_man: Nanos,
    /// When the drill is aborted.
    pub abort: Vec<Abort>,
}

impl Default for Guards {
    fn default() -> Self {
        Self {
            max_targets: 3,
            keep_acceptors: Keep::Majority,
            keep_lease_caches: 0,
            deny_hosts: Vec::new(),
            require_confirm: false,
            allow_clock_step: false,
            dead_man: Nanos::from_secs(3),
            abort: Vec::new(),
        }
    }
}

/// How many must be left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// More than half.
    Majority,
    /// So many.
    Number(u32),
}

/// A condition that aborts the drill.
#[derive(Clone, Debug, PartialEq)]
pub struct Abort {
    /// What is looked at.
    pub metric: AbortMetric,
    /// Aborts above this value.
    pub above: f64,
    /// In so many repetitions one after the other.
    pub samples: u32,
}

words! {
    /// What an abort condition looks at.
    AbortMetric {
        /// How long two incompatible views could be used at the same time, in nanoseconds.
        OverlapNs = "overlap_ns",
        /// Cue to the last survivor's `active`, in microseconds.
        UnavailableUs = "unavailable_us",
        /// Members that were removed although nobody had hit them.
        FalseSuspicions = "false_suspicions",
        /// Skew of the stamps of one cue, in microseconds.
        SkewUs = "skew_us",
    }
}

/// Who may be hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What the drill calls it.
    pub name: String,
    /// Which kind of process.
    pub kind: TargetKind,
    /// Which of them.
    pub select: Select,
    /// For a lease cache: it is the one that renews this target's leases.
    pub serving: Option<String>,
}

words! {
    /// Which kind of process.
    TargetKind {
        /// An application.
        App = "app",
        /// A node's agent, without its apps.
        Agent = "agent",
        /// An agent together with the apps in its seats.
        Node = "node",
        /// A coordinator.
        Coordinator = "coordinator",
        /// A lease cache.
        LeaseCache = "lease-cache",
    }
}

/// Which of the processes of a kind. Chosen anew for each repetition, from the drill's seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// Any one.
    One,
    /// Every one.
    All,
    /// So many.
    Fixed(u32),
    /// So many of a hundred, rounded down, at least one.
    Percent(u32),
    /// As many as can be lost without losing more than half.
    Minority,
    /// More than half.
    Majority,
    /// The coordinator that leads.
    Leader,
    /// The process of this name.
    Named(Name),
}

/// What must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steady {
    /// What is looked at.
    pub probe: Probe,
    /// What the probe must say.
    pub tolerance: bool,
    /// Before the first cue.
    pub before: bool,
    /// After the last repetition.
    pub after: bool,
}

words! {
    /// What a steady state looks at.
    Probe {
        /// Every live member knows the newest view.
        ViewConverged = "view.converged",
        /// A coordinator leads.
        LeaderPresent = "leader.present",
        /// A majority of the coordinators runs.
        Majority = "coordinators.majority",
        /// Every live member with a lease may act now.
        LeasesActive = "lease.active",
        /// Everybody who belongs to the cluster is there.
        ProcessesUp = "processes.up",
    }
}

/// One step of a repetition.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What it is called.
    pub name: String,
    /// When it happens.
    pub on: On,
    /// Beyond this skew the repetition is void.
    pub max_cue_skew: Nanos,
    /// What breaks, all on the same cue.
    pub faults: Vec<StepFault>,
}

/// When a step happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// On the repetition's cue.
    Cue,
    /// On a cue of its own, when the step before has been undone and the cluster is healthy.
    Settled,
}

/// What breaks.
#[derive(Clone, Debug)]
pub struct StepFault {
    /// What.
    pub kind: Arc<dyn Fault>,
    /// Whom: names of targets. Faults of the whole host have none.
    pub targets: Vec<String>,
    /// For how long; `None` for a kill, which only a restart undoes.
    pub lasts: Option<Nanos>,
}

impl PartialEq for StepFault {
    fn eq(&self, other: &Self) -> bool {
        let Self { kind, targets, lasts } = self;
        (&**kind, targets, lasts) == (&*other.kind, &other.targets, &other.lasts)
    }
}

impl StepFault {
    /// Whether it ends processes of this target.
    #[must_use]
    pub fn ends(&self, target: &str) -> bool {
        self.kind.effect().ends() && self.targets.iter().any(|name| name == target)
    }
}

/// Bounds on a figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    /// Which figure.
    pub metric: Metric,
    /// Bounds on its percentiles.
    pub bounds: Vec<(Percentile, Nanos)>,
    /// Bound on a count.
    pub at_most: Option<u32>,
}

words! {
    /// A figure of a drill.
    Metric {
        /// First stamp of the cue to the last survivor's `active`.
        CueToActive = "failover.cue_to_active",
        /// Its phases.
        Notice = "failover.notice",
        /// Notice to proposal.
        Propose = "failover.propose",
        /// Proposal to decision.
        Decide = "failover.decide",
        /// Decision to the end of older leases.
        Fence = "failover.fence",
        /// That to CLEAR.
        Clear = "failover.clear",
        /// CLEAR to the last `active`.
        Active = "failover.active",
        /// Between the first and the last stamp of a cue.
        Skew = "cue.skew",
        /// Members that were removed as failed although nothing had hit them: a count.
        FalselyFailed = "members.falsely_failed",
        /// Members that were removed as failed at all: a count.
        Failed = "members.failed",
    }
}

impl Metric {
    /// Whether it is of a failover, and so measured only where somebody falls silent.
    #[must_use]
    pub const fn is_of_failover(self) -> bool {
        !self.is_count() && !matches!(self, Self::Skew)
    }

    /// Whether it is a count and not a distribution of durations.
    #[must_use]
    pub const fn is_count(self) -> bool {
        matches!(self, Self::FalselyFailed | Self::Failed)
    }
}

/// What is undone after a repetition. Reversible faults are always undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollback {
    /// When.
    pub strategy: Strategy,
    /// Targets that are started again if they are down.
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

/// Files that a run leaves in its output directory: plain names.
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
    /// The postmortem as Markdown, with its pictures beside it.
    pub markdown: Option<String>,
    /// The postmortem as one page that needs no other file.
    pub html: Option<String>,
}

impl ReportFiles {
    /// The keys of a file and the names that are used where it names none.
    pub const DEFAULTS: [(&'static str, &'static str); 6] = [
        ("journal", "journal.json"),
        ("trace", "timeline.json"),
        ("metrics", "metrics.txt"),
        ("histogram", "figures.hlog"),
        ("markdown", "postmortem.md"),
        ("html", "postmortem.html"),
    ];

    /// The place of a key.
    pub fn place(&mut self, key: &str) -> Option<&mut Option<String>> {
        Some(match key {
            "journal" => &mut self.journal,
            "trace" => &mut self.trace,
            "metrics" => &mut self.metrics,
            "histogram" => &mut self.histogram,
            "markdown" => &mut self.markdown,
            "html" => &mut self.html,
            _ => return None,
        })
    }

    /// Every file under its usual name.
    #[must_use]
    pub fn all() -> Self {
        let mut files = Self::default();
        for (key, name) in Self::DEFAULTS {
            if let Some(place) = files.place(key) {
                *place = Some(name.to_owned());
            }
        }
        files
    }

    /// Whether it names none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
