//! One seed from its first to its last step: a safety phase with faults, then a liveness phase without.

use super::driver::Driver;
use super::marks::{Mark, Marks};
use super::oracle::{Cue, Verdict, Violation};
use super::scenario::Scenario;
use super::storms::{Act, Storms, lease};
use obol_fabric::Nanos;
use obol_membership::{Coordinator, Plant};

/// Steps between two looks at whether the cluster is well.
const LOOK_EVERY: u32 = 64;
/// How long a canary may sing, in leases.
const CANARY_LEASES: u64 = 60;

/// What became of a seed.
#[derive(Clone, Debug)]
pub struct Run {
    /// The seed.
    pub seed: u64,
    /// Whether it had to fail.
    pub canary: bool,
    /// The broken invariant, if any.
    pub violation: Option<Violation>,
    /// Views that removed somebody who failed.
    pub failovers: u64,
    /// Views decided.
    pub views: u64,
    /// Simulated time in nanoseconds.
    pub time: u64,
    /// What the cluster needed of its patience to become well, in thousandths.
    pub recovery_permille: u64,
    /// Paths taken.
    pub marks: Marks,
    /// Over everything that happened.
    pub hash: u64,
    /// What happened, if it was asked for.
    pub story: Vec<String>,
}

/// Runs a seed. `story` asks for an account of what happened.
#[must_use]
pub fn run(seed: u64, plant: Plant, story: bool) -> Run {
    let scenario = Scenario::draw(seed, plant);
    let canary = scenario.canary;
    let mut driver = Driver::new(scenario, story);
    if story {
        let s = driver.scenario.clone();
        driver.tell(format_args!(
            "{} coordinators, {} agents, {} embedded apps; {:?}; {:?}",
            s.coordinators, s.agents, s.embedded, s.config.timing, s.rough
        ));
    }
    let mut recovery = 0;
    let verdict = if canary {
        sing(&mut driver)
    } else {
        torment(&mut driver).and_then(|()| heal(&mut driver)).map(|permille| recovery = permille)
    };
    driver.oracle.finish(&driver.world);
    if let Err(violation) = &verdict {
        let text = format!("VIOLATION {violation}");
        driver.tell(format_args!("{text}"));
    }
    Run {
        seed,
        canary,
        violation: verdict.err(),
        failovers: driver.oracle.failovers(),
        views: driver.oracle.newest().id.0,
        time: driver.world.now(),
        recovery_permille: recovery,
        marks: driver.oracle.marks,
        hash: driver.world.hash(),
        story: driver.story.unwrap_or_default(),
    }
}

/// Runs the world up to a true time; faults that are due are done.
fn until(driver: &mut Driver, storms: &mut Storms, end: u64) -> Verdict {
    loop {
        let next = driver.world.next_time().unwrap_or(u64::MAX);
        let fault = storms.next();
        if next.min(fault) > end {
            driver.world.run_until(end);
            return Ok(());
        }
        if fault < next {
            driver.world.run_until(fault);
            storms.due(driver)?;
            continue;
        }
        driver.step()?;
        storms.snap(driver)?;
    }
}

/// The safety phase.
fn torment(driver: &mut Driver) -> Verdict {
    let mut storms = Storms::default();
    let unit = lease(driver);
    let warm = driver.rng.below(8 * unit);
    until(driver, &mut storms, warm)?;
    for _ in 0..driver.scenario.storms {
        storms.storm(driver);
        let gap = match driver.rng.below(10) {
            0..=2 => driver.rng.below(unit / 4),
            3..=7 => unit / 2 + driver.rng.below(2 * unit),
            _ => 2 * unit + driver.rng.below(3 * unit),
        };
        let end = driver.world.now() + gap;
        until(driver, &mut storms, end)?;
        mark(driver);
    }
    storms.stop();
    Ok(())
}

