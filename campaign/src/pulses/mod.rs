//! Pulses in a run: what a scenario plans of them, their faults, and the phase in which they are
//! tested alone. The hosts that exchange them are in [`crate::driver`].

mod faults;
mod phase;
mod plan;

pub(crate) use phase::run as run_phase;
pub use plan::PulsePlan;
