//! Watches a cluster through a rollout, by one-sided READs.

use super::period::{Failed, Period, outage};
use obol_fabric::{Incarnation, Instant, Name, Nanos, ViewId};
use obol_membership::View;
use obol_membership::metrics::{Counter, Histogram};
use obol_membership::view::Change;
use obol_node::SiteError;
use obol_observe::failovers::{self, Dead, Departures};
use obol_observe::{Health, ObservedEvent, Observer, Process, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Events that are kept, for failovers: far more than a rollout has. They are of view changes, and
/// not of renewals.
const EVENTS_MAX: usize = 1 << 20;
/// Histograms are large, and are read at every so many polls.
const SPANS_EVERY: u64 = 5;

/// Which part of a rollout a poll belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Before the command.
    Before,
    /// Since its begin.
    Since,
}

/// One process in one life and one seat.
type Key = (Name, u32, u64, u16);

/// Renewals of a process: in time, and late or without a majority.
type Renewed = (u64, u64);

/// Watches a cluster.
pub struct Watcher {
    observer: Observer,
    stage: Stage,
    began: Instant,
    /// When the command began.
    split: Option<Instant>,
    before: Period,
    since: Period,
    polls: u64,
    last: Option<(Instant, bool)>,
    renewed: BTreeMap<Key, Renewed>,
    /// Events, oldest first, and whether some came since the failovers were made of them.
    events: Vec<ObservedEvent>,
    is_news: bool,
    departures: Departures,
    /// Members that were counted as joined, or were there at the first poll.
    members: BTreeSet<Incarnation>,
    gone: BTreeSet<Incarnation>,
    /// The host of each member that was seen, in a cluster of several.
    hosts: BTreeMap<Incarnation, u8>,
    first_view: Option<ViewId>,
    /// Members of other hosts at the first poll whose histograms were not read yet: what they have
    /// counted before is no part of the rollout.
    unread: BTreeSet<Name>,
    /// While members are killed on purpose.
    exercises: bool,
}

impl Watcher {
    /// Begins to watch.
    pub fn open(root: &Path, cluster: Name) -> Result<Self, SiteError> {
        let mut observer = Observer::open(root, cluster)?.low_memory();
        observer.read_all_buckets();
        Ok(Self {
            observer,
            stage: Stage::Before,
            began: Instant::ZERO,
            split: None,
            before: Period::default(),
            since: Period::default(),
            polls: 0,
            last: None,
            renewed: BTreeMap::new(),
            events: Vec::new(),
            is_news: false,
            departures: Departures::default(),
            members: BTreeSet::new(),
            gone: BTreeSet::new(),
            hosts: BTreeMap::new(),
            first_view: None,
            unread: BTreeSet::new(),
            exercises: false,
        })
    }

    /// The directory of the cluster.
    pub fn dir(&self) -> &Path {
        self.observer.cluster().dir()
    }

    /// From the next poll on, everything belongs to the rollout. The caller polls right before.
    pub fn begin(&mut self) {
        self.stage = Stage::Since;
        self.split = self.last.map(|(at, _)| at);
    }

    /// Whether members that fail now are killed on purpose, and so are not counted.
    pub const fn set_exercises(&mut self, exercises: bool) {
        self.exercises = exercises;
    }

    /// The period before the command, with its failovers.
    pub fn before(&mut self) -> &Period {
        self.take_failovers();
        &self.before
    }

    /// Both periods, with their failovers.
    pub fn periods(&mut self) -> (&Period, &Period) {
        self.take_failovers();
        (&self.before, &self.since)
    }

