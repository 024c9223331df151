//! Randomness for back-off and join tokens. Seeded from outside, so that simulated runs are
//! reproducible.

use obol_fabric::Nanos;

/// A fixed hash of a pair without a visible pattern: spreads members over caches.
pub const fn mix(a: u64, b: u64) -> u64 {
    Rng(a ^ b.rotate_left(32)).next()
}

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): every seed gives a full period.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rng(u64);

impl Rng {
    /// A generator that repeats for the same seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
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
