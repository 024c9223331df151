//! The time line of a failover: the stamps of each process from a death until it is active without
//! the dead. Built from the flight recorders' own stamps, never from the time of reading.
//! (Protocol, section 7.)

use crate::observed_event::ObservedEvent;
use obol_fabric::{Incarnation, Instant, Name, Nanos, ViewId};
use obol_membership::recorder::{EventKind, Record};
use obol_membership::{ActiveMutant, Kind, Mutant, Reason};
use std::collections::BTreeMap;

/// Views whose events are kept.
const VIEWS_MAX: usize = 256;

/// The events of one view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    pub decider: Option<Name>,
    /// When its leader proposed it.
    pub propose: Option<Instant>,
    pub decide: Option<Instant>,
    /// When every older lease was over, and how many holders a fence had cleared; only for a view
    /// that is not compatible with its predecessor.
    pub fenced: Option<(Instant, u64)>,
    /// When CLEAR was sent.
    pub clear: Option<Instant>,
    /// When each process learned of it.
    pub received: BTreeMap<Name, Instant>,
    /// When it became active for each process.
    pub active: BTreeMap<Name, Instant>,
    /// Each application's first success in it.
    pub service: BTreeMap<Name, Instant>,
    /// Clock error: by how much a time of another host may be off; zero if all are of this one.
    pub clock_error: Nanos,
}

impl Timeline {
    fn take(&mut self, record: &Record, at: Instant, who: Name, kind: Kind) {
        let earliest = |times: &mut BTreeMap<Name, Instant>| {
            times.entry(who).and_modify(|first| *first = at.min(*first)).or_insert(at);
        };
        match record.kind {
            // The last proposal before the decision: the one that was decided, or that discovered
            // the decision.
            EventKind::Propose if self.decide.is_none_or(|decide| at <= decide) => {
                self.propose = self.propose.max(Some(at));
            }
            EventKind::Decide if self.decide.is_none_or(|decide| at < decide) => {
                self.decide = Some(at);
                self.decider = Some(who);
                self.propose = self.propose.filter(|propose| *propose <= at);
            }
            EventKind::Fenced if self.fenced.is_none_or(|(fenced, _)| at < fenced) => {
                self.fenced = Some((at, record.b));
            }
            EventKind::Clear if kind == Kind::Coordinator && self.clear.is_none_or(|clear| at < clear) => {
                self.clear = Some(at);
            }
            EventKind::ViewReceived => earliest(&mut self.received),
            EventKind::Active => earliest(&mut self.active),
            EventKind::Service => earliest(&mut self.service),
            _ => {}
        }
    }
}

/// Sorts events that were read process by process by time; events of the same time keep their
/// order.
pub fn merge(mut events: Vec<ObservedEvent>, plant: ActiveMutant) -> Vec<ObservedEvent> {
    if !plant.has(Mutant::MergeUnsorted) {
        events.sort_by_key(|seen| seen.event.at);
    }
    events
}

/// Notes in `noted` when the first process decided or received each view.
pub fn note_views(noted: &mut BTreeMap<ViewId, Instant>, events: &[ObservedEvent]) {
    for ObservedEvent { event, .. } in events {
        if matches!(event.record.kind, EventKind::Decide | EventKind::ViewReceived) {
            let first = noted.entry(ViewId(event.record.a)).or_insert(event.at);
            *first = event.at.min(*first);
        }
    }
}

/// A death notice at one coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The coordinator that received it.
    pub at: Name,
    pub when: Instant,
    /// The suspect.
    pub accused: Incarnation,
    /// Who reported it.
    pub accuser: Incarnation,
    pub reason: Option<Reason>,
}

/// A process suspects another one, or a coordinator has a notice of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Who knows of it.
    pub at: Name,
    /// Since when.
    pub when: Instant,
    /// The suspect.
    pub accused: Incarnation,
    pub reason: Option<Reason>,
}

/// The time lines of the newest views.
#[derive(Clone, Debug, Default)]
pub struct History {
    views: BTreeMap<ViewId, Timeline>,
    notices: Vec<Notice>,
    suspicions: Vec<Report>,
    /// The largest clock error of all times.
    clock_error: Nanos,
}

impl History {
    /// Adds events.
    pub fn take(&mut self, events: &[ObservedEvent]) {
        for seen in events {
            self.one(seen);
        }
        while self.views.len() > VIEWS_MAX {
            self.views.pop_first();
        }
        if self.notices.len() > 4 * VIEWS_MAX {
            self.notices.drain(..self.notices.len() - 4 * VIEWS_MAX);
        }
        if self.suspicions.len() > 4 * VIEWS_MAX {
            self.suspicions.drain(..self.suspicions.len() - 4 * VIEWS_MAX);
        }
    }

