//! Counts failovers as they happen, each once, from the flight recorders.

use obol_fabric::{Incarnation, Instant, Name, Nanos, ViewId};
use obol_membership::View;
use obol_membership::recorder::EventKind;
use obol_observe::ObservedEvent;
use obol_observe::failovers::{self, Departures, Failover, PHASES};
use obol_observe::metrics::text::{Distribution, Exemplar};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A failover is counted this long after its first notice, or after two leases if that is longer:
/// until then, further processes may become active.
const SETTLE: Nanos = Nanos::from_secs(2);
/// Events older than this belong to no failover that is still to be counted.
const KEEP: Nanos = Nanos::from_secs(150);
/// Events to keep at most.
const EVENTS_MAX: usize = 1 << 16;
/// Names of incarnations to keep.
const NAMES_MAX: usize = 1 << 13;
/// Exemplars to keep: more than a histogram has buckets.
const EXEMPLARS_MAX: usize = 64;

/// What was counted, for one exposition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) failovers: u64,
    /// Those without a duration.
    pub(crate) incomplete: u64,
    /// From the notice to the last process that became active.
    pub(crate) total: Distribution,
    /// In the order of [`PHASES`].
    pub(crate) phases: [Distribution; PHASES.len()],
    /// The newest failovers, oldest first.
    pub(crate) exemplars: VecDeque<Exemplar>,
    /// Events that were overwritten before they were read.
    pub(crate) events_lost: u64,
}

/// Follows the events of a cluster.
#[derive(Default)]
pub(crate) struct Tally {
    /// Failovers that began before the first poll are not counted: a restarted exporter would
    /// count them again.
    since: Option<Instant>,
    departures: Departures,
    view: Option<ViewId>,
    names: BTreeMap<Incarnation, Name>,
    events: VecDeque<ObservedEvent>,
    /// The number of the newest event of each process.
    numbers: BTreeMap<Name, u64>,
    /// The views of the failovers that were counted.
    done: BTreeSet<ViewId>,
    /// When the oldest failover that was not counted yet has settled.
    due: Option<Instant>,
    counted: Counted,
}

impl Tally {
    pub(crate) const fn counted(&self) -> &Counted {
        &self.counted
    }

    /// Continues with a cluster that was created anew: numbers of views and incarnations begin
    /// again, counts do not.
    pub(crate) fn renew(&mut self) {
        *self = Self { counted: std::mem::take(&mut self.counted), ..Self::default() };
    }

    /// Takes the events since the last poll, which was made `at` a moment that is `unix`
    /// nanoseconds after 1970.
    pub(crate) fn take(&mut self, view: Option<&View>, events: Vec<ObservedEvent>, at: Instant, unix: u64) {
        let since = *self.since.get_or_insert(at);
        if let Some(view) = view {
            self.learn(view);
        }
        let settle = view.map_or(SETTLE, |view| SETTLE.max(Nanos(view.lease.0.saturating_mul(2))));
        for event in events {
            self.note(&event);
            if event.event.record.kind == EventKind::Notice && event.event.at >= since {
                self.due.get_or_insert(event.event.at + settle);
            }
            self.events.push_back(event);
        }
        while self.events.len() > EVENTS_MAX
            || self.events.front().is_some_and(|oldest| at.since(oldest.event.at) > KEEP)
        {
            self.events.pop_front();
        }
        if self.due.is_some_and(|due| due <= at) {
            self.count(since, settle, at, unix);
        }
    }

    fn learn(&mut self, view: &View) {
        if self.view.replace(view.id) == Some(view.id) {
            return;
        }
        self.departures.learn_from(view);
        self.names.extend(view.departed.iter().map(|gone| (gone.incarnation, gone.name)));
        self.names.extend(view.members.iter().map(|member| (member.incarnation, member.name)));
        while self.names.len() > NAMES_MAX {
            self.names.pop_first();
        }
    }

    /// Counts events that are missing before this one. Numbers of another life begin again.
    fn note(&mut self, event: &ObservedEvent) {
        let number = event.event.number;
        if let Some(known) = self.numbers.insert(event.process, number) {
            let missing = number.saturating_sub(known.saturating_add(1));
            self.counted.events_lost = self.counted.events_lost.saturating_add(missing);
        }
    }

    fn count(&mut self, since: Instant, settle: Nanos, at: Instant, unix: u64) {
        self.due = None;
        for failover in failovers::all(&self.events.iter().cloned(), &self.departures) {
            if failover.began < since || self.done.contains(&failover.view) {
                continue;
            }
            let settled = failover.began + settle;
            if settled > at {
                self.due = Some(self.due.map_or(settled, |due| due.min(settled)));
                continue;
            }
            self.done.insert(failover.view);
            self.add(&failover, unix.saturating_sub(at.since(failover.began).0));
        }
        while self.done.len() > EVENTS_MAX {
            self.done.pop_first();
        }
    }

