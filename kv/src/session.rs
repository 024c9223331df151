//! A client's session with the servers of one shard: requests go into the primary's memory, answers
//! arrive in own memory, and unanswered requests are resent.

use crate::answer::{ANSWER_BYTES, Answer};
use crate::area::{Area, Block, WINDOW};
use crate::entry::{Entry, Kind};
use crate::operation::{Done, Operation};
use crate::tokens::{Part, WAKEUP, token};
use obol_fabric::sealed;
use obol_fabric::{Address, Fabric, Incarnation, Instant, Nanos, Remote};
use std::collections::VecDeque;

/// Retry intervals grow up to this factor: resending does not help a network or primary that is
/// overloaded.
const RETRY_FACTOR_MAX: u64 = 32;

/// How clients send and retry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryPolicy {
    /// Distinguishes this client's requests from those of another in the same block. Random, never
    /// zero.
    pub(crate) id: u64,
    /// It sleeps while it waits, and so may the primary.
    pub(crate) wakes: bool,
    pub(crate) retry_every: Nanos,
}

struct PendingRequest {
    number: u64,
    /// When it was first sent to this primary.
    at: Instant,
    /// The client's number of the operation.
    operation_number: u64,
    operation: Operation,
    done: bool,
}

/// The primary of a shard, as its client needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PrimaryServer {
    pub(crate) who: Incarnation,
    pub(crate) at: Address,
    /// Where the client writes its requests there.
    pub(crate) block: Block,
}

/// A session with the primaries of a shard, one after the other. A primary executes its requests in
/// order.
pub(crate) struct Session {
    area: Area,
    retry: RetryPolicy,
    primary: Option<PrimaryServer>,
    /// The primary has received the session's head.
    is_begun: bool,
    /// Answer latency, including requests that were resent.
    latency: Nanos,
    /// Retry interval, which grows with each unanswered retry.
    retry_in: Nanos,
    retry_at: Instant,
    session: u64,
    next: u64,
    /// Outstanding requests.
    open: usize,
    pending: VecDeque<PendingRequest>,
    /// Buffer for what is being written or read.
    bytes: Vec<u8>,
}

impl Session {
    /// With the servers of this area's shard.
    pub(crate) fn new(area: Area, retry: RetryPolicy) -> Self {
        Self {
            area,
            retry,
            primary: None,
            is_begun: false,
            latency: Nanos::ZERO,
            retry_in: retry.retry_every,
            retry_at: Instant::NEVER,
            session: 1,
            next: 1,
            open: 0,
            pending: VecDeque::with_capacity(WINDOW as usize),
            bytes: Vec::new(),
        }
    }

    pub(crate) fn begin<F: Fabric>(
        &mut self,
        now: Instant,
        operation_number: u64,
        operation: Operation,
        fabric: &mut F,
    ) {
        assert!(!self.is_busy(), "checked by the caller");
        let number = self.next;
        self.next += 1;
        self.pending.push_back(PendingRequest { number, at: now, operation_number, operation, done: false });
        self.open += 1;
        assert!(self.pending.len() as u64 <= WINDOW && self.open <= self.pending.len());
        self.retry_at = self.retry_at.min(now + self.retry_first());
        self.write(number, fabric);
        if !self.is_begun {
            self.write_head(fabric);
        }
        self.wake_primary(fabric);
    }

    /// Whether the oldest outstanding operation is [`WINDOW`] operations old.
    pub(crate) fn is_busy(&self) -> bool {
        self.pending.front().is_some_and(|oldest| self.next - oldest.number >= WINDOW)
    }

    pub(crate) fn primary(&self) -> Option<Incarnation> {
        self.primary.map(|primary| primary.who)
    }

    pub(crate) const fn open(&self) -> usize {
        self.open
    }

    /// When the next retry is due.
    pub(crate) const fn retry_at(&self) -> Instant {
        self.retry_at
    }

    /// Sends all outstanding requests to another primary, or to another block of the same one.
    pub(crate) fn connect<F: Fabric>(
        &mut self,
        now: Instant,
        primary: Option<PrimaryServer>,
        anew: bool,
        fabric: &mut F,
    ) {
        if anew || primary != self.primary {
            (self.primary, self.is_begun) = (primary, false);
            self.retry_in = self.retry_first();
            for request in &mut self.pending {
                request.at = now;
            }
            self.retry_pending(now, fabric);
        }
    }