    /// The earliest occurrence counts, in whatever order events are read: a second leader may
    /// propose and decide a view again, and a third clear it again.
    fn one(&mut self, seen: &ObservedEvent) {
        self.clock_error = self.clock_error.max(seen.clock_error);
        let (record, at, who) = (&seen.event.record, seen.event.at, seen.process);
        if of_a_view(record.kind) {
            let line = self.views.entry(ViewId(record.a)).or_default();
            line.clock_error = line.clock_error.max(seen.clock_error);
            line.take(record, at, who, seen.kind);
            return;
        }
        match record.kind {
            EventKind::Notice => self.notices.push(Notice {
                at: who,
                when: at,
                accused: Incarnation(record.a),
                accuser: Incarnation(record.b),
                reason: Reason::from_repr(record.reason),
            }),
            EventKind::Suspect => self.suspicions.push(Report {
                at: who,
                when: at,
                accused: Incarnation(record.a),
                reason: Reason::from_repr(record.reason),
            }),
            _ => {}
        }
    }

    /// By how much a time of another host may be off, at most; zero if all are of this one.
    pub const fn clock_error(&self) -> Nanos {
        self.clock_error
    }

    /// Counts the clock error of a time that is compared with those of the history.
    pub fn add_clock_error(&mut self, error: Nanos) {
        self.clock_error = self.clock_error.max(error);
    }

    /// The time line of a view.
    pub fn view(&self, id: ViewId) -> Option<&Timeline> {
        self.views.get(&id)
    }

    /// When a process was first active in this view or a later one.
    pub fn active_from(&self, id: ViewId, who: Name) -> Option<Instant> {
        self.views.range(id..).filter_map(|(_, line)| line.active.get(&who).copied()).min()
    }

    /// When a process learned of this view or a later one.
    pub fn received_from(&self, id: ViewId, who: Name) -> Option<Instant> {
        self.views.range(id..).filter_map(|(_, line)| line.received.get(&who).copied()).min()
    }

    /// When any process was first active in this view or a later one.
    pub fn first_active(&self, id: ViewId) -> Option<Instant> {
        self.views
            .range(id..)
            .flat_map(|(_, line)| line.active.values().map(|at| *at + line.clock_error))
            .min()
    }

    /// The views at which a leader stamped that no older lease is left: base, when, and how many a
    /// fence had cleared.
    pub fn fenced(&self) -> impl Iterator<Item = (ViewId, (Instant, u64))> {
        self.views.iter().filter_map(|(id, line)| Some((*id, line.fenced?)))
    }

    /// When the kernel reported a process's death.
    pub fn died(&self, who: Incarnation) -> Option<Instant> {
        let proofs = self.notices.iter().filter(|n| n.accused == who && n.reason == Some(Reason::Deadbeat));
        proofs.map(|n| n.when).min()
    }

    /// The first report of any process but `silent` about one of these, since a moment less the error
    /// of the clocks.
    pub fn first_report(&self, of: &[Incarnation], silent: &[Name], since: Instant) -> Option<Report> {
        let since = Instant(since.0.saturating_sub(self.clock_error.saturating_mul(2).0));
        let notices = self.notices.iter().map(|n| Report {
            at: n.at,
            when: n.when,
            accused: n.accused,
            reason: n.reason,
        });
        let all = notices.chain(self.suspicions.iter().copied());
        let meant = |r: &Report| of.contains(&r.accused) && !silent.contains(&r.at) && r.when >= since;
        all.filter(meant).min_by_key(|report| report.when)
    }

    /// The first notice of a death at a coordinator.
    pub fn notice(&self, at: Name, accused: Incarnation) -> Option<&Notice> {
        self.notices.iter().find(|n| n.at == at && n.accused == accused)
    }
}

/// Whether an event belongs to a view's time line.
const fn of_a_view(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::Propose
            | EventKind::Decide
            | EventKind::Fenced
            | EventKind::Clear
            | EventKind::ViewReceived
            | EventKind::Active
            | EventKind::Service
    )
}

/// The phases of one failover; they add up to the time from the kill to the last survivor's
/// `active`. Phases for which the survivors did not wait, because their own timeouts had passed,
/// are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phases {
    /// Kill to the notice at the coordinator that then decided.
    pub notice: Nanos,
    /// Notice to proposal; includes the takeover if the leader failed.
    pub propose: Nanos,
    /// Proposal to decision.
    pub decide: Nanos,
    /// Decision to the last older lease's end; zero for a compatible view.
    pub fence: Nanos,
    pub clear: Nanos,
    /// CLEAR to the last survivor's `active`.
    pub active: Nanos,
}

