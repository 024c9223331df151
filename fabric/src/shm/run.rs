//! The loop that drives a machine: events in, one turn at a time, and how it waits when there are none.
//!
//! In a turn, completions come before anything else, so that a chain of one-sided operations runs to its end at once.
//! The doorbell is read before lanes and seats are looked at, and compared again by the kernel when the loop blocks:
//! no ring is missed.
#![allow(unsafe_code)]

use crate::contract::{Event, Fabric, Machine};
use crate::layout::Seat;
use crate::metrics::{self, Counter};
use crate::shm::clock;
use crate::shm::endpoint::Endpoint;
use crate::shm::futex::{self, WAITV_MAX, Waiter};
use crate::shm::lanes::{self, Sender, Taken};
use crate::types::{Address, Instant, Nanos};
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, Ordering};

/// What a loop does when there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// Looks again at once. Wants a core of its own.
    Spin,
    /// Yields the core for about so long after the last event of a peer, then blocks.
    Hybrid {
        /// How long; about 30 us is best on shared cores.
        yield_for: Nanos,
    },
    /// Blocks at once.
    Block,
}

/// A loop turns at least so often, unless [`Endpoint::beat_every`] says otherwise.
const BEAT_EVERY: Nanos = Nanos::from_millis(10);
/// How often lanes and seats of the dead are freed, and lanes of senders that died before they rang are read.
const TIDY_EVERY: Nanos = Nanos::from_millis(20);
/// A timer of this thread may be late by so much; Linux's default is 50 us.
const TIMER_SLACK_NS: libc::c_ulong = 1_000;

/// Where the loop stands.
pub(crate) struct Pace {
    wait: Wait,
    pub(crate) beat_every: Nanos,
    started: bool,
    /// The doorbell at the last look at lanes and seats.
    bell: u32,
    /// The last look did not empty every lane.
    more: bool,
    last_event: Instant,
    tidied: Instant,
    waiters: Vec<Waiter>,
}

impl Pace {
    pub(crate) fn new(wait: Wait) -> Self {
        Self {
            wait,
            beat_every: BEAT_EVERY,
            started: false,
            bell: 0,
            more: true,
            last_event: Instant::ZERO,
            tidied: Instant::ZERO,
            waiters: Vec::with_capacity(WAITV_MAX),
        }
    }
}

impl Endpoint {
    /// Drives a machine until `stop` is set; `turn` is called after each turn. A signal to this thread or
    /// [`crate::shm::Waker::wake`] makes it look at `stop`.
    pub fn run<M: Machine>(
        &mut self,
        machine: &mut M,
        stop: &AtomicBool,
        mut turn: impl FnMut(&mut M, &mut Self),
    ) {
        // SAFETY: the call takes integers and sets an attribute of this thread.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0) };
        while !stop.load(Ordering::Relaxed) {
            let busy = self.poll_once(machine);
            turn(machine, self);
            self.flush();
            if !busy && self.done.is_empty() {
                self.rest(machine.deadline());
            }
        }
    }

    /// One turn without waiting: whatever has happened is handled, then what is due. Tells whether there was anything.
    pub fn poll_once<M: Machine>(&mut self, machine: &mut M) -> bool {
        let now = clock::now();
        if !self.pace.started {
            self.pace.started = true;
            machine.start(now, self);
        }
        metrics::add(self.region.seat_word(0, offset_of!(Seat, heartbeat)), 1);
        self.count(Counter::Loops, 1);
        let mut busy = self.complete(machine);
        self.watches.check(&mut self.links, now);
        let mut event = self.report_deaths(machine);
        let tidy = now.since(self.pace.tidied) >= TIDY_EVERY;
        let bell = self.region.doorbell().load(Ordering::SeqCst);
        if bell != self.pace.bell || self.pace.more || tidy {
            self.pace.bell = bell;
            event |= self.hear(machine);
            event |= self.ask_seats(machine);
        }
        if tidy {
            self.pace.tidied = now;
            self.tidy();
        }
        if event {
            self.pace.last_event = now;
        }
        let now = clock::now();
        if machine.deadline() <= now {
            machine.tick(now, self);
            busy = true;
        }
        busy |= self.complete(machine);
        self.flush();
        busy | event
    }

