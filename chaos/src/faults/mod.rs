//! The faults of drills, one file each: keys in drill files, injection and undo by a fault agent,
//! and the equivalent in a simulated cluster.
//!
//! A new fault is a file with an implementation of [`Fault`], its `mod` line and its line in
//! [`KINDS`]. Common parts are in `links`, `host_network`, `host_delay` and `load`.

mod clock_step;
mod cpu_hog;
mod delay;
mod freeze;
mod host_delay;
pub mod host_network;
mod kill;
mod link_error;
mod links;
mod load;
mod loss;
mod memory_pressure;
mod multicast_loss;
mod partition;

pub use kill::Kill;

use links::Network;

use crate::drillfile::guards::Guards;
use crate::drillfile::target::TargetKind;
use crate::drills::channel::Injection;
use crate::drills::undo_record::{Record, Undone};
use obol_config::{Problems, Section};
use obol_fabric::host::{Cluster, Held, Process};
use obol_node::Deployment;
use obol_observe::Snapshot;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::{fmt, io};

/// Every kind of fault, without its parameters.
pub static KINDS: &[&dyn Fault] = &[
    &kill::Kill { graceful: false },
    &freeze::Freeze,
    &cpu_hog::CPU_HOG,
    &memory_pressure::MEMORY_PRESSURE,
    &Network::of(partition::Partition),
    &Network::of(delay::Delay::NONE),
    &Network::of(loss::Loss { percent: 0 }),
    &Network::of(multicast_loss::MulticastLoss),
    &Network::of(link_error::LinkError),
    &clock_step::ClockStep::NONE,
];

/// The keys that a drill file has for every fault.
pub const COMMON_KEYS: [&str; 3] = ["target", "for", "expect"];

/// What a fault is injected into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Each process that a target stands for.
    Process,
    /// The links of each of them that has links of its own.
    Links,
    /// The host.
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

/// A key of a fault in drill files, with its JSON Schema and description.
#[derive(Clone, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// Its JSON Schema.
    pub schema: Value,
    /// Its description.
    pub doc: &'static str,
}

/// The context in which a fault is planned.
#[derive(Clone, Copy, Debug)]
pub struct Planning<'a> {
    /// The drill's guards.
    pub guards: &'a Guards,
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
    /// This program.
    pub program: &'a Path,
    /// Whether the drill allows steps of the host's clock.
    pub allow_clock_step: bool,
    /// The target, held by pidfd.
    pub held: Option<Held>,
    /// The undo record to complete.
    pub record: &'a mut Record,
}

/// A fault that waits for its cue in a fault agent.
pub trait Armed: Send {
    /// Injects it: one system call, if possible.
    fn inject(&mut self) -> io::Result<()>;

    /// Whether there is something to undo after an injection that succeeded, or failed.
    fn is_undone(&self, injected: bool) -> bool {
        injected
    }

    /// Undoes it.
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
    /// The targets are cut off from the others for a while.
    Partition,
}

/// A fault.
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

    /// Its equivalent in a simulated cluster, if there is one.
    fn simulated(&self) -> Option<Simulated> {
        None
    }

    /// The names of its orders to fault agents.
    fn orders(&self) -> &'static [&'static str];

    /// The order for one target. Targets of one fault are on one island.
    fn order(&self, island: u8) -> Injection;

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

/// The kind of this name.
pub fn kind(name: &str) -> Option<&'static dyn Fault> {
    KINDS.iter().copied().find(|kind| kind.name() == name)
}

/// The kind that gives orders of this name.
pub fn ordered(order: &str) -> Option<&'static dyn Fault> {
    KINDS.iter().copied().find(|kind| kind.orders().contains(&order))
}

/// Undoes what fault agents left behind by any fault.
pub fn recover(record: &Record, cluster: &Cluster, undone: &mut Undone) {
    KINDS.iter().for_each(|kind| kind.recover(record, cluster, undone));
    host_network::recover(record, undone);
}

/// The victim of an order.
fn process(order: &Injection) -> Option<Process> {
    order.whom.as_ref().map(|whom| Process { pid: whom.pid, started: whom.started })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Files without a fault of their own.
    const SHARED: [&str; 5] = ["mod", "links", "load", "host_delay", "host_network"];

    #[test]
    fn every_file_is_registered_under_its_name() {
        let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/faults")).expect("a folder");
        let files = folder.map(|entry| entry.expect("a file").path());
        let files = files.map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned());
        let files: BTreeSet<String> = files.filter(|file| !SHARED.contains(&file.as_str())).collect();
        let kinds: BTreeSet<String> = KINDS.iter().map(|kind| kind.name().replace('-', "_")).collect();
        assert_eq!(files, kinds);
    }

    #[test]
    fn every_order_is_armed_by_a_kind_that_gives_it() {
        for kind in KINDS {
            assert!(kind.orders().contains(&kind.order(1).fault.as_str()), "{}", kind.name());
            assert_eq!(kind.order(1).fault, ordered(&kind.order(1).fault).expect("a kind").order(1).fault);
        }
    }
}
