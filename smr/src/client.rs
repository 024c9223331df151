//! A client: sends commands and queries to the leader, and repeats what is not answered.

use crate::area::{Area, Block, HEADER_BYTES, WINDOW};
use crate::clients::{BESIDE, Request, Status};
use crate::config::{Config, VOTERS_MAX};
use crate::follow::{Activity, Header};
use crate::limits::PAYLOAD_BYTES_MAX;
use crate::members;
use crate::message::{MESSAGE_BYTES_MAX, Message};
use crate::position::Term;
use crate::presets::Preset;
use crate::tokens::WAKEUP;
use crate::tokens::{Part, token};
use core::sync::atomic::Ordering;
use obol_fabric::sealed;
use obol_fabric::{Address, Fabric, Incarnation, Instant, LinkError, Nanos, Remote, ViewId};
use obol_membership::View;
use std::collections::VecDeque;
use thiserror::Error;

/// Polls of a client that polls without a pause between two rounds of other work.
const POLLS_PER_TICK: u32 = 32;
/// After this time without a command a client takes a new session before the next one. The log keeps a
/// bounded number of sessions, and whether a command of one that it dropped took effect is unknown. That
/// number of others is not used in this time.
const SESSION_FRESH: Nanos = Nanos::from_secs(1);
/// Retry intervals grow up to this factor: repeating does not help a network or leader that is
/// overloaded.
const RETRY_FACTOR_MAX: u64 = 32;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A command of the service, which takes effect exactly once.
    Propose(Box<[u8]>),
    /// A query, which sees all that was answered before it began.
    Query(Box<[u8]>),
    /// How many voters there should be from now on, from 1 to [`VOTERS_MAX`]. Its reply is empty.
    Resize(u32),
}

/// Why an operation was not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BeginError {
    /// [`WINDOW`] operations are outstanding already.
    #[error("{} operations are outstanding already; take an answer first", WINDOW - 1)]
    Busy,
    /// It has more than [`PAYLOAD_BYTES_MAX`] bytes.
    #[error("a command or query has at most {PAYLOAD_BYTES_MAX} bytes, this one has {0}")]
    TooLong(usize),
    /// A log cannot have this number of voters.
    #[error("a log has 1 to {VOTERS_MAX} voters, not {0}")]
    Voters(u32),
}

/// Why a client can no longer be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum ClientError {
    /// The session was dropped because [`SESSIONS_MAX`](crate::SESSIONS_MAX) other clients were used
    /// since this one was last heard of.
    #[error(
        "the session of this client has ended, because {} others were used since; whether its last commands took effect is \
         unknown: read the state, and start a new client",
        crate::SESSIONS_MAX
    )]
    SessionEnded,
    /// The replicas have room for this number of clients and replicas, and older ones take all of it.
    #[error(
        "replicas have room for {0} clients and replicas, and as many older ones exist; stop some, or raise limits.slots or \
         limits.value_bytes of the profile"
    )]
    Crowded(u32),
}

/// An operation that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Its number, as returned by [`Client::begin`].
    pub number: u64,
    /// What the service replied.
    pub reply: Box<[u8]>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Pending {
    number: u64,
    kind: Request,
    payload: Box<[u8]>,
    /// When it was first sent to this leader.
    at: Instant,
    is_done: bool,
}

/// How the replicas find their leader, as far as the client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Led {
    /// It assumes that views say who leads.
    Unknown,
    ByViews,
    /// By themselves ([`crate::PullScore`]): the client READs from each whether it leads.
    ByItself,
}

/// The leader, as its client needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Leader {
    who: Incarnation,
    at: Address,
    /// Where the client writes its requests there.
    block: Block,
}

