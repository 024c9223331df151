//! What follows from the samples seen so far: rates, ages, names, time lines. It depends on the
//! samples alone, in their order, so that a recording gives what the live console had.

use crate::event_text;
use crate::poll::sample::{ChangeRow, EventRow, Life, MarkRow, ProcessRow, Sample};
use crate::state::alerts;
use crate::state::store::Store;
use crate::state::windows::{WINDOW, Windows};
use obol_fabric::{Incarnation, Instant, Name, Nanos, ViewId};
use obol_membership::Kind;
use obol_membership::metrics::Counter;
use obol_membership::recorder::Kind as Event;
use obol_observe::failovers::{self, Failover};
use obol_observe::timeline::History;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

/// Events that are kept for the log.
pub(crate) const EVENTS_MAX: usize = 4096;
/// Members whose names are kept, also of those that are gone.
const NAMES_MAX: usize = 4096;
/// Marks that are kept.
const MARKS_MAX: usize = 256;
/// Views whose changes are kept.
const VIEWS_MAX: usize = 256;
/// Rates are over this time, or over what there is.
const RATE_OVER: Nanos = Nanos::from_secs(1);
/// One cell of a row's history, and how many there are.
pub(crate) const CELL: Nanos = Nanos::from_secs(5);
/// A minute.
pub(crate) const CELLS: usize = 12;

/// A life of a process, and what it had counted of [`SINCE`].
type Counted = ((u32, u64, u16), [u64; SINCE.len()]);

/// Renewals of a process at one moment.
#[derive(Clone, Copy, Debug)]
struct Point {
    at: Instant,
    counts: [u64; 3],
}

/// Counters whose rates are followed.
const RATED: [Counter; 3] = [Counter::RenewalsOnTime, Counter::RenewalsLate, Counter::RenewalsFailed];

/// One process over time.
#[derive(Clone, Debug)]
pub(crate) struct Track {
    /// Pid, start time and seat.
    process: (u32, u64, u16),
    incarnation: Incarnation,
    life: Life,
    heartbeat: u64,
    /// What it had counted when it was last seen, of [`SINCE`].
    counted: [u64; SINCE.len()],
    points: VecDeque<Point>,
    /// When the heartbeat was last seen to move.
    moved: Instant,
    /// When its memory was last read whole.
    read: Instant,
    /// Since when it is as it is; none if it was so before it was looked at.
    since: Option<Instant>,
    /// Renewals per second, one cell for each [`CELL`], newest last; a gap is no number.
    cells: VecDeque<f32>,
    cell: (u64, Point),
    /// The least margin and the slowest renewal of each [`CELL`] of a window, [`UNKNOWN`] where
    /// there was none.
    extremes: VecDeque<(Instant, Nanos, Nanos)>,
    /// What alerts look at, from when on: each change of the last minute, to [`CELL`], and what was
    /// before.
    past: VecDeque<(Instant, [u64; WATCHED.len()])>,
    /// The same when it was last seen.
    watched: [u64; WATCHED.len()],
}

/// Rows are many, and half as long without a word that says whether there is a value.
const UNKNOWN: Nanos = Nanos(u64::MAX);

/// Counters that alerts look at.
const WATCHED: [Counter; 4] =
    [Counter::RenewalsLate, Counter::RenewalsFailed, Counter::FalseSuspicions, Counter::DriftAlarms];

