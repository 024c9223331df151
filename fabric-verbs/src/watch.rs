//! Watches on processes of other hosts. A broken link is a suspicion. A later owner of the region
//! is a proof, because the region was reassigned only after the earlier owner was proved dead or
//! had released it. With the module deadbeat, the other host's kernel reports both by a datagram,
//! which is accepted if it has the token that the peer sent in the handshake.

use obol_deaths::Stage;
use obol_fabric::contract::Evidence;
use obol_fabric::notice::Notice;
use obol_fabric::types::Address;
use obol_fabric::watches::{Deaths, Watches};
use std::collections::HashMap;

/// The watched owner; 0 while the address names none and no connection was made. A later one proves its
/// death.
type Generation = u32;

#[derive(Debug, Default)]
pub(super) struct OwnerWatches {
    all: Watches<Generation>,
    deaths: Deaths,
    /// By region: the last connected owner, and the tokens of its notices.
    tokens: HashMap<u32, (Generation, [u64; 2])>,
    /// Accepted and rejected notices since [`OwnerWatches::take_counts`].
    counts: (u64, u64),
}

const fn is_later(generation: Generation, than: Generation) -> bool {
    generation.wrapping_sub(than) as i32 > 0
}

impl OwnerWatches {
    /// Watches the process at an address; `generation` is the last connected owner there, 0 for
    /// none.
    pub(super) fn add(&mut self, whom: Address, generation: Generation, reachable: bool) {
        let owner = if whom.generation != 0 && whom.seat == 0 { whom.generation } else { generation };
        let Some(watch) = self.all.add(whom, owner) else { return };
        if generation != 0 && owner != 0 && is_later(generation, owner) {
            watch.report(Evidence::Proof, &mut self.deaths);
        } else if !reachable {
            watch.report(Evidence::Suspicion, &mut self.deaths);
        }
    }

    /// Watches a process that is known to have a successor.
    pub(super) fn add_replaced(&mut self, whom: Address) {
        self.add(whom, whom.generation, true);
        if let Some(watch) = self.all.get_mut(whom) {
            watch.report(Evidence::Proof, &mut self.deaths);
        }
    }

    pub(super) fn remove(&mut self, whom: Address) {
        self.all.remove(whom, &mut self.deaths);
    }

    /// The link to a region is broken, or could not be established.
    pub(super) fn suspect(&mut self, region: u32) {
        for watch in self.all.in_region(region) {
            watch.report(Evidence::Suspicion, &mut self.deaths);
        }
    }

    /// A region has this owner now; `known` was connected before, 0 for none.
    pub(super) fn replaced(&mut self, region: u32, known: Generation, generation: Generation) {
        for watch in self.all.in_region(region) {
            if watch.proof == 0 {
                watch.proof = known;
            }
            if watch.proof != 0 && is_later(generation, watch.proof) {
                watch.report(Evidence::Proof, &mut self.deaths);
            }
        }
    }

    /// As [`OwnerWatches::replaced`], for an owner that answers, and sent the tokens of its notices.
    pub(super) fn met(&mut self, region: u32, known: Generation, generation: Generation, tokens: [u64; 2]) {
        self.replaced(region, known, generation);
        self.tokens.insert(region, (generation, tokens));
        for watch in self.all.in_region(region) {
            if watch.proof == 0 {
                watch.proof = generation;
            }
            if watch.proof == generation {
                watch.renew();
            }
        }
    }

    /// A death reported by a kernel. Accepted only if the process itself drew the token.
    pub(super) fn take_notice(&mut self, notice: &Notice) {
        let Notice { who, stage, token, .. } = *notice;
        let Some((generation, [dying, dead])) = self.tokens.get(&who.region).copied() else { return };
        let (drawn, evidence) = match stage {
            Stage::Dying => (dying, Evidence::Suspicion),
            Stage::Dead => (dead, Evidence::Proof),
        };
        if who.seat != 0 || who.generation != generation || token != drawn {
            self.counts.1 += 1;
            return;
        }
        self.counts.0 += 1;
        for watch in self.all.in_region(who.region).filter(|watch| watch.proof == generation) {
            watch.report(evidence, &mut self.deaths);
        }
    }

    /// Accepted and rejected notices since the last call.
    pub(super) fn take_counts(&mut self) -> (u64, u64) {
        core::mem::take(&mut self.counts)
    }

    pub(super) fn next(&mut self) -> Option<(Address, Evidence)> {
        self.deaths.pop_front()
    }

    pub(super) fn has_events(&self) -> bool {
        !self.deaths.is_empty()
    }

