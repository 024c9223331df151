//! What a detector is set to, and what it did.

use obol_fabric::Nanos;
use std::fmt;

/// What a detector is set to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Setting {
    /// A notice has no setting.
    Nothing,
    /// A timeout; for SWIM the period of its protocol.
    Timeout(Nanos),
    /// The threshold of phi-accrual.
    Phi(f64),
}

impl Setting {
    pub(super) const fn timeout(self) -> u64 {
        match self {
            Self::Timeout(timeout) => timeout.0,
            Self::Nothing | Self::Phi(_) => 0,
        }
    }

    pub(super) const fn phi(self) -> f64 {
        match self {
            Self::Phi(phi) => phi,
            Self::Nothing | Self::Timeout(_) => 0.0,
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("-"),
            Self::Timeout(timeout) => f.write_str(&obol_config::duration::print(*timeout)),
            Self::Phi(phi) => write!(f, "phi {phi}"),
        }
    }
}

/// What a detector did.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) false_suspicions: u64,
    /// From each failure to the suspicion, `None` if there is none.
    pub(crate) detected: Vec<Option<u64>>,
}
