//! Failovers, reconstructed from the time stamps in the flight recorders: from the first notice of
//! a death at the deciding coordinator to the last process that became active without the dead.

use crate::ObservedEvent;
use crate::timeline::{Phases, waited_until};
use obol_fabric::{Incarnation, Instant, Name, Nanos, ViewId};
use obol_membership::recorder::{EventKind, Record};
use obol_membership::view::JOIN_WINDOW;
use obol_membership::{Change, Reason, View};
use std::collections::{BTreeMap, BTreeSet};

/// A member that was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dead {
    pub who: Incarnation,
    /// Who first reported it to the decider.
    pub accuser: Incarnation,
    pub reason: Option<Reason>,
}

/// A recorded event of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The process that recorded it.
    pub process: Name,
    /// What happened.
    pub event: EventKind,
    pub at: Instant,
    /// Clock error: by how much the time may be off.
    pub clock_error: Nanos,
}

impl Moment {
    fn of(seen: &ObservedEvent) -> Self {
        let ObservedEvent { process, event, clock_error, .. } = *seen;
        Self { process, event: event.record.kind, at: event.at, clock_error }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failover {
    /// The view without the dead.
    pub view: ViewId,
    pub decider: Name,
    /// The members that it removes.
    pub dead: Vec<Dead>,
    /// The decider's first notice, from which the phases count.
    pub began: Instant,
    /// All events of this failover, by time.
    pub moments: Vec<Moment>,
    /// Whether the view is known to be compatible with its predecessor, so that no process waits for
    /// older leases.
    pub compatible: bool,
}

/// The phases from the notice on, by time.
pub const PHASES: [&str; 5] = {
    let [_, from_the_notice @ ..] = Phases::NAMES;
    from_the_notice
};

/// What is waited for in each phase.
pub const STEPS: [&str; 5] = [
    "until the proposal",
    "until the decision",
    "until older leases were fenced or had ended",
    "until CLEAR",
    "until the last survivor was active",
];

impl Failover {
    /// The slowest phase, by its place.
    pub fn slowest(&self) -> Option<(usize, Nanos)> {
        let spans = self.phases().into_iter().enumerate().filter_map(|(at, span)| Some((at, span?)));
        spans.filter(|(_, span)| *span > Nanos::ZERO).max_by_key(|(_, span)| *span)
    }

    /// Clock error: by how much a time may be off.
    pub fn clock_error(&self) -> Nanos {
        self.moments.iter().map(|moment| moment.clock_error).max().unwrap_or_default()
    }

    fn first(&self, process: Name, event: EventKind) -> Option<Instant> {
        self.moments.iter().find(|m| m.process == process && m.event == event).map(|m| m.at)
    }

    /// When each process became active.
    fn actives(&self) -> BTreeMap<Name, Moment> {
        let mut first = BTreeMap::new();
        for moment in self.moments.iter().filter(|m| m.event == EventKind::Active) {
            first.entry(moment.process).or_insert(*moment);
        }
        first
    }

    /// The last process that became active, and when: the end of the critical path.
    pub fn last_active(&self) -> Option<(Name, Instant)> {
        self.actives().into_values().map(|moment| (moment.process, moment.at)).max_by_key(|(_, at)| *at)
    }

    /// What ended the waiting, by the decider's own stamps: a CLEAR is sent only if older leases
    /// had to end.
    pub fn released_by(&self) -> &'static str {
        let has = |event| self.first(self.decider, event).is_some();
        match (has(EventKind::Clear), has(EventKind::Fenced)) {
            (true, _) => "CLEAR",
            (false, true) => "the end of all older leases (no CLEAR was stamped)",
            (false, false) if self.compatible => "the decision (no CLEAR was needed)",
            (false, false) => "a later CLEAR or the end of all older leases (neither was stamped)",
        }
    }

    /// Other processes that may have become active later, within the clock error.
    pub fn perhaps_last(&self) -> Vec<Name> {
        let all = self.actives();
        let Some(last) = all.values().max_by_key(|moment| moment.at).copied() else { return Vec::new() };
        let overlaps = |one: &&Moment| {
            let clock_error = one.clock_error.saturating_add(last.clock_error);
            clock_error > Nanos::ZERO && last.at.since(one.at) <= clock_error
        };
        let others = all.values().filter(|one| one.process != last.process);
        others.filter(overlaps).map(|one| one.process).collect()
    }

    /// The duration of each phase; `None` if its stamps are missing or contradict causality. A view
    /// that is compatible with its predecessor needs no fence and no CLEAR: those phases are zero.
    /// Any other view without these stamps was waited for until the CLEAR of a later one, or until
    /// older leases ended.
    pub fn phases(&self) -> [Option<Nanos>; 5] {
        let at = |event| self.first(self.decider, event);
        let (propose, decide) = (at(EventKind::Propose), at(EventKind::Decide));
        let active = self.last_active().map(|(_, at)| at);
        let (fenced, clear) = (at(EventKind::Fenced), at(EventKind::Clear));
        // By another host's clock, a process may seem to be active before CLEAR.
        let before_clear = active.filter(|at| self.is_certain(clear.or(fenced).unwrap_or(*at).since(*at)));
        let is_stamped = self.compatible || fenced.is_some() || clear.is_some();
        let waited =
            decide.filter(|_| is_stamped).map(|decide| waited_until(decide, fenced, clear, before_clear));
        let [fenced, clear] = waited.map_or([fenced, clear.or(fenced)], |ends| ends.map(Some));
        let order = [Some(self.began), propose, decide, fenced, clear, active];
        std::array::from_fn(|n| match (order[n], order[n + 1]) {
            // The decider's clock stamps the others; the active process may use another host's
            // clock.
            (Some(from), Some(to)) if from <= to && (n < 4 || self.is_certain(to.since(from))) => {
                Some(to.since(from))
            }
            _ => None,
        })
    }

    /// Whether the order of the ends of a span is certain despite the clock error.
    fn is_certain(&self, span: Nanos) -> bool {
        let clock_error = self.clock_error();
        clock_error == Nanos::ZERO || span > clock_error
    }

    /// From the notice to the last process that became active.
    pub fn total(&self) -> Option<Nanos> {
        let (_, last) = self.last_active()?;
        (last >= self.began).then(|| last.since(self.began)).filter(|total| self.is_certain(*total))
    }

    /// The part of the total that no phase has, because stamps are missing; `None` if there is none.
    pub fn unstamped(&self) -> Option<Nanos> {
        let known = self.phases().into_iter().flatten().fold(Nanos::ZERO, Nanos::saturating_add);
        self.total().map(|total| Nanos(total.0.saturating_sub(known.0))).filter(|rest| *rest > Nanos::ZERO)
    }

    /// The processes with stamps, by their first stamps.
    pub fn processes(&self) -> Vec<Name> {
        let mut names = Vec::new();
        for moment in &self.moments {
            if !names.contains(&moment.process) {
                names.push(moment.process);
            }
        }
        names
    }
}

/// Who departed by which view, as far as views were read: flight recorders alone do not show which
/// notices a view is due to.
#[derive(Clone, Debug, Default)]
pub struct Departures {
    /// The members that failed by each view that is known.
    failed: BTreeMap<ViewId, Vec<Dead>>,
    /// The view that removed each member, failed or not.
    gone: BTreeMap<Incarnation, ViewId>,
    /// By base: the newest known view of its run.
    runs: BTreeMap<ViewId, ViewId>,
}

/// Views whose departures are kept; far more than the flight recorders of a cluster hold.
const VIEWS_MAX: usize = 1 << 16;

/// A member that departed.
#[derive(Clone, Copy, Debug)]
pub struct Removal {
    /// The member, and who has reported it.
    pub dead: Dead,
    /// The view that removed it.
    pub at: ViewId,
    /// Whether it left on request.
    pub left: bool,
}

impl Departures {
    /// Adds who departed, as a view says of itself and its predecessors. It covers the last
    /// [`JOIN_WINDOW`] views.
    pub fn learn(&mut self, view: ViewId, departed: impl Iterator<Item = Removal>) {
        if self.failed.contains_key(&view) {
            return;
        }
        for id in view.0.saturating_sub(JOIN_WINDOW - 1)..=view.0 {
            self.failed.entry(ViewId(id)).or_default();
        }
        for Removal { dead, at, left } in departed {
            if self.gone.insert(dead.who, at).is_none() && !left {
                self.failed.entry(at).or_default().push(dead);
            }
        }
        while self.failed.len() > VIEWS_MAX {
            if let Some((_, dead)) = self.failed.pop_first() {
                self.gone.retain(|who, _| dead.iter().all(|dead| dead.who != *who));
            }
        }
    }

