//! The longest gap of each second in a cluster, from what each of its hosts has measured.

use std::collections::BTreeMap;

/// A second of one host.
#[derive(Clone, Copy, Debug, Default)]
struct Second {
    /// The longest gap in the pulses of any other host, in microseconds.
    gap_us: f64,
    /// Other hosts whose pulses count in this second.
    directions: usize,
}

/// The seconds of each host, by its own clock.
#[derive(Debug, Default)]
pub(super) struct Seconds {
    hosts: BTreeMap<u8, BTreeMap<u64, Second>>,
}

/// The seconds that all hosts have in common.
#[derive(Clone, Debug, Default)]
pub(super) struct Common {
    /// The longest gap of each in any direction, in microseconds, the latest last.
    pub(super) maxima_us: Vec<f64>,
    /// The directions of all of them together.
    pub(super) directions: usize,
}

impl Seconds {
    /// Adds the longest gap of a direction in the second of the receiving host that ended at `at`.
    pub(super) fn add(&mut self, to: u8, at: u64, gap_us: f64) {
        let second = self.hosts.entry(to).or_default().entry(at).or_default();
        second.gap_us = second.gap_us.max(gap_us);
        second.directions += 1;
    }

    /// The latest seconds, as many as the host with the fewest has. Clocks of hosts cannot be compared,
    /// so these are aligned by their order. Where one host has measured longer than another since, a
    /// pause that several notice is in different seconds, and counts more than once.
    pub(super) fn common(&self) -> Common {
        let count = self.hosts.values().map(BTreeMap::len).min().unwrap_or_default();
        let mut common = Common { maxima_us: vec![0.0; count], directions: 0 };
        for seconds in self.hosts.values() {
            for (most, second) in common.maxima_us.iter_mut().rev().zip(seconds.values().rev()) {
                *most = second.gap_us.max(*most);
                common.directions += second.directions;
            }
        }
        common
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_seconds_that_all_hosts_have_count_by_the_longest_gap_of_any_direction() {
        let mut seconds = Seconds::default();
        // As files may be named: later seconds first.
        for at in [7, 8, 9, 1, 2, 3] {
            seconds.add(1, at, at as f64);
            seconds.add(1, at, 5.0);
        }
        for at in 100..104 {
            seconds.add(3, at, 6.5);
        }
        let common = seconds.common();
        assert_eq!(common.maxima_us, [6.5, 7.0, 8.0, 9.0]);
        // Two directions to the one host, and one to the other.
        assert_eq!(common.directions, 4 * 2 + 4);
        assert_eq!(Seconds::default().common().maxima_us, [0.0; 0]);
    }
}
