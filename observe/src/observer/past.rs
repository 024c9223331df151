//! What processes had counted and recorded when their memory got another owner, and which rows a later
//! life replaces.
//!
//! A new owner gets a new file, and the mapping of the old one stays readable. So whatever a process
//! wrote until its end is read, however soon its successor came. The memory of coordinators is kept for
//! their successors, which clear their own part of it; of them, the last poll is what is known.

use super::{News, Observer};
use crate::renewals::Renewals;
use crate::snapshot::Process;
use obol_fabric::host::RegionInfo;
use obol_membership::Kind;
use std::collections::{BTreeMap, HashSet};

impl Observer {
    /// Renewals over all lives of the processes that were read since it was opened, those before the
    /// first look included.
    pub fn renewals(&self) -> Renewals {
        self.renewed.total()
    }

    /// Reads memory once more when it gets another owner.
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

/// Drops entries that a later one replaces. A restarted program takes any free seat, and its agent
/// a new region; the old entry stays listed until it is reused, as does the seat of a live program
/// at a dead agent. Of each name, the running processes are kept, or else the last that ran.
/// Several entries of one process (`obol run` is one process for all lives of its program) cannot
/// be distinguished, and stay.
pub(super) fn forget_predecessors(processes: &mut Vec<Process>) {
    let agents: HashSet<u32> =
        processes.iter().filter(|p| p.seat == 0 && p.alive).map(|p| p.region).collect();
    let in_place = |p: &Process| p.alive && (p.seat == 0 || agents.contains(&p.region));
    let rank = |p: &Process| {
        let life = p.alive.then_some((p.incarnation, p.region, p.seat));
        (in_place(p), p.process.started, p.process.pid, life)
    };
    let mut newest = BTreeMap::new();
    for process in processes.iter() {
        let best = newest.entry((process.kind, process.name)).or_insert_with(|| rank(process));
        *best = rank(process).max(*best);
    }
    processes.retain(|p| in_place(p) || newest.get(&(p.kind, p.name)) == Some(&rank(p)));
}