    /// The same from a view itself.
    pub fn learn_from(&mut self, view: &View) {
        let dead = |who: Incarnation| {
            let report = view.changes.iter().find_map(|change| match *change {
                Change::Failed { accused, accuser, reason } if accused == who => Some((accuser, reason)),
                _ => None,
            });
            let (accuser, reason) = report.unzip();
            Dead { who, accuser: accuser.unwrap_or(Incarnation::NONE), reason }
        };
        let failed = view.changes.iter().filter_map(|change| match change {
            Change::Failed { accused, .. } => {
                Some(Removal { dead: dead(*accused), at: view.id, left: false })
            }
            _ => None,
        });
        let departed = view.departed.iter().map(|gone| Removal {
            dead: dead(gone.incarnation),
            at: gone.at,
            left: gone.left,
        });
        self.learn(view.id, failed.chain(departed));
        self.learn_base(view.id, view.base);
    }

    /// Adds the base of a view: it and its successors up to the view are compatible.
    pub fn learn_base(&mut self, view: ViewId, base: ViewId) {
        let newest = self.runs.entry(base).or_insert(view);
        *newest = view.max(*newest);
        while self.runs.len() > VIEWS_MAX {
            self.runs.pop_first();
        }
    }

    /// Whether a view is known to be compatible with its predecessor.
    fn is_compatible(&self, view: ViewId) -> bool {
        self.runs.range(..view).next_back().is_some_and(|(_, newest)| view <= *newest)
    }

