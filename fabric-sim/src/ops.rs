//! The life of a one-sided operation: posting, transport, execution at its target, the answer, and
//! all failures.

use super::core::Core;
use super::link::{Op, Outcome, Phase, Verb};
use super::node::State;
use super::queue::Pending;
use core::sync::atomic::Ordering;
use obol_fabric::contract::{LinkError, Remote, Token};
use obol_fabric::memory;
use std::sync::Arc;

/// What to post.
pub(super) enum Order<'a> {
    Read(u32),
    Write(&'a [u8]),
    Cas(u64, u64),
}

/// A generation that no process has.
const NO_GENERATION: u32 = u32::MAX;

/// The minimum length of READs whose results are shared, and of buffers that are not kept for
/// reuse.
const SHARED_MIN: usize = 16 * 1024;
/// The last result, to be shared.
const SNAPSHOTS_MAX: usize = 4;

impl Core {
    /// Posts an operation that leaves its node at `departs`.
    pub(super) fn post(&mut self, source: u32, at: Remote, order: &Order<'_>, token: Token, departs: u64) {
        let known = (at.at.region as usize) < self.nodes.len();
        // A region that never had an owner answers like one with another owner.
        let (target, seat, generation) =
            if known { (at.at.region, at.at.seat, at.at.generation) } else { (source, 0, NO_GENERATION) };
        let (verb, len, expected, word) = match *order {
            Order::Read(len) => (Verb::Read, len, 0, 0),
            Order::Write(bytes) => {
                let word = bytes.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
                (Verb::Write, bytes.len() as u32, 0, word)
            }
            Order::Cas(expected, desired) => (Verb::Cas, 8, expected, desired),
        };
        let long = len > 8;
        let (gap, split, backwards) = if long {
            let words = u64::from(len.div_ceil(8));
            let split = 8 * (1 + self.rng.below(words - 1)) as u32;
            (self.network.tear.draw(&mut self.rng).max(1), split, self.rng.coin())
        } else {
            (0, 0, false)
        };
        let life = self.nodes[source as usize].generation;
        let present = self.nodes[target as usize].generation;
        let id = self.ops.take();
        let link = self.links.at(source, target);
        if link.connection == 0 || link.outstanding.is_empty() && !link.broken {
            link.connection = present;
        }
        let connection = link.connection;
        link.outstanding.push_back(id);
        let mut bytes = core::mem::take(&mut self.ops[id].bytes);
        bytes.clear();
        if let (true, Order::Write(from)) = (long, order) {
            bytes.extend_from_slice(from);
        }
        self.ops[id] = Op {
            source,
            life,
            target,
            connection,
            seat,
            generation,
            verb,
            offset: at.offset,
            len,
            token: token.0,
            expected,
            word,
            bytes,
            departs,
            gap,
            split,
            backwards,
            refs: 1,
            ..Op::default()
        };
        if self.link(source, target).broken {
            self.ops[id].void = true;
            self.ops[id].outcome = Outcome::Failed(LinkError::PeerDead);
            self.complete_at(id, departs + 1);
        } else if self.is_blocked(source, target) {
            self.ops[id].phase = Phase::Stuck;
            self.link(source, target).stuck.push(id);
            self.time_link(source, target);
        } else {
            self.launch(id, departs);
        }
    }

    /// Whether one node cannot connect to another.
    pub(super) fn is_refused(&self, source: u32, target: u32) -> bool {
        self.nodes[source as usize].refused_by.contains(&target)
    }

    /// Whether neither an operation nor a datagram gets to its target.
    pub(super) fn is_blocked(&self, source: u32, target: u32) -> bool {
        let closed = source != target && self.nodes[target as usize].closed;
        closed || self.links.is_cut(source, target) || self.is_refused(source, target)
    }

