//! Shared memory as a [`Wire`]: one-sided operations are executed by the call that posts them; only their completions
//! wait for the loop, but where a drill has made a link slow. Datagrams go through lanes in the receiver's region.

use crate::contract::{Evidence, LinkError, Remote, Token};
use crate::endpoint::wire::{Done, Heard, Wire};
use crate::endpoint::{Endpoint, Owner, Taken, Wait};
use crate::shm::cluster::Cluster;
use crate::shm::error::ShmError;
use crate::shm::lanes::{self, Sender};
use crate::shm::late::Late;
use crate::shm::link::Links;
use crate::shm::region::Region;
use crate::types::{Address, Instant};
use std::collections::VecDeque;

/// READ buffers that are kept for reuse.
const SPARE_MAX: usize = 64;

/// The mapped regions of peers.
pub struct Memory {
    region: Region,
    links: Links,
    done: VecDeque<(Token, Done)>,
    /// Buffers of delivered READs.
    spare: Vec<Vec<u8>>,
    /// Regions whose links are broken: see [`Memory::post`].
    broken: Vec<u32>,
    /// The lane that is looked at next, and how many datagrams it gave in this round.
    lane: u32,
    taken: u32,
    /// The last round did not empty every lane.
    more: bool,
}

impl Endpoint<Memory> {
    /// Takes a region of the cluster for the calling thread. Peers may use it as soon as this returns.
    pub fn open(cluster: &Cluster, owner: Owner, wait: Wait) -> Result<Self, ShmError> {
        let taken = Taken::take(cluster, &owner)?;
        let sender = taken.sender;
        let address = Address { generation: sender.generation, ..Address::region(sender.region) };
        let memory = Memory {
            region: taken.region.clone(),
            links: Links::new(cluster.clone(), sender, taken.region.clone()),
            done: VecDeque::with_capacity(64),
            spare: Vec::new(),
            broken: Vec::new(),
            lane: 0,
            taken: 0,
            more: true,
        };
        Ok(taken.go_live(cluster, address, memory, wait))
    }
}

impl Memory {
    /// Carries out an operation at once, unless its link is broken, and queues its completion.
    ///
    /// A link breaks when an operation finds its target dead, and works again when all queued completions are taken:
    /// a WRITE that failed is never followed by a CAS that succeeds because the target came back in between.
    fn post(&mut self, at: Address, token: Token, act: impl FnOnce(&mut Self) -> Result<Done, LinkError>) {
        let broken = self.broken.contains(&at.region);
        let done = if broken { Err(LinkError::PeerDead) } else { act(self) };
        let breaks = matches!(done, Err(LinkError::PeerDead)) && !broken;
        self.done.push_back((token, done.unwrap_or_else(Done::Failed)));
        if breaks {
            self.break_link(at.region);
        }
    }

    /// Whatever was posted before this is known fails as well.
    fn break_link(&mut self, region: u32) {
        self.broken.push(region);
        let failed = self.links.way.fail(region);
        self.done.extend(failed.into_iter().map(|token| (token, Done::Failed(LinkError::PeerDead))));
    }

    /// Holds an operation back if its link is slow.
    #[cold]
    fn hold_back(&mut self, operation: Late) {
        let region = operation.region();
        match self.links.due(region) {
            // A broken link fails it at once.
            Some(due) if !self.broken.contains(&region) => {
                if let Err(late) = self.links.way.put(due, operation) {
                    let failed = Done::Failed(LinkError::PeerDead);
                    self.done.extend(late.token().map(|token| (token, failed)));
                    self.break_link(region);
                }
            }
            _ => self.carry_out(operation),
        }
    }

    fn carry_out(&mut self, late: Late) {
        match late {
            Late::Read { from, len, token } => self.read_now(from, len, token),
            Late::Write { to, bytes, token } => self.write_now(to, &bytes, token),
            Late::Cas { at, expected, desired, token } => self.cas_now(at, expected, desired, token),
            // A datagram that does not arrive tells nobody.
            Late::Datagram { to, bytes } => drop(self.links.deliver(to, &bytes)),
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
        // Checked first, so that a wild length allocates nothing.
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

impl Wire for Memory {
    fn read(&mut self, from: Remote, len: u32, token: Token) {
        if self.links.may_be_late() {
            return self.hold_back(Late::Read { from, len, token });
        }
        self.read_now(from, len, token);
    }

    fn write(&mut self, to: Remote, bytes: &[u8], token: Token) {
        if self.links.may_be_late() {
            return self.hold_back(Late::Write { to, bytes: bytes.to_vec(), token });
        }
        self.write_now(to, bytes, token);
    }

    /// Only what fails is queued.
    #[inline]
    fn write_untold(&mut self, to: Remote, bytes: &[u8], token: Token) {
        let at_once = !self.links.may_be_late() && self.broken.is_empty();
        if !at_once || self.links.write(to, bytes).is_err() {
            self.write(to, bytes, token);
        }
    }

    fn cas(&mut self, at: Remote, expected: u64, desired: u64, token: Token) {
        if self.links.may_be_late() {
            return self.hold_back(Late::Cas { at, expected, desired, token });
        }
        self.cas_now(at, expected, desired, token);
    }

    fn send(&mut self, to: Address, bytes: &[u8]) -> bool {
        self.links.send(to, bytes)
    }

    fn multicast(&mut self, bit: u32, bytes: &[u8]) -> u64 {
        self.links.multicast(bit, bytes)
    }

    /// Rings the doorbells of all peers that were sent something.
    #[inline]
    fn flush(&mut self) {
        self.links.ring();
    }

    fn ripen(&mut self, now: Instant) {
        while let Some(late) = self.links.way.take(now) {
            self.carry_out(late);
        }
    }

    fn due(&self) -> Instant {
        self.links.way.next()
    }

    /// A completion is told when its operation is visible to everybody: what is read after it was read after it.
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

    /// Of each lane, in one round, at most as many as it holds.
    fn hear(&mut self, bytes: &mut Vec<u8>) -> Heard {
        let limits = *self.region.layout().limits();
        if self.lane == 0 && self.taken == 0 {
            self.more = false;
        }
        while self.lane < limits.lanes {
            if self.taken == limits.lane_slots {
                self.more = true;
            } else {
                self.taken += 1;
                match lanes::take(&self.region, self.region.layout(), self.lane, bytes) {
                    lanes::Taken::Datagram(Sender { region, generation }, _) => {
                        return Heard::Datagram(Address { generation, ..Address::region(region) });
                    }
                    lanes::Taken::Refused => return Heard::Refused,
                    lanes::Taken::Empty => {}
                }
            }
            self.lane += 1;
            self.taken = 0;
        }
        self.lane = 0;
        Heard::Nothing
    }

    fn has_datagrams(&mut self) -> bool {
        self.more
    }

    fn links(&mut self) -> &mut Links {
        &mut self.links
    }

    fn is_local(&self, _: Address) -> bool {
        true
    }

    fn watch(&mut self, _: Address) {}

    fn unwatch(&mut self, _: Address) {}

    fn death(&mut self) -> Option<(Address, Evidence)> {
        None
    }

    /// Frees the lanes of senders that are gone.
    fn tidy(&mut self, _: Instant) {
        let links = &mut self.links;
        lanes::free(&self.region, self.region.layout(), |sender| links.is_gone(sender));
    }

    fn arm(&mut self) -> bool {
        // Whoever sends rings.
        true
    }
}