/// A client with one session and up to [`WINDOW`] outstanding requests. Commands take effect in the
/// order in which they were begun, and a query sees the commands that were begun before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    area: Area,
    /// Random, never zero: it identifies the session.
    id: u64,
    /// It sleeps while it waits, and so may the leader.
    wakes: bool,
    /// It is in the process of a replica, and shares its region.
    is_beside: bool,
    /// That replica leads, and has requests to look for.
    is_called: bool,
    poll_every: Nanos,
    retry_every: Nanos,
    own: Option<Incarnation>,
    view: ViewId,
    leader: Option<Leader>,
    led: Led,
    /// The term of the leader, if the client has found it.
    term: Term,
    /// The replicas of the view, and its block there.
    replicas: Vec<(Incarnation, Address)>,
    block: Option<Block>,
    /// The session exists.
    is_open: bool,
    /// When it was known last that it does.
    used_at: Instant,
    /// Number of the connection to a leader.
    connection: u64,
    next: u64,
    pending: VecDeque<Pending>,
    ended: VecDeque<(u64, Box<[u8]>)>,
    error: Option<ClientError>,
    /// Requests were sent, and a sleeping leader has not been woken for them.
    wake_due: bool,
    /// Answer latency, including repeated requests.
    latency: Nanos,
    retry_in: Nanos,
    retry_at: Instant,
    poll_at: Instant,
    buffer: Vec<u8>,
}

impl Client {
    /// A client with a random id that polls for answers at this interval, and repeats a request
    /// that has no answer after the other one.
    pub fn new(area: Area, id: u64, poll_every: Nanos, retry_every: Nanos) -> Self {
        let open = Pending {
            number: 1,
            kind: Request::Open,
            payload: Box::default(),
            at: Instant::ZERO,
            is_done: false,
        };
        Self {
            area,
            id: id.max(1),
            wakes: false,
            is_beside: false,
            is_called: false,
            poll_every,
            retry_every,
            own: None,
            view: ViewId(0),
            leader: None,
            led: Led::Unknown,
            term: Term(0),
            replicas: Vec::new(),
            block: None,
            is_open: false,
            used_at: Instant::ZERO,
            connection: 0,
            next: 2,
            pending: VecDeque::from([open]),
            ended: VecDeque::new(),
            error: None,
            wake_due: false,
            latency: Nanos::ZERO,
            retry_in: retry_every,
            retry_at: Instant::NEVER,
            poll_at: Instant::NEVER,
            buffer: Vec::new(),
        }
    }

    /// The same for a client that sleeps while it waits: it wakes up the leader, which may sleep as
    /// well, and is woken up.
    #[must_use]
    pub const fn with_wakeups(mut self) -> Self {
        self.wakes = true;
        self
    }

    /// The same for one that shares the process and the region of a replica: see
    /// [`crate::Node::with_client`].
    #[must_use]
    pub(crate) const fn beside(mut self) -> Self {
        (self.is_beside, self.wakes) = (true, true);
        self
    }

    /// Whether the replica beside it has requests to look for: new ones, or some for which its ring had no
    /// room.
    pub(crate) fn take_call(&mut self, own: Address) -> bool {
        let waits = !self.pending.is_empty() && self.leader_at() == Some(own);
        core::mem::replace(&mut self.is_called, false) || waits
    }