impl Track {
    /// One that is listed from now on; `is_first` says that there was no sample before. Who is found dead
    /// died at an unknown time.
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
            // Another life counts from zero: no rate spans the two.
            self.points.clear();
            self.extremes.clear();
            self.past = VecDeque::from([(at, [0; WATCHED.len()])]);
            self.moved = at;
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
            match self.extremes.back_mut().filter(|(then, ..)| then.0 / CELL.0 == cell) {
                Some((then, least, slowest)) => {
                    *then = at;
                    *least = row.least.map_or(*least, |new| new.min(*least));
                    *slowest = match row.slowest {
                        Some(new) if *slowest == UNKNOWN || new > *slowest => new,
                        _ => *slowest,
                    };
                }
                None => {
                    let [least, slowest] = [row.least, row.slowest].map(|span| span.unwrap_or(UNKNOWN));
                    self.extremes.push_back((at, least, slowest));
                }
            }
        }
        while self.extremes.front().is_some_and(|(then, ..)| at.since(*then) > WINDOW) {
            self.extremes.pop_front();
        }
        self.watched = WATCHED.map(|c| row.counter(c));
        // Mostly nothing is wrong, and nothing of this changes.
        let is_another = |(then, known): &(Instant, _)| *known != self.watched && at.since(*then) >= CELL;
        if self.past.back().is_none_or(is_another) {
            self.past.push_back((at, self.watched));
        }
        // The oldest is what was a minute ago.
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

    /// How many per second, of what the lease's renewals count; `None` before there are two samples
    /// of this life.
    pub(crate) fn rate(&self, counter: Counter) -> Option<f64> {
        let which = RATED.iter().position(|rated| *rated == counter)?;
        let (first, last) = (self.points.front()?, self.points.back()?);
        per_second(last.counts[which].checked_sub(first.counts[which])?, last.at.since(first.at))
    }

    /// How much a counter that alerts look at has grown in the last minute, to [`CELL`]; `None` for
    /// any other.
    pub(crate) fn in_minute(&self, counter: Counter) -> Option<u64> {
        let which = WATCHED.iter().position(|watched| *watched == counter)?;
        let (_, then) = self.past.front()?;
        self.watched[which].checked_sub(then[which])
    }

    /// How it was when it was last seen.
    pub(crate) const fn life(&self) -> Life {
        self.life
    }

    /// The least that was left of its lease in the last minute, at a renewal, or where it ran out.
    pub(crate) fn least(&self) -> Option<Nanos> {
        self.extremes.iter().map(|(_, least, _)| *least).filter(|least| *least != UNKNOWN).min()
    }

    /// The longest that a renewal of the last minute took.
    pub(crate) fn slowest(&self) -> Option<Nanos> {
        self.extremes.iter().map(|(.., slowest)| *slowest).filter(|slowest| *slowest != UNKNOWN).max()
    }

    /// How long its heartbeat has not been seen to move.
    pub(crate) fn still(&self, now: Instant) -> Nanos {
        now.since(self.moved)
    }

    /// How old the newest whole look at its lease page is.
    pub(crate) fn age(&self, now: Instant) -> Nanos {
        now.since(self.read)
    }

    /// For how long it has been as it is; none if that is not known.
    pub(crate) fn since(&self, now: Instant) -> Option<Nanos> {
        self.since.map(|since| now.since(since))
    }

    /// Takes that its lease ran out at `then`: at that moment nothing was left of it. Its renewals
    /// do not tell that.
    fn lapse(&mut self, then: Instant, now: Instant) {
        if now.since(then) > WINDOW {
            return;
        }
        let cell = |at: Instant| at.0 / CELL.0;
        let at = self.extremes.partition_point(|(of, ..)| cell(*of) < cell(then));
        match self.extremes.get_mut(at).filter(|(of, ..)| cell(*of) == cell(then)) {
            Some((_, least, _)) => *least = Nanos::ZERO,
            None => self.extremes.insert(at, (then, Nanos::ZERO, UNKNOWN)),
        }
    }

    /// Renewals per second over the last minute, oldest first.
    pub(crate) fn cells(&self) -> impl ExactSizeIterator<Item = Option<f64>> + '_ {
        self.cells.iter().map(|rate| (!rate.is_nan()).then(|| f64::from(*rate)))
    }
}

fn per_second(n: u64, span: Nanos) -> Option<f64> {
    (span > Nanos::ZERO).then(|| n as f64 * 1e9 / span.0 as f64)
}

/// Everything that is derived from the samples.
#[derive(Clone, Debug, Default)]
pub(crate) struct Data {
    /// The newest sample.
    pub(crate) sample: Option<Arc<Sample>>,
    /// Which cluster it is of, and its newest view.
    cluster: (Option<u64>, Option<ViewId>),
    /// Each process by its name.
    pub(crate) tracks: BTreeMap<Name, Box<Track>>,
    /// The newest events, oldest first.
    pub(crate) events: VecDeque<EventRow>,
    /// How many events there were before those.
    pub(crate) events_gone: u64,
    /// Distributions of durations.
    pub(crate) windows: Windows,
    /// What operators noted, oldest first.
    pub(crate) marks: VecDeque<MarkRow>,
    /// When the first sample was read.
    pub(crate) began: Option<Instant>,
    /// What happened since the newest note of a person.
    pub(crate) since: Since,
    /// What an operator is alerted of: the alert's name, and the clause.
    pub(crate) alerts: Vec<(&'static str, String)>,
    /// What processes had counted that are not listed now: one that is listed again goes on from
    /// there.
    gone: BTreeMap<Name, Counted>,
    /// Time lines of views.
    pub(crate) history: History,
    /// What the views that were seen changed.
    pub(crate) changes: BTreeMap<ViewId, Vec<ChangeRow>>,
    /// Who the incarnations are or were.
    names: BTreeMap<Incarnation, Name>,
}

impl Data {
    /// Takes the next sample.
    pub(crate) fn take(&mut self, sample: Arc<Sample>) {
        self.pass(&sample);
        self.sample = Some(sample);
        self.alerts = alerts::all(self);
    }

