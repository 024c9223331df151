//! The figures of one part of a rollout: the baseline, or everything since its command began.

use obol_fabric::{Instant, Nanos, ViewId};
use obol_observe::Percentile;
use obol_observe::figures::total;
use obol_observe::histograms::{Counts, floor};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// At most this many members that failed are named: more than any rollout has that is not a disaster.
const FAILED_MAX: usize = 64;

/// A member that was removed as failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failed {
    pub name: String,
    pub incarnation: u64,
    /// The number of its host, in a cluster of several; null if it was never seen as a member.
    pub host: Option<u8>,
    /// The first view without it.
    pub view: u64,
    /// What found it dead or suspected it; null if no view that was seen says so.
    pub detector: Option<&'static str>,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.incarnation)?;
        if let Some(host) = self.host {
            write!(f, " on host {host}")?;
        }
        write!(f, " by view {}", self.view)?;
        self.detector.map_or(Ok(()), |detector| write!(f, " ({detector})"))
    }
}

/// The figures of a period.
#[derive(Clone, Debug, Default)]
pub struct Period {
    /// How long it was observed.
    pub span: Nanos,
    /// The failovers that began in it, each with its duration; `None` where stamps are missing.
    pub failovers: BTreeMap<ViewId, Option<Nanos>>,
    /// Durations of renewals.
    pub renewals: Counts,
    /// Renewals in time.
    pub timely: u64,
    /// Renewals that were late, or found no majority.
    pub late: u64,
    /// For how long no program could act, or that was not known, as far as polls saw it.
    pub unavailable: Nanos,
    /// For how long the cluster was not healthy, as far as polls saw it: some expected member could not
    /// act, or none.
    pub degraded: Nanos,
    /// Members that joined.
    pub joined: u64,
    /// Members that left on request.
    pub left: u64,
    /// Members that were removed as failed, without those of an exercise.
    pub failed: u64,
    /// The first 64 of them.
    pub who_failed: Vec<Failed>,
}

/// What the judgement needs to know of a distribution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Samples {
    pub(super) n: u64,
    /// The number of samples above a bound.
    pub(super) above: u64,
    /// The value at the percentile, if there are enough.
    pub(super) value: Option<Nanos>,
}

impl Period {
    /// Counts members that joined, left on request, and failed.
    pub(super) fn count(&mut self, joined: u64, left: u64, failed: Vec<Failed>) {
        self.joined += joined;
        self.left += left;
        self.failed += failed.len() as u64;
        let room = FAILED_MAX.saturating_sub(self.who_failed.len());
        self.who_failed.extend(failed.into_iter().take(room));
    }

    /// The measured failovers.
    pub fn measured(&self) -> impl Iterator<Item = Nanos> + '_ {
        self.failovers.values().flatten().copied()
    }

    /// All renewals.
    pub const fn renewed(&self) -> u64 {
        self.timely.saturating_add(self.late)
    }

    /// The share of late ones.
    pub fn late_share(&self) -> Option<f64> {
        (self.renewed() > 0).then(|| self.late as f64 / self.renewed() as f64)
    }

    /// The failovers, judged by a percentile, and those longer than a bound.
    pub(super) fn failover(&self, percentile: Percentile, bound: f64) -> Samples {
        let mut spans: Vec<Nanos> = self.measured().collect();
        spans.sort_unstable();
        let n = spans.len() as u64;
        let above = spans.iter().filter(|span| span.0 as f64 > bound).count() as u64;
        let enough = n >= u64::from(percentile.samples_min());
        let rank = (n as f64 * percentile.quantile()).ceil().max(1.0) as usize;
        Samples { n, above, value: spans.get(rank - 1).copied().filter(|_| enough) }
    }

    /// The same for renewals, whose durations are known by buckets: a bucket's least value counts.
    pub(super) fn renewal(&self, percentile: Percentile, bound: f64) -> Samples {
        let n = self.renewals.len();
        let longer = self.renewals.pairs().filter(|(bucket, _)| floor(*bucket).0 as f64 > bound);
        let above = total(longer.map(|(_, n)| n));
        let enough = n >= u64::from(percentile.samples_min());
        Samples { n, above, value: self.renewals.quantile(percentile.quantile()).filter(|_| enough) }
    }
}

/// The time between two polls if something was wrong at both ends; half of it if at one.
pub(super) fn outage(before: Option<(Instant, bool)>, now: (Instant, bool)) -> Nanos {
    let Some((at, served)) = before else { return Nanos::ZERO };
    let span = now.0.since(at);
    match (served, now.1) {
        (true, true) => Nanos::ZERO,
        (false, false) => span,
        _ => Nanos(span.0 / 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric::metrics::bucket;

    #[test]
    fn a_percentile_of_failovers_needs_its_samples() {
        let mut period = Period::default();
        for n in 1..=29 {
            period.failovers.insert(ViewId(n), Some(Nanos(n * 1000)));
        }
        period.failovers.insert(ViewId(99), None);
        let p90 = period.failover(Percentile::P90, 20_500.0);
        assert_eq!((p90.n, p90.above, p90.value), (29, 9, Some(Nanos(27_000))));
        assert_eq!(period.failover(Percentile::P99, 0.0).value, None);
        assert_eq!(period.failover(Percentile::Max, 0.0).value, Some(Nanos(29_000)));
        assert_eq!(Period::default().failover(Percentile::Max, 0.0).value, None);
    }

    #[test]
    fn renewals_count_by_buckets() {
        let one = |us: u64, n| (u16::try_from(bucket(us * 1000)).expect("small"), n);
        let renewals = Counts::from_pairs([one(6, 290), one(900, 10)]);
        let period = Period { renewals, ..Period::default() };
        let p99 = period.renewal(Percentile::P99, 100_000.0);
        assert_eq!((p99.n, p99.above), (300, 10));
        assert!(p99.value.is_some_and(|value| value > Nanos::from_micros(800)), "{p99:?}");
    }

    #[test]
    fn an_outage_is_as_long_as_the_polls_that_saw_it() {
        let at = |ms: u64, serves| (Instant(ms * 1_000_000), serves);
        assert_eq!(outage(None, at(5, false)), Nanos::ZERO);
        assert_eq!(outage(Some(at(5, true)), at(9, true)), Nanos::ZERO);
        assert_eq!(outage(Some(at(5, false)), at(9, false)), Nanos::from_millis(4));
        assert_eq!(outage(Some(at(5, true)), at(9, false)), Nanos::from_millis(2));
    }
}
