//! Operations and datagrams in transit on links that a drill has slowed down.
//!
//! The poster of an operation on such a link queues it until it is due, so that nothing blocks and
//! intact links cost nothing. Order is kept per peer, also after the link is restored. If the
//! poster dies, its queue is lost, as with a network card.

use crate::contract::{Remote, Token};
use crate::types::{Address, Instant, Nanos};
use std::collections::VecDeque;

/// The limit of queued bytes of one process; a slow link that exceeds it breaks.
const DELAYED_MAX: usize = 4096;

/// A queued operation or datagram.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DelayedOperation {
    Read { from: Remote, len: u32, token: Token },
    Write { to: Remote, bytes: Vec<u8>, token: Token },
    Cas { at: Remote, expected: u64, desired: u64, token: Token },
    Datagram { to: Address, bytes: Vec<u8> },
}

impl DelayedOperation {
    /// Its destination.
    pub(crate) const fn region(&self) -> u32 {
        match self {
            Self::Read { from, .. } => from.at.region,
            Self::Write { to, .. } => to.at.region,
            Self::Cas { at, .. } => at.at.region,
            Self::Datagram { to, .. } => to.region,
        }
    }

    /// The operation whose completion is awaited.
    pub(crate) const fn token(&self) -> Option<Token> {
        match self {
            Self::Read { token, .. } | Self::Write { token, .. } | Self::Cas { token, .. } => Some(*token),
            Self::Datagram { .. } => None,
        }
    }
}

/// Everything queued by one process, in the order of posting.
#[derive(Debug, Default)]
pub(crate) struct DelayQueue(VecDeque<(Instant, DelayedOperation)>);

impl DelayQueue {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// When a post to this region now would be due; `None` if it is not delayed.
    pub(crate) fn due(&self, region: u32, delay: Nanos, now: Instant) -> Option<Instant> {
        let last = self.0.iter().rev().find(|(_, late)| late.region() == region).map(|(due, _)| *due);
        (delay > Nanos::ZERO || last.is_some()).then(|| last.unwrap_or(now).max(now + delay))
    }

    /// Queues it; returned if there is no room.
    pub(crate) fn put(&mut self, due: Instant, late: DelayedOperation) -> Result<(), DelayedOperation> {
        if self.0.len() >= DELAYED_MAX {
            return Err(late);
        }
        let last = self.0.iter().rev().find(|(_, last)| last.region() == late.region());
        assert!(last.is_none_or(|(last, _)| *last <= due), "order is kept per peer");
        self.0.push_back((due, late));
        Ok(())
    }

    /// Takes what is due.
    #[inline]
    pub(crate) fn take(&mut self, now: Instant) -> Option<DelayedOperation> {
        if self.is_empty() { None } else { self.take_due(now) }
    }

    fn take_due(&mut self, now: Instant) -> Option<DelayedOperation> {
        let at = self.0.iter().position(|(due, _)| *due <= now)?;
        self.0.remove(at).map(|(_, late)| late)
    }

    /// When the next is due.
    pub(crate) fn next(&self) -> Instant {
        self.0.iter().map(|(due, _)| *due).fold(Instant::NEVER, Instant::min)
    }

    /// Takes all operations for a region whose link is broken.
    pub(crate) fn fail(&mut self, region: u32) -> Vec<Token> {
        let failed = |late: &DelayedOperation| late.token().filter(|_| late.region() == region);
        let tokens = self.0.iter().filter_map(|(_, late)| failed(late)).collect();
        self.0.retain(|(_, late)| failed(late).is_none());
        tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cas(region: u32, token: u64) -> DelayedOperation {
        let at = Remote { at: Address::region(region), offset: 0 };
        DelayedOperation::Cas { at, expected: 0, desired: 1, token: Token(token) }
    }

    fn datagram(region: u32) -> DelayedOperation {
        DelayedOperation::Datagram { to: Address::region(region), bytes: vec![1] }
    }

    #[test]
    fn what_is_late_stays_in_order_on_each_link() {
        let mut way = DelayQueue::default();
        let at = Instant;
        assert_eq!(way.due(8, Nanos::ZERO, at(5)), None);
        assert_eq!(way.due(8, Nanos(100), at(5)), Some(at(105)));
        way.put(at(105), cas(8, 1)).expect("room");
        way.put(at(60), cas(9, 2)).expect("room");
        assert_eq!(way.due(8, Nanos::ZERO, at(10)), Some(at(105)), "behind what was posted before");
        assert_eq!(way.due(8, Nanos(100), at(10)), Some(at(110)));
        assert_eq!(way.due(10, Nanos::ZERO, at(10)), None);
        way.put(at(105), datagram(8)).expect("room");
        assert_eq!((way.next(), way.take(at(59))), (at(60), None));
        assert_eq!(way.take(at(60)), Some(cas(9, 2)));
        assert_eq!((way.take(at(200)), way.take(at(200))), (Some(cas(8, 1)), Some(datagram(8))));
        assert!(way.is_empty() && way.next() == Instant::NEVER);
    }

    #[test]
    fn a_link_that_breaks_fails_its_operations_and_no_others() {
        let mut way = DelayQueue::default();
        for late in [cas(8, 1), datagram(8), cas(9, 2), cas(8, 3)] {
            way.put(Instant(7), late).expect("room");
        }
        assert_eq!(way.fail(8), [Token(1), Token(3)]);
        assert_eq!((way.take(Instant(7)), way.take(Instant(7))), (Some(datagram(8)), Some(cas(9, 2))));
        for n in 0..DELAYED_MAX as u64 {
            way.put(Instant(7), cas(8, n)).expect("room");
        }
        assert_eq!(way.put(Instant(7), cas(8, 0)), Err(cas(8, 0)));
    }
}
