//! What runs at a node of a cluster.

use obol_fabric::{Event, Fabric, Instant, Machine};
use obol_membership::{Coordinator, Role, View};
use std::sync::Arc;

/// A process of a cluster.
#[derive(Debug)]
pub enum Process<P> {
    Coordinator(Box<Coordinator>),
    /// A member, or a machine with one in it.
    Member(Box<P>),
}

impl<P> Process<P> {
    /// The coordinator, if it is one.
    pub const fn coordinator(&self) -> Option<&Coordinator> {
        match self {
            Self::Coordinator(coordinator) => Some(coordinator),
            Self::Member(_) => None,
        }
    }

    /// What is not a coordinator.
    pub const fn member(&self) -> Option<&P> {
        match self {
            Self::Coordinator(_) => None,
            Self::Member(member) => Some(member),
        }
    }

    pub const fn member_mut(&mut self) -> Option<&mut P> {
        match self {
            Self::Coordinator(_) => None,
            Self::Member(member) => Some(member),
        }
    }
}

macro_rules! either {
    ($process:expr, $machine:ident => $call:expr) => {
        match $process {
            Process::Coordinator($machine) => $call,
            Process::Member($machine) => $call,
        }
    };
}

impl<P: Machine> Machine for Process<P> {
    fn start<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        either!(self, machine => machine.start(now, fabric));
    }

    fn handle<F: Fabric>(&mut self, now: Instant, event: Event<'_>, fabric: &mut F) {
        either!(self, machine => machine.handle(now, event, fabric));
    }

    fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        either!(self, machine => machine.tick(now, fabric));
    }

    fn deadline(&self) -> Instant {
        either!(self, machine => machine.deadline())
    }
}

impl<P: Role> Process<P> {
    /// The newest view that it knows.
    pub fn view(&self) -> &Arc<View> {
        either!(self, machine => Role::view(&**machine))
    }

    /// Requests a graceful leave.
    pub fn leave<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        either!(self, machine => Role::leave(&mut **machine, now, fabric));
    }

    /// Whether the cluster has removed it at its request.
    pub fn has_left(&self) -> bool {
        either!(self, machine => Role::has_left(&**machine))
    }
}

/// What the nodes of a [`crate::Cluster`] run: a process, or one with a probe around it.
pub trait ClusterMachine: Machine {
    /// What a process runs that is not a coordinator.
    type Member: Role;

    fn process(&self) -> &Process<Self::Member>;
}

impl<P: Role> ClusterMachine for Process<P> {
    type Member = P;

    fn process(&self) -> &Self {
        self
    }
}