    /// Sends an operation on its way.
    fn launch(&mut self, id: u32, departs: u64) {
        let op = &self.ops[id];
        let (source, target, gap) = (op.source, op.target, op.gap);
        let carried = if op.verb == Verb::Write { op.len } else { 0 };
        let arrives = match &self.model {
            None => departs + self.travel(source, target, carried),
            Some(model) => {
                let cost = model.cost(op.verb, op.len);
                let both = cost.latency.draw(&mut self.rng);
                let there = both / 2 + model.carry(cost, carried);
                self.ops[id].back = both - both / 2;
                self.transit(source, target, departs, there, carried)
            }
        };
        let link = self.links.at(source, target);
        let arrives = arrives.saturating_add(link.degraded.delay).max(link.last_arrival);
        // Later operations wait for the second half.
        link.last_arrival = if gap > 0 { arrives + gap + 1 } else { arrives };
        let op = &mut self.ops[id];
        op.phase = Phase::Flying;
        op.refs += 1;
        self.queue.push(arrives, Pending::Arrive(id));
    }

    /// Whether the posting process still exists, so that it can get an answer.
    fn is_awaited(&self, id: u32) -> bool {
        let op = &self.ops[id];
        self.nodes[op.source as usize].lives(op.life)
    }

    /// An operation reaches its target.
    pub(super) fn arrive(&mut self, id: u32) {
        let op = &self.ops[id];
        let failed = op.outcome != Outcome::Open;
        let node = &self.nodes[op.target as usize];
        let outlives = self.network.pages_outlive && op.seat != 0 && node.state == State::Dead;
        let connected = node.lives(op.connection) || outlives && node.seat_lives(op.seat, op.generation);
        let replaced = op.generation != 0
            && if op.seat == 0 {
                op.generation != node.generation
            } else {
                node.state != State::Dead && !node.seat_holds(op.seat, op.generation)
            };
        let aligned = op.verb != Verb::Write || op.len.is_multiple_of(8);
        let whole = aligned && memory::span(&node.memory, op.offset, op.len as usize).is_some();
        if op.void {
            // Its link broke, or its poster died, before it could be executed.
        } else if replaced {
            self.answer(id, Outcome::Failed(LinkError::PeerReplaced));
        } else if !connected {
            self.fail(id, LinkError::PeerDead);
        } else if !whole {
            self.fail(id, LinkError::OutOfBounds);
        } else if self.is_revoked(id) {
            self.fail(id, LinkError::Denied);
        } else {
            if self.ops[id].verb == Verb::Read && self.ops[id].offset < self.layout.view() {
                self.beat(self.ops[id].target);
            }
            if self.ops[id].gap > 0 {
                self.execute_half(id, true);
                let op = &mut self.ops[id];
                op.refs += 1;
                self.adverse_events.torn += 1;
                self.queue.push(self.now + op.gap, Pending::Rest(id));
            } else {
                self.execute_word(id);
                if !failed {
                    self.answer(id, Outcome::Done);
                }
            }
        }
        self.release(id);
    }

    /// The second half of a long operation is due.
    pub(super) fn arrive_rest(&mut self, id: u32) {
        let op = &self.ops[id];
        if !op.void {
            if !self.nodes[op.target as usize].lives(op.connection) {
                self.fail(id, LinkError::PeerDead);
            } else if self.is_revoked(id) {
                self.fail(id, LinkError::Denied);
            } else {
                let failed = op.outcome != Outcome::Open;
                self.execute_half(id, false);
                self.share(id);
                if !failed {
                    self.answer(id, Outcome::Done);
                }
            }
        }
        self.release(id);
    }

    fn execute_word(&mut self, id: u32) {
        let op = &mut self.ops[id];
        let memory = &self.nodes[op.target as usize].memory;
        let Some(word) = memory.get(op.offset as usize / 8) else { return };
        match op.verb {
            Verb::Read => op.word = word.load(Ordering::Acquire),
            Verb::Write if op.len > 0 => word.store(op.word, Ordering::Release),
            Verb::Write => {}
            Verb::Cas => {
                let found = word.load(Ordering::Acquire);
                if found == op.expected {
                    word.store(op.word, Ordering::Release);
                }
                op.word = found;
            }
        }
        let digest = op.word ^ op.token;
        self.mix(digest);
    }

