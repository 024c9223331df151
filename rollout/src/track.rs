//! What a rollout is judged by, made of one snapshot after the other.

use super::judge::Periods;
use super::period::{Failed, Period, outage};
use super::roster::{Member, Roster};
use obol_fabric::{Incarnation, Instant, Name, Nanos, ViewId};
use obol_membership::metrics::{Counter, Histogram};
use obol_membership::view::{Change, Departed};
use obol_membership::{Kind, View};
use obol_observe::failovers::{self, Dead, Departures, Removal};
use obol_observe::histograms::Histograms;
use obol_observe::missed::is_client;
use obol_observe::{Health, ObservedEvent, Process, Snapshot};
use std::collections::{BTreeMap, BTreeSet};

/// Events that are kept, for failovers: far more than a rollout has. They are of view changes, and
/// not of renewals.
const EVENTS_MAX: usize = 1 << 20;

/// Which part of a rollout a snapshot belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Before the command.
    #[default]
    Before,
    /// Since its begin.
    Since,
    /// Since its end, which is since its begin as well.
    Settling,
}

/// One process in one life and one seat.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    name: Name,
    pid: u32,
    started: u64,
    seat: u16,
}

/// What the last snapshot has shown.
#[derive(Clone, Copy)]
struct Last {
    at: Instant,
    serves: bool,
    is_healthy: bool,
}

/// A member that can act.
struct Acting {
    name: Name,
    kind: Kind,
    who: Incarnation,
}

/// Renewals of a process: in time, and late or without a majority.
type Renewed = (u64, u64);

/// The members of a view.
#[derive(Clone, Debug, Default)]
struct Members {
    all: Vec<(Name, Kind)>,
    /// The coordinators among them that decide; others are spares.
    deciders: Vec<Name>,
}

/// When a member was seen first.
#[derive(Clone, Copy, Debug)]
struct Joined {
    at: Instant,
    /// Since the command began, and not in an exercise.
    is_of_rollout: bool,
}

/// The figures of a rollout so far.
#[derive(Default)]
pub(super) struct Track {
    stage: Stage,
    began: Option<Instant>,
    /// When the command began, and when it ended.
    split: Option<Instant>,
    settles: Option<Instant>,
    before: Period,
    since: Period,
    settling: Period,
    last: Option<Last>,
    renewed: BTreeMap<Key, Renewed>,
    /// Events, oldest first, and whether some came since the failovers were made of them.
    events: Vec<ObservedEvent>,
    is_news: bool,
    departures: Departures,
    /// Members that were counted as joined, or were there at the first snapshot.
    members: BTreeMap<Incarnation, Joined>,
    gone: BTreeSet<Incarnation>,
    /// How many members of a name have joined since the command began.
    lives: BTreeMap<(Name, Kind), u32>,
    /// Members that joined since the command began, and failed.
    crashed: Vec<Failed>,
    /// The host of each member that was seen, in a cluster of several.
    hosts: BTreeMap<Incarnation, u8>,
    first_view: Option<ViewId>,
    /// While members are killed on purpose.
    exercises: bool,
    /// The members when the command began, and those of the newest view: with the coordinators that decide.
    baseline: Members,
    present: Members,
    /// Those that can act now.
    acting: Vec<Acting>,
}

/// Whether a process is a member that does what it is for.
fn acts(process: &Process, snapshot: &Snapshot) -> bool {
    let has_lease = process.kind == Kind::Coordinator || process.is_active(snapshot.at);
    process.alive && !process.frozen && snapshot.is_member(process) && has_lease
}

impl Track {
    pub(super) fn begin(&mut self) {
        self.stage = Stage::Since;
        self.split = self.last.map(|last| last.at);
        self.baseline.clone_from(&self.present);
    }

    pub(super) fn settle(&mut self) {
        self.stage = Stage::Settling;
        self.settles = self.last.map(|last| last.at);
    }

    pub(super) const fn set_exercises(&mut self, exercises: bool) {
        self.exercises = exercises;
    }

