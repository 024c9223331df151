//! Time of the log, as a replica knows it. No wall clock is read: those of hosts differ, are set, and the
//! difference between two of them is not the time that has passed. A leader goes on from the newest time that
//! the log has, at the rate of its monotonic clock; followers note when they have seen that time, so that
//! a takeover takes nothing from it.

use crate::entry::Kind;
use crate::log::{Log, Record};
use crate::position::Index;
use crate::service::Service;
use obol_fabric::Instant;

pub(crate) const NANOS_PER_MS: u64 = 1_000_000;
/// The first time of a log, in ms: 0 stands for none.
const FIRST: u64 = 1;
/// Two monotonic clocks differ by less than this in rate.
const DRIFT_PPM: u64 = 200;

/// The newest time in the log, and when this replica has seen it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct LogTime {
    /// In ns since the log began.
    time: u64,
    /// `None` before it has seen any.
    at: Option<Instant>,
    /// The newest stamp that was noted, in ms.
    stamp: u64,
    /// Entries up to this one were looked at.
    seen: Index,
}

impl LogTime {
    /// The time now, in ms.
    pub(crate) const fn ms(&self, now: Instant) -> u64 {
        self.time.saturating_add(self.passed(now)) / NANOS_PER_MS
    }

    /// What has passed since, in ns.
    const fn passed(&self, now: Instant) -> u64 {
        match self.at {
            Some(at) => now.since(at).0,
            None => 0,
        }
    }

    /// There is a stamp, of now or earlier.
    pub(crate) fn note(&mut self, now: Instant, stamp: u64) {
        if stamp <= self.stamp {
            return;
        }
        // It may have been on the way for long, such as to a process that was frozen. What this replica
        // knows without it is not later than the leader's time, whatever their rates.
        let passed = self.passed(now);
        let slowly = passed - passed / 1_000_000 * DRIFT_PPM;
        self.time = self.time.saturating_add(slowly).max(stamp.saturating_mul(NANOS_PER_MS));
        (self.stamp, self.at) = (stamp, Some(now));
    }

    /// The same for the stamps that a log and a state have.
    pub(crate) fn look<S: Service>(&mut self, now: Instant, log: &Log, service: &S) {
        let last = log.end().index;
        if last != self.seen {
            let fresh = log.after(self.seen.min(last)).rev().find_map(stamp_of::<S>);
            self.seen = last;
            self.note(now, fresh.unwrap_or(0));
        }
        // Of a snapshot.
        self.note(now, service.time());
    }

    /// A successor begins with the newest stamp that it has found, if it knows of no later time.
    pub(crate) fn begin(&mut self, now: Instant, stamp: u64) {
        let stamp = stamp.max(FIRST);
        if self.at.is_none() || stamp > self.ms(now) {
            (self.time, self.at, self.stamp) = (stamp.saturating_mul(NANOS_PER_MS), Some(now), stamp);
        }
    }

    /// Time as the bug counts it: none has passed since the newest stamp.
    pub(crate) const fn frozen(self, now: Instant) -> Self {
        Self { time: self.stamp.saturating_mul(NANOS_PER_MS), at: Some(now), ..self }
    }

    /// Time as the bug counts it: that of this host's clock.
    pub(crate) const fn of_own_clock() -> Self {
        Self { time: 0, at: Some(Instant::ZERO), stamp: 0, seen: Index(0) }
    }
}

/// The time that a record was given. A configuration has one so that those who join know it, however long
/// there was no command.
pub(crate) fn stamp_of<S: Service>(record: &Record) -> Option<u64> {
    match record.kind {
        Kind::Command | Kind::Read => S::stamped(&record.payload),
        Kind::Config => Some(record.number).filter(|stamp| *stamp != 0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Instant {
        Instant(7_000_000_000 + ms * NANOS_PER_MS)
    }

    #[test]
    fn time_goes_on_from_the_newest_stamp_by_the_own_clock() {
        let mut time = LogTime::default();
        time.begin(at(0), 0);
        assert_eq!(time.ms(at(2)), FIRST + 2);
        time.note(at(0), 500);
        assert_eq!((time.ms(at(0)), time.ms(at(1)), time.ms(at(60_000))), (500, 501, 60_500));
        time.begin(at(60_000), 60_100);
        assert_eq!(time.ms(at(60_000)), 60_500, "a successor that has waited knows more than the log");
        time.begin(at(60_000), 70_000);
        assert_eq!(time.ms(at(60_001)), 70_001, "and no less than that");
    }

    #[test]
    fn a_stamp_that_was_on_the_way_for_long_takes_nothing_from_time() {
        let mut time = LogTime::default();
        time.note(at(0), 1_000);
        time.note(at(10_000), 1_001);
        // It was frozen meanwhile. By the slowest clock 2 ms less have passed.
        assert_eq!(time.ms(at(10_000)), 10_998);
        time.note(at(10_001), 10_500);
        assert_eq!(time.ms(at(10_001)), 10_998);
        time.note(at(10_002), 11_001);
        assert_eq!(time.ms(at(10_002)), 11_001);
    }

    #[test]
    fn a_fast_clock_of_a_follower_does_not_take_time_ahead_of_the_leader() {
        // 100 ppm fast, and one stamp a second for a day.
        let mut time = LogTime::default();
        for second in 1..86_400 {
            let now = Instant(at(0).0 + second * 1_000_100_000);
            time.note(now, second * 1000);
            assert_eq!(time.ms(now), second * 1000);
        }
    }
}
