//! Data derived from the samples so far: rates, ages, names, time lines. It depends only on the
//! sequence of samples, so a recording gives the same as the live console.

use crate::event_text;
use crate::failovers::{self, Departures, Failover, Removal};
use crate::incidents::incident;
use crate::sampling::alerting::Alerting;
use crate::sampling::sample::{
    ChangeRow, DepartedRow, EventRow, Life, MarkRow, ProcessKey, ProcessRow, Sample, ViewRow,
};
use crate::sampling::trend::{CELL, CELLS, Trend};
use crate::sampling::windows::{WINDOW, Windows};
use crate::timeline::History;
use obol_fabric::{Incarnation, Instant, Name, Nanos, ViewId};
use obol_membership::Kind;
use obol_membership::metrics::Counter;
use obol_membership::recorder::EventKind;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use strum::VariantArray;

/// Events to keep for the log.
pub const EVENTS_MAX: usize = 4096;
/// Members whose names are kept, including former ones.
const NAMES_MAX: usize = 4096;
/// Annotations to keep.
const MARKS_MAX: usize = 256;
/// Views whose changes are kept.
const VIEWS_MAX: usize = 256;
/// Views whose decisions are known one by one.
const DECIDED_MAX: usize = 1024;
/// Rates are over this time, or less if less is known.
const RATE_OVER: Nanos = Nanos::from_secs(1);

/// A process, and its counters of [`SINCE`].
type Counted = (ProcessKey, [u64; SINCE.len()]);

/// Renewals of a process at one moment.
#[derive(Clone, Copy, Debug)]
struct Point {
    at: Instant,
    counts: [u64; 3],
}

const RATED: [Counter; 3] = [Counter::RenewalsOnTime, Counter::RenewalsLate, Counter::RenewalsFailed];

/// The extremes of a cell; [`UNKNOWN`] where nothing was measured.
#[derive(Clone, Copy, Debug)]
struct Extremes {
    at: Instant,
    /// The least margin of the lease.
    least: Nanos,
    /// The slowest renewal.
    slowest: Nanos,
}

/// One process over time.
#[derive(Clone, Debug)]
pub struct Track {
    process: ProcessKey,
    incarnation: Incarnation,
    /// Its last state.
    pub life: Life,
    heartbeat: u64,
    /// Its last counters of [`SINCE`].
    counted: [u64; SINCE.len()],
    points: VecDeque<Point>,
    /// When the heartbeat was last seen to move.
    moved: Instant,
    /// When its memory was last read consistently.
    read: Instant,
    /// When it was started; long ago if it was there at the first sample.
    started: Instant,
    /// Since when it is in its state; `None` if it was so in the first sample.
    since: Option<Instant>,
    /// Renewals per second, one cell for each [`CELL`], newest last; a gap is not a number.
    cells: VecDeque<f32>,
    cell: (u64, Point),
    /// Of each [`CELL`] of a window.
    extremes: VecDeque<Extremes>,
    /// Counters of alerts, by time: each change of the last minute, to [`CELL`], and the value
    /// before.
    past: VecDeque<(Instant, [u64; WATCHED.len()])>,
    /// The last values of these.
    watched: [u64; WATCHED.len()],
}

/// A sentinel instead of `Option` halves the size of the many rows.
const UNKNOWN: Nanos = Nanos(u64::MAX);

/// Counters of alerts.
const WATCHED: [Counter; 4] =
    [Counter::RenewalsLate, Counter::RenewalsFailed, Counter::FalseSuspicions, Counter::DriftAlarms];

impl Track {
    /// A newly listed process; `is_first` states that this is the first sample. The time of death of
    /// one that is found dead is unknown.
    fn new(row: &ProcessRow, at: Instant, is_first: bool) -> Self {
        let seen = !is_first && !matches!(row.life, Life::Down | Life::Left);
        let point = Point { at, counts: RATED.map(|c| row.counter(c)) };
        Self {
            process: row.process(),
            incarnation: row.incarnation,
            life: row.life,
            heartbeat: row.heartbeat,
            counted: SINCE.map(|(_, counter)| row.counter(counter)),
            points: VecDeque::from([point]),
            moved: at,
            read: at,
            started: if is_first { Instant::ZERO } else { at },
            since: seen.then_some(at),
            cells: VecDeque::with_capacity(CELLS),
            cell: (at.0 / CELL.0, point),
            extremes: VecDeque::new(),
            past: VecDeque::from([(at, WATCHED.map(|c| row.counter(c)))]),
            watched: WATCHED.map(|c| row.counter(c)),
        }
    }

