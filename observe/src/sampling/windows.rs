//! Distributions of durations over windows: the last minute, the minute before it, and the minute
//! before a mark. They are sums of the counts between two polls, so nothing is lost.

use crate::histograms::Counts;
use crate::sampling::sample::SpanRow;
use obol_fabric::{Instant, Nanos};
use obol_membership::metrics::Histogram;
use std::collections::VecDeque;

pub const WINDOW: Nanos = Nanos::from_secs(60);

/// Percentiles, and the samples that each needs: with fewer, the worst sample may be better than
/// the percentile with more than 5 % probability.
pub const PERCENTILES: [(&str, f64, u64); 4] =
    [("p50", 0.5, 5), ("p90", 0.9, 29), ("p99", 0.99, 299), ("p99.9", 0.999, 2995)];

/// One of [`PERCENTILES`], with enough samples. If small values are bad, it counts from above.
pub fn percentile(counts: &Counts, at: usize, small_is_bad: bool) -> Option<Nanos> {
    let (_, q, least) = *PERCENTILES.get(at)?;
    let q = if small_is_bad { 1.0 - q } else { q };
    (counts.len() >= least).then(|| counts.quantile(q))?
}

/// One distribution for each of [`Histogram::ALL`].
pub type Set = [Counts; Histogram::ALL.len()];

/// The counts around one moment.
#[derive(Clone, Debug)]
struct Part {
    at: Instant,
    set: Set,
}

/// The reference of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// The minute before it.
    Minute,
    /// The minute before the newest mark, compared with everything after it.
    Mark,
}

/// Distributions over the last two minutes.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    parts: VecDeque<Part>,
    /// The newest mark: its time, and the minute before it.
    marked: Option<(Instant, Set)>,
    /// Everything since then.
    since_mark: Set,
}

fn add(set: &mut Set, more: &Set) {
    for (sum, part) in set.iter_mut().zip(more) {
        sum.add(part);
    }
}

impl Windows {
    /// Adds the counts up to this moment.
    pub fn take(&mut self, at: Instant, spans: &[SpanRow]) {
        if spans.is_empty() {
            return;
        }
        let mut set = Set::default();
        for span in spans {
            set[span.of as usize].add(&span.counts);
        }
        if self.marked.is_some() {
            add(&mut self.since_mark, &set);
        }
        self.parts.push_back(Part { at, set });
        while self.parts.front().is_some_and(|part| at.since(part.at) > Nanos(2 * WINDOW.0)) {
            self.parts.pop_front();
        }
    }

    /// Sets the mark, to compare with the minute before it.
    pub fn mark(&mut self, at: Instant) {
        self.marked = Some((at, self.between(at - WINDOW, at)));
        self.since_mark = self.between(at, Instant(u64::MAX));
    }

    /// The sum of the counts after `from` up to `to`.
    fn between(&self, from: Instant, to: Instant) -> Set {
        let mut sum = Set::default();
        for part in self.parts.iter().filter(|part| part.at > from && part.at <= to) {
            add(&mut sum, &part.set);
        }
        sum
    }

    /// The last minute.
    pub fn last(&self) -> Set {
        let Some(newest) = self.parts.back().map(|part| part.at) else { return Set::default() };
        self.between(newest - WINDOW, newest)
    }

    /// The two sides of the comparison: before, and after.
    pub fn compared(&self) -> (Before, Set, Set) {
        if let Some((_, before)) = &self.marked {
            return (Before::Mark, before.clone(), self.since_mark.clone());
        }
        let Some(newest) = self.parts.back().map(|part| part.at) else {
            return (Before::Minute, Set::default(), Set::default());
        };
        let middle = newest - WINDOW;
        (Before::Minute, self.between(middle - WINDOW, middle), self.between(middle, newest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(n: u64) -> Vec<SpanRow> {
        vec![SpanRow { of: Histogram::Margin, counts: Counts::from_pairs([(40, n)]) }]
    }

    fn second(n: u64) -> Instant {
        Instant((1000 + n) * 1_000_000_000)
    }

    fn margin(set: &Set) -> u64 {
        set[Histogram::Margin as usize].len()
    }

    #[test]
    fn windows_are_a_minute_long_and_adjacent() {
        let mut windows = Windows::default();
        assert_eq!(windows.compared().0, Before::Minute);
        for n in 0..300 {
            windows.take(second(n), &spans(1));
            windows.take(second(n), &[]);
        }
        let (_, before, after) = windows.compared();
        assert_eq!([margin(&windows.last()), margin(&before), margin(&after)], [60, 60, 60]);
    }

    #[test]
    fn a_mark_separates_before_from_after() {
        let mut windows = Windows::default();
        for n in 0..200 {
            if n == 100 {
                windows.mark(second(99));
            }
            windows.take(second(n), &spans(1));
        }
        let (which, before, after) = windows.compared();
        assert_eq!((which, margin(&before), margin(&after)), (Before::Mark, 60, 100));
    }
}
