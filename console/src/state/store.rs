//! The samples of the last hour: all of the last minute, one a second of the last ten, one in ten
//! seconds before that. Of a large cluster fewer fit; then samples are the farther apart the older
//! they are, and it still is the whole hour.
//!
//! A dropped sample leaves its events, counts and annotations to the next one, so none is lost. One
//! at which the cluster's health changed is kept while there is room.

use crate::state::Step;
use crate::state::packed::{self, Identity, Numbers};
use obol_fabric::{Instant, Nanos};
use obol_observe::Health;
use obol_observe::advice::Advice;
use obol_observe::replicas::Replica;
use obol_observe::sampling::data::{self, Data};
use obol_observe::sampling::sample::{MarkRow, ProcessRow, Sample, SpanRow, ViewRow};
use std::collections::VecDeque;
use std::sync::Arc;

/// The interval of samples, by age.
const TIERS: [(Nanos, Nanos); 2] =
    [(Nanos::from_secs(60), Nanos::from_secs(1)), (Nanos::from_secs(600), Nanos::from_secs(10))];
/// Older samples are dropped.
const REACH: Nanos = Nanos::from_secs(3600);

/// Memory limit of the samples without their events.
const BYTES_MAX: usize = 3 << 19;
/// Events to keep; the oldest are dropped first. A screen shows at most half as many.
const EVENTS_MAX: usize = 2 * data::EVENTS_MAX;

/// Approximate memory of a bucket of a sparse distribution.
const BUCKET_BYTES: usize = 24;

/// Approximate memory of a replica of a log, with its texts.
const REPLICA_BYTES: usize = size_of::<Replica>() + 32;

/// One sample, with its rows packed.
#[derive(Clone, Debug)]
struct Frame {
    at: Instant,
    /// Everything except rows, view and reasons.
    rest: Sample,
    view: Option<Arc<ViewRow>>,
    reasons: Arc<[String]>,
    advice: Arc<[Advice]>,
    identities: Arc<[Identity]>,
    /// The rows are relative to zero, not to the previous sample.
    from_zero: bool,
    rows: Box<[u8]>,
}

impl Frame {
    /// Its approximate memory, without events and shared parts.
    fn bytes(&self) -> usize {
        let Sample { spans, marks, replicas, .. } = &self.rest;
        let replicas = replicas.iter().flat_map(|replicas| &replicas.replicas).map(|_| REPLICA_BYTES);
        let spans = spans.iter().map(|span| size_of::<SpanRow>() + span.counts.buckets() * BUCKET_BYTES);
        size_of::<Self>()
            + self.rows.len()
            + spans.sum::<usize>()
            + replicas.sum::<usize>()
            + marks.iter().map(|mark| size_of::<MarkRow>() + mark.text.len()).sum::<usize>()
    }

    /// Takes over events and counts from a dropped previous sample.
    fn inherit(&mut self, gone: Self) {
        if !self.from_zero {
            self.rows = packed::merge(&gone.rows, &self.rows);
            self.from_zero = gone.from_zero;
        }
        let Sample { mut events, mut spans, mut marks, mut names, .. } = gone.rest;
        if !names.is_empty() {
            names.append(&mut self.rest.names);
            self.rest.names = names;
        }
        if !events.is_empty() {
            events.append(&mut self.rest.events);
            self.rest.events = events;
        }
        if !spans.is_empty() {
            self.rest.spans.iter().for_each(|span| add(&mut spans, span));
            self.rest.spans = spans;
        }
        if !marks.is_empty() {
            marks.append(&mut self.rest.marks);
            self.rest.marks = marks;
        }
    }

    /// The sample with these rows.
    fn sample(&self, processes: Vec<ProcessRow>) -> Sample {
        let (view, reasons, advice) =
            (self.view.as_deref().cloned(), self.reasons.to_vec(), self.advice.to_vec());
        Sample { processes, view, reasons, advice, ..self.rest.clone() }
    }
}

fn add(spans: &mut Vec<SpanRow>, more: &SpanRow) {
    match spans.iter_mut().find(|span| span.of == more.of) {
        Some(span) => span.counts.add(&more.counts),
        None => spans.push(more.clone()),
    }
}

/// Samples by time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    /// Oldest first.
    frames: VecDeque<Frame>,
    /// The newest sample, to which the next one is relative.
    newest: Option<Arc<Sample>>,
    bytes: usize,
    /// The number of events in the samples.
    events: usize,
}

