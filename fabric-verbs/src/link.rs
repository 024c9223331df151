//! A link to a peer: its queue pair, the posted operations in order, and the queued ones.
//!
//! A peer that keeps a log has a second queue pair for WRITEs into it, because one that is refused
//! breaks its queue pair. Operations are executed in the order of the posts nevertheless: one for the
//! other queue pair waits here until all before it have completed.

use super::connector::Cause;
use super::datagrams::Datagrams;
use super::exposed::Plane;
use super::handshake::{Refusal, Welcome};
use super::ops::{Ops, Slot, What};
use super::pair::{AddressHandle, QueuePair};
use super::post::{To, Verb, Work};
use super::queue::{PostError, Status};
use super::registration::Target;
use obol_fabric::contract::{LinkError, Token};
use obol_fabric::endpoint::Reconnect;
use obol_fabric::layout::Layout;
use obol_fabric::types::Instant;
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
struct Connection {
    pair: QueuePair,
    welcome: Welcome,
    handle: AddressHandle,
}

/// A queue pair that is given up, and the operations on it that the device may still execute.
#[derive(Debug)]
pub(crate) struct Abandoned {
    pub(crate) attempt: u64,
    pub(crate) pair: QueuePair,
    pub(crate) slots: Vec<Slot>,
}

#[derive(Debug)]
pub(crate) struct Link {
    region: u32,
    pub(crate) to: SocketAddr,
    /// The generation of the last connected owner of the region; 0 if there never was one.
    pub(crate) generation: u32,
    layout: Layout,
    connection: Reconnect<Box<Connection>>,
    /// That for WRITEs into the peer's log.
    log: Reconnect<QueuePair>,
    /// The connection of all that is posted to the device.
    current: Plane,
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
    /// Why there is no connection.
    trouble: Option<Cause>,
}

