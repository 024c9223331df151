//! The connection of a link to its peer: down, being made, or up; and when a transport tries again to
//! connect.

use crate::types::{Instant, Nanos};

/// The first interval: a peer that has just started listens by then.
const MIN: Nanos = Nanos::from_millis(2);
/// The last one: a peer that comes back is reached within it, and a missing one costs little.
const MAX: Nanos = Nanos::from_millis(500);

#[derive(Debug)]
enum State<C> {
    /// The earliest time of the next attempt.
    Down(Instant),
    /// The attempt.
    Connecting(u64),
    /// The attempt that made it.
    Up(u64, C),
}

/// A connection that is made again when it was lost. Intervals between attempts double, up to a
/// bound, until the peer is reached.
#[derive(Debug)]
pub struct Reconnect<C> {
    state: State<C>,
    interval: Nanos,
}

impl<C> Default for Reconnect<C> {
    fn default() -> Self {
        Self { state: State::Down(Instant::ZERO), interval: MIN }
    }
}

impl<C> Reconnect<C> {
    /// The connection.
    pub const fn up(&self) -> Option<&C> {
        match &self.state {
            State::Up(_, connection) => Some(connection),
            State::Down(_) | State::Connecting(_) => None,
        }
    }

    /// The connection.
    pub const fn up_mut(&mut self) -> Option<&mut C> {
        match &mut self.state {
            State::Up(_, connection) => Some(connection),
            State::Down(_) | State::Connecting(_) => None,
        }
    }

    /// Whether an attempt is being made.
    pub const fn is_connecting(&self) -> bool {
        matches!(self.state, State::Connecting(_))
    }

    /// The earliest time of the next attempt, if there is neither a connection nor an attempt.
    pub const fn retry_at(&self) -> Option<Instant> {
        match self.state {
            State::Down(from) => Some(from),
            State::Connecting(_) | State::Up(..) => None,
        }
    }

    /// Whether an attempt should be made now.
    pub fn is_due(&self, now: Instant) -> bool {
        self.retry_at().is_some_and(|from| from <= now)
    }

    /// The attempt that is being made, or the one that has made the connection.
    pub const fn attempt(&self) -> Option<u64> {
        match self.state {
            State::Down(_) => None,
            State::Connecting(attempt) | State::Up(attempt, _) => Some(attempt),
        }
    }

    /// An attempt is made.
    pub fn begin(&mut self, attempt: u64) {
        self.state = State::Connecting(attempt);
    }

    /// An attempt has succeeded.
    pub fn established(&mut self, attempt: u64, connection: C) {
        self.interval = MIN;
        self.state = State::Up(attempt, connection);
    }

    /// An attempt has failed, or a connection is lost: the next attempt is due after an interval.
    pub fn fail(&mut self, now: Instant) {
        self.state = State::Down(now + self.interval);
        self.interval = self.interval.saturating_mul(2).min(MAX);
    }

    /// As [`Reconnect::fail`], but a connection that is lost is made again at once. Returns it, with its
    /// attempt.
    pub fn lose(&mut self, now: Instant) -> Option<(u64, C)> {
        let lost = self.give_up(now);
        if lost.is_none() {
            self.fail(now);
        }
        lost
    }

    /// There is neither a connection nor an attempt any more, and one is due. Returns the connection, with
    /// its attempt.
    pub fn give_up(&mut self, now: Instant) -> Option<(u64, C)> {
        match core::mem::replace(&mut self.state, State::Down(now)) {
            State::Up(attempt, connection) => Some((attempt, connection)),
            State::Down(_) | State::Connecting(_) => None,
        }
    }

    /// The peer is known to be reachable: an attempt is due.
    pub fn hurry(&mut self) {
        self.interval = MIN;
        if let State::Down(from) = &mut self.state {
            *from = Instant::ZERO;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_double_up_to_a_bound_until_the_peer_is_reached() {
        let mut connection = Reconnect::default();
        let mut retry = || {
            connection.fail(Instant::ZERO);
            connection.retry_at().map(|at| at.0 / 1_000_000)
        };
        assert_eq!([(); 10].map(|()| retry()), [2, 4, 8, 16, 32, 64, 128, 256, 500, 500].map(Some));
        connection.established(7, ());
        connection.fail(Instant::ZERO);
        assert_eq!(connection.retry_at(), Some(Instant::ZERO + MIN));
    }

    #[test]
    fn a_lost_connection_is_made_again_at_once_and_a_failed_attempt_after_an_interval() {
        let (mut connection, now) = (Reconnect::default(), Instant(5));
        assert!(connection.is_due(now) && connection.attempt().is_none());
        connection.begin(1);
        assert!(!connection.is_due(Instant::NEVER) && connection.attempt() == Some(1));
        connection.established(1, "it");
        assert_eq!(connection.up(), Some(&"it"));
        assert_eq!(connection.lose(now), Some((1, "it")));
        assert!(connection.is_due(now));
        connection.begin(2);
        assert!(connection.lose(now).is_none() && !connection.is_due(now));
        connection.hurry();
        assert!(connection.is_due(now));
    }
}