    pub(super) fn periods(&mut self) -> Periods<'_> {
        self.take_failovers();
        let settling = (self.stage == Stage::Settling).then_some(&self.settling);
        Periods { before: &self.before, since: &self.since, settling }
    }

    pub(super) fn roster(&self) -> Roster {
        let at = self.last.map_or(Instant::ZERO, |last| last.at);
        let settled_for = self.settles.map_or(Nanos::ZERO, |settles| at.since(settles));
        let member = |&Acting { name, kind, who }: &Acting| {
            let joined = self.members.get(&who);
            let lives = self.lives.get(&(name, kind)).copied().unwrap_or(0);
            let age = joined.map_or(Nanos::ZERO, |joined| at.since(joined.at));
            // Half of the time is enough for what has joined at the end of the command.
            let is_young = joined.is_some_and(|joined| joined.is_of_rollout) && age.0 < settled_for.0 / 2;
            let decides = kind == Kind::Coordinator && self.present.deciders.contains(&name);
            Member { name, kind, comes_and_goes: is_young && lives > 1, decides }
        };
        Roster {
            before: self.baseline.all.clone(),
            deciders: self.baseline.deciders.clone(),
            now: self.acting.iter().map(member).collect(),
            crashed: self.crashed.clone(),
        }
    }

    /// Learns from a snapshot, its events, and the renewals since the one before. `host` is that of a
    /// region, in a cluster of several.
    pub(super) fn take(
        &mut self,
        snapshot: &Snapshot,
        events: Vec<ObservedEvent>,
        spans: &[Histograms],
        host: impl Fn(u32) -> Option<u8>,
    ) {
        let is_first = self.began.is_none();
        self.began.get_or_insert(snapshot.at);
        self.is_news |= !events.is_empty();
        self.events.extend(events);
        let beyond = self.events.len().saturating_sub(EVENTS_MAX);
        self.events.drain(..beyond);
        let (at, serves) = (snapshot.at, snapshot.health.serves());
        let is_healthy = snapshot.health == Health::Healthy;
        let renewed: Vec<Renewed> =
            snapshot.all_processes().filter_map(|process| self.renewals(process, is_first)).collect();
        if let Some(view) = snapshot.view.as_deref() {
            self.take_view(view, is_first, at, host);
        }
        let last = self.last;
        for period in self.current() {
            period.span = period.span.saturating_add(last.map_or(Nanos::ZERO, |last| at.since(last.at)));
            let unserved = outage(last.map(|last| (last.at, last.serves)), (at, serves));
            let unhealthy = outage(last.map(|last| (last.at, last.is_healthy)), (at, is_healthy));
            period.unavailable = period.unavailable.saturating_add(unserved);
            period.degraded = period.degraded.saturating_add(unhealthy);
            for (timely, late) in &renewed {
                period.timely = period.timely.saturating_add(*timely);
                period.late = period.late.saturating_add(*late);
            }
            for counts in spans.iter().filter_map(|one| one.of(Histogram::Renewal)) {
                period.renewals.add(counts);
            }
        }
        self.last = Some(Last { at, serves, is_healthy });
        let acting = snapshot.all_processes().filter(|process| acts(process, snapshot));
        let acting = acting.map(|p| Acting { name: p.name, kind: p.kind, who: p.incarnation });
        self.acting = acting.collect();
    }

    /// The periods that a snapshot belongs to now.
    fn current(&mut self) -> impl Iterator<Item = &mut Period> {
        let Self { stage, before, since, settling, .. } = self;
        let (first, second) = match stage {
            Stage::Before => (before, None),
            Stage::Since => (since, None),
            Stage::Settling => (since, Some(settling)),
        };
        std::iter::once(first).chain(second)
    }

    /// The renewals of a process since the previous snapshot; `None` at the first, or if there are none.
    fn renewals(&mut self, process: &Process, is_first: bool) -> Option<Renewed> {
        let of = |counter| process.counter(counter);
        let late = of(Counter::RenewalsLate).saturating_add(of(Counter::RenewalsFailed));
        let now = (of(Counter::RenewalsOnTime), late);
        let life = process.process;
        let key = Key { name: process.name, pid: life.pid, started: life.started, seat: process.seat };
        // What a process has counted that was not there at the first snapshot is all new.
        let known = self.renewed.insert(key, now).or((!is_first).then_some((0, 0)))?;
        let grown = (now.0.saturating_sub(known.0), now.1.saturating_sub(known.1));
        (grown != (0, 0)).then_some(grown)
    }

    fn take_view(&mut self, view: &View, is_first: bool, now: Instant, host: impl Fn(u32) -> Option<u8>) {
        let first = *self.first_view.get_or_insert(view.id);
        let reported = |who: Incarnation| {
            view.changes.iter().find_map(|change| match *change {
                Change::Failed { accused, accuser, reason } if accused == who => Some((accuser, reason)),
                _ => None,
            })
        };
        let dead = |who: Incarnation| {
            let (accuser, reason) = reported(who).unzip();
            Dead { who, accuser: accuser.unwrap_or(Incarnation::NONE), reason }
        };
        let removal =
            |gone: &Departed| Removal { dead: dead(gone.incarnation), at: gone.at, left: gone.left };
        let departed = view.departed.iter().map(removal);
        self.departures.learn(view.id, departed);
        let (mut joined, mut left, mut failed) = (0, 0, Vec::new());
        let is_of_rollout = self.stage != Stage::Before && !self.exercises;
        let own = view.members.iter().filter(|member| !is_client(member.name.as_str()));
        let decide =
            view.of_kind(Kind::Coordinator).filter(|member| view.acceptor(member.proposer).is_some());
        self.present = Members {
            all: own.map(|member| (member.name, member.kind)).collect(),
            deciders: decide.map(|member| member.name).collect(),
        };
        for member in &view.members {
            let is_new = !self.members.contains_key(&member.incarnation);
            if !is_new {
                continue;
            }
            self.members.insert(member.incarnation, Joined { at: now, is_of_rollout });
            joined += u64::from(!is_first);
            if is_of_rollout {
                let lives = self.lives.entry((member.name, member.kind)).or_default();
                *lives = lives.saturating_add(1);
            }
            if let Some(host) = host(member.address.region) {
                self.hosts.insert(member.incarnation, host);
            }
        }
        for gone in view.departed.iter().filter(|gone| gone.at > first) {
            if !self.gone.insert(gone.incarnation) {
                continue;
            }
            if gone.left {
                left += 1;
            } else if !self.exercises {
                let failure = Failed {
                    name: gone.name.to_string(),
                    incarnation: gone.incarnation.0,
                    host: self.hosts.get(&gone.incarnation).copied(),
                    view: gone.at.0,
                    detector: reported(gone.incarnation).map(|(_, reason)| reason.name()),
                };
                // One that came and went between two snapshots has joined since as well.
                let joined = self.members.get(&gone.incarnation).map(|joined| joined.is_of_rollout);
                if joined.unwrap_or(is_of_rollout) && !is_client(gone.name.as_str()) {
                    self.crashed.push(failure.clone());
                }
                failed.push(failure);
            }
        }
        let period = if self.stage == Stage::Before { &mut self.before } else { &mut self.since };
        period.count(joined, left, failed);
    }

    /// Makes failovers of the events. One that is not over yet is measured again later.
    fn take_failovers(&mut self) {
        if !std::mem::take(&mut self.is_news) {
            return;
        }
        self.events.sort_by_key(|seen| seen.event.at);
        let split = self.split.unwrap_or(Instant::NEVER);
        for failover in failovers::all(&self.events.iter().cloned(), &self.departures) {
            if self.began.is_none_or(|began| failover.began < began) {
                continue;
            }
            let period = if failover.began < split { &mut self.before } else { &mut self.since };
            period.failovers.insert(failover.view, failover.total());
        }
    }
}