    /// Begins an operation; returns its number. A leader that sleeps is woken up by
    /// [`Client::flush`], or by this client's next turn: once for all that was begun before.
    pub fn begin<F: Fabric>(
        &mut self,
        now: Instant,
        operation: Operation,
        fabric: &mut F,
    ) -> Result<u64, BeginError> {
        let (kind, payload) = match operation {
            Operation::Propose(payload) => (Request::Propose, payload),
            Operation::Query(payload) => (Request::Query, payload),
            Operation::Resize(voters) => {
                let payload = Config::encode_target(voters).ok_or(BeginError::Voters(voters))?;
                (Request::Resize, payload.into())
            }
        };
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(BeginError::TooLong(payload.len()));
        }
        if self.is_busy() {
            return Err(BeginError::Busy);
        }
        if kind != Request::Query {
            self.renew(now, fabric);
        }
        let number = self.next;
        self.next += 1;
        self.pending.push_back(Pending { number, kind, payload, at: now, is_done: false });
        if self.is_open {
            self.write(number, fabric);
            self.wake_due = true;
            self.retry_at = self.retry_at.min(now + self.retry_first());
        }
        self.poll_at = self.poll_at.min(now + self.poll_every);
        Ok(number)
    }

    /// Begins another session if this one may have ended, and nothing is on the way that its end would make
    /// uncertain. Queries need none: those that wait are sent again after it.
    fn renew<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        let is_fresh = now.since(self.used_at) < SESSION_FRESH;
        let is_certain = self.pending.iter().all(|pending| pending.is_done || pending.kind == Request::Query);
        // The request that follows needs a number, too.
        let has_room = self.pending.front().is_none_or(|oldest| self.next + 1 - oldest.number < WINDOW);
        if !self.is_open || is_fresh || !is_certain || !has_room {
            return;
        }
        self.id = another(self.id, self.next);
        self.is_open = false;
        let (number, kind, payload) = (self.next, Request::Open, Box::default());
        self.next += 1;
        self.pending.push_back(Pending { number, kind, payload, at: now, is_done: false });
        self.retry_in = self.retry_first();
        self.retry(now, fabric);
    }

    /// Has its next turn take place at once, and look for answers.
    pub const fn look_soon(&mut self) {
        self.poll_at = Instant::ZERO;
    }

    /// Looks for answers now.
    pub fn look<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        if !self.pending.is_empty() {
            self.poll(now, fabric);
        }
    }

    /// Wakes up the leader for the operations that were begun since.
    pub fn flush<F: Fabric>(&mut self, fabric: &mut F) {
        if core::mem::take(&mut self.wake_due) && self.wakes {
            self.wake_leader(fabric);
        }
    }

    /// Whether the oldest outstanding request is [`WINDOW`] requests old.
    pub fn is_busy(&self) -> bool {
        self.pending.front().is_some_and(|oldest| self.next - oldest.number >= WINDOW)
    }

    /// A completed operation, if there is one.
    pub fn take(&mut self) -> Option<Done> {
        let (number, reply) = self.ended.pop_front()?;
        Some(Done { number, reply })
    }

    /// The leader: that of the newest known view, or the one that it has found.
    pub fn leader(&self) -> Option<Incarnation> {
        self.leader.map(|leader| leader.who)
    }

    pub fn leader_at(&self) -> Option<Address> {
        self.leader.map(|leader| leader.at)
    }

    /// Whether its session has begun.
    pub const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Why this client can no longer be used, if so.
    pub const fn error(&self) -> Option<ClientError> {
        self.error
    }

    /// The newest view that is known.
    pub const fn view(&self) -> ViewId {
        self.view
    }

    /// The number of outstanding operations.
    pub fn waiting(&self) -> usize {
        self.pending.iter().filter(|pending| !pending.is_done && pending.kind != Request::Open).count()
    }

    pub(crate) fn deadline(&self) -> Instant {
        let is_due = self.wake_due || self.is_called;
        if is_due { Instant::ZERO } else { self.poll_at.min(self.retry_at) }
    }

    /// Installs the newest view: outstanding requests are sent to a new leader.
    pub(crate) fn install<F: Fabric>(
        &mut self,
        now: Instant,
        view: &View,
        own: Option<Incarnation>,
        fabric: &mut F,
    ) {
        self.view = view.id;
        // A leader accepts requests only from members of its view.
        let is_anew = own != self.own;
        self.own = own;
        let clients = self.area.clients(view);
        let block = own.and_then(|own| clients.iter().find(|it| it.who == own)).map(|it| it.block);
        let able = || members::clients(view).chain(members::replicas(view));
        let is_here = |own: &Incarnation| able().any(|client| client.incarnation == *own);
        if own.filter(|own| block.is_none() && is_here(own)).is_some() {
            self.error = self.error.or(Some(ClientError::Crowded(self.area.clients_max())));
        }
        let block = block.filter(|_| self.error.is_none());
        self.replicas = members::replicas(view).map(|it| (it.incarnation, it.address)).collect();
        self.block = block;
        let leader = if self.led == Led::ByItself {
            self.leader.map(|known| (known.who, known.at)).filter(|known| self.replicas.contains(known))
        } else {
            self.replicas.first().copied()
        };
        if leader.is_none() {
            self.term = Term(0);
            self.seek(fabric);
        }
        let leader = leader.zip(block).map(|((who, at), block)| Leader { who, at, block });
        if is_anew || leader != self.leader {
            self.leader = leader;
            self.retry_in = self.retry_first();
            for pending in &mut self.pending {
                pending.at = now;
            }
            self.retry(now, fabric);
        }
    }

    pub(crate) fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.flush(fabric);
        if now >= self.poll_at {
            let polls = if self.poll_every == Nanos::ZERO { POLLS_PER_TICK } else { 1 };
            for _ in 0..polls {
                if self.poll(now, fabric) {
                    break;
                }
                core::hint::spin_loop();
            }
            self.poll_at = if self.pending.is_empty() { Instant::NEVER } else { now + self.poll_every };
        }
        if now >= self.retry_at {
            self.seek(fabric);
            self.retry(now, fabric);
        }
    }

    /// A wakeup: there are answers.
    pub(crate) const fn on_wakeup(&mut self) {
        self.look_soon();
    }

    /// Polls for answers in own memory; returns whether there were any.
    fn poll<F: Fabric>(&mut self, now: Instant, fabric: &mut F) -> bool {
        let (mut any, mut opened) = (false, false);
        for pending in self.pending.iter_mut().filter(|pending| !pending.is_done) {
            let place = match (self.is_beside, self.block) {
                (false, _) => self.area.answer(pending.number),
                (true, Some(block)) => self.area.answer_beside(block, pending.number),
                (true, None) => break,
            };
            let Some(words) = fabric.own(place, MESSAGE_BYTES_MAX) else { break };
            // What an earlier answer has left there is not read.
            if words.first().is_none_or(|word| word.load(Ordering::Relaxed) != pending.number) {
                continue;
            }
            let Some(answer) = Message::read(words, &mut self.buffer) else { continue };
            if answer.client != self.id || answer.number != pending.number {
                continue;
            }
            let mark = if self.is_beside { BESIDE } else { 0 };
            match Status::from_repr(answer.kind ^ mark) {
                Some(Status::Done) => {}
                Some(Status::NoSession) => {
                    self.error = self.error.or(Some(ClientError::SessionEnded));
                    break;
                }
                None => continue,
            }
            (any, pending.is_done) = (true, true);
            self.latency = Nanos((self.latency.0 * 7 + now.since(pending.at).0) / 8);
            if pending.kind != Request::Query {
                self.used_at = now;
            }
            if pending.kind == Request::Open {
                opened = true;
            } else {
                self.ended.push_back((pending.number, answer.payload.into()));
            }
        }
        while self.pending.front().is_some_and(|pending| pending.is_done) {
            self.pending.pop_front();
        }
        if any {
            self.retry_in = self.retry_first();
            self.retry_at = if self.pending.is_empty() { Instant::NEVER } else { now + self.retry_in };
        }
        if opened {
            self.is_open = true;
            self.retry(now, fabric);
        }
        any
    }

    /// The first retry interval: above the observed latency, or every request would be sent twice
    /// over a slow network.
    fn retry_first(&self) -> Nanos {
        let longest = self.retry_every.saturating_mul(RETRY_FACTOR_MAX);
        self.latency.saturating_mul(2).clamp(self.retry_every, longest)
    }

    /// Sends all outstanding requests.
    fn retry<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        let may_have_leader = self.leader.is_some() || self.led == Led::ByItself && self.block.is_some();
        if self.pending.is_empty() || !may_have_leader || self.error.is_some() {
            self.retry_at = Instant::NEVER;
            return;
        }
        self.retry_at = now + self.retry_in;
        self.retry_in =
            self.retry_in.saturating_mul(2).min(self.retry_every.saturating_mul(RETRY_FACTOR_MAX));
        if self.leader.is_none() {
            return;
        }
        self.poll_at = self.poll_at.min(now + self.poll_every);
        let numbers: Vec<u64> = self.sendable().map(|pending| pending.number).collect();
        for number in numbers {
            self.write(number, fabric);
        }
        self.write_head(fabric);
        // A leader that is idle does not look for one that connects.
        self.wake_due = false;
        self.wake_leader(fabric);
    }

    /// The requests that may be sent. A session begins alone: only then is its first command certainly a
    /// new one.
    fn sendable(&self) -> impl Iterator<Item = &Pending> {
        self.pending.iter().filter(|pending| self.is_open || pending.kind == Request::Open)
    }

    /// READs from all replicas of the view whether they lead, unless the view says that.
    fn seek<F: Fabric>(&self, fabric: &mut F) {
        if self.led == Led::ByViews {
            return;
        }
        for (n, &(_, at)) in self.replicas.iter().enumerate() {
            let from = Remote { at, offset: self.area.header() };
            fabric.read(from, HEADER_BYTES, token(Part::Seek, (self.view.0 as u32) << 8 | n as u32));
        }
    }

    /// A READ of a replica's header ended: the leader of the highest term is the newest.
    pub(crate) fn on_sought<F: Fabric>(
        &mut self,
        now: Instant,
        argument: u32,
        result: Result<&[u8], LinkError>,
        fabric: &mut F,
    ) {
        let Some(header) = result.ok().and_then(Header::decode) else { return };
        match Preset::of(header.log) {
            Some(Preset::Mu | Preset::Dare) => self.led = Led::ByItself,
            Some(Preset::View | Preset::MuViews) if header.log != 0 => self.led = Led::ByViews,
            _ => {}
        }
        if self.led != Led::ByItself || header.activity != Activity::Leads {
            return;
        }
        let is_newer = header.granted > self.term || self.leader.is_none() && header.granted == self.term;
        let found = self.replicas.get((argument & 0xff) as usize).filter(|_| is_newer);
        let (Some(&(who, at)), Some(block)) = (found, self.block) else { return };
        if argument >> 8 != (self.view.0 as u32 & 0xff_ffff) {
            return;
        }
        (self.term, self.leader) = (header.granted, Some(Leader { who, at, block }));
        self.retry_in = self.retry_first();
        for pending in &mut self.pending {
            pending.at = now;
        }
        self.retry(now, fabric);
    }

    fn wake_leader<F: Fabric>(&mut self, fabric: &mut F) {
        match self.leader {
            Some(leader) if leader.at == fabric.address() => self.is_called = true,
            Some(leader) => fabric.send(leader.at.owner(), WAKEUP),
            None => {}
        }
    }

    /// Writes a request into the leader's memory.
    fn write<F: Fabric>(&mut self, number: u64, fabric: &mut F) {
        let Some(Leader { at, block, .. }) = self.leader else { return };
        let Some(pending) = self.pending.iter().find(|pending| pending.number == number) else { return };
        let (kind, client) = (pending.kind as u8, self.id);
        Message { number, kind, client, payload: &pending.payload }.encode(&mut self.buffer);
        let to = Remote { at, offset: self.area.request(block, number) };
        fabric.write_unsignaled(to, &self.buffer, token(Part::Send, 0));
    }

    /// Writes the head, after the requests on the same link, so that it arrives after them.
    fn write_head<F: Fabric>(&mut self, fabric: &mut F) {
        let Some(Leader { at, block, .. }) = self.leader else { return };
        self.connection += 1;
        let first = self.sendable().next().map_or(self.next, |pending| pending.number);
        sealed::seal([self.id, first, self.connection, u64::from(self.wakes)], &mut self.buffer);
        let to = Remote { at, offset: self.area.client_head(block) };
        fabric.write_unsignaled(to, &self.buffer, token(Part::Send, 0));
    }
}

/// The id of the next session of a client whose first id is random: as good as random, never 0.
fn another(id: u64, number: u64) -> u64 {
    let mut mixed = id ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)).max(1)
}
