//! What a drill runs on: processes of this host, or a simulated cluster. The runner does not depend
//! on which.

use super::error::RunError;
use super::journal::Host;
use crate::drillfile::{Drill, Step};
use crate::drills::agent::channel::Stamp;
use crate::drills::victims::select::{Chosen, Supervisor};
use obol_fabric::host::clock;
use obol_fabric::{Instant, Nanos};
use obol_node::Deployment;
use obol_observe::{ObservedEvent, Observer, Process, Snapshot};
use std::path::PathBuf;
use std::{io, thread};

/// The program that a process runs.
pub(super) fn program(process: &Process) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{}/exe", process.process.pid)).ok()
}

/// A cluster that is observed.
pub trait Subject {
    fn deployment(&self) -> &Deployment;
    /// Its state now.
    fn snapshot(&mut self) -> Snapshot;
    /// The events of its flight recorders since the last call.
    fn events(&mut self) -> Vec<ObservedEvent>;
    /// Makes the next snapshot and events show all processes as they were after this call.
    fn refresh(&mut self) {}
    /// The time of its clocks.
    fn now(&self) -> Instant;
    /// Lets time pass.
    fn sleep(&mut self, time: Nanos);
    /// The names of all processes that should run, without the coordinators.
    fn others(&self) -> Vec<String>;
    /// Whether a process has ended.
    fn has_ended(&self, process: &Process) -> bool;
    /// The program of a process, if it can be seen from here.
    fn program(&self, process: &Process) -> Option<PathBuf> {
        program(process)
    }
    /// An invariant violation, after which no result can be trusted.
    fn violation(&self) -> Option<String> {
        None
    }
}

impl Subject for Observer {
    fn deployment(&self) -> &Deployment {
        self.deployment()
    }

    fn snapshot(&mut self) -> Snapshot {
        self.snapshot()
    }

    fn events(&mut self) -> Vec<ObservedEvent> {
        self.events()
    }

    fn now(&self) -> Instant {
        clock::now()
    }

    fn sleep(&mut self, time: Nanos) {
        thread::sleep(time.to_std());
    }

    fn others(&self) -> Vec<String> {
        self.others().collect()
    }

    fn has_ended(&self, process: &Process) -> bool {
        match process.process.hold() {
            Ok(held) => held.has_ended(),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }
}

/// A cluster that is observed, and into which faults can be injected.
pub(super) trait System {
    type Subject: Subject;

    fn subject(&mut self) -> &mut Self::Subject;

    /// Which processes can be restarted.
    fn supervisor(&self) -> Supervisor;

    /// Whether a process stamps in a flight recorder when it becomes active.
    fn stamps(&self, process: &Process) -> bool;

    /// The machine.
    fn host(&self) -> Host;

    /// The fault agent's host, if it was reached by ssh.
    fn ssh(&self) -> Option<String> {
        None
    }

    /// Prepares the faults of a step. `restart` are the victims to restart if the runner cannot.
    fn arm(
        &mut self,
        drill: &Drill,
        step: &Step,
        chosen: &[Chosen],
        restart: &[Process],
    ) -> Result<(), RunError>;

    /// Sends the cue. Returns when each fault was injected, or `None` if the cue came too late.
    fn fire(&mut self) -> Result<Option<Vec<Stamp>>, RunError>;

    /// Undoes temporary faults now.
    fn undo_early(&mut self) -> Result<(), RunError>;

    /// Prevents what was injected and has not taken effect yet.
    fn spare(&mut self) {}

    /// Whether the temporary faults have ended by now, or a fault agent is gone, so that there is
    /// nothing to wait for.
    fn is_over(&self) -> bool {
        false
    }

    /// Says, for as long as the step is followed, whether a fault agent is gone: its faults are over, and
    /// may never be detected.
    fn agent_gone(&self) -> Box<dyn Fn() -> bool> {
        Box::new(|| false)
    }

    /// Waits until all temporary faults are undone. The longest one lasts for `lasts` more. Returns what
    /// could not be undone.
    fn undone(&mut self, lasts: Nanos) -> Result<Vec<String>, RunError>;

    /// Restarts a victim, or leaves that to its supervisor.
    fn start(&mut self, victim: &Process) -> Result<(), RunError>;

    /// A fault agent is lost: ends all of them, waits until nothing is left of what they injected, and
    /// undoes on this machine what nobody else did. Returns what became of it.
    fn lost(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Nothing is left to undo.
    fn restored(&mut self) -> Result<(), RunError>;
}