    fn take(&mut self, row: &ProcessRow, at: Instant) {
        let point = Point { at, counts: RATED.map(|c| row.counter(c)) };
        let fell = self.points.back().is_some_and(|p| p.counts.iter().zip(point.counts).any(|(a, b)| *a > b));
        if row.process() != self.process || fell {
            // A new life counts from zero: no rate spans the two.
            self.points.clear();
            self.extremes.clear();
            self.past = VecDeque::from([(at, [0; WATCHED.len()])]);
            self.moved = at;
            self.started = at;
            self.cell.1 = point;
        }
        if row.heartbeat != self.heartbeat {
            self.moved = at;
        }
        if (row.life, row.incarnation) != (self.life, self.incarnation) {
            self.since = Some(at);
        }
        self.points.push_back(point);
        while self.points.len() > 2 && at.since(self.points[1].at) >= RATE_OVER {
            self.points.pop_front();
        }
        let cell = at.0 / CELL.0;
        if cell > self.cell.0 {
            let from = self.cell.1;
            let span = at.since(from.at);
            let newest = per_second(point.counts[0].saturating_sub(from.counts[0]), span);
            let gaps = (self.cell.0 + 1..cell).take(CELLS).map(|_| f32::NAN);
            for cell in std::iter::once(newest.map_or(f32::NAN, |rate| rate as f32)).chain(gaps) {
                if self.cells.len() == CELLS {
                    self.cells.pop_front();
                }
                self.cells.push_back(cell);
            }
            self.cell = (cell, point);
        }
        if row.least.is_some() || row.slowest.is_some() {
            match self.extremes.back_mut().filter(|last| last.at.0 / CELL.0 == cell) {
                Some(last) => {
                    last.at = at;
                    last.least = row.least.map_or(last.least, |new| new.min(last.least));
                    last.slowest = match row.slowest {
                        Some(new) if last.slowest == UNKNOWN || new > last.slowest => new,
                        _ => last.slowest,
                    };
                }
                None => {
                    let [least, slowest] = [row.least, row.slowest].map(|span| span.unwrap_or(UNKNOWN));
                    self.extremes.push_back(Extremes { at, least, slowest });
                }
            }
        }
        while self.extremes.front().is_some_and(|first| at.since(first.at) > WINDOW) {
            self.extremes.pop_front();
        }
        self.watched = WATCHED.map(|c| row.counter(c));
        // Mostly nothing changes here.
        let is_another = |(then, known): &(Instant, _)| *known != self.watched && at.since(*then) >= CELL;
        if self.past.back().is_none_or(is_another) {
            self.past.push_back((at, self.watched));
        }
        // The oldest entry is the value a minute ago.
        while self.past.get(1).is_some_and(|(then, _)| at.since(*then) >= WINDOW) {
            self.past.pop_front();
        }
        if row.lease.is_some() || row.kind == Kind::Coordinator {
            self.read = at;
        }
        (self.process, self.incarnation) = (row.process(), row.incarnation);
        (self.life, self.heartbeat) = (row.life, row.heartbeat);
        self.counted = SINCE.map(|(_, counter)| row.counter(counter));
    }

    /// The rate per second of a renewal counter; `None` before there are two samples of this life.
    pub fn rate(&self, counter: Counter) -> Option<f64> {
        let which = RATED.iter().position(|rated| *rated == counter)?;
        let (first, last) = (self.points.front()?, self.points.back()?);
        per_second(last.counts[which].checked_sub(first.counts[which])?, last.at.since(first.at))
    }

    /// The increase of an alert counter in the last minute, to [`CELL`]; `None` for other counters.
    pub fn in_minute(&self, counter: Counter) -> Option<u64> {
        let which = WATCHED.iter().position(|watched| *watched == counter)?;
        let (_, then) = self.past.front()?;
        self.watched[which].checked_sub(then[which])
    }

    /// The least margin of its lease in the last minute, zero if it ran out.
    pub fn least(&self) -> Option<Nanos> {
        self.extremes.iter().map(|cell| cell.least).filter(|least| *least != UNKNOWN).min()
    }

    /// In how many cells of the last minute the least margin was below a limit, from this long after its
    /// start on.
    pub fn thin_cells(&self, limit: Nanos, after: Nanos) -> usize {
        let from = self.started + after;
        self.extremes.iter().filter(|cell| cell.least < limit && cell.at >= from).count()
    }

