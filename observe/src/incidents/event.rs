//! An event that a hook can be called for.

use crate::calendar;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The kind of an event. A hook lists those that it is called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An alert of the console begins or ends.
    Alert,
    /// The health of the cluster changes.
    Health,
    /// A view is decided.
    View,
    /// A failover is over.
    Failover,
    /// A drill begins, or has a verdict.
    Drill,
    /// A rollout begins, or has a verdict.
    Rollout,
    /// An operator annotates.
    Mark,
    /// `obol hooks test`. Every hook is called for it.
    Test,
}

impl Kind {
    /// Those that a hook can be called for.
    pub const ALL: [Self; 7] =
        [Self::Alert, Self::Health, Self::View, Self::Failover, Self::Drill, Self::Rollout, Self::Mark];

    /// Its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alert => "alert",
            Self::Health => "health",
            Self::View => "view",
            Self::Failover => "failover",
            Self::Drill => "drill",
            Self::Rollout => "rollout",
            Self::Mark => "mark",
            Self::Test => "test",
        }
    }
}

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// For the record.
    Info,
    /// Something is wrong, and programs may act.
    Warning,
    /// No program may act, or leases are not safe.
    Critical,
}

impl Severity {
    /// Its name in bodies.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// Whether an event begins or ends something that lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It happened.
    Event,
    /// It begins.
    Firing,
    /// It is over.
    Resolved,
}

impl State {
    /// Its name in bodies.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Firing => "firing",
            Self::Resolved => "resolved",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The same for each attempt to deliver it, and for no other event.
    pub id: String,
    pub kind: Kind,
    /// When, in nanoseconds since 1970.
    pub unix: u64,
    pub cluster: String,
    /// The identity of the cluster, which distinguishes those of one name.
    pub identity: String,
    /// The name of the host that saw it.
    #[serde(default)]
    pub host: String,
    /// How much it matters.
    pub severity: Severity,
    /// Whether it begins or ends something.
    pub state: State,
    /// What it is about: the name of an alert, of a drill, of a rollout, or of a member.
    pub subject: String,
    /// What happened, on one line.
    pub title: String,
    /// Figures and names for scripts.
    pub details: Map<String, Value>,
}

impl Event {
    /// The event as receivers get it. `suppressed` counts the events before it that the rate limit of
    /// the hook has suppressed.
    pub fn to_json(&self, suppressed: u64) -> Value {
        json!({
            "schema": 1,
            "id": self.id,
            "kind": self.kind.name(),
            "time": self.time(),
            "unix_ms": self.unix / 1_000_000,
            "cluster": self.cluster,
            "identity": self.identity,
            "host": self.host,
            "severity": self.severity.name(),
            "state": self.state.name(),
            "subject": self.subject,
            "title": self.title,
            "details": self.details,
            "suppressed": suppressed,
        })
    }

    /// When, in UTC.
    pub fn time(&self) -> String {
        calendar::utc(self.unix, "%FT%T.%6fZ")
    }
}
