//! When a replica polls and works next: what makes it idle, and its pauses.

use super::{Replica, Role};
use crate::preset::{Detector, Guard};
use crate::service::{Service, sort_freed};
use obol_fabric::{Instant, Nanos};

/// Interval of the steps of work that its service has put off. Without a pause, the replicas of a host
/// that all drop their keys keep the cores from leaders and clients.
const WORK_EVERY: Nanos = Nanos::from_micros(250);

/// How often a replica looks into its memory, and how long it waits for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pace {
    /// Poll interval while something is expected; zero keeps a core busy.
    pub poll_every: Nanos,
    /// Poll interval while nothing is: a process that needs a look sooner sends a wakeup, which may be lost.
    pub idle_every: Nanos,
    /// How long a replica that sends no chunk of a snapshot may take before another one is asked.
    pub patience: Nanos,
    /// How often a detector that reads the memory of others does so, at most.
    pub look_every: Nanos,
}

impl<S: Service, D: Detector, G: Guard> Replica<S, D, G> {
    /// Does a step of the work that its service has put off, if one is due. Returns when the next one is.
    pub(super) fn work(&mut self, now: Instant) -> Instant {
        if now < self.work_at {
            return self.work_at;
        }
        let was_left = self.work_at != Instant::ZERO;
        let is_left = self.replicated.state.service.work();
        if is_left || was_left {
            sort_freed();
        }
        self.work_at = if is_left { now + WORK_EVERY } else { Instant::ZERO };
        if is_left { self.work_at } else { Instant::NEVER }
    }

    pub(super) fn interval(&self, now: Instant) -> Nanos {
        let Pace { poll_every, idle_every, .. } = self.pace;
        if !self.is_idle(now) {
            return poll_every;
        }
        // Others look whether its counter has gone on, or for its heartbeats.
        let idle_every =
            if D::OF_VIEWS { idle_every } else { idle_every.min(Nanos(self.look_every().0 / 2)) };
        idle_every.max(poll_every)
    }

    /// Whether nothing has to be polled for soon: whatever comes next begins with a view, a death, a
    /// completion or a wakeup. No one waits for a follower that has all of the log: the leader sends
    /// it a wakeup before its ring there is full, and a replica that is to lead does when it asks for
    /// the permission or a vote. A leader that is to spin is never idle.
    fn is_idle(&self, now: Instant) -> bool {
        let is_quiet = match &self.role {
            Role::Following => self.own.is_none() || self.is_whole(),
            Role::Leading(lead) => self.pace.poll_every != Nanos::ZERO && lead.is_idle(&self.replicated.log),
            Role::TakingOver { .. } => false,
            Role::Waiting | Role::Yields => true,
        };
        is_quiet && !self.provider.is_serving(now, self.pace.patience)
    }

    /// Interval of the detector: a look has to find that a counter went on since the one before.
    pub(super) fn look_every(&self) -> Nanos {
        self.pace.look_every.max(self.pace.poll_every.saturating_mul(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::area::Area;
    use crate::preset::{Active, Views};
    use crate::service::LoadError;
    use obol_fabric::{Layout, Limits};

    /// Has put off this number of steps of work.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Busy(u32);

    impl Service for Busy {
        const KIND: u8 = 11;

        fn apply(&mut self, _: &[u8], _: &mut Vec<u8>) {}
        fn read(&self, _: &[u8], _: &mut Vec<u8>) {}
        fn save(&self, _: &mut Vec<u8>) {}

        fn load(&mut self, _: &[u8]) -> Result<(), LoadError> {
            Ok(())
        }

        fn work(&mut self) -> bool {
            self.0 = self.0.saturating_sub(1);
            self.0 > 0
        }
    }

    #[test]
    fn there_is_a_pause_between_steps_of_work_that_was_put_off_however_often_it_looks() {
        const LIMITS: Limits = Limits { slots: 8, proposers: 7, value_bytes: 6400, ..Limits::LEAST };
        let area = Area::of(&Layout::new(LIMITS).expect("in bounds")).expect("there is room");
        let every = Nanos::from_micros(20);
        let pace = Pace { poll_every: every, idle_every: every, patience: every, look_every: every };
        let mut replica = Replica::<Busy, Views, Active>::new(area, pace, Busy(4));
        let (mut now, mut steps) = (Instant(1), Vec::new());
        for _ in 0..100 {
            let before = replica.service().0;
            let next = replica.work(now);
            if replica.service().0 < before {
                steps.push(now);
            }
            assert!(next == Instant::NEVER || next <= steps[steps.len() - 1] + WORK_EVERY);
            now += every;
        }
        assert_eq!((steps.len(), replica.service().0), (4, 0));
        assert!(steps.is_sorted_by(|before, next| next.since(*before) >= WORK_EVERY), "{steps:?}");
    }
}
