//! A share of the datagrams is lost.

use super::Key;
use super::fault::{Effect, Simulated};
use super::host_network::{self, Impact};
use super::links::LinkFault;
use super::order::{Direction, Links};
use obol_config::{Problems, Section};
use serde_json::json;

/// The fault.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Loss {
    /// Percentage.
    pub(crate) percent: u8,
}

impl LinkFault for Loss {
    const NAME: &'static str = "loss";
    const EFFECT: Effect = Effect::Degraded;

    fn between_hosts(&self) -> Option<Impact> {
        Some(Impact::Lost(u32::from(self.percent) * host_network::ALL / 100))
    }

    fn links(&self, _island: u8) -> Option<Links> {
        Some(Links { loss_percent: self.percent, ..Links::default() })
    }

    fn simulated(&self, direction: Direction) -> Option<Simulated> {
        let lost = u32::from(self.percent) * host_network::ALL / 100;
        Some(Simulated::Degrade(direction, 0, [0, 0, lost, lost]))
    }

    fn describe(&self) -> String {
        format!("{} of {} %", Self::NAME, self.percent)
    }

    fn own_keys() -> Vec<Key> {
        let schema = json!({ "type": "integer", "minimum": 1, "maximum": 100 });
        vec![Key { name: "percent", schema, doc: "the percentage" }]
    }

    fn parse_own(section: &mut Section<'_, '_>, problems: &mut Problems) -> Self {
        let percent = section.number("percent", (1, 100), problems).map(|at| at.value);
        let percent = section.need("percent", "the percentage that is lost", percent);
        Self { percent: percent.and_then(|percent| percent.try_into().ok()).unwrap_or(1) }
    }
}
