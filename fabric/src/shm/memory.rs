//! Shared memory as a [`Transport`]: one-sided operations are executed by the call that posts them,
//! unless a drill delays the link; only their completions wait for the loop. Datagrams go through
//! lanes in the receiver's region.

use crate::contract::{LinkError, Remote, Token};
use crate::endpoint::transport::{Done, Received, RemoteDeaths, Transport};
use crate::endpoint::{Endpoint, Owner, Taken, Wait};
use crate::host::clock;
use crate::host::cluster::Cluster;
use crate::host::error::HostError;
use crate::host::mapped::MappedRegions;
use crate::host::region::Region;
use crate::rights::Change;
use crate::shm::delay_queue::DelayedOperation;
use crate::shm::lanes::{self, Pending};
use crate::shm::link::Links;
use crate::shm::permits::Permits;
use crate::types::{Address, Instant, Nanos, RegionOwner};
use std::collections::VecDeque;

/// How long coordinators that sleep are left asleep after members were woken for the same datagram:
/// a failover is over by then.
const COORDINATORS_LATER: Nanos = Nanos::from_micros(500);
/// READ buffers that are kept for reuse.
const SPARE_MAX: usize = 64;

/// The mapped regions of peers.
pub struct Memory {
    region: Region,
    links: Links,
    permits: Permits,
    done: VecDeque<(Token, Done)>,
    /// Buffers of delivered READs.
    spare: Vec<Vec<u8>>,
    /// Regions whose links are broken: see [`Memory::post`].
    broken: Vec<(u32, LinkError)>,
    /// The lanes of this round.
    pending: Pending,
    /// The next lane to poll, and how many datagrams it gave in this round.
    lane: u32,
    taken: u32,
    /// Whether the last round left datagrams in a lane.
    more: bool,
    /// When the coordinators that were rung are woken.
    wake_at: Instant,
}

impl Endpoint {
    /// Over the memory of one host. Claims a region of the cluster for the calling thread. Peers may use it as soon as this
    /// returns.
    pub fn open(cluster: &Cluster, owner: Owner, wait: Wait) -> Result<Self, HostError> {
        let taken = Taken::take(cluster, &owner)?;
        let sender = taken.sender;
        let address = Address { generation: sender.generation, ..Address::region(sender.region) };
        let memory = Memory::new(cluster, &taken.region, sender);
        Ok(taken.go_live(cluster, address, memory, wait))
    }
}

impl Memory {
    /// Of `me`, which owns `region`.
    pub fn new(cluster: &Cluster, region: &Region, me: RegionOwner) -> Self {
        Self {
            region: region.clone(),
            permits: Permits::new(region.clone(), me),
            links: Links::new(MappedRegions::new(cluster.clone(), me, region.clone()), me),
            done: VecDeque::with_capacity(64),
            spare: Vec::new(),
            broken: Vec::new(),
            pending: Pending::default(),
            lane: 0,
            taken: 0,
            more: true,
            wake_at: Instant::NEVER,
        }
    }

    /// Whether a datagram is short enough. (Lanes have room for the sender, too.)
    pub fn fits(&self, bytes: &[u8]) -> bool {
        bytes.len() <= self.region.layout().limits().datagram_bytes as usize
    }

    /// The state of the link to a region, of this host or another, as a drill has impaired it.
    /// `Err` if nothing gets through, otherwise whether to lose a datagram now.
    pub fn impaired(&mut self, region: u32) -> Result<bool, LinkError> {
        let link = self.links.regions.impairment(region);
        if link.cut {
            return Err(LinkError::PeerDead);
        }
        Ok(self.links.loses(link.loss_percent))
    }

    /// Executes an operation immediately, unless its link is broken, and queues its completion.
    ///
    /// A link breaks when an operation finds its target dead, and is restored once all queued
    /// completions are taken: a failed WRITE is never followed by a successful CAS because the
    /// target came back in between.
    fn post(&mut self, at: Address, token: Token, act: impl FnOnce(&mut Self) -> Result<Done, LinkError>) {
        let broken = self.broken_by(at.region);
        let done = broken.map_or_else(|| act(self), Err);
        let breaks = match done {
            Err(error @ (LinkError::PeerDead | LinkError::Unmapped)) if broken.is_none() => Some(error),
            _ => None,
        };
        self.done.push_back((token, done.unwrap_or_else(Done::Failed)));
        if let Some(error) = breaks {
            self.break_link(at.region, error);
        }
    }