    fn add(&mut self, failover: &Failover, unix: u64) {
        let Counted { failovers, incomplete, total, phases, exemplars, .. } = &mut self.counted;
        *failovers += 1;
        for (all, phase) in phases.iter_mut().zip(failover.phases()) {
            phase.into_iter().for_each(|phase| all.add(phase));
        }
        let Some(value) = failover.total() else {
            *incomplete += 1;
            return;
        };
        total.add(value);
        let name = |who: Incarnation| self.names.get(&who).map_or_else(|| who.to_string(), Name::to_string);
        let dead: Vec<String> = failover.dead.iter().map(|dead| name(dead.who)).collect();
        let labels = vec![
            ("view", failover.view.to_string()),
            ("decider", failover.decider.to_string()),
            ("dead", dead.join(" ")),
        ];
        exemplars.push_back(Exemplar { labels, value, unix });
        if exemplars.len() > EXEMPLARS_MAX {
            exemplars.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_membership::Kind;
    use obol_membership::recorder::{Record, Stamped};

    fn event(number: u64, at_us: u64, event: EventKind, a: u64) -> ObservedEvent {
        let record = Record { kind: event, reason: 2, a, b: 1 };
        let (process, kind) = (Name::new("coord-1").expect("a name"), Kind::Coordinator);
        let event = Stamped { number, at: Instant(at_us * 1000), record };
        ObservedEvent { process, kind, event, clock_error: Nanos::ZERO }
    }

    /// A failover by a view, whose events have numbers from `number` on.
    fn failover(number: u64, at_us: u64, view: u64, dead: u64) -> Vec<ObservedEvent> {
        vec![
            event(number, at_us, EventKind::Notice, dead),
            event(number + 1, at_us + 5, EventKind::Propose, view),
            event(number + 2, at_us + 18, EventKind::Decide, view),
            event(number + 3, at_us + 30, EventKind::Clear, view),
            event(number + 4, at_us + 156, EventKind::Active, view),
        ]
    }

    const SECOND: u64 = 1_000_000;

    fn at(us: u64) -> Instant {
        Instant(us * 1000)
    }

    #[test]
    fn a_failover_is_counted_once_when_it_has_settled() {
        let mut tally = Tally::default();
        tally.take(None, Vec::new(), at(SECOND), 0);
        let mut counted = Vec::new();
        // Its last event comes with a later poll.
        let mut events = failover(0, 2 * SECOND, 7, 3);
        let last = events.split_off(4);
        for (second, news) in [(2, Vec::new()), (3, events), (4, last), (5, Vec::new()), (9, Vec::new())] {
            tally.take(None, news, at(second * SECOND + 500), second * 1_000_000_000);
            counted.push(tally.counted().failovers);
        }
        assert_eq!(counted, [0, 0, 1, 1, 1]);
        let Counted { incomplete, total, phases, exemplars, events_lost, .. } = tally.counted();
        assert_eq!((*incomplete, total.counts().len(), *events_lost), (0, 1, 0));
        assert_eq!(phases.each_ref().map(|phase| phase.counts().len()), [1; 5]);
        assert_eq!(exemplars[0].value, Nanos::from_micros(156));
        assert_eq!(exemplars[0].unix, 4_000_000_000 - 2_000_500_000);
    }

    #[test]
    fn failovers_before_the_first_poll_are_not_counted() {
        let mut tally = Tally::default();
        tally.take(None, failover(0, 2 * SECOND, 7, 3), at(3 * SECOND), 0);
        tally.take(None, failover(5, 4 * SECOND, 8, 4), at(5 * SECOND), 0);
        tally.take(None, Vec::new(), at(20 * SECOND), 0);
        assert_eq!(tally.counted().failovers, 1);
    }

    #[test]
    fn one_without_an_end_has_no_duration() {
        let mut tally = Tally::default();
        tally.take(None, Vec::new(), at(0), 0);
        let mut events = failover(0, SECOND, 7, 3);
        events.pop();
        tally.take(None, events, at(2 * SECOND), 0);
        tally.take(None, Vec::new(), at(9 * SECOND), 0);
        let counted = tally.counted();
        assert_eq!((counted.failovers, counted.incomplete, counted.total.counts().len()), (1, 1, 0));
    }

    #[test]
    fn overwritten_events_are_counted_and_a_new_life_is_no_gap() {
        let mut tally = Tally::default();
        let one = |number| vec![event(number, number, EventKind::Active, 1)];
        for (number, lost) in [(40, 0), (41, 0), (45, 3), (0, 3), (1, 3), (9, 10)] {
            tally.take(None, one(number), at(SECOND), 0);
            assert_eq!(tally.counted().events_lost, lost, "{number}");
        }
    }

    #[test]
    fn a_cluster_that_was_created_anew_counts_on() {
        let mut tally = Tally::default();
        for _ in 0..2 {
            tally.take(None, Vec::new(), at(SECOND), 0);
            tally.take(None, failover(0, 2 * SECOND, 7, 3), at(9 * SECOND), 0);
            tally.renew();
        }
        assert_eq!(tally.counted().failovers, 2);
    }
}
