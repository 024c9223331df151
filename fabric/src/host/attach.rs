//! The program's side of a seat: it joins through the agent that owns the region, and reads the
//! agent's lease page.
//!
//! One thread represents the program: its end counts as the program's death, and it advances the
//! heartbeat. Usually that is a background thread, so that the program is unaware of it, and counts
//! as frozen when all its threads are stopped. A program with an event loop can do it itself
//! ([`Presence`]): with one thread less it dies faster.

use crate::contract::SeatStatus;
use crate::host::cluster::Cluster;
use crate::host::death::{self, Registration};
use crate::host::error::HostError;
use crate::host::kernel_notifier::{self, KernelNotifier};
use crate::host::occupancy::{Occupancy, Phase};
use crate::host::process::Process;
use crate::host::region::Region;
use crate::host::seat_words::{Answer, JOIN, LEAVE, Request};
use crate::host::{clock, futex, sched};
use crate::layout::Seat;
use crate::memory;
use crate::metrics::{self, COUNTER_WORDS, CounterSlot};
use crate::page::{self, Page};
use crate::recorder::{self, EventCode, Record};
use crate::types::{Address, Incarnation, Instant, Name, Nanos};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::io;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// The stack of the background thread, which makes no deep calls.
const STACK_BYTES: usize = 64 << 10;
/// The retry interval of an unanswered request.
const REQUEST_INTERVAL: Nanos = Nanos::from_millis(10);
/// How long to wait for closed seats if no other is free.
const SEAT_TIMEOUT: Nanos = Nanos::from_secs(1);
/// The polling interval meanwhile.
const SEAT_PAUSE: Duration = Duration::from_micros(200);

/// A program's seat in its agent's region. May be shared by the program's threads.
#[derive(Debug)]
pub struct Attachment {
    region: Region,
    address: Address,
    me: Process,
    stop: Arc<AtomicU32>,
    thread: Option<JoinHandle<()>>,
    /// The recorder has one writer at a time.
    recording: Mutex<()>,
}

/// How the thread that represents a program advances its heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// The longest interval.
    pub every: Nanos,
    /// Whether to use SCHED_FIFO with this priority where allowed. An agent with real-time
    /// scheduling detects a stalled heartbeat within milliseconds; on a busy machine an ordinary
    /// thread waits longer than that for a core.
    pub priority: Option<u32>,
}

impl From<Nanos> for Beat {
    fn from(every: Nanos) -> Self {
        Self { every, priority: None }
    }
}

impl Attachment {
    /// Takes a seat in the region of the live process of this name.
    pub fn open_named(
        cluster: &Cluster,
        agent: (u32, Name),
        name: Name,
        beat: impl Into<Beat>,
    ) -> Result<Self, HostError> {
        Self::open(cluster, find_agent(cluster, agent)?, name, beat)
    }

    /// Takes a seat in this region, whose owner must be alive. A background thread represents the
    /// program.
    pub fn open(cluster: &Cluster, agent: u32, name: Name, beat: impl Into<Beat>) -> Result<Self, HostError> {
        let mut attachment = Self::claim(cluster, agent, name)?;
        attachment.thread = Some(spawn(cluster.nonce(), &attachment, beat.into())?);
        Ok(attachment)
    }

    /// Takes a seat at the live process of this name; the calling thread represents the program.
    pub fn open_present(
        cluster: &Cluster,
        agent: (u32, Name),
        name: Name,
    ) -> Result<(Self, Presence), HostError> {
        let attachment = Self::claim(cluster, find_agent(cluster, agent)?, name)?;
        let presence =
            Presence::begin(cluster.nonce(), &attachment.region, attachment.address, attachment.me)?;
        Ok((attachment, presence))
    }