    fn execute_half(&mut self, id: u32, first: bool) {
        let op = &mut self.ops[id];
        let memory = &self.nodes[op.target as usize].memory;
        let Some(span) = memory::span(memory, op.offset, op.len as usize) else { return };
        let (len, split) = (op.len as usize, op.split as usize);
        let part = if first == op.backwards { split..len } else { 0..split };
        let words = &span[part.start / 8..part.end.div_ceil(8)];
        if op.verb == Verb::Write {
            memory::copy_in(words, &op.bytes[part]);
        } else {
            op.bytes.resize(len, 0);
            memory::copy_out(words, &mut op.bytes[part]);
        }
        let digest = op.token ^ op.bytes.first_chunk().map_or(0, |c| u64::from_le_bytes(*c));
        self.mix(digest);
    }

    /// Shares the result of a long READ among all readers: thousands may fetch a large view at
    /// once.
    fn share(&mut self, id: u32) {
        let op = &mut self.ops[id];
        if op.verb != Verb::Read || op.bytes.len() < SHARED_MIN {
            return;
        }
        let bytes = core::mem::take(&mut op.bytes);
        let known = self.snapshots.iter().find(|known| known[..] == bytes[..]).map(Arc::clone);
        let shared = known.unwrap_or_else(|| {
            if self.snapshots.len() == SNAPSHOTS_MAX {
                self.snapshots.remove(0);
            }
            let shared: Arc<[u8]> = Arc::from(bytes);
            self.snapshots.push(Arc::clone(&shared));
            shared
        });
        op.shared = Some(shared);
    }

    /// Sends the answer of an executed (or refused) operation on its way.
    fn answer(&mut self, id: u32, outcome: Outcome) {
        if !self.is_awaited(id) || self.ops[id].outcome != Outcome::Open {
            return;
        }
        let op = &mut self.ops[id];
        op.outcome = outcome;
        let (source, target, verb, back) = (op.source, op.target, op.verb, op.back);
        let carried = if verb == Verb::Read { op.len } else { 0 };
        let time = match &self.model {
            None => self.now + self.travel(target, source, carried),
            Some(model) => {
                let latency = back + model.carry(model.cost(verb, carried), carried);
                self.transit(target, source, self.now, latency, carried)
            }
        };
        let time = time.saturating_add(self.links.delay(target, source));
        if self.links.is_cut(target, source) {
            self.ops[id].phase = Phase::AnswerStuck;
            self.link(source, target).answers_stuck.push(id);
            self.time_link(source, target);
        } else {
            self.complete_at(id, time);
        }
    }

    /// Schedules a completion, behind those of earlier operations.
    fn complete_at(&mut self, id: u32, time: u64) {
        let op = &mut self.ops[id];
        op.phase = Phase::Answered;
        op.refs += 1;
        let link = self.links.at(op.source, op.target);
        link.last_completion = link.last_completion.max(time);
        self.queue.push(link.last_completion, Pending::Complete(id));
    }

    /// An operation failed at its target: the link breaks, and later operations fail too.
    fn fail(&mut self, id: u32, error: LinkError) {
        if !self.is_awaited(id) || self.ops[id].outcome != Outcome::Open {
            return;
        }
        let (source, target) = (self.ops[id].source, self.ops[id].target);
        let delay = match error {
            LinkError::PeerDead => self.network.link_timeout.draw(&mut self.rng),
            LinkError::PeerReplaced
            | LinkError::OutOfBounds
            | LinkError::Denied
            | LinkError::Unmapped
            | LinkError::Unsupported => self.travel(target, source, 0),
        };
        self.ops[id].outcome = Outcome::Failed(error);
        self.ops[id].void = true;
        self.break_link(source, target, self.now + delay, true);
    }