/// The result of posting an item to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PostOutcome {
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
            connection: Reconnect::default(),
            log: Reconnect::default(),
            current: Plane::Common,
            under_way: VecDeque::with_capacity(DEPTH as usize * 2),
            posted: 0,
            ended: 0,
            seen: None,
            probes: 0,
            held: None,
            waiting: VecDeque::new(),
            trouble: None,
        }
    }

    pub(crate) const fn is_up(&self) -> bool {
        self.connection.up().is_some()
    }

    /// Whether a connection should be requested now.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.connection.is_due(now)
    }

    /// The attempt to connect, or the one that has succeeded.
    pub(crate) const fn attempt(&self) -> Option<u64> {
        self.connection.attempt()
    }

    /// The attempt to connect to the log, or the one that has succeeded.
    pub(crate) const fn log_attempt(&self) -> Option<u64> {
        self.log.attempt()
    }

    /// Whether a connection to the log should be requested now: an operation waits for it, or `keeps`
    /// is set.
    pub(crate) fn wants_log(&self, keeps: bool, now: impl FnOnce() -> Instant) -> bool {
        let (Some(connection), Some(from)) = (self.connection.up(), self.log.retry_at()) else {
            return false;
        };
        let awaits = |job: &Job| match job {
            Job::Op { what, offset, .. } => connection.plane(*what, *offset) == Plane::Log,
            Job::Failed(..) | Job::Datagram(_) => false,
        };
        let is_wanted =
            keeps && connection.welcome.keys.log.is_some() || self.waiting.front().is_some_and(awaits);
        is_wanted && from <= now()
    }

    /// Whether it is connected to the peer's log, if the peer is known to keep one.
    pub(crate) fn log_status(&self) -> Option<bool> {
        self.connection.up()?.welcome.keys.log.map(|_| self.log.up().is_some())
    }

    /// Records that a connection to the log was requested.
    pub(crate) fn connecting_log(&mut self, attempt: u64) {
        self.log.begin(attempt);
    }

    /// Whether the operations under way are WRITEs into the log.
    pub(crate) fn is_on_log(&self) -> bool {
        self.posted > 0 && self.current == Plane::Log
    }

    pub(crate) const fn trouble(&self) -> Option<&Cause> {
        self.trouble.as_ref()
    }

    /// Records that a connection was requested.
    pub(crate) fn connecting(&mut self, attempt: u64) {
        self.connection.begin(attempt);
    }

    /// Whether the peer gave no key for this, so that it fails without an attempt.
    fn is_denied(&self, what: What, offset: u32) -> bool {
        self.connection.up().is_some_and(|up| up.target(&self.layout, what, offset, Plane::Common).is_none())
    }

    fn plane(&self, what: What, offset: u32) -> Plane {
        self.connection.up().map_or(Plane::Common, |up| up.plane(what, offset))
    }

    /// Whether the device can take an operation now.
    fn may_post(&self, what: What, offset: u32) -> bool {
        let plane = self.plane(what, offset);
        let is_up = match plane {
            Plane::Common => self.is_up(),
            Plane::Log => self.log.up().is_some(),
        };
        is_up && self.posted < DEPTH && (self.posted == 0 || plane == self.current)
    }

    /// Whether there is no connection for an operation, and no attempt is due.
    fn backs_off(&self, what: What, offset: u32, now: impl FnOnce() -> Instant) -> bool {
        let from = match self.connection.up() {
            Some(up) if up.plane(what, offset) == Plane::Log => self.log.retry_at(),
            _ => self.connection.retry_at(),
        };
        from.is_some_and(|from| from > now())
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
        if self.waiting.is_empty()
            && self.may_post(what, offset)
            && let Some(slot) = ops.start(self.region, token, what, offset, payload)
        {
            self.submit(slot, ops)?;
            return Ok(PostOutcome::Accepted);
        }
        if self.backs_off(what, offset, now) || self.waiting.len() >= WAITING_MAX {
            return Ok(PostOutcome::Refused);
        }
        self.waiting.push_back(Job::Op { token, what, offset, payload: payload.to_vec() });
        Ok(self.queued())
    }

    /// The result of queuing an item.
    const fn queued(&self) -> PostOutcome {
        if self.connection.retry_at().is_some() { PostOutcome::Connect } else { PostOutcome::Accepted }
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
        let backs_off = self.connection.retry_at().is_some_and(|from| from > now);
        if backs_off || self.waiting.len() >= WAITING_DATAGRAMS_MAX {
            return PostOutcome::Refused;
        }
        self.waiting.push_back(Job::Datagram(bytes.to_vec()));
        self.queued()
    }

    /// Sends a datagram. `false` if it is lost.
    pub(crate) fn send(&self, bytes: &[u8], datagrams: &mut Datagrams) -> bool {
        self.connection.up().is_some_and(|up| datagrams.send(&up.to(), bytes))
    }

    fn submit(&mut self, slot: Slot, ops: &Ops) -> Result<(), PostError> {
        let what = ops.what(slot);
        if what != What::Probe {
            // A probe is sent behind the rest.
            self.current = self.plane(what, ops.offset(slot));
        }
        self.under_way.push_back(Entry::Op(slot));
        self.posted += 1;
        assert!(self.posted <= DEPTH, "the device has room for what is posted");
        assert!(self.posted as usize <= self.under_way.len(), "what is posted is under way");
        let write = self.held.take();
        if matches!(what, What::Write(_)) {
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
        let (pair, there) = (self.pair()?, self.target(slot, ops)?);
        pair.post(&work(pair, slot, there, signal, ops))
    }

    /// Posts a WRITE and its successor, whose completion covers both.
    fn post_both(&self, write: Slot, behind: Slot, ops: &Ops) -> Result<(), PostError> {
        let pair = self.pair()?;
        let first = work(pair, write, self.target(write, ops)?, false, ops);
        let second = work(pair, behind, self.target(behind, ops)?, true, ops);
        pair.post_both(&first, &second)
    }

    /// The queue pair of what is under way.
    fn pair(&self) -> Result<&QueuePair, PostError> {
        let pair = match self.current {
            Plane::Common => self.connection.up().map(|up| &up.pair),
            Plane::Log => self.log.up(),
        };
        pair.ok_or(PostError(libc::ENOTCONN))
    }

    fn target(&self, slot: Slot, ops: &Ops) -> Result<Target, PostError> {
        let up = self.connection.up().ok_or(PostError(libc::ENOTCONN))?;
        let target = up.target(&self.layout, ops.what(slot), ops.offset(slot), self.current);
        target.ok_or(PostError(libc::EACCES))
    }

    /// An operation succeeded, and so did all posted before it.
    pub(crate) fn ended(&mut self, slot: Slot, ops: &mut Ops) {
        while let Some(entry) = self.under_way.pop_front() {
            match entry {
                Entry::Op(one) => {
                    assert!(self.posted > 0 && self.held != Some(one), "only what was posted ends");
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
        assert!(self.posted as usize <= self.under_way.len(), "what is posted is under way");
    }

    /// Posts queued items, as far as the device has room.
    pub(crate) fn pump(&mut self, ops: &mut Ops, datagrams: &mut Datagrams) -> Result<(), PostError> {
        while let (Some(up), Some(job)) = (self.connection.up(), self.waiting.front()) {
            match job {
                Job::Op { token, what, offset, .. } if self.is_denied(*what, *offset) => {
                    let token = *token;
                    self.waiting.pop_front();
                    self.fail_in_order(token, LinkError::Denied, ops);
                }
                Job::Op { token, what, offset, payload } => {
                    if !self.may_post(*what, *offset) {
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
                    let _ = datagrams.send(&up.to(), bytes);
                    self.waiting.pop_front();
                }
            }
        }
        Ok(())
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether there are failures that are reported after what is under way.
    pub(crate) fn has_failures(&self) -> bool {
        self.waiting.iter().any(|job| matches!(job, Job::Failed(..)))
    }

    /// The connection is established.
    pub(crate) fn up(&mut self, attempt: u64, pair: QueuePair, welcome: Welcome, handle: AddressHandle) {
        self.generation = welcome.generation;
        self.trouble = None;
        self.connection.established(attempt, Box::new(Connection { pair, welcome, handle }));
    }

    /// Fails what is under way: `first`, if given, with its own error, all others with `error`.
    /// Returns the operations that the device may still execute.
    fn give_up(&mut self, first: Option<(Slot, LinkError)>, error: LinkError, ops: &mut Ops) -> Vec<Slot> {
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
        (self.posted, self.held, self.seen, self.probes) = (0, None, None, 0);
        left
    }

    /// The connection to the log is established.
    pub(crate) fn log_up(&mut self, attempt: u64, pair: QueuePair) {
        self.log.established(attempt, pair);
    }

    /// There is no connection to the log (any more). WRITEs on it fail with this error; so does what is
    /// queued, in its turn, unless a refusal by the peer says only of those that they are not allowed.
    /// READs go on: they change nothing, and a READ that fails says that the peer is dead. Returns the
    /// connection, and whether anything fails that is not said to be denied.
    pub(crate) fn log_down(
        &mut self,
        error: LinkError,
        now: Instant,
        ops: &mut Ops,
    ) -> (Option<Abandoned>, bool) {
        let is_denied = error == LinkError::Denied;
        let mut fails = self.is_on_log();
        let slots = if fails { self.give_up(None, error, ops) } else { Vec::new() };
        let abandoned = self.log.lose(now).map(|(attempt, pair)| Abandoned { attempt, pair, slots });
        let Self { waiting, connection, .. } = self;
        for job in waiting {
            let Job::Op { token, what, offset, .. } = job else { continue };
            let is_of_log = connection.up().is_some_and(|up| up.plane(*what, *offset) == Plane::Log);
            let is_lost = !is_denied && !matches!(what, What::Read(_));
            if is_lost || is_of_log && abandoned.is_none() {
                *job = Job::Failed(*token, error);
                fails = true;
            }
        }
        (abandoned, fails && !is_denied)
    }

    /// There is no connection (any more). Pending and queued operations fail: `first`, if given,
    /// with its own error, all others with `error`. Returns the connections.
    pub(crate) fn down(
        &mut self,
        cause: Cause,
        first: Option<(Slot, LinkError)>,
        error: LinkError,
        now: Instant,
        ops: &mut Ops,
    ) -> Vec<Abandoned> {
        let was_on_log = self.is_on_log();
        let mut left = self.give_up(first, error, ops);
        for job in self.waiting.drain(..) {
            match job {
                Job::Op { token, .. } => ops.refuse(token, error),
                Job::Failed(token, error) => ops.refuse(token, error),
                Job::Datagram(_) => {}
            }
        }
        let mut abandoned = Vec::new();
        if let Some((attempt, pair)) = self.log.give_up(now) {
            let slots = if was_on_log { core::mem::take(&mut left) } else { Vec::new() };
            abandoned.push(Abandoned { attempt, pair, slots });
        }
        self.trouble = Some(cause);
        if let Some((attempt, connection)) = self.connection.lose(now) {
            abandoned.push(Abandoned { attempt, pair: connection.pair, slots: left });
        }
        abandoned
    }

    /// Resets the back-off: the peer is known to be reachable.
    pub(crate) fn reset_back_off(&mut self) {
        self.connection.hurry();
    }
}

impl Connection {
    /// The target of an operation, as addressed by the peer's device; `None` if the peer gave no
    /// key for it. A probe has that of the probed connection.
    fn target(&self, layout: &Layout, what: What, offset: u32, probed: Plane) -> Option<Target> {
        let keys = &self.welcome.keys;
        match what {
            What::Read(bytes) => keys.read(layout, offset, bytes),
            What::Write(bytes) => keys.write(layout, offset, bytes),
            What::Cas(..) => keys.cas(layout, offset),
            What::Probe => keys.probe(probed),
        }
    }

    /// The connection for an operation.
    fn plane(&self, what: What, offset: u32) -> Plane {
        match what {
            What::Write(bytes) => self.welcome.keys.plane_of_write(offset, bytes),
            What::Read(_) | What::Cas(..) | What::Probe => Plane::Common,
        }
    }

    fn to(&self) -> To<'_> {
        To { handle: &self.handle, number: self.welcome.queue_pair, qkey: self.welcome.qkey }
    }
}

/// An operation in the device's form.
fn work(pair: &QueuePair, slot: Slot, there: Target, signal: bool, ops: &Ops) -> Work<'static> {
    let here = ops.local(slot);
    let verb = match ops.what(slot) {
        What::Read(_) | What::Probe => Verb::Read(here),
        What::Cas(expected, desired) => Verb::Cas { found: here, expected, desired },
        // Inline, so that the device need not fetch it.
        What::Write(bytes) if bytes <= INLINE_BYTES.min(pair.inline_bytes()) => Verb::WriteCopied(here),
        What::Write(_) => Verb::Write(here),
    };
    Work { id: ops.id(slot), verb, there, signal }
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
