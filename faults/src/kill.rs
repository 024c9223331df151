//! The process ends: SIGKILL, or SIGTERM for a graceful leave.

use super::Key;
use super::fault::{Armed, Arming, Effect, Fault, Scope, Simulated};
use super::order::Injection;
use obol_config::{Problems, Section};
use obol_fabric::host::Held;
use serde_json::json;
use std::io;
use std::sync::Arc;

/// Whether a signal lets its process leave first.
const SIGNALS: [(&str, bool); 2] = [("KILL", false), ("TERM", true)];

/// The fault.
#[derive(Clone, Copy, Debug)]
pub struct Kill {
    /// Whether the process may leave first (SIGTERM).
    pub graceful: bool,
}

impl Fault for Kill {
    fn name(&self) -> &'static str {
        "kill"
    }

    fn describe(&self) -> String {
        if self.graceful { "kill by SIGTERM" } else { "kill" }.to_owned()
    }

    fn scope(&self) -> Scope {
        Scope::Process
    }

    fn effect(&self) -> Effect {
        if self.graceful { Effect::Leaves } else { Effect::Ends }
    }

    fn keys(&self) -> Vec<Key> {
        let schema = json!({ "enum": SIGNALS.map(|(name, _)| name) });
        vec![Key { name: "signal", schema, doc: "at once, or as a graceful leave" }]
    }

    fn parse(&self, section: &mut Section<'_, '_>, problems: &mut Problems) -> Arc<dyn Fault> {
        let graceful = section.choice("signal", &SIGNALS, problems).is_some_and(|at| at.value);
        Arc::new(Self { graceful })
    }

    fn simulated(&self) -> Option<Simulated> {
        Some(if self.graceful { Simulated::Leave } else { Simulated::Kill })
    }

    fn orders(&self) -> &'static [&'static str] {
        &["kill", "terminate"]
    }

    fn order(&self, _island: u8) -> Injection {
        Injection::new(if self.graceful { "terminate" } else { "kill" })
    }

    fn arm(&self, order: &Injection, arming: Arming<'_>) -> Result<Box<dyn Armed>, String> {
        let held = arming.held.ok_or("a kill names no process")?;
        Ok(Box::new(ArmedKill { held, graceful: order.fault == "terminate" }))
    }
}

struct ArmedKill {
    held: Held,
    graceful: bool,
}

impl Armed for ArmedKill {
    fn inject(&mut self) -> io::Result<()> {
        if self.graceful { self.held.terminate() } else { self.held.kill() }
    }

    fn is_undone(&self, _injected: bool) -> bool {
        false
    }
}
