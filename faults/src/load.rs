//! Common part of the faults that put a load on the host: a separate program, which ends by itself
//! and with the fault agent.

use super::Key;
use super::fault::{Armed, Arming, Effect, Fault, Scope};
use super::order::Injection;
use obol_config::{Problems, Section};
use obol_fabric::host::sched;
use serde_json::json;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// A load on the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) name: &'static str,
    /// Its key, and the largest value.
    pub(crate) key: (&'static str, u32),
    pub(crate) doc: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) amount: u32,
    /// Threads that compute, and MiB that are written repeatedly, for an amount.
    pub(crate) parts: fn(u32) -> (u32, u32),
}

impl Fault for Load {
    fn name(&self) -> &'static str {
        self.name
    }

    fn describe(&self) -> String {
        format!("{} of {} {}", self.name, self.amount, self.unit)
    }

    fn scope(&self) -> Scope {
        Scope::Host
    }

    fn effect(&self) -> Effect {
        Effect::Degraded
    }

    fn keys(&self) -> Vec<Key> {
        let (name, most) = self.key;
        let schema = json!({ "type": "integer", "minimum": 1, "maximum": most });
        vec![Key { name, schema, doc: self.doc }]
    }

    fn parse(&self, section: &mut Section<'_, '_>, problems: &mut Problems) -> Arc<dyn Fault> {
        let (name, most) = self.key;
        let amount = section.number(name, (1, most), problems).map(|at| at.value);
        Arc::new(Self { amount: section.need(name, self.doc, amount).unwrap_or(1), ..*self })
    }

    fn orders(&self) -> &'static [&'static str] {
        &["load"]
    }

    fn order(&self, _island: u8) -> Injection {
        let (threads, mebibytes) = (self.parts)(self.amount);
        Injection::new("load").with("threads", &threads).with("mebibytes", &mebibytes)
    }

    fn arm(&self, order: &Injection, arming: Arming<'_>) -> Result<Box<dyn Armed>, String> {
        Ok(Box::new(ArmedLoad {
            program: arming.program.to_owned(),
            threads: order.get("threads")?,
            mebibytes: order.get("mebibytes")?,
            lasts: order.lasts.ok_or("a load has no end")?,
            child: None,
        }))
    }
}

struct ArmedLoad {
    program: PathBuf,
    threads: u32,
    mebibytes: u32,
    lasts: u64,
    child: Option<Child>,
}

impl Armed for ArmedLoad {
    fn inject(&mut self) -> io::Result<()> {
        let amounts = [self.threads.to_string(), self.mebibytes.to_string(), self.lasts.to_string()];
        let child = sched::pass_parent_id(&mut Command::new(&self.program))
            .args(["drill-load", "--threads", &amounts[0], "--mebibytes", &amounts[1]])
            .args(["--nanoseconds", &amounts[2]])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        self.child = Some(child);
        Ok(())
    }

    fn undo(&mut self) -> Result<(), String> {
        let Some(child) = &mut self.child else { return Ok(()) };
        // It may have ended by itself.
        let _ = child.kill();
        child.wait().map(drop).map_err(|error| format!("the load could not be ended: {error}"))
    }
}
