//! Compact storage of samples' rows. Constant data of a process is shared between samples; the rest
//! are numbers, stored as differences to the previous sample, most of which are zero.
//!
//! Differences are additive: a sample is dropped by adding its differences to those of the next
//! one.
//! ```text
//! row      life, incarnation, view, lease (5), heartbeat, least, slowest, accepted (2), prepared (2), held, counters ...
//! sample   the numbers of all rows in sequence; for each that differs: the number of zeros before it, and the difference
//! ```

use obol_fabric::{Incarnation, Instant, Name, Nanos, ViewId};
use obol_membership::Kind;
use obol_membership::consensus::{Ballot, Head};
use obol_observe::sampling::sample::{LeaseRow, Life, ProcessRow};
use std::collections::BTreeMap;

/// Data of a row that is constant for its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    name: Name,
    kind: Kind,
    pid: u32,
    started: u64,
    region: u32,
    seat: u16,
    counters: usize,
    /// The row of the process whose lease page it reads, if it is another's.
    agent: Option<usize>,
}

/// Numbers of a row before its counters.
const FIXED: usize = 16;
/// The numbers that an app shares with its agent.
const LEASE: std::ops::Range<usize> = 3..8;

/// The identities of all rows.
pub(super) fn identities(rows: &[ProcessRow]) -> Box<[Identity]> {
    let owners: BTreeMap<u32, usize> =
        rows.iter().enumerate().filter(|(_, row)| row.seat == 0).map(|(at, row)| (row.region, at)).collect();
    let each = rows.iter().map(|row| Identity {
        name: row.name,
        kind: row.kind,
        pid: row.pid,
        started: row.started,
        region: row.region,
        seat: row.seat,
        counters: row.counters.len(),
        agent: (row.seat != 0).then(|| owners.get(&row.region).copied()).flatten(),
    });
    each.collect()
}

/// Whether these rows have these identities.
pub(super) fn are(identities: &[Identity], rows: &[ProcessRow]) -> bool {
    let same = |(one, row): (&Identity, &ProcessRow)| {
        one.name == row.name
            && (one.pid, one.started, one.region, one.seat) == (row.pid, row.started, row.region, row.seat)
            && (one.kind, one.counters) == (row.kind, row.counters.len())
    };
    identities.len() == rows.len() && identities.iter().zip(rows).all(same)
}

/// The numbers of a row before its counters. Zero stands for the usual value, or none.
fn fixed(row: &ProcessRow) -> [u64; FIXED] {
    let life = match row.life {
        Life::Runs => 0,
        Life::Frozen => 1,
        Life::Down => 2,
        Life::Left => 3,
    };
    let some = |value: Option<u64>| value.map_or(0, |value| value.wrapping_add(1));
    let ballot = |ballot: Option<Ballot>| {
        let some =
            |row: Ballot| [row.slot.0.wrapping_add(1), u64::from(row.number) << 16 | u64::from(row.proposer)];
        ballot.map_or([0; 2], some)
    };
    let acceptor = row.acceptor.as_deref();
    let [accepted, accepted_by] = ballot(acceptor.and_then(|acceptor| acceptor.accepted));
    let [prepared, prepared_by] = ballot(acceptor.and_then(|acceptor| acceptor.prepared));
    let [view, base, start, length, fence] = row.lease.map_or([0; 5], |lease| {
        let LeaseRow { view, base, start, end, fence } = lease;
        [view.0.wrapping_add(1), base.0, start.0, end.0, fence.0]
    });
    [
        life | u64::from(row.active) << 2,
        row.incarnation.0,
        some(row.view.map(|view| view.0)),
        view,
        base,
        start,
        length,
        fence,
        row.heartbeat,
        some(row.least.map(|least| least.0)),
        some(row.slowest.map(|slowest| slowest.0)),
        accepted,
        accepted_by,
        prepared,
        prepared_by,
        some(row.held_until.map(|until| until.0)),
    ]
}

