//! Sessions: each request takes effect once, across failovers. They are part of the replicated
//! state: every replica computes the same ones from the log, and a snapshot contains them.

use crate::WINDOW;
use obol_fabric::sealed::word;
use std::collections::{BTreeMap, VecDeque};

/// Sessions that are kept. When another one begins, the one that was used the longest ago ends.
pub const SESSIONS_MAX: usize = 256;

/// A client's session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Session {
    /// The newest of its requests that took effect.
    newest: u64,
    /// The index of the entry that used it last.
    used: u64,
    /// The replies to its newest requests, oldest first: only these may be asked for again.
    replies: VecDeque<(u64, Box<[u8]>)>,
}

/// What is known of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen<'a> {
    /// Its session does not exist, or has ended.
    NoSession,
    /// It has not taken effect.
    New,
    /// It has, with this reply.
    Done(&'a [u8]),
    /// It has, and its reply was dropped, because its client has had it.
    Old,
}

/// All sessions, by client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Sessions(BTreeMap<u64, Session>);

impl Sessions {
    /// Begins a session; false if it exists.
    pub(crate) fn open(&mut self, client: u64, index: u64) -> bool {
        if self.0.contains_key(&client) {
            return false;
        }
        self.0.insert(client, Session { newest: 0, used: index, replies: VecDeque::new() });
        if self.0.len() > SESSIONS_MAX {
            let oldest = self.0.iter().min_by_key(|(_, session)| session.used).map(|(client, _)| *client);
            oldest.and_then(|client| self.0.remove(&client));
        }
        assert!(self.0.len() <= SESSIONS_MAX);
        true
    }

    pub(crate) fn seen(&self, client: u64, number: u64) -> Seen<'_> {
        let Some(session) = self.0.get(&client) else { return Seen::NoSession };
        if number > session.newest {
            return Seen::New;
        }
        let reply = session.replies.iter().find(|(of, _)| *of == number);
        reply.map_or(Seen::Old, |(_, reply)| Seen::Done(reply))
    }

    /// A request took effect.
    pub(crate) fn record(&mut self, client: u64, number: u64, index: u64, reply: &[u8]) {
        let Some(session) = self.0.get_mut(&client) else { return };
        (session.newest, session.used) = (number, index);
        if session.replies.len() as u64 >= WINDOW {
            session.replies.pop_front();
        }
        session.replies.push_back((number, reply.into()));
        assert!(session.replies.len() as u64 <= WINDOW);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let put = |word: u64, out: &mut Vec<u8>| out.extend_from_slice(&word.to_le_bytes());
        put(self.0.len() as u64, out);
        for (client, session) in &self.0 {
            for word in [*client, session.newest, session.used, session.replies.len() as u64] {
                put(word, out);
            }
            for (number, reply) in &session.replies {
                put(*number, out);
                put(reply.len() as u64, out);
                out.extend_from_slice(reply);
            }
        }
    }

    /// The sessions of these bytes, and what follows them.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (count, mut bytes) = number(bytes)?;
        let mut sessions = BTreeMap::new();
        for _ in 0..count.min(SESSIONS_MAX as u64) {
            let (client, rest) = number(bytes)?;
            let (newest, rest) = number(rest)?;
            let (used, rest) = number(rest)?;
            let (many, mut rest) = number(rest)?;
            let mut replies = VecDeque::new();
            for _ in 0..many.min(WINDOW) {
                let (of, more) = number(rest)?;
                let (len, more) = number(more)?;
                let (reply, more) = more.split_at_checked(usize::try_from(len).ok()?)?;
                replies.push_back((of, reply.into()));
                rest = more;
            }
            bytes = rest;
            sessions.insert(client, Session { newest, used, replies });
        }
        (sessions.len() as u64 == count).then_some((Self(sessions), bytes))
    }
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    Some((word(bytes, 0)?, bytes.get(8..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_known_once_it_took_effect() {
        let mut sessions = Sessions::default();
        assert_eq!(sessions.seen(5, 2), Seen::NoSession);
        sessions.open(5, 1);
        assert_eq!(sessions.seen(5, 2), Seen::New);
        for number in 2..2 + WINDOW {
            sessions.record(5, number, number, &[number as u8]);
        }
        sessions.open(5, 99);
        assert_eq!(sessions.seen(5, 2), Seen::Done(&[2]), "opening it again changes nothing");
        sessions.record(5, 2 + WINDOW, 100, b"");
        assert_eq!(sessions.seen(5, 2), Seen::Old);
        assert_eq!(sessions.seen(5, 3), Seen::Done(&[3]));
    }

    #[test]
    fn the_session_that_was_used_the_longest_ago_ends() {
        let mut sessions = Sessions::default();
        for client in 0..SESSIONS_MAX as u64 {
            sessions.open(client, client);
        }
        sessions.record(0, 1, 1_000, b"");
        sessions.open(7_000, 1_001);
        assert_eq!(sessions.len(), SESSIONS_MAX);
        assert_eq!(sessions.seen(1, 1), Seen::NoSession);
        assert_eq!(sessions.seen(0, 1), Seen::Done(b""));
    }

    #[test]
    fn encoded_sessions_are_decoded() {
        let mut sessions = Sessions::default();
        sessions.open(5, 1);
        sessions.open(6, 2);
        sessions.record(5, 2, 3, b"reply");
        let mut bytes = Vec::new();
        sessions.encode(&mut bytes);
        bytes.push(1);
        assert_eq!(Sessions::decode(&bytes), Some((sessions, &[1][..])));
        for len in 0..bytes.len() - 1 {
            assert_eq!(Sessions::decode(&bytes[..len]), None, "{len} bytes");
        }
    }
}
