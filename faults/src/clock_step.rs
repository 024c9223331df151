//! `CLOCK_REALTIME` jumps, for all programs of the host; it must have no effect on the cluster.

use super::Key;
use super::fault::{Armed, Arming, Effect, Fault, Planning, Scope};
use super::order::Injection;
use super::realtime::{ClockStep as Step, may_step};
use super::record::{Record, Undone};
use super::span::{SPAN_MIN, span_schema};
use obol_config::{Problems, Section};
use obol_fabric::Nanos;
use obol_fabric::host::Cluster;
use std::io;
use std::sync::Arc;

/// The fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockStep {
    by: Nanos,
}

impl ClockStep {
    pub(crate) const NONE: Self = Self { by: Nanos::ZERO };
}

impl Fault for ClockStep {
    fn name(&self) -> &'static str {
        "clock-step"
    }

    fn describe(&self) -> String {
        format!("clock-step by {}", self.by)
    }

    fn scope(&self) -> Scope {
        Scope::Host
    }

    fn effect(&self) -> Effect {
        Effect::Degraded
    }

    fn keys(&self) -> Vec<Key> {
        vec![Key { name: "by", schema: span_schema(), doc: "how much" }]
    }

    fn parse(&self, section: &mut Section<'_, '_>, problems: &mut Problems) -> Arc<dyn Fault> {
        let by = section.span("by", (SPAN_MIN, Nanos::from_secs(3600)), problems).map(|at| at.value);
        let by = section.need("by", "how far the clock jumps, a duration", by).unwrap_or(SPAN_MIN);
        Arc::new(Self { by })
    }

    fn refusal(&self, planning: Planning<'_>) -> Option<&'static str> {
        if !planning.allowed.clock_step {
            return Some(
                "CLOCK_REALTIME is shared by all programs of the host; on a host reserved for tests, set allow_clock_step = \
                 true in [guards]",
            );
        }
        (!may_step()).then_some("setting the clock needs CAP_SYS_TIME")
    }

    fn orders(&self) -> &'static [&'static str] {
        &["step-clock"]
    }

    fn order(&self, _island: u8) -> Injection {
        Injection::new("step-clock").with("by", &self.by.0)
    }

    fn arm(&self, order: &Injection, arming: Arming<'_>) -> Result<Box<dyn Armed>, String> {
        if !arming.allowed.clock_step || !may_step() || arming.record.clock.is_some() {
            return Err(
                "the host's clock cannot be stepped: this needs allow_clock_step, CAP_SYS_TIME, and one \
                        step at a time"
                    .to_owned(),
            );
        }
        let step = Step::new(order.get("by")?);
        arming.record.clock = Some(step);
        Ok(Box::new(ArmedStep(step)))
    }

    fn recover(&self, record: &Record, _cluster: &Cluster, undone: &mut Undone) {
        match record.clock.map(Step::undo) {
            Some(Ok(true)) => undone.done.push("the host's clock was set back".to_owned()),
            Some(Err(error)) => {
                undone.failed.push(format!("the host's clock could not be set back: {error}"));
            }
            Some(Ok(false)) | None => {}
        }
    }
}

struct ArmedStep(Step);

impl Armed for ArmedStep {
    fn inject(&mut self) -> io::Result<()> {
        self.0.jump()
    }

    fn is_undone(&self, _injected: bool) -> bool {
        // Whether or not it jumped: the undo checks.
        true
    }

    fn undo(&mut self) -> Result<(), String> {
        self.0.undo().map(drop).map_err(|error| format!("the host's clock could not be set back: {error}"))
    }
}
