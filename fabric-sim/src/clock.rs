//! A node's clock: an exact integer function of true time, and its inverse.

use obol_fabric::types::Instant;

const BILLION: u64 = 1_000_000_000;

/// A clock that starts at `offset` when true time starts and then runs at a fixed rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Clock {
    offset: u64,
    /// Local nanoseconds in a billion true ones.
    speed: u64,
}

impl Default for Clock {
    /// True time itself.
    fn default() -> Self {
        Self { offset: 0, speed: BILLION }
    }
}

/// `a * b / c`, rounded down, or `u64::MAX`. The short way serves nearly every call of a
/// simulation.
const fn scaled(a: u64, b: u64, c: u64) -> u64 {
    if let Some(product) = a.checked_mul(b) {
        return product / c;
    }
    let wide = a as u128 * b as u128 / c as u128;
    if wide > u64::MAX as u128 { u64::MAX } else { wide as u64 }
}

impl Clock {
    /// A clock that is `rate_ppb` parts per billion fast (or slow, if negative) and shows `offset`
    /// at true time 0. Rates are limited to +-500 million: half and one and a half times true time.
    pub fn new(offset: Instant, rate_ppb: i64) -> Self {
        let speed = BILLION.saturating_add_signed(rate_ppb.clamp(-500_000_000, 500_000_000));
        Self { offset: offset.0, speed }
    }

    /// How fast it is, in parts per billion.
    pub const fn rate_ppb(&self) -> i64 {
        self.speed as i64 - BILLION as i64
    }

    /// What it shows at true time `time` (ns).
    #[inline]
    pub const fn local(&self, time: u64) -> Instant {
        let run = if self.speed == BILLION { time } else { scaled(time, self.speed, BILLION) };
        Instant(self.offset.saturating_add(run))
    }

    /// The first true time (ns) at which it shows `local` or more; `u64::MAX` for
    /// [`Instant::NEVER`].
    #[inline]
    pub const fn to_true(&self, local: Instant) -> u64 {
        if local.0 == u64::MAX {
            return u64::MAX;
        }
        let run = local.0.saturating_sub(self.offset);
        if self.speed == BILLION || run == 0 {
            return run;
        }
        // floor(t * speed / 10^9) >= run holds from t = ceil(run * 10^9 / speed) on.
        match run.checked_mul(BILLION) {
            Some(product) => product.div_ceil(self.speed),
            None => {
                let wide = (run as u128 * BILLION as u128).div_ceil(self.speed as u128);
                if wide > u64::MAX as u128 { u64::MAX } else { wide as u64 }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_inverse_is_never_early_and_at_most_a_nanosecond_off(
            offset in 0u64..1 << 50, rate in -1_000_000i64..1_000_000, time in 0u64..1 << 52,
        ) {
            let clock = Clock::new(Instant(offset), rate);
            let back = clock.to_true(clock.local(time));
            prop_assert!(back <= time && time - back <= 1, "{back} for {time}");
            prop_assert!(clock.local(back) >= clock.local(time));
        }

        #[test]
        fn a_deadline_is_reached_at_its_true_time_and_not_before(
            offset in 0u64..1 << 40, rate in -500_000_000i64..=500_000_000, ahead in 1u64..1 << 50,
        ) {
            let clock = Clock::new(Instant(offset), rate);
            let deadline = Instant(offset + ahead);
            let reached = clock.to_true(deadline);
            prop_assert!(clock.local(reached) >= deadline);
            prop_assert!(clock.local(reached - 1) < deadline);
        }
    }

    #[test]
    fn never_stays_never_and_the_past_is_at_once() {
        let clock = Clock::new(Instant(500), 100);
        assert_eq!(clock.to_true(Instant::NEVER), u64::MAX);
        assert_eq!(clock.to_true(Instant(3)), 0);
        assert_eq!(clock.rate_ppb(), 100);
    }
}
