//! A client: sends each operation to the primary of its key's shard.

use crate::area::{Area, WINDOW};
use crate::limits::{POLLS_PER_TICK, VALUE_BYTES_MAX};
use crate::members;
use crate::operation::{Done, Operation};
use crate::session::{PrimaryServer, RetryPolicy, Session};
use crate::shard::Shard;
use obol_fabric::{Fabric, Incarnation, Instant, Nanos, ViewId};
use obol_membership::View;
use std::collections::VecDeque;
use thiserror::Error;

/// Why an operation was not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BeginError {
    /// No server is known yet, so a key has no owner.
    #[error("no server is known yet; try again once one is a member")]
    Early,
    /// [`WINDOW`] operations of the key's shard are outstanding already.
    #[error("{WINDOW} operations of its shard are outstanding already; take an answer first")]
    Busy,
    /// The value has more than [`VALUE_BYTES_MAX`] bytes.
    #[error("a value has at most {VALUE_BYTES_MAX} bytes, this one has {0}")]
    TooLong(usize),
}

/// Why a client can no longer be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ClientError {
    /// The cache restarted empty with this number of shards, which is not the number that this
    /// client knew.
    #[error("the cache restarted empty with {0} shards, another number than before; restart this client")]
    Misfit(u32),
    /// The servers have room for this number of clients, and older clients take all of it.
    #[error(
        "servers have room for {0} clients, and as many older ones exist; stop some, or raise limits.slots or \
         limits.value_bytes of the profile"
    )]
    Crowded(u32),
}

/// A client of the cache, with up to [`WINDOW`] outstanding operations to each shard.
pub struct Client {
    area: Area,
    retry: RetryPolicy,
    own: Option<Incarnation>,
    view: ViewId,
    poll_every: Nanos,
    poll_at: Instant,
    begun: u64,
    /// By shard; empty until a server is known.
    sessions: Vec<Session>,
    error: Option<ClientError>,
    ended: VecDeque<Done>,
}

impl Client {
    /// A client with a random id that polls for answers at this interval, and resends a request
    /// that has no answer after the other one.
    pub fn new(area: Area, id: u64, poll_every: Nanos, retry_every: Nanos) -> Self {
        Self {
            area,
            retry: RetryPolicy { id: id.max(1), wakes: false, retry_every },
            own: None,
            view: ViewId(0),
            poll_every,
            poll_at: Instant::NEVER,
            begun: 0,
            sessions: Vec::new(),
            error: None,
            ended: VecDeque::new(),
        }
    }

    /// The same for a client that sleeps while it waits: it wakes up the primary, which may sleep
    /// as well, and is woken up.
    #[must_use]
    pub fn with_wakeups(mut self) -> Self {
        self.retry.wakes = true;
        self
    }

    /// Begins an operation; returns its number.
    pub fn begin<F: Fabric>(
        &mut self,
        now: Instant,
        operation: Operation,
        fabric: &mut F,
    ) -> Result<u64, BeginError> {
        if let Operation::Put(_, value) = &operation
            && value.len() > VALUE_BYTES_MAX
        {
            return Err(BeginError::TooLong(value.len()));
        }
        let (Operation::Get(key) | Operation::Put(key, _)) = &operation;
        let shard = Shard::of_key(*key, self.sessions.len() as u32);
        let session = self.sessions.get_mut(shard.index() as usize).ok_or(BeginError::Early)?;
        if session.is_busy() {
            return Err(BeginError::Busy);
        }
        self.begun += 1;
        session.begin(now, self.begun, operation, fabric);
        self.poll_at = self.poll_at.min(now + self.poll_every);
        Ok(self.begun)
    }

    /// Whether an operation may be rejected now: no server is known yet, or in some shard the
    /// oldest outstanding operation is [`WINDOW`] operations old.
    pub fn is_busy(&self) -> bool {
        self.sessions.is_empty() || self.sessions.iter().any(Session::is_busy)
    }

    /// A completed operation, if there is one.
    pub fn take(&mut self) -> Option<Done> {
        self.ended.pop_front()
    }

    /// The primary of a shard in the newest known view.
    pub fn primary(&self, shard: u32) -> Option<Incarnation> {
        self.sessions.get(shard as usize).and_then(Session::primary)
    }

    /// The number of shards of the cache; 0 until a server is known.
    pub const fn shards(&self) -> u32 {
        self.sessions.len() as u32
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
        self.sessions.iter().map(Session::open).sum()
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.sessions.iter().fold(self.poll_at, |earliest, session| earliest.min(session.retry_at()))
    }

    /// Installs the newest view: outstanding requests are sent to a new primary.
    pub(crate) fn install<F: Fabric>(
        &mut self,
        now: Instant,
        view: &View,
        own: Option<Incarnation>,
        fabric: &mut F,
    ) {
        self.view = view.id;
        let shards = members::shards(view);
        if let Some(count) = shards.filter(|_| self.sessions.is_empty()) {
            let session = |shard| Session::new(self.area.of_shard(shard), self.retry);
            self.sessions = Shard::split(count).map(session).collect();
        }
        let misfit = shards.filter(|count| *count != self.shards()).map(ClientError::Misfit);
        // A primary accepts requests only from members of its view.
        let anew = own != self.own;
        self.own = own;
        let block = own.and_then(|own| {
            self.area.clients(view).into_iter().find_map(|one| (one.who == own).then_some(one.block))
        });
        let is_here = |own: &Incarnation| members::clients(view).any(|client| client.incarnation == *own);
        let crowded = own.filter(|own| block.is_none() && is_here(own));
        let crowded = crowded.map(|_| ClientError::Crowded(self.area.clients_max()));
        self.error = self.error.or(misfit).or(crowded);
        let block = block.filter(|_| self.error.is_none());
        let count = self.shards();
        for (session, shard) in self.sessions.iter_mut().zip(Shard::split(count)) {
            let first = members::servers(view, shard).next().zip(block);
            let primary =
                first.map(|(it, block)| PrimaryServer { who: it.incarnation, at: it.address, block });
            session.connect(now, primary, anew, fabric);
        }
    }

    pub(crate) fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        if now >= self.poll_at {
            let polls = if self.poll_every == Nanos::ZERO { POLLS_PER_TICK } else { 1 };
            for _ in 0..polls {
                if self.poll(now, fabric) {
                    break;
                }
                core::hint::spin_loop();
            }
            self.poll_at = if self.waiting() == 0 { Instant::NEVER } else { now + self.poll_every };
        }
        for session in self.sessions.iter_mut().filter(|session| now >= session.retry_at()) {
            session.retry_pending(now, fabric);
        }
    }

    /// Polls for answers; returns whether there were any.
    fn poll<F: Fabric>(&mut self, now: Instant, fabric: &F) -> bool {
        let mut any = false;
        for (shard, session) in self.sessions.iter_mut().enumerate().filter(|(_, session)| session.open() > 0)
        {
            any |= session.poll(now, &mut self.ended, shard as u32, fabric);
        }
        any
    }

    /// A wakeup: there are answers.
    pub(crate) fn on_wakeup(&mut self) {
        if self.waiting() > 0 {
            self.poll_at = Instant::ZERO;
        }
    }
}
