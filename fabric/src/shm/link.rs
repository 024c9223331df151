//! Links to peers and the one-sided operations on them. The mapping of a peer's region is checked
//! at every use for its owner and whether that process is alive.

use crate::contract::{Group, LinkError, Remote};
use crate::host::clock;
use crate::host::impair::LinkImpairment;
use crate::host::mapped::MappedRegions;
use crate::host::numbers::{FIRST_FREE, REGIONS};
use crate::host::occupancy::Phase;
use crate::host::region::{Region, Sleep};
use crate::layout::Layout;
use crate::memory::{self, Stores};
use crate::shm::delay_queue::{DelayQueue, DelayedOperation};
use crate::shm::lanes;
use crate::shm::permits::Writer;
use crate::types::{Address, Instant, RegionOwner};
use core::sync::atomic::{Ordering, fence};
use std::collections::HashMap;

/// A gateway uses a third of a receiver's lanes for single hosts. The others are for the processes of the
/// receiver's host; further hosts share the gateway's own lane.
const BEHALF_LANES_DIVISOR: u32 = 3;

/// This process's lane in a peer's region.
#[derive(Clone, Copy, Default)]
struct Outgoing {
    /// The generation of the region's owner.
    generation: u32,
    lane: Option<u32>,
    /// Whether a datagram was sent since the doorbell was rung.
    dirty: bool,
    /// Whether one of them was for this process or its role, and not for everyone.
    urgent: bool,
}

/// All links of this process, by region number.
pub struct Links {
    /// What they lead to.
    pub regions: MappedRegions,
    me: RegionOwner,
    /// The owner of the lanes that this sends by.
    sender: RegionOwner,
    outgoing: Vec<Outgoing>,
    /// The host for whose processes this sends, at a gateway, and the lanes for each: by region and
    /// host, with the region's generation.
    behalf: u8,
    behalf_lanes: HashMap<(u32, u8), (u32, u32)>,
    /// Regions whose doorbells have to be rung.
    dirty: Vec<u32>,
    /// Coordinators that were rung and sleep, see [`Links::ring`].
    rung: Vec<(u32, u32)>,
    /// Live regions and their groups, as of this count of table changes.
    groups: Vec<(u32, u32)>,
    groups_as_of: Option<u64>,
    /// The random state that decides which datagrams an impaired link loses.
    dice: u64,
    /// Posts delayed by a drill.
    pub(crate) delayed: DelayQueue,
    stores: Stores,
    writer: Writer,
}

impl Links {
    /// Links of `me` to all regions, none of them used yet.
    pub fn new(regions: MappedRegions, me: RegionOwner) -> Self {
        Self {
            writer: Writer::new(regions.own().clone()),
            regions,
            me,
            sender: me,
            outgoing: vec![Outgoing::default(); REGIONS as usize],
            behalf: 0,
            behalf_lanes: HashMap::new(),
            dirty: Vec::with_capacity(REGIONS as usize),
            rung: Vec::with_capacity(FIRST_FREE as usize),
            groups: Vec::with_capacity(REGIONS as usize),
            groups_as_of: None,
            dice: u64::from(me.region) << 32 | u64::from(me.generation) | 1,
            delayed: DelayQueue::default(),
            stores: Stores::default(),
        }
    }

    /// For a second thread of the process, beside the one that has the first links.
    pub fn of_second_thread(self) -> Self {
        Self { sender: self.me.second_thread(), ..self }
    }

    /// What is sent from now on comes from processes of another host: it goes by lanes of their own, as
    /// far as there are any.
    pub const fn on_behalf_of(&mut self, host: u8) {
        self.behalf = host;
    }

    /// The layout of all regions.
    pub fn layout(&self) -> &Layout {
        self.regions.cluster.layout()
    }

    /// Whether any link may be slow, or was recently. Almost never.
    #[inline]
    pub(crate) fn may_be_late(&self) -> bool {
        self.regions.has_impaired() || !self.delayed.is_empty()
    }

    /// When a post to a region now would be due, if it is delayed.
    pub(crate) fn due(&self, region: u32) -> Option<Instant> {
        self.delayed.due(region, self.regions.delay(region), clock::now())
    }

    /// Whether to lose a datagram on a link with this percentage of loss.
    pub(crate) fn loses(&mut self, percent: u8) -> bool {
        if percent == 0 {
            return false;
        }
        // Marsaglia's xorshift; uniformity is all that matters.
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice % 100 < u64::from(percent)
    }

    /// The region of exactly this process, alive, for one-sided operations.
    #[inline]
    fn target(&mut self, at: Address) -> Result<&Region, LinkError> {
        Self::reach(&mut self.regions, at).map(|(region, _)| region)
    }

