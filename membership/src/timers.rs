//! When a machine has to act without an event, as in quinn-proto's `connection/timer.rs`: a table
//! with one entry per reason.

use obol_fabric::Instant;

macro_rules! timers {
    ($($(#[$doc:meta])* $timer:ident,)+) => {
        /// A reason to act at some time.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Timer { $($(#[$doc])* $timer,)+ }

        const COUNT: usize = [$(Timer::$timer),+].len();
    };
}

timers! {
    /// The next poll of the acceptors, or renewal.
    Poll,
    /// The timeout of pending READs.
    PollTimeout,
    /// A join or leave request is sent again.
    Join,
    /// A coordinator that waits for admission leads without it.
    LeadAlone,
    /// A detector's next probe, heartbeat or report.
    Detectors,
    /// Reports of broken links are judged again.
    Cliques,
    /// A suspicion ends unless it is repeated.
    Suspicions,
    /// A death notice is sent again.
    Notices,
    /// Another member's clock is requested.
    Drift,
    /// An aborted proposal is tried again.
    Retry,
    /// Joins alone may be decided.
    Joins,
    /// A missing coordinator may be replaced.
    Replace,
    /// A holder's wait has elapsed, or caches are late.
    Clearing,
    /// A view whose announcement is deferred until its CLEAR is announced without it.
    Announce,
    /// Leases that had grown shrink.
    LeaseScale,
    /// The lease page becomes active, or its lease expires.
    Activity,
    /// A request of an attached app is sent again.
    Apps,
    /// The timeout of a lease cache's answer.
    CacheTimeout,
    /// The report to the leader on raised fences.
    FanOut,
}

/// The timers of one machine; all are stopped at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Timers([Instant; COUNT]);

impl Default for Timers {
    fn default() -> Self {
        Self([Instant::NEVER; COUNT])
    }
}

impl Timers {
    /// Sets a timer, replacing its earlier time.
    pub(crate) const fn set(&mut self, timer: Timer, at: Instant) {
        self.0[timer as usize] = at;
    }

    /// Sets a timer unless it expires earlier anyway.
    pub(crate) fn set_by(&mut self, timer: Timer, at: Instant) {
        self.set(timer, self.at(timer).min(at));
    }

    pub(crate) const fn stop(&mut self, timer: Timer) {
        self.set(timer, Instant::NEVER);
    }

    /// When a timer expires; never if it is stopped.
    pub(crate) const fn at(&self, timer: Timer) -> Instant {
        self.0[timer as usize]
    }

    pub(crate) fn is_set(&self, timer: Timer) -> bool {
        self.at(timer) != Instant::NEVER
    }

    pub(crate) fn is_due(&self, timer: Timer, now: Instant) -> bool {
        self.at(timer) <= now
    }

    /// When the next timer expires.
    pub(crate) fn next(&self) -> Instant {
        self.0.iter().fold(Instant::NEVER, |next, at| next.min(*at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_timer_that_is_not_stopped_is_next() {
        let mut timers = Timers::default();
        assert_eq!(timers.next(), Instant::NEVER);
        timers.set(Timer::Join, Instant(7));
        timers.set(Timer::Poll, Instant(9));
        timers.set_by(Timer::Poll, Instant(8));
        assert_eq!((timers.next(), timers.at(Timer::Poll)), (Instant(7), Instant(8)));
        timers.stop(Timer::Join);
        assert!(!timers.is_set(Timer::Join) && !timers.is_due(Timer::Join, Instant(100)));
        assert!(timers.is_due(Timer::Poll, Instant(8)) && !timers.is_due(Timer::Poll, Instant(7)));
        assert_eq!(timers.next(), Instant(8));
    }
}
