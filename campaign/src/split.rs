//! Row 21 under a permanent partition that leaves a majority of the coordinators connected, with a
//! node that the others cannot reach any more, though it reaches them, or with one that cannot connect
//! to all or some of the others, though they reach it: all members can reach each other and are active,
//! and no process is kept out that could reach them all. This stays so: membership does not change any
//! more.

use super::driver::Driver;
use super::marks::Mark;
use super::oracle::{Violation, broken};
use obol_rng::Rng;

/// How long the members have to stay the same, in link timeouts.
const CALM_TIMEOUTS: u64 = 8;
/// Steps between two checks whether they have become a clique.
const POLL_INTERVAL: u32 = 64;
/// Partitions that are drawn until one leaves a majority.
const DRAWS_MAX: u32 = 8;

/// How often a node is closed instead of a partition, in a thousand.
const CLOSED_PERMILLE: u32 = 250;
/// How often, of the others, a node cannot connect any more, in a thousand; and to how many of the
/// others, if not to all.
const REFUSED_PERMILLE: u32 = 330;
const REFUSED_SOME_PERMILLE: u32 = 500;
/// How often a coordinator without which nothing is decided, if there is one, cannot connect to others,
/// in a thousand.
const NEEDED_PERMILLE: u32 = 500;

type Cuts = Vec<(u32, u32)>;

/// Cuts the network permanently and waits for the clique; false if no drawn partition leaves a
/// majority.
pub(super) fn split(driver: &mut Driver) -> Result<bool, Violation> {
    let mut rng = Rng::new(driver.scenario.seed ^ 0x5e9a_7a7e_0000_0000);
    let lives: Vec<u32> = (0..driver.scenario.nodes()).filter(|n| driver.is_inside(*n)).collect();
    let drawn = (0..DRAWS_MAX).map(|_| draw(&mut rng, &lives, driver.scenario.coordinators));
    let mut drawn: Vec<Cuts> = drawn.collect();
    let closed = rng.permille(CLOSED_PERMILLE).then(|| lives[rng.below(lives.len() as u64) as usize]);
    if let Some(node) = closed {
        drawn = vec![lives.iter().filter(|other| **other != node).map(|other| (*other, node)).collect()];
    }
    let needed = needed(driver, &lives).filter(|_| rng.permille(NEEDED_PERMILLE));
    let refuses = needed.is_some() || rng.permille(REFUSED_PERMILLE);
    let refused = (closed.is_none() && refuses).then(|| {
        let node = needed.unwrap_or_else(|| lives[rng.below(lives.len() as u64) as usize]);
        let all = rng.coin();
        let coordinators = driver.scenario.coordinators;
        let others = lives.iter().filter(|other| **other != node);
        // The others without which nothing is decided stay.
        let others = others.filter(|other| needed.is_none() || **other >= coordinators);
        others.filter(|_| all || rng.permille(REFUSED_SOME_PERMILLE)).map(|other| (node, *other)).collect()
    });
    if let Some(cuts) = &refused {
        drawn = vec![Cuts::clone(cuts)];
    }
    let Some(cuts) = drawn.into_iter().find(|cuts| leaves_majority(driver, &lives, cuts)) else {
        return Ok(false);
    };
    if let Some(node) = closed {
        driver.close(node);
    } else if refused.is_some() {
        cuts.iter().for_each(|&(a, b)| driver.refuse(a, b));
    } else {
        cuts.iter().for_each(|&(a, b)| driver.cut(a, b));
    }
    let began = driver.cluster.now();
    let end = began + driver.scenario.patience;
    let mut checks = 0;
    loop {
        if !driver.step()? || driver.cluster.now() > end {
            let problem = apart(driver).unwrap_or_default();
            broken!(21, driver.cluster.now(), "permanent partition: {problem}")?;
        }
        checks += 1;
        if checks % POLL_INTERVAL == 0 && apart(driver).is_none() {
            break;
        }
    }
    let inside = members(driver);
    driver.log(format_args!("nodes {inside:?} are a clique, and all active"));
    if inside.len() < lives.len() {
        driver.oracle.marks.hit(Mark::Clique);
        if closed.is_some() {
            driver.oracle.marks.hit(Mark::CliqueClosed);
        } else if refused.is_some() {
            driver.oracle.marks.hit(Mark::CliqueRefused);
            // It stays, and some others do not.
            if needed.is_some_and(|node| inside.contains(&node)) {
                driver.oracle.marks.hit(Mark::CliqueNeeded);
            }
        } else if cuts.iter().any(|&(a, b)| !driver.cluster.is_cut(b, a)) {
            driver.oracle.marks.hit(Mark::CliqueOneWay);
        }
    }
    let calm = driver.cluster.now() + CALM_TIMEOUTS * driver.scenario.config.timing.link_timeout.0;
    while driver.cluster.now() < calm && driver.step()? {
        let now = members(driver);
        if now != inside {
            let what = format!("permanent partition: members were nodes {inside:?}, now {now:?}");
            broken!(21, driver.cluster.now(), "{what}")?;
        }
    }
    Ok(true)
}