    /// Takes the samples of a store after `after` and not after `to`, of which only the last is
    /// looked at.
    pub(crate) fn take_from(&mut self, store: &Store, after: Option<Instant>, to: Instant) {
        if let Some(last) = store.show(after, to, |sample| self.pass(sample)) {
            self.sample = Some(last);
            self.alerts = alerts::all(self);
        }
    }

    /// Whether a sample is of another cluster of this name. Samples of older writers do not say so:
    /// then it is another one if its views begin anew and none of its processes is known.
    pub(crate) fn is_of_another_cluster(&self, sample: &Sample) -> bool {
        let (id, view) = self.cluster;
        if id.zip(sample.cluster_id).is_some_and(|(known, now)| known != now) {
            return true;
        }
        let began_anew = view.zip(sample.view.as_ref()).is_some_and(|(known, now)| now.id < known);
        let is_known =
            |row: &ProcessRow| self.tracks.get(&row.name).is_some_and(|track| track.process == row.process());
        began_anew && !sample.processes.iter().any(is_known)
    }

    /// Takes what follows from a sample, but for what is wrong. Incarnations and views of another
    /// cluster begin anew, so nothing is kept of the one before it.
    fn pass(&mut self, sample: &Sample) {
        if self.is_of_another_cluster(sample) {
            *self = Self::default();
        }
        self.cluster = (sample.cluster_id, sample.view.as_ref().map(|view| view.id));
        self.pass_marks(&sample.marks);
        let is_first = self.began.is_none();
        for row in &sample.processes {
            let track = self.tracks.get_mut(&row.name);
            if !is_first {
                let listed = track.as_deref().map(|track| (track.process, track.counted));
                self.since.add(listed.or_else(|| self.gone.remove(&row.name)), row);
            }
            // A name is new with its process, and else known.
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
            while self.gone.len() > NAMES_MAX {
                self.gone.pop_first();
            }
        }
        if let Some(view) = &sample.view {
            self.changes.entry(view.id).or_insert_with(|| view.changes.clone());
            // Whoever went before the first sample: there is no other source for their names.
            for gone in view.departed.iter().filter(|gone| gone.who != Incarnation::NONE) {
                self.names.entry(gone.who).or_insert(gone.name);
            }
        }
        self.windows.take(sample.at, &sample.spans);
        for event in &sample.events {
            if event.event == Event::Joined {
                self.names.insert(Incarnation(event.a), event.process);
            }
            if event.event == Event::LeaseLost
                && let Some(track) = self.tracks.get_mut(&event.process)
            {
                track.lapse(event.at, sample.at);
            }
        }
        let seen: Vec<_> = sample.events.iter().map(EventRow::seen).collect();
        self.history.take(&seen);
        if self.events.capacity() == 0 && !sample.events.is_empty() {
            // As many as there ever are: growing would take twice as much.
            self.events.reserve_exact(EVENTS_MAX);
        }
        for event in &sample.events {
            if self.events.len() == EVENTS_MAX {
                self.events.pop_front();
                self.events_gone += 1;
            }
            self.events.push_back(*event);
        }
        while self.names.len() > NAMES_MAX {
            self.names.pop_first();
        }
        while self.changes.len() > VIEWS_MAX {
            self.changes.pop_first();
        }
        self.began.get_or_insert(sample.at);
    }

    fn pass_marks(&mut self, marks: &[MarkRow]) {
        for mark in marks {
            if mark.drill.is_none() {
                self.windows.mark(mark.at);
                self.since = Since::default();
            }
            self.marks.push_back(mark.clone());
        }
        while self.marks.len() > MARKS_MAX {
            self.marks.pop_front();
        }
    }

