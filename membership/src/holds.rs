//! Names whose members fail again and again, for instance programs that crash at their start, or that
//! leave and join again in a loop, or processes whose link comes and goes. Each join and each end is a
//! view that all others have to install. Joins of such a name are therefore delayed, twice as long
//! each time.
//!
//! Every process computes this from the views that it sees, so a new leader knows most of it.
//! Safety does not depend on it: a process that forgets admits a member sooner.

use crate::Config;
use crate::mutants::Mutant;
use crate::timing::Timing;
use crate::view::{Change, Reason, View};
use obol_fabric::{Incarnation, Instant, Name, Nanos};

/// The number of names kept for each way to end; of more, the one with the oldest end is dropped.
pub const NAMES_MAX: usize = 64;
/// How many graceful leaves are as much as one failure: a leave costs the others a view, a failure
/// costs them a failover as well.
const LEAVES_PER_FAILURE: u64 = 4;
/// How many suspicions of one name are free; they drain one per longest hold. Fewer than failures: each
/// costs the others the time of its detection, and who is suspected comes back by itself. In the long
/// run a name is thus excluded for suspicions once per longest hold.
pub const SUSPICIONS_FREE: u32 = 3;
/// A hold doubles at most this often, whatever its limit.
const DOUBLINGS_MAX: u32 = 32;

/// How many graceful leaves count as one failure. Without fences the others wait for a lease after
/// either.
pub const fn leaves_per_failure(timing: &Timing) -> u64 {
    if timing.fencing { LEAVES_PER_FAILURE } else { 1 }
}

/// How a member ended. Each is counted by itself: who is stopped and started after a series of crashes
/// does not wait longer because it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum End {
    Failed,
    Left,
    /// Its heartbeat stood still, or a link to it was down: it may be alive.
    Suspected,
}

impl End {
    /// How a change ended a member, and whom. One that went with its agent did not fail itself, nor
    /// leave.
    fn of(change: &Change, config: &Config) -> Option<(Incarnation, Self)> {
        match *change {
            Change::Failed {
                accused,
                reason: Reason::Deadbeat | Reason::Replaced | Reason::Progress,
                ..
            } => Some((accused, Self::Failed)),
            Change::Failed { accused, reason: Reason::Heartbeat | Reason::Timeout, .. } => {
                (!config.mutant.has(Mutant::HoldNoSuspects)).then_some((accused, Self::Suspected))
            }
            Change::Left(who) => (!config.mutant.has(Mutant::HoldNoLeavers)).then_some((who, Self::Left)),
            _ => None,
        }
    }

    /// How many such ends are free, and the time in which as many drain.
    const fn free(self, timing: &Timing) -> (u64, Nanos) {
        let burst = if timing.join_burst == 0 { 1 } else { timing.join_burst as u64 };
        match self {
            Self::Failed => (burst, timing.join_window),
            Self::Left => (burst.saturating_mul(leaves_per_failure(timing)), timing.join_window),
            Self::Suspected => {
                let free = SUSPICIONS_FREE as u64;
                (free, timing.join_hold_max.saturating_mul(free))
            }
        }
    }
}

/// A series of ends of one name in quick succession.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Series {
    name: Name,
    end: End,
    failures: u32,
    first: Instant,
    last: Instant,
    /// The level of a leaky bucket: each end adds one share of the window, and time drains it.
    level: Nanos,
    /// Ends above the limit; each doubles the hold.
    excess: u32,
    /// The last member that ended.
    who: Incarnation,
}

/// A delay of all joins of one name, and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The last member of this name that failed, left or was suspected.
    pub who: Incarnation,
    /// When it ends.
    pub until: Instant,
    pub length: Nanos,
    /// The number of members of this name that did.
    pub failures: u32,
    /// The time in which they did.
    pub within: Nanos,
}

/// A [`Hold`] as one word of the flight recorder:
/// `failures:12 | within in ms:20 | hold in us:32`.
const FAILURES_SHIFT: u32 = 52;
const WITHIN_SHIFT: u32 = 32;
const WITHIN_MASK: u64 = (1 << (FAILURES_SHIFT - WITHIN_SHIFT)) - 1;
const FAILURES_MAX: u64 = (1 << (64 - FAILURES_SHIFT)) - 1;

