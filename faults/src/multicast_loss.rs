//! All multicast is lost.

use super::fault::Effect;
use super::links::LinkFault;
use super::order::Links;

/// The fault.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MulticastLoss;

impl LinkFault for MulticastLoss {
    const NAME: &'static str = "multicast-loss";
    const EFFECT: Effect = Effect::Degraded;

    fn links(&self, _island: u8) -> Option<Links> {
        Some(Links { multicast_lost: true, ..Links::default() })
    }
}
