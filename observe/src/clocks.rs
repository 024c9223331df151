//! What is known of the clocks of other hosts.

use obol_fabric::Instant;
use obol_fabric::remote::ClockRelation;
use std::collections::BTreeMap;

/// The most certain relations of other hosts' clocks, by host.
#[derive(Default)]
pub(crate) struct Clocks(BTreeMap<u8, ClockRelation>);

impl Clocks {
    /// Takes a new measurement. Returns the one that is the most certain at this moment.
    pub(crate) fn best(
        &mut self,
        host: u8,
        measured: ClockRelation,
        at: Instant,
        drift: u32,
    ) -> ClockRelation {
        let best = self.0.entry(host).or_insert(measured);
        if measured.error(at, drift) <= best.error(at, drift) {
            *best = measured;
        }
        *best
    }

    /// That of a host, if it was measured.
    pub(crate) fn of(&self, host: u8) -> Option<&ClockRelation> {
        self.0.get(&host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_a_host_is_known_as_well_as_it_was_ever_measured() {
        let measured = |asked: u64, trip: u64| {
            ClockRelation::measured(Instant(asked), Instant(asked + trip / 2 + 70), Instant(asked + trip))
        };
        let (mut clocks, drift) = (Clocks::default(), 500);
        let second = 1_000_000_000;
        assert_eq!(clocks.best(2, measured(0, 900), Instant(1_000), drift), measured(0, 900));
        assert_eq!(clocks.best(2, measured(2_000, 100), Instant(2_100), drift), measured(2_000, 100));
        // A slow answer says less, until the clocks may have drifted apart since the quick one.
        assert_eq!(clocks.best(2, measured(3_000, 900), Instant(3_900), drift), measured(2_000, 100));
        let later = measured(second, 900);
        assert_eq!(clocks.best(2, later, Instant(second + 900), drift), later);
        // Each host has its own.
        assert_eq!(clocks.best(3, measured(4_000, 5_000), Instant(9_000), drift), measured(4_000, 5_000));
    }
}