    #[inline]
    fn reach(regions: &mut MappedRegions, at: Address) -> Result<(&Region, u32), LinkError> {
        let LinkImpairment { cut, operations_fail, .. } = regions.impairment(at.region);
        if cut || operations_fail {
            return Err(LinkError::PeerDead);
        }
        regions.reach(at)
    }

    /// Copies `out.len()` bytes of a peer's region.
    pub fn read(&mut self, from: Remote, out: &mut [u8]) -> Result<(), LinkError> {
        self.stores.settle();
        let region = self.target(from.at)?;
        let words = memory::span(region, from.offset, out.len()).ok_or(LinkError::OutOfBounds)?;
        memory::copy_out(words, out);
        fence(Ordering::Acquire);
        Ok(())
    }

    /// One word of a peer's region.
    #[inline]
    pub(crate) fn read_word(&mut self, from: Remote) -> Result<u64, LinkError> {
        self.stores.settle();
        let region = self.target(from.at)?;
        let words = memory::span(region, from.offset, 8).ok_or(LinkError::OutOfBounds)?;
        words.first().map(|w| w.load(Ordering::Acquire)).ok_or(LinkError::OutOfBounds)
    }

    pub(crate) fn write(&mut self, to: Remote, bytes: &[u8]) -> Result<(), LinkError> {
        self.write_for(self.me, to, bytes)
    }

    /// The same for another process: its permissions count.
    #[inline]
    pub fn write_for(&mut self, whom: RegionOwner, to: Remote, bytes: &[u8]) -> Result<(), LinkError> {
        let Self { regions, writer, stores, .. } = self;
        let (region, generation) = Self::reach(regions, to.at)?;
        if !bytes.len().is_multiple_of(8) {
            return Err(LinkError::OutOfBounds);
        }
        let words = memory::span(region, to.offset, bytes.len()).ok_or(LinkError::OutOfBounds)?;
        let owner = RegionOwner { region: to.at.region, generation };
        writer.write(whom, (region, owner), to.offset, words, bytes)?;
        stores.add();
        Ok(())
    }

    /// Compares and swaps the word there, and returns what it found.
    #[inline]
    pub fn cas(&mut self, at: Remote, expected: u64, desired: u64) -> Result<u64, LinkError> {
        let region = self.target(at.at)?;
        let words = memory::span(region, at.offset, 8).ok_or(LinkError::OutOfBounds)?;
        let word = words.first().ok_or(LinkError::OutOfBounds)?;
        let found = memory::swap(word, expected, desired);
        self.stores.add();
        Ok(found)
    }

    /// Returns when all WRITEs and CASs of this process are visible to all.
    #[inline]
    pub fn settle_stores(&mut self) {
        self.stores.settle();
    }

    /// Puts a datagram into the peer's lane; [`Links::ring`] rings the doorbell. `false` if it is
    /// lost.
    pub fn send(&mut self, to: Address, bytes: &[u8]) -> bool {
        let sent = self.put(to, bytes);
        self.hurry(to);
        sent
    }

    fn put(&mut self, to: Address, bytes: &[u8]) -> bool {
        let percent = self.regions.impairment(to.region).loss_percent;
        if self.loses(percent) {
            return false;
        }
        if self.may_be_late()
            && let Some(due) = self.due(to.region)
        {
            return self.delayed.put(due, DelayedOperation::Datagram { to, bytes: bytes.to_vec() }).is_ok();
        }
        self.deliver(to, bytes)
    }

    /// Has a process woken at once for what was put into its lane.
    fn hurry(&mut self, to: Address) {
        if let Some(own) = self.outgoing.get_mut(to.region as usize) {
            own.urgent = own.dirty;
        }
    }

    /// The same for a datagram after its delay.
    pub(crate) fn deliver(&mut self, to: Address, bytes: &[u8]) -> bool {
        let Some(lane) = self.lane(to) else { return false };
        let Self { regions, outgoing, dirty, .. } = self;
        let Some(own) = outgoing.get_mut(to.region as usize) else { return false };
        let Some(region) = regions.mapped(to.region, own.generation) else { return false };
        let sent = lanes::push(region, region.layout(), lane, bytes);
        // A full lane is rung too: its reader may have missed the ring of a sender that died.
        if !own.dirty {
            own.dirty = true;
            dirty.push(to.region);
        }
        sent
    }