    fn is_gone(&self, who: Incarnation, by: ViewId) -> bool {
        self.gone.get(&who).is_some_and(|at| *at <= by)
    }
}

/// Notices at one coordinator for which no view is decided yet.
#[derive(Clone, Default)]
struct Pending {
    dead: Vec<Dead>,
    notices: Vec<Moment>,
}

impl Pending {
    /// Keeps the notices of these members.
    fn retain(&mut self, wanted: impl Fn(&Dead) -> bool) {
        let kept = self.dead.iter().zip(&self.notices).filter(|(dead, _)| wanted(dead));
        (self.dead, self.notices) = kept.map(|(dead, notice)| (*dead, *notice)).unzip();
    }
}

/// The notices that no decided view explains yet, by coordinator.
#[derive(Default)]
struct Causes {
    pending: BTreeMap<Name, Pending>,
    /// Members that decided views have removed.
    gone: BTreeSet<Incarnation>,
}

impl Causes {
    /// A coordinator was notified. Followers are too, some only after the decision.
    fn notice(&mut self, moment: Moment, dead: Dead) {
        if self.gone.contains(&dead.who) {
            return;
        }
        let here = self.pending.entry(moment.process).or_default();
        if !here.dead.iter().any(|known| known.who == dead.who) {
            here.dead.push(dead);
            here.notices.push(moment);
        }
    }

