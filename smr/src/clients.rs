//! The leader's side of its clients: requests in its own memory, answers into theirs.

use crate::area::{Area, Caller, WINDOW};
use crate::message::{MESSAGE_BYTES_MAX, Message};
use crate::position::Index;
use crate::preset::Look;
use crate::tokens::{Part, WAKEUP, token};
use core::sync::atomic::Ordering;
use obol_fabric::sealed;
use obol_fabric::{Address, Fabric, Remote};
use std::collections::VecDeque;
use strum::FromRepr;

/// Words of a client's head, which opens a connection: client id, first request that needs an
/// answer, number of the connection, whether the client needs wakeups.
pub(crate) const CLIENT_HEAD_WORDS: usize = 4;
/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromRepr)]
#[repr(u8)]
pub(crate) enum Request {
    /// Begin a session.
    Open = 1,
    /// Execute a command.
    Propose = 2,
    /// Answer a query.
    Query = 3,
    /// Change how many voters there should be.
    Resize = 4,
}

/// In the kind of an answer to a client beside a replica: it lies where the request was, which must
/// not be taken for an answer, nor the answer for a request.
pub(crate) const BESIDE: u8 = 0x80;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromRepr)]
#[repr(u8)]
pub(crate) enum Status {
    Done = 1,
    /// The session does not exist any more, so it is unknown whether the request took effect.
    NoSession = 2,
}

/// The leader's state of a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Conversation {
    with: Caller,
    /// Random id of the client; zero until it has connected.
    id: u64,
    connection: u64,
    /// The next request to take.
    next: u64,
    /// Commands up to this one are in the log.
    appended: u64,
    wakes: bool,
}

/// An answer that is not sent yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    to: Remote,
    bytes: Vec<u8>,
    wakes: bool,
    basis: Basis,
}

/// What an answer follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Basis {
    /// A command of its client that was committed.
    Log,
    /// The leader's state, which may be older than that of a later leader.
    State,
}

/// A query that waits until the state has all that precedes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Query {
    pub(crate) after: Index,
    /// What the guard has to confirm first.
    pub(crate) ticket: u64,
    pub(crate) client: u64,
    pub(crate) number: u64,
    pub(crate) query: Box<[u8]>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Clients {
    area: Area,
    all: Vec<Conversation>,
    /// The one to poll first.
    turn: usize,
    outbox: Vec<Held>,
    pub(crate) queries: VecDeque<Query>,
    pub(crate) answered: u64,
}

impl Clients {
    pub(crate) const fn new(area: Area) -> Self {
        Self { area, all: Vec::new(), turn: 0, outbox: Vec::new(), queries: VecDeque::new(), answered: 0 }
    }