    fn claim(cluster: &Cluster, agent: u32, name: Name) -> Result<Self, HostError> {
        cluster.require_here()?;
        if !cluster.region_info(agent).is_some_and(|r| r.alive) {
            return Err(no_agent(cluster, agent.to_string(), None));
        }
        let me = Process::current()
            .map_err(|error| HostError::Kernel { doing: "learn this process's start time", error })?;
        let region = Region::open(cluster, agent)?;
        if region.is_dead(0) {
            return Err(no_agent(cluster, agent.to_string(), None));
        }
        let seats = region.layout().limits().seats;
        if let Some(until) = held_until(&region, name) {
            return Err(HostError::OnHold { name, left: until.since(clock::now()) });
        }
        let Some(seat) = claim_seat(&region, me) else {
            let agent = cluster.region_info(agent).map(|owner| owner.name).unwrap_or_default();
            return Err(HostError::NoSeat { agent, seats: seats - 1 });
        };
        let generation = next_generation(region.generation(seat));
        // A reader that sees the new generation must not find the old one's events: it would skip
        // as many new ones.
        region.clear(region.layout().counters(seat), COUNTER_WORDS * 8);
        region.clear(region.layout().recorder(seat), region.layout().recorder_bytes());
        region.occupy(seat, generation, name, me);
        let address = Address { seat, generation, ..Address::region(agent) };
        let stop = Arc::new(AtomicU32::new(0));
        // From here on dropping it closes the seat.
        Ok(Self { region, address, me, stop, thread: None, recording: Mutex::new(()) })
    }

    /// The program's address.
    pub const fn address(&self) -> Address {
        self.address
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        self.region.seat_word(self.address.seat, offset)
    }

    /// Asks the agent to make this program a member. `token` is the same for every retry of one
    /// join, and differs for the next. The request is repeated until it is answered.
    pub fn join(&self, token: u64) {
        self.word(offset_of!(Seat, token)).store(token, Ordering::Relaxed);
        self.post_request(JOIN);
    }

    /// Asks the agent to remove this program gracefully.
    pub fn leave(&self) {
        self.post_request(LEAVE);
    }

    fn post_request(&self, kind: u8) {
        let word = self.word(offset_of!(Seat, request));
        let before = Request::of(word.load(Ordering::Relaxed));
        // Zero stands for "none answered yet".
        let sequence = before.sequence.checked_add(1).unwrap_or(1);
        word.store(Request { kind, sequence, rings: 0 }.word(), Ordering::Release);
        self.region.ring();
    }

    fn answer(&self) -> &AtomicU32 {
        memory::low_half(self.word(offset_of!(Seat, status)))
    }

    /// The program's status: `None` before the agent has answered its last request.
    pub fn status(&self) -> Option<SeatStatus> {
        self.stand(self.answer().load(Ordering::Acquire))
    }

    /// Whether the agent's last answer is that the view has no room for this program.
    pub fn finds_no_room(&self) -> bool {
        Answer::of(self.answer().load(Ordering::Acquire)).is_full()
    }

    /// Whether the agent's last answer is that another member has this program's name.
    pub fn is_name_taken(&self) -> bool {
        Answer::of(self.answer().load(Ordering::Acquire)).is_name_taken()
    }

    /// The end of the hold on this program's join, if that is the agent's last answer.
    pub fn held_until(&self) -> Option<Instant> {
        let held = Answer::of(self.answer().load(Ordering::Acquire)).is_on_hold();
        held.then(|| Instant(self.word(offset_of!(Seat, held_until)).load(Ordering::Relaxed)))
    }