    /// Polls for answers in own memory; returns whether there were any. An answer to a request that
    /// is answered already is ignored.
    pub(crate) fn poll<F: Fabric>(
        &mut self,
        now: Instant,
        ended: &mut VecDeque<Done>,
        shard: u32,
        fabric: &F,
    ) -> bool {
        let before = self.open;
        for request in self.pending.iter_mut().filter(|request| !request.done) {
            let Some(place) = fabric.own(self.area.answer(request.number), ANSWER_BYTES) else { break };
            let answer = Answer::decode(place, request.number, &mut self.bytes);
            if let Some(answer) = answer.filter(|answer| answer.client == self.retry.id) {
                request.done = true;
                self.open -= 1;
                self.latency = Nanos((self.latency.0 * 7 + now.since(request.at).0) / 8);
                let (status, value) = (answer.status, answer.value.into());
                ended.push_back(Done { number: request.operation_number, shard, status, value });
            }
        }
        while self.pending.front().is_some_and(|request| request.done) {
            self.pending.pop_front();
        }
        assert!(self.open <= self.pending.len(), "what is open is pending");
        let any = self.open < before;
        if any {
            // The others are outstanding.
            self.retry_in = self.retry_first();
            self.retry_at = if self.pending.is_empty() { Instant::NEVER } else { now + self.retry_in };
        }
        any
    }

    /// The first retry interval: above the observed latency, or every request would be sent twice
    /// over a slow (for instance emulated) network.
    fn retry_first(&self) -> Nanos {
        self.latency.saturating_mul(2).clamp(self.retry.retry_every, self.retry_max())
    }

    /// The longest retry interval.
    fn retry_max(&self) -> Nanos {
        self.retry.retry_every.saturating_mul(RETRY_FACTOR_MAX)
    }

    pub(crate) fn retry_pending<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        let Some(first) = self.pending.front().map(|request| request.number) else {
            self.retry_at = Instant::NEVER;
            return;
        };
        self.retry_at = now + self.retry_in;
        self.retry_in = self.retry_in.saturating_mul(2).min(self.retry_max());
        for number in first..self.next {
            self.write(number, fabric);
        }
        self.write_head(fabric);
        self.wake_primary(fabric);
    }

    fn wake_primary<F: Fabric>(&self, fabric: &mut F) {
        if let Some(primary) = self.primary.filter(|_| self.retry.wakes) {
            fabric.send(primary.at.owner(), WAKEUP);
        }
    }

    /// Writes a request into the primary's memory.
    fn write<F: Fabric>(&mut self, number: u64, fabric: &mut F) {
        let Some(PrimaryServer { at, block, .. }) = self.primary else { return };
        // Numbers are consecutive.
        let first = self.pending.front().map_or(number, |request| request.number);
        let Some(request) = self.pending.get((number - first) as usize) else { return };
        assert_eq!(request.number, number, "an operation for each number");
        let (kind, key, value) = match &request.operation {
            Operation::Get(key) => (Kind::Get, *key, &[][..]),
            Operation::Put(key, value) => (Kind::Put, *key, &value[..]),
        };
        let client = self.retry.id;
        Entry { number, kind, key, client, request: number, value }.encode(&mut self.bytes);
        let to = Remote { at, offset: self.area.request(block, number) };
        fabric.write_unsignaled(to, &self.bytes, token(Part::Send, 0));
    }

    /// Writes the session's head, after the requests on the same link, so that it arrives after
    /// them.
    fn write_head<F: Fabric>(&mut self, fabric: &mut F) {
        let Some(PrimaryServer { at, block, .. }) = self.primary else { return };
        self.is_begun = true;
        self.session += 1;
        let first = self.pending.front().map_or(self.next, |request| request.number);
        sealed::seal([self.retry.id, first, self.session, u64::from(self.retry.wakes)], &mut self.bytes);
        let to = Remote { at, offset: self.area.head(block) };
        fabric.write_unsignaled(to, &self.bytes, token(Part::Send, 0));
    }
}