    /// Why the link to a region is broken, if it is.
    fn broken_by(&self, region: u32) -> Option<LinkError> {
        self.broken.iter().find(|(broken, _)| *broken == region).map(|(_, error)| *error)
    }

    /// All posts before the failure is delivered fail as well.
    fn break_link(&mut self, region: u32, error: LinkError) {
        self.broken.push((region, error));
        let failed = self.links.delayed.fail(region);
        self.done.extend(failed.into_iter().map(|token| (token, Done::Failed(error))));
    }

    /// Queues an operation if its link is slow.
    #[cold]
    fn delay(&mut self, operation: DelayedOperation) {
        let region = operation.region();
        match self.links.due(region) {
            // A broken link fails it at once.
            Some(due) if self.broken_by(region).is_none() => {
                if let Err(late) = self.links.delayed.put(due, operation) {
                    let failed = Done::Failed(LinkError::PeerDead);
                    self.done.extend(late.token().map(|token| (token, failed)));
                    self.break_link(region, LinkError::PeerDead);
                }
            }
            _ => self.carry_out(operation),
        }
    }

    fn carry_out(&mut self, late: DelayedOperation) {
        match late {
            DelayedOperation::Read { from, len, token } => self.read_now(from, len, token),
            DelayedOperation::Write { to, bytes, token } => self.write_now(to, &bytes, token),
            DelayedOperation::Cas { at, expected, desired, token } => {
                self.cas_now(at, expected, desired, token);
            }
            // A lost datagram is not reported.
            DelayedOperation::Datagram { to, bytes } => drop(self.links.deliver(to, &bytes)),
        }
    }

    fn read_now(&mut self, from: Remote, len: u32, token: Token) {
        self.post(from.at, token, |this| match len {
            8 => this.links.read_word(from).map(|word| Done::Word(word.to_le_bytes(), 8)),
            len => this.read_bytes(from, len as usize),
        });
    }

    fn write_now(&mut self, to: Remote, bytes: &[u8], token: Token) {
        self.post(to.at, token, |this| this.links.write(to, bytes).map(|()| Done::Written));
    }

    fn cas_now(&mut self, at: Remote, expected: u64, desired: u64, token: Token) {
        self.post(at.at, token, |this| this.links.cas(at, expected, desired).map(Done::Swapped));
    }

    fn read_bytes(&mut self, from: Remote, len: usize) -> Result<Done, LinkError> {
        // Checked first, so that an invalid length allocates nothing.
        if len > self.region.layout().bytes() {
            return Err(LinkError::OutOfBounds);
        }
        if len <= 8 {
            let mut raw = [0; 8];
            self.links.read(from, &mut raw[..len])?;
            return Ok(Done::Word(raw, len));
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.resize(len, 0);
        match self.links.read(from, &mut bytes) {
            Ok(()) => Ok(Done::Bytes(bytes)),
            Err(error) => {
                self.recycle(Done::Bytes(bytes));
                Err(error)
            }
        }
    }
}

impl Transport for Memory {
    fn read(&mut self, from: Remote, len: u32, token: Token) {
        if self.links.may_be_late() {
            return self.delay(DelayedOperation::Read { from, len, token });
        }
        self.read_now(from, len, token);
    }

    fn write(&mut self, to: Remote, bytes: &[u8], token: Token) {
        if self.links.may_be_late() {
            return self.delay(DelayedOperation::Write { to, bytes: bytes.to_vec(), token });
        }
        self.write_now(to, bytes, token);
    }

    /// Only what fails is queued.
    #[inline]
    fn write_unsignaled(&mut self, to: Remote, bytes: &[u8], token: Token) {
        let at_once = !self.links.may_be_late() && self.broken.is_empty();
        if !at_once || self.links.write(to, bytes).is_err() {
            self.write(to, bytes, token);
        }
    }