impl Phases {
    /// Their names, by time.
    pub const NAMES: [&'static str; 6] = ["notice", "propose", "decide", "fence", "clear", "active"];

    /// Their values, by time.
    pub const fn values(&self) -> [Nanos; 6] {
        [self.notice, self.propose, self.decide, self.fence, self.clear, self.active]
    }

    /// From the kill to the last survivor's `active`.
    pub fn total(&self) -> Nanos {
        self.values().into_iter().fold(Nanos::ZERO, Nanos::saturating_add)
    }

    /// The phases of a view that excludes all of `dead`, which were killed at `killed`; `None` if
    /// stamps are missing or contradict causality by more than the clocks' errors explain.
    pub fn of(
        history: &History,
        id: ViewId,
        dead: &[Incarnation],
        killed: Instant,
        survivors: &[Name],
    ) -> Option<Self> {
        let line = history.view(id)?;
        let decider = line.decider?;
        // The view's cause is complete with the last notice that its decider received before
        // proposing.
        let propose = line.propose?;
        let notices = dead.iter().filter_map(|who| history.notice(decider, *who)).map(|n| n.when);
        let notice = notices.filter(|when| *when <= propose).max()?;
        let decide = line.decide?;
        let active =
            survivors.iter().map(|name| history.active_from(id, *name)).collect::<Option<Vec<_>>>()?;
        let active = active.into_iter().max()?;
        let [fenced, clear] = waited_until(decide, line.fenced.map(|(at, _)| at), line.clear, Some(active));
        let mut order = [killed, notice, propose, decide, fenced, clear, active];
        // Each of two times may be off.
        let tolerance = history.clock_error.saturating_mul(2);
        for next in 1..order.len() {
            let (before, at) = (order[next - 1], order[next]);
            if before > at && before.since(at) > tolerance {
                return None;
            }
            order[next] = at.max(before);
        }
        let [notice, propose, decide, fence, clear, active] =
            core::array::from_fn(|i| order[i + 1].since(order[i]));
        Some(Self { notice, propose, decide, fence, clear, active })
    }
}

/// The ends of the phases fence and clear. Both are zero for a view that is compatible with its
/// predecessor, which needs neither; and no survivor waits for what is stamped after the last of
/// them became active by its own timeout.
pub(crate) fn waited_until(
    decide: Instant,
    fenced: Option<Instant>,
    clear: Option<Instant>,
    active: Option<Instant>,
) -> [Instant; 2] {
    let fenced = fenced.unwrap_or(decide);
    let clear = clear.unwrap_or(fenced);
    [fenced, clear].map(|at| active.map_or(at, |active| at.min(active)))
}

#[cfg(test)]
pub(crate) fn seen(process: &str, kind: Kind, what: EventKind, at: u64, a: u64, b: u64) -> ObservedEvent {
    let record = Record { kind: what, reason: 1, a, b };
    let event = obol_membership::recorder::Stamped { number: 0, at: Instant(at), record };
    ObservedEvent { process: Name::new(process).expect("a name"), kind, event, clock_error: Nanos::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failover() -> History {
        let mut history = History::default();
        let (c, a) = (Kind::Coordinator, Kind::App);
        history.take(&[
            seen("coord-1", c, EventKind::Notice, 110, 9, 1),
            seen("coord-1", c, EventKind::Propose, 112, 5, 0),
            seen("coord-1", c, EventKind::Decide, 115, 5, 0),
            seen("coord-1", c, EventKind::Fenced, 120, 5, 3),
            seen("coord-1", c, EventKind::Clear, 121, 5, 0),
            seen("app-1", a, EventKind::Active, 140, 5, 0),
            seen("app-3", a, EventKind::Active, 150, 5, 0),
        ]);
        history
    }

    #[test]
    fn a_time_line_has_the_largest_clock_error() {
        let mut history = failover();
        assert_eq!(history.view(ViewId(5)).expect("a time line").clock_error, Nanos::ZERO);
        let of_another_host = |clock_error| ObservedEvent {
            clock_error,
            ..seen("app-2", Kind::App, EventKind::Active, 160, 5, 0)
        };
        history.take(&[of_another_host(Nanos(40)), of_another_host(Nanos(30))]);
        assert_eq!(history.view(ViewId(5)).expect("a time line").clock_error, Nanos(40));
        assert_eq!(history.view(ViewId(6)), None);
    }

    fn names(names: &[&str]) -> Vec<Name> {
        names.iter().map(|n| Name::new(n).expect("a name")).collect()
    }

    #[test]
    fn phases_add_up_to_the_total() {
        let history = failover();
        let dead = [Incarnation(9)];
        let survivors = names(&["app-1", "app-3"]);
        let phases = Phases::of(&history, ViewId(5), &dead, Instant(100), &survivors).expect("whole");
        assert_eq!(phases.values().map(|n| n.0), [10, 2, 3, 5, 1, 29]);
        assert_eq!(phases.total(), Nanos(50));
    }

    #[test]
    fn the_first_report_is_that_of_a_process_that_is_not_silent_itself() {
        let mut history = failover();
        let suspects = |process, at, who| seen(process, Kind::Agent, EventKind::Suspect, at, who, 0);
        history.take(&[suspects("node-2", 105, 9), suspects("node-3", 103, 9), suspects("node-1", 90, 9)]);
        let first = |silent: &[&str], since| {
            history.first_report(&[Incarnation(9)], &names(silent), Instant(since)).map(|r| (r.at, r.when))
        };
        let expected = |name, at| Some((Name::new(name).expect("a name"), Instant(at)));
        assert_eq!(first(&[], 100), expected("node-3", 103));
        assert_eq!(first(&["node-3"], 100), expected("node-2", 105));
        assert_eq!(first(&["node-2", "node-3"], 100), expected("coord-1", 110));
        assert_eq!(history.first_report(&[Incarnation(8)], &[], Instant(0)), None);
    }

    #[test]
    fn the_console_and_the_drills_cut_a_failover_into_the_same_phases() {
        let app = |at| seen("app-1", Kind::App, EventKind::Active, at, 5, 0);
        let leader = |what, at, a| seen("coord-1", Kind::Coordinator, what, at, a, 1);
        let until_decided = [
            leader(EventKind::Notice, 110, 9),
            leader(EventKind::Propose, 112, 5),
            leader(EventKind::Decide, 115, 5),
        ];
        // With CLEAR; without; and active by its own timeout before and between the two stamps.
        for (fenced, clear, active) in [
            (Some(120), Some(121), 140),
            (None, None, 140),
            (Some(120), Some(130), 119),
            (Some(120), Some(130), 125),
        ] {
            let mut events = until_decided.to_vec();
            events.extend(fenced.map(|at| leader(EventKind::Fenced, at, 5)));
            events.extend(clear.map(|at| leader(EventKind::Clear, at, 5)));
            events.push(app(active));
            events.sort_by_key(|seen| seen.event.at);
            let mut history = History::default();
            history.take(&events);
            let by_drills =
                Phases::of(&history, ViewId(5), &[Incarnation(9)], Instant(100), &names(&["app-1"]))
                    .expect("whole");
            let mut departures = crate::failovers::Departures::default();
            if fenced.is_none() {
                departures.learn_base(ViewId(5), ViewId(4));
            }
            let found = crate::failovers::all(&events.iter().cloned(), &departures);
            let [by_console] = &found[..] else { panic!("{found:?}") };
            let [notice, rest @ ..] = by_drills.values();
            assert_eq!(by_console.phases(), rest.map(Some), "{fenced:?} {clear:?} {active}");
            assert_eq!(by_console.total().map(|total| total.saturating_add(notice)), Some(by_drills.total()));
        }
    }

    #[test]
    fn times_of_several_hosts_contradict_causality_only_beyond_the_errors_of_their_clocks() {
        let mut history = failover();
        let (dead, survivors) = ([Incarnation(9)], names(&["app-1"]));
        let killed = Instant(113);
        let phases =
            |history: &History| Phases::of(history, ViewId(5), &dead, killed, &survivors).map(|p| p.values());
        history.add_clock_error(Nanos(1));
        assert_eq!(phases(&history), None);
        history.add_clock_error(Nanos(2));
        assert_eq!(phases(&history).map(|found| found.map(|n| n.0)), Some([0, 0, 2, 5, 1, 19]));
    }

    #[test]
    fn an_incomplete_or_acausal_time_line_gives_no_phases() {
        let history = failover();
        let dead = [Incarnation(9)];
        let missing = names(&["app-1", "app-2"]);
        assert_eq!(Phases::of(&history, ViewId(5), &dead, Instant(100), &missing), None);
        let survivors = names(&["app-1"]);
        assert_eq!(Phases::of(&history, ViewId(5), &dead, Instant(111), &survivors), None);
        assert_eq!(Phases::of(&history, ViewId(6), &dead, Instant(100), &survivors), None);
        assert_eq!(Phases::of(&history, ViewId(5), &[Incarnation(8)], Instant(100), &survivors), None);
    }
}
