//! The samples of the last hour: all of the last minute, one a second of the last ten, one in ten seconds before that.
//! A sample that is thinned out leaves its events, counts and marks to the next one that is kept, so none is lost.

use crate::tui::poll::sample::{EventRow, MarkRow, ProcessRow, Sample, SpanRow};
use obol_fabric::{Instant, Nanos};
use std::collections::VecDeque;
use std::sync::Arc;

/// How far back each tier reaches, and how far apart its samples are.
const TIERS: [(Nanos, Nanos); 3] = [
    (Nanos::from_secs(60), Nanos::ZERO),
    (Nanos::from_secs(600), Nanos::from_secs(1)),
    (Nanos::from_secs(3600), Nanos::from_secs(10)),
];

/// The samples may take so many bytes; then the oldest go first.
const BYTES_MAX: usize = 5 << 20;

/// About how much memory a bucket of a sparse distribution takes.
const BUCKET_BYTES: usize = 24;

/// Samples in the order of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    /// Newest tier first; within a tier the oldest is in front.
    tiers: [VecDeque<Arc<Sample>>; 3],
    /// What happened in samples that left a tier and were not kept by the next.
    carried: [Carried; 3],
    bytes: usize,
    /// Whether nothing is thinned out.
    whole: bool,
}

/// What a sample that is thinned out leaves to the next one.
#[derive(Clone, Debug, Default)]
struct Carried {
    events: Vec<EventRow>,
    spans: Vec<SpanRow>,
    marks: Vec<MarkRow>,
}

impl Carried {
    fn take(&mut self, sample: &Sample) {
        self.events.extend(sample.events.iter().copied());
        sample.spans.iter().for_each(|span| add(&mut self.spans, span));
        self.marks.extend(sample.marks.iter().cloned());
    }

    fn is_empty(&self) -> bool {
        self.events.is_empty() && self.spans.is_empty() && self.marks.is_empty()
    }

    /// Gives it to a later sample.
    fn give(&mut self, sample: &mut Sample) {
        let Self { mut events, mut spans, mut marks } = std::mem::take(self);
        events.append(&mut sample.events);
        sample.spans.iter().for_each(|span| add(&mut spans, span));
        marks.append(&mut sample.marks);
        (sample.events, sample.spans, sample.marks) = (events, spans, marks);
    }
}

fn add(spans: &mut Vec<SpanRow>, more: &SpanRow) {
    match spans.iter_mut().find(|span| span.of == more.of) {
        Some(span) => span.counts.add(&more.counts),
        None => spans.push(more.clone()),
    }
}

/// About how much memory a sample takes.
fn bytes(sample: &Sample) -> usize {
    let counters: usize = sample.processes.iter().map(|p| p.counters.len() * 8).sum();
    let reasons: usize = sample.reasons.iter().map(|r| r.len() + 24).sum();
    size_of::<Sample>()
        + sample.processes.len() * size_of::<ProcessRow>()
        + sample.events.len() * size_of::<EventRow>()
        + sample
            .spans
            .iter()
            .map(|span| size_of::<SpanRow>() + span.counts.buckets() * BUCKET_BYTES)
            .sum::<usize>()
        + sample.marks.iter().map(|mark| size_of::<MarkRow>() + mark.text.len()).sum::<usize>()
        + counters
        + reasons
}

impl Store {
    /// One that keeps every sample.
    pub(crate) fn whole() -> Self {
        Self { whole: true, ..Self::default() }
    }

    /// Takes the next sample.
    pub(crate) fn push(&mut self, sample: Arc<Sample>) {
        let now = sample.at;
        self.bytes += bytes(&sample);
        self.tiers[0].push_back(sample);
        if self.whole {
            return;
        }
        for (tier, (reach, _)) in TIERS.into_iter().enumerate() {
            while self.tiers[tier].front().is_some_and(|first| now.since(first.at) > reach) {
                self.age(tier);
            }
        }
        while self.bytes > BYTES_MAX && self.len() > 1 {
            let oldest = (0..TIERS.len()).rev().find(|tier| !self.tiers[*tier].is_empty());
            let Some(gone) = oldest.and_then(|tier| self.tiers[tier].pop_front()) else { break };
            self.bytes -= bytes(&gone);
        }
    }