/// The inverse of [`fixed`], with the counters.
fn row(of: &Identity, fixed: &[u64; FIXED], counters: Vec<u64>) -> ProcessRow {
    let [
        life,
        incarnation,
        view,
        lease,
        base,
        start,
        end,
        fence,
        heartbeat,
        least,
        slowest,
        ballots @ ..,
        held,
    ] = *fixed;
    let some = |value: u64| (value > 0).then(|| value.wrapping_sub(1));
    let ballot = |slot: u64, by: u64| {
        let (number, proposer) = ((by >> 16) as u16, by as u16);
        some(slot).map(|slot| Ballot { slot: ViewId(slot), number, proposer })
    };
    let [accepted, accepted_by, prepared, prepared_by] = ballots;
    let acceptor = Head { accepted: ballot(accepted, accepted_by), prepared: ballot(prepared, prepared_by) };
    ProcessRow {
        name: of.name,
        kind: of.kind,
        pid: of.pid,
        started: of.started,
        region: of.region,
        seat: of.seat,
        life: match life & 3 {
            0 => Life::Runs,
            1 => Life::Frozen,
            2 => Life::Down,
            _ => Life::Left,
        },
        incarnation: Incarnation(incarnation),
        view: some(view).map(ViewId),
        lease: some(lease).map(|view| LeaseRow {
            view: ViewId(view),
            base: ViewId(base),
            start: Instant(start),
            end: Instant(end),
            fence: ViewId(fence),
        }),
        active: life & 4 != 0,
        held_until: some(held).map(Instant),
        heartbeat,
        acceptor: (ballots != [0; 4]).then(|| Box::new(acceptor)),
        least: some(least).map(Nanos),
        slowest: some(slowest).map(Nanos),
        counters,
    }
}

/// Writes differences: number of zeros, then a value.
#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
    zeros: u64,
}

impl Writer {
    fn put(&mut self, difference: u64) {
        if difference == 0 {
            self.zeros += 1;
            return;
        }
        self.varint(self.zeros);
        // Zigzag: small values of either sign are short.
        self.varint((difference << 1) ^ ((difference as i64 >> 63) as u64));
        self.zeros = 0;
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

/// Reads differences: index and value.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        let mut shift = 0;
        loop {
            let (byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
            shift += 7;
        }
    }
}

impl Iterator for Reader<'_> {
    type Item = (usize, u64);

    fn next(&mut self) -> Option<(usize, u64)> {
        let place = self.at + usize::try_from(self.varint()?).ok()?;
        let coded = self.varint()?;
        self.at = place + 1;
        Some((place, (coded >> 1) ^ 0u64.wrapping_sub(coded & 1)))
    }
}

/// The numbers of row `at` before its counters, an app's lease relative to its agent's.
fn relative(identities: &[Identity], rows: &[ProcessRow], at: usize) -> [u64; FIXED] {
    let mut own = fixed(&rows[at]);
    if let Some(agent) = identities[at].agent {
        let agents = fixed(&rows[agent]);
        LEASE.for_each(|n| own[n] = own[n].wrapping_sub(agents[n]));
    }
    own
}

/// Packs rows of these identities, relative to others of the same identities, or to zero.
pub(super) fn pack(identities: &[Identity], before: Option<&[ProcessRow]>, rows: &[ProcessRow]) -> Box<[u8]> {
    let mut out = Writer::default();
    for at in 0..rows.len() {
        let new = relative(identities, rows, at);
        let old = before.map_or([0; FIXED], |before| relative(identities, before, at));
        new.iter().zip(old).for_each(|(new, old)| out.put(new.wrapping_sub(old)));
        let new = &rows[at].counters;
        match before {
            Some(before) => {
                let old = &before[at].counters;
                new.iter().zip(old).for_each(|(new, old)| out.put(new.wrapping_sub(*old)));
            }
            None => new.iter().for_each(|new| out.put(*new)),
        }
    }
    out.bytes.into_boxed_slice()
}

