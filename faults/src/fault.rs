//! What every kind of fault is: the trait, and what it is planned and armed with.

use super::order::{Direction, Injection, TargetKind};
use super::record::{Record, Undone};
use super::{Allowed, Key};
use obol_config::{Problems, Section};
use obol_fabric::Nanos;
use obol_fabric::host::{Cluster, Held};
use obol_node::Deployment;
use obol_observe::Snapshot;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::{fmt, io};

/// The keys that a drill file has for every fault.
pub const COMMON_KEYS: [&str; 3] = ["target", "for", "expect"];

/// What a fault is injected into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Each process that a target stands for.
    Process,
    /// The links of each of them that has links of its own.
    Links,
    Host,
    /// The network of the hosts of all targets, with all their processes.
    Network,
}

/// What happens to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It ends without notice. Only a restart undoes that.
    Ends,
    /// It leaves, and ends. Only a restart undoes that.
    Leaves,
    /// It stops for a while.
    Stops,
    /// It runs, but peers cannot reach its memory for a while.
    Unreachable,
    /// It runs and can be reached.
    Degraded,
}

impl Effect {
    /// Whether only a restart undoes it.
    pub const fn ends(self) -> bool {
        matches!(self, Self::Ends | Self::Leaves)
    }

    /// Whether its target is unavailable while it lasts.
    pub const fn takes_out(self) -> bool {
        !matches!(self, Self::Degraded)
    }

    /// Whether the target falls silent without notice, so that the cluster has to detect it.
    pub const fn silences(self) -> bool {
        matches!(self, Self::Ends | Self::Stops | Self::Unreachable)
    }
}

/// The context in which a fault is planned.
#[derive(Clone, Copy, Debug)]
pub struct Planning<'a> {
    pub allowed: &'a Allowed,
    /// A fault agent undoes its faults after this time without a message from the runner.
    pub dead_man: Nanos,
    /// How long it lasts; `None` for one that only a restart undoes.
    pub lasts: Option<Nanos>,
    /// Whether the cluster is simulated.
    pub simulated: bool,
    /// The cluster.
    pub deployment: &'a Deployment,
    /// The kinds of the fault's targets.
    pub targets: &'a [TargetKind],
}

/// The context in which a fault agent arms a fault.
pub struct Arming<'a> {
    /// The cluster's memory.
    pub cluster: &'a Cluster,
    /// The cluster's deployment.
    pub deployment: &'a Deployment,
    /// The fault agent's snapshot of the cluster.
    pub snapshot: &'a Snapshot,
    pub program: &'a Path,
    pub allowed: &'a Allowed,
    /// The target, held by pidfd.
    pub held: Option<Held>,
    /// The cores that faults of this cue keep from ordinary threads so far.
    pub stalled: &'a mut BTreeSet<u32>,
    /// The undo record to complete.
    pub record: &'a mut Record,
}

/// A fault that waits for its cue in a fault agent.
pub trait Armed: Send {
    /// Injects it: one system call, if possible.
    fn inject(&mut self) -> io::Result<()>;

    /// How much later than the injection it takes effect.
    fn lead(&self) -> Nanos {
        Nanos::ZERO
    }

    /// Whether there is something to undo after an injection that succeeded, or failed.
    fn is_undone(&self, injected: bool) -> bool {
        injected
    }

    fn undo(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// The equivalent of a fault in a simulated cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Simulated {
    /// The process ends.
    Kill,
    /// It asks to leave, and ends.
    Leave,
    /// It stops for a while.
    Freeze,
    /// The targets are cut off from the others for a while, in a direction.
    Partition(Direction),
    /// What they exchange with the others is late and lost for a while, in a direction, as by
    /// `Act::Degrade` of `obol_campaign`.
    Degrade(Direction, u64, [u32; 4]),
    /// They are cut off, and end without a notice of their kernel.
    Crash,
}

pub trait Fault: fmt::Debug + Send + Sync {
    /// Its name in drill files.
    fn name(&self) -> &'static str;

    /// The name with its parameters.
    fn describe(&self) -> String {
        self.name().to_owned()
    }

    /// What it is injected into.
    fn scope(&self) -> Scope;

    /// What happens to its targets.
    fn effect(&self) -> Effect;

    /// Its keys in drill files beside `kind` and [`COMMON_KEYS`].
    fn keys(&self) -> Vec<Key> {
        Vec::new()
    }

    /// Reads these keys.
    fn parse(&self, section: &mut Section<'_, '_>, problems: &mut Problems) -> Arc<dyn Fault>;

    /// Why it cannot or must not be injected here.
    fn refusal(&self, _planning: Planning<'_>) -> Option<&'static str> {
        None
    }

    /// Why a host of a cluster must not be hit.
    fn spares(&self, _deployment: &Deployment, _host: u8) -> Option<String> {
        None
    }

    /// Its equivalent in a simulated cluster, if there is one.
    fn simulated(&self) -> Option<Simulated> {
        None
    }

    /// The names of its orders to fault agents.
    fn orders(&self) -> &'static [&'static str];

    /// The order for one target. Targets of one fault are on one island.
    fn order(&self, island: u8) -> Injection;

    /// Whether an order hits all processes of its host.
    fn hits_host(&self, _order: &Injection) -> bool {
        self.scope() == Scope::Network
    }

    /// Whether an order makes its target unavailable.
    fn takes_out(&self, _order: &Injection) -> bool {
        self.effect().takes_out()
    }

    /// Prepares an order in a fault agent.
    fn arm(&self, order: &Injection, arming: Arming<'_>) -> Result<Box<dyn Armed>, String>;

    /// Undoes what a fault agent left behind. Idempotent.
    fn recover(&self, _record: &Record, _cluster: &Cluster, _undone: &mut Undone) {}
}

impl PartialEq for dyn Fault {
    fn eq(&self, other: &Self) -> bool {
        self.describe() == other.describe()
    }
}
