//! Links to peers: the mapping of each peer's region, checked at every use for whom it belongs to and whether that
//! process lives, and the one-sided operations on it.

use crate::contract::{LinkError, Remote};
use crate::memory::{self, Stores};
use crate::shm::clock;
use crate::shm::cluster::Cluster;
use crate::shm::impair::{Between, Impairment};
use crate::shm::lanes::{self, Sender};
use crate::shm::late::{Late, Way};
use crate::shm::occupancy::Phase;
use crate::shm::region::Region;
use crate::shm::table::{FIRST_FREE, REGIONS};
use crate::types::{Address, Instant, Nanos};
use core::sync::atomic::{Ordering, fence};

/// A peer's region as this process has mapped it.
pub(crate) struct Link {
    pub(crate) region: Region,
    pub(crate) generation: u32,
    lane: Option<u32>,
    dirty: bool,
}

/// All links of this process, by region number.
pub struct Links {
    cluster: Cluster,
    me: Sender,
    /// The region of this process, which it has mapped already.
    own: Region,
    links: Vec<Option<Link>>,
    /// Regions whose doorbells are to be rung.
    dirty: Vec<u32>,
    /// Live regions and their groups, as of this state of the table.
    groups: Vec<(u32, u32)>,
    groups_as_of: Option<u64>,
    /// Draws which datagrams an impaired link loses.
    dice: u64,
    /// What is on its way over slow links.
    pub(crate) way: Way,
    stores: Stores,
}

impl Links {
    pub(crate) fn new(cluster: Cluster, me: Sender, own: Region) -> Self {
        Self {
            cluster,
            me,
            own,
            links: (0..REGIONS).map(|_| None).collect(),
            dirty: Vec::with_capacity(REGIONS as usize),
            groups: Vec::with_capacity(REGIONS as usize),
            groups_as_of: None,
            dice: u64::from(me.region) << 32 | u64::from(me.generation) | 1,
            way: Way::default(),
            stores: Stores::default(),
        }
    }

    /// What a drill has done to the link to a region. The own memory is reached without one.
    #[inline]
    fn suffers(&self, region: u32) -> Between {
        if !self.cluster.table.has_impaired() || region == self.me.region {
            return Between::default();
        }
        let [own, peers] = self.ends(region);
        own.between(self.me.region, peers, region)
    }

    /// What a drill has done to the links of this process and of a region's owner.
    fn ends(&self, region: u32) -> [Impairment; 2] {
        [self.me.region, region].map(|region| self.cluster.table.impairment(region))
    }

    /// Whether any link may be slow, or was so just before. Nearly never.
    #[inline]
    pub(crate) fn may_be_late(&self) -> bool {
        self.cluster.table.has_impaired() || !self.way.is_empty()
    }

    /// When what is posted to a region now is due, if it is to be held back.
    pub(crate) fn due(&self, region: u32) -> Option<Instant> {
        let [own, peers] = self.ends(region);
        let delay = if region == self.me.region { Nanos::ZERO } else { own.delay.max(peers.delay) };
        self.way.due(region, delay, clock::now())
    }

    /// Whether a datagram is lost on a link that loses so many of a hundred.
    fn loses(&mut self, percent: u8) -> bool {
        if percent == 0 {
            return false;
        }
        // Marsaglia's xorshift; nothing depends on more than that it is spread.
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice % 100 < u64::from(percent)
    }

    /// The link to whoever holds a region now, dead or alive.
    fn link(&mut self, region: u32) -> Result<&mut Link, LinkError> {
        let newest = self.cluster.table.generation(region);
        let place = self.links.get_mut(region as usize).ok_or(LinkError::PeerReplaced)?;
        if newest == 0 {
            return Err(LinkError::PeerReplaced);
        }
        if place.as_ref().is_none_or(|link| link.generation != newest) {
            *place = None;
            let is_own = (region, newest) == (self.me.region, self.me.generation);
            let region = if is_own { self.own.clone() } else { open(&self.cluster, region, newest)? };
            *place = Some(Link { region, generation: newest, lane: None, dirty: false });
        }
        place.as_mut().ok_or(LinkError::PeerDead)
    }

