//! All operations and datagrams are delayed, or all packets between hosts.

use super::Key;
use super::fault::{Effect, Simulated};
use super::host_network::Impact;
use super::links::LinkFault;
use super::order::{Direction, Links};
use super::span::{SPAN_MIN, span_schema};
use obol_config::{Problems, Section};
use obol_fabric::Nanos;

/// The fault.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delay {
    by: Nanos,
}

impl Delay {
    pub(crate) const NONE: Self = Self { by: Nanos::ZERO };
}

impl LinkFault for Delay {
    const NAME: &'static str = "delay";
    const EFFECT: Effect = Effect::Degraded;

    fn links(&self, _island: u8) -> Option<Links> {
        Some(Links { delay: self.by.0, ..Links::default() })
    }

    fn simulated(&self, direction: Direction) -> Option<Simulated> {
        Some(Simulated::Degrade(direction, self.by.0, [0; 4]))
    }

    fn between_hosts(&self) -> Option<Impact> {
        Some(Impact::Late(self.by))
    }

    fn describe(&self) -> String {
        format!("{} of {}", Self::NAME, self.by)
    }

    fn own_keys() -> Vec<Key> {
        vec![Key { name: "by", schema: span_schema(), doc: "how much" }]
    }

    fn parse_own(section: &mut Section<'_, '_>, problems: &mut Problems) -> Self {
        let by = section.span("by", (SPAN_MIN, Nanos::from_secs(10)), problems).map(|at| at.value);
        Self { by: section.need("by", "the delay, a duration", by).unwrap_or(SPAN_MIN) }
    }
}
