//! READs regions of a cluster's processes from any of its hosts, by their hosts' gateways. The
//! processes are not involved, so a frozen one remains readable.

use super::config::Config;
use super::connect::{ConnectError, connect};
use super::frame::{Hello, OPERATION_BYTES_MAX, Reply, Request, Seat, Target};
use core::mem::offset_of;
use core::ops::Range;
use nix::poll::{PollFd, PollFlags};
use obol_fabric::contract::LinkError;
use obol_fabric::host::clock;
use obol_fabric::host::poll::poll;
use obol_fabric::layout::{Layout, Seat as SeatLayout};
use obol_fabric::page;
use obol_fabric::remote::{ClockRelation, RegionCopy, TORN_READS_MAX, Taken};
use obol_fabric::rights::Role;
use obol_fabric::types::Address;
use obol_fabric::version::Release;
use obol_identity::Stream;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant as Time};

/// An observer waits for a connection or an answer for this many detection bounds, and at least
/// [`ANSWER_TIMEOUT_MIN`].
const ANSWER_TIMEOUT_FACTOR: u32 = 8;
const ANSWER_TIMEOUT_MIN: Duration = Duration::from_millis(500);

/// Why the gateway of another host has not answered a question.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// There is no connection.
    #[error("its gateway cannot be reached: {0}")]
    Unreached(String),
    /// It has not answered in time, or has closed the connection.
    #[error("its gateway does not answer")]
    Unanswered,
    /// It does not take the question.
    #[error("its gateway refuses: {0}")]
    Refused(LinkError),
}

/// Reads regions of processes of other hosts.
pub struct Observer {
    config: Config,
    /// The number of the own host.
    host: u8,
    hello: Hello,
    layout: Layout,
    /// By host.
    gateways: BTreeMap<u8, Stream>,
}

impl Observer {
    /// For the regions of a cluster, on one of its hosts. Nothing is connected yet.
    pub fn new(config: &Config, host: u8, nonce: u64, layout: &Layout) -> Self {
        let hello = Hello {
            nonce,
            layout: layout.digest(),
            release: Release::own(),
            region: 0,
            generation: 0,
            role: Role::Reader,
        };
        Self { config: config.clone(), host, hello, layout: *layout, gateways: BTreeMap::new() }
    }

    /// Reads a region once, and connects first if necessary. Blocks until the gateway has answered,
    /// or for eight times the bound of detection.
    pub fn read(&mut self, at: Address) -> Result<RegionCopy, LinkError> {
        let host = self.config.host_of(at.region).ok_or(LinkError::PeerReplaced)?;
        let patience = self.patience();
        let mut stream = self.stream(host, patience)?;
        let copied = self.read_region(&mut stream, at, patience)?;
        // A stream with an error is not used again: answers may still be on their way.
        if copied.is_ok() {
            self.gateways.insert(host, stream);
        }
        copied
    }

    /// Reads a part of the space of a region's values once, in ascending order. Blocks as
    /// [`Observer::read`] does.
    pub fn read_values(&mut self, at: Address, part: Range<u32>) -> Result<Vec<u8>, LinkError> {
        let host = self.config.host_of(at.region).ok_or(LinkError::PeerReplaced)?;
        let until = Time::now() + self.patience();
        let mut stream = self.stream(host, self.patience())?;
        let len = part.len();
        let mut raw = Vec::with_capacity(len);
        let count = ask_for(&mut stream, Seat::of(at), 1, part);
        take_parts(&mut stream, count, until, &mut raw)??;
        self.gateways.insert(host, stream);
        if raw.len() == len { Ok(raw) } else { Err(LinkError::PeerDead) }
    }

    fn patience(&self) -> Duration {
        (self.config.detection.to_std() * ANSWER_TIMEOUT_FACTOR).max(ANSWER_TIMEOUT_MIN)
    }

    /// Takes the connection to a host's gateway, or makes one.
    fn stream(&mut self, host: u8, patience: Duration) -> Result<Stream, LinkError> {
        if let Some(stream) = self.gateways.remove(&host) {
            return Ok(stream);
        }
        self.connect(host, patience).map_err(|_| LinkError::PeerDead)
    }

    fn connect(&self, host: u8, patience: Duration) -> Result<Stream, ConnectError> {
        let to = self.config.gateway(host).ok_or(ConnectError::NoGateway(host))?;
        let from = self.config.gateway(self.host).map(|gateway| gateway.ip());
        connect(from, to, host, &self.config.identity, &self.hello, patience)
    }

    /// The numbers of the other hosts.
    pub fn others(&self) -> Vec<u8> {
        let hosts = u8::try_from(self.config.gateways.len()).unwrap_or(u8::MAX);
        (1..=hosts).filter(|host| *host != self.host).collect()
    }

    /// Whether the gateway of a host answers. Blocks as [`Observer::read`] does.
    pub fn answers(&mut self, host: u8) -> bool {
        let until = Time::now() + self.patience();
        let Ok(mut stream) = self.stream(host, self.patience()) else { return false };
        Request::Ping.encode(&mut stream.output);
        let ponged = answer(&mut stream, until, |reply| matches!(reply, Reply::Pong { .. }).then_some(()));
        let answers = ponged.is_ok();
        if answers {
            self.gateways.insert(host, stream);
        }
        answers
    }

