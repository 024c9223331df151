//! Percentiles, and how many samples each needs.

use crate::named_enum;

named_enum! {
    /// A percentile of a distribution.
    Percentile {
        /// The median.
        P50 = "p50",
        /// The 90th.
        P90 = "p90",
        /// The 99th.
        P99 = "p99",
        /// The 99.9th.
        P999 = "p999",
        /// The largest sample; a statement about these repetitions alone.
        Max = "max",
    }
}

impl Percentile {
    pub const fn quantile(self) -> f64 {
        match self {
            Self::P50 => 0.5,
            Self::P90 => 0.9,
            Self::P99 => 0.99,
            Self::P999 => 0.999,
            Self::Max => 1.0,
        }
    }

    /// Samples from which on it is reported: the smallest `n` with 1 - q^n >= 95 %, so that the
    /// largest sample is most likely not below the true percentile.
    pub const fn samples_min(self) -> u32 {
        match self {
            Self::Max => 1,
            Self::P50 => 5,
            Self::P90 => 29,
            Self::P99 => 299,
            Self::P999 => 2995,
        }
    }
}