impl Store {
    /// Adds the next sample.
    pub(crate) fn push(&mut self, sample: Arc<Sample>) {
        let now = sample.at;
        let frame = self.frame(&sample);
        self.bytes += frame.bytes();
        self.events += frame.rest.events.len();
        self.frames.push_back(frame);
        self.newest = Some(sample);
        for (age, apart) in TIERS {
            let beyond = self.frames.partition_point(|frame| now.since(frame.at) > age);
            if beyond >= 2
                && self.frames[beyond - 1].at.since(self.frames[beyond - 2].at) < apart
                && !self.is_change(beyond - 1)
            {
                self.leave_out(beyond - 1);
            }
        }
        while self.frames.front().is_some_and(|first| now.since(first.at) > REACH) {
            self.forget_first();
        }
        while self.events > EVENTS_MAX
            && let Some(oldest) = self.frames.iter_mut().find(|frame| !frame.rest.events.is_empty())
        {
            let gone = (self.events - EVENTS_MAX).min(oldest.rest.events.len());
            oldest.rest.events.drain(..gone);
            oldest.rest.events.shrink_to_fit();
            self.events -= gone;
        }
        while self.bytes > BYTES_MAX
            && let Some(least) = self.least_missed(now)
        {
            self.leave_out(least);
        }
        while self.bytes > BYTES_MAX && self.frames.len() > 1 {
            self.forget_first();
        }
    }

    fn frame(&self, sample: &Arc<Sample>) -> Frame {
        let rows = &sample.processes;
        let before = self.frames.back();
        let identities = before.filter(|before| packed::are(&before.identities, rows));
        let newest = self.newest.as_deref().filter(|_| identities.is_some());
        let identities =
            identities.map_or_else(|| packed::identities(rows).into(), |b| Arc::clone(&b.identities));
        // A view of hundreds of members has as many changes.
        let view = sample.view.as_ref().map(|view| {
            let shared = before.and_then(|before| before.view.as_ref()).filter(|shared| ***shared == *view);
            shared.map_or_else(|| Arc::new(view.clone()), Arc::clone)
        });
        let reasons = before.filter(|before| *before.reasons == *sample.reasons);
        let reasons = reasons.map_or_else(|| sample.reasons.as_slice().into(), |b| Arc::clone(&b.reasons));
        let advice = before.filter(|before| *before.advice == *sample.advice);
        let advice = advice.map_or_else(|| sample.advice.as_slice().into(), |b| Arc::clone(&b.advice));
        Frame {
            at: sample.at,
            rest: Sample {
                at: sample.at,
                unix: sample.unix,
                cluster_id: sample.cluster_id,
                view: None,
                processes: Vec::new(),
                health: sample.health,
                reasons: Vec::new(),
                advice: Vec::new(),
                leader: sample.leader,
                events: sample.events.clone(),
                spans: sample.spans.clone(),
                renewals: sample.renewals,
                marks: sample.marks.clone(),
                names: sample.names.clone(),
                paths: sample.paths.clone(),
                replicas: sample.replicas.clone(),
                thresholds: sample.thresholds,
                cost: sample.cost,
            },
            view,
            reasons,
            advice,
            from_zero: newest.is_none(),
            rows: packed::pack(&identities, newest.map(|newest| newest.processes.as_slice()), rows),
            identities,
        }
    }

    /// Whether the cluster's health changes here, or the cluster itself after it: an outage keeps
    /// its begin and end, and no cluster inherits another's events.
    fn is_change(&self, at: usize) -> bool {
        let of = |at: usize| self.frames.get(at).map(|frame| (frame.rest.health, frame.rest.cluster_id));
        let [before, here, after] = [at.checked_sub(1).and_then(of), of(at), of(at + 1)];
        let differ = |a: Option<Health>, b: Option<Health>| a.zip(b).is_some_and(|(a, b)| a != b);
        let health = |of: Option<(Health, _)>| of.map(|(health, _)| health);
        differ(health(before), health(here))
            || here.zip(after).is_some_and(|((_, here), (_, after))| here != after)
    }

