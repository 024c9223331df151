//! The loop that drives a machine: it handles events, one turn at a time, and waits when there are
//! none.
//!
//! In a turn, completions come first, so that a chain of one-sided operations runs to its end at
//! once. The doorbell is read before lanes and seats are polled, and compared again by the kernel
//! when the loop blocks, so no ring is missed.

use crate::contract::{Event, Fabric, Machine};
use crate::endpoint::Endpoint;
use crate::endpoint::transport::Received;
use crate::host::clock;
use crate::host::futex::{self, WAITV_MAX, Waiter};
use crate::host::region::Sleep;
use crate::host::sched::Slice;
use crate::layout::Seat;
use crate::metrics::{self, FabricCounter};
use crate::page;
use crate::types::{Instant, Nanos};
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, Ordering};
use nix::sys::prctl::set_timerslack;

/// How a loop waits for events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// Polls without a pause. Needs a core of its own.
    Spin,
    /// Yields the core for a while after the last event of a peer, then blocks.
    Hybrid {
        /// For how long; about 30 us is best on shared cores.
        yield_for: Nanos,
    },
    /// Blocks immediately.
    Block,
}

/// The maximum interval between turns, unless [`Endpoint::beat_every`] sets another.
const BEAT_EVERY: Nanos = Nanos::from_millis(10);
/// How often lanes and seats of dead processes are freed, and lanes of senders that died before
/// ringing are read.
const TIDY_EVERY: Nanos = Nanos::from_millis(20);
/// How long programs keep a short slice after they were notified: a failover is over by then, and
/// the next one's victim must not have it.
const SHORT_SLICES_LAST: Nanos = Nanos::from_millis(2);
/// The timer slack of this thread; Linux's default is 50 us.
const TIMER_SLACK_NS: u64 = 1_000;

/// The state of the loop.
pub(crate) struct Pace {
    wait: Wait,
    pub(crate) beat_every: Nanos,
    started: bool,
    /// The doorbell at the last poll of lanes and seats.
    bell: u32,
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
            last_event: Instant::ZERO,
            tidied: Instant::ZERO,
            waiters: Vec::with_capacity(WAITV_MAX),
        }
    }
}

impl Endpoint {
    /// Drives a machine until `stop` is set; `turn` is called after each turn. A signal to this
    /// thread or [`Waker::wake`](crate::host::Waker::wake) makes it check `stop`.
    pub fn run<M: Machine>(
        &mut self,
        machine: &mut M,
        stop: &AtomicBool,
        mut turn: impl FnMut(&mut M, &mut Self),
    ) {
        // Without it only the timers are later.
        let _ = set_timerslack(TIMER_SLACK_NS);
        while !stop.load(Ordering::Relaxed) {
            let busy = self.poll_once(machine);
            turn(machine, self);
            self.flush();
            if !busy && self.transport.waiting() == 0 {
                self.rest(machine.deadline().min(self.transport.due()));
            }
        }
    }

    /// One turn without waiting: handles pending events, then due work. Returns whether there was
    /// any.
    pub fn poll_once<M: Machine>(&mut self, machine: &mut M) -> bool {
        let now = clock::now();
        if !self.pace.started {
            self.pace.started = true;
            machine.start(now, self);
        }
        metrics::add(self.region.seat_word(0, offset_of!(Seat, heartbeat)), 1);
        self.count(FabricCounter::Loops, 1);
        self.transport.release_due(now);
        let mut busy = self.complete(machine);
        self.watches.check(self.transport.regions(), now);
        let counts = [self.watches.take_counts(), self.transport.take_notice_counts()];
        let (believed, refused) = counts.iter().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
        if believed | refused != 0 {
            self.count(FabricCounter::KernelNotices, believed);
            self.count(FabricCounter::KernelNoticesRefused, refused);
        }
        let mut event = self.report_deaths(machine);
        let tidy = now.since(self.pace.tidied) >= TIDY_EVERY;
        let bell = self.region.doorbell().load(Ordering::SeqCst);
        if bell != self.pace.bell || tidy {
            self.pace.bell = bell;
            event |= self.receive_datagrams(machine);
            // Programs learn of a change before anything else is done.
            self.flush();
            event |= self.poll_seats(machine);
            self.seats.free(tidy);
        } else if self.transport.has_datagrams() {
            event |= self.receive_datagrams(machine);
        }
        if tidy {
            self.pace.tidied = now;
            self.transport.tidy(now);
            let unmapped = self.transport.regions().take_failures();
            self.count(FabricCounter::MapFailures, unmapped);
            while let Some(whom) = self.transport.take_relocated() {
                self.watches.watch(whom, false, self.transport.regions(), now);
            }
            self.kernel_notifier.maintain(now, |notice| self.transport.route_to_other_hosts(notice));
            self.watches.set_deaths(self.kernel_notifier.deaths());
        }
        if self.short_since.take_if(|since| now.since(*since) >= SHORT_SLICES_LAST).is_some() {
            self.set_slices(Slice::Default);
        }
        if event {
            self.pace.last_event = now;
        }
        // Without time-consuming work, the first reading of the clock is still valid.
        let now = if busy | event { clock::now() } else { now };
        if machine.deadline() <= now {
            machine.tick(now, self);
            busy = true;
        }
        busy |= self.complete(machine);
        self.flush();
        busy | event
    }

