//! Makes a report of samples, one after the other, in memory that does not grow with them.

use super::outages::Outages;
use super::{Interval, Part, Report};
use obol_fabric::{Instant, Name};
use obol_membership::recorder::EventKind;
use obol_observe::failovers::{self, Failover};
use obol_observe::figures::total;
use obol_observe::sampling::data::Data;
use obol_observe::sampling::sample::{EventRow, Sample};
use obol_observe::sampling::windows::Set;
use obol_observe::{ObservedEvent, Renewals};
use std::collections::VecDeque;
use std::sync::Arc;

/// Events that are searched for failovers at a time. A failover has some tens of them.
const EVENTS_AT_ONCE: usize = 1 << 15;
/// Intervals of the histogram log at most: of a longer recording, they get longer.
const INTERVALS_MAX: usize = 1 << 14;
/// Failovers of one cluster that are listed at most, the newest.
const FAILOVERS_MAX: usize = 1 << 16;
/// Clusters of which events, names and failovers are kept at most, the newest: each takes as much memory as the
/// console.
const PARTS_MAX: usize = 32;

/// A report in the making.
pub(super) struct Builder {
    cluster: Name,
    first: Option<Arc<Sample>>,
    last: Option<Arc<Sample>>,
    samples: u64,
    parts: VecDeque<Part>,
    /// Of the newest cluster.
    data: Data,
    failovers: Vec<Failover>,
    /// Failovers and whole clusters that were dropped.
    dropped: u64,
    dropped_parts: u64,
    /// The newest events, not yet searched for failovers.
    events: Vec<ObservedEvent>,
    outages: Outages,
    totals: Set,
    intervals: Vec<Interval>,
    renewals: Option<Renewals>,
}

impl Builder {
    pub(super) fn new(cluster: Name) -> Self {
        Self {
            cluster,
            first: None,
            last: None,
            samples: 0,
            parts: VecDeque::new(),
            data: Data::default(),
            failovers: Vec::new(),
            dropped: 0,
            dropped_parts: 0,
            events: Vec::new(),
            outages: Outages::default(),
            totals: Set::default(),
            intervals: Vec::new(),
            renewals: None,
        }
    }

    /// Adds the next sample.
    pub(super) fn take(&mut self, sample: Arc<Sample>) {
        self.samples += 1;
        let before = self.last.clone();
        let is_another = before.is_some() && self.data.is_of_another_cluster(&sample);
        if let Some(before) = before.as_deref().filter(|_| is_another) {
            self.outages.part(before);
            self.end_part();
        }
        self.take_renewals(before.as_deref(), &sample, is_another);
        self.events.extend(sample.events.iter().map(EventRow::seen));
        self.outages.take(&sample);
        self.data.take(Arc::clone(&sample));
        if self.events.len() >= 2 * EVENTS_AT_ONCE {
            self.make_failovers();
        }
        for span in &sample.spans {
            self.totals[span.of as usize].add(&span.counts);
            self.intervals.push(Interval { unix: sample.unix, of: span.of, counts: span.counts.clone() });
        }
        if self.intervals.len() > INTERVALS_MAX {
            self.intervals = Interval::merged(std::mem::take(&mut self.intervals));
        }
        self.first.get_or_insert_with(|| Arc::clone(&sample));
        self.last = Some(sample);
    }

    /// Adds what was renewed since the sample before. What is known at the first one was before it; a
    /// later cluster began after it.
    fn take_renewals(&mut self, before: Option<&Sample>, sample: &Sample, is_another: bool) {
        let Some(now) = sample.renewals else { return };
        let new = match before {
            None => Renewals::default(),
            Some(_) if is_another => now,
            Some(before) => now.since(before.renewals.unwrap_or(now)),
        };
        self.renewals = Some(self.renewals.unwrap_or_default().and(new));
    }

    /// Makes the failovers of the older events. Stamps of a failover that are later than all kept
    /// events are lost: those of a process that was frozen for long.
    fn make_failovers(&mut self) {
        self.events.sort_by_key(|seen| seen.event.at);
        let cut = self.events[self.events.len() - EVENTS_AT_ONCE].event.at;
        let decided = |failover: &Failover| {
            failover.moments.iter().find(|m| m.event == EventKind::Decide).map_or(failover.began, |m| m.at)
        };
        let all = failovers::all(&self.events.iter().cloned(), &self.data.departures);
        let (older, newer): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| decided(one) < cut);
        // A failover of the newer events may have begun before them.
        let from = newer.iter().map(|one| one.began).fold(cut, Instant::min);
        self.events.retain(|seen| seen.event.at >= from);
        self.keep(older);
    }

    /// Keeps failovers, but none twice: an early notice may have kept the events of one.
    fn keep(&mut self, more: Vec<Failover>) {
        let newest = self.failovers.last().map(|last| last.view);
        self.failovers.extend(more.into_iter().filter(|one| newest.is_none_or(|newest| one.view > newest)));
        let beyond = self.failovers.len().saturating_sub(FAILOVERS_MAX);
        self.failovers.drain(..beyond);
        self.dropped += beyond as u64;
    }

    fn end_part(&mut self) {
        self.events.sort_by_key(|seen| seen.event.at);
        let rest = failovers::all(&std::mem::take(&mut self.events).into_iter(), &self.data.departures);
        self.keep(rest);
        let (data, failovers) = (std::mem::take(&mut self.data), std::mem::take(&mut self.failovers));
        self.parts.push_back(Part { data, failovers });
        if self.parts.len() > PARTS_MAX
            && let Some(gone) = self.parts.pop_front()
        {
            self.dropped += gone.failovers.len() as u64;
            self.dropped_parts += 1;
        }
    }

    /// Says what was dropped, if anything.
    fn gap(&self) -> Option<String> {
        let incidents = total(self.parts.iter().map(|part| part.data.dropped_incidents()));
        let counts = [
            (self.dropped_parts, "clusters with their events and annotations"),
            (self.dropped, "failovers"),
            (self.outages.dropped(), "outages"),
            (incidents, "incidents"),
        ];
        let dropped: Vec<String> =
            counts.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        (!dropped.is_empty()).then(|| format!("{} before those that are listed", dropped.join(", ")))
    }

    /// Events and intervals in memory.
    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.events.len() + self.intervals.len()
    }

    /// Clusters in memory.
    #[cfg(test)]
    pub(super) fn parts(&self) -> usize {
        self.parts.len() + 1
    }

    /// The report; `None` if there was no sample.
    pub(super) fn finish(mut self) -> Option<Report> {
        let (first, last) = self.first.clone().zip(self.last.clone())?;
        self.end_part();
        let gap = self.gap();
        let Self { cluster, samples, parts, outages, totals, intervals, renewals, .. } = self;
        Some(Report {
            cluster,
            samples,
            first: (first.at, first.unix),
            last,
            parts: parts.into(),
            outages,
            totals,
            intervals,
            renewals,
            gap,
            cut_short: None,
        })
    }
}