impl Hold {
    /// Encodes it as one word; values that do not fit saturate.
    pub fn word(&self) -> u64 {
        let length = (self.length.0 / 1_000).min(u64::from(u32::MAX));
        let within = (self.within.0 / 1_000_000).min(WITHIN_MASK);
        u64::from(self.failures).min(FAILURES_MAX) << FAILURES_SHIFT | within << WITHIN_SHIFT | length
    }

    /// Decodes such a word: the number of failures, the time that they took, and the hold.
    pub const fn of_word(word: u64) -> (u64, Nanos, Nanos) {
        let within = Nanos::from_millis(word >> WITHIN_SHIFT & WITHIN_MASK);
        (word >> FAILURES_SHIFT, within, Nanos::from_micros(word & u32::MAX as u64))
    }
}

/// Names that are on hold, or may be soon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct JoinHolds(Vec<Series>);

impl Series {
    fn length(&self, timing: &Timing) -> Nanos {
        match self.excess.checked_sub(1) {
            None => Nanos::ZERO,
            Some(doublings) => {
                timing.join_hold.saturating_mul(1 << doublings.min(DOUBLINGS_MAX)).min(timing.join_hold_max)
            }
        }
    }

    fn hold(&self, timing: &Timing) -> Hold {
        let length = self.length(timing);
        Hold {
            until: self.last + length,
            length,
            failures: self.failures,
            within: self.last.since(self.first),
            who: self.who,
        }
    }

    fn next_free_failure(&self, timing: &Timing, now: Instant) -> Instant {
        let (free, window) = self.end.free(timing);
        if self.excess > 0 {
            return self.last + window.saturating_add(self.length(timing)) + Nanos(1);
        }
        let room = window.saturating_sub(Nanos(window.0 / free));
        now.max(self.last + self.level.saturating_sub(room))
    }

    fn ended(&mut self, timing: &Timing, now: Instant) {
        let (free, window) = self.end.free(timing);
        let pause = now.since(self.last);
        if pause > window.saturating_add(self.length(timing)) {
            // It ran for long: the cause of the series is over.
            *self = Self { failures: 0, first: now, level: Nanos::ZERO, excess: 0, ..*self };
        }
        self.level = self.level.saturating_sub(pause).saturating_add(Nanos(window.0 / free));
        self.failures = self.failures.saturating_add(1);
        self.last = now;
        if self.excess > 0 || self.level > window {
            self.excess = self.excess.saturating_add(1);
        }
    }
}

impl JoinHolds {
    /// Learns what changed from one view to the next; returns the names that are on hold for it
    /// from now on.
    pub fn follow(&mut self, before: &View, view: &View, config: &Config, now: Instant) -> Vec<Hold> {
        let timing = &config.timing;
        let mut newly = Vec::new();
        if timing.join_hold == Nanos::ZERO || config.mutant.has(Mutant::HoldNoJoins) {
            return newly;
        }
        for (who, end) in view.changes.iter().filter_map(|change| End::of(change, config)) {
            let Some(member) = before.member(who) else { continue };
            let went_along = member.host != Incarnation::NONE && view.member(member.host).is_none();
            if end == End::Failed || !went_along {
                let mut series = self.ended(member.name, end, who, timing, now);
                if end == End::Suspected && config.mutant.has(Mutant::HoldAtOnce) {
                    series = self.hold_at_once(member.name);
                }
                newly.extend(Some(series.hold(timing)).filter(|hold| now < hold.until));
            }
        }
        newly
    }

    /// The planted bug: no suspicion of this name is free.
    fn hold_at_once(&mut self, name: Name) -> Series {
        let known = self.0.iter().position(|series| (series.name, series.end) == (name, End::Suspected));
        let series = &mut self.0[known.unwrap_or_default()];
        series.excess = series.excess.max(1);
        *series
    }

    /// Records a failed member.
    pub fn failed(&mut self, name: Name, who: Incarnation, timing: &Timing, now: Instant) {
        self.ended(name, End::Failed, who, timing, now);
    }