    fn stand(&self, answer: u32) -> Option<SeatStatus> {
        let mut answer = answer;
        loop {
            let incarnation = Incarnation(self.word(offset_of!(Seat, incarnation)).load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            let again = self.answer().load(Ordering::Acquire);
            if again == answer {
                let request = Request::of(self.word(offset_of!(Seat, request)).load(Ordering::Relaxed));
                let answer = Answer::of(answer);
                return answer.status(incarnation).filter(|_| answer.sequence == request.sequence);
            }
            answer = again;
        }
    }

    /// Waits until the program's status differs from `last_seen`; returns the status, also after a
    /// timeout.
    pub fn wait_status(&self, last_seen: Option<SeatStatus>, timeout: Nanos) -> Option<SeatStatus> {
        let until = clock::now() + timeout;
        loop {
            let answer = self.answer().load(Ordering::Acquire);
            let status = self.stand(answer);
            let left = until.since(clock::now());
            if status != last_seen || left == Nanos::ZERO || !self.agent_lives() {
                return status;
            }
            futex::wait(self.answer(), answer, Some(left.min(REQUEST_INTERVAL)));
        }
    }

    /// Whether the agent that owns the region still runs. If not, the program has to attach to
    /// another one.
    pub fn agent_lives(&self) -> bool {
        !self.region.is_dead(0)
    }

    /// The current lease; `None` if the agent stopped in the middle of a publication.
    pub fn lease(&self) -> Option<Page> {
        page::load(self.region.page())
    }

    /// The agent's region, whose lease page and view this program reads.
    pub const fn region(&self) -> &Region {
        &self.region
    }

    /// Adds an event to the seat's flight recorder, stamped now.
    pub fn record(&self, record: Record<impl Into<EventCode>>) {
        if !self.region.is_here() {
            // In a child, a thread that does not exist there may hold the lock.
            return;
        }
        let layout = self.region.layout();
        let words = self.region.part(layout.recorder(self.address.seat), layout.recorder_bytes());
        let _one = self.recording.lock().unwrap_or_else(PoisonError::into_inner);
        recorder::write(words, clock::now(), record);
    }

    /// Adds to one of the seat's counters. Any thread may call this.
    pub fn count(&self, counter: impl Into<CounterSlot>, by: u64) {
        let words = self.region.part(self.region.layout().counters(self.address.seat), COUNTER_WORDS * 8);
        if let Some(word) = words.get(usize::from(counter.into().number())) {
            word.fetch_add(by, Ordering::Relaxed);
        }
    }

    /// Wakes the waiters for changes of page or view.
    pub fn announce(&self) {
        self.region.announce();
    }

    /// Promises progress at least every `within` from now on; zero cancels the promise. A member
    /// that breaks it is removed, although its process lives. (Mu, section 5.1, fate sharing.)
    pub fn promise_progress(&self, within: Nanos) {
        self.word(offset_of!(Seat, progress_within)).store(within.0, Ordering::Relaxed);
        self.region.ring();
    }

    /// Publishes that the application makes progress.
    pub fn progress(&self) {
        self.word(offset_of!(Seat, progress)).fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if !self.region.is_here() {
            // A copy in a forked child, which has neither the thread nor the seat.
            core::mem::forget(self.thread.take());
            return;
        }
        self.stop.store(1, Ordering::Release);
        futex::wake(&self.stop, 1);
        if let Some(thread) = self.thread.take() {
            // The thread's registration marks the death words when it ends.
            let _ = thread.join();
        }
        let closed = Occupancy::word(Phase::Closed, self.me);
        self.word(offset_of!(Seat, state)).store(closed, Ordering::Release);
        self.region.ring();
    }
}

/// Claims a free seat. Only the owner frees seats, because it knows whether the last occupant is
/// still a member: waits a while for closed seats.
fn claim_seat(region: &Region, me: Process) -> Option<u16> {
    let claimed = Occupancy::word(Phase::Claimed, me);
    let end = clock::now() + SEAT_TIMEOUT;
    loop {
        let mut closed = false;
        for seat in 1..region.layout().limits().seats as u16 {
            let state = region.seat_word(seat, offset_of!(Seat, state));
            match state.compare_exchange(Occupancy::FREE, claimed, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(seat),
                Err(taken) => closed |= Occupancy::of(taken).phase == Phase::Closed,
            }
        }
        if !closed || region.is_dead(0) || clock::now() >= end {
            return None;
        }
        region.ring();
        std::thread::sleep(SEAT_PAUSE);
    }
}

/// The region of the live process of this kind and name.
fn find_agent(cluster: &Cluster, (kind, name): (u32, Name)) -> Result<u32, HostError> {
    cluster.require_here()?;
    let regions = cluster.regions();
    match regions.iter().find(|r| r.alive && (r.kind, r.name) == (kind, name)) {
        Some(region) => Ok(region.number),
        None => Err(no_agent(cluster, name.to_string(), Some(kind))),
    }
}

/// There is no such agent; those of its kind, if that is known, are named.
fn no_agent(cluster: &Cluster, wanted: String, kind: Option<u32>) -> HostError {
    let regions = cluster.regions();
    let others = regions.iter().filter(|r| r.alive && kind.is_none_or(|kind| r.kind == kind));
    HostError::NoSuchAgent { wanted, existing: others.map(|r| r.name).collect() }
}

/// The end of the hold on joins of this name here, if a program of that name already waits for it.
/// Of crashing programs only one may wait, as they would take the seats of others.
fn held_until(region: &Region, name: Name) -> Option<Instant> {
    (1..region.layout().limits().seats as u16).find_map(|seat| {
        let found = region.reader().seat(seat)?;
        found.held_until.filter(|_| found.name == name && !region.is_dead(seat))
    })
}

/// Counts occupants in the low half; the high half identifies the region's file and is kept.
const fn next_generation(generation: u32) -> u32 {
    let occupants = (generation as u16).wrapping_add(1);
    generation & 0xffff_0000 | if occupants == 0 { 1 } else { occupants as u32 }
}

/// Starts the thread that represents a program until its attachment is dropped.
fn spawn(cluster: u64, attachment: &Attachment, beat: Beat) -> Result<JoinHandle<()>, HostError> {
    let (ready, registered) = mpsc::channel();
    let Attachment { region, address, me, stop, .. } = attachment;
    let (region, who, me, stop) = (region.clone(), *address, *me, stop.clone());
    let stand = move || match Presence::begin(cluster, &region, who, me) {
        Err(error) => drop(ready.send(Err(error))),
        Ok(mut presence) => {
            if let Some(priority) = beat.priority {
                // Optional: `obol status` shows processes without real-time scheduling.
                let _ = sched::run_fifo_alone(priority);
            }
            if ready.send(Ok(())).is_ok() {
                while stop.load(Ordering::Acquire) == 0 {
                    presence.beat();
                    futex::wait(&stop, 0, Some(beat.every));
                }
            }
        }
    };
    let kernel = |error| HostError::Kernel { doing: "start the attachment's thread", error };
    let thread =
        std::thread::Builder::new().name("obol-seat".to_owned()).stack_size(STACK_BYTES).spawn(stand);
    let thread = thread.map_err(kernel)?;
    match registered.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(kernel(io::Error::other("it ended at once"))),
    }
}