    /// What made this coordinator decide this view. Notices at those that do not decide are not the
    /// cause.
    fn of(&mut self, decider: Name, view: ViewId, departures: &Departures) -> Pending {
        let mut here = self.pending.remove(&decider).unwrap_or_default();
        let before = ViewId(view.0.saturating_sub(1));
        here.retain(|dead| !departures.is_gone(dead.who, before));
        if let Some(failed) = departures.failed.get(&view) {
            let mut rest = here.clone();
            here.retain(|dead| failed.iter().any(|other| other.who == dead.who));
            rest.retain(|dead| !departures.is_gone(dead.who, view));
            self.pending.insert(decider, rest);
            // Programs are removed with their agents, without a notice.
            let unnoticed = failed.iter().filter(|dead| here.dead.iter().all(|known| known.who != dead.who));
            here.dead.extend(unnoticed.copied().collect::<Vec<_>>());
        }
        self.gone.extend(here.dead.iter().map(|dead| dead.who));
        for other in self.pending.values_mut() {
            other.retain(|dead| !self.gone.contains(&dead.who));
        }
        here
    }
}

/// All failovers of these events, oldest first. Views whose departures are unknown are assumed to
/// be due to all earlier notices at their decider.
pub fn all(events: &(impl Iterator<Item = ObservedEvent> + Clone), departures: &Departures) -> Vec<Failover> {
    let mut causes = Causes::default();
    let mut proposed: BTreeMap<(Name, ViewId), Moment> = BTreeMap::new();
    let mut found: BTreeMap<ViewId, Failover> = BTreeMap::new();
    let records = || events.clone().map(|seen| (Moment::of(&seen), seen.event.record));
    let decides = |record: &Record| record.kind == EventKind::Decide;
    let decided: BTreeSet<ViewId> =
        records().filter(|(_, record)| decides(record)).map(|(_, record)| ViewId(record.a)).collect();
    for (moment, Record { kind, reason, a, b }) in records() {
        let (process, view) = (moment.process, ViewId(a));
        match kind {
            EventKind::Notice => causes.notice(
                moment,
                Dead { who: Incarnation(a), accuser: Incarnation(b), reason: Reason::from_repr(reason) },
            ),
            EventKind::Propose => drop(proposed.insert((process, view), moment)),
            EventKind::Decide => {
                let Pending { dead, notices } = causes.of(process, view, departures);
                let Some(first) = notices.first() else { continue };
                let began = first.at;
                let mut moments = notices;
                moments.extend(proposed.remove(&(process, view)));
                moments.push(moment);
                let compatible = departures.is_compatible(view);
                found.insert(view, Failover { view, decider: process, dead, began, moments, compatible });
            }
            // The decider's flight recorder is lost. Earlier notices may be the cause of this view,
            // so they are not attributed to a later one.
            EventKind::ViewReceived if !decided.contains(&view) => drop(causes.pending.remove(&process)),
            _ => {}
        }
    }
    // With another host's clock, a view may appear to be received before it was decided.
    for (moment, record) in records() {
        let of = [
            EventKind::Fenced,
            EventKind::Clear,
            EventKind::ViewReceived,
            EventKind::Active,
            EventKind::Service,
        ];
        if let Some(failover) = found.get_mut(&ViewId(record.a)).filter(|_| of.contains(&record.kind)) {
            failover.moments.push(moment);
        }
    }
    found
        .into_values()
        .map(|mut failover| {
            failover.moments.sort_by_key(|moment| moment.at);
            // A process that loses its lease later and becomes active again is not part of the
            // failover; but there may be several notices, as one view may remove several members.
            let mut seen = BTreeSet::new();
            failover.moments.retain(|Moment { process, event, .. }| {
                seen.insert((*process, *event as u32)) || *event == EventKind::Notice
            });
            failover
        })
        .collect()
}

/// The medians of each phase and of the total, over failovers with complete stamps.
pub fn medians(failovers: &[Failover]) -> ([Option<Nanos>; 5], Option<Nanos>) {
    let median = |mut values: Vec<Nanos>| {
        values.sort_unstable();
        values.get(values.len().checked_sub(1)? / 2).copied()
    };
    let phase = |n: usize| median(failovers.iter().filter_map(|f| f.phases()[n]).collect());
    (std::array::from_fn(phase), median(failovers.iter().filter_map(Failover::total).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::seen;
    use obol_membership::Kind;

    /// The events of a failover that begins at this microsecond.
    fn events(us: u64) -> Vec<ObservedEvent> {
        let stamp = |process, kind, event, after, a, b| seen(process, kind, event, (us + after) * 1000, a, b);
        let (coord, app) = (Kind::Coordinator, Kind::App);
        vec![
            stamp("coord-1", coord, EventKind::Notice, 0, 7, 1),
            stamp("coord-1", coord, EventKind::Propose, 5, 7, 0),
            stamp("coord-1", coord, EventKind::Decide, 18, 7, 0),
            stamp("coord-1", coord, EventKind::Fenced, 30, 7, 3),
            stamp("coord-1", coord, EventKind::Clear, 31, 7, 0),
            stamp("node-1", Kind::Agent, EventKind::ViewReceived, 40, 7, 0),
            stamp("app-1", app, EventKind::Active, 156, 7, 0),
            stamp("app-1", app, EventKind::Service, 160, 7, 0),
        ]
    }

    fn of(events: &[ObservedEvent]) -> Vec<Failover> {
        all(&events.iter().cloned(), &Departures::default())
    }

    #[test]
    fn only_who_failed_by_a_view_is_its_cause_and_programs_go_with_their_agent() {
        let stamp = |event, us: u64, a, b| seen("coord-1", Kind::Coordinator, event, us * 1000, a, b);
        // A notice of a member that left by an earlier view, one of a member that fails later.
        let mut all_events = vec![stamp(EventKind::Notice, 10, 3, 1), stamp(EventKind::Notice, 50, 9, 1)];
        all_events.extend(events(100));
        let gone = |who, at, left| {
            let dead = Dead { who: Incarnation(who), accuser: Incarnation::NONE, reason: None };
            Removal { dead, at: ViewId(at), left }
        };
        let mut departures = Departures::default();
        let gone_at_7 = [gone(3, 5, true), gone(7, 7, false), gone(8, 7, false)];
        departures.learn(ViewId(7), gone_at_7.into_iter());
        let found = all(&all_events.iter().cloned(), &departures);
        let [failover] = &found[..] else { panic!("{found:?}") };
        let who: Vec<u64> = failover.dead.iter().map(|dead| dead.who.0).collect();
        assert_eq!((who, failover.began), (vec![7, 8], Instant(100_000)));
        // A view by which no member failed is not a failover, whatever was noticed before.
        departures = Departures::default();
        departures.learn(ViewId(7), std::iter::once(gone(3, 5, true)));
        assert_eq!(all(&all_events.iter().cloned(), &departures), []);
    }

    fn one() -> Failover {
        let mut found = of(&events(100));
        assert_eq!(found.len(), 1);
        found.remove(0)
    }

    #[test]
    fn a_failover_is_reconstructed_from_stamps() {
        let failover = one();
        assert_eq!((failover.view, failover.decider.as_str()), (ViewId(7), "coord-1"));
        assert_eq!(failover.dead[0].reason, Some(Reason::Deadbeat));
        let phases = failover.phases().map(|phase| phase.map(|phase| phase.0 / 1000));
        assert_eq!(phases, [5, 13, 12, 1, 125].map(Some));
        assert_eq!(failover.total(), Some(Nanos::from_micros(156)));
        assert_eq!(failover.last_active().map(|(who, _)| who.to_string()).as_deref(), Some("app-1"));
        let sum: u64 = failover.phases().into_iter().flatten().map(|phase| phase.0).sum();
        assert_eq!(Some(Nanos(sum)), failover.total(), "the phases add up");
    }

    #[test]
    fn a_missing_or_acausal_stamp_gives_no_duration() {
        let mut failover = one();
        failover.moments.retain(|moment| moment.event != EventKind::Propose);
        assert_eq!(failover.phases().map(|phase| phase.is_some()), [false, false, true, true, true]);
        let mut failover = one();
        for moment in &mut failover.moments {
            if moment.event == EventKind::Decide {
                moment.at = failover.began - Nanos(1);
            }
        }
        assert_eq!(failover.phases()[1], None);
    }

    #[test]
    fn a_clear_is_reported_only_if_stamped() {
        let mut failover = one();
        assert_eq!(failover.released_by(), "CLEAR");
        failover.moments.retain(|moment| moment.event != EventKind::Clear);
        assert!(failover.released_by().starts_with("the end of all older leases"));
        failover.moments.retain(|moment| moment.event != EventKind::Fenced);
        assert!(failover.released_by().starts_with("a later CLEAR"));
        failover.compatible = true;
        assert!(failover.released_by().starts_with("the decision"));
    }

    #[test]
    fn a_view_that_was_waited_for_without_stamps_has_no_phases_of_waiting() {
        let stamped =
            |event: &ObservedEvent| !matches!(event.event.record.kind, EventKind::Fenced | EventKind::Clear);
        let events: Vec<ObservedEvent> = events(100).into_iter().filter(stamped).collect();
        let phases = |base| {
            let mut departures = Departures::default();
            departures.learn_base(ViewId(4), ViewId(2));
            departures.learn_base(ViewId(8), ViewId(base));
            let found = all(&events.iter().cloned(), &departures);
            assert_eq!(found[0].total(), Some(Nanos::from_micros(156)));
            found[0].phases().map(|phase| phase.map(|phase| phase.0 / 1000))
        };
        assert_eq!(phases(6), [Some(5), Some(13), Some(0), Some(0), Some(138)], "compatible with view 6");
        let unknown = [Some(5), Some(13), None, None, None];
        assert_eq!(phases(7), unknown, "a base of its own");
        assert_eq!(phases(8), unknown, "of no run that is known");
    }

    #[test]
    fn a_span_within_the_clock_error_has_no_duration() {
        let mut failover = one();
        let another_host = |clock_error| {
            move |moment: &mut Moment| {
                if moment.event == EventKind::Active {
                    moment.clock_error = Nanos::from_micros(clock_error);
                }
            }
        };
        failover.moments.iter_mut().for_each(another_host(100));
        assert_eq!(failover.clock_error(), Nanos::from_micros(100));
        assert_eq!((failover.phases(), failover.total()), (one().phases(), one().total()));
        failover.moments.iter_mut().for_each(another_host(130));
        assert_eq!((failover.phases()[3], failover.phases()[4]), (one().phases()[3], None));
        assert!(failover.total().is_some());
        failover.moments.iter_mut().for_each(another_host(200));
        assert_eq!(failover.total(), None);
    }

    #[test]
    fn a_view_without_a_death_is_no_failover() {
        assert_eq!(of(&events(100)[1..]), []);
    }

    #[test]
    fn a_decided_death_is_not_the_cause_of_another_coordinators_later_view() {
        let mut all = events(100);
        let heard = |ns| seen("coord-2", Kind::Coordinator, EventKind::Notice, ns, 7, 1);
        all.insert(1, heard(100_001));
        all.insert(5, heard(130_001));
        for mut later in events(8_000_000) {
            later.process = Name::new("coord-2").expect("a name");
            later.event.record.a = if later.event.record.kind == EventKind::Notice { 1 } else { 8 };
            all.push(later);
        }
        let found = of(&all);
        let dead: Vec<Vec<u64>> =
            found.iter().map(|f| f.dead.iter().map(|dead| dead.who.0).collect()).collect();
        assert_eq!(dead, [vec![7], vec![1]]);
        assert!(found[1].total().is_some_and(|total| total < Nanos::from_millis(1)), "{:?}", found[1]);
    }

    #[test]
    fn a_death_decided_by_a_lost_recorder_is_not_the_cause_of_a_later_view() {
        // A second before, coord-1 received a notice of another death, and a view decided by a
        // coordinator whose recorder is lost.
        let before = |event, ns, a| seen("coord-1", Kind::Coordinator, event, ns, a, 1);
        let mut all = vec![before(EventKind::Notice, 0, 4), before(EventKind::ViewReceived, 50_000, 6)];
        all.extend(events(1_000_000));
        let found = of(&all);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].dead.iter().map(|dead| dead.who.0).collect::<Vec<_>>(), [7]);
        assert_eq!(found[0].total(), Some(Nanos::from_micros(156)));
    }

    #[test]
    fn medians_skip_incomplete_failovers() {
        let whole = one();
        let mut broken = one();
        broken.moments.retain(|moment| moment.event != EventKind::Active);
        let (phases, total) = medians(&[whole.clone(), broken]);
        assert_eq!((phases[4], total), (whole.phases()[4], whole.total()));
        assert_eq!(medians(&[]), ([None; 5], None));
    }
}
