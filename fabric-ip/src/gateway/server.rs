//! The thread that executes operations and delivers datagrams.
//!
//! In a turn it serves each host as far as its budget goes ([`super::budget`]); what is left waits for
//! the next turn, behind what got no time in this one.

use super::admit::Admission;
use super::budget::{
    self, Accounts, MESSAGE_WORK, Payer, STALLED_EVERY, STALLED_MAX, WATCHES_MAX, WATCHES_OF_HOST_MAX,
};
use super::pulse::{Command, Pulses, SessionKey};
use super::session::Session;
use super::{Counts, GatewayCounter, Input, Inputs, Notes, Question, WatchCommand};
use crate::config::Config;
use crate::frame::{Reply, Request, Seat, encode_sender};
use core::sync::atomic::AtomicU64;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use obol_fabric::contract::{Evidence, Group, LinkError};
use obol_fabric::host::{Cluster, MappedRegions, Region, Wake, Waker, clock, poll};
use obol_fabric::shm::Links;
use obol_fabric::types::{Address, Instant, Nanos, RegionOwner};
use obol_identity::{Duty, StreamError};
use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender};

/// Ready sessions that are taken at a time.
const READY_MAX: usize = 64;
/// The number of the wake-up among the sessions.
const WAKE: u64 = 0;
/// The groups that a process of another host may send to.
const GROUPS: u32 = Group::Coordinators.bit() | Group::Everyone.bit() | Group::Drills.bit();
/// The same where members take their datagrams from RDMA devices, and none from their lanes.
const GROUPS_BESIDE_DEVICES: u32 = Group::Drills.bit();

/// Whether a region of this host is a member's, by its groups.
fn is_member(links: &Links, at: Seat) -> bool {
    let entry = links.regions.cluster.table.get(at.region);
    entry.is_some_and(|entry| entry.role.groups & GROUPS & !GROUPS_BESIDE_DEVICES != 0)
}

/// The longest annotation: of a rollout, with a line for each limit and for each that does not hold.
const NOTE_BYTES_MAX: usize = 4096;
/// The longest question.
const QUESTION_BYTES_MAX: usize = 4096;

/// Messages sent after one of a death, and the pause before the first; each further one is twice as
/// long. The death was not asked for, so nobody would miss it if its packet were lost; TCP repeats it
/// soon only if something follows (see [`crate::probe`]).
const FOLLOWERS: u32 = 3;
const FOLLOWER_PAUSE: Nanos = Nanos::from_millis(2);

/// A message that is to follow a death. A session has one at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Follower {
    at: Instant,
    session: u64,
}

/// A watched process.
#[derive(Default)]
struct Watched {
    sessions: Vec<u64>,
    /// What is known of its death, for those who ask later.
    reported: Vec<Evidence>,
}

pub(super) struct Server {
    epoll: Epoll,
    inputs: Receiver<Input>,
    wake: Arc<Wake>,
    links: Links,
    config: Config,
    sessions: HashMap<u64, Session>,
    next: u64,
    accounts: Accounts,
    /// Sessions of observers of a host.
    readers_max: usize,
    turn: u64,
    /// Sessions that are served in the next turn: those that got no time in this one, and those that
    /// have used theirs.
    skipped: Vec<u64>,
    unfinished: Vec<u64>,
    /// When sessions that take no answers are looked for, if there are any.
    stalled_at: Option<Instant>,
    watched: HashMap<Seat, Watched>,
    followers: BinaryHeap<Reverse<Follower>>,
    watcher: Option<(Sender<WatchCommand>, Waker)>,
    counts: Counts,
    notes: Option<Notes>,
    /// Where questions go, and their answers come.
    questions: Option<(SyncSender<Question>, Inputs)>,
    pulses: Option<Pulses>,
    /// The bytes of a READ, and of a datagram with its sender.
    buffer: Vec<u8>,
}

/// What other threads have for the server, and what wakes it for that.
pub(super) struct Incoming {
    pub(super) inputs: Receiver<Input>,
    pub(super) wake: Arc<Wake>,
}

