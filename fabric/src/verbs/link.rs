//! A link to a peer: its queue pair, the posted operations in order, and the queued ones.

use super::connector::Cause;
use super::datagrams::Datagrams;
use super::handshake::{Refusal, Welcome};
use super::ops::{Ops, Slot, What};
use super::pair::{AddressHandle, QueuePair};
use super::post::{To, Verb, Work};
use super::queue::{PostError, Status};
use super::registration::Target;
use crate::contract::{LinkError, Token};
use crate::layout::Layout;
use crate::types::{Instant, Nanos};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// The capacity of a queue pair; further posts are queued here.
pub(crate) const DEPTH: u32 = 128;
/// Operations and datagrams queued until a link is established or has room; more fail.
const WAITING_MAX: usize = 4096;
/// Datagrams among them; more are lost.
const WAITING_DATAGRAMS_MAX: usize = 32;
/// Probes of a link without completions: one, or its answer, may be lost as well. Afterwards the
/// device's own retries are left to detect a failure.
const PROBES_MAX: u32 = 3;
/// The maximum size of inline WRITEs, where the device supports them.
pub(crate) const INLINE_BYTES: u32 = 256;
/// The first and the last retry interval of a link that could not be established.
const BACK_OFF_MIN: Nanos = Nanos::from_millis(2);
const BACK_OFF_MAX: Nanos = Nanos::from_millis(500);

/// An entry in the order of the posts.
#[derive(Debug)]
enum Entry {
    /// Posted, or kept to be posted with its successor.
    Op(Slot),
    /// Failed before it was posted; reported after its predecessors.
    Failed(Token, LinkError),
}

/// A queued item.
#[derive(Debug)]
enum Job {
    Op { token: Token, what: What, offset: u32, payload: Vec<u8> },
    Failed(Token, LinkError),
    Datagram(Vec<u8>),
}

/// An established connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) attempt: u64,
    pub(crate) pair: QueuePair,
    welcome: Welcome,
    handle: AddressHandle,
}

#[derive(Debug)]
enum State {
    /// The earliest time of the next attempt.
    Down(Instant),
    Connecting(u64),
    Up(Connection),
}

/// A link.
#[derive(Debug)]
pub(crate) struct Link {
    region: u32,
    pub(crate) to: SocketAddr,
    /// The generation of the last connected owner of the region; 0 if there never was one.
    pub(crate) generation: u32,
    layout: Layout,
    state: State,
    under_way: VecDeque<Entry>,
    /// Those of them that are, or will be, posted to the device.
    posted: u32,
    /// The number of successful completions.
    ended: u64,
    /// That number at the last check of this link, if operations were pending.
    seen: Option<u64>,
    /// Probes since the last success.
    probes: u32,
    /// The last WRITE, not posted yet: with a CAS behind it, one completion covers both.
    held: Option<Slot>,
    waiting: VecDeque<Job>,
    back_off: Nanos,
    /// Why there is no connection.
    trouble: Option<Cause>,
}

/// The result of posting an item to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PostOutcome {
    /// It was accepted.
    Accepted,
    /// It was queued for a connection, which has to be requested.
    Connect,
    /// It was refused: there is no connection and no attempt is due, or the queue is full.
    Refused,
}

impl Link {
    pub(crate) fn new(region: u32, to: SocketAddr, layout: Layout) -> Self {
        Self {
            region,
            to,
            generation: 0,
            layout,
            state: State::Down(Instant::ZERO),
            under_way: VecDeque::with_capacity(DEPTH as usize * 2),
            posted: 0,
            ended: 0,
            seen: None,
            probes: 0,
            held: None,
            waiting: VecDeque::new(),
            back_off: BACK_OFF_MIN,
            trouble: None,
        }
    }

