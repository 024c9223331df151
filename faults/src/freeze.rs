//! SIGSTOP, then SIGCONT: simulates a failed kernel.

use super::fault::{Armed, Arming, Effect, Fault, Scope, Simulated};
use super::order::Injection;
use super::record::{Record, Undone};
use obol_config::{Problems, Section};
use obol_fabric::host::{Cluster, Held, Process};
use std::io;
use std::sync::Arc;

/// The fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freeze;

impl Fault for Freeze {
    fn name(&self) -> &'static str {
        "freeze"
    }

    fn scope(&self) -> Scope {
        Scope::Process
    }

    fn effect(&self) -> Effect {
        Effect::Stops
    }

    fn parse(&self, _section: &mut Section<'_, '_>, _problems: &mut Problems) -> Arc<dyn Fault> {
        Arc::new(*self)
    }

    fn simulated(&self) -> Option<Simulated> {
        Some(Simulated::Freeze)
    }

    fn orders(&self) -> &'static [&'static str] {
        &["freeze"]
    }

    fn order(&self, _island: u8) -> Injection {
        Injection::new("freeze")
    }

    fn arm(&self, order: &Injection, arming: Arming<'_>) -> Result<Box<dyn Armed>, String> {
        let (Some(whom), Some(held)) = (&order.whom, arming.held) else {
            return Err("a freeze names no process".to_owned());
        };
        arming.record.frozen.push((whom.name.clone(), whom.pid, whom.started));
        Ok(Box::new(ArmedFreeze { name: whom.name.clone(), held }))
    }

    fn recover(&self, record: &Record, _cluster: &Cluster, undone: &mut Undone) {
        for (name, pid, started) in &record.frozen {
            match (Process { pid: *pid, started: *started }).hold() {
                Ok(held) => match held.thaw() {
                    Ok(()) => undone.done.push(format!("{name} was continued (pid {pid})")),
                    // It ended just now.
                    Err(_) if held.has_ended() => {}
                    Err(error) => {
                        undone.failed.push(format!("{name} (pid {pid}) could not be continued: {error}"));
                    }
                },
                // It has ended.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => undone.failed.push(format!("{name} (pid {pid}) could not be held: {error}")),
            }
        }
    }
}

struct ArmedFreeze {
    name: String,
    held: Held,
}

impl Armed for ArmedFreeze {
    fn inject(&mut self) -> io::Result<()> {
        self.held.freeze()
    }

    fn undo(&mut self) -> Result<(), String> {
        match self.held.thaw() {
            Err(error) if !self.held.has_ended() => {
                Err(format!("{} could not be continued: {error}", self.name))
            }
            _ => Ok(()),
        }
    }
}