    /// The longest renewal in the last minute.
    pub fn slowest(&self) -> Option<Nanos> {
        self.extremes.iter().map(|cell| cell.slowest).filter(|slowest| *slowest != UNKNOWN).max()
    }

    /// For how long its heartbeat has stalled.
    pub fn still(&self, now: Instant) -> Nanos {
        now.since(self.moved)
    }

    /// The age of the last consistent read of its lease page.
    pub fn age(&self, now: Instant) -> Nanos {
        now.since(self.read)
    }

    /// For how long it has been in its state; `None` if unknown.
    pub fn since(&self, now: Instant) -> Option<Nanos> {
        self.since.map(|since| now.since(since))
    }

    /// Records that its lease ran out at `then`, which its renewals do not show.
    fn lapse(&mut self, then: Instant, now: Instant) {
        if now.since(then) > WINDOW {
            return;
        }
        let cell = |at: Instant| at.0 / CELL.0;
        let at = self.extremes.partition_point(|known| cell(known.at) < cell(then));
        match self.extremes.get_mut(at).filter(|known| cell(known.at) == cell(then)) {
            Some(known) => known.least = Nanos::ZERO,
            None => self.extremes.insert(at, Extremes { at: then, least: Nanos::ZERO, slowest: UNKNOWN }),
        }
    }

    /// Renewals per second over the last minute, oldest first.
    pub fn cells(&self) -> impl ExactSizeIterator<Item = Option<f64>> + '_ {
        self.cells.iter().map(|rate| (!rate.is_nan()).then(|| f64::from(*rate)))
    }
}

/// Drops the first entries beyond a number.
fn bound<K: Ord, V>(map: &mut BTreeMap<K, V>, most: usize) {
    while map.len() > most {
        map.pop_first();
    }
}

fn per_second(n: u64, span: Nanos) -> Option<f64> {
    (span > Nanos::ZERO).then(|| n as f64 * 1e9 / span.0 as f64)
}

/// The views whose decisions are among the events.
#[derive(Clone, Debug, Default)]
struct Decided {
    /// The newest view of the cluster.
    known: ViewId,
    newest: BTreeSet<ViewId>,
    /// Older ones that are only counted.
    older: u64,
    /// When the first of them was decided.
    first: Option<Instant>,
}

impl Decided {
    fn take(&mut self, view: ViewId, at: Instant) {
        // One that is older than all that are kept may be counted already.
        let is_counted = self.older > 0 && self.newest.first().is_some_and(|oldest| view < *oldest);
        if !is_counted && self.newest.insert(view) && self.newest.len() > DECIDED_MAX {
            self.newest.pop_first();
            self.older += 1;
        }
        self.first = Some(self.first.map_or(at, |first| first.min(at)));
    }
}

/// View changes of a cluster whose decisions no event shows.
pub struct UnreadViews {
    pub missing: u64,
    pub of: u64,
    /// The first decision that an event shows.
    pub first: Option<Instant>,
}

/// The data derived from the samples.
#[derive(Clone, Debug, Default)]
pub struct Data {
    /// The newest sample.
    pub sample: Option<Arc<Sample>>,
    /// Which cluster it is of, and its newest view.
    cluster: (Option<u64>, Option<ViewId>),
    /// Its cluster and newest view.
    pub tracks: BTreeMap<Name, Box<Track>>,
    /// The newest events, oldest first.
    pub events: VecDeque<EventRow>,
    /// How many older events there were.
    pub events_gone: u64,
    /// Distributions of durations.
    pub windows: Windows,
    /// Annotations, oldest first.
    pub marks: VecDeque<MarkRow>,
    /// The newest mark of a rollout, and when it began.
    pub rollout: Option<(Instant, MarkRow)>,
    /// When the first sample was read.
    pub began: Option<Instant>,
    /// Counts since the newest annotation of an operator.
    pub since: Since,
    /// Active alerts: name and clause.
    pub alerts: Vec<(&'static str, String)>,
    /// The same with more of each, and those before.
    pub alerting: Alerting,
    pub(crate) incidents: incident::Log,
    /// What changed, for charts.
    pub trend: Trend,
    /// Counters of processes that are not listed now, to continue from if they are listed again.
    gone: BTreeMap<Name, Counted>,
    /// Time lines of views.
    pub history: History,
    /// The changes of the known views.
    pub changes: BTreeMap<ViewId, Vec<ChangeRow>>,
    /// Who departed by which view.
    pub departures: Departures,
    decided: Decided,
    /// The durations of leases in the last minute, and when each was last seen.
    leases: VecDeque<(Instant, Nanos)>,
    /// Names of present and former incarnations.
    names: BTreeMap<Incarnation, Name>,
}

impl Data {
    /// Whether a sample is of another cluster of this name. Old recordings have no cluster id: then
    /// it is another one if its views restart and all its processes are unknown.
    pub fn is_of_another_cluster(&self, sample: &Sample) -> bool {
        let (id, view) = self.cluster;
        if id.zip(sample.cluster_id).is_some_and(|(known, now)| known != now) {
            return true;
        }
        let began_anew = view.zip(sample.view.as_ref()).is_some_and(|(known, now)| now.id < known);
        let is_known =
            |row: &ProcessRow| self.tracks.get(&row.name).is_some_and(|track| track.process == row.process());
        began_anew && !sample.processes.iter().any(is_known)
    }

