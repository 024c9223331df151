//! Packets between hosts are lost in bursts, by the model of Gilbert and Elliott.

use super::Key;
use super::fault::{Effect, Simulated};
use super::host_network::{ALL, Bursts, Impact};
use super::links::LinkFault;
use super::order::{Direction, Links};
use obol_config::{Problems, Section};
use serde_json::json;

/// The fault.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Burst(pub(crate) Bursts);

/// Its keys, all of a thousand packets: name, least value, value if it is not given, and what it is.
const KEYS: [(&str, u32, Option<u32>, &str); 4] = [
    ("enter", 1, None, "how many packets of a thousand begin a burst"),
    ("leave", 1, None, "how many packets of a thousand, of those in a burst, end it"),
    ("lost", 1, Some(ALL), "how many packets of a thousand are lost in a burst"),
    ("lost_between", 0, Some(0), "how many packets of a thousand are lost between bursts"),
];

impl LinkFault for Burst {
    const NAME: &'static str = "burst";
    const EFFECT: Effect = Effect::Degraded;

    fn links(&self, _island: u8) -> Option<Links> {
        None
    }

    fn between_hosts(&self) -> Option<Impact> {
        Some(Impact::Bursts(self.0))
    }

    fn simulated(&self, direction: Direction) -> Option<Simulated> {
        let Bursts { enter, leave, lost, lost_between } = self.0;
        Some(Simulated::Degrade(direction, 0, [enter, leave, lost_between, lost]))
    }

    fn describe(&self) -> String {
        let Bursts { enter, leave, lost, lost_between } = self.0;
        format!(
            "burst (of 1000 packets {enter} enter, {leave} leave, {lost} lost, {lost_between} lost between)"
        )
    }

    fn own_keys() -> Vec<Key> {
        let key = |(name, least, _, doc)| Key {
            name,
            schema: json!({ "type": "integer", "minimum": least, "maximum": ALL }),
            doc,
        };
        KEYS.map(key).into()
    }

    fn parse_own(section: &mut Section<'_, '_>, problems: &mut Problems) -> Self {
        let [enter, leave, lost, lost_between] = KEYS.map(|(name, least, usual, doc)| {
            let read = section.number(name, (least, ALL), problems).map(|at| at.value);
            match usual {
                Some(usual) => read.unwrap_or(usual),
                None => section.need(name, doc, read).unwrap_or(least),
            }
        });
        Self(Bursts { enter, leave, lost, lost_between })
    }
}