    fn ended(&mut self, name: Name, end: End, who: Incarnation, timing: &Timing, now: Instant) -> Series {
        let known = self.0.iter().position(|series| (series.name, series.end) == (name, end));
        let at = known.unwrap_or_else(|| {
            let alike = || (0..self.0.len()).filter(|at| self.0[*at].end == end);
            if alike().count() == NAMES_MAX
                && let Some(oldest) = alike().min_by_key(|at| self.0[*at].last)
            {
                self.0.swap_remove(oldest);
            }
            let (level, failures, excess) = (Nanos::ZERO, 0, 0);
            self.0.push(Series { name, end, failures, first: now, last: now, level, excess, who });
            assert!(self.0.iter().filter(|series| series.end == end).count() <= NAMES_MAX);
            self.0.len() - 1
        });
        self.0[at].who = who;
        self.0[at].ended(timing, now);
        self.0[at]
    }

    /// When a member of this name can next fail without a hold: for tools that kill members on
    /// purpose.
    pub fn next_free_failure(&self, name: Name, timing: &Timing, now: Instant) -> Instant {
        let known = self.0.iter().find(|series| (series.name, series.end) == (name, End::Failed));
        known
            .filter(|_| timing.join_hold > Nanos::ZERO)
            .map_or(now, |series| series.next_free_failure(timing, now))
    }

    /// How long a newcomer of this name still has to wait at `now`; zero if it need not.
    pub fn left(&self, name: Name, timing: &Timing, now: Instant) -> Nanos {
        self.hold(name, timing, now).map_or(Nanos::ZERO, |hold| hold.until.since(now))
    }

