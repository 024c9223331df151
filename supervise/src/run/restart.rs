//! Whether a program that has ended is started again, and after how long.

use std::time::Duration;

/// When a program is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Never: `run` ends with the program.
    Never,
    /// When it ended with another exit code than 0, or by a signal.
    OnFailure,
    /// Whenever it ended.
    Always,
}

/// The pauses before starts: each twice the one before, up to a limit; from the beginning again
/// after a good life.
pub(super) struct Restarts {
    policy: Policy,
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Restarts {
    pub(super) const fn new(policy: Policy, first: Duration, longest: Duration) -> Self {
        Self { policy, first, longest, next: first }
    }

    /// How long to wait before the next start; `None` if there is none. `lived` is how long the
    /// program ran.
    pub(super) fn after(&mut self, well: bool, lived: Duration) -> Option<Duration> {
        let again = match self.policy {
            Policy::Never => false,
            Policy::OnFailure => !well,
            Policy::Always => true,
        };
        if lived >= self.longest {
            self.next = self.first;
        }
        let pause = self.next.min(self.longest);
        self.next = pause.saturating_mul(2);
        again.then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn pauses_double_up_to_the_limit_and_begin_anew_after_a_good_life() {
        let mut restarts = Restarts::new(Policy::Always, MS(100), MS(350));
        let mut after = |lived| restarts.after(true, MS(lived));
        let pauses: Vec<_> = [0, 1, 2, 3, 400, 0].map(&mut after).into_iter().flatten().collect();
        assert_eq!(pauses, [100, 200, 350, 350, 100, 200].map(MS));
    }

    #[test]
    fn the_policy_says_which_ends_are_followed_by_a_start() {
        let starts = |policy, well| Restarts::new(policy, MS(1), MS(1)).after(well, MS(0)).is_some();
        let all = [Policy::Never, Policy::OnFailure, Policy::Always];
        assert_eq!(
            all.map(|policy| (starts(policy, true), starts(policy, false))),
            [(false, false), (false, true), (true, true)]
        );
    }
}
