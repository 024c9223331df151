//! How far the faults of one cue lie apart. Each fault agent stamps with the clock of its host, so
//! between hosts the answer has the error of the clocks.

use crate::drills::agent::channel::Stamp;
use obol_fabric::Nanos;

/// The skew that is tolerated unless a drill says otherwise: of a cue on one host, and on several,
/// to which it comes by their gateways.
const ON_ONE_HOST: Nanos = Nanos::from_micros(200);
const BETWEEN_HOSTS: Nanos = Nanos::from_millis(10);

/// The skew of a cue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Skew {
    /// Between the first stamp and the last.
    pub(super) found: Nanos,
    /// How much larger the true skew may be.
    pub(super) error: Nanos,
}

impl Skew {
    /// The skew of the faults that were injected. Two stamps of one host are off by the same time, those of two
    /// hosts by up to the sum of both errors.
    pub(super) fn of(stamps: &[Stamp]) -> Self {
        let injected: Vec<&Stamp> = stamps.iter().filter(|stamp| stamp.error.is_none()).collect();
        let (mut found, mut most) = (0, 0);
        for (at, one) in injected.iter().enumerate() {
            for other in &injected[at + 1..] {
                let apart = one.at.abs_diff(other.at);
                let errors = one.clock_error.saturating_add(other.clock_error);
                let error = if one.host == other.host { 0 } else { errors };
                found = apart.max(found);
                most = apart.saturating_add(error).max(most);
            }
        }
        Self { found: Nanos(found), error: Nanos(most - found) }
    }

    /// The largest skew that the stamps allow.
    pub(super) fn most(self) -> Nanos {
        self.found.saturating_add(self.error)
    }
}

/// The skew up to which a repetition counts. `wanted` is that of the drill.
pub(super) fn tolerated(wanted: Option<Nanos>, stamps: &[Stamp]) -> Nanos {
    let first = stamps.first().map(|stamp| stamp.host);
    let several = stamps.iter().any(|stamp| Some(stamp.host) != first);
    wanted.unwrap_or(if several { BETWEEN_HOSTS } else { ON_ONE_HOST })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(host: u8, at: u64, clock_error: u64) -> Stamp {
        Stamp { name: format!("on-{host}"), at, error: None, host, clock_error }
    }

    fn skew(stamps: &[Stamp]) -> (u64, u64) {
        let Skew { found, error } = Skew::of(stamps);
        (found.0, error.0)
    }

    #[test]
    fn stamps_of_one_host_have_a_skew_without_error() {
        assert_eq!(skew(&[]), (0, 0));
        assert_eq!(skew(&[stamp(1, 70, 0)]), (0, 0));
        assert_eq!(skew(&[stamp(1, 70, 0), stamp(1, 100, 0), stamp(1, 60, 0)]), (40, 0));
        // However uncertain the clock of that host is here.
        assert_eq!(skew(&[stamp(2, 70, 900), stamp(2, 100, 900)]), (30, 0));
    }

    #[test]
    fn stamps_of_two_hosts_may_be_off_by_the_errors_of_both_clocks() {
        assert_eq!(skew(&[stamp(1, 100, 0), stamp(2, 130, 8)]), (30, 8));
        assert_eq!(skew(&[stamp(3, 130, 5), stamp(2, 100, 8)]), (30, 13));
        // The pair that lies further apart is more certain here than the one that may.
        let three = [stamp(1, 100, 0), stamp(1, 140, 0), stamp(2, 135, 50)];
        assert_eq!(skew(&three), (40, 45));
        assert_eq!(Skew::of(&three).most(), Nanos(85));
        assert_eq!(skew(&[stamp(1, 0, u64::MAX), stamp(2, 9, u64::MAX)]), (9, u64::MAX - 9));
    }

    #[test]
    fn a_fault_that_missed_has_no_part_in_the_skew() {
        let missed = Stamp { error: Some("it had ended".to_owned()), ..stamp(2, 900, 7) };
        assert_eq!(skew(&[stamp(1, 100, 0), missed, stamp(1, 101, 0)]), (1, 0));
    }

    #[test]
    fn a_cue_may_take_longer_to_other_hosts_unless_the_drill_says_otherwise() {
        let (here, there) = (stamp(1, 0, 0), stamp(2, 0, 0));
        assert_eq!(tolerated(None, &[here.clone(), here.clone()]), ON_ONE_HOST);
        assert_eq!(tolerated(None, &[here.clone(), there.clone()]), BETWEEN_HOSTS);
        assert_eq!(tolerated(Some(Nanos(7)), &[here, there]), Nanos(7));
    }
}
