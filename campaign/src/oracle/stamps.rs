//! Row 20: the flight recorders, merged as in console and drills, are in the order of cause and
//! effect, and the phases of a failover add up to its duration.

use super::decisions::Decisions;
use super::violation::{Verdict, broken};
use crate::marks::{Mark, Marks};
use crate::role::World;
use crate::scenario::Scenario;
use obol_fabric::{Address, Instant, Name, Nanos, ViewId, recorder};
use obol_membership::recorder::{EventKind, Stamped};
use obol_membership::{ActiveMutant, Change, Kind};
use obol_observe::ObservedEvent;
use obol_observe::timeline::{History, Phases, merge};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

/// Largest rounding error of a time converted to another clock and back.
const ROUNDING: u64 = 2;

/// How far a recorder was read.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    generation: u32,
    number: u64,
    /// True time of the last event.
    last: u64,
}

/// The events of all flight recorders.
#[derive(Debug)]
pub(super) struct Stamps {
    plant: ActiveMutant,
    kinds: Vec<(Name, Kind)>,
    cursors: Vec<Cursor>,
    /// By process, events that are not merged yet.
    unread: Vec<Vec<ObservedEvent>>,
    /// The time up to which events are merged.
    merged: u64,
    history: History,
    proposed: BTreeSet<ViewId>,
    /// By view and process, its first `active`: an independent reference for the shipped time line.
    active: BTreeMap<ViewId, BTreeMap<Name, u64>>,
    /// Which processes ended, and when.
    deaths: Vec<(Address, u64)>,
    /// The first view whose time line was not checked yet.
    next: ViewId,
}