    /// Adds a sample, without checking for problems. Data of a previous cluster is dropped, because
    /// incarnations and views restart.
    pub fn pass(&mut self, sample: &Sample) {
        if self.is_of_another_cluster(sample) {
            *self = Self::default();
        }
        self.cluster = (sample.cluster_id, sample.view.as_ref().map(|view| view.id));
        self.pass_marks(&sample.marks);
        self.pass_processes(sample);
        if let Some(view) = &sample.view {
            self.pass_view(view, sample.at);
        }
        self.windows.take(sample.at, &sample.spans);
        self.pass_events(sample);
        bound(&mut self.names, NAMES_MAX);
        bound(&mut self.changes, VIEWS_MAX);
        self.trend.take(sample);
        let mut incidents = std::mem::take(&mut self.incidents);
        let known =
            incident::Known { events: &self.events, departures: &self.departures, names: &self.names };
        incidents.take(known, sample);
        self.incidents = incidents;
        self.began.get_or_insert(sample.at);
    }

    fn pass_processes(&mut self, sample: &Sample) {
        let is_first = self.began.is_none();
        for row in &sample.processes {
            let track = self.tracks.get_mut(&row.name);
            if !is_first {
                let listed = track.as_deref().map(|track| (track.process, track.counted));
                self.since.add(listed.or_else(|| self.gone.remove(&row.name)), row);
            }
            // A name is unknown only for a new process.
            let is_known = track.as_ref().is_some_and(|track| track.incarnation == row.incarnation);
            match track {
                Some(track) => track.take(row, sample.at),
                None => drop(self.tracks.insert(row.name, Box::new(Track::new(row, sample.at, is_first)))),
            }
            if (!is_known || self.names.len() >= NAMES_MAX) && row.incarnation != Incarnation::NONE {
                self.names.insert(row.incarnation, row.name);
            }
        }
        if self.tracks.len() > sample.processes.len() {
            let there: HashSet<Name> = sample.processes.iter().map(|row| row.name).collect();
            let gone: Vec<Name> = self.tracks.keys().filter(|name| !there.contains(*name)).copied().collect();
            for name in gone {
                let track = self.tracks.remove(&name);
                self.gone.extend(track.map(|track| (name, (track.process, track.counted))));
            }
            bound(&mut self.gone, NAMES_MAX);
        }
    }

    fn pass_view(&mut self, view: &ViewRow, at: Instant) {
        match self.leases.back_mut().filter(|(_, lease)| *lease == view.lease) {
            Some((last, _)) => *last = at,
            None => self.leases.push_back((at, view.lease)),
        }
        while self.leases.front().is_some_and(|(last, _)| at.since(*last) > WINDOW) {
            self.leases.pop_front();
        }
        self.decided.known = self.decided.known.max(view.id);
        self.changes.entry(view.id).or_insert_with(|| view.changes.clone());
        let failed = view.changes.iter().filter_map(|change| match change {
            ChangeRow::Failed { who, .. } => {
                Some(Removal { dead: view.dead(*who), at: view.id, left: false })
            }
            _ => None,
        });
        let removal =
            |gone: &DepartedRow| Removal { dead: view.dead(gone.who), at: gone.at, left: gone.left };
        let departed = view.departed.iter().map(removal);
        self.departures.learn(view.id, failed.chain(departed));
        self.departures.learn_base(view.id, view.base);
        // Members that left before the first sample: there is no other source of their names.
        for gone in view.departed.iter().filter(|gone| gone.who != Incarnation::NONE) {
            self.names.entry(gone.who).or_insert(gone.name);
        }
    }