/// The nodes whose present life is in the newest view.
fn members(driver: &Driver) -> Vec<u32> {
    (0..driver.scenario.nodes()).filter(|n| driver.is_inside(*n)).collect()
}

/// Why the members are not a clique of all that belong to it.
fn apart(driver: &Driver) -> Option<String> {
    let inside = members(driver);
    let world = &driver.cluster;
    let blocked =
        |a: u32, b: u32| world.is_cut(a, b) || a != b && (world.is_closed(b) || world.is_refused(a, b));
    let is_cut = |a: u32, b: u32| blocked(a, b) || blocked(b, a);
    for (at, &a) in inside.iter().enumerate() {
        if let Some(b) = inside[..at].iter().find(|b| is_cut(a, **b)) {
            return Some(format!("nodes {b} and {a} are both members and cannot reach each other"));
        }
    }
    driver.problem_of(|node| !inside.iter().any(|other| is_cut(node, *other)))
}

/// Whether a majority of the acceptors can all reach each other.
fn leaves_majority(driver: &Driver, lives: &[u32], cuts: &Cuts) -> bool {
    let all = driver.acceptors();
    let live: Vec<u32> = all.iter().copied().filter(|n| lives.contains(n)).collect();
    let whole = |set: u32| {
        let is_in = |node: u32| live.iter().position(|n| *n == node).is_some_and(|at| set >> at & 1 == 1);
        !cuts.iter().any(|&(a, b)| is_in(a) && is_in(b))
    };
    (0..1u32 << live.len()).any(|set| set.count_ones() as usize > all.len() / 2 && whole(set))
}

/// A coordinator that does not lead, if nothing is decided without any of those that live.
fn needed(driver: &Driver, lives: &[u32]) -> Option<u32> {
    let all = driver.acceptors();
    let live: Vec<u32> = all.iter().copied().filter(|n| lives.contains(n)).collect();
    live.last().copied().filter(|_| live.len() == all.len() / 2 + 1 && live.len() > 1)
}

/// Draws a partition: pairs, a node that loses some links, two or three sides with or without
/// bridges, or arbitrary links, each in one direction or both.
fn draw(rng: &mut Rng, lives: &[u32], coordinators: u32) -> Cuts {
    let mut cuts = Cuts::new();
    let any = |rng: &mut Rng| lives[rng.below(lives.len() as u64) as usize];
    let one_way = rng.below(3);
    let mut cut = |rng: &mut Rng, a: u32, b: u32| {
        let forth = one_way != 0 || rng.coin();
        let back = one_way != 0 && (one_way == 1 || rng.coin()) || !forth;
        if a != b {
            cuts.extend([(a, b)].into_iter().filter(|_| forth));
            cuts.extend([(b, a)].into_iter().filter(|_| back));
        }
    };
    match rng.below(5) {
        0 => {
            for _ in 0..1 + rng.below(3) {
                let (a, b) = (any(rng), any(rng));
                cut(rng, a, b);
            }
        }
        1 => {
            let a = any(rng);
            for &b in lives {
                if rng.permille(600) {
                    cut(rng, a, b);
                }
            }
        }
        2 | 3 => {
            // A bridge belongs to no side: it reaches all.
            let (sides, bridges) = (2 + rng.below(2), rng.below(300) as u32);
            let together = rng.coin();
            let side: Vec<Option<u64>> = lives
                .iter()
                .map(|n| {
                    let drawn = rng.below(sides);
                    let bridge = rng.permille(bridges);
                    (!bridge).then_some(if together && *n < coordinators { 0 } else { drawn })
                })
                .collect();
            for (at, &a) in lives.iter().enumerate() {
                for (to, &b) in lives.iter().enumerate().take(at) {
                    if side[at].zip(side[to]).is_some_and(|(one, other)| one != other) {
                        cut(rng, a, b);
                    }
                }
            }
        }
        _ => {
            let share = 20 + rng.below(300) as u32;
            for &a in lives {
                for &b in lives {
                    if a != b && rng.permille(share) {
                        cut(rng, a, b);
                    }
                }
            }
        }
    }
    cuts
}
