//! Distributions of durations as the processes count them: sparse counts of the buckets of [`obol_fabric::metrics`],
//! which can be added up and taken apart, so that a window over them loses nothing between two looks.

use obol_fabric::metrics::{HISTOGRAM_WORDS, Histogram, bucket_floor};
use obol_fabric::{Name, Nanos};
use std::collections::BTreeMap;

/// How many samples lie in each bucket; a bucket without samples is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<u16, u64>);

impl Counts {
    /// What was counted between two looks at the same histogram. A count that fell is of another life and counts anew.
    #[must_use]
    pub fn grown(before: &[(u16, u64)], after: &[(u16, u64)]) -> Self {
        let mut before = before.iter().peekable();
        let each = after.iter().filter_map(|(bucket, n)| {
            while before.next_if(|(earlier, _)| earlier < bucket).is_some() {}
            let old = before.next_if(|(same, _)| same == bucket).map_or(0, |(_, n)| *n);
            let more = if *n >= old { n - old } else { *n };
            (more > 0).then_some((*bucket, more))
        });
        Self(each.collect())
    }

    /// Counts from pairs of bucket and number. What is no bucket is left out.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (u16, u64)>) -> Self {
        let mut counts = Self::default();
        for (bucket, n) in pairs.into_iter().filter(|(bucket, _)| usize::from(*bucket) < HISTOGRAM_WORDS) {
            counts.put(bucket, n);
        }
        counts
    }

    fn put(&mut self, bucket: u16, n: u64) {
        if n > 0 {
            let have = self.0.entry(bucket).or_default();
            *have = have.saturating_add(n);
        }
    }

    /// Pairs of bucket and number, in the order of the buckets.
    pub fn pairs(&self) -> impl DoubleEndedIterator<Item = (u16, u64)> + '_ {
        self.0.iter().map(|(bucket, n)| (*bucket, *n))
    }

    /// Adds another distribution to this one.
    pub fn add(&mut self, other: &Self) {
        for (bucket, n) in other.pairs() {
            self.put(bucket, n);
        }
    }

    /// How many buckets hold any.
    #[must_use]
    pub fn buckets(&self) -> usize {
        self.0.len()
    }

    /// How many samples there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.values().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bucket, as its smallest value, below or in which a fraction `q` of the samples lie.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<Nanos> {
        let wanted = (self.len() as f64 * q).ceil().max(1.0) as u64;
        let mut seen = 0u64;
        self.pairs().find_map(|(bucket, n)| {
            seen = seen.saturating_add(n);
            (seen >= wanted).then(|| floor(bucket))
        })
    }

    /// The smallest value of the lowest bucket.
    #[must_use]
    pub fn least(&self) -> Option<Nanos> {
        self.pairs().next().map(|(bucket, _)| floor(bucket))
    }

    /// The smallest value of the highest bucket.
    #[must_use]
    pub fn most(&self) -> Option<Nanos> {
        self.pairs().next_back().map(|(bucket, _)| floor(bucket))
    }
}

/// The smallest value of a bucket.
#[must_use]
pub const fn floor(bucket: u16) -> Nanos {
    Nanos(bucket_floor(bucket as usize))
}

/// What the owner of one region counted since the look before.
#[derive(Clone, Debug)]
pub struct Spans {
    /// Who.
    pub process: Name,
    /// In the order of [`Histogram::ALL`].
    pub counts: Vec<Counts>,
}

impl Spans {
    /// What it counted in one histogram.
    #[must_use]
    pub fn of(&self, which: Histogram) -> Option<&Counts> {
        self.counts.get(which as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric::metrics::bucket;

    fn dense(values: &[u64]) -> Vec<(u16, u64)> {
        let each = values.iter().map(|value| (u16::try_from(bucket(*value)).expect("small"), 1));
        Counts::from_pairs(each).pairs().collect()
    }

    #[test]
    fn windows_over_a_growing_histogram_add_up_to_it() {
        let looks =
            [dense(&[]), dense(&[10, 2000]), dense(&[10, 2000, 2000]), dense(&[10, 2000, 2000, 1 << 40])];
        let mut sum = Counts::default();
        for pair in looks.windows(2) {
            sum.add(&Counts::grown(&pair[0], &pair[1]));
        }
        assert_eq!(sum, Counts::grown(&[], &looks[3]));
        assert_eq!((sum.len(), sum.least(), sum.most()), (4, Some(Nanos(10)), Some(Nanos(1 << 40))));
        assert_eq!(Counts::from_pairs(sum.pairs()), sum);
    }

    #[test]
    fn a_histogram_that_began_anew_counts_from_zero() {
        let (before, after) = (dense(&[100, 100, 100]), dense(&[100]));
        assert_eq!(Counts::grown(&before, &after).len(), 1);
    }

    #[test]
    fn quantiles_are_buckets_that_hold_them() {
        let counts = Counts::grown(&[], &dense(&(1..=1000).map(|n| n * 1000).collect::<Vec<_>>()));
        let near = |q: f64, wanted: u64| {
            let found = counts.quantile(q).expect("there are samples").0;
            assert!(found <= wanted && wanted < found + found / 16 + 1, "{q}: {found}, not {wanted}");
        };
        near(0.5, 500_000);
        near(0.99, 990_000);
        near(1.0, 1_000_000);
        assert_eq!(Counts::default().quantile(0.5), None);
    }
}