    fn pass_events(&mut self, sample: &Sample) {
        for named in &sample.names {
            self.names.entry(named.who).or_insert(named.name);
        }
        for event in &sample.events {
            if event.event == EventKind::Joined {
                self.names.insert(Incarnation(event.a), event.process);
            }
            if event.event == EventKind::Decide {
                self.decided.take(ViewId(event.a), event.at);
            }
            if event.event == EventKind::LeaseLost
                && let Some(track) = self.tracks.get_mut(&event.process)
            {
                track.lapse(event.at, sample.at);
            }
        }
        let seen: Vec<_> = sample.events.iter().map(EventRow::seen).collect();
        self.history.take(&seen);
        if self.events.capacity() == 0 && !sample.events.is_empty() {
            // Reserve the maximum, because growing would take twice as much.
            self.events.reserve_exact(EVENTS_MAX);
        }
        for event in &sample.events {
            if self.events.len() == EVENTS_MAX {
                self.events.pop_front();
                self.events_gone += 1;
            }
            self.events.push_back(*event);
        }
    }

    fn pass_marks(&mut self, marks: &[MarkRow]) {
        for mark in marks {
            if mark.rollout.is_some() {
                let began =
                    self.rollout.take().filter(|_| !mark.divides()).map_or(mark.at, |(began, _)| began);
                self.rollout = Some((began, mark.clone()));
            }
            if mark.is_progress() {
                continue;
            }
            if mark.divides() {
                self.windows.mark(mark.at);
                self.since = Since::default();
            }
            self.marks.push_back(mark.clone());
        }
        while self.marks.len() > MARKS_MAX {
            self.marks.pop_front();
        }
    }

    /// The name of an incarnation, without its number.
    pub fn name(&self, incarnation: Incarnation) -> Option<Name> {
        self.names.get(&incarnation).copied()
    }

    /// The name of an incarnation, with its number.
    pub fn who(&self, incarnation: Incarnation) -> String {
        match self.name(incarnation) {
            Some(name) => format!("{name} ({incarnation})"),
            None => format!("incarnation {incarnation}"),
        }
    }

    /// Who reported a death; `None` if no view that was seen says it.
    pub fn accuser(&self, dead: &failovers::Dead) -> Option<String> {
        (dead.accuser != Incarnation::NONE).then(|| self.who(dead.accuser))
    }

    /// Describes an event, with names for incarnations.
    pub fn describe(&self, event: &EventRow) -> String {
        event_text::describe(event.event, event.a, event.b, |n| self.who(Incarnation(n)))
    }

    /// All failovers of the kept events, oldest first.
    pub fn failovers(&self) -> Vec<Failover> {
        failovers::all(&self.events.iter().map(EventRow::seen), &self.departures)
    }

    /// The view changes whose decisions no event shows: flight recorders keep the newest events, and
    /// end with their processes. `None` if there are none.
    pub fn unread_views(&self) -> Option<UnreadViews> {
        let newest = self.decided.known.0;
        let seen = (self.decided.newest.len() as u64).saturating_add(self.decided.older);
        let missing = newest.saturating_sub(seen);
        (missing > 0).then_some(UnreadViews { missing, of: newest, first: self.decided.first })
    }

    /// The newest annotation of an operator, or the begin of a rollout.
    pub fn note(&self) -> Option<&MarkRow> {
        self.marks.iter().rev().find(|mark| mark.divides())
    }

    /// From when on the counts since the newest annotation are: later than it if there was no
    /// sample at its time.
    pub fn counted_since(&self) -> Option<Instant> {
        Some(self.note()?.at.max(self.began?))
    }

    /// How long leases were at least in the last minute, by its views.
    pub fn shortest_lease(&self) -> Option<Nanos> {
        self.leases.iter().map(|(_, lease)| *lease).min()
    }

    /// The lease duration of the newest view.
    pub fn lease(&self) -> Option<Nanos> {
        Some(self.sample.as_ref()?.view.as_ref()?.lease)
    }