    /// The newest generation of a region.
    pub(crate) fn generation(&self, region: u32) -> u32 {
        self.cluster.table.generation(region)
    }

    /// The link to a region whatever the state of its owner, for watching.
    pub(crate) fn region(&mut self, region: u32) -> Result<(Region, u32), LinkError> {
        self.link(region).map(|link| (link.region.clone(), link.generation))
    }

    /// The link to exactly this process, alive.
    #[inline]
    pub(crate) fn peer(&mut self, at: Address) -> Result<&mut Link, LinkError> {
        // Who does not answer is as dead, for all that this side can know.
        if self.suffers(at.region).cut { Err(LinkError::PeerDead) } else { self.reach(at) }
    }

    /// The same, for one-sided operations.
    #[inline]
    fn target(&mut self, at: Address) -> Result<&mut Link, LinkError> {
        let link = self.suffers(at.region);
        if link.cut || link.operations_fail { Err(LinkError::PeerDead) } else { self.reach(at) }
    }

    /// The same, over a link that is not cut.
    #[inline]
    fn reach(&mut self, at: Address) -> Result<&mut Link, LinkError> {
        if at.host != 0 || at.port != 0 {
            return Err(LinkError::PeerReplaced);
        }
        let link = self.link(at.region)?;
        // A program in a seat is reached through the region's memory as long as that program lives, whether or not the
        // region's owner does: its lease page can be fenced then.
        let holder = match at.seat {
            0 => link.generation,
            seat if u32::from(seat) < link.region.layout().limits().seats => link.region.generation(seat),
            _ => return Err(LinkError::OutOfBounds),
        };
        if at.generation != 0 && at.generation != holder {
            return Err(LinkError::PeerReplaced);
        }
        if link.region.is_dead(at.seat) {
            return Err(LinkError::PeerDead);
        }
        Ok(link)
    }

    /// Copies `out.len()` bytes of a peer's region.
    pub(crate) fn read(&mut self, from: Remote, out: &mut [u8]) -> Result<(), LinkError> {
        self.stores.settle();
        let link = self.target(from.at)?;
        let words = memory::span(&link.region, from.offset, out.len()).ok_or(LinkError::OutOfBounds)?;
        memory::copy_out(words, out);
        fence(Ordering::Acquire);
        Ok(())
    }

    /// One word of a peer's region.
    #[inline]
    pub(crate) fn read_word(&mut self, from: Remote) -> Result<u64, LinkError> {
        self.stores.settle();
        let link = self.target(from.at)?;
        let words = memory::span(&link.region, from.offset, 8).ok_or(LinkError::OutOfBounds)?;
        words.first().map(|w| w.load(Ordering::Acquire)).ok_or(LinkError::OutOfBounds)
    }

    pub(crate) fn write(&mut self, to: Remote, bytes: &[u8]) -> Result<(), LinkError> {
        let link = self.target(to.at)?;
        if !bytes.len().is_multiple_of(8) {
            return Err(LinkError::OutOfBounds);
        }
        let words = memory::span(&link.region, to.offset, bytes.len()).ok_or(LinkError::OutOfBounds)?;
        memory::write(words, bytes);
        self.stores.add();
        Ok(())
    }

    #[inline]
    pub(crate) fn cas(&mut self, at: Remote, expected: u64, desired: u64) -> Result<u64, LinkError> {
        let link = self.target(at.at)?;
        let words = memory::span(&link.region, at.offset, 8).ok_or(LinkError::OutOfBounds)?;
        let word = words.first().ok_or(LinkError::OutOfBounds)?;
        let found = memory::swap(word, expected, desired);
        self.stores.add();
        Ok(found)
    }

    /// Returns when what this process has WRITTEN and swapped is visible to everybody.
    #[inline]
    pub(crate) fn settle_stores(&mut self) {
        self.stores.settle();
    }

