//! Models of three replicas, with the codec and the adoption that ship. What they have in common: up
//! to three leaders with rising terms. The first one has a command, the others their blank entries.

mod grants;
mod views;

use crate::area::{Area, PLACES};
use crate::entry::{Entry, Kind};
use crate::mutants::{ActiveMutant, Mutant};
use crate::position::{Index, Offset, Point, Term};
use crate::takeover::{From, Memory, adopt};
use obol_fabric::{Address, Layout, Limits};

const REPLICAS: usize = 3;
const MAJORITY: usize = 2;
/// As many entries as three leaders can have.
const INDICES: usize = 3;
const LOG: u64 = 7;
/// The command; blank entries have the terms of their first writers.
const COMMAND: u64 = 100;

/// A place in a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Cell {
    #[default]
    Empty,
    Torn,
    Whole {
        term: u64,
        value: u64,
    },
}

impl Cell {
    /// Executes a WRITE, or a half of it; returns what is there then.
    fn write(&mut self, term: u64, value: u64, is_half: bool, mutant: ActiveMutant) -> Self {
        // What is there already gets another term, in one word.
        let is_present = matches!(*self, Self::Whole { value: there, .. } if there == value);
        let ends = is_half || is_present && !mutant.has(Mutant::RewriteInPlace);
        *self = if ends { Self::Whole { term, value } } else { Self::Torn };
        *self
    }
}

/// The rings of a replica, by writer.
type Rings = [[Cell; INDICES]; REPLICAS];

fn area() -> Area {
    let limits = Limits { slots: 8, proposers: 7, value_bytes: 1536, ..Limits::LEAST };
    Area::of(&Layout::new(limits).expect("in bounds")).expect("there is room")
}

/// The rings as bytes.
fn memory(area: Area, rings: &Rings) -> Memory {
    let mut bytes = vec![0; area.rings_bytes() as usize];
    for (place, ring) in rings.iter().enumerate() {
        for (n, cell) in ring.iter().enumerate() {
            let begin = area.ring_in_rings(place as u8).start;
            let at = Offset(n as u64 * Entry::bytes_of(8) as u64);
            let Cell::Whole { term, value } = *cell else { continue };
            let kind = if value == COMMAND { Kind::Command } else { Kind::Blank };
            let payload = value.to_le_bytes();
            let (index, term, commit) = (Index(n as u64 + 1), Term(term), Index(0));
            let (client, number) = (0, value);
            let mut entry = Vec::new();
            Entry { index, term, at, kind, commit, client, number, payload: &payload }
                .encode(LOG, &mut entry);
            bytes[begin + at.0 as usize..][..entry.len()].copy_from_slice(&entry);
        }
    }
    debug_assert!(usize::from(PLACES) >= REPLICAS);
    Memory::new(Address::default(), bytes, 0..PLACES, &[])
}

/// The log that a leader continues with, after what it has READ. The first one has number 0.
fn adopted(area: Area, leader: usize, read: &[Option<Rings>], mutant: ActiveMutant) -> Vec<u64> {
    let memories: Vec<Memory> = read.iter().flatten().map(|rings| memory(area, rings)).collect();
    let from = From { log: LOG, after: Point::default(), floor: Term(0), mutant };
    let records = adopt(area, from, &memories.iter().collect::<Vec<_>>());
    let mut log: Vec<u64> = records.iter().map(|record| record.number).collect();
    log.push(if leader == 0 { COMMAND } else { leader as u64 + 1 });
    log.truncate(INDICES);
    log
}

/// Entries on a majority, given how many the leader has written to each replica (a torn one may
/// follow).
fn replicated(written: [(usize, bool); REPLICAS]) -> usize {
    let mut written = written.map(|(written, _)| written);
    written.sort_unstable();
    written[REPLICAS - MAJORITY]
}
