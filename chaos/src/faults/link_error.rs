//! One-sided operations fail.

use super::Effect;
use super::links::LinkFault;
use crate::drillfile::section::Section;
use crate::drills::channel::Links;
use obol_profiles::document::Faults;

/// The fault.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkError;

impl LinkFault for LinkError {
    const NAME: &'static str = "link-error";
    const EFFECT: Effect = Effect::Unreachable;

    fn links(&self, _island: u8) -> Links {
        Links { operations_fail: true, ..Links::default() }
    }

    fn parse_own(_section: &mut Section<'_, '_>, _faults: &mut Faults) -> Self {
        Self
    }
}
