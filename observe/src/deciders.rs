//! Which coordinators decide, and how many of them may be lost. A coordinator that runs and is not
//! among them, a spare, does not count; nor does the number that a deployment began with.

use crate::{Process, Snapshot};
use obol_membership::view::coordinator_name;
use obol_membership::{Kind, View};
use obol_node::Deployment;

/// The coordinators that count for the majority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deciders {
    names: Vec<String>,
}

impl Deciders {
    fn numbered(numbers: impl Iterator<Item = u16>) -> Self {
        Self { names: numbers.map(|number| coordinator_name(number).to_string()).collect() }
    }

    pub fn of(view: &View) -> Self {
        Self::numbered(view.acceptors.iter().map(|acceptor| acceptor.proposer))
    }

    /// Those of the newest view that can be read; `None` if none can.
    pub fn newest(snapshot: &Snapshot) -> Option<Self> {
        snapshot.view.as_deref().map(Self::of)
    }

    /// The coordinators that should run: those of the view, or of the deployment if no view was
    /// decided or can be read.
    pub fn expected(deployment: &Deployment, view: Option<&View>) -> Self {
        view.map_or_else(|| Self::numbered(1..=deployment.coordinators), Self::of)
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether this process is one of them.
    pub fn includes(&self, process: &Process) -> bool {
        process.kind == Kind::Coordinator && self.names.iter().any(|name| name == process.name.as_str())
    }

    /// The processes of them that run and are not frozen.
    pub fn acting<'a>(&'a self, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a Process> {
        snapshot.all_processes().filter(|p| p.alive && !p.frozen && self.includes(p))
    }

    /// How many have to remain.
    pub const fn majority(&self) -> usize {
        majority(self.names.len())
    }

    /// How many may be lost while all others remain.
    pub const fn minority(&self) -> usize {
        self.names.len().saturating_sub(self.majority())
    }

    /// How many more may be lost if this many remain; see [`spare`].
    pub const fn spare(&self, reachable: usize) -> Option<usize> {
        spare(self.names.len(), reachable)
    }
}

/// More than half of a number of deciders.
const fn majority(deciders: usize) -> usize {
    deciders / 2 + 1
}

/// How many more deciders may fail without loss of the majority; `None` if it is lost already. The
/// memory of a frozen coordinator still answers, so it counts as reachable.
pub const fn spare(deciders: usize, reachable: usize) -> Option<usize> {
    reachable.checked_sub(majority(deciders))
}