    /// Fails all unanswered operations. With `void` none of them may be executed any more;
    /// otherwise those in transit may be, with an unknown result.
    pub(super) fn break_link(&mut self, source: u32, target: u32, time: u64, void: bool) {
        let link = self.link(source, target);
        link.stop_timeout();
        link.stuck.clear();
        link.answers_stuck.clear();
        let outstanding = core::mem::take(&mut link.outstanding);
        let mut first = true;
        for &id in &outstanding {
            let op = &mut self.ops[id];
            if op.phase == Phase::Answered {
                continue;
            }
            let cause = matches!(op.outcome, Outcome::Failed(_));
            if !cause {
                op.outcome = Outcome::Failed(LinkError::PeerDead);
            }
            op.void |= void || op.phase == Phase::Stuck;
            op.breaks = core::mem::take(&mut first);
            self.complete_at(id, time);
        }
        let link = self.link(source, target);
        link.outstanding = outstanding;
        link.broken |= !first;
    }

    /// Starts the timeout for stuck operations on a link, unless it is running.
    fn time_link(&mut self, source: u32, target: u32) {
        let delay = self.network.link_timeout.draw(&mut self.rng);
        let now = self.now;
        let link = self.link(source, target);
        if !link.timing {
            link.timing = true;
            let epoch = link.epoch;
            self.queue.push(now + delay, Pending::Timeout { source, target, epoch });
        }
    }

    /// A timeout expires.
    pub(super) fn link_timeout(&mut self, source: u32, target: u32, epoch: u32) {
        if self.link(source, target).epoch == epoch {
            self.adverse_events.timeouts += 1;
            self.break_link(source, target, self.now, false);
        }
    }

    /// Releases the operations stuck in one direction.
    pub(super) fn heal(&mut self, from: u32, to: u32) {
        self.link(from, to).cut = false;
        if !self.is_blocked(from, to) {
            let ahead = core::mem::take(&mut self.link(from, to).stuck);
            for &id in &ahead {
                self.launch(id, self.now);
            }
        }
        let back = core::mem::take(&mut self.link(to, from).answers_stuck);
        for &id in &back {
            let time = self.now + self.travel(from, to, 0);
            self.complete_at(id, time);
        }
        for (source, target) in [(from, to), (to, from)] {
            let link = self.link(source, target);
            link.stop_timeout();
            if !link.stuck.is_empty() || !link.answers_stuck.is_empty() {
                self.time_link(source, target);
            }
        }
    }

    /// A completion reaches its poster. Returns whether there is one.
    pub(super) fn completed(&mut self, id: u32) -> bool {
        let awaited = self.is_awaited(id);
        let (source, target) = (self.ops[id].source, self.ops[id].target);
        if awaited {
            let first = self.link(source, target).outstanding.pop_front();
            assert_eq!(first, Some(id), "completions come in the order of the posts");
        }
        self.release(id);
        awaited
    }

    /// The poster died: its operations in flight are lost from a random point on, and operations of
    /// a delayed step were never posted.
    pub(super) fn drop_posts(&mut self, source: u32) {
        let now = self.now;
        for target in 0..self.nodes.len() as u32 {
            if self.links.get(source, target).is_none() {
                // The same number of draws, whether a link was used or not.
                self.rng.next_u64();
                continue;
            }
            let outstanding = core::mem::take(&mut self.link(source, target).outstanding);
            let unsent = self.rng.below(outstanding.len() as u64 + 1) as usize;
            for (n, &id) in outstanding.iter().enumerate() {
                let op = &mut self.ops[id];
                op.void |= n >= unsent || op.phase == Phase::Stuck || op.departs > now;
                self.release(id);
            }
            self.link(source, target).reset();
        }
    }

    /// Drops one reference.
    pub(super) fn release(&mut self, id: u32) {
        let op = &mut self.ops[id];
        op.refs -= 1;
        if op.refs == 0 {
            op.shared = None;
            if op.bytes.capacity() >= SHARED_MIN {
                op.bytes = Vec::new();
            }
            self.ops.free(id);
        }
    }
}
