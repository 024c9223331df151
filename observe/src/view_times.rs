//! When views were decided.

use crate::calendar::{TwoClocks, unix_now};
use crate::timeline::note_views;
use crate::{ObservedEvent, Observer};
use obol_fabric::{Instant, ViewId};
use std::collections::BTreeMap;

/// Views whose times are kept.
const NOTED_MAX: usize = 4096;

/// When views were decided, by the flight recorders.
pub struct ViewTimes {
    recorders: Observer,
    /// The first that was noted of each.
    noted: BTreeMap<ViewId, Instant>,
    /// The newest view when this began.
    newest: ViewId,
}

impl ViewTimes {
    /// Those that `events`, the first of these recorders, tell. `newest` is the newest view now.
    pub fn new(recorders: Observer, events: &[ObservedEvent], newest: ViewId) -> Self {
        let mut times = Self { recorders, noted: BTreeMap::new(), newest };
        times.learn(events);
        times
    }

    fn learn(&mut self, events: &[ObservedEvent]) {
        note_views(&mut self.noted, events);
        while self.noted.len() > NOTED_MAX {
            self.noted.pop_first();
        }
    }

    /// When a view that has been read now was decided, in nanoseconds since 1970.
    pub fn of(&mut self, view: ViewId) -> Option<u64> {
        if view > self.newest {
            let events = self.recorders.events_here();
            self.learn(&events);
        }
        let clocks = TwoClocks::read();
        let noted = self.noted.get(&view).map(|at| clocks.unix(*at));
        // One that came meanwhile was decided just now.
        noted.or_else(|| (view > self.newest).then(unix_now))
    }

    /// The first view that was decided at this time or later; else the one after the newest. The newest is
    /// taken if it is not known when it was decided.
    pub fn first_since(&self, since: u64) -> ViewId {
        let since = TwoClocks::read().instant(since);
        let first = self.noted.iter().find(|(_, at)| **at >= since).map(|(view, _)| *view);
        let newest = self.newest;
        let next = if self.noted.contains_key(&newest) { newest.next() } else { newest };
        first.map_or(next, |first| first.min(next))
    }
}