impl Stamps {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let kind = |node: u32| match node {
            n if n < scenario.coordinators => Kind::Coordinator,
            n if scenario.is_agent(n) => Kind::Agent,
            n if scenario.is_cache(n) => Kind::LeaseCache,
            _ => Kind::App,
        };
        let name = |node: u32| Name::new(&format!("node-{node}")).unwrap_or_default();
        let nodes = scenario.nodes();
        Self {
            plant: scenario.config.mutant,
            kinds: (0..nodes).map(|node| (name(node), kind(node))).collect(),
            cursors: vec![Cursor::default(); nodes as usize],
            unread: vec![Vec::new(); nodes as usize],
            merged: 0,
            history: History::default(),
            proposed: BTreeSet::from([scenario.first_view]),
            active: BTreeMap::new(),
            deaths: Vec::new(),
            next: scenario.first_view.next(),
        }
    }

    /// A process has ended.
    pub(super) fn died(&mut self, who: Address, time: u64) {
        self.deaths.push((who, time));
    }

    /// Reads a process's events of its last step: no stamp precedes what it reports.
    pub(super) fn check(&mut self, world: &World, decisions: &Decisions, node: u32) -> Verdict {
        let words = world.recorder(node);
        let written = words[0].load(Ordering::Relaxed);
        let generation = world.address(node).generation;
        let cursor = &mut self.cursors[node as usize];
        if cursor.generation != generation {
            // An acceptor's memory outlives its process.
            let number = if cursor.number <= written && cursor.generation > 0 { cursor.number } else { 0 };
            *cursor = Cursor { generation, number, last: cursor.last };
        }
        if cursor.number == written {
            return Ok(());
        }
        let events = recorder::read(words, cursor.number);
        cursor.number = written;
        let (process, kind) = self.kinds[node as usize];
        for mut event in events {
            let at = world.to_true(node, event.at);
            self.judge(decisions, node, &event, at, world.now())?;
            self.cursors[node as usize].last = at;
            event.at = Instant(at);
            if event.record.kind == EventKind::Active {
                let views = self.active.entry(ViewId(event.record.a)).or_default();
                views.entry(process).or_insert(at);
            }
            self.unread[node as usize].push(ObservedEvent { process, kind, event, clock_error: Nanos::ZERO });
        }
        Ok(())
    }

    fn judge(&self, decisions: &Decisions, node: u32, event: &Stamped, at: u64, now: u64) -> Verdict {
        let what = event.record.kind;
        let Cursor { last, .. } = self.cursors[node as usize];
        if at + ROUNDING < last || at > now + ROUNDING {
            let what = format!("node {node} stamps {} with {at} between {last} and {now}", what.name());
            return broken!(20, now, "{what}");
        }
        let view = match what {
            EventKind::Decide | EventKind::ViewReceived | EventKind::Fenced | EventKind::Active => {
                ViewId(event.record.a)
            }
            _ => return Ok(()),
        };
        match decisions.get(view) {
            Some(decided) if decided.at <= at + ROUNDING => Ok(()),
            Some(decided) => {
                let what = what.name();
                let when = decided.at;
                broken!(20, now, "node {node} stamps {what} of view {view} with {at}: decided at {when}")
            }
            None => {
                let what = what.name();
                broken!(20, now, "node {node} stamps {what} of view {view}, which was not decided")
            }
        }
    }

    /// Merges the events so far as an observer does: process by process, then by time.
    pub(super) fn merge(&mut self, now: u64) -> Verdict {
        let events: Vec<ObservedEvent> = self.unread.iter_mut().flat_map(std::mem::take).collect();
        let events = merge(events, self.plant);
        let mut before = self.merged;
        for seen in &events {
            let Stamped { at, record, .. } = seen.event;
            let (who, what, view) = (seen.process, record.kind, ViewId(record.a));
            if at.0 + ROUNDING < before {
                let what = what.name();
                return broken!(20, now, "{what} of {who} at {} comes after {before}", at.0);
            }
            before = at.0;
            match what {
                EventKind::Propose => _ = self.proposed.insert(view),
                EventKind::ViewReceived | EventKind::Active | EventKind::Decide
                    if !self.proposed.contains(&view) =>
                {
                    let what = what.name();
                    return broken!(20, now, "{what} of view {view} comes before any proposal");
                }
                _ => {}
            }
        }
        self.merged = before;
        self.history.take(&events);
        Ok(())
    }

    /// Checks the time lines of the failovers so far: phases add up to the survivors' outage.
    pub(super) fn failovers(&mut self, decisions: &Decisions, now: u64, marks: &mut Marks) -> Verdict {
        let newest = decisions.newest().id;
        let from = std::mem::replace(&mut self.next, newest.next());
        for id in (from.0..=newest.0).map(ViewId) {
            self.failover(decisions, id, now, marks)?;
        }
        Ok(())
    }

    fn failover(&self, decisions: &Decisions, id: ViewId, now: u64, marks: &mut Marks) -> Verdict {
        let (Some(decided), Some(old)) = (decisions.get(id), decisions.get(ViewId(id.0 - 1))) else {
            return Ok(());
        };
        let failed = decided.view.changes.iter().filter_map(|change| match *change {
            Change::Failed { accused, .. } => old.view.member(accused),
            _ => None,
        });
        let failed: Vec<_> = failed.collect();
        let ends: Vec<u64> = failed
            .iter()
            .filter_map(|m| self.deaths.iter().find(|(who, _)| *who == m.address))
            .map(|(_, time)| *time)
            .collect();
        let first = |name: &Name| self.active.range(id..).filter_map(|(_, line)| line.get(name)).min();
        let survivors: Vec<(Name, u64)> =
            self.kinds.iter().filter_map(|(name, _)| Some((*name, *first(name)?))).collect();
        let Some(last) = survivors.iter().map(|(_, at)| *at).max() else { return Ok(()) };
        let (Some(&killed), true) = (ends.iter().max(), ends.len() == failed.len()) else { return Ok(()) };
        let dead: Vec<_> = failed.iter().map(|m| m.incarnation).collect();
        let names: Vec<Name> = survivors.iter().map(|(name, _)| *name).collect();
        let Some(phases) = Phases::of(&self.history, id, &dead, Instant(killed), &names) else {
            marks.hit(Mark::TimelineHole);
            return Ok(());
        };
        marks.hit(Mark::TimelineWhole);
        let total = last - killed;
        if phases.total() != Nanos(total) {
            let sum = phases.total();
            return broken!(
                20,
                now,
                "the phases of view {id} add up to {sum}, from death to active it is {total} ns"
            );
        }
        // No decision precedes the notice, and no survivor starts before the decision.
        let decide = killed + phases.notice.0 + phases.propose.0 + phases.decide.0;
        if decide + ROUNDING < decided.at || survivors.iter().any(|(_, at)| at + ROUNDING < decided.at) {
            return broken!(20, now, "the time line of view {id} has a decision at {decide}");
        }
        Ok(())
    }
}
