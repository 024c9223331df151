//! One-sided operations fail.

use super::fault::Effect;
use super::links::LinkFault;
use super::order::Links;

/// The fault.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LinkError;

impl LinkFault for LinkError {
    const NAME: &'static str = "link-error";
    const EFFECT: Effect = Effect::Unreachable;

    fn links(&self, _island: u8) -> Option<Links> {
        Some(Links { operations_fail: true, ..Links::default() })
    }
}