    fn cas(&mut self, at: Remote, expected: u64, desired: u64, token: Token) {
        if self.links.may_be_late() {
            return self.delay(DelayedOperation::Cas { at, expected, desired, token });
        }
        self.cas_now(at, expected, desired, token);
    }

    fn refuse_permit(&mut self, token: Token) {
        self.done.push_back((token, Done::Failed(LinkError::Unsupported)));
    }

    fn permit(&mut self, change: Change, token: Token) {
        self.permits.post(change, token);
    }

    fn send(&mut self, to: Address, bytes: &[u8]) -> bool {
        self.fits(bytes) && self.links.send(to, bytes)
    }

    fn multicast(&mut self, bit: u32, bytes: &[u8]) -> u64 {
        if self.fits(bytes) { self.links.multicast(bit, bytes) } else { 1 }
    }

    /// Rings the doorbells of all peers with new datagrams.
    #[inline]
    fn flush(&mut self) {
        self.links.ring();
        if self.links.has_rung() && self.wake_at == Instant::NEVER {
            self.wake_at = clock::now() + COORDINATORS_LATER;
        }
    }

    fn release_due(&mut self, now: Instant) {
        if self.wake_at <= now {
            self.wake_at = Instant::NEVER;
            self.links.wake_rung();
        }
        while let Some(late) = self.links.delayed.take(now) {
            self.carry_out(late);
        }
        let Self { permits, links, done, .. } = self;
        permits.poll(now, &mut links.regions, |token, result| {
            done.push_back((token, result.map_or_else(Done::Failed, |()| Done::Permitted)));
        });
    }

    fn due(&self) -> Instant {
        self.links.delayed.next().min(self.wake_at).min(self.permits.due())
    }

    /// A completion is delivered only after its operation is visible to all, which orders later
    /// reads after it.
    fn complete(&mut self) -> Option<(Token, Done)> {
        let done = self.done.pop_front()?;
        if matches!(done.1, Done::Written | Done::Swapped(_)) {
            self.links.settle_stores();
        }
        Some(done)
    }

    /// Keeps a delivered READ's buffer for the next one.
    fn recycle(&mut self, done: Done) {
        if let Done::Bytes(bytes) = done
            && self.spare.len() < SPARE_MAX
        {
            self.spare.push(bytes);
        }
    }

    fn settle(&mut self) {
        self.broken.clear();
    }

    fn waiting(&self) -> usize {
        self.done.len()
    }

    /// Takes from each announced lane, in one round, at most as many datagrams as it holds.
    fn receive(&mut self, bytes: &mut Vec<u8>) -> Received {
        let limits = *self.region.layout().limits();
        if self.lane == 0 && self.taken == 0 {
            self.more = false;
            self.pending = Pending::take(&self.region);
        }
        while self.lane < limits.lanes {
            if !self.pending.has(self.lane) {
                self.lane += 1;
                continue;
            }
            if self.taken == limits.lane_slots {
                lanes::announce(&self.region, self.lane);
                self.more = true;
            } else {
                self.taken += 1;
                match lanes::take(&self.region, self.region.layout(), self.lane, bytes) {
                    lanes::Taken::Datagram(RegionOwner { region, generation }, _) => {
                        return Received::Datagram(Address { generation, ..Address::region(region) });
                    }
                    lanes::Taken::Refused => return Received::Refused,
                    lanes::Taken::Empty => {}
                }
            }
            self.lane += 1;
            self.taken = 0;
        }
        self.lane = 0;
        Received::Nothing
    }

    fn has_datagrams(&mut self) -> bool {
        self.more
    }

    fn regions(&mut self) -> &mut MappedRegions {
        &mut self.links.regions
    }

    fn is_local(&self, _: Address) -> bool {
        true
    }

    /// Frees the lanes of senders that are gone.
    fn tidy(&mut self, _: Instant) {
        let regions = &mut self.links.regions;
        self.more |= lanes::free(&self.region, self.region.layout(), |sender| regions.is_gone(sender));
    }

    fn arm(&mut self) -> bool {
        // Senders ring.
        true
    }
}

/// All processes are of this host.
impl RemoteDeaths for Memory {}