    /// Takes a tier's oldest sample out of it, into the next tier or away.
    fn age(&mut self, tier: usize) {
        let Some(sample) = self.tiers[tier].pop_front() else { return };
        self.bytes -= bytes(&sample);
        let next = tier + 1;
        let Some(&(_, apart)) = TIERS.get(next) else { return };
        if self.tiers[next].back().is_some_and(|last| sample.at.since(last.at) < apart) {
            self.carried[next].take(&sample);
            return;
        }
        let mut kept = sample;
        if !self.carried[next].is_empty() {
            self.carried[next].give(Arc::make_mut(&mut kept));
        }
        self.bytes += bytes(&kept);
        self.tiers[next].push_back(kept);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.tiers.iter().map(VecDeque::len).sum()
    }

    /// All of them, oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Sample>> {
        self.tiers.iter().rev().flatten()
    }

    /// The newest one before this moment.
    pub(crate) fn before(&self, at: Instant) -> Option<&Arc<Sample>> {
        self.iter().rev().find(|sample| sample.at < at)
    }

    /// The oldest one after this moment.
    pub(crate) fn after(&self, at: Instant) -> Option<&Arc<Sample>> {
        self.iter().find(|sample| sample.at > at)
    }

    /// The newest one before this moment whose view is another than that of the sample before it.
    pub(crate) fn change_before(&self, at: Instant) -> Option<&Arc<Sample>> {
        self.changes().filter(|sample| sample.at < at).last()
    }

    /// The oldest one after this moment whose view is another than that of the sample before it.
    pub(crate) fn change_after(&self, at: Instant) -> Option<&Arc<Sample>> {
        self.changes().find(|sample| sample.at > at)
    }

    fn changes(&self) -> impl Iterator<Item = &Arc<Sample>> {
        let view = |sample: &Sample| sample.view.as_ref().map(|view| view.id);
        self.iter().zip(self.iter().skip(1)).filter(move |(a, b)| view(a) != view(b)).map(|(_, b)| b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::samples;
    use obol_chaos::spans::Counts;
    use obol_fabric::metrics::Histogram;

    #[test]
    fn an_hour_is_kept_ever_thinner_and_no_event_is_lost() {
        let mut store = Store::default();
        let quarter = Nanos::from_millis(250);
        let mut at = Instant(0);
        let n = 4 * 3600;
        for number in 0..n {
            at += quarter;
            let mut sample = samples::empty(at);
            sample.events = vec![samples::event(at, number)];
            sample.spans = vec![SpanRow { of: Histogram::Margin, counts: Counts::from_pairs([(5, 1)]) }];
            store.push(Arc::new(sample));
        }
        assert!((1000..1200).contains(&store.len()), "{}", store.len());
        let times: Vec<Instant> = store.iter().map(|sample| sample.at).collect();
        assert!(times.windows(2).all(|pair| pair[0] < pair[1]));
        let mut numbers: Vec<u64> = store.iter().flat_map(|s| s.events.iter().map(|e| e.number)).collect();
        numbers.extend(store.carried.iter().flat_map(|c| &c.events).map(|e| e.number));
        numbers.sort_unstable();
        assert_eq!(numbers, (0..n).collect::<Vec<_>>());
        let spans = store.iter().flat_map(|s| &s.spans).chain(store.carried.iter().flat_map(|c| &c.spans));
        assert_eq!(spans.map(|span| span.counts.len()).sum::<u64>(), n);
        assert_eq!(store.bytes, store.iter().map(|s| bytes(s)).sum::<usize>());
    }

    #[test]
    fn memory_is_bounded_whatever_the_cluster() {
        let mut store = Store::default();
        for n in 1..200 {
            store.push(Arc::new(samples::many(Instant(n * 1_000_000), 500)));
        }
        assert!(store.bytes <= BYTES_MAX && store.len() > 1, "{} in {}", store.bytes, store.len());
    }
}