    /// Reads the cluster once. Returns its health, and why it is not healthy.
    pub fn poll(&mut self) -> (Health, Vec<String>) {
        let with_spans = self.polls.is_multiple_of(SPANS_EVERY);
        let (snapshot, events, mut spans) = self.observer.poll(with_spans);
        let is_first = self.polls == 0;
        if is_first {
            self.unread = snapshot.view.iter().flat_map(|view| &view.members).map(|m| m.name).collect();
        }
        if with_spans {
            let mut elsewhere = self.observer.spans_elsewhere();
            elsewhere.retain(|one| !self.unread.remove(&one.process));
            spans.extend(elsewhere);
        }
        self.polls += 1;
        if is_first {
            self.began = snapshot.at;
        }
        self.is_news |= !events.is_empty();
        self.events.extend(events);
        let beyond = self.events.len().saturating_sub(EVENTS_MAX);
        self.events.drain(..beyond);
        let now = (snapshot.at, snapshot.health.serves());
        let renewed: Vec<Renewed> =
            snapshot.all_processes().filter_map(|process| self.renewals(process, is_first)).collect();
        if let Some(view) = snapshot.view.clone() {
            self.take_view(&view, is_first);
        }
        let (last, period) = (self.last, self.period());
        period.span = period.span.saturating_add(last.map_or(Nanos::ZERO, |(at, _)| now.0.since(at)));
        period.unavailable = period.unavailable.saturating_add(outage(last, now));
        for (timely, late) in renewed {
            period.timely += timely;
            period.late += late;
        }
        for counts in spans.iter().filter_map(|one| one.of(Histogram::Renewal)) {
            period.renewals.add(counts);
        }
        self.last = Some(now);
        let Snapshot { health, reasons, .. } = snapshot;
        (health, reasons)
    }

    const fn period(&mut self) -> &mut Period {
        match self.stage {
            Stage::Before => &mut self.before,
            Stage::Since => &mut self.since,
        }
    }

    /// The renewals of a process since the previous poll; `None` at the first, or if there are none.
    fn renewals(&mut self, process: &Process, is_first: bool) -> Option<Renewed> {
        let of = |counter| process.counter(counter);
        let now = (of(Counter::RenewalsOnTime), of(Counter::RenewalsLate) + of(Counter::RenewalsFailed));
        let key = (process.name, process.process.pid, process.process.started, process.seat);
        // What a process has counted that was not there at the first poll is all new.
        let known = self.renewed.insert(key, now).or((!is_first).then_some((0, 0)))?;
        let grown = (now.0.saturating_sub(known.0), now.1.saturating_sub(known.1));
        (grown != (0, 0)).then_some(grown)
    }

    fn take_view(&mut self, view: &View, is_first: bool) {
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
        let departed = view.departed.iter().map(|gone| (dead(gone.incarnation), gone.at, gone.left));
        self.departures.learn(view.id, departed);
        let (mut joined, mut left, mut failed) = (0, 0, Vec::new());
        let deployment = self.observer.deployment();
        for member in &view.members {
            let is_new = self.members.insert(member.incarnation);
            joined += u64::from(is_new && !is_first);
            let host = deployment.host_of(member.address.region);
            if let Some(host) = host.filter(|_| is_new && deployment.network.is_some()) {
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
                failed.push(Failed {
                    name: gone.name.to_string(),
                    incarnation: gone.incarnation.0,
                    host: self.hosts.get(&gone.incarnation).copied(),
                    view: gone.at.0,
                    detector: reported(gone.incarnation).map(|(_, reason)| reason.name()),
                });
            }
        }
        self.period().count(joined, left, failed);
    }

    /// Makes failovers of the events. One that is not over yet is measured again later.
    fn take_failovers(&mut self) {
        if !std::mem::take(&mut self.is_news) {
            return;
        }
        self.events.sort_by_key(|seen| seen.event.at);
        let split = self.split.unwrap_or(Instant::NEVER);
        for failover in failovers::all(&self.events.iter().cloned(), &self.departures) {
            if failover.began < self.began {
                continue;
            }
            let period = if failover.began < split { &mut self.before } else { &mut self.since };
            period.failovers.insert(failover.view, failover.total());
        }
    }
}
