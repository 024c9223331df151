//! What the reproduction of Mu takes from the paper, from elsewhere, or assumes.

use super::super::reproduction::Input;
use obol_fabric::Nanos;
use obol_fabric_sim::Delay;

/// The published detection time (7.3), from which the interval of looks is derived.
const DETECTION: Nanos = Nanos::from_micros(600);
/// Looks until a score of 15 is below 2, and half of one until the first of them (5.1).
const LOOKS: f64 = 14.5;
/// The interval of looks by which detection takes [`DETECTION`] on average.
pub(super) const POLL_INTERVAL: Nanos = Nanos((DETECTION.0 as f64 / LOOKS) as u64);
/// What the published program sleeps between two looks, and the slack that Linux adds to it.
const SLEEP: Nanos = Nanos::from_micros(3);
const TIMER_SLACK: Nanos = Nanos::from_micros(50);
/// The interval of looks of that program.
pub(super) const PROGRAM_LOOKS_EVERY: Nanos = Nanos(SLEEP.0 + TIMER_SLACK.0);
/// One change of permissions: two of them take 244 us on average, and 294 at p99 (7.3).
pub(super) const CHANGE: Delay = Delay::new(110_600, 7_600);
/// How many times longer a change by restarting the queue pair takes (5.2, Figure 2).
pub(super) const RESTART_FACTOR: u32 = 10;
/// The local ACK timeout of the published program's connections, 4.096 us * 2^14, and its 7 retries.
pub(super) const LINK_TIMEOUT: Delay = Delay::fixed(8 * (4_096 << 14));
/// A thread that spins on a core of its own.
pub(super) const TURN_EVERY: Nanos = Nanos(100);
pub(super) const POLL_EVERY: Nanos = Nanos::from_micros(1);
/// Where the connection's timeout is waited for, polls do not count.
pub(super) const SLOW_POLL_EVERY: Nanos = Nanos::from_micros(20);
/// The longest WRITE that carries its bytes itself (6).
pub(super) const INLINE_BYTES: u32 = 256;

/// What differs between the experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) look_every: Nanos,
    pub(super) poll_every: Nanos,
}

impl Default for Setting {
    fn default() -> Self {
        Self { look_every: POLL_INTERVAL, poll_every: POLL_EVERY }
    }
}

pub(super) fn inputs(testbed: &str) -> Vec<Input> {
    let input = |name, value: String, source| Input { name, value, source };
    vec![
        input(
            "testbed",
            testbed.to_owned(),
            "the costs of WRITE and READ; `obol sim table2 --json` has them with sources",
        ),
        input("scores", "0 to 15; failed below 2, alive above 6".to_owned(), "5.1; the shipped detector's"),
        input(
            "interval of looks",
            POLL_INTERVAL.to_string(),
            "derived: the published detection of 600 us, over 14.5 looks",
        ),
        input(
            "interval of looks of the published program",
            PROGRAM_LOOKS_EVERY.to_string(),
            "its sleep of 3 us, and Linux's default timer slack of 50 us in full",
        ),
        input(
            "two changes of permissions",
            "244 us on average, 294 at p99".to_owned(),
            "7.3, queue pair's flags",
        ),
        input(
            "a change by restarting the queue pair",
            format!("{RESTART_FACTOR} times as long"),
            "5.2 and Figure 2",
        ),
        input(
            "timeout of a connection",
            LINK_TIMEOUT.min.to_string(),
            "the published program: timeout 14, and 7 retries",
        ),
        input("inline bytes", INLINE_BYTES.to_string(), "6"),
        input(
            "turns of a thread",
            format!("each {POLL_EVERY}, events within {TURN_EVERY}"),
            "assumed: pinned threads that spin (6)",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::super::samples::Samples;
    use super::*;
    use obol_rng::Rng;

    #[test]
    fn two_changes_take_as_long_as_published() {
        let mut rng = Rng::new(1);
        let two = |_| Nanos(CHANGE.draw(&mut rng) + CHANGE.draw(&mut rng));
        let pairs: Samples = (0..100_000).map(two).collect();
        let (mean, p99) = (pairs.mean().expect("samples"), pairs.quantile(0.99).expect("samples"));
        assert!((243_000..245_000).contains(&mean.0), "{mean}");
        assert!((291_000..297_000).contains(&p99.0), "{p99}");
    }

    #[test]
    fn derived_values_are_as_they_are_described() {
        assert_eq!((POLL_INTERVAL, PROGRAM_LOOKS_EVERY), (Nanos(41_379), Nanos(53_000)));
        assert_eq!(LINK_TIMEOUT.min, Nanos(536_870_912));
    }
}