    /// Delivers completions until there are none, those that their handlers cause included.
    fn complete<M: Machine>(&mut self, machine: &mut M) -> bool {
        let mut any = false;
        while let Some((token, done)) = self.done.pop_front() {
            any = true;
            machine.handle(clock::now(), Event::Completion { token, result: done.result() }, self);
            self.recycle(done);
        }
        self.broken.clear();
        any
    }

    fn report_deaths<M: Machine>(&mut self, machine: &mut M) -> bool {
        let mut any = false;
        while let Some((who, evidence)) = self.watches.next() {
            any = true;
            machine.handle(clock::now(), Event::Death { who, evidence }, self);
            self.complete(machine);
        }
        if any {
            self.flush();
        }
        any
    }

    /// Handles the datagrams that wait, of each lane at most as many as it holds.
    fn hear<M: Machine>(&mut self, machine: &mut M) -> bool {
        let mut any = false;
        self.pace.more = false;
        for lane in 0..self.layout.limits().lanes {
            for n in 0..=self.layout.limits().lane_slots {
                if n == self.layout.limits().lane_slots {
                    self.pace.more = true;
                    break;
                }
                let mut bytes = core::mem::take(&mut self.datagram);
                let taken = lanes::take(&self.region, &self.layout, lane, &mut bytes);
                match taken {
                    Taken::Datagram(Sender { region, generation }, _) => {
                        any = true;
                        self.count(Counter::DatagramsReceived, 1);
                        let from = Address { generation, ..Address::region(region) };
                        machine.handle(clock::now(), Event::Datagram { from, bytes: &bytes }, self);
                    }
                    Taken::Refused => self.count(Counter::DatagramsRefused, 1),
                    Taken::Empty => {}
                }
                self.datagram = bytes;
                if taken == Taken::Empty {
                    break;
                }
                self.complete(machine);
                self.flush();
            }
        }
        any
    }

    fn ask_seats<M: Machine>(&mut self, machine: &mut M) -> bool {
        let mut any = false;
        let mut from = 1;
        while let Some((seat, request)) = self.seats.next_request(from) {
            any = true;
            machine.handle(clock::now(), Event::Seat { seat, request }, self);
            self.complete(machine);
            self.flush();
            from = seat.saturating_add(1);
        }
        any
    }

    fn tidy(&mut self) {
        let links = &mut self.links;
        lanes::free(&self.region, &self.layout, |sender| links.is_gone(sender));
        self.seats.free();
    }

    /// Waits, as the strategy says, for a ring, a death or the deadline.
    fn rest(&mut self, deadline: Instant) {
        match self.pace.wait {
            Wait::Spin => return core::hint::spin_loop(),
            Wait::Hybrid { yield_for } if clock::now().since(self.pace.last_event) < yield_for => {
                return std::thread::yield_now();
            }
            Wait::Hybrid { .. } | Wait::Block => {}
        }
        if self.pace.more || !self.watches.is_quiet() {
            return;
        }
        let bell = self.pace.bell;
        self.region.sleeping().store(1, Ordering::SeqCst);
        if self.region.doorbell().load(Ordering::SeqCst) == bell {
            self.block(bell, deadline);
        }
        self.region.sleeping().store(0, Ordering::Relaxed);
    }

    fn block(&mut self, bell: u32, deadline: Instant) {
        let waiters = &mut self.pace.waiters;
        waiters.clear();
        waiters.push(Waiter::new(self.region.doorbell(), bell));
        let now = clock::now();
        let Some(span) = self.watches.waiters(waiters, WAITV_MAX, now) else { return };
        let span = span.min(deadline.since(now)).min(self.pace.beat_every);
        if span > Nanos::ZERO {
            futex::waitv(waiters, span);
        }
    }
}
