//! Renewals of leases, over all lives of the processes.
//!
//! A process counts from zero in each life, and its memory gets another owner after its end. So a sum
//! over the processes of a snapshot is about those that are left, and not about the observed time.

use crate::Process;
use crate::figures::total;
use obol_fabric::host;
use obol_membership::metrics::Counter;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How often leases were renewed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewals {
    pub on_time: u64,
    /// After the time at which the next one was due.
    pub late: u64,
    /// Attempts without a majority of answers.
    pub failed: u64,
}

impl Renewals {
    /// Those that one process has counted, by all its counters.
    pub fn of(counters: &[u64]) -> Self {
        let of = |counter: Counter| counters.get(counter as usize).copied().unwrap_or(0);
        let [on_time, late, failed] =
            [Counter::RenewalsOnTime, Counter::RenewalsLate, Counter::RenewalsFailed].map(of);
        Self { on_time, late, failed }
    }

    const fn each(self) -> [u64; 3] {
        [self.on_time, self.late, self.failed]
    }

    fn with(self, other: Self, of: impl Fn(u64, u64) -> u64) -> Self {
        let ([a, b, c], [d, e, f]) = (self.each(), other.each());
        Self { on_time: of(a, d), late: of(b, e), failed: of(c, f) }
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        self.with(other, |a, b| total([a, b]))
    }

    /// What was counted since an earlier moment of the same sums.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        self.with(before, u64::saturating_sub)
    }

    /// Whether any of them is smaller than before, which happens only in another life.
    fn fell(self, before: Self) -> bool {
        self.each().iter().zip(before.each()).any(|(now, before)| *now < before)
    }
}

/// Sums over all lives of the processes that were seen.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    /// By region: its last owner, and what that has counted.
    newest: BTreeMap<u32, (host::Process, Renewals)>,
    /// Of all owners before those.
    ended: Renewals,
}

impl Lives {
    /// Notes what a process has counted. Programs in the seats of an agent renew no lease themselves.
    pub(crate) fn note(&mut self, process: &Process) {
        if process.seat == 0 && !process.is_missing() {
            self.note_owner(process.region, process.process, &process.counters);
        }
    }

    /// The same of the owner of a region.
    pub(crate) fn note_owner(&mut self, region: u32, owner: host::Process, counters: &[u64]) {
        let now = Renewals::of(counters);
        let before = self.newest.insert(region, (owner, now));
        if let Some((_, last)) = before.filter(|(known, last)| *known != owner || now.fell(*last)) {
            self.ended = self.ended.and(last);
        }
    }

    pub(crate) fn total(&self) -> Renewals {
        self.newest.values().fold(self.ended, |sum, (_, last)| sum.and(*last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric::Name;
    use obol_membership::Kind;

    fn counters(on_time: u64, late: u64) -> Vec<u64> {
        let mut counters = vec![0; Counter::ALL.len()];
        counters[Counter::RenewalsOnTime as usize] = on_time;
        counters[Counter::RenewalsLate as usize] = late;
        counters
    }

    #[test]
    fn sums_are_over_all_lives() {
        let mut lives = Lives::default();
        let [first, second] = [(1, 5), (2, 5)].map(|(pid, started)| host::Process { pid, started });
        lives.note_owner(8, first, &counters(10, 1));
        lives.note_owner(8, first, &counters(30, 1));
        lives.note_owner(9, second, &counters(4, 0));
        assert_eq!(lives.total(), Renewals { on_time: 34, late: 1, failed: 0 });
        // Another process has the memory, then the same one counts from zero again.
        lives.note_owner(8, second, &counters(100, 0));
        lives.note_owner(8, second, &counters(5, 0));
        assert_eq!(lives.total(), Renewals { on_time: 139, late: 1, failed: 0 });
        lives.note_owner(9, first, &counters(u64::MAX, 0));
        assert_eq!(lives.total().on_time, u64::MAX, "figures of others do not overflow");
    }

    #[test]
    fn a_missing_process_and_a_program_in_a_seat_renew_nothing() {
        let mut lives = Lives::default();
        let mut process = Process::missing(Name::new("node-1").expect("a name"), Kind::Agent);
        process.counters = counters(7, 0);
        lives.note(&process);
        process.process = host::Process { pid: 1, started: 1 };
        process.seat = 1;
        lives.note(&process);
        assert_eq!(lives.total(), Renewals::default());
        process.seat = 0;
        lives.note(&process);
        assert_eq!(lives.total().on_time, 7);
    }
}