    /// This sender's lane in a peer's region.
    fn lane(&mut self, to: Address) -> Option<u32> {
        let (region, generation) = self.regions.peer(to).ok()?;
        let own = self.outgoing.get_mut(to.region as usize)?;
        if own.generation != generation {
            *own = Outgoing { generation, ..Outgoing::default() };
        }
        let layout = *region.layout();
        if self.behalf != 0 {
            let sender = self.sender.on_behalf_of(self.behalf);
            let key = (to.region, self.behalf);
            let known = self.behalf_lanes.get(&key).filter(|(life, _)| *life == generation);
            let held =
                known.map(|(_, lane)| *lane).filter(|&lane| lanes::is_held(region, &layout, lane, sender));
            let has_room = || {
                let lanes = self.behalf_lanes.iter();
                let of_region = lanes.filter(|((at, _), (life, _))| *at == to.region && *life == generation);
                of_region.count() < (layout.limits().lanes / BEHALF_LANES_DIVISOR) as usize
            };
            let claimed = || has_room().then(|| lanes::claim(region, &layout, sender)).flatten();
            if let Some(lane) = held.or_else(claimed) {
                self.behalf_lanes.insert(key, (generation, lane));
                return Some(lane);
            }
        }
        let held = own.lane.filter(|&lane| lanes::is_held(region, &layout, lane, self.sender));
        own.lane = held.or_else(|| lanes::claim(region, &layout, self.sender));
        own.lane
    }

    /// Rings the doorbells of all peers with new datagrams. One call wakes several members: after
    /// each call, the kernel may run the one just woken on this core, and then others, before this
    /// process wakes the rest.
    ///
    /// Coordinators that sleep are not woken for what everyone gets, until [`Links::wake_rung`]:
    /// they would take the cores from the members that wait for it, and have nothing to do.
    #[inline]
    pub fn ring(&mut self) {
        let Self { regions, outgoing, dirty, rung, .. } = self;
        if dirty.is_empty() {
            return;
        }
        let (mut members, mut last) = (0, None);
        dirty.retain(|&number| {
            let Some(own) = outgoing.get_mut(number as usize) else { return false };
            own.dirty = false;
            let Some(region) = regions.mapped(number, own.generation) else { return false };
            let sleep = region.count_ring();
            own.urgent &= sleep == Sleep::Alone;
            if sleep == Sleep::WithMembers {
                members += 1;
                last = Some(region);
            }
            sleep == Sleep::Alone
        });
        match last {
            Some(region) if members == 1 => region.wake(),
            Some(_) => regions.cluster.table.wake_members(),
            None => {}
        }
        for number in dirty.drain(..) {
            let Some(own) = outgoing.get_mut(number as usize) else { continue };
            if !core::mem::take(&mut own.urgent) && members != 0 {
                rung.push((number, own.generation));
            } else if let Some(region) = regions.mapped(number, own.generation) {
                region.wake();
            }
        }
    }

    /// Whether [`Links::ring`] has left coordinators asleep.
    #[inline]
    pub(crate) fn has_rung(&self) -> bool {
        !self.rung.is_empty()
    }

    /// Wakes the coordinators that were rung.
    pub fn wake_rung(&mut self) {
        let Self { regions, rung, .. } = self;
        for (number, generation) in rung.drain(..) {
            if let Some(region) = regions.mapped(number, generation) {
                region.wake();
            }
        }
    }

    /// Sends to all live regions with this group's bit except the own one. Returns how many lost
    /// it, not counting dead ones.
    pub fn multicast(&mut self, bit: u32, bytes: &[u8]) -> u64 {
        self.multicast_except(bit, 0, bytes)
    }

    /// The same without those that have a bit of `except`.
    pub fn multicast_except(&mut self, bit: u32, except: u32, bytes: &[u8]) -> u64 {
        self.refresh_groups();
        let members = core::mem::take(&mut self.groups);
        let mut lost = 0;
        for &(region, groups) in &members {
            let to = Address::region(region);
            if groups & bit == 0 || groups & except != 0 || self.regions.impairment(region).multicast_lost {
                continue;
            }
            if self.regions.peer(to).is_err() {
                continue;
            }
            if !self.put(to, bytes) {
                lost += 1;
            }
            if bit != Group::Everyone.bit() {
                self.hurry(to);
            }
        }
        self.groups = members;
        lost
    }

    /// Maps the regions that a multicast would address, and claims lanes there.
    pub fn prepare(&mut self, bit: u32) {
        self.refresh_groups();
        for index in 0..self.groups.len() {
            if let Some(&(region, groups)) = self.groups.get(index)
                && groups & bit != 0
            {
                self.lane(Address::region(region));
            }
        }
    }

    fn refresh_groups(&mut self) {
        // Read before the entries are, so that a concurrent change is seen the next time.
        let changes = self.regions.cluster.table.changes();
        if self.groups_as_of == Some(changes) {
            return;
        }
        self.groups.clear();
        for region in 1..REGIONS {
            if let Some(entry) = self.regions.cluster.table.get(region)
                && entry.occupancy.phase == Phase::Live
                && region != self.me.region
            {
                self.groups.push((region, entry.role.groups));
            }
        }
        self.groups_as_of = Some(changes);
    }
}
