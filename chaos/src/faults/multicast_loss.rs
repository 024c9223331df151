//! All multicast is lost.

use super::Effect;
use super::links::LinkFault;
use crate::drillfile::section::Section;
use crate::drills::channel::Links;
use obol_profiles::document::Faults;

/// The fault.
#[derive(Clone, Copy, Debug)]
pub(super) struct MulticastLoss;

impl LinkFault for MulticastLoss {
    const NAME: &'static str = "multicast-loss";
    const EFFECT: Effect = Effect::Degraded;

    fn links(&self, _island: u8) -> Links {
        Links { multicast_lost: true, ..Links::default() }
    }

    fn parse_own(_section: &mut Section<'_, '_>, _faults: &mut Faults) -> Self {
        Self
    }
}