    /// The sample to drop next: the one that leaves the smallest gap for its age.
    fn least_missed(&self, now: Instant) -> Option<usize> {
        let gap = |at: usize| {
            let (before, after) = (&self.frames[at - 1], &self.frames[at + 1]);
            let age = now.since(self.frames[at].at).0.saturating_add(1_000_000_000);
            after.at.since(before.at).0 as f64 / age as f64
        };
        let places = 1..self.frames.len().saturating_sub(1);
        places.filter(|at| !self.is_change(*at)).min_by(|a, b| gap(*a).total_cmp(&gap(*b)))
    }

    /// Drops a sample other than the newest; its events go to the next one.
    fn leave_out(&mut self, at: usize) {
        let Some(gone) = self.frames.remove(at) else { return };
        self.bytes -= gone.bytes();
        if let Some(next) = self.frames.get_mut(at) {
            self.bytes -= next.bytes();
            next.inherit(gone);
            self.bytes += next.bytes();
        }
    }

    /// Drops the oldest sample with its events.
    fn forget_first(&mut self) {
        if let Some(first) = self.frames.front_mut() {
            self.bytes -= first.bytes();
            self.events -= first.rest.events.len();
            (first.rest.events, first.rest.spans, first.rest.marks) = Default::default();
            self.bytes += first.bytes();
        }
        self.leave_out(0);
    }

    /// The number of samples.
    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    fn at(&self, place: usize) -> Option<Instant> {
        self.frames.get(place).map(|frame| frame.at)
    }

