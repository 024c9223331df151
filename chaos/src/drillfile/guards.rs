//! The limits of a drill.

use super::Allowed;
use super::external::Watch;
use obol_fabric::Nanos;
use obol_observe::named_enum;
use serde::{Deserialize, Serialize};

/// Limits for each repetition. The runner and each fault agent check them independently.
#[derive(Clone, Debug, PartialEq)]
pub struct Guards {
    /// Victims of one repetition, at most.
    pub max_targets: u32,
    /// Coordinators that must remain.
    pub keep_acceptors: Keep,
    /// Lease caches that must remain.
    pub keep_lease_caches: u32,
    /// Host names that are never touched; `*` matches any text.
    pub deny_hosts: Vec<String>,
    /// Whether the operator has to confirm.
    pub require_confirm: bool,
    /// What may happen to all programs of a host.
    pub allowed: Allowed,
    /// Whether a pause may be too short, or too long, for what is expected of it.
    pub allow_undetected: bool,
    /// A fault agent undoes its faults after this time without a message from the runner.
    pub dead_man: Nanos,
    /// Whether another person has to approve the file.
    pub require_approval: bool,
    /// Conditions that abort the drill.
    pub abort: Vec<Abort>,
    /// Probes that abort the drill while it runs.
    pub watch: Vec<Watch>,
}

impl Default for Guards {
    fn default() -> Self {
        Self {
            max_targets: 3,
            keep_acceptors: Keep::Majority,
            keep_lease_caches: 0,
            deny_hosts: Vec::new(),
            require_confirm: false,
            allowed: Allowed::default(),
            allow_undetected: false,
            dead_man: Nanos::from_secs(3),
            require_approval: false,
            abort: Vec::new(),
            watch: Vec::new(),
        }
    }
}

/// How many must remain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keep {
    /// More than half.
    Majority,
    /// This many.
    Number(u32),
}

/// A condition that aborts the drill.
#[derive(Clone, Debug, PartialEq)]
pub struct Abort {
    /// The value that is checked.
    pub metric: AbortMetric,
    /// Aborts above this value.
    pub above: f64,
    /// In this many consecutive repetitions.
    pub samples: u32,
}

named_enum! {
    /// The value of an abort condition.
    AbortMetric {
        /// How long two incompatible views could be used at the same time, in nanoseconds.
        OverlapNs = "overlap_ns",
        /// Cue to the last survivor's `active`, in microseconds.
        UnavailableUs = "unavailable_us",
        /// Members that were removed although no fault had hit them.
        FalseSuspicions = "false_suspicions",
        /// Spread of the stamps of one cue, in microseconds.
        SkewUs = "skew_us",
    }
}
