//! The thread that executes operations and delivers datagrams.

use super::admit::Admission;
use super::pulse::{Command, Pulses, SessionKey};
use super::session::Session;
use super::{Counts, GatewayCounter, Input, Inputs, Question, WatchCommand};
use crate::atomic::AtomicU64;
use crate::contract::{Evidence, Group, LinkError};
use crate::host::mapped::MappedRegions;
use crate::host::region::{Region, Waker};
use crate::host::wake::Wake;
use crate::host::{Cluster, clock};
use crate::identity::{Duty, StreamError};
use crate::ip::config::Config;
use crate::ip::frame::{Reply, Request, Seat, encode_sender};
use crate::shm::link::Links;
use crate::types::{Address, Instant, Nanos, RegionOwner};
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender};

/// Ready sessions that are taken at a time.
const READY_MAX: usize = 64;
/// The number of the wake-up among the sessions.
const WAKE: u64 = 0;
/// The groups that a process of another host may send to.
const GROUPS: u32 = Group::Coordinators.bit() | Group::Everyone.bit() | Group::Drills.bit();

/// The longest annotation: of a rollout, with a line for each limit and for each that does not hold.
const NOTE_BYTES_MAX: usize = 4096;
/// The longest question.
const QUESTION_BYTES_MAX: usize = 4096;

/// Messages sent after one of a death, and the pause before the first; each further one is twice as
/// long. The death was not asked for, so nobody would miss it if its packet were lost; TCP repeats it
/// soon only if something follows (see [`crate::ip::probe`]).
const FOLLOWERS: u32 = 3;
const FOLLOWER_PAUSE: Nanos = Nanos::from_millis(2);

/// A message that is to follow a death.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Follower {
    at: Instant,
    session: u64,
    number: u32,
}

/// A watched process.
#[derive(Default)]
struct Watched {
    sessions: Vec<u64>,
    /// What is known of its death, for those who ask later.
    reported: Vec<Evidence>,
}

pub(super) struct Server {
    epoll: OwnedFd,
    inputs: Receiver<Input>,
    wake: Arc<Wake>,
    links: Links,
    config: Config,
    sessions: HashMap<u64, Session>,
    next: u64,
    watched: HashMap<Seat, Watched>,
    followers: BinaryHeap<Reverse<Follower>>,
    watcher: Option<(Sender<WatchCommand>, Waker)>,
    counts: Counts,
    notes: Option<SyncSender<Vec<u8>>>,
    /// Where questions go, and their answers come.
    questions: Option<(SyncSender<Question>, Inputs)>,
    pulses: Option<Pulses>,
    /// The bytes of a READ, and of a datagram with its sender.
    buffer: Vec<u8>,
}

