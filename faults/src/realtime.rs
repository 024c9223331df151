//! A step of `CLOCK_REALTIME`, which affects the whole host, and its undo: idempotent, and without
//! reverting what other programs have adjusted meanwhile.

use obol_fabric::host::clock;
use serde::{Deserialize, Serialize};
use std::{fs, io};

/// The bit of CAP_SYS_TIME.
const CAP_SYS_TIME: u32 = 25;

/// A step forward, in nanoseconds of [`clock::realtime_offset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockStep {
    before: i64,
    by: i64,
}

impl ClockStep {
    /// From the current time.
    pub fn new(by: u64) -> Self {
        Self { before: clock::realtime_offset(), by: i64::try_from(by).unwrap_or(i64::MAX) }
    }

    /// Steps the clock.
    pub fn jump(self) -> io::Result<()> {
        clock::set_realtime_offset(self.before.saturating_add(self.by))
    }

    /// Reverts the step. Returns whether there was one.
    pub fn undo(self) -> io::Result<bool> {
        let now = clock::realtime_offset();
        let jumped = self.is_jumped(now);
        if jumped {
            clock::set_realtime_offset(now.saturating_sub(self.by))?;
        }
        Ok(jumped)
    }

    /// Whether the clock is nearer to the end of the step than to its start.
    const fn is_jumped(self, now: i64) -> bool {
        let from = now.saturating_sub(self.before);
        from.unsigned_abs() > from.saturating_sub(self.by).unsigned_abs()
    }
}

/// Whether this process may set the clock.
pub(crate) fn may_step() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << CAP_SYS_TIME != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_reverted_once_and_keeps_adjustments_by_others() {
        let step = ClockStep { before: 1_000, by: 600 };
        assert!(step.is_jumped(1_600) && !step.is_jumped(1_000), "twice gives the same");
        assert!(step.is_jumped(1_620) && !step.is_jumped(1_020), "another program adjusted it by 20");
        assert!(!ClockStep::new(60_000_000_000).is_jumped(clock::realtime_offset()));
    }
}