    /// Puts a datagram into the peer's lane; its doorbell is rung by [`Links::ring`]. `false` if it is lost.
    pub(crate) fn send(&mut self, to: Address, bytes: &[u8]) -> bool {
        let percent = self.suffers(to.region).loss_percent;
        if self.loses(percent) {
            return false;
        }
        if self.may_be_late()
            && let Some(due) = self.due(to.region)
        {
            return self.way.put(due, Late::Datagram { to, bytes: bytes.to_vec() }).is_ok();
        }
        self.deliver(to, bytes)
    }

    /// The same for a datagram that has arrived.
    pub(crate) fn deliver(&mut self, to: Address, bytes: &[u8]) -> bool {
        let me = self.me;
        let Ok(link) = self.peer(to) else { return false };
        let layout = *link.region.layout();
        let held = link.lane.filter(|&lane| lanes::is_held(&link.region, &layout, lane, me));
        link.lane = held.or_else(|| lanes::claim(&link.region, &layout, me));
        let Some(lane) = link.lane else { return false };
        let sent = lanes::push(&link.region, &layout, lane, bytes);
        // A full lane is rung too: its reader may have slept through a ring of a sender that died.
        if !link.dirty {
            link.dirty = true;
            self.dirty.push(to.region);
        }
        sent
    }

    /// Rings the doorbells of all that were sent something.
    #[inline]
    pub(crate) fn ring(&mut self) {
        while let Some(region) = self.dirty.pop() {
            if let Some(Some(link)) = self.links.get_mut(region as usize)
                && link.dirty
            {
                link.dirty = false;
                link.region.ring();
            }
        }
    }

    /// Sends to all live regions with this group's bit but the own one. Says how many lost it; the dead do not count.
    pub(crate) fn multicast(&mut self, bit: u32, bytes: &[u8]) -> u64 {
        self.refresh_groups();
        let members = core::mem::take(&mut self.groups);
        let mut lost = 0;
        for &(region, groups) in &members {
            let to = Address::region(region);
            if groups & bit == 0 || self.suffers(region).multicast_lost {
                continue;
            }
            if self.peer(to).is_ok() && !self.send(to, bytes) {
                lost += 1;
            }
        }
        self.groups = members;
        lost
    }

    fn refresh_groups(&mut self) {
        // Read before the entries are, so that a change meanwhile is seen the next time.
        let changes = self.cluster.table.changes();
        if self.groups_as_of == Some(changes) {
            return;
        }
        self.groups.clear();
        for region in 1..REGIONS {
            if let Some(entry) = self.cluster.table.get(region)
                && entry.occupancy.phase == Phase::Live
                && region != self.me.region
            {
                self.groups.push((region, entry.role.groups));
            }
        }
        self.groups_as_of = Some(changes);
    }

    /// Whether nothing more can come from a sender: it was replaced, or its death was seen.
    pub(crate) fn is_gone(&mut self, sender: Sender) -> bool {
        let newest = self.cluster.table.generation(sender.region);
        if newest != sender.generation {
            return true;
        }
        // Not to be had is no proof: there may be no descriptor left to map it with.
        self.link(sender.region).is_ok_and(|link| link.region.is_dead(0))
    }
}

/// Maps the region of this very generation.
fn open(cluster: &Cluster, number: u32, generation: u32) -> Result<Region, LinkError> {
    let entry = cluster.table.get(number).ok_or(LinkError::PeerDead)?;
    // A claimed region is being made: its predecessor is dead, its successor not there yet.
    if entry.generation != generation || !matches!(entry.occupancy.phase, Phase::Live | Phase::Closed) {
        return Err(LinkError::PeerDead);
    }
    let region = match Region::open(cluster, number) {
        Ok(region) => region,
        Err(super::ShmError::Io { error, .. }) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(LinkError::PeerDead);
        }
        Err(_) => return Err(LinkError::PeerReplaced),
    };
    region.prefault_as_peer(number < FIRST_FREE);
    // The file may have been replaced between the two looks.
    if region.generation(0) == generation { Ok(region) } else { Err(LinkError::PeerReplaced) }
}
