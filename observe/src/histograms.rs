//! Latency distributions as the processes count them: sparse counts of the buckets of
//! [`obol_fabric::metrics`]. They can be added and subtracted, so windows over them lose no sample
//! between two polls.

use obol_fabric::host::Reader;
use obol_fabric::metrics::{HISTOGRAM_WORDS, bucket_floor};
use obol_fabric::{Name, Nanos};
use obol_membership::metrics::Histogram;
use std::collections::BTreeMap;

/// The number of samples in each bucket; empty buckets are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<u16, u64>);

impl Counts {
    /// The samples since the poll that left `known`, which is updated. Both are sorted by bucket. A
    /// bucket that is missing in `now` may not have been read, so its known count stays. A count
    /// that decreased belongs to a new process and counts from zero.
    #[must_use]
    pub fn advance(known: &mut Box<[(u16, u64)]>, now: &[(u16, u64)]) -> Self {
        let mut merged = Vec::with_capacity(known.len().max(now.len()));
        let mut earlier = known.iter().copied().peekable();
        let mut grown = BTreeMap::new();
        for &(bucket, n) in now {
            merged.extend(std::iter::from_fn(|| earlier.next_if(|(before, _)| *before < bucket)));
            let old = earlier.next_if(|(same, _)| *same == bucket).map_or(0, |(_, n)| n);
            let more = n.checked_sub(old).unwrap_or(n);
            if more > 0 {
                grown.insert(bucket, more);
            }
            merged.push((bucket, n));
        }
        merged.extend(earlier);
        *known = merged.into();
        Self(grown)
    }

    /// Counts from pairs of bucket and number. Invalid buckets are skipped.
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

    /// Pairs of bucket and number, sorted by bucket.
    pub fn pairs(&self) -> impl DoubleEndedIterator<Item = (u16, u64)> + '_ {
        self.0.iter().map(|(bucket, n)| (*bucket, *n))
    }

    /// Adds another distribution to this one.
    pub fn add(&mut self, other: &Self) {
        for (bucket, n) in other.pairs() {
            self.put(bucket, n);
        }
    }

    /// The number of buckets that are not empty.
    pub fn buckets(&self) -> usize {
        self.0.len()
    }

    /// The number of samples.
    pub fn len(&self) -> u64 {
        self.0.values().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of samples below a bucket.
    pub fn below(&self, bucket: u16) -> u64 {
        self.0.range(..bucket).fold(0, |sum, (_, n)| sum.saturating_add(*n))
    }

    /// The lower bound of the bucket that holds quantile `q`.
    pub fn quantile(&self, q: f64) -> Option<Nanos> {
        let wanted = (self.len() as f64 * q).ceil().max(1.0) as u64;
        let mut seen = 0u64;
        self.pairs().find_map(|(bucket, n)| {
            seen = seen.saturating_add(n);
            (seen >= wanted).then(|| floor(bucket))
        })
    }

    /// The lower bound of the lowest bucket.
    pub fn least(&self) -> Option<Nanos> {
        self.pairs().next().map(|(bucket, _)| floor(bucket))
    }

    /// The lower bound of the highest bucket.
    pub fn most(&self) -> Option<Nanos> {
        self.pairs().next_back().map(|(bucket, _)| floor(bucket))
    }
}

/// The lower bound of a bucket.
pub const fn floor(bucket: u16) -> Nanos {
    Nanos(bucket_floor(bucket as usize))
}

/// Buckets and how many samples they hold.
pub(crate) type Pairs = Box<[(u16, u64)]>;

/// What the owner of a region counted since `known`, which is updated; in the order of
/// [`Histogram::ALL`].
pub(crate) fn advance(reader: Reader<'_>, known: &mut Vec<Pairs>) -> Vec<Counts> {
    known.resize_with(Histogram::ALL.len(), Box::default);
    let each = Histogram::ALL.iter().zip(known);
    each.map(|(which, known)| {
        let now: Vec<_> = reader.buckets((*which).into()).collect();
        Counts::advance(known, &now)
    })
    .collect()
}

/// What the owner of one region counted since the previous poll.
#[derive(Clone, Debug)]
pub struct Histograms {
    /// The owner.
    pub process: Name,
    /// The number of its region.
    pub region: u32,
    /// Distinguishes it from earlier owners of that region.
    pub generation: u32,
    /// By histogram, in the order of [`Histogram::ALL`].
    pub counts: Vec<Counts>,
}

impl Histograms {
    /// The counts of one histogram.
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
        let (mut sum, mut known) = (Counts::default(), Box::default());
        for look in &looks {
            sum.add(&Counts::advance(&mut known, look));
        }
        assert_eq!(sum, Counts::from_pairs(looks[3].iter().copied()));
        assert_eq!((sum.len(), sum.least(), sum.most()), (4, Some(Nanos(10)), Some(Nanos(1 << 40))));
        assert_eq!(Counts::from_pairs(sum.pairs()), sum);
    }

    #[test]
    fn a_bucket_missing_in_one_poll_is_not_counted_twice() {
        let whole = dense(&[10, 2000, 2000, 1 << 40]);
        let (mut sum, mut known) = (Counts::default(), Box::default());
        // A reader that reads all buckets occasionally, and otherwise only those in the middle.
        for look in [&whole[..], &whole[1..2], &[], &whole[..], &whole[1..], &whole[..]] {
            sum.add(&Counts::advance(&mut known, look));
        }
        assert_eq!(sum, Counts::from_pairs(whole));
    }

    #[test]
    fn a_restarted_histogram_counts_from_zero() {
        let mut known = dense(&[100, 100, 100]).into();
        assert_eq!(Counts::advance(&mut known, &dense(&[100])).len(), 1);
    }

    #[test]
    fn quantiles_are_buckets_that_hold_them() {
        let counts = Counts::from_pairs(dense(&(1..=1000).map(|n| n * 1000).collect::<Vec<_>>()));
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