/// Combines the differences of two steps.
pub(super) fn merge(first: &[u8], second: &[u8]) -> Box<[u8]> {
    let (mut first, mut second) = (Reader::new(first).peekable(), Reader::new(second).peekable());
    let mut out = Writer::default();
    let mut written = 0;
    loop {
        let place = |next: Option<&(usize, u64)>| next.map_or(usize::MAX, |(place, _)| *place);
        let at = place(first.peek()).min(place(second.peek()));
        if at == usize::MAX {
            return out.bytes.into_boxed_slice();
        }
        let of = |from: &mut std::iter::Peekable<Reader<'_>>| {
            from.next_if(|(place, _)| *place == at).map_or(0, |(_, difference)| difference)
        };
        let sum = of(&mut first).wrapping_add(of(&mut second));
        out.zeros += (at - written) as u64;
        out.put(sum);
        written = at + 1;
    }
}

/// The numbers of a sample's rows, to which the next sample is relative.
#[derive(Default)]
pub(super) struct Numbers(Vec<u64>);

impl Numbers {
    /// Advances to the next sample; from zero if `from_zero`.
    pub(super) fn add(&mut self, identities: &[Identity], from_zero: bool, packed: &[u8]) {
        if from_zero {
            self.0.clear();
            self.0.resize(identities.iter().map(|one| FIXED + one.counters).sum::<usize>(), 0);
        }
        for (place, difference) in Reader::new(packed) {
            if let Some(number) = self.0.get_mut(place) {
                *number = number.wrapping_add(difference);
            }
        }
    }

    pub(super) fn rows(&self, identities: &[Identity]) -> Vec<ProcessRow> {
        let mut rows = Vec::with_capacity(identities.len());
        self.write(identities, &mut rows);
        rows
    }

    /// Writes the rows into existing memory.
    pub(super) fn write(&self, identities: &[Identity], rows: &mut Vec<ProcessRow>) {
        let mut starts = Vec::with_capacity(identities.len());
        let mut next = 0;
        for one in identities {
            starts.push(next);
            next += FIXED + one.counters;
        }
        let fixed = |at: usize| -> [u64; FIXED] { std::array::from_fn(|n| self.0[starts[at] + n]) };
        rows.truncate(identities.len());
        for (at, one) in identities.iter().enumerate() {
            let mut own = fixed(at);
            if let Some(agent) = one.agent {
                let agents = fixed(agent);
                LEASE.for_each(|n| own[n] = own[n].wrapping_add(agents[n]));
            }
            let numbers = &self.0[starts[at] + FIXED..starts[at] + FIXED + one.counters];
            match rows.get_mut(at) {
                Some(place) => {
                    let mut counters = std::mem::take(&mut place.counters);
                    counters.clear();
                    counters.extend_from_slice(numbers);
                    *place = row(one, &own, counters);
                }
                None => rows.push(row(one, &own, numbers.to_vec())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn rows(at: u64) -> Vec<ProcessRow> {
        let mut sample = if at.is_multiple_of(3) {
            samples::degraded(Instant(at * 250_000_000 + 1_000_000))
        } else {
            samples::healthy(Instant(at * 250_000_000))
        };
        sample.processes[4].counters[2] = u64::MAX - at;
        sample.processes[5].least = None;
        sample.processes[6].held_until = (at % 2 == 1).then_some(Instant(at));
        sample.processes
    }

    #[test]
    fn rows_are_restored_from_their_differences() {
        let names = identities(&rows(0));
        let mut numbers = Numbers::default();
        for at in 0..10 {
            let before = (at > 0).then(|| rows(at - 1));
            assert!(are(&names, &rows(at)));
            let packed = pack(&names, before.as_deref(), &rows(at));
            numbers.add(&names, at == 0, &packed);
            assert_eq!(numbers.rows(&names), rows(at));
        }
    }

    #[test]
    fn differences_add_up() {
        let names = identities(&rows(0));
        let one = pack(&names, None, &rows(1));
        let two = pack(&names, Some(&rows(1)), &rows(6));
        let both = merge(&one, &two);
        assert_eq!(both, pack(&names, None, &rows(6)));
        assert!(merge(&two, &pack(&names, Some(&rows(6)), &rows(1))).is_empty(), "there and back");
    }

    #[test]
    fn another_life_is_another_identity() {
        let names = identities(&rows(0));
        let mut other = rows(0);
        other[3].pid += 1;
        assert!(!are(&names, &other) && !are(&names, &rows(0)[1..]));
    }
}
