//! What processes had counted and recorded when their memory got another owner.
//!
//! A new owner gets a new file, and the mapping of the old one stays readable. So whatever a process
//! wrote until its end is read, however soon its successor came. The memory of coordinators is kept for
//! their successors, which clear their own part of it; of them, the last poll is what is known.

use super::{News, Observer};
use crate::renewals::Renewals;
use obol_fabric::host::RegionInfo;
use obol_membership::Kind;

impl Observer {
    /// Renewals over all lives of the processes that were read since it was opened, those before the
    /// first look included.
    pub fn renewals(&self) -> Renewals {
        self.renewed.total()
    }

    /// Reads memory that is no longer of its owner for the last time.
    pub(super) fn read_the_ended(&mut self, infos: &[RegionInfo]) {
        let seats = self.cluster.layout().limits().seats;
        let Self { watched, renewed, past, load, .. } = self;
        for (number, watched) in watched.iter_mut() {
            let Some(kind) = watched.kind.filter(|kind| *kind != Kind::Coordinator) else { continue };
            if watched.is_current(*number, infos) {
                continue;
            }
            let region = watched.region.clone();
            let reader = region.reader();
            let Some(owner) = reader.seat(0).filter(|owner| owner.generation == watched.generation) else {
                continue;
            };
            renewed.note_owner(*number, owner.process, &reader.counters(0));
            // Only for callers that take events, or counts.
            if !watched.cursors.is_empty() {
                watched.events(reader, seats, kind, &mut past.events);
            }
            if let Some(spans) = past.spans.as_mut().filter(|_| watched.counted.is_some()) {
                spans.extend(watched.spans(*number, reader, load));
            }
        }
    }

    /// Moves what was read so into what is new.
    pub(super) fn take_past(&mut self, news: &mut News) {
        news.events.append(&mut self.past.events);
        if let (Some(spans), Some(past)) = (&mut news.spans, &mut self.past.spans) {
            spans.append(past);
        }
    }
}
