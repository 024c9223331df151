//! Outages: all intervals of a report in which the cluster was not healthy, and why.

use crate::poll::sample::Sample;
use obol_fabric::{Instant, Nanos};
use obol_observe::Health;
use obol_observe::calendar::age;

/// Distinct reasons listed per interval at most, the first ones.
const REASONS_MAX: usize = 16;

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

    /// Its duration.
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

/// All intervals in which the cluster was not healthy, oldest first.
#[derive(Debug, Default)]
pub(super) struct Outages(Vec<Outage>);

impl Outages {
    /// Adds the next sample of the same cluster.
    pub(super) fn take(&mut self, sample: &Sample) {
        if let Some(last) = self.0.last_mut().filter(|last| last.lasts) {
            last.to = sample.at;
            last.lasts = last.health == Some(sample.health);
        }
        if sample.health == Health::Healthy {
            return;
        }
        if self.0.last().is_none_or(|last| !last.lasts) {
            self.0.push(Outage::new(Some(sample.health), sample.at));
        }
        if let Some(last) = self.0.last_mut() {
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
        if let Some(open) = self.0.last_mut().filter(|open| open.lasts) {
            (open.to, open.lasts) = (last.at, false);
        }
        self.0.push(Outage { to, reasons: vec![why.to_owned()], ..Outage::new(None, last.at) });
    }

    /// The name of the state at the end, unless healthy.
    pub(super) fn at_end(&self) -> Option<&'static str> {
        self.0.last().filter(|outage| outage.lasts).map(Outage::name)
    }

    /// All of them.
    pub(super) fn iter(&self) -> std::slice::Iter<'_, Outage> {
        self.0.iter()
    }

    /// The total time without service, and the number of separate intervals.
    pub(super) fn without_service(&self) -> (Nanos, usize) {
        let mut ended = None;
        self.iter().filter(|outage| outage.serves() == Some(false)).fold(
            (Nanos::ZERO, 0),
            |(sum, n), outage| {
                let is_new = ended.replace(outage.to) != Some(outage.from);
                (sum.saturating_add(outage.span()), n + usize::from(is_new))
            },
        )
    }

    /// The same as text; `None` if programs could always act.
    pub(super) fn without_service_text(&self) -> Option<String> {
        let (sum, n) = self.without_service();
        let s = if n == 1 { "" } else { "s" };
        (n > 0).then(|| format!("No program could act for {}, in {n} interval{s}.", age(sum)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
