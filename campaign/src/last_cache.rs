//! The last lease cache goes in the same view as an app, and a member that has renewed by the cache
//! learns of that view late: when the next one is decided, whose wait covers no cache any more. The
//! cache was cut off before, and vouches as long as its own lease lasts.

use super::act::Act;
use super::driver::Driver;
use super::fault_schedule::{FaultSchedule, lease};
use super::oracle::Cue;
use super::targeted::longest;
use obol_membership::Kind;
use obol_rng::Rng;

/// Share of the runs with caches, in a thousand.
const SHARE_PERMILLE: u32 = 500;
/// A member besides the one that dies and the one that learns late: with fewer, the view has no app.
const HOLDERS_MIN: usize = 3;

fn stream(driver: &Driver) -> Rng {
    Rng::new(driver.scenario.seed ^ 0x1a57_cac4_e000_0000)
}

impl FaultSchedule {
    /// Leaves one cache alive; returns for how long, or zero if this run has no such fault.
    pub(super) fn one_cache(&mut self, driver: &Driver) -> u64 {
        let (scenario, unit) = (&driver.scenario, lease(driver));
        let drawn = scenario.caches > 0 && !scenario.slow && stream(driver).permille(SHARE_PERMILLE);
        if !drawn || scenario.pulses.is_some() {
            return 0;
        }
        for down in (0..scenario.nodes()).filter(|node| driver.cluster.is_dead(*node)) {
            self.after(driver, 0, Act::Start(down));
        }
        let caches = || (0..scenario.nodes()).filter(|node| scenario.is_cache(*node));
        for spare in caches().skip(1) {
            self.after(driver, 2 * unit, Act::Kill(spare));
        }
        8 * unit
    }

    /// Loses it; returns how long that takes.
    pub(super) fn lose_last_cache(&mut self, driver: &Driver) -> u64 {
        let mut rng = stream(driver);
        let (scenario, unit, newest) = (&driver.scenario, lease(driver), driver.oracle.newest());
        let mut caches = newest.of_kind(Kind::LeaseCache).map(|m| m.address.region);
        let (Some(cache), None, Some(leader)) = (caches.next(), caches.next(), driver.leader()) else {
            return 0;
        };
        let holds =
            |node: &u32| !scenario.is_cache(*node) && driver.is_inside(*node) && driver.cluster.runs(*node);
        let mut holders: Vec<u32> = (scenario.coordinators..scenario.nodes()).filter(holds).collect();
        if holders.len() < HOLDERS_MIN {
            return 0;
        }
        let mut draw = || holders.swap_remove(rng.below(holders.len() as u64) as usize);
        let (victim, late) = (draw(), draw());
        let network = scenario.rough;
        let (way, notice) = (longest(network.one_way), longest(network.notice));
        // The leader is frozen, so that the next one removes both in one view.
        let mut acts = vec![(0, Act::Freeze(leader))];
        // A notice is lost if it crosses a cut.
        let taken = way + notice + rng.below(unit / 8);
        for coordinator in 0..scenario.coordinators {
            for apart in [cache, late] {
                for (from, to) in [(coordinator, apart), (apart, coordinator)] {
                    acts.push((taken, Act::Cut(from, to)));
                    acts.push((6 * unit, Act::Heal(from, to)));
                }
            }
        }
        let span = newest.cache_lease.0;
        let next = 4 * way + rng.below(unit / 8);
        let learned = taken + next + rng.below(span);
        let everybody = (1 << scenario.coordinators) - 1;
        acts.extend([
            (1, Act::Kill(victim)),
            (1, Act::Suspect(cache, 0)),
            (taken + 1, Act::Kill(leader)),
            (taken + next, Act::SetLease(unit + 1, everybody)),
            (learned, Act::LateView(late)),
            (6 * unit, Act::Start(victim)),
            (6 * unit, Act::Start(leader)),
        ]);
        self.on_cue(Cue::Renewed(cache), driver.cluster.now() + 2 * unit, acts);
        9 * unit
    }
}