impl Server {
    pub(super) fn new(
        cluster: &Cluster,
        region: &Region,
        me: RegionOwner,
        config: &Config,
        readers_max: usize,
        incoming: Incoming,
        counts: Counts,
    ) -> std::io::Result<Self> {
        let Incoming { inputs, wake } = incoming;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&*wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE))?;
        Ok(Self {
            epoll,
            inputs,
            wake,
            links: Links::new(MappedRegions::new(cluster.clone(), me, region.clone()), me),
            config: config.clone(),
            sessions: HashMap::new(),
            next: WAKE + 1,
            accounts: Accounts::default(),
            readers_max,
            turn: 0,
            skipped: Vec::new(),
            unfinished: Vec::new(),
            stalled_at: None,
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
    pub(super) fn with_notes(self, notes: Option<Notes>) -> Self {
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
        let mut ready = [EpollEvent::empty(); READY_MAX];
        while !ended.load(Ordering::Acquire) {
            turns.fetch_add(1, Ordering::Relaxed);
            let pause = self.pause();
            let ready = match self.epoll.wait(&mut ready, pause) {
                Ok(count) => &ready[..count],
                Err(Errno::EINTR) => &[],
                // Only an invalid descriptor or address could cause it.
                Err(_) => return,
            };
            self.turn += 1;
            let overdrawn = self.accounts.next_turn();
            self.counts.add_all(GatewayCounter::Throttled, overdrawn);
            let events = || ready.iter().map(|event| event.data());
            if events().any(|number| number == WAKE) {
                self.take_inputs();
            }
            let unfinished = core::mem::take(&mut self.unfinished);
            let waiting = core::mem::take(&mut self.skipped).into_iter().chain(unfinished);
            for number in waiting {
                if let Some(session) = self.sessions.get_mut(&number) {
                    session.deferred = false;
                    self.serve(number);
                }
            }
            events().filter(|number| *number != WAKE).for_each(|number| self.serve(number));
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
        if region == 0 {
            self.make_room(claims.host);
        } else {
            // A later connection of a process, or of its successor, replaces the earlier one: what
            // that one still had to say is not heard after this.
            let earlier = self.sessions.iter().find(|(_, session)| session.region == region);
            if let Some(number) = earlier.map(|(number, _)| *number) {
                self.end(number);
            }
        }
        let number = self.next;
        self.next += 1;
        let added = self.epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, number));
        if added.is_err() {
            return;
        }
        let from = self.config.address(region, generation);
        let mut session = Session::new(stream, region, role, claims, from);
        session.used = self.turn;
        Reply::Welcome { clock: clock::now() }.encode(&mut session.stream.output);
        self.sessions.insert(number, session);
        self.counts.add(GatewayCounter::Admitted);
        // It may have sent requests with its introduction.
        self.serve(number);
    }

    /// Ends a session of a host's observers if they have as many as they may.
    fn make_room(&mut self, host: u8) {
        let readers = || {
            self.sessions.iter().filter(|(_, one)| one.payer == Payer { host, reads: true } && !one.pulses)
        };
        if readers().count() < self.readers_max {
            return;
        }
        if let Some(number) =
            readers().min_by_key(|(number, one)| (one.used, **number)).map(|(number, _)| *number)
        {
            self.end(number);
            self.counts.add(GatewayCounter::Evicted);
        }
    }

    /// Passes on a question that a process has asked, without waiting for its receiver.
    fn ask(&mut self, number: u64, bytes: &[u8]) {
        let Some(session) = self.sessions.get_mut(&number) else { return };
        let account = self.accounts.of(session.payer);
        let allowed = bytes.len() <= QUESTION_BYTES_MAX
            && account.questions < budget::QUESTIONS_MAX
            && session.claims.allow(Duty::of(session.role));
        session.asks = self.questions.as_ref().filter(|_| allowed).is_some_and(|(questions, inbox)| {
            let question = Question { bytes: bytes.to_vec(), session: number, inbox: inbox.clone() };
            questions.try_send(question).is_ok()
        });
        if session.asks {
            account.questions += 1;
        } else {
            Reply::Failed(LinkError::Denied).encode(&mut session.stream.output);
            self.counts.add(GatewayCounter::Denied);
        }
    }

    fn answer(&mut self, number: u64, bytes: &[u8]) {
        // Who does not wait any more has closed its session.
        let Some(session) = self.sessions.get_mut(&number) else { return };
        if core::mem::take(&mut session.asks) {
            self.accounts.of(session.payer).questions -= 1;
        }
        Reply::Read(bytes).encode(&mut session.stream.output);
        if self.send(number).is_err() {
            self.end(number);
        }
    }

    /// Ends a session, and its watches.
    fn end(&mut self, number: u64) {
        let Some(session) = self.sessions.remove(&number) else { return };
        let account = self.accounts.of(session.payer);
        account.unsent -= session.unsent;
        account.watches -= session.watches.len();
        account.questions -= usize::from(session.asks);
        for seat in &session.watches {
            self.unwatch(number, session.payer, *seat);
        }
    }

    fn serve(&mut self, number: u64) {
        match self.requests(number) {
            Ok(()) => {}
            Err(error) => {
                match error {
                    StreamError::Closed | StreamError::Io(_) => {}
                    StreamError::Full => self.counts.add(GatewayCounter::Stalled),
                    StreamError::Tls(_) | StreamError::TooLong(_) => self.counts.add(GatewayCounter::Invalid),
                }
                self.end(number);
            }
        }
    }

    /// Serves a session in the next turn: it got no time in this one (`skipped`), or has used it.
    fn defer(&mut self, number: u64, skipped: bool) {
        let Some(session) = self.sessions.get_mut(&number) else { return };
        self.accounts.of(session.payer).is_overdrawn = true;
        if !core::mem::replace(&mut session.deferred, true) {
            if skipped { self.skipped.push(number) } else { self.unfinished.push(number) }
        }
    }

    /// Executes the requests of a session that have arrived, as far as its budget goes.
    fn requests(&mut self, number: u64) -> Result<(), StreamError> {
        let Some(session) = self.sessions.get_mut(&number) else { return Ok(()) };
        let payer = session.payer;
        let account = self.accounts.of(payer);
        let (mut left, unsent_max) = (account.left(), account.unsent_max());
        if left == 0 {
            self.defer(number, true);
            return Ok(());
        }
        session.used = self.turn;
        // Who does not take answers gets no further ones, and is not received from.
        if !session.behind && session.closed.is_none() && !session.is_congested(unsent_max) {
            session.closed = session.stream.receive().err();
        }
        session.behind = false;
        let (mut lost, mut is_spent) = (0, false);
        loop {
            let Some(session) = self.sessions.get_mut(&number) else { return Ok(()) };
            let work = session.stream.take_work();
            left = left.saturating_sub(work);
            let account = self.accounts.of(payer);
            account.work(work);
            is_spent |= left == 0 || account.has_commands();
            if is_spent || session.is_congested(unsent_max) {
                session.behind = true;
                break;
            }
            // The message is copied so that its session can be changed meanwhile.
            let Some(message) = session.stream.next_message()?.map(<[u8]>::to_vec) else { break };
            let request = Request::decode(&message).filter(|_| !session.asks);
            let request = request.ok_or(StreamError::TooLong(message.len()))?;
            left = left.saturating_sub(MESSAGE_WORK);
            account.work(MESSAGE_WORK);
            lost += self.execute(number, &request);
        }
        self.links.settle_stores();
        let Some(session) = self.sessions.get_mut(&number) else { return Ok(()) };
        if lost > 0 {
            Reply::Lost(lost).encode(&mut session.stream.output);
        }
        self.send(number)?;
        let Some(session) = self.sessions.get_mut(&number) else { return Ok(()) };
        if !session.behind {
            // What it has sent is executed.
            return session.closed.take().map_or(Ok(()), Err);
        }
        // If it is congested, it is served when the socket takes more.
        if is_spent || session.stalled_since.is_none() {
            self.defer(number, false);
        }
        Ok(())
    }

    /// Executes a request. Returns the number of lost datagrams.
    fn execute(&mut self, number: u64, request: &Request<'_>) -> u64 {
        let Some(session) = self.sessions.get_mut(&number) else { return 0 };
        match *request {
            // A device's CAS and a processor's are not atomic with respect to each other, and it is queue pairs
            // that have permissions to WRITE.
            Request::Write { .. } | Request::Cas { .. } if self.config.devices => {
                Reply::Failed(LinkError::Denied).encode(&mut session.stream.output);
                self.counts.add(GatewayCounter::Denied);
                0
            }
            Request::Read { .. } | Request::Write { .. } | Request::Cas { .. } => {
                let (config, host) = (&self.config, self.links.regions.cluster.host());
                let is_here = |seat: Seat| config.host_of(seat.region) == Some(host);
                if !session.operate(request, is_here, &mut self.links, &mut self.buffer) {
                    self.counts.add(GatewayCounter::Denied);
                }
                0
            }
            Request::Datagram { .. } | Request::Multicast { .. } if !session.role.may_send() => {
                self.counts.add(GatewayCounter::Denied);
                1
            }
            // Nobody would empty its lanes.
            Request::Datagram { to, .. } if self.config.devices && is_member(&self.links, to) => {
                self.counts.add(GatewayCounter::Denied);
                1
            }
            Request::Datagram { to, bytes } => {
                self.buffer.clear();
                encode_sender(session.from, &mut self.buffer);
                self.buffer.extend_from_slice(bytes);
                self.links.on_behalf_of(session.payer.host);
                let lost = u64::from(!self.links.send(to.within_host(), &self.buffer));
                self.counts.add_all(GatewayCounter::LanesFull, lost);
                lost
            }
            Request::Multicast { groups, bytes } => {
                self.buffer.clear();
                encode_sender(session.from, &mut self.buffer);
                self.buffer.extend_from_slice(bytes);
                self.links.on_behalf_of(session.payer.host);
                let allowed = if self.config.devices { GROUPS_BESIDE_DEVICES } else { GROUPS };
                let lost = self.links.multicast(groups & allowed, &self.buffer);
                self.counts.add_all(GatewayCounter::LanesFull, lost);
                lost
            }
            Request::Watch(seat) => {
                self.watch(number, seat);
                0
            }
            Request::Unwatch(seat) => {
                if session.watches.remove(&seat) {
                    let payer = session.payer;
                    self.accounts.of(payer).watches -= 1;
                    self.unwatch(number, payer, seat);
                }
                0
            }
            Request::Note(bytes) => {
                // The receiver is not waited for.
                let host = session.claims.host;
                let taken = bytes.len() <= NOTE_BYTES_MAX
                    && self.notes.as_ref().is_some_and(|notes| {
                        (notes.is_note)(bytes) && notes.sender.try_send((host, bytes.to_vec())).is_ok()
                    });
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
                self.pulse(number);
                0
            }
            Request::Ping => {
                Reply::Pong { clock: clock::now() }.encode(&mut session.stream.output);
                0
            }
        }
    }

    /// The gateway of a host says that its pulses come, sealed with a key of this session.
    fn pulse(&mut self, number: u64) {
        let Some(session) = self.sessions.get_mut(&number) else { return };
        // Only the gateway of a host speaks for all of its processes, and once per session.
        let may = session.claims.allow(Duty::Gateway) && session.region == 0 && !session.pulses;
        let host = may.then_some(session.claims.host);
        let key = SessionKey::of(&session.stream);
        let Some(((host, key), pulses)) = host.zip(key).zip(self.pulses.as_ref()) else {
            Reply::Failed(LinkError::Denied).encode(&mut session.stream.output);
            return self.counts.add(GatewayCounter::Denied);
        };
        pulses.send(Command::OpenOf(host, Box::new(key)));
        Reply::Written.encode(&mut session.stream.output);
        session.pulses = true;
        // The key of an earlier one is forgotten.
        let earlier = self
            .sessions
            .iter()
            .find(|(other, one)| **other != number && one.pulses && one.claims.host == host);
        if let Some(earlier) = earlier.map(|(number, _)| *number) {
            self.end(earlier);
        }
    }

    /// A death was reported to a session.
    fn expect_follower(&mut self, session: u64) {
        if let Some(of) = self.sessions.get_mut(&session)
            && core::mem::replace(&mut of.followers, FOLLOWERS) == 0
        {
            self.followers.push(Reverse(Follower { at: clock::now() + FOLLOWER_PAUSE, session }));
        }
    }

    /// Does what is due, and returns the time until there is something to do again, if nothing arrives.
    fn pause(&mut self) -> EpollTimeout {
        let now = clock::now();
        self.end_stalled(now);
        let due = [self.follow(now), self.stalled_at].into_iter().flatten().min();
        let is_due = !(self.skipped.is_empty() && self.unfinished.is_empty());
        match due {
            _ if is_due => EpollTimeout::ZERO,
            Some(due) => poll::timeout(due.since(now).to_std()),
            None => EpollTimeout::NONE,
        }
    }

    /// Sends the followers that are due. Returns when the next one is.
    fn follow(&mut self, now: Instant) -> Option<Instant> {
        while let Some(Reverse(Follower { at, session: number })) = self.followers.peek().copied() {
            if at > now {
                return Some(at);
            }
            self.followers.pop();
            let Some(session) = self.sessions.get_mut(&number) else { continue };
            session.followers = session.followers.saturating_sub(1);
            let (left, sent) = (session.followers, FOLLOWERS - session.followers);
            // A message that says nothing.
            Reply::Lost(0).encode(&mut session.stream.output);
            if self.send(number).is_err() {
                self.end(number);
            } else if left > 0 {
                let at = now + FOLLOWER_PAUSE.saturating_mul(1 << sent);
                self.followers.push(Reverse(Follower { at, session: number }));
            }
        }
        None
    }

    /// Ends sessions whose peers have taken none of their answers for too long.
    fn end_stalled(&mut self, now: Instant) {
        if self.stalled_at.is_none_or(|at| now < at) {
            return;
        }
        let stalled = self.sessions.iter().filter_map(|(number, one)| Some((*number, one.stalled_since?)));
        let (over, waiting): (Vec<_>, Vec<_>) = stalled.partition(|(_, since)| *since + STALLED_MAX <= now);
        self.stalled_at = (!waiting.is_empty()).then(|| now + STALLED_EVERY);
        for (number, _) in over {
            self.end(number);
            self.counts.add(GatewayCounter::Stalled);
        }
    }

    fn command(&self, command: WatchCommand) {
        if let Some((commands, waker)) = &self.watcher {
            // The watching thread ends only with this one.
            let _ = commands.send(command);
            waker.wake();
        }
    }

    fn watch(&mut self, number: u64, seat: Seat) {
        let host = self.links.regions.cluster.host();
        let seats = self.links.layout().limits().seats;
        let Some(session) = self.sessions.get_mut(&number) else { return };
        if session.watches.contains(&seat) {
            return;
        }
        let account = self.accounts.of(session.payer);
        let may = session.region != 0
            && self.config.host_of(seat.region) == Some(host)
            && u32::from(seat.seat) < seats
            && session.watches.len() < WATCHES_MAX
            && account.watches < WATCHES_OF_HOST_MAX;
        if !may {
            return self.counts.add(GatewayCounter::WatchesRefused);
        }
        session.watches.insert(seat);
        account.watches += 1;
        let payer = session.payer;
        let watched = self.watched.entry(seat).or_default();
        watched.sessions.push(number);
        for evidence in &watched.reported {
            Reply::Death(seat, *evidence).encode(&mut session.stream.output);
        }
        let (is_first, is_dead) = (watched.sessions.len() == 1, !watched.reported.is_empty());
        if is_dead {
            self.expect_follower(number);
        }
        if is_first {
            let command = self.accounts.of(payer).command();
            self.command(WatchCommand::Watch(seat.within_host(), command));
        }
    }

    fn unwatch(&mut self, number: u64, payer: Payer, seat: Seat) {
        let Entry::Occupied(mut watched) = self.watched.entry(seat) else { return };
        watched.get_mut().sessions.retain(|session| *session != number);
        if watched.get().sessions.is_empty() {
            watched.remove();
            let command = self.accounts.of(payer).command();
            self.command(WatchCommand::Unwatch(seat.within_host(), command));
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
            self.expect_follower(number);
        }
    }

    /// Sends a session's answers, and asks to be woken when the rest can be sent. Nothing is asked of a
    /// session that is not received from: what it has sent would end each wait at once.
    fn send(&mut self, number: u64) -> Result<(), StreamError> {
        let Some(session) = self.sessions.get_mut(&number) else { return Ok(()) };
        let account = self.accounts.of(session.payer);
        let sent = session.stream.send();
        account.work(session.stream.take_work());
        let unsent = session.stream.unsent();
        account.unsent = account.unsent - core::mem::replace(&mut session.unsent, unsent) + unsent;
        let mut flags = EpollFlags::empty();
        if sent? {
            session.stalled_since = None;
        } else {
            flags |= EpollFlags::EPOLLOUT;
            let now = clock::now();
            if session.stream.take_progress() {
                session.stalled_since = Some(now);
            }
            session.stalled_since.get_or_insert(now);
            self.stalled_at.get_or_insert(now + STALLED_EVERY);
        }
        if session.closed.is_none() && !session.is_congested(account.unsent_max()) {
            flags |= EpollFlags::EPOLLIN;
        }
        if core::mem::replace(&mut session.flags, flags) != flags {
            self.epoll
                .modify(&session.stream, &mut EpollEvent::new(flags, number))
                .map_err(|error| StreamError::Io(error.into()))?;
        }
        Ok(())
    }
}