    /// Sends an annotation to the gateway of a host. Blocks as [`Observer::read`] does.
    pub fn note(&mut self, host: u8, bytes: &[u8]) -> Result<(), LinkError> {
        let mut stream = self.stream(host, self.patience())?;
        Request::Note(bytes).encode(&mut stream.output);
        let answered = answer(&mut stream, Time::now() + self.patience(), |reply| match reply {
            Reply::Written => Some(Ok(())),
            Reply::Failed(error) => Some(Err(error)),
            _ => None,
        })?;
        self.gateways.insert(host, stream);
        answered
    }

    /// Asks the program of a host's gateway. Blocks until it has answered, or for as long as given.
    pub fn ask(&mut self, host: u8, bytes: &[u8], patience: Duration) -> Result<Vec<u8>, AskError> {
        let until = Time::now() + patience;
        let mut stream = match self.gateways.remove(&host) {
            Some(stream) => stream,
            None => self.connect(host, patience).map_err(|error| AskError::Unreached(error.to_string()))?,
        };
        Request::Ask(bytes).encode(&mut stream.output);
        let answered = answer(&mut stream, until, |reply| match reply {
            Reply::Read(bytes) => Some(Ok(bytes.to_vec())),
            Reply::Failed(error) => Some(Err(AskError::Refused(error))),
            _ => None,
        });
        let answered = answered.map_err(|_| AskError::Unanswered)?;
        self.gateways.insert(host, stream);
        answered
    }

    /// The outer error is the connection's, the inner one the operation's.
    fn read_region(
        &self,
        stream: &mut Stream,
        at: Address,
        patience: Duration,
    ) -> Result<Result<RegionCopy, LinkError>, LinkError> {
        // The owner's region, for any of its seats.
        let seat = Seat::of(if at.seat == 0 { at } else { at.owner() });
        let bytes = self.layout.values().start;
        let page_bytes = (page::WORDS * 8) as u32;
        for tries in 1.. {
            let read_at = clock::now();
            Request::Ping.encode(&mut stream.output);
            let page = self.layout.page();
            let count = ask_for(stream, seat, tries, 0..bytes)
                + ask_for(stream, seat, tries, page..page + page_bytes);
            let until = Time::now() + patience;
            let relation = answer(stream, until, |reply| match reply {
                Reply::Pong { clock: theirs } => Some(ClockRelation::measured(read_at, theirs, clock::now())),
                _ => None,
            })?;
            let mut raw = Vec::with_capacity((bytes + page_bytes) as usize);
            if let Err(error) = take_parts(stream, count, until, &mut raw)? {
                return Ok(Err(error));
            }
            let Some((region, again)) = raw.split_at_checked(bytes as usize) else { break };
            let whole = RegionCopy::is_whole(region, again, &self.layout);
            if whole || tries == TORN_READS_MAX {
                let generation = self.layout.seat(0) as usize + offset_of!(SeatLayout, generation);
                let generation = region.get(generation..).and_then(|rest| rest.first_chunk::<4>());
                let generation = generation.map_or(0, |raw| u32::from_le_bytes(*raw));
                let taken = Taken { generation, clock: relation, read_at };
                return Ok(Ok(RegionCopy::new(region, whole, self.layout, taken)));
            }
        }
        Err(LinkError::PeerDead)
    }
}

/// Asks for some bytes of a region. Returns in how many parts they come.
fn ask_for(stream: &mut Stream, seat: Seat, epoch: u32, bytes: Range<u32>) -> usize {
    let starts = bytes.clone().step_by(OPERATION_BYTES_MAX);
    for offset in starts.clone() {
        let len = (bytes.end - offset).min(OPERATION_BYTES_MAX as u32);
        Request::Read { at: Target { seat, offset, epoch }, len }.encode(&mut stream.output);
    }
    starts.count()
}

/// Waits for these parts. The outer error is the connection's, the inner one the operation's.
fn take_parts(
    stream: &mut Stream,
    count: usize,
    until: Time,
    to: &mut Vec<u8>,
) -> Result<Result<(), LinkError>, LinkError> {
    for _ in 0..count {
        let read = answer(stream, until, |reply| match reply {
            Reply::Read(part) => {
                to.extend_from_slice(part);
                Some(Ok(()))
            }
            Reply::Failed(error) => Some(Err(error)),
            _ => None,
        })?;
        if read.is_err() {
            return Ok(read);
        }
    }
    Ok(Ok(()))
}

/// Waits for the next message, which must be what `take` expects.
fn answer<T>(
    stream: &mut Stream,
    until: Time,
    mut take: impl FnMut(Reply<'_>) -> Option<T>,
) -> Result<T, LinkError> {
    let gone = |_| LinkError::PeerDead;
    loop {
        stream.send().map_err(gone)?;
        if let Some(message) = stream.next_message().map_err(gone)? {
            return Reply::decode(message).and_then(&mut take).ok_or(LinkError::PeerDead);
        }
        let left = until.saturating_duration_since(Time::now());
        if left.is_zero() {
            return Err(LinkError::PeerDead);
        }
        let flags =
            if stream.is_stalled() { PollFlags::POLLIN | PollFlags::POLLOUT } else { PollFlags::POLLIN };
        // An error is an early return.
        let _ = poll(&mut [PollFd::new(stream.as_fd(), flags)], Some(left));
        stream.receive().map_err(gone)?;
    }
}