    /// Installs the clients of a view. One that moves to another block connects anew there.
    pub(crate) fn install(&mut self, clients: &[Caller]) {
        let is_of =
            |client: &Conversation, of: &Caller| (client.with.at, client.with.block) == (of.at, of.block);
        self.all.retain(|client| clients.iter().any(|of| is_of(client, of)));
        for &with in clients {
            if !self.all.iter().any(|client| is_of(client, &with)) {
                let fresh = (0, 0, 1, 0, false);
                let (id, connection, next, appended, wakes) = fresh;
                self.all.push(Conversation { with, id, connection, next, appended, wakes });
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether all that have connected send a wakeup with their requests. To connect, all do.
    pub(crate) fn all_wake(&self) -> bool {
        self.all.iter().all(|client| client.id == 0 || client.wakes)
    }

    /// The next client to poll.
    pub(crate) fn turn(&mut self) -> usize {
        self.turn = (self.turn + 1) % self.all.len().max(1);
        self.turn
    }

    /// Whether a client has connected anew.
    fn poll_head<F: Fabric>(&mut self, at: usize, fabric: &F) {
        let Some(client) = self.all.get_mut(at) else { return };
        let Some(head) = fabric.own(self.area.client_head(client.with.block), 8 * (CLIENT_HEAD_WORDS + 1))
        else {
            return;
        };
        let is_known = [(0, client.id), (2, client.connection)]
            .iter()
            .all(|(n, known)| head.get(*n).is_some_and(|word| word.load(Ordering::Relaxed) == *known));
        if is_known {
            return;
        }
        if let Some([id, first, connection, wakes]) = sealed::unseal_own::<CLIENT_HEAD_WORDS>(Some(head))
            && id != 0
        {
            if client.id != id {
                client.appended = 0;
            }
            (client.id, client.connection, client.next, client.wakes) = (id, connection, first, wakes != 0);
        }
    }

    /// Takes the next request of a client, if there is one.
    pub(crate) fn take<'b, F: Fabric>(
        &mut self,
        at: usize,
        buffer: &'b mut Vec<u8>,
        fabric: &F,
    ) -> Option<(Request, Message<'b>)> {
        self.poll_head(at, fabric);
        let client = self.all.get_mut(at).filter(|client| client.id != 0)?;
        let words = fabric.own(self.area.request(client.with.block, client.next), MESSAGE_BYTES_MAX)?;
        if words.first()?.load(Ordering::Relaxed) < client.next {
            return None;
        }
        let message = Message::read(words, buffer).filter(|message| message.client == client.id)?;
        // A client reuses a place when everything before it has an answer.
        if message.number != client.next {
            client.next = (client.next + 1).max(message.number.saturating_sub(WINDOW - 1));
            return None;
        }
        client.next += 1;
        Some((Request::from_repr(message.kind)?, message))
    }

    /// Whether a command is in the log already, though it may not be applied; from now on it is.
    pub(crate) fn append(&mut self, at: usize, number: u64) -> bool {
        let Some(client) = self.all.get_mut(at) else { return true };
        let is_new = number > client.appended;
        client.appended = client.appended.max(number);
        !is_new
    }

    /// Prepares an answer. A block may still hold the head of a client that had it before, so the
    /// id may be that of several: only the right one takes the answer.
    pub(crate) fn answer(&mut self, basis: Basis, id: u64, number: u64, status: Status, payload: &[u8]) {
        for client in self.all.iter().filter(|client| client.id == id) {
            let Caller { at, block, is_replica, .. } = client.with;
            let (offset, mark) = if is_replica {
                (self.area.answer_beside(block, number), BESIDE)
            } else {
                (self.area.answer(number), 0)
            };
            let mut bytes = Vec::new();
            Message { number, kind: status as u8 | mark, client: id, payload }.encode(&mut bytes);
            let to = Remote { at, offset };
            self.outbox.push(Held { to, bytes, wakes: client.wakes, basis });
        }
    }

    pub(crate) fn has_answers(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Whether there are answers that follow from the state.
    pub(crate) fn has_reads(&self) -> bool {
        self.outbox.iter().any(|held| held.basis == Basis::State)
    }

    /// Sends all answers that may be sent.
    pub(crate) fn send<F: Fabric>(&mut self, look: Look, fabric: &mut F) {
        let mut sleepers: Vec<Address> = Vec::new();
        let Self { outbox, answered, .. } = self;
        outbox.retain(|held| {
            let may = match held.basis {
                Basis::Log => look.answer,
                Basis::State => look.read,
            };
            if may {
                *answered += 1;
                // If it is lost, the client repeats its request.
                fabric.write_unsignaled(held.to, &held.bytes, token(Part::Send, 0));
                // A client beside this leader looks after each of its turns.
                let sleeps = held.wakes && held.to.at != fabric.address();
                if sleeps && !sleepers.contains(&held.to.at) {
                    sleepers.push(held.to.at);
                }
            }
            !may
        });
        // Once for all its answers.
        for at in sleepers {
            fabric.send(at.owner(), WAKEUP);
        }
    }
}
