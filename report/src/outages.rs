//! Outages: all intervals of a report in which the cluster was not healthy, and why.

use obol_fabric::{Instant, Nanos};
use obol_observe::Health;
use obol_observe::calendar::age;
use obol_observe::sampling::sample::Sample;
use std::collections::VecDeque;

/// Distinct reasons listed per interval at most, the first ones.
const REASONS_MAX: usize = 16;

/// The same of all intervals together.
const SUMMARY_REASONS_MAX: usize = 3;

/// Intervals that are listed at most, the newest.
const OUTAGES_MAX: usize = 1 << 13;

/// The reason of an interval without samples between two clusters.
const NO_CLUSTER: &str = "this cluster ended, and another of the same name began";

/// The same at the end.
const ENDED: &str = "the cluster ended";

/// An interval of one health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outage {
    /// The health; `None` while there was no cluster.
    health: Option<Health>,
    /// The first sample of the interval.
    pub(super) from: Instant,
    /// The first sample after the interval, or the last one.
    pub(super) to: Instant,
    /// Whether it lasted until the last sample.
    pub(super) lasts: bool,
    /// Each once, in the order of occurrence, with what was known of it at last.
    pub(super) reasons: Vec<String>,
    /// Whether there were more reasons.
    pub(super) has_more: bool,
}

impl Outage {
    fn new(health: Option<Health>, at: Instant) -> Self {
        Self { health, from: at, to: at, lasts: true, reasons: Vec::new(), has_more: false }
    }

    /// The name of the health.
    pub(super) fn name(&self) -> &'static str {
        match self.health {
            Some(health) => health.name(),
            None => "no cluster",
        }
    }

    pub(super) const fn span(&self) -> Nanos {
        self.to.since(self.from)
    }

    /// Whether programs could act; `None` if that was not known.
    pub(super) const fn serves(&self) -> Option<bool> {
        match self.health {
            Some(health) => health.is_known_to_serve(),
            None => Some(false),
        }
    }

    /// The reasons in a line.
    pub(super) fn why(&self) -> String {
        let more = if self.has_more { "; and others" } else { "" };
        format!("{}{more}", self.reasons.join("; "))
    }

    fn add(&mut self, reasons: &[String]) {
        for reason in reasons {
            if self.reasons.iter().any(|said| says(said, reason)) {
                continue;
            }
            // How a process ended may be known only after it was seen to be down.
            if let Some(brief) = self.reasons.iter_mut().find(|said| says(reason, said)) {
                brief.clone_from(reason);
                continue;
            }
            if self.reasons.len() == REASONS_MAX {
                self.has_more = true;
                return;
            }
            self.reasons.push(reason.clone());
        }
    }
}

/// Whether a reason is the other one, perhaps with how it came about.
fn says(reason: &str, other: &str) -> bool {
    let more = reason.strip_prefix(other);
    more.is_some_and(|more| more.is_empty() || more.starts_with(": ") || more.starts_with(" ("))
}

/// Time without service, in separate intervals that follow each other.
#[derive(Clone, Copy, Debug, Default)]
struct WithoutService {
    sum: Nanos,
    intervals: usize,
    /// When the newest of them ended.
    ended: Option<Instant>,
}

impl WithoutService {
    fn and(mut self, outage: &Outage) -> Self {
        if outage.serves() == Some(false) {
            let is_new = self.ended.replace(outage.to) != Some(outage.from);
            self.sum = self.sum.saturating_add(outage.span());
            self.intervals += usize::from(is_new);
        }
        self
    }
}

/// All intervals in which the cluster was not healthy.
#[derive(Debug, Default)]
pub(super) struct Outages {
    /// Oldest first.
    listed: VecDeque<Outage>,
    /// How many older ones are not listed, and the time without service of these.
    dropped: (u64, WithoutService),
    /// When the oldest of all began.
    began: Option<Instant>,
}

impl Outages {
    /// Adds the next sample of the same cluster.
    pub(super) fn take(&mut self, sample: &Sample) {
        if let Some(last) = self.listed.back_mut().filter(|last| last.lasts) {
            last.to = sample.at;
            last.lasts = last.health == Some(sample.health);
        }
        if sample.health == Health::Healthy {
            return;
        }
        if self.listed.back().is_none_or(|last| !last.lasts) {
            self.push(Outage::new(Some(sample.health), sample.at));
        }
        if let Some(last) = self.listed.back_mut() {
            last.add(&sample.reasons);
        }
    }

    /// Adds the gap between the last sample of one cluster and the first of the next.
    pub(super) fn part(&mut self, last: &Sample) {
        self.gap(last, last.at, NO_CLUSTER);
    }

    /// Adds the gap after the last sample.
    pub(super) fn end(&mut self, last: &Sample, until: Instant) {
        self.gap(last, until, ENDED);
    }