    /// The status of a process.
    pub fn status(&self, row: &ProcessRow) -> Status {
        let Some(sample) = &self.sample else { return Status::Stale };
        let newest = sample.view.as_ref().map(|view| view.id);
        let holds = row.kind != Kind::Coordinator;
        match row.life {
            Life::Down => Status::Down,
            Life::Left => Status::Left,
            Life::Frozen => Status::Frozen,
            Life::Runs if row.seat != 0 && !sample.has_agent(row) => Status::NoAgent,
            Life::Runs if holds && row.lease.is_none() => Status::Stale,
            Life::Runs if row.hold_left(sample.at).is_some() => Status::OnHold,
            Life::Runs if row.incarnation == Incarnation::NONE => Status::Joining,
            Life::Runs if row.view != newest => Status::Behind,
            Life::Runs if holds && !row.active => Status::NoLease,
            Life::Runs => Status::Ok,
        }
    }
}

/// Counts since an annotation, over all lives of the processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Since([u64; SINCE.len()]);

/// The counters shown since an annotation, with their labels.
pub const SINCE: [(&str, Counter); 7] = [
    ("joined", Counter::Joins),
    ("left", Counter::Leaves),
    ("failed", Counter::Failures),
    ("late", Counter::RenewalsLate),
    ("renewals failed", Counter::RenewalsFailed),
    ("false suspicions", Counter::FalseSuspicions),
    ("takeovers", Counter::Takeovers),
];

impl Since {
    /// Adds the increase of a process's counters since its last sample.
    fn add(&mut self, before: Option<Counted>, row: &ProcessRow) {
        let before = before.filter(|(process, _)| row.process() == *process);
        for (at, (sum, (_, counter))) in self.0.iter_mut().zip(SINCE).enumerate() {
            let old = before.map_or(0, |(_, counted)| counted[at]);
            // A decreased count belongs to a new life.
            let new = row.counter(counter);
            *sum = sum.saturating_add(new.checked_sub(old).unwrap_or(new));
        }
    }

    /// Each with its label.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        SINCE.iter().map(|(name, _)| *name).zip(self.0)
    }
}

/// The status of a process, those that need attention first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, VariantArray)]
pub enum Status {
    /// Its process is dead.
    Down,
    /// It is stopped; its last data is still readable.
    Frozen,
    /// Its memory cannot be read consistently.
    Stale,
    /// It runs without an active lease.
    NoLease,
    /// Its agent does not run.
    NoAgent,
    /// It knows an older view than others.
    Behind,
    /// It is not a member, and its join waits because members of its name ended repeatedly.
    OnHold,
    /// It is not a member yet.
    Joining,
    /// No problem.
    Ok,
    /// It left on request.
    Left,
}

impl Status {
    /// A sign and a word, so that no colour is needed.
    pub const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Down => ("x", "down"),
            Self::Frozen => ("=", "frozen"),
            Self::Stale => ("?", "stale"),
            Self::NoLease => ("!", "no lease"),
            Self::NoAgent => ("!", "no agent"),
            Self::Behind => ("<", "behind"),
            Self::OnHold => ("~", "on hold"),
            Self::Joining => ("~", "joining"),
            Self::Ok => (" ", "ok"),
            Self::Left => ("-", "left"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn only_a_member_that_knows_the_newest_view_and_may_act_is_ok() {
        let of = |called: &str, change: &dyn Fn(&mut ProcessRow)| {
            let mut sample = samples::healthy(Instant(3_600_000_000_000));
            let row = sample.processes.iter_mut().find(|row| row.name.as_str() == called).expect("a row");
            change(row);
            let row = row.clone();
            let mut data = Data::default();
            data.take(Arc::new(sample));
            data.status(&row).words().1
        };
        for called in ["coord-1", "node-1", "app-1"] {
            assert_eq!(of(called, &|_| ()), "ok", "{called}");
            assert_eq!(of(called, &|row| row.life = Life::Down), "down");
            assert_eq!(of(called, &|row| row.life = Life::Left), "left");
            assert_eq!(of(called, &|row| row.life = Life::Frozen), "frozen");
            assert_eq!(of(called, &|row| row.incarnation = Incarnation::NONE), "joining");
            assert_eq!(of(called, &|row| row.view = Some(ViewId(5))), "behind");
            assert_eq!(of(called, &|row| row.view = None), "behind");
        }
        for called in ["node-1", "app-1"] {
            assert_eq!(of(called, &|row| row.active = false), "no lease");
            assert_eq!(of(called, &|row| row.lease = None), "stale");
            let held = |row: &mut ProcessRow| {
                (row.incarnation, row.held_until) = (Incarnation::NONE, Some(Instant(u64::MAX)));
            };
            assert_eq!(of(called, &held), "on hold");
        }
        assert_eq!(of("app-1", &|row| row.region = 99), "no agent");
    }
}
