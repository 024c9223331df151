//! Random numbers of a seed. The same seed draws the same numbers in every version and on every
//! platform, and a machine that holds a generator is `Clone + Hash`.

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): every seed gives a full period.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SplitMix(u64);

impl SplitMix {
    /// A generator that repeats for the same seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    #[inline]
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// xoshiro256++ (Blackman, Vigna, 2019), seeded by [`SplitMix`] so that neighbouring seeds are
/// unrelated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rng([u64; 4]);

impl Rng {
    /// A generator that repeats for the same seed.
    pub const fn new(seed: u64) -> Self {
        let mut seeds = SplitMix::new(seed);
        Self([seeds.next_u64(), seeds.next_u64(), seeds.next_u64(), seeds.next_u64()])
    }

    /// The next 64 bits.
    #[inline]
    pub const fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number in `[0, limit)`; 0 if the limit is 0. Its bias is below `limit / 2^64`.
    #[inline]
    pub const fn below(&mut self, limit: u64) -> u64 {
        ((self.next_u64() as u128 * limit as u128) >> 64) as u64
    }

    /// True with a probability of `n` in a thousand. Never and always cost no draw.
    #[inline]
    pub const fn permille(&mut self, permille: u32) -> bool {
        match permille {
            0 => false,
            1000.. => true,
            _ => self.below(1000) < permille as u64,
        }
    }

    /// True with probability one half.
    #[inline]
    pub const fn coin(&mut self) -> bool {
        self.next_u64() >> 63 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_lie_below_their_limit_and_spread_over_it() {
        let mut rng = Rng::new(7);
        let mut seen = [0u32; 10];
        for _ in 0..10_000 {
            seen[rng.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (800..1200).contains(&n)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
        assert_ne!(Rng::new(1).next_u64(), Rng::new(2).next_u64());
    }
}