    /// The addresses of watches without a proof.
    pub(super) fn unproved(&self) -> impl Iterator<Item = Address> {
        self.all.unproved().map(|watch| watch.whom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(watches: &mut OwnerWatches) -> Vec<Evidence> {
        std::iter::from_fn(|| watches.next()).map(|(_, evidence)| evidence).collect()
    }

    #[test]
    fn a_broken_link_is_reported_once_until_the_peer_reconnects() {
        let mut watches = OwnerWatches::default();
        let whom = Address { generation: 3, ..Address::region(40) };
        watches.add(whom, 0, true);
        watches.suspect(40);
        watches.suspect(40);
        watches.suspect(41);
        assert_eq!(events(&mut watches), [Evidence::Suspicion]);
        watches.met(40, 0, 3, [0; 2]);
        watches.suspect(40);
        assert_eq!(events(&mut watches), [Evidence::Suspicion]);
    }

    #[test]
    fn a_later_owner_proves_the_end_of_the_one_before() {
        let mut watches = OwnerWatches::default();
        let anybody = Address::region(1);
        watches.add(anybody, 0, true);
        watches.met(1, 0, 7, [0; 2]);
        assert!(events(&mut watches).is_empty(), "the first that is met is the one that is meant");
        watches.met(1, 7, 8, [0; 2]);
        assert_eq!(events(&mut watches), [Evidence::Suspicion, Evidence::Proof]);
        watches.met(1, 8, 9, [0; 2]);
        assert!(events(&mut watches).is_empty(), "reported once");
        let early = Address { generation: 5, ..Address::region(1) };
        watches.add(early, 9, true);
        assert_eq!(events(&mut watches), [Evidence::Suspicion, Evidence::Proof]);
    }

    #[test]
    fn an_earlier_owner_proves_nothing() {
        let mut watches = OwnerWatches::default();
        let whom = Address { generation: 3, ..Address::region(40) };
        watches.add(whom, 0, true);
        watches.replaced(40, 0, 2);
        assert!(events(&mut watches).is_empty(), "the one that is meant may be starting");
    }

    #[test]
    fn a_peer_that_can_not_be_reached_is_suspected_at_once_and_an_ended_watch_is_silent() {
        let mut watches = OwnerWatches::default();
        let whom = Address::region(2);
        watches.add(whom, 0, false);
        assert_eq!(watches.next(), Some((whom, Evidence::Suspicion)));
        watches.met(2, 0, 1, [0; 2]);
        watches.suspect(2);
        watches.remove(whom);
        assert_eq!(watches.next(), None);
        assert_eq!(watches.unproved().next(), None);
    }

    #[test]
    fn a_notice_is_believed_iff_its_process_gave_the_token() {
        let mut watches = OwnerWatches::default();
        let whom = Address { generation: 3, ..Address::region(40) };
        watches.add(whom, 0, true);
        let notice = |stage, token| Notice { cluster: 1, who: whom, stage, token };
        watches.take_notice(&notice(Stage::Dead, 6));
        assert!(events(&mut watches).is_empty(), "no peer was connected");
        watches.met(40, 0, 3, [5, 6]);
        for (stage, token) in [(Stage::Dead, 5), (Stage::Dying, 6), (Stage::Dead, 7)] {
            watches.take_notice(&notice(stage, token));
        }
        let later = Address { generation: 4, ..whom };
        watches.take_notice(&Notice { who: later, ..notice(Stage::Dead, 6) });
        watches.take_notice(&Notice { who: Address { seat: 1, ..whom }, ..notice(Stage::Dead, 6) });
        assert!(events(&mut watches).is_empty());
        assert_eq!(watches.take_counts(), (0, 5));
        watches.take_notice(&notice(Stage::Dying, 5));
        assert_eq!(events(&mut watches), [Evidence::Suspicion]);
        watches.take_notice(&notice(Stage::Dead, 6));
        watches.take_notice(&notice(Stage::Dead, 6));
        assert_eq!(events(&mut watches), [Evidence::Proof]);
        assert_eq!(watches.take_counts(), (3, 0));
    }

    #[test]
    fn a_late_notice_is_not_the_successors() {
        let mut watches = OwnerWatches::default();
        watches.add(Address::region(1), 0, true);
        watches.met(1, 0, 3, [5, 6]);
        watches.met(1, 3, 4, [7, 8]);
        assert_eq!(events(&mut watches), [Evidence::Suspicion, Evidence::Proof]);
        let mut second = OwnerWatches::default();
        second.add(Address { generation: 4, ..Address::region(1) }, 4, true);
        second.met(1, 4, 4, [7, 8]);
        let who = Address { generation: 3, ..Address::region(1) };
        second.take_notice(&Notice { cluster: 1, who, stage: Stage::Dead, token: 6 });
        assert!(events(&mut second).is_empty());
    }
}
