//! The processes of the host that its pulses vouch for: all that are alive, watched by others or not.

use super::pulse::Notices;
use obol_fabric::contract::{Evidence, Fabric};
use obol_fabric::host::{Cluster, FIRST_FREE, PER_HOST};
use obol_fabric::types::Address;
use std::collections::{BTreeMap, HashSet};

/// Watches all processes of the host for the pulses, beside those that sessions ask for.
pub(super) struct Tracked {
    pub(super) notices: Notices,
    own: u32,
    /// Generations, by region.
    alive: BTreeMap<u32, u32>,
    /// What sessions watch.
    asked: HashSet<Address>,
}

const fn address(region: u32, generation: u32) -> Address {
    Address { generation, ..Address::region(region) }
}

impl Tracked {
    /// `own` is the gateway's region: if its process dies there are no pulses.
    pub(super) fn new(notices: Notices, own: u32) -> Self {
        Self { notices, own, alive: BTreeMap::new(), asked: HashSet::new() }
    }

    fn has(&self, whom: Address) -> bool {
        whom.seat == 0 && self.alive.get(&whom.region) == Some(&whom.generation)
    }

    /// The kernel has reported a death.
    pub(super) fn died(&mut self, who: Address, evidence: Evidence) {
        if self.has(who) {
            self.notices.set_alive(who.region, false);
        }
        self.notices.died(who, evidence);
    }

    /// A session watches a process.
    pub(super) fn ask(&mut self, whom: Address) {
        self.asked.insert(whom);
    }

    /// No session watches it any more. Returns whether it need not be watched.
    pub(super) fn drop_asked(&mut self, whom: Address) -> bool {
        self.asked.remove(&whom);
        !self.has(whom)
    }

    /// Looks for processes that have come or gone.
    pub(super) fn update(&mut self, cluster: &Cluster, endpoint: &mut impl Fabric) {
        let members = u32::from(cluster.host()) * PER_HOST;
        for region in (1..FIRST_FREE).chain(members..members + PER_HOST).filter(|region| *region != self.own)
        {
            let entry = cluster.table.get(region).filter(|entry| entry.is_alive());
            let (now, before) = (entry.map(|entry| entry.generation), self.alive.get(&region).copied());
            if now == before {
                continue;
            }
            if let Some(generation) = before {
                self.alive.remove(&region);
                self.notices.set_alive(region, false);
                let gone = address(region, generation);
                if !self.asked.contains(&gone) {
                    endpoint.unwatch(gone);
                }
            }
            if let Some(generation) = now {
                self.alive.insert(region, generation);
                endpoint.watch(address(region, generation));
                self.notices.set_alive(region, true);
            }
        }
    }
}
