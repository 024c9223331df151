//! A client: asks each shard's primary for what is the shard's.

use crate::answer::Status;
use crate::area::{Area, WINDOW};
use crate::session::{PrimaryServer, RetryPolicy, Session};
use crate::{LOOKS, Shard, VALUE_BYTES_MAX};
use obol_fabric::{Fabric, Incarnation, Instant, Nanos, ViewId};
use obol_membership::View;
use std::collections::VecDeque;
use thiserror::Error;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// The value of a key.
    Get(u64),
    /// Make this the value of a key.
    Put(u64, Box<[u8]>),
}

/// Why an operation was not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// No server is known yet, so a key has no owner.
    #[error("no server was heard of yet; try again once one is a member")]
    Early,
    /// [`WINDOW`] operations of the key's shard wait for an answer already.
    #[error("{WINDOW} operations of its shard wait for an answer already; take one first")]
    Busy,
    /// The value has more than [`VALUE_BYTES_MAX`] bytes.
    #[error("a value has at most {VALUE_BYTES_MAX} bytes, this one has {0}")]
    TooLong(usize),
}

/// Why a client is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ClientError {
    /// The cache has begun anew with nothing, its keys split into so many shards: not the number
    /// that this client knew.
    #[error("the cache has begun anew with nothing, and its keys split into {0}; start this client again")]
    Misfit(u32),
    /// So many clients are older than this one, and servers have room for no more.
    #[error(
        "servers have room for {0} clients, and as many are older than this one; end some, or raise limits.slots or \
         limits.value_bytes of the profile"
    )]
    Crowded(u32),
}

/// An operation that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Its number, as it was begun.
    pub number: u64,
    /// Whose server answered: the shard's index.
    pub shard: u32,
    /// How it ended.
    pub status: Status,
    /// What a GET found.
    pub value: Box<[u8]>,
}

/// A client of the cache. It has up to [`WINDOW`] operations of each shard on the way.
pub struct Client {
    area: Area,
    retry: RetryPolicy,
    own: Option<Incarnation>,
    view: ViewId,
    poll_every: Nanos,
    poll_at: Instant,
    begun: u64,
    /// By shard; none until a server was heard of.
    sessions: Vec<Session>,
    error: Option<ClientError>,
    ended: VecDeque<Done>,
}

impl Client {
    /// A client with a random id, which looks for answers so often while it waits for any, and asks
    /// again after so long without one.
    #[must_use]
    pub fn new(area: Area, id: u64, poll_every: Nanos, again_every: Nanos) -> Self {
        Self {
            area,
            retry: RetryPolicy { id: id.max(1), rings: false, again_every },
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

    /// The same for who sleeps in between: it rings for the primary, which may sleep as well, and
    /// is rung for.
    #[must_use]
    pub fn ringing(mut self) -> Self {
        self.retry.rings = true;
        self
    }

    /// Begins an operation; tells its number.
    pub fn begin<F: Fabric>(
        &mut self,
        now: Instant,
        operation: Operation,
        fabric: &mut F,
    ) -> Result<u64, Refusal> {
        if let Operation::Put(_, value) = &operation
            && value.len() > VALUE_BYTES_MAX
        {
            return Err(Refusal::TooLong(value.len()));
        }
        let (Operation::Get(key) | Operation::Put(key, _)) = &operation;
        let shard = Shard::of_key(*key, self.sessions.len() as u32);
        let session = self.sessions.get_mut(shard.index() as usize).ok_or(Refusal::Early)?;
        if session.is_busy() {
            return Err(Refusal::Busy);
        }
        self.begun += 1;
        session.begin(now, self.begun, operation, fabric);
        self.poll_at = self.poll_at.min(now + self.poll_every);
        Ok(self.begun)
    }

    /// Whether an operation may be refused now: no server was heard of yet, or in some shard the
    /// oldest operation that waits for its answer is [`WINDOW`] operations old.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.sessions.is_empty() || self.sessions.iter().any(Session::is_busy)
    }

    /// An operation that has ended, if there is one.
    pub fn take(&mut self) -> Option<Done> {
        self.ended.pop_front()
    }

    /// Who is asked: the primary of a shard in the newest view that is known.
    #[must_use]
    pub fn primary(&self, shard: u32) -> Option<Incarnation> {
        self.sessions.get(shard as usize).and_then(Session::primary)
    }

    /// Into how many shards the cache is split; 0 until a server was heard of.
    #[must_use]
    pub const fn shards(&self) -> u32 {
        self.sessions.len() as u32
    }

    /// Whether, and why, this client is of no use any more.
    #[must_use]
    pub const fn error(&self) -> Option<ClientError> {
        self.error
    }

    /// The newest view that is known.
    #[must_use]
    pub const fn view(&self) -> ViewId {
        self.view
    }

    /// How many operations wait for an answer.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.sessions.iter().map(Session::open).sum()
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.sessions.iter().fold(self.poll_at, |earliest, session| earliest.min(session.again_at()))
    }

    /// Takes note of the newest view: another primary is asked everything that has no answer.
    pub(crate) fn install<F: Fabric>(
        &mut self,
        now: Instant,
        view: &View,
        own: Option<Incarnation>,
        fabric: &mut F,
    ) {
        self.view = view.id;
        let shards = crate::shards(view);
        if let Some(count) = shards.filter(|_| self.sessions.is_empty()) {
            let session = |shard| Session::new(self.area.of_shard(shard), self.retry);
            self.sessions = Shard::split(count).map(session).collect();
        }
        let misfit = shards.filter(|count| *count != self.shards()).map(ClientError::Misfit);
        // A primary hears whom its view names; nobody is heard before it is a member.
        let anew = own != self.own;
        self.own = own;
        let block = own.and_then(|own| {
            self.area.clients(view).into_iter().find_map(|(who, _, block)| (who == own).then_some(block))
        });
        let is_here = |own: &Incarnation| crate::clients(view).any(|client| client.incarnation == *own);
        let crowded = own.filter(|own| block.is_none() && is_here(own));
        let crowded = crowded.map(|_| ClientError::Crowded(self.area.clients_max()));
        self.error = self.error.or(misfit).or(crowded);
        let block = block.filter(|_| self.error.is_none());
        let count = self.shards();
        for (session, shard) in self.sessions.iter_mut().zip(Shard::split(count)) {
            let first = crate::servers(view, shard).next().zip(block);
            let primary =
                first.map(|(it, block)| PrimaryServer { who: it.incarnation, at: it.address, block });
            session.turn_to(now, primary, anew, fabric);
        }
    }

    pub(crate) fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        if now >= self.poll_at {
            let looks = if self.poll_every == Nanos::ZERO { LOOKS } else { 1 };
            for _ in 0..looks {
                if self.look(now, fabric) {
                    break;
                }
                core::hint::spin_loop();
            }
            self.poll_at = if self.waiting() == 0 { Instant::NEVER } else { now + self.poll_every };
        }
        for session in self.sessions.iter_mut().filter(|session| now >= session.again_at()) {
            session.ask_again(now, fabric);
        }
    }

    /// Looks for answers; tells whether there were any.
    fn look<F: Fabric>(&mut self, now: Instant, fabric: &F) -> bool {
        let mut any = false;
        for (shard, session) in self.sessions.iter_mut().enumerate().filter(|(_, session)| session.open() > 0)
        {
            any |= session.look(now, &mut self.ended, shard as u32, fabric);
        }
        any
    }

    /// Somebody rang: there are answers.
    pub(crate) fn on_ring(&mut self) {
        if self.waiting() > 0 {
            self.poll_at = Instant::ZERO;
        }
    }
}