    pub(crate) const fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    /// Whether a connection should be requested now.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        matches!(self.state, State::Down(from) if from <= now)
    }

    pub(crate) const fn attempt(&self) -> Option<u64> {
        match &self.state {
            State::Down(_) => None,
            State::Connecting(attempt) => Some(*attempt),
            State::Up(connection) => Some(connection.attempt),
        }
    }

    pub(crate) const fn trouble(&self) -> Option<&Cause> {
        self.trouble.as_ref()
    }

    /// Records that a connection was requested.
    pub(crate) fn connecting(&mut self, attempt: u64) {
        self.state = State::Connecting(attempt);
    }

    /// Whether the peer gave no key for this, so that it fails without an attempt.
    fn is_denied(&self, what: What, offset: u32) -> bool {
        matches!(&self.state, State::Up(connection) if connection.target(&self.layout, what, offset).is_none())
    }

    /// Accepts an operation. A WRITE stays here until [`Link::flush`] or the next operation.
    pub(crate) fn hand(
        &mut self,
        token: Token,
        what: What,
        offset: u32,
        payload: &[u8],
        ops: &mut Ops,
        now: impl FnOnce() -> Instant,
    ) -> Result<PostOutcome, PostError> {
        if self.is_denied(what, offset) && self.waiting.is_empty() {
            self.refuse(token, LinkError::Denied, ops);
            return Ok(PostOutcome::Accepted);
        }
        if self.is_up()
            && self.waiting.is_empty()
            && self.posted < DEPTH
            && let Some(slot) = ops.start(self.region, token, what, offset, payload)
        {
            self.submit(slot, ops)?;
            return Ok(PostOutcome::Accepted);
        }
        if let State::Down(from) = self.state
            && from > now()
        {
            return Ok(PostOutcome::Refused);
        }
        if self.waiting.len() >= WAITING_MAX {
            return Ok(PostOutcome::Refused);
        }
        self.waiting.push_back(Job::Op { token, what, offset, payload: payload.to_vec() });
        Ok(if matches!(self.state, State::Down(_)) { PostOutcome::Connect } else { PostOutcome::Accepted })
    }

    /// Queues a failure to be reported after all earlier posts.
    pub(crate) fn refuse(&mut self, token: Token, error: LinkError, ops: &mut Ops) {
        if self.waiting.is_empty() {
            self.fail_in_order(token, error, ops);
        } else {
            self.waiting.push_back(Job::Failed(token, error));
        }
    }

    fn fail_in_order(&mut self, token: Token, error: LinkError, ops: &mut Ops) {
        if self.under_way.is_empty() {
            ops.refuse(token, error);
        } else {
            self.under_way.push_back(Entry::Failed(token, error));
        }
    }

    /// Queues a datagram until there is a connection.
    pub(crate) fn keep(&mut self, bytes: &[u8], now: Instant) -> PostOutcome {
        match &self.state {
            State::Down(from) if *from > now => PostOutcome::Refused,
            _ if self.waiting.len() >= WAITING_DATAGRAMS_MAX => PostOutcome::Refused,
            state => {
                let handed = if matches!(state, State::Down(_)) {
                    PostOutcome::Connect
                } else {
                    PostOutcome::Accepted
                };
                self.waiting.push_back(Job::Datagram(bytes.to_vec()));
                handed
            }
        }
    }

    /// Sends a datagram. `false` if it is lost.
    pub(crate) fn send(&self, bytes: &[u8], datagrams: &mut Datagrams) -> bool {
        self.connection().is_ok_and(|connection| datagrams.send(&connection.to(), bytes))
    }

    fn submit(&mut self, slot: Slot, ops: &Ops) -> Result<(), PostError> {
        self.under_way.push_back(Entry::Op(slot));
        self.posted += 1;
        let write = self.held.take();
        if matches!(ops.what(slot), What::Write(_)) {
            self.held = Some(slot);
            return write.map_or(Ok(()), |write| self.post(write, false, ops));
        }
        match write {
            Some(write) => self.post_both(write, slot, ops),
            None => self.post(slot, true, ops),
        }
    }

    /// Posts a held WRITE.
    pub(crate) fn flush(&mut self, ops: &Ops) -> Result<(), PostError> {
        match self.held.take() {
            Some(write) => self.post(write, true, ops),
            None => Ok(()),
        }
    }

    /// Checks whether pending operations have completed since the last check. If none has, posts a
    /// probe: from a following packet a device learns that an earlier one was lost, and retransmits
    /// it at once. Otherwise it waits for its timeout.
    pub(crate) fn check(&mut self, ops: &mut Ops) -> Result<(), PostError> {
        let seen = self.seen.take();
        if self.posted == 0 {
            return Ok(());
        }
        self.seen = Some(self.ended);
        if seen != self.seen || self.probes >= PROBES_MAX || self.posted >= DEPTH {
            return Ok(());
        }
        let Some(slot) = ops.start(self.region, Token::default(), What::Probe, 0, &[]) else { return Ok(()) };
        self.probes += 1;
        self.submit(slot, ops)
    }

    pub(crate) const fn holds(&self) -> bool {
        self.held.is_some()
    }

    fn post(&self, slot: Slot, signal: bool, ops: &Ops) -> Result<(), PostError> {
        let connection = self.connection()?;
        connection.pair.post(&connection.work(slot, signal, &self.layout, ops)?)
    }

    /// Posts a WRITE and its successor, whose completion covers both.
    fn post_both(&self, write: Slot, behind: Slot, ops: &Ops) -> Result<(), PostError> {
        let connection = self.connection()?;
        let first = connection.work(write, false, &self.layout, ops)?;
        let second = connection.work(behind, true, &self.layout, ops)?;
        connection.pair.post_both(&first, &second)
    }

    const fn connection(&self) -> Result<&Connection, PostError> {
        match &self.state {
            State::Up(connection) => Ok(connection),
            State::Down(_) | State::Connecting(_) => Err(PostError(libc::ENOTCONN)),
        }
    }

    /// An operation succeeded, and so did all posted before it.
    pub(crate) fn ended(&mut self, slot: Slot, ops: &mut Ops) {
        while let Some(entry) = self.under_way.pop_front() {
            match entry {
                Entry::Op(one) => {
                    self.posted -= 1;
                    (self.ended, self.probes) = (self.ended + 1, 0);
                    ops.finish(one);
                    if one == slot {
                        break;
                    }
                }
                Entry::Failed(token, error) => ops.refuse(token, error),
            }
        }
        while let Some(Entry::Failed(token, error)) = self.under_way.front() {
            ops.refuse(*token, *error);
            self.under_way.pop_front();
        }
    }

    /// Posts queued items, as far as the device has room.
    pub(crate) fn pump(&mut self, ops: &mut Ops, datagrams: &mut Datagrams) -> Result<(), PostError> {
        while let (State::Up(connection), Some(job)) = (&self.state, self.waiting.front()) {
            match job {
                Job::Op { token, what, offset, .. } if self.is_denied(*what, *offset) => {
                    let token = *token;
                    self.waiting.pop_front();
                    self.fail_in_order(token, LinkError::Denied, ops);
                }
                Job::Op { token, what, offset, payload } => {
                    if self.posted >= DEPTH {
                        return Ok(());
                    }
                    let Some(slot) = ops.start(self.region, *token, *what, *offset, payload) else {
                        return Ok(());
                    };
                    self.waiting.pop_front();
                    self.submit(slot, ops)?;
                }
                Job::Failed(token, error) => {
                    let (token, error) = (*token, *error);
                    self.waiting.pop_front();
                    self.fail_in_order(token, error, ops);
                }
                Job::Datagram(bytes) => {
                    // A datagram that is lost here might have been lost on the network.
                    let _ = datagrams.send(&connection.to(), bytes);
                    self.waiting.pop_front();
                }
            }
        }
        Ok(())
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The connection is established.
    pub(crate) fn up(&mut self, attempt: u64, pair: QueuePair, welcome: Welcome, handle: AddressHandle) {
        self.generation = welcome.generation;
        self.back_off = BACK_OFF_MIN;
        self.trouble = None;
        self.state = State::Up(Connection { attempt, pair, welcome, handle });
    }

    /// There is no connection (any more). Pending and queued operations fail: `first`, if given,
    /// with its own error, all others with `error`. Returns the connection, and the operations that
    /// the device may still execute.
    pub(crate) fn down(
        &mut self,
        cause: Cause,
        first: Option<(Slot, LinkError)>,
        error: LinkError,
        now: Instant,
        ops: &mut Ops,
    ) -> Option<(Connection, Vec<Slot>)> {
        let mut left = Vec::new();
        for entry in self.under_way.drain(..) {
            match entry {
                Entry::Op(slot) => {
                    let own = first.filter(|(one, _)| *one == slot).map(|(_, error)| error);
                    ops.give_up(slot, own.unwrap_or(error));
                    left.push(slot);
                }
                Entry::Failed(token, error) => ops.refuse(token, error),
            }
        }
        for job in self.waiting.drain(..) {
            match job {
                Job::Op { token, .. } => ops.refuse(token, error),
                Job::Failed(token, error) => ops.refuse(token, error),
                Job::Datagram(_) => {}
            }
        }
        (self.posted, self.held, self.seen, self.probes) = (0, None, None, 0);
        let was = core::mem::replace(&mut self.state, State::Down(now));
        self.trouble = Some(cause);
        match was {
            // A broken connection is retried at once.
            State::Up(connection) => Some((connection, left)),
            State::Down(_) | State::Connecting(_) => {
                self.state = State::Down(now + self.back_off);
                self.back_off = self.back_off.saturating_mul(2).min(BACK_OFF_MAX);
                None
            }
        }
    }

    /// Resets the back-off: the peer is known to be reachable.
    pub(crate) fn reset_back_off(&mut self) {
        self.back_off = BACK_OFF_MIN;
        if let State::Down(from) = &mut self.state {
            *from = Instant::ZERO;
        }
    }
}