impl Server {
    pub(super) fn new(
        cluster: &Cluster,
        region: &Region,
        me: RegionOwner,
        config: &Config,
        (inputs, wake): (Receiver<Input>, Arc<Wake>),
        counts: Counts,
    ) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &*wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        Ok(Self {
            epoll,
            inputs,
            wake,
            links: Links::new(MappedRegions::new(cluster.clone(), me, region.clone()), me),
            config: config.clone(),
            sessions: HashMap::new(),
            next: WAKE + 1,
            watched: HashMap::new(),
            followers: BinaryHeap::new(),
            watcher: None,
            counts,
            notes: None,
            questions: None,
            pulses: None,
            buffer: Vec::new(),
        })
    }

    pub(super) fn with_watcher(self, commands: Sender<WatchCommand>, waker: Waker) -> Self {
        Self { watcher: Some((commands, waker)), ..self }
    }

    /// Passes annotations on.
    pub(super) fn with_notes(self, notes: Option<SyncSender<Vec<u8>>>) -> Self {
        Self { notes, ..self }
    }

    /// Passes questions on. Their answers come by the inbox.
    pub(super) fn with_questions(self, questions: Option<(SyncSender<Question>, Inputs)>) -> Self {
        Self { questions, ..self }
    }

    /// Has the pulses of other hosts judged.
    pub(super) fn with_pulses(self, pulses: Option<Pulses>) -> Self {
        Self { pulses, ..self }
    }

    /// Runs until `ended` is set and it is woken. Counts its turns in `turns`.
    pub(super) fn run(mut self, ended: &AtomicBool, turns: &AtomicU64) {
        let mut ready = Vec::with_capacity(READY_MAX);
        while !ended.load(Ordering::Acquire) {
            turns.fetch_add(1, Ordering::Relaxed);
            ready.clear();
            let pause = self.follow(clock::now());
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready), pause.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                // Only an invalid descriptor or address could cause it.
                Err(_) => return,
            }
            for event in &ready {
                match event.data.u64() {
                    WAKE => self.take_inputs(),
                    number => self.serve(number),
                }
            }
            self.links.ring();
            self.links.wake_rung();
        }
    }

    fn take_inputs(&mut self) {
        self.wake.clear();
        while let Ok(input) = self.inputs.try_recv() {
            match input {
                Input::Admitted(admission) => self.admit(*admission),
                Input::Death(who, evidence) => self.report(who, evidence),
                Input::Answer(session, bytes) => self.answer(session, &bytes),
            }
        }
    }

    fn admit(&mut self, admission: Admission) {
        let Admission { stream, region, generation, role, claims } = admission;
        if region != 0 {
            // A later connection of a process, or of its successor, replaces the earlier one: what
            // that one still had to say is not heard after this.
            let earlier = self.sessions.iter().find(|(_, session)| session.region == region);
            if let Some(number) = earlier.map(|(number, _)| *number) {
                self.end(number);
            }
        }
        let number = self.next;
        self.next += 1;
        let added = epoll::add(&self.epoll, &stream, EventData::new_u64(number), EventFlags::IN);
        if added.is_err() {
            return;
        }
        let from = self.config.address(region, generation);
        let mut session = Session::new(stream, region, (role, claims), from);
        Reply::Welcome { clock: clock::now() }.encode(&mut session.stream.output);
        self.sessions.insert(number, session);
        self.counts.add(GatewayCounter::Admitted);
        // It may have sent requests with its introduction.
        self.serve(number);
    }

    /// Passes on a question that a process has asked. Whoever takes it is not waited for.
    fn ask(&mut self, number: u64, bytes: &[u8]) {
        let Some(session) = self.sessions.get_mut(&number) else { return };
        let allowed = bytes.len() <= QUESTION_BYTES_MAX && session.claims.allow(Duty::of(session.role));
        session.asks = self.questions.as_ref().filter(|_| allowed).is_some_and(|(questions, inbox)| {
            let question = Question { bytes: bytes.to_vec(), session: number, inbox: inbox.clone() };
            questions.try_send(question).is_ok()
        });
        if !session.asks {
            Reply::Failed(LinkError::Denied).encode(&mut session.stream.output);
            self.counts.add(GatewayCounter::Denied);
        }
    }

    fn answer(&mut self, number: u64, bytes: &[u8]) {
        // Who does not wait any more has closed its session.
        let Some(session) = self.sessions.get_mut(&number) else { return };
        session.asks = false;
        Reply::Read(bytes).encode(&mut session.stream.output);
        if self.send(number).is_err() {
            self.end(number);
        }
    }

    /// Ends a session, and its watches.
    fn end(&mut self, number: u64) {
        let Some(session) = self.sessions.remove(&number) else { return };
        for seat in &session.watches {
            self.unwatch(number, *seat);
        }
    }

    fn serve(&mut self, number: u64) {
        match self.requests(number) {
            Ok(()) => {}
            Err(error) => {
                if !matches!(error, StreamError::Closed | StreamError::Io(_)) {
                    self.counts.add(GatewayCounter::Invalid);
                }
                self.end(number);
            }
        }
    }

    /// Executes the requests of a session that have arrived.
    fn requests(&mut self, number: u64) -> Result<(), StreamError> {
        let Some(session) = self.sessions.get_mut(&number) else { return Ok(()) };
        // Who does not take answers gets no further ones.
        let closed = if session.stream.is_congested() { Ok(false) } else { session.stream.receive() };
        let mut lost = 0;
        loop {
            let Some(session) = self.sessions.get_mut(&number) else { return Ok(()) };
            if session.stream.is_congested() {
                break;
            }
            // The message is copied so that its session can be changed meanwhile.
            let Some(message) = session.stream.next()?.map(<[u8]>::to_vec) else { break };
            let request = Request::decode(&message).filter(|_| !session.asks);
            let request = request.ok_or(StreamError::TooLong(message.len()))?;
            lost += self.execute(number, &request);
        }
        self.links.settle_stores();
        let Some(session) = self.sessions.get_mut(&number) else { return Ok(()) };
        if lost > 0 {
            Reply::Lost(lost).encode(&mut session.stream.output);
        }
        self.send(number)?;
        closed.map(drop)
    }

    /// Executes a request. Returns the number of lost datagrams.
    fn execute(&mut self, number: u64, request: &Request<'_>) -> u64 {
        let Some(session) = self.sessions.get_mut(&number) else { return 0 };
        match *request {
            Request::Read { .. } | Request::Write { .. } | Request::Cas { .. } => {
                if !session.operate(request, &mut self.links, &mut self.buffer) {
                    self.counts.add(GatewayCounter::Denied);
                }
                0
            }
            Request::Datagram { .. } | Request::Multicast { .. } if !session.role.may_send() => {
                self.counts.add(GatewayCounter::Denied);
                1
            }
            Request::Datagram { to, bytes } => {
                self.buffer.clear();
                encode_sender(session.from, &mut self.buffer);
                self.buffer.extend_from_slice(bytes);
                u64::from(!self.links.send(to.within_host(), &self.buffer))
            }
            Request::Multicast { groups, bytes } => {
                self.buffer.clear();
                encode_sender(session.from, &mut self.buffer);
                self.buffer.extend_from_slice(bytes);
                self.links.multicast(groups & GROUPS, &self.buffer)
            }
            Request::Watch(seat) => {
                self.watch(number, seat);
                0
            }
            Request::Unwatch(seat) => {
                session.watches.retain(|watched| *watched != seat);
                self.unwatch(number, seat);
                0
            }
            Request::Note(bytes) => {
                // Whoever takes them is not waited for.
                let taken = bytes.len() <= NOTE_BYTES_MAX
                    && self.notes.as_ref().is_some_and(|notes| notes.try_send(bytes.to_vec()).is_ok());
                let reply = if taken { Reply::Written } else { Reply::Failed(LinkError::Denied) };
                reply.encode(&mut session.stream.output);
                if !taken {
                    self.counts.add(GatewayCounter::Denied);
                }
                0
            }
            Request::Ask(bytes) => {
                self.ask(number, bytes);
                0
            }
            Request::Pulse => {
                // Only the gateway of a host speaks for all of its processes.
                let host = session.claims.allow(Duty::Gateway).then_some(session.claims.host);
                let key = SessionKey::of(&session.stream);
                let taken = host.zip(key).zip(self.pulses.as_ref());
                let reply = if taken.is_some() { Reply::Written } else { Reply::Failed(LinkError::Denied) };
                if let Some(((host, key), pulses)) = taken {
                    pulses.send(Command::OpenOf(host, Box::new(key)));
                }
                reply.encode(&mut session.stream.output);
                if reply != Reply::Written {
                    self.counts.add(GatewayCounter::Denied);
                }
                0
            }
            Request::Ping => {
                Reply::Pong { clock: clock::now() }.encode(&mut session.stream.output);
                0
            }
        }
    }

    /// A death was reported to a session.
    fn expect_follower(&mut self, session: u64, number: u32) {
        if number < FOLLOWERS {
            let at = clock::now() + FOLLOWER_PAUSE.saturating_mul(1 << number);
            self.followers.push(Reverse(Follower { at, session, number }));
        }
    }

    /// Sends the followers that are due. Returns the time until the next one.
    fn follow(&mut self, now: Instant) -> Option<Timespec> {
        while let Some(Reverse(Follower { at, session: number, number: sent })) =
            self.followers.peek().copied()
        {
            if at > now {
                return Timespec::try_from(at.since(now).to_std()).ok();
            }
            self.followers.pop();
            if let Some(session) = self.sessions.get_mut(&number) {
                // A message that says nothing.
                Reply::Lost(0).encode(&mut session.stream.output);
                if self.send(number).is_err() {
                    self.end(number);
                }
                self.expect_follower(number, sent + 1);
            }
        }
        None
    }

    fn command(&self, command: WatchCommand) {
        if let Some((commands, waker)) = &self.watcher {
            // The watching thread ends only with this one.
            let _ = commands.send(command);
            waker.wake();
        }
    }

    fn watch(&mut self, number: u64, seat: Seat) {
        let Some(session) = self.sessions.get_mut(&number) else { return };
        if session.watches.contains(&seat) {
            return;
        }
        session.watches.push(seat);
        let watched = self.watched.entry(seat).or_default();
        watched.sessions.push(number);
        for evidence in &watched.reported {
            Reply::Death(seat, *evidence).encode(&mut session.stream.output);
        }
        let (is_first, is_dead) = (watched.sessions.len() == 1, !watched.reported.is_empty());
        if is_dead {
            self.expect_follower(number, 0);
        }
        if is_first {
            self.command(WatchCommand::Watch(seat.within_host()));
        }
    }

    fn unwatch(&mut self, number: u64, seat: Seat) {
        let Some(watched) = self.watched.get_mut(&seat) else { return };
        watched.sessions.retain(|session| *session != number);
        if watched.sessions.is_empty() {
            self.watched.remove(&seat);
            self.command(WatchCommand::Unwatch(seat.within_host()));
        }
    }

    /// Tells all who watch a process of its death.
    fn report(&mut self, who: Address, evidence: Evidence) {
        let seat = Seat::of(who);
        let Some(watched) = self.watched.get_mut(&seat) else { return };
        watched.reported.push(evidence);
        for number in watched.sessions.clone() {
            if let Some(session) = self.sessions.get_mut(&number) {
                Reply::Death(seat, evidence).encode(&mut session.stream.output);
            }
            if self.send(number).is_err() {
                self.end(number);
            }
            self.expect_follower(number, 0);
        }
    }

    /// Sends a session's answers, and asks to be told when the rest can be sent.
    fn send(&mut self, number: u64) -> Result<(), StreamError> {
        let Some(session) = self.sessions.get_mut(&number) else { return Ok(()) };
        let stalled = !session.stream.send()?;
        if core::mem::replace(&mut session.stalled, stalled) != stalled {
            let flags = if stalled { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            epoll::modify(&self.epoll, &session.stream, EventData::new_u64(number), flags)
                .map_err(|error| StreamError::Io(error.into()))?;
        }
        Ok(())
    }
}