    /// Delivers completions until there are none, including those that their handlers cause.
    /// Reading the clock costs as much as an operation, so all completions that are pending at one
    /// reading share it; a machine must not get a time before that of the event.
    fn complete<M: Machine>(&mut self, machine: &mut M) -> bool {
        let mut any = false;
        let (mut now, mut sharing) = (Instant::ZERO, 0);
        while let Some((token, done)) = self.transport.complete() {
            if sharing == 0 {
                sharing = 1 + self.transport.waiting_first();
                now = clock::now();
            }
            sharing -= 1;
            any = true;
            machine.handle(now, Event::Completion { token, result: done.result() }, self);
            self.transport.recycle(done);
        }
        self.transport.settle();
        any
    }

    fn report_deaths<M: Machine>(&mut self, machine: &mut M) -> bool {
        let mut any = false;
        while let Some((who, evidence)) = self.watches.next().or_else(|| self.transport.death()) {
            any = true;
            machine.handle(clock::now(), Event::Death { who, evidence }, self);
            self.complete(machine);
        }
        if any {
            self.send_posted();
        }
        any
    }

    /// Handles the datagrams of one round.
    fn receive_datagrams<M: Machine>(&mut self, machine: &mut M) -> bool {
        let mut any = false;
        loop {
            let mut bytes = core::mem::take(&mut self.datagram);
            let received = self.transport.receive(&mut bytes);
            match received {
                Received::Datagram(from) => {
                    any = true;
                    self.count(FabricCounter::DatagramsReceived, 1);
                    machine.handle(clock::now(), Event::Datagram { from, bytes: &bytes }, self);
                }
                Received::Refused => self.count(FabricCounter::DatagramsRefused, 1),
                Received::Nothing => {}
            }
            self.datagram = bytes;
            if received == Received::Nothing {
                // Datagrams of the own host's gateway report deaths.
                return any | self.report_deaths(machine);
            }
            self.complete(machine);
            self.send_posted();
        }
    }

    fn poll_seats<M: Machine>(&mut self, machine: &mut M) -> bool {
        let mut any = false;
        let since = page::wanted(self.region.page());
        if since > self.confirm_since {
            any = true;
            self.confirm_since = since;
            machine.handle(clock::now(), Event::Confirm { since }, self);
            self.complete(machine);
            self.send_posted();
        }
        let mut from = 1;
        while let Some((seat, request)) = self.seats.next_request(from) {
            any = true;
            machine.handle(clock::now(), Event::Seat { seat, request }, self);
            self.complete(machine);
            self.send_posted();
            from = seat.saturating_add(1);
        }
        any
    }

    /// Waits, by the strategy, for a ring, a death or the deadline.
    fn rest(&mut self, deadline: Instant) {
        match self.pace.wait {
            Wait::Spin => return core::hint::spin_loop(),
            Wait::Hybrid { yield_for } if clock::now().since(self.pace.last_event) < yield_for => {
                return std::thread::yield_now();
            }
            Wait::Hybrid { .. } | Wait::Block => {}
        }
        if !self.watches.is_quiet() || self.transport.has_datagrams() || !self.transport.arm() {
            return;
        }
        let bell = self.pace.bell;
        // Before the doorbell is compared: a process that wakes all members rings the doorbell too.
        let members = self.with_members.then(|| self.cluster.table.bell().load(Ordering::SeqCst));
        self.region.set_sleep(if members.is_some() { Sleep::WithMembers } else { Sleep::Alone });
        if self.region.doorbell().load(Ordering::SeqCst) == bell {
            self.block(bell, members, deadline);
        }
        self.region.set_sleep(Sleep::Awake);
    }

    fn block(&mut self, bell: u32, members: Option<u32>, deadline: Instant) {
        let waiters = &mut self.pace.waiters;
        waiters.clear();
        waiters.push(futex::waiter(self.region.doorbell(), bell));
        if let Some(members) = members {
            waiters.push(futex::waiter(self.cluster.table.bell(), members));
        }
        let now = clock::now();
        let Some(span) = self.watches.waiters(waiters, WAITV_MAX, now) else { return };
        let span = span.min(deadline.since(now)).min(self.pace.beat_every);
        if span > Nanos::ZERO {
            futex::waitv(waiters, span);
        }
    }
}
