//! Common part of the faults that put a load on the host: a separate program, which ends by itself
//! and with the fault agent.

use super::{Armed, Arming, Effect, Fault, Key, Scope};
use crate::drillfile::section::Section;
use crate::drills::channel::Injection;
use obol_fabric::host::sched;
use obol_profiles::document::Faults;
use serde_json::json;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::{fmt, io};

/// A load on the host.
pub(super) trait LoadFault: fmt::Debug + Send + Sync + Sized + 'static {
    const NAME: &'static str;
    /// Its key, and the largest value.
    const KEY: (&'static str, u32);
    const DOC: &'static str;
    const UNIT: &'static str;

    fn new(amount: u32) -> Self;

    fn amount(&self) -> u32;

    /// Threads that compute, and MiB that are written repeatedly.
    fn load(&self) -> (u32, u32);
}

/// Adapter to [`Fault`].
#[derive(Debug)]
pub(super) struct Load<T>(pub(super) T);

impl<T: LoadFault> Fault for Load<T> {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn describe(&self) -> String {
        format!("{} of {} {}", T::NAME, self.0.amount(), T::UNIT)
    }

    fn scope(&self) -> Scope {
        Scope::Host
    }

    fn effect(&self) -> Effect {
        Effect::Degraded
    }

    fn keys(&self) -> Vec<Key> {
        let (name, most) = T::KEY;
        let schema = json!({ "type": "integer", "minimum": 1, "maximum": most });
        vec![Key { name, schema, doc: T::DOC }]
    }

    fn parse(&self, section: &mut Section<'_, '_>, faults: &mut Faults) -> Arc<dyn Fault> {
        let (name, most) = T::KEY;
        let amount = section.number(name, (1, most), faults).map(|at| at.value);
        Arc::new(Self(T::new(section.need(name, T::DOC, amount).unwrap_or(1))))
    }

    fn orders(&self) -> &'static [&'static str] {
        &["load"]
    }

    fn order(&self, _island: u8) -> Injection {
        let (threads, mebibytes) = self.0.load();
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
