//! Limits of numbers that more than one section of a drill file has.

/// Repetitions, samples or failures: more would take days.
pub(super) const COUNT_MAX: u32 = 100_000;
