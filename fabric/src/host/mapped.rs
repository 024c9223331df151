//! The regions of this host's processes as this process has mapped them: each mapping is checked at
//! every use for whom it belongs to and whether that process lives.

use super::HostError;
use super::clock;
use super::cluster::Cluster;
use super::impair::{Between, Impairment};
use super::occupancy::Phase;
use super::region::Region;
use super::table::{FIRST_FREE, REGIONS};
use crate::contract::LinkError;
use crate::types::{Address, Instant, Nanos, RegionOwner};
use std::io::ErrorKind;

/// What this process has of one region.
#[derive(Default)]
enum Slot {
    #[default]
    Unused,
    Mapped {
        region: Region,
        generation: u32,
    },
    /// This process could not map that generation and tries again at `retry_at`.
    Failed {
        generation: u32,
        retry_at: Instant,
        pause: Nanos,
    },
}

/// The mapped regions, by number. Mapped when they are used first, and again when another process
/// owns them.
pub struct MappedRegions {
    cluster: Cluster,
    me: RegionOwner,
    /// The region of this process, which it has mapped already.
    own: Region,
    slots: Vec<Slot>,
    /// Mappings that failed since they were counted.
    failures: u64,
}

/// A region that this process could not map, for want of descriptors or memory, is tried again
/// after so long, then after twice as long: each attempt costs system calls.
const RETRY_FIRST: Nanos = Nanos::from_millis(1);
const RETRY_MAX: Nanos = Nanos::from_secs(1);

impl MappedRegions {
    pub(crate) fn new(cluster: Cluster, me: RegionOwner, own: Region) -> Self {
        let slots = (0..REGIONS).map(|_| Slot::Unused).collect();
        Self { cluster, me, own, slots, failures: 0 }
    }

    pub(crate) const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The newest generation of a region.
    pub(crate) fn generation(&self, region: u32) -> u32 {
        self.cluster.table.generation(region)
    }

    /// The region of whoever owns it now, dead or alive, and the owner's generation.
    #[inline]
    pub(crate) fn get(&mut self, region: u32) -> Result<(&Region, u32), LinkError> {
        let newest = self.cluster.table.generation(region);
        if newest == 0 || region >= REGIONS {
            return Err(LinkError::PeerReplaced);
        }
        if self.mapped(region, newest).is_none() {
            self.map(region, newest)?;
        }
        self.mapped(region, newest).map(|region| (region, newest)).ok_or(LinkError::PeerDead)
    }

    /// The region of this generation, if it is mapped already.
    #[inline]
    pub(crate) fn mapped(&self, region: u32, wanted: u32) -> Option<&Region> {
        match self.slots.get(region as usize) {
            Some(Slot::Mapped { region, generation }) if *generation == wanted => Some(region),
            _ => None,
        }
    }

