//! A client's conversation with the servers of one shard: requests go into the primary's memory,
//! answers come into the own, and what has none is asked for again.

use crate::answer::{ANSWER_BYTES, Answer};
use crate::area::{Area, Block, WINDOW};
use crate::client::{Done, Operation};
use crate::entry::{Entry, Kind};
use crate::node::RING;
use crate::server::{Part, token};
use crate::words;
use obol_fabric::{Address, Fabric, Incarnation, Instant, Nanos, Remote};
use std::collections::VecDeque;

/// A client asks again at last only so many times more rarely than at first: a network or a primary
/// that is behind does not catch up with what is sent twice.
const AGAIN_TIMES_MAX: u64 = 32;

/// How clients ask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryPolicy {
    /// Tells this client's requests from those of another in the same place. Drawn at random, never
    /// zero.
    pub(crate) id: u64,
    /// It sleeps while it waits, and so may the primary.
    pub(crate) rings: bool,
    pub(crate) again_every: Nanos,
}

struct PendingRequest {
    number: u64,
    /// When this primary was asked for the first time.
    at: Instant,
    /// As the client counts them.
    operation_number: u64,
    operation: Operation,
    done: bool,
}

/// Who answers a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PrimaryServer {
    pub(crate) who: Incarnation,
    pub(crate) at: Address,
    /// Where the client writes its requests there.
    pub(crate) block: Block,
}

/// A conversation with the primaries of a shard, one after the other. The primary executes what is
/// asked in order.
pub(crate) struct Session {
    area: Area,
    retry: RetryPolicy,
    primary: Option<PrimaryServer>,
    /// The primary was told where the conversation begins.
    is_begun: bool,
    /// How long answers take, those that had to be asked for again included.
    usual: Nanos,
    /// After how long without an answer it asks again: longer each time in vain.
    again_in: Nanos,
    again_at: Instant,
    again: u64,
    next: u64,
    /// How many have no answer.
    open: usize,
    pending: VecDeque<PendingRequest>,
    /// What is being written or read.
    bytes: Vec<u8>,
}

impl Session {
    /// With the servers of the shard that this is the area of.
    pub(crate) fn new(area: Area, retry: RetryPolicy) -> Self {
        Self {
            area,
            retry,
            primary: None,
            is_begun: false,
            usual: Nanos::ZERO,
            again_in: retry.again_every,
            again_at: Instant::NEVER,
            again: 1,
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
        debug_assert!(!self.is_busy(), "checked where it was taken");
        let number = self.next;
        self.next += 1;
        self.pending.push_back(PendingRequest { number, at: now, operation_number, operation, done: false });
        self.open += 1;
        self.again_at = self.again_at.min(now + self.patience());
        self.write(number, fabric);
        if !self.is_begun {
            self.write_head(fabric);
        }
        self.ring(fabric);
    }

    /// Whether the oldest operation that waits for its answer is [`WINDOW`] operations old.
    pub(crate) fn is_busy(&self) -> bool {
        self.pending.front().is_some_and(|oldest| self.next - oldest.number >= WINDOW)
    }

    pub(crate) fn primary(&self) -> Option<Incarnation> {
        self.primary.map(|primary| primary.who)
    }

    pub(crate) const fn open(&self) -> usize {
        self.open
    }

    /// When it asks again.
    pub(crate) const fn again_at(&self) -> Instant {
        self.again_at
    }

    /// Another primary, or the same one in another block, is asked everything that has no answer.
    pub(crate) fn turn_to<F: Fabric>(
        &mut self,
        now: Instant,
        primary: Option<PrimaryServer>,
        anew: bool,
        fabric: &mut F,
    ) {
        if anew || primary != self.primary {
            (self.primary, self.is_begun) = (primary, false);
            self.again_in = self.patience();
            for request in &mut self.pending {
                request.at = now;
            }
            self.ask_again(now, fabric);
        }
    }

    /// Looks for answers in the own memory; tells whether there were any. An answer may be one to a
    /// request that had one already.
    pub(crate) fn look<F: Fabric>(
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
                self.usual = Nanos((self.usual.0 * 7 + now.since(request.at).0) / 8);
                let (status, value) = (answer.status, answer.value.into());
                ended.push_back(Done { number: request.operation_number, shard, status, value });
            }
        }
        while self.pending.front().is_some_and(|request| request.done) {
            self.pending.pop_front();
        }
        let any = self.open < before;
        if any {
            // The others are on the way.
            self.again_in = self.patience();
            self.again_at = if self.pending.is_empty() { Instant::NEVER } else { now + self.again_in };
        }
        any
    }

    /// How long it waits before it asks again for the first time. Where answers take longer than
    /// that, as over an emulated network, it would ask for each of them twice.
    fn patience(&self) -> Nanos {
        self.usual.saturating_mul(2).clamp(self.retry.again_every, self.longest())
    }

    /// How long it waits at last.
    fn longest(&self) -> Nanos {
        self.retry.again_every.saturating_mul(AGAIN_TIMES_MAX)
    }

    pub(crate) fn ask_again<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        let Some(first) = self.pending.front().map(|request| request.number) else {
            self.again_at = Instant::NEVER;
            return;
        };
        self.again_at = now + self.again_in;
        self.again_in = self.again_in.saturating_mul(2).min(self.longest());
        for number in first..self.next {
            self.write(number, fabric);
        }
        self.write_head(fabric);
        self.ring(fabric);
    }

    fn ring<F: Fabric>(&self, fabric: &mut F) {
        if let Some(primary) = self.primary.filter(|_| self.retry.rings) {
            fabric.send(primary.at.owner(), RING);
        }
    }

    /// Writes a request into the primary's memory.
    fn write<F: Fabric>(&mut self, number: u64, fabric: &mut F) {
        let Some(PrimaryServer { at, block, .. }) = self.primary else { return };
        // Their numbers follow each other.
        let first = self.pending.front().map_or(number, |request| request.number);
        let Some(request) = self.pending.get((number - first) as usize) else { return };
        debug_assert_eq!(request.number, number, "an operation for each number");
        let (kind, key, value) = match &request.operation {
            Operation::Get(key) => (Kind::Get, *key, &[][..]),
            Operation::Put(key, value) => (Kind::Put, *key, &value[..]),
        };
        let client = self.retry.id;
        Entry { number, kind, key, client, request: number, value }.encode(&mut self.bytes);
        let to = Remote { at, offset: self.area.request(block, number) };
        fabric.write_unsignaled(to, &self.bytes, token(Part::Send, 0));
    }

    /// Tells the primary where the conversation begins. After the requests, on the same link: so it
    /// comes after them.
    fn write_head<F: Fabric>(&mut self, fabric: &mut F) {
        let Some(PrimaryServer { at, block, .. }) = self.primary else { return };
        self.is_begun = true;
        self.again += 1;
        let first = self.pending.front().map_or(self.next, |request| request.number);
        words::seal([self.retry.id, first, self.again, u64::from(self.retry.rings)], &mut self.bytes);
        let to = Remote { at, offset: self.area.head(block) };
        fabric.write_unsignaled(to, &self.bytes, token(Part::Send, 0));
    }
}
