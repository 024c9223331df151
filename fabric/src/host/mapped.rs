//! The regions of this host's processes as mapped by this process. At every use, a mapping is
//! checked for its owner and whether that process is alive.

use super::cluster::Cluster;
use super::impair::{Impairment, LinkImpairment};
use super::numbers::{FIRST_FREE, REGIONS};
use super::occupancy::Phase;
use super::region::Region;
use super::{HostError, clock};
use crate::contract::LinkError;
use crate::types::{Address, Instant, Nanos, RegionOwner};
use std::io::ErrorKind;

/// The state of one region.
#[derive(Default)]
enum Slot {
    #[default]
    Unused,
    Mapped {
        region: Region,
        generation: u32,
    },
    /// This process could not map that generation and retries at `retry_at`.
    Failed {
        generation: u32,
        retry_at: Instant,
        pause: Nanos,
    },
}

/// The mapped regions, by number. Mapped at the first use, and again when the owner changes.
pub struct MappedRegions {
    /// Whose regions they are.
    pub cluster: Cluster,
    me: RegionOwner,
    /// The region of this process, which is already mapped.
    own: Region,
    slots: Vec<Slot>,
    /// Failed mappings since the last count.
    failures: u64,
}

/// The delay before a failed mapping, for want of descriptors or memory, is retried; it doubles
/// each time, because each attempt costs system calls.
const RETRY_FIRST: Nanos = Nanos::from_millis(1);
const RETRY_MAX: Nanos = Nanos::from_secs(1);

impl MappedRegions {
    /// Maps none yet but `own`, the region of this process.
    pub fn new(cluster: Cluster, me: RegionOwner, own: Region) -> Self {
        let slots = (0..REGIONS).map(|_| Slot::Unused).collect();
        Self { cluster, me, own, slots, failures: 0 }
    }

    /// The region of this process.
    pub(crate) fn own(&self) -> &Region {
        &self.own
    }

    /// The newest generation of a region.
    pub fn generation(&self, region: u32) -> u32 {
        self.cluster.table.generation(region)
    }

    /// The region of the current owner, dead or alive, and the owner's generation.
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

    /// The region of this generation, if it is already mapped.
    #[inline]
    pub(crate) fn mapped(&self, region: u32, wanted: u32) -> Option<&Region> {
        match self.slots.get(region as usize) {
            Some(Slot::Mapped { region, generation }) if *generation == wanted => Some(region),
            _ => None,
        }
    }

    /// Maps a region, unless that failed just before.
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
        // Before the attempt, because this unmaps a predecessor, which may free the required
        // memory.
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
        // even if the region's owner is dead: its lease page can be fenced then.
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
    pub fn peer(&mut self, at: Address) -> Result<(&Region, u32), LinkError> {
        // To this side, a peer that does not answer is as good as dead.
        if self.impairment(at.region).cut { Err(LinkError::PeerDead) } else { self.reach(at) }
    }

    /// A drill's impairment of the link to a region. The own memory is reached without a link.
    #[inline]
    pub fn impairment(&self, region: u32) -> LinkImpairment {
        if !self.has_impaired() || region == self.me.region {
            return LinkImpairment::default();
        }
        let [own, peers] = self.ends(region);
        own.between(self.me.region, peers, region)
    }

    /// Whether any link of the cluster is impaired. Almost never; an operation pays for this check
    /// only.
    #[inline]
    pub(crate) fn has_impaired(&self) -> bool {
        self.cluster.table.has_impaired()
    }

    /// A drill's delay of posts to a region.
    pub(crate) fn delay(&self, region: u32) -> Nanos {
        if region == self.me.region {
            return Nanos::ZERO;
        }
        let [own, peers] = self.ends(region);
        own.delay.max(peers.delay)
    }

    /// The impairments of this process and of a region's owner.
    fn ends(&self, region: u32) -> [Impairment; 2] {
        [self.me.region, region].map(|region| self.cluster.table.impairment(region))
    }

    /// Failed mappings since the last call.
    pub(crate) fn take_failures(&mut self) -> u64 {
        core::mem::take(&mut self.failures)
    }

    /// Whether a process is known to be gone: it was replaced, or its death was seen.
    pub(crate) fn is_gone(&mut self, owner: RegionOwner) -> bool {
        if self.generation(owner.region) != owner.generation {
            return true;
        }
        // A failed mapping proves nothing: this process may be out of descriptors.
        self.get(owner.region).is_ok_and(|(region, _)| region.is_dead(0))
    }
}

/// Maps the region of this generation only.
fn open(cluster: &Cluster, number: u32, generation: u32) -> Result<Region, LinkError> {
    let entry = cluster.table.get(number).ok_or(LinkError::PeerDead)?;
    // A claimed region is being created: its predecessor is dead, its successor not there yet.
    if entry.generation != generation || !matches!(entry.occupancy.phase, Phase::Live | Phase::Closed) {
        return Err(LinkError::PeerDead);
    }
    let region = match Region::open(cluster, number) {
        Ok(region) => region,
        Err(HostError::Io { error, .. }) if error.kind() != ErrorKind::NotFound => {
            return Err(LinkError::Unmapped);
        }
        // A process that this one cannot read is not dead for that.
        Err(HostError::Kernel { .. } | HostError::Release { .. } | HostError::Version { .. }) => {
            return Err(LinkError::Unmapped);
        }
        Err(_) => return Err(LinkError::PeerReplaced),
    };
    region.prefault_as_peer(number < FIRST_FREE);
    // The file may have been replaced between the two checks.
    if region.generation(0) == generation { Ok(region) } else { Err(LinkError::PeerReplaced) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Endpoint;
    use crate::Fabric;
    use crate::endpoint::{Owner, Wait};
    use crate::host::test::{made, name};

    fn owner(text: &str) -> Owner {
        Owner { kind: 1, name: name(text), region: None, groups: 0 }
    }

    /// A region that this process cannot map, whatever the reason, is not considered dead, and is
    /// retried.
    #[test]
    fn a_failed_mapping_says_nothing_about_the_owner() {
        let (root, cluster) = made();
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