    fn gap(&mut self, last: &Sample, to: Instant, why: &str) {
        if let Some(open) = self.listed.back_mut().filter(|open| open.lasts) {
            (open.to, open.lasts) = (last.at, false);
        }
        self.push(Outage { to, reasons: vec![why.to_owned()], ..Outage::new(None, last.at) });
    }

    fn push(&mut self, outage: Outage) {
        self.began.get_or_insert(outage.from);
        self.listed.push_back(outage);
        if self.listed.len() > OUTAGES_MAX
            && let Some(gone) = self.listed.pop_front()
        {
            let (dropped, without_service) = self.dropped;
            self.dropped = (dropped + 1, without_service.and(&gone));
        }
    }

    /// How many older ones are not listed.
    pub(super) const fn dropped(&self) -> u64 {
        self.dropped.0
    }

    /// The name of the state at the end, unless healthy.
    pub(super) fn at_end(&self) -> Option<&'static str> {
        self.listed.back().filter(|outage| outage.lasts).map(Outage::name)
    }

    /// Those that are listed, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Outage> {
        self.listed.iter()
    }

    /// The total time without service, and the number of separate intervals.
    pub(super) fn without_service(&self) -> (Nanos, usize) {
        let all = self.iter().fold(self.dropped.1, WithoutService::and);
        (all.sum, all.intervals)
    }

    /// When the cluster was not healthy, why, and whether programs could act; `None` if it was always healthy.
    pub(super) fn summary(&self, time: impl Fn(Instant) -> String) -> Option<String> {
        let (began, last) = self.began.zip(self.listed.back())?;
        let mut all = Outage::new(None, began);
        self.iter().for_each(|outage| all.add(&outage.reasons));
        all.has_more |= all.reasons.len() > SUMMARY_REASONS_MAX;
        all.reasons.truncate(SUMMARY_REASONS_MAX);
        let is_one = self.dropped.0 == 0
            && self.iter().zip(self.iter().skip(1)).all(|(before, after)| before.to == after.from);
        let times = if is_one { "" } else { " at times" };
        let to = if last.lasts { "the end".to_owned() } else { time(last.to) };
        let (sum, n) = self.without_service();
        let s = if n == 1 { "" } else { "s" };
        let impact = match n {
            0 if self.iter().all(|outage| outage.serves() == Some(true)) => {
                "Some program could act in every sample.".to_owned()
            }
            0 => "Whether programs could act is not known for all of this time.".to_owned(),
            _ => format!("No program could act for {}, in {n} interval{s}.", age(sum)),
        };
        let from = time(began);
        let why = if all.reasons.is_empty() { String::new() } else { format!(": {}", all.why()) };
        Some(format!("From {from} to {to} the cluster was{times} not healthy{why}. {impact}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_outages_the_newest_are_listed_and_the_time_is_that_of_all() {
        let mut outages = Outages::default();
        let all = 3 * OUTAGES_MAX as u64;
        for n in 0..all {
            let mut sample = crate::samples::empty(Instant(n * 1_000_000_000));
            // Two intervals without service follow each other, then there is service for a second.
            sample.health = [Health::Unavailable, Health::Unreachable, Health::Healthy][n as usize % 3];
            outages.take(&sample);
        }
        assert_eq!(outages.without_service(), (Nanos::from_secs(2 * all / 3), OUTAGES_MAX));
        assert_eq!((outages.iter().count(), outages.dropped()), (OUTAGES_MAX, OUTAGES_MAX as u64));
        assert_eq!(outages.iter().next().map(|first| first.from), Some(Instant(all / 2 * 1_000_000_000)));
        let summary = outages.summary(|at| format!("{}s", at.0 / 1_000_000_000)).expect("there were outages");
        let (to, intervals) = (all - 1, OUTAGES_MAX);
        let said =
            [format!("From 0s to {to}s the cluster was at times not"), format!("in {intervals} intervals.")];
        assert!(said.iter().all(|words| summary.contains(words)), "{said:?} in {summary}");
    }

    #[test]
    fn a_reason_is_said_once_with_how_it_came_about() {
        let mut outage = Outage::new(Some(Health::Degraded), Instant(1));
        for reasons in [
            &["app-1 down", "app-10 down"][..],
            &["app-1 down: killed by SIGKILL", "app-10 down"],
            &["app-1 down"],
            &["app-1 down: exit status 3"],
        ] {
            let reasons: Vec<String> = reasons.iter().map(|reason| (*reason).to_owned()).collect();
            outage.add(&reasons);
        }
        let all = "app-1 down: killed by SIGKILL; app-10 down; app-1 down: exit status 3";
        assert_eq!(outage.why(), all);
    }
}
