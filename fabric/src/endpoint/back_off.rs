//! When a transport tries again to connect.

use crate::types::{Instant, Nanos};

/// The first interval: a peer that has just started listens by then.
const MIN: Nanos = Nanos::from_millis(2);
/// The last one: a peer that comes back is reached within it, and a missing one costs little.
const MAX: Nanos = Nanos::from_millis(500);

/// The interval until the next attempt: each is twice as long as the one before it, up to a bound.
#[derive(Debug)]
pub struct BackOff(Nanos);

impl Default for BackOff {
    fn default() -> Self {
        Self(MIN)
    }
}

impl BackOff {
    /// The peer was reached: the next interval is the first one again.
    pub const fn reset(&mut self) {
        self.0 = MIN;
    }

    /// An attempt has failed now. Returns when the next one is due.
    pub fn retry_at(&mut self, now: Instant) -> Instant {
        let at = now + self.0;
        self.0 = self.0.saturating_mul(2).min(MAX);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_double_up_to_a_bound_until_the_peer_is_reached() {
        let mut back_off = BackOff::default();
        let mut next = || back_off.retry_at(Instant::ZERO).since(Instant::ZERO);
        let intervals = [(); 10].map(|()| next().0 / 1_000_000);
        assert_eq!(intervals, [2, 4, 8, 16, 32, 64, 128, 256, 500, 500]);
        back_off.reset();
        assert_eq!(back_off.retry_at(Instant::ZERO).since(Instant::ZERO), MIN);
    }
}