    /// Maps a region, unless it could not be mapped just before.
    #[cold]
    fn map(&mut self, number: u32, newest: u32) -> Result<(), LinkError> {
        let slot = self.slots.get_mut(number as usize).ok_or(LinkError::PeerReplaced)?;
        let pause = match *slot {
            Slot::Failed { generation, retry_at, pause } if generation == newest => {
                if clock::now() < retry_at {
                    return Err(LinkError::Unmapped);
                }
                pause.saturating_mul(2).min(RETRY_MAX)
            }
            _ => RETRY_FIRST,
        };
        // Before the attempt: it unmaps a predecessor, whose memory may be what is lacking.
        *slot = Slot::Unused;
        let is_own = (number, newest) == (self.me.region, self.me.generation);
        let opened = if is_own { Ok(self.own.clone()) } else { open(&self.cluster, number, newest) };
        match opened {
            Ok(region) => *slot = Slot::Mapped { region, generation: newest },
            Err(LinkError::Unmapped) => {
                self.failures += 1;
                let retry_at = clock::now() + pause;
                *slot = Slot::Failed { generation: newest, retry_at, pause };
                return Err(LinkError::Unmapped);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The region of exactly this process, alive.
    #[inline]
    pub(crate) fn reach(&mut self, at: Address) -> Result<(&Region, u32), LinkError> {
        if at.host != 0 || at.port != 0 {
            return Err(LinkError::PeerReplaced);
        }
        let (region, generation) = self.get(at.region)?;
        // A program in a seat is reached through the region's memory as long as that program lives,
        // whether or not the region's owner does: its lease page can be fenced then.
        let holder = match at.seat {
            0 => generation,
            seat if u32::from(seat) < region.layout().limits().seats => region.generation(seat),
            _ => return Err(LinkError::OutOfBounds),
        };
        if at.generation != 0 && at.generation != holder {
            return Err(LinkError::PeerReplaced);
        }
        if region.is_dead(at.seat) {
            return Err(LinkError::PeerDead);
        }
        Ok((region, generation))
    }

    /// The same, unless a drill has cut the link.
    #[inline]
    pub(crate) fn peer(&mut self, at: Address) -> Result<(&Region, u32), LinkError> {
        // A peer that does not answer is as good as dead, for all that this side can know.
        if self.impairment(at.region).cut { Err(LinkError::PeerDead) } else { self.reach(at) }
    }

    /// What a drill has done to the link to a region. The own memory is reached without one.
    #[inline]
    pub(crate) fn impairment(&self, region: u32) -> Between {
        if !self.has_impaired() || region == self.me.region {
            return Between::default();
        }
        let [own, peers] = self.ends(region);
        own.between(self.me.region, peers, region)
    }

    /// Whether any link of the cluster is impaired. Nearly never: this is all that an operation
    /// pays.
    #[inline]
    pub(crate) fn has_impaired(&self) -> bool {
        self.cluster.table.has_impaired()
    }

    /// How long a drill delays what is posted to a region.
    pub(crate) fn delay(&self, region: u32) -> Nanos {
        if region == self.me.region {
            return Nanos::ZERO;
        }
        let [own, peers] = self.ends(region);
        own.delay.max(peers.delay)
    }

    /// What a drill has done to the links of this process and of a region's owner.
    fn ends(&self, region: u32) -> [Impairment; 2] {
        [self.me.region, region].map(|region| self.cluster.table.impairment(region))
    }

    /// Mappings that failed since the last call.
    pub(crate) fn take_failures(&mut self) -> u64 {
        core::mem::take(&mut self.failures)
    }

    /// Whether nothing more can come from a process: it was replaced, or its death was seen.
    pub(crate) fn is_gone(&mut self, owner: RegionOwner) -> bool {
        if self.generation(owner.region) != owner.generation {
            return true;
        }
        // That it can not be mapped proves nothing: no descriptor may be left to do it with.
        self.get(owner.region).is_ok_and(|(region, _)| region.is_dead(0))
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
        Err(HostError::Io { error, .. }) if error.kind() != ErrorKind::NotFound => {
            return Err(LinkError::Unmapped);
        }
        Err(HostError::Kernel { .. }) => return Err(LinkError::Unmapped),
        Err(_) => return Err(LinkError::PeerReplaced),
    };
    region.prefault_as_peer(number < FIRST_FREE);
    // The file may have been replaced between the two looks.
    if region.generation(0) == generation { Ok(region) } else { Err(LinkError::PeerReplaced) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Drive;
    use crate::Fabric;
    use crate::endpoint::{Owner, Wait};
    use crate::host::test::{LIMITS, Root, name};
    use crate::shm::Endpoint;

    fn owner(text: &str) -> Owner {
        Owner { kind: 1, name: name(text), region: None, groups: 0 }
    }

    /// A region that this process can not map, whatever the reason, is not its owner's death, and
    /// is tried again.
    #[test]
    fn what_can_not_be_mapped_says_nothing_of_its_owner() {
        let root = Root::new();
        let cluster = Cluster::create(&root, name("c"), LIMITS).expect("made");
        let peer = Endpoint::open(&cluster, owner("peer"), Wait::Block).expect("opened");
        let number = peer.address().region;
        let me = RegionOwner { region: number + 1, generation: 1 };
        let mut regions = MappedRegions::new(cluster.clone(), me, peer.region().clone());
        let (path, aside) = (cluster.region_path(number), root.join("aside"));
        std::fs::rename(&path, &aside).expect("moved");
        std::fs::create_dir(&path).expect("made");

        for _ in 0..1000 {
            assert_eq!(regions.get(number).map(drop), Err(LinkError::Unmapped));
        }
        let failures = regions.take_failures();
        assert!((1..1000).contains(&failures), "{failures} tries");
        let gone = RegionOwner { region: number, generation: peer.address().generation };
        assert!(!regions.is_gone(gone));
        // Other regions do not wait for this one.
        let address = std::thread::scope(|scope| {
            let healthy = scope.spawn(|| {
                let healthy = Endpoint::open(&cluster, owner("healthy"), Wait::Block).expect("opened");
                healthy.address()
            });
            healthy.join().expect("no panic")
        });
        assert!(regions.get(address.region).is_ok_and(|(_, generation)| generation == address.generation));

        std::fs::remove_dir(&path).expect("removed");
        std::fs::rename(&aside, &path).expect("moved back");
        while regions.get(number).is_err() {
            std::thread::sleep(RETRY_FIRST.to_std());
        }
        assert!(regions.mapped(number, gone.generation).is_some());
    }
}
