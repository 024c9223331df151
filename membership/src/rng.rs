//! Randomness for back-off and join tokens. Seeded from outside, so that simulated runs are
//! reproducible.

use obol_fabric::Nanos;
use obol_rng::SplitMix;

/// A fixed hash of a pair without a visible pattern: spreads members over caches.
pub const fn mix(a: u64, b: u64) -> u64 {
    SplitMix::new(a ^ b.rotate_left(32)).next_u64()
}

/// A source of back-offs and tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rng(SplitMix);

impl Rng {
    /// A generator that repeats for the same seed.
    pub const fn new(seed: u64) -> Self {
        Self(SplitMix::new(seed))
    }

    /// The next 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A token that no other process draws; never zero.
    pub const fn token(&mut self) -> u64 {
        self.next() | 1
    }

    /// A span in `[0, limit)`.
    pub const fn below(&mut self, limit: Nanos) -> Nanos {
        Nanos(if limit.0 == 0 { 0 } else { self.next() % limit.0 })
    }
}