/// The representative of a program: when its thread ends, or drops this, the program counts as
/// dead.
pub struct Presence {
    region: Region,
    seat: u16,
    asked: Instant,
    /// Has the kernel report the program's death.
    kernel_notifier: KernelNotifier,
    /// Dropped last: marks the death words.
    _registration: Registration,
}

impl Presence {
    fn begin(cluster: u64, region: &Region, who: Address, me: Process) -> Result<Self, HostError> {
        let seat = who.seat;
        let registration = death::register(region, seat)?;
        let kernel_notifier =
            KernelNotifier::new(region, who, cluster, me, kernel_notifier::draw(), None, clock::now());
        let state = region.seat_word(seat, offset_of!(Seat, state));
        state.store(Occupancy::word(Phase::Live, me), Ordering::Release);
        Ok(Self {
            region: region.clone(),
            seat,
            asked: clock::now(),
            kernel_notifier,
            _registration: registration,
        })
    }

    /// Advances the heartbeat, and repeats an unanswered request. To be called at least once per
    /// `heartbeat.every` of the profile.
    pub fn beat(&mut self) {
        if !self.region.is_here() {
            return;
        }
        let word = |offset| self.region.seat_word(self.seat, offset);
        metrics::add(word(offset_of!(Seat, heartbeat)), 1);
        let request = word(offset_of!(Seat, request));
        let found = request.load(Ordering::Relaxed);
        let pending = Request::of(found);
        let answer = Answer::of(memory::low_half(word(offset_of!(Seat, status))).load(Ordering::Relaxed));
        let now = clock::now();
        self.kernel_notifier.maintain(now, |_| None);
        if pending.kind != 0
            && answer.sequence != pending.sequence
            && now.since(self.asked) >= REQUEST_INTERVAL
        {
            let again = Request { rings: pending.rings.wrapping_add(1), ..pending };
            // Another thread may send a new request meanwhile, which rings by itself.
            if request.compare_exchange(found, again.word(), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                self.region.ring();
            }
            self.asked = now;
        }
    }
}