    /// What operators call an incarnation.
    pub(crate) fn who(&self, incarnation: Incarnation) -> String {
        match self.names.get(&incarnation) {
            Some(name) => format!("{name} ({incarnation})"),
            None => format!("incarnation {incarnation}"),
        }
    }

    /// What an event says, with names for incarnations.
    pub(crate) fn describe(&self, event: &EventRow) -> String {
        event_text::describe(event.event, event.a, event.b, |n| self.who(Incarnation(n)))
    }

    /// All failovers of the events that are kept, oldest first.
    pub(crate) fn failovers(&self) -> Vec<Failover> {
        failovers::all(&self.events.iter().map(EventRow::seen))
    }

    /// The newest note of a person.
    pub(crate) fn note(&self) -> Option<&MarkRow> {
        self.marks.iter().rev().find(|mark| mark.drill.is_none())
    }

    /// Since when is counted what came after the newest note: later than the note, if nothing was
    /// read at the time.
    pub(crate) fn counted_since(&self) -> Option<Instant> {
        Some(self.note()?.at.max(self.began?))
    }

    /// How long leases are, by the newest view.
    pub(crate) fn lease(&self) -> Option<Nanos> {
        Some(self.sample.as_ref()?.view.as_ref()?.lease)
    }

    /// How a process stands.
    pub(crate) fn status(&self, row: &ProcessRow) -> Status {
        let Some(sample) = &self.sample else { return Status::Stale };
        let newest = sample.view.as_ref().map(|view| view.id);
        let holds = row.kind != Kind::Coordinator;
        match row.life {
            Life::Down => Status::Down,
            Life::Left => Status::Left,
            Life::Frozen => Status::Frozen,
            Life::Runs if row.seat != 0 && !sample.has_agent(row) => Status::NoAgent,
            Life::Runs if holds && row.lease.is_none() => Status::Stale,
            Life::Runs if row.held_back(sample.at).is_some() => Status::HeldBack,
            Life::Runs if row.incarnation == Incarnation::NONE => Status::Joining,
            Life::Runs if row.view != newest => Status::Behind,
            Life::Runs if holds && !row.active => Status::NoLease,
            Life::Runs => Status::Ok,
        }
    }
}

/// What the processes counted since a note, over all of their lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Since([u64; SINCE.len()]);

/// What is told of the time since a note, and how.
pub(crate) const SINCE: [(&str, Counter); 7] = [
    ("joined", Counter::Joins),
    ("left", Counter::Leaves),
    ("failed", Counter::Failures),
    ("late", Counter::RenewalsLate),
    ("renewals failed", Counter::RenewalsFailed),
    ("false suspicions", Counter::FalseSuspicions),
    ("takeovers", Counter::Takeovers),
];

impl Since {
    /// Adds what a process counted since it was last seen.
    fn add(&mut self, before: Option<Counted>, row: &ProcessRow) {
        let before = before.filter(|(process, _)| row.process() == *process);
        for (at, (sum, (_, counter))) in self.0.iter_mut().zip(SINCE).enumerate() {
            let old = before.map_or(0, |(_, counted)| counted[at]);
            // A count that fell is of another life.
            let new = row.counter(counter);
            *sum = sum.saturating_add(new.checked_sub(old).unwrap_or(new));
        }
    }

    /// Each with its name.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        SINCE.iter().map(|(name, _)| *name).zip(self.0)
    }
}

/// How a process stands, from what needs attention to what is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Status {
    /// Its process is dead.
    Down,
    /// It is stopped; what it last wrote is still read.
    Frozen,
    /// Its memory can not be read whole.
    Stale,
    /// It runs and acts under no lease.
    NoLease,
    /// It runs at an agent that does not.
    NoAgent,
    /// It knows an older view than others.
    Behind,
    /// It is no member, and its join waits because programs of its name died again and again.
    HeldBack,
    /// It is no member yet.
    Joining,
    /// As it should be.
    Ok,
    /// It left as it was asked to.
    Left,
}

impl Status {
    /// A sign and a word, so that no colour is needed.
    pub(crate) const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Down => ("x", "down"),
            Self::Frozen => ("=", "frozen"),
            Self::Stale => ("?", "stale"),
            Self::NoLease => ("!", "no lease"),
            Self::NoAgent => ("!", "no agent"),
            Self::Behind => ("<", "behind"),
            Self::HeldBack => ("~", "held back"),
            Self::Joining => ("~", "joining"),
            Self::Ok => (" ", "ok"),
            Self::Left => ("-", "left"),
        }
    }
}