    /// Why joins of this name are on hold at `now`, if they are.
    #[must_use]
    pub fn hold(&self, name: Name, timing: &Timing, now: Instant) -> Option<Hold> {
        let named = self.0.iter().filter(|series| series.name == name);
        named.map(|series| series.hold(timing)).filter(|hold| now < hold.until).max_by_key(|hold| hold.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: u64 = 1_000_000;

    fn timing() -> Timing {
        Timing {
            fencing: true,
            join_burst: 4,
            join_window: Nanos(100 * MILLI),
            join_hold: Nanos(10 * MILLI),
            join_hold_max: Nanos(80 * MILLI),
            ..Timing::default()
        }
    }

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    fn length(of: &JoinHolds, who: &str, now: u64) -> Option<u64> {
        of.hold(name(who), &timing(), Instant(now * MILLI)).map(|hold| hold.length.0 / MILLI)
    }

    #[test]
    fn the_first_failures_are_free_and_each_further_one_doubles_the_hold_up_to_its_limit() {
        let mut names = JoinHolds::default();
        let mut holds = Vec::new();
        for at in 0..9 {
            names.failed(name("loop"), Incarnation(1), &timing(), Instant(at * MILLI));
            holds.push(length(&names, "loop", at));
        }
        assert_eq!(holds, [None, None, None, None, Some(10), Some(20), Some(40), Some(80), Some(80)]);
        assert_eq!(length(&names, "loop", 8 + 79), Some(80));
        assert_eq!(length(&names, "loop", 8 + 80), None, "then it may join");
        assert_eq!(length(&names, "other", 8), None);
        let hold = names.hold(name("loop"), &timing(), Instant(8 * MILLI)).expect("held");
        assert_eq!((hold.failures, hold.within), (9, Nanos(8 * MILLI)));
        assert_eq!(Hold::of_word(hold.word()), (9, Nanos(8 * MILLI), Nanos(80 * MILLI)));
    }

    #[test]
    fn a_name_that_fails_at_the_allowed_times_is_never_held() {
        let (mut names, mut now) = (JoinHolds::default(), Instant(0));
        let mut times = Vec::new();
        for _ in 0..100 {
            now = names.next_free_failure(name("drill"), &timing(), now);
            names.failed(name("drill"), Incarnation(1), &timing(), now);
            assert_eq!(names.hold(name("drill"), &timing(), now), None);
            times.push(now.0 / MILLI);
        }
        assert_eq!(times[..6], [0, 0, 0, 0, 25, 50], "four at once, and then as many as drain");
        assert_eq!(times[99], 25 * 96);
        for _ in 0..3 {
            names.failed(name("drill"), Incarnation(1), &timing(), now);
        }
        now = names.next_free_failure(name("drill"), &timing(), now);
        names.failed(name("drill"), Incarnation(1), &timing(), now);
        assert_eq!(
            names.hold(name("drill"), &timing(), now),
            None,
            "a hold is waited for, and a quiet window"
        );
    }

    #[test]
    fn a_hold_goes_on_doubling_after_holds_and_a_quiet_window_ends_it() {
        let mut names = JoinHolds::default();
        let mut now = 0;
        for _ in 0..5 {
            names.failed(name("loop"), Incarnation(1), &timing(), Instant(now * MILLI));
        }
        assert_eq!(length(&names, "loop", now), Some(10));
        now += 11;
        names.failed(name("loop"), Incarnation(1), &timing(), Instant(now * MILLI));
        assert_eq!(length(&names, "loop", now), Some(20));
        now += 121;
        names.failed(name("loop"), Incarnation(1), &timing(), Instant(now * MILLI));
        assert_eq!(length(&names, "loop", now), None);
    }

    /// Failures after pauses of this many microseconds, each as soon as a join is possible; returns
    /// their times.
    fn crashes(pauses: &[u64], to: u64) -> Vec<u64> {
        let (mut names, mut now, mut times) = (JoinHolds::default(), 0, Vec::new());
        for pause in pauses.iter().cycle() {
            now += pause * 1_000;
            if let Some(hold) = names.hold(name("loop"), &timing(), Instant(now)) {
                now = hold.until.0;
            }
            if now > to {
                break;
            }
            names.failed(name("loop"), Incarnation(1), &timing(), Instant(now));
            times.push(now);
        }
        times
    }

    proptest::proptest! {
        #[test]
        fn however_quickly_a_name_fails_it_does_so_seldom_in_the_end(
            pauses in proptest::collection::vec(1_u64..5_000, 1..20),
        ) {
            let times = crashes(&pauses, 10_000 * MILLI);
            // 4 and one for free, holds of 10, 20 and 40, then holds of 80.
            let late = times.iter().filter(|at| **at > 1_000 * MILLI).count();
            proptest::prop_assert!(late <= 9_000 / 80 + 1, "{late}");
            // With 5 ms between them nothing significant drains.
            let early = times.iter().filter(|at| **at <= 150 * MILLI).count();
            proptest::prop_assert!(early <= 5 + 2 + 3, "{early}");
        }

        #[test]
        fn a_hold_is_never_longer_than_its_limit_and_never_there_below_the_rate(
            pauses in proptest::collection::vec(0_u64..300_000, 1..60),
        ) {
            let (mut names, mut now) = (JoinHolds::default(), 0);
            let slow = pauses.iter().all(|pause| *pause >= 25_000);
            for pause in pauses {
                now += pause * 1_000;
                names.failed(name("loop"), Incarnation(1), &timing(), Instant(now));
                let hold = names.hold(name("loop"), &timing(), Instant(now));
                proptest::prop_assert!(!slow || hold.is_none());
                proptest::prop_assert!(hold.is_none_or(|hold| hold.length <= timing().join_hold_max));
            }
        }
    }

    fn leaves(names: &mut JoinHolds, at: u64) {
        names.ended(name("loop"), End::Left, Incarnation(1), &timing(), Instant(at * MILLI));
    }

    #[test]
    fn graceful_leaves_in_a_loop_are_held_as_failures_are_after_four_times_as_many() {
        let mut names = JoinHolds::default();
        let mut holds = Vec::new();
        for at in 0..21 {
            leaves(&mut names, at);
            holds.push(length(&names, "loop", at));
        }
        // The bucket has room for 16, and 18 ms drain nearly three of them.
        assert_eq!(holds[..18], [None; 18]);
        assert_eq!(holds[18..], [Some(10), Some(20), Some(40)], "{holds:?}");
    }

    #[test]
    fn without_fences_leaves_count_as_failures() {
        let timing = Timing { fencing: false, ..timing() };
        let mut names = JoinHolds::default();
        let mut held = |at| {
            let at = Instant(at * MILLI);
            names.ended(name("loop"), End::Left, Incarnation(1), &timing, at);
            names.hold(name("loop"), &timing, at).is_some()
        };
        assert_eq!([0, 1, 2, 3, 4].map(&mut held), [false, false, false, false, true]);
    }

    #[test]
    fn who_leaves_no_faster_than_the_window_allows_is_never_held() {
        let mut names = JoinHolds::default();
        for n in 0..400 {
            leaves(&mut names, 7 * n);
            assert_eq!(length(&names, "loop", 7 * n), None);
        }
    }

    #[test]
    fn who_leaves_after_a_series_of_crashes_waits_no_longer_for_it() {
        let mut names = JoinHolds::default();
        for _ in 0..6 {
            names.failed(name("loop"), Incarnation(1), &timing(), Instant(0));
        }
        assert_eq!(length(&names, "loop", 0), Some(20));
        leaves(&mut names, 19);
        assert_eq!(length(&names, "loop", 19), Some(20), "of the crashes, as before");
        assert_eq!(length(&names, "loop", 20), None);
    }

    fn suspected(names: &mut JoinHolds, at: u64) {
        names.ended(name("flap"), End::Suspected, Incarnation(1), &timing(), Instant(at * MILLI));
    }

    #[test]
    fn the_first_suspicions_are_free_and_further_ones_are_held_as_failures_are() {
        let mut names = JoinHolds::default();
        let mut holds = Vec::new();
        for at in 0..8 {
            suspected(&mut names, at);
            holds.push(length(&names, "flap", at));
        }
        assert_eq!(holds, [None, None, None, Some(10), Some(20), Some(40), Some(80), Some(80)]);
        // The bucket has drained after three of the longest holds, and the last hold is over.
        suspected(&mut names, 7 + 80 + 3 * 80);
        assert_eq!(length(&names, "flap", 7 + 80 + 3 * 80), Some(80));
        suspected(&mut names, 7 + 2 * (80 + 3 * 80) + 1);
        assert_eq!(length(&names, "flap", 7 + 2 * (80 + 3 * 80) + 1), None);
    }

    proptest::proptest! {
        #[test]
        fn who_is_suspected_once_per_longest_hold_is_never_held_and_nobody_more_often_than_that(
            pauses in proptest::collection::vec(0_u64..200, 1..60),
        ) {
            let (mut names, mut now, mut ends) = (JoinHolds::default(), 0, 0);
            let slow = pauses.iter().all(|pause| *pause >= 80);
            for pause in pauses {
                now += pause;
                let held = names.hold(name("flap"), &timing(), Instant(now * MILLI));
                proptest::prop_assert!(!slow || held.is_none());
                now = held.map_or(now, |hold| hold.until.0.div_ceil(MILLI));
                suspected(&mut names, now);
                ends += 1;
            }
            // Three are free, and each hold but the longest costs one more.
            proptest::prop_assert!(ends <= 3 + 1 + 3 + now / 80 + 1, "{ends} in {now} ms");
        }
    }

    #[test]
    fn many_names_that_leave_do_not_have_one_that_fails_forgotten() {
        let mut names = JoinHolds::default();
        for _ in 0..5 {
            names.failed(name("loop"), Incarnation(1), &timing(), Instant(0));
        }
        for n in 0..2 * NAMES_MAX {
            let other = name(&format!("app-{n}"));
            names.ended(other, End::Left, Incarnation(2), &timing(), Instant(1));
        }
        assert_eq!(names.0.len(), NAMES_MAX + 1);
        assert_eq!(length(&names, "loop", 1), Some(10));
    }

    #[test]
    fn of_too_many_names_the_oldest_is_forgotten() {
        let mut names = JoinHolds::default();
        for n in 0..=NAMES_MAX as u64 {
            for _ in 0..5 {
                names.failed(name(&format!("app-{n}")), Incarnation(1), &timing(), Instant(n * 1_000));
            }
        }
        assert_eq!(names.0.len(), NAMES_MAX);
        assert_eq!(length(&names, "app-0", 0), None);
        assert_eq!(length(&names, &format!("app-{NAMES_MAX}"), 0), Some(10));
    }
}