    /// Their times, oldest first.
    pub(crate) fn times(&self) -> impl DoubleEndedIterator<Item = Instant> + '_ {
        (0..self.len()).filter_map(|place| self.at(place))
    }

    /// Those after `after` up to `to`, oldest first.
    pub(crate) fn between(
        &self,
        after: Option<Instant>,
        to: Instant,
    ) -> impl Iterator<Item = Arc<Sample>> + '_ {
        let mut numbers = Numbers::default();
        self.frames.iter().take_while(move |frame| frame.at <= to).filter_map(move |frame| {
            numbers.add(&frame.identities, frame.from_zero, &frame.rows);
            let wanted = after.is_none_or(|after| frame.at > after);
            wanted.then(|| Arc::new(frame.sample(numbers.rows(&frame.identities))))
        })
    }

    /// Visits those after `after` up to `to`, oldest first, reusing memory; returns the last.
    fn show(&self, after: Option<Instant>, to: Instant, mut see: impl FnMut(&Sample)) -> Option<Arc<Sample>> {
        let mut numbers = Numbers::default();
        let mut last: Option<Sample> = None;
        for frame in self.frames.iter().take_while(|frame| frame.at <= to) {
            numbers.add(&frame.identities, frame.from_zero, &frame.rows);
            if after.is_none_or(|after| frame.at > after) {
                let mut rows = last.take().map_or_else(Vec::new, |sample| sample.processes);
                numbers.write(&frame.identities, &mut rows);
                see(last.insert(frame.sample(rows)));
            }
        }
        last.map(Arc::new)
    }

    /// Adds the samples after `after` up to `to` to the data; only the last is examined in full.
    pub(crate) fn derive(&self, data: &mut Data, after: Option<Instant>, to: Instant) {
        if let Some(last) = self.show(after, to, |sample| data.pass(sample)) {
            data.end_with(last);
        }
    }

    /// The time of the sample `places` before the one of this moment, or of the oldest.
    pub(crate) fn places_before(&self, at: Instant, places: usize) -> Option<Instant> {
        self.times().rev().filter(|time| *time < at).take(places).last()
    }

    /// All of them, oldest first.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = Arc<Sample>> + '_ {
        self.between(None, Instant(u64::MAX))
    }

    /// The time of the one at which a step from this moment ends; `None` if there is none.
    pub(crate) fn after_step(&self, at: Instant, step: Step) -> Option<Instant> {
        match step {
            Step::Back => self.times().rev().find(|time| *time < at),
            Step::Forward => self.times().find(|time| *time > at),
            Step::ChangeBack => self.changes().filter(|time| *time < at).last(),
            Step::ChangeForward => self.changes().find(|time| *time > at),
        }
    }

    /// The times at which the view changed.
    fn changes(&self) -> impl Iterator<Item = Instant> + '_ {
        let view = |place: usize| self.frames.get(place)?.view.as_ref().map(|view| view.id);
        (1..self.len())
            .filter(move |place| view(place - 1) != view(*place))
            .filter_map(|place| self.at(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use obol_membership::metrics::Histogram;
    use obol_observe::histograms::Counts;

    #[test]
    fn an_hour_is_kept_at_decreasing_density_without_loss_of_events() {
        let mut store = Store::default();
        let quarter = Nanos::from_millis(250);
        let mut at = Instant(0);
        let n = 4 * 3600;
        for number in 0..n {
            at += quarter;
            let mut sample = samples::empty(at);
            sample.events = Vec::from_iter((number % 2 == 0).then(|| samples::event(at, number / 2)));
            sample.spans = vec![SpanRow { of: Histogram::Margin, counts: Counts::from_pairs([(5, 1)]) }];
            store.push(Arc::new(sample));
        }
        assert!((1000..1200).contains(&store.len()), "{}", store.len());
        let times: Vec<Instant> = store.times().collect();
        assert!(times.windows(2).all(|pair| pair[0] < pair[1]));
        let numbers: Vec<u64> = store.iter().flat_map(|s| s.events.clone()).map(|e| e.number).collect();
        assert_eq!(numbers, (0..n / 2).collect::<Vec<_>>());
        assert_eq!(store.events, numbers.len());
        let spans: u64 = store.iter().flat_map(|s| s.spans.clone()).map(|span| span.counts.len()).sum();
        assert_eq!(spans, n);
        assert_eq!(store.bytes, store.frames.iter().map(Frame::bytes).sum::<usize>());
    }

    #[test]
    fn of_too_many_events_the_newest_are_kept() {
        let mut store = Store::default();
        let most = EVENTS_MAX as u64;
        for n in 0..200 {
            let at = Instant(1_000_000_000 + n * 250_000_000);
            let mut sample = samples::empty(at);
            sample.events = (0..most / 100).map(|more| samples::event(at, n * most / 100 + more)).collect();
            store.push(Arc::new(sample));
        }
        let numbers: Vec<u64> = store.iter().flat_map(|s| s.events.clone()).map(|e| e.number).collect();
        assert_eq!((numbers.len(), numbers.last()), (EVENTS_MAX, Some(&(199 * most / 100 + most / 100 - 1))));
        assert!(store.len() == 200, "{}", store.len());
    }

    #[test]
    fn kept_samples_are_unchanged() {
        let (mut store, mut whole) = (Store::default(), Vec::new());
        for n in 0..400 {
            let at = Instant(3_600_000_000_000 + n * 250_000_000);
            let mut sample = if n % 90 == 7 { samples::degraded(at) } else { samples::healthy(at) };
            if n >= 200 {
                // A new life, to which nothing is relative.
                sample.processes[4].pid = 4711;
            }
            sample.events.clear();
            sample.spans.clear();
            whole.push(sample.clone());
            store.push(Arc::new(sample));
        }
        assert!((275..285).contains(&store.len()), "{}", store.len());
        for sample in store.iter() {
            let pushed = whole.iter().find(|one| one.at == sample.at);
            assert_eq!(Some(&*sample), pushed);
        }
        let [from, to] = [100, 200].map(|n| store.at(n).expect("kept"));
        assert_eq!(store.between(Some(from), to).count(), 100);
        let view = |sample: &Sample| sample.view.as_ref().map(|view| view.id);
        let is_change = |pair: &&[Sample]| pair[1].at < to && view(&pair[0]) != view(&pair[1]);
        let change = whole.windows(2).rev().find(is_change);
        assert_eq!(store.after_step(to, Step::ChangeBack), change.map(|pair| pair[1].at));
    }

    #[test]
    fn a_large_cluster_has_its_whole_hour_in_bounded_memory() {
        let mut store = Store::default();
        let (start, second) = (1_000_000_000_000_000, 1_000_000_000);
        for n in 0..600 {
            store.push(Arc::new(samples::many(Instant(start + n * 6 * second), 500)));
        }
        assert!(store.bytes <= BYTES_MAX, "{}", store.bytes);
        let times: Vec<Instant> = store.times().collect();
        let (first, last) = (times[0], times[times.len() - 1]);
        assert!(last.since(first) > Nanos::from_secs(3500), "{} in {}", store.len(), last.since(first));
        // Gaps grow with age, within a factor because of the last dropped samples.
        let gap = |pair: &[Instant]| pair[1].since(pair[0]).0;
        let newest: u64 = times[times.len() - 10..].windows(2).map(gap).sum();
        let oldest: u64 = times[..10].windows(2).map(gap).sum();
        assert!(times.len() > 60 && newest < oldest, "{} {newest} {oldest}", times.len());
    }
}
