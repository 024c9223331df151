//! Faults aimed at windows that the rounds of the schedule hardly meet. They come last in most
//! runs, and are drawn independently of the rest.

use super::act::Act;
use super::driver::{Driver, PROGRAMS};
use super::fault_schedule::{FaultSchedule, lease};
use super::oracle::Cue;
use obol_fabric_sim::Delay;
use obol_rng::Rng;

/// Views between a join and its last late copy.
const LATE_VIEWS: u64 = 26;

impl FaultSchedule {
    /// Draws one of them; returns its duration.
    pub(super) fn targeted(&mut self, driver: &Driver) -> u64 {
        let mut rng = Rng::new(driver.scenario.seed ^ 0xf17a_1e00_0000_0000);
        match rng.below(4) {
            0 => self.late_joins(driver, &mut rng),
            1 => self.second_life(driver, &mut rng),
            2 => self.late_answers(driver, &mut rng),
            _ => 0,
        }
    }

    /// A program joins and leaves; after half of the window in which its join is valid, the network
    /// delivers a copy of it.
    fn late_joins(&mut self, driver: &Driver, rng: &mut Rng) -> u64 {
        let unit = lease(driver);
        let fits = |n: &u32| driver.scenario.is_agent(*n) && driver.is_inside(*n) && driver.cluster.runs(*n);
        let free = |n: u32| (1..=PROGRAMS).find(|seat| !driver.programs(n).contains(seat));
        let agents = (0..driver.scenario.nodes()).filter(fits);
        let Some((agent, seat)) = agents.filter_map(|n| Some((n, free(n)?))).next() else { return 0 };
        self.after(driver, 0, Act::Attach(agent, seat));
        let mut time = unit + rng.below(unit);
        self.after(driver, time, Act::KillProgram(agent, seat));
        time += unit;
        let gap = 6 * longest(driver.scenario.rough.one_way) + 3_000;
        for n in 0..LATE_VIEWS {
            self.after(driver, time, Act::SetLease(unit + n % 2, everybody(driver)));
            time += gap;
            if n >= LATE_VIEWS / 2 {
                self.after(driver, time, Act::RepeatJoins);
            }
        }
        time + unit
    }

    /// A leader dies while it proposes a view, before its own region or all of the others have it.
    /// Its next life is the only one to settle the slot, while an acceptor is unreachable that may
    /// have the earlier proposal. The first coordinator is frozen before, so that another one
    /// leads: assuming that a coordinator of a higher number has prepared a slot already implies
    /// another number.
    fn second_life(&mut self, driver: &Driver, rng: &mut Rng) -> u64 {
        let unit = lease(driver);
        let Some(leader) = driver.leader() else { return 0 };
        let over = 6 * unit + 2 * driver.scenario.config.timing.standby.0;
        let expires = driver.cluster.now() + 4 * unit;
        if leader == 0 {
            self.after(driver, 0, Act::Freeze(0));
            self.after(driver, 0, Act::Suspect(0, 0));
        } else {
            let other = if driver.oracle.newest().lease.0 == unit { unit + 1 } else { unit };
            self.after(driver, 0, Act::SetLease(other, everybody(driver)));
        }
        let successors = driver
            .acceptors()
            .into_iter()
            .filter(|successor| leader == 0 && *successor > 0 || *successor == leader);
        for successor in successors {
            let acts = second_life_of(successor, driver, rng);
            self.on_cue(Cue::Proposed(successor), expires, acts);
        }
        over + unit
    }

    /// Holders send requests to acceptors, and freeze before they receive the answers, for longer
    /// than any lease. They cannot be fenced. When they resume, others have been active without
    /// them, and their programs send new requests: the pending answers are older than those.
    fn late_answers(&mut self, driver: &Driver, rng: &mut Rng) -> u64 {
        let (unit, newest) = (lease(driver), driver.oracle.newest());
        let coordinators = driver.scenario.coordinators;
        let first_cache = driver.scenario.nodes() - driver.scenario.caches;
        let mut holders: Vec<u32> = (coordinators..first_cache).filter(|n| driver.is_inside(*n)).collect();
        if holders.len() < 2 {
            return 0;
        }
        let stays = holders.swap_remove(rng.below(holders.len() as u64) as usize);
        let network = driver.scenario.rough;
        let round_trip = 2 * longest(network.one_way) + 2 * longest(network.step);
        let cut = 2 * round_trip;
        let over = cut + 3 * (newest.wait.0 + newest.lease.0 + newest.cache_lease.0) + 4 * unit;
        for holder in holders {
            let seats = if driver.scenario.is_agent(holder) { driver.programs(holder) } else { vec![0] };
            let Some(&seat) = seats.get(rng.below(seats.len().max(1) as u64) as usize) else { continue };
            self.after(driver, 0, Act::Confirm(holder, seat));
            self.after(driver, rng.below(round_trip), Act::Freeze(holder));
            for peer in (0..coordinators).chain(first_cache..driver.scenario.nodes()) {
                for (from, to) in [(holder, peer), (peer, holder)] {
                    self.after(driver, cut, Act::Cut(from, to));
                    self.after(driver, over, Act::Heal(from, to));
                }
            }
            self.after(driver, over, Act::Thaw(holder));
            self.after(driver, over, Act::Confirm(holder, seat));
        }
        self.after(driver, cut + 1, Act::Kill(stays));
        self.after(driver, over, Act::Start(stays));
        over + 2 * unit
    }
}

/// The acts from the moment on at which a coordinator proposes.
fn second_life_of(leader: u32, driver: &Driver, rng: &mut Rng) -> Vec<(u64, Act)> {
    let (unit, network) = (lease(driver), driver.scenario.rough);
    let peers: Vec<u32> = driver.acceptors().into_iter().filter(|node| *node != leader).collect();
    let lost = peers.get(rng.below(peers.len().max(1) as u64) as usize).copied().unwrap_or(leader);
    // Its posts leave it at the end of its step.
    let lag = network.step.min.0 + rng.below(network.step.jitter.0 + longest(network.loopback) + 1);
    let down = lag + longest(network.one_way) + rng.below(unit / 4);
    let over = down + unit + 2 * driver.scenario.config.timing.standby.0;
    let mut acts = vec![(lag, Act::Kill(leader)), (down, Act::Start(leader))];
    for node in (0..driver.scenario.coordinators).filter(|node| *node != leader) {
        acts.extend([(lag, Act::Freeze(node)), (over, Act::Thaw(node))]);
    }
    for (from, to) in [(leader, lost), (lost, leader)] {
        acts.extend([(down, Act::Cut(from, to)), (over, Act::Heal(from, to))]);
    }
    acts
}

pub(super) const fn longest(delay: Delay) -> u64 {
    delay.min.0 + delay.jitter.0
}

fn everybody(driver: &Driver) -> u32 {
    (1 << driver.scenario.coordinators) - 1
}
