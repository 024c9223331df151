//! Watches on processes of other hosts. A link that breaks is a suspicion; that a region has a later owner is a proof,
//! because it was given out only after the earlier one was proved dead or had let go.

use crate::contract::Evidence;
use crate::types::Address;
use std::collections::VecDeque;

#[derive(Debug)]
struct Watch {
    whom: Address,
    /// The owner that is meant; 0 while nobody has been met at an address that names none.
    generation: u32,
    suspected: bool,
    proved: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Watches {
    all: Vec<Watch>,
    events: VecDeque<(Address, Evidence)>,
}

const fn is_later(generation: u32, than: u32) -> bool {
    generation.wrapping_sub(than) as i32 > 0
}

impl Watch {
    fn suspect(&mut self, events: &mut VecDeque<(Address, Evidence)>) {
        if !core::mem::replace(&mut self.suspected, true) {
            events.push_back((self.whom, Evidence::Suspicion));
        }
    }

    fn prove(&mut self, events: &mut VecDeque<(Address, Evidence)>) {
        self.suspect(events);
        if !core::mem::replace(&mut self.proved, true) {
            events.push_back((self.whom, Evidence::Proof));
        }
    }
}

impl Watches {
    /// Watches whoever is at an address; `generation` is the owner that was met there last, 0 for none.
    pub(super) fn add(&mut self, whom: Address, generation: u32, reachable: bool) {
        if self.all.iter().any(|watch| watch.whom == whom) {
            return;
        }
        let owner = if whom.generation != 0 && whom.seat == 0 { whom.generation } else { generation };
        let mut watch = Watch { whom, generation: owner, suspected: false, proved: false };
        if generation != 0 && owner != 0 && is_later(generation, owner) {
            watch.prove(&mut self.events);
        } else if !reachable {
            watch.suspect(&mut self.events);
        }
        self.all.push(watch);
    }

    /// Watches a process that is known to have a successor.
    pub(super) fn add_replaced(&mut self, whom: Address) {
        self.add(whom, whom.generation, true);
        if let Some(watch) = self.all.iter_mut().find(|watch| watch.whom == whom) {
            watch.prove(&mut self.events);
        }
    }

    pub(super) fn remove(&mut self, whom: Address) {
        self.all.retain(|watch| watch.whom != whom);
        self.events.retain(|(address, _)| *address != whom);
    }

    /// The link to a region is broken, or could not be made.
    pub(super) fn suspect(&mut self, region: u32) {
        for watch in self.all.iter_mut().filter(|watch| watch.whom.region == region) {
            watch.suspect(&mut self.events);
        }
    }

    /// A region has this owner now; `known` was met before, 0 for none.
    pub(super) fn replaced(&mut self, region: u32, known: u32, generation: u32) {
        for watch in self.all.iter_mut().filter(|watch| watch.whom.region == region) {
            if watch.generation == 0 {
                watch.generation = known;
            }
            if watch.generation != 0 && is_later(generation, watch.generation) {
                watch.prove(&mut self.events);
            }
        }
    }

    /// As [`Watches::replaced`], and that owner answers.
    pub(super) fn met(&mut self, region: u32, known: u32, generation: u32) {
        self.replaced(region, known, generation);
        for watch in self.all.iter_mut().filter(|watch| watch.whom.region == region) {
            if watch.generation == 0 {
                watch.generation = generation;
            }
            // It lives after all; its death is to be told again.
            if watch.generation == generation {
                watch.suspected = false;
            }
        }
    }

    pub(super) fn next(&mut self) -> Option<(Address, Evidence)> {
        self.events.pop_front()
    }

    pub(super) fn has_news(&self) -> bool {
        !self.events.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The address of a watch whose end is not proved.
    pub(super) fn unproved(&self, index: usize) -> Option<Address> {
        self.all.get(index).filter(|watch| !watch.proved).map(|watch| watch.whom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(watches: &mut Watches) -> Vec<Evidence> {
        std::iter::from_fn(|| watches.next()).map(|(_, evidence)| evidence).collect()
    }

    #[test]
    fn a_broken_link_is_told_once_until_the_peer_is_met_again() {
        let mut watches = Watches::default();
        let whom = Address { generation: 3, ..Address::region(40) };
        watches.add(whom, 0, true);
        watches.suspect(40);
        watches.suspect(40);
        watches.suspect(41);
        assert_eq!(events(&mut watches), [Evidence::Suspicion]);
        watches.met(40, 0, 3);
        watches.suspect(40);
        assert_eq!(events(&mut watches), [Evidence::Suspicion]);
    }

    #[test]
    fn a_later_owner_proves_the_end_of_the_one_before() {
        let mut watches = Watches::default();
        let anybody = Address::region(1);
        watches.add(anybody, 0, true);
        watches.met(1, 0, 7);
        assert!(events(&mut watches).is_empty(), "the first that is met is the one that is meant");
        watches.met(1, 7, 8);
        assert_eq!(events(&mut watches), [Evidence::Suspicion, Evidence::Proof]);
        watches.met(1, 8, 9);
        assert!(events(&mut watches).is_empty(), "told once");
        let early = Address { generation: 5, ..Address::region(1) };
        watches.add(early, 9, true);
        assert_eq!(events(&mut watches), [Evidence::Suspicion, Evidence::Proof]);
    }

    #[test]
    fn an_earlier_owner_proves_nothing() {
        let mut watches = Watches::default();
        let whom = Address { generation: 3, ..Address::region(40) };
        watches.add(whom, 0, true);
        watches.replaced(40, 0, 2);
        assert!(events(&mut watches).is_empty(), "the one that is meant may be starting");
    }

    #[test]
    fn a_peer_that_can_not_be_reached_is_suspected_at_once_and_an_ended_watch_is_silent() {
        let mut watches = Watches::default();
        let whom = Address::region(2);
        watches.add(whom, 0, false);
        assert_eq!(watches.next(), Some((whom, Evidence::Suspicion)));
        watches.met(2, 0, 1);
        watches.suspect(2);
        watches.remove(whom);
        assert_eq!(watches.next(), None);
        assert_eq!(watches.unproved(0), None);
    }
}