/// Marks that only the driver can see.
fn mark(driver: &mut Driver) {
    let dead = (0..driver.scenario.coordinators).filter(|n| driver.is_dead(*n)).count() as u32;
    if dead > driver.scenario.coordinators / 2 {
        driver.oracle.marks.hit(Mark::MajorityLost);
    }
    for node in driver.scenario.coordinators..driver.scenario.nodes() {
        let back = driver.runs(node)
            && driver.frozen_once[node as usize]
            && driver.world.machine(node).member().is_some_and(|m| {
                let view = driver.oracle.newest();
                m.incarnation().is_some_and(|who| {
                    view.departed.iter().any(|d| d.incarnation < who && d.token != 0)
                        && exclusions(driver, node) > 0
                })
            });
        if back {
            driver.oracle.marks.hit(Mark::RejoinAfterFreeze);
        }
    }
}

fn exclusions(driver: &Driver, node: u32) -> u64 {
    let layout = driver.scenario.config.layout;
    let word = layout.counters(0) + obol_fabric::metrics::Counter::Exclusions as u32 * 8;
    driver.world.memory(node)[word as usize / 8].load(std::sync::atomic::Ordering::Relaxed)
}

/// The liveness phase: row 21. Gives what it took, in thousandths of what is allowed.
fn heal(driver: &mut Driver) -> Result<u64, Violation> {
    let nodes = driver.scenario.nodes();
    for a in 0..nodes {
        for b in 0..nodes {
            driver.heal(a, b);
        }
        driver.thaw(a);
        for seat in driver.programs(a) {
            driver.world.thaw_program(a, seat);
            driver.world.unhang_program(a, seat);
        }
    }
    let mut calm = driver.scenario.calm;
    let multicast_lost = driver.scenario.rough.multicast_loss_permille == 1000;
    if multicast_lost {
        // Row 11.
        calm.multicast_loss_permille = 1000;
    }
    driver.weather(calm);
    let all = driver.scenario.coordinators;
    let majority = all / 2 + 1;
    let keep = majority + driver.rng.below(u64::from(all - majority + 1)) as u32;
    let first = driver.rng.below(u64::from(all)) as u32;
    for n in 0..all {
        let node = (first + n) % all;
        if n >= keep || driver.world.machine(node).coordinator().is_some_and(Coordinator::has_left) {
            driver.kill(node)?;
        }
        if n < keep {
            driver.restart(node)?;
        }
    }
    let usual = lease(driver);
    let began = driver.world.now();
    let end = began + driver.scenario.patience;
    let mut looks = 0;
    let mut asked = 0;
    loop {
        if driver.oracle.newest().lease != Nanos(usual) && asked <= driver.world.now() {
            // Members renew at a third of the usual lease: a shorter one would lapse again and again.
            driver.set_lease(usual, (1 << all) - 1);
            asked = driver.world.now() + 2 * usual;
        }
        if !driver.step()? || driver.world.now() > end {
            driver.ill(began)?;
        }
        looks += 1;
        if looks % LOOK_EVERY == 0
            && driver.oracle.newest().lease == Nanos(usual)
            && driver.trouble().is_none()
        {
            break;
        }
    }
    if multicast_lost {
        driver.oracle.marks.hit(Mark::NoMulticast);
    }
    if keep == majority {
        driver.oracle.marks.hit(Mark::BareMajority);
    }
    let newest = driver.oracle.newest().id;
    driver.tell(format_args!("all that live are active in view {newest}"));
    Ok((driver.world.now() - began) * 1000 / driver.scenario.patience)
}

/// A canary: a slow holder is cut off right behind a renewal and another one dies. Waits on fast clocks are over before
/// its lease is, and the oracle must say so.
fn sing(driver: &mut Driver) -> Verdict {
    let mut storms = Storms::default();
    let unit = lease(driver);
    until(driver, &mut storms, 12 * unit)?;
    let hidden = 3;
    let mut acts = Vec::new();
    for peer in (0..driver.scenario.nodes()).filter(|n| *n != hidden) {
        acts.push((0, Act::Cut(peer, hidden)));
        acts.push((0, Act::Cut(hidden, peer)));
    }
    acts.push((0, Act::Kill(5)));
    storms.trap(Cue::Renewed(hidden), u64::MAX, acts);
    let end = driver.world.now() + CANARY_LEASES * unit;
    until(driver, &mut storms, end)
}