impl Connection {
    /// The target of an operation, as addressed by the peer's device; `None` if the peer gave no
    /// key for it.
    fn target(&self, layout: &Layout, what: What, offset: u32) -> Option<Target> {
        let keys = &self.welcome.keys;
        match what {
            What::Read(bytes) => keys.read(layout, offset, bytes),
            What::Write(bytes) => keys.write(layout, offset, bytes),
            What::Cas(..) => keys.cas(layout, offset),
            What::Probe => keys.read(layout, offset, 8),
        }
    }

    /// An operation in the device's form.
    fn work(&self, slot: Slot, signal: bool, layout: &Layout, ops: &Ops) -> Result<Work<'static>, PostError> {
        let what = ops.what(slot);
        let there = self.target(layout, what, ops.offset(slot)).ok_or(PostError(libc::EACCES))?;
        let here = ops.local(slot);
        let verb = match what {
            What::Read(_) | What::Probe => Verb::Read(here),
            What::Cas(expected, desired) => Verb::Cas { found: here, expected, desired },
            // Inline, so that the device need not fetch it.
            What::Write(bytes) if bytes <= INLINE_BYTES.min(self.pair.inline_bytes()) => {
                Verb::WriteCopied(here)
            }
            What::Write(_) => Verb::Write(here),
        };
        Ok(Work { id: ops.id(slot), verb, there, signal })
    }

    fn to(&self) -> To<'_> {
        To { handle: &self.handle, number: self.welcome.queue_pair, qkey: self.welcome.qkey }
    }
}

/// The link error for a failed completion.
pub(crate) const fn error_of(status: Status) -> LinkError {
    match status {
        Status::REMOTE_ACCESS | Status::REMOTE_INVALID => LinkError::Denied,
        _ => LinkError::PeerDead,
    }
}

/// The link error for a failed connection.
pub(crate) const fn error_of_cause(cause: &Cause) -> LinkError {
    match cause {
        Cause::Refused(Refusal::Generation { .. } | Refusal::Elsewhere { .. }) => LinkError::PeerReplaced,
        Cause::Refused(_) => LinkError::Denied,
        Cause::Silent(_) | Cause::Ended => LinkError::PeerDead,
    }
}
