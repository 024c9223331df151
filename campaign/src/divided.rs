//! Row 21 where no majority of the coordinators is connected: nobody is removed for links that are
//! judged by what was true before the network healed, and what a coordinator can still decide reaches
//! all who can read a majority.

use super::driver::Driver;
use super::marks::Mark;
use super::oracle::{Verdict, broken};
use obol_rng::Rng;

/// For how long the network fails, in link timeouts: long enough for every link to be judged.
const BLACKOUT_TIMEOUTS: u64 = 3;
/// How long the members have to stay the same afterwards, in link timeouts.
const CALM_TIMEOUTS: u64 = 8;
/// For how long links are broken before something happens, in link timeouts.
const BROKEN_TIMEOUTS: u64 = 3;
/// After how many periods of a notice a suspicion that is not repeated has to be forgotten.
const UNREPEATED_PERIODS: u64 = 6;
/// Steps between two checks whether all know of a decision.
const POLL_INTERVAL: u32 = 64;

/// The nodes that live and are members.
fn members(driver: &Driver) -> Vec<u32> {
    (0..driver.scenario.nodes()).filter(|n| driver.is_inside(*n)).collect()
}

fn run_for(driver: &mut Driver, timeouts: u64) -> Verdict {
    let end = driver.cluster.now() + timeouts * driver.scenario.config.timing.link_timeout.0;
    while driver.cluster.now() < end && driver.step()? {}
    Ok(())
}

fn heal(driver: &mut Driver) {
    let nodes = driver.scenario.nodes();
    (0..nodes).flat_map(|a| (0..nodes).map(move |b| (a, b))).for_each(|(a, b)| driver.heal(a, b));
}

/// All links are cut, and heal. Nothing can be decided meanwhile, so all members stay. A single acceptor
/// decides alone, and may rightly exclude all others: then there is nothing to expect.
pub(super) fn blackout(driver: &mut Driver) -> Verdict {
    let mut rng = Rng::new(driver.scenario.seed ^ 0xb1ac_0000_0000_0000);
    let before = members(driver);
    if driver.acceptors().len() < 2 {
        return Ok(());
    }
    for (a, b) in before.iter().flat_map(|a| before.iter().map(move |b| (*a, *b))) {
        if a != b {
            driver.cut(a, b);
        }
    }
    run_for(driver, BLACKOUT_TIMEOUTS + rng.below(BLACKOUT_TIMEOUTS))?;
    heal(driver);
    let end = driver.cluster.now() + CALM_TIMEOUTS * driver.scenario.config.timing.link_timeout.0;
    while driver.cluster.now() < end && driver.step()? {
        let now = members(driver);
        if now != before {
            let what = format!("the network failed and healed: members were nodes {before:?}, now {now:?}");
            broken!(21, driver.cluster.now(), "{what}")?;
        }
    }
    driver.oracle.marks.hit(Mark::Blackout);
    Ok(())
}

/// The nodes are processes of as many hosts as there are acceptors, and each host cannot connect to the
/// next one. So no majority of coordinators is connected, and all processes reach a majority of the
/// acceptors. Then a member dies, and the others have to be active in a view without it. A host may have
/// been excluded before, if the leader was told of its broken link first, and is left out then.
pub(super) fn ring(driver: &mut Driver) -> Verdict {
    let acceptors = driver.acceptors();
    let before = members(driver);
    let dies = before.iter().rev().find(|n| **n >= driver.scenario.coordinators).copied();
    let all_live = acceptors.iter().all(|n| before.contains(n));
    let Some(dies) = dies.filter(|_| all_live && acceptors.len() > 2) else { return Ok(()) };
    let hosts = acceptors.len() as u32;
    let host = |node: u32| acceptors.iter().position(|n| *n == node).map_or(node % hosts, |at| at as u32);
    for (a, b) in before.iter().flat_map(|a| before.iter().map(move |b| (*a, *b))) {
        if (host(a) + 1) % hosts == host(b) {
            driver.refuse(a, b);
        }
    }
    run_for(driver, BROKEN_TIMEOUTS)?;
    let was_inside = driver.is_inside(dies);
    driver.kill(dies)?;
    let problem = |driver: &Driver| driver.problem_of(|node| driver.is_inside(node));
    let end = driver.cluster.now() + driver.scenario.patience;
    let mut checks = 0;
    loop {
        if !driver.step()? || driver.cluster.now() > end {
            let problem = problem(driver).unwrap_or_default();
            broken!(21, driver.cluster.now(), "no host can connect to the next one: {problem}")?;
        }
        checks += 1;
        if checks % POLL_INTERVAL == 0 && problem(driver).is_none() {
            break;
        }
    }
    if was_inside {
        driver.oracle.marks.hit(Mark::Ring);
    }
    driver.restart(dies)
}

/// The nodes are processes of three hosts, one for each acceptor. Nobody can connect to the others of the
/// first: its own coordinator, which leads, reaches no majority, and both others do. A member on the first
/// host dies, and a view without it is decided; all that read a majority are active in it. If all
/// multicasts are lost, the first host does not learn of the view, so the third one, which reads no other
/// that has it, cannot either.
pub(super) fn closed_hosts(driver: &mut Driver) -> Verdict {
    let acceptors = driver.acceptors();
    let before = members(driver);
    let all_live = acceptors.iter().all(|n| before.contains(n));
    let hosts = acceptors.len() as u32;
    let host = |node: u32| acceptors.iter().position(|n| *n == node).map_or(node % hosts, |at| at as u32);
    let dies = before.iter().rev().find(|n| **n >= driver.scenario.coordinators && host(**n) == 0).copied();
    let Some(dies) = dies.filter(|_| all_live && hosts == 3) else { return Ok(()) };
    for (a, b) in before.iter().flat_map(|a| before.iter().map(move |b| (*a, *b))) {
        if host(a) != host(b) && host(b) != 0 {
            driver.refuse(a, b);
        }
    }
    run_for(driver, BROKEN_TIMEOUTS)?;
    let was_inside = driver.is_inside(dies);
    driver.kill(dies)?;
    let settled = |driver: &Driver| {
        let newest = driver.oracle.newest().id;
        let is_told = |n: u32| host(n) == 1 || driver.scenario.rough.multicast_loss_permille < 1000;
        let reads = |n: &u32| {
            *n >= driver.scenario.coordinators && driver.is_inside(*n) && host(*n) != 0 && is_told(*n)
        };
        let acts = |n: u32| driver.cluster.machine(n).view().id == newest && driver.may_act(n);
        !driver.oracle.newest().members.iter().any(|m| m.address == driver.cluster.address(dies))
            && (0..driver.scenario.nodes()).filter(reads).all(acts)
    };
    let end = driver.cluster.now() + driver.scenario.patience;
    let mut checks = 0;
    loop {
        if !driver.step()? || driver.cluster.now() > end {
            let what = format!("nobody can connect to two hosts: node {dies} is dead and stays");
            broken!(21, driver.cluster.now(), "{what}")?;
        }
        checks += 1;
        if checks % POLL_INTERVAL == 0 && settled(driver) {
            break;
        }
    }
    if was_inside {
        driver.oracle.marks.hit(Mark::StoodIn);
    }
    driver.restart(dies)
}

/// The second coordinator alone is told of a suspicion that is wrong and not repeated, and leads later:
/// the suspected member stays.
pub(super) fn told_once(driver: &mut Driver) -> Verdict {
    let acceptors = driver.acceptors();
    let all_inside = acceptors.len() > 2 && acceptors.iter().all(|n| driver.is_inside(*n));
    let accused = members(driver).into_iter().rev().find(|n| *n >= driver.scenario.coordinators);
    let (Some(leader), Some(accused)) = (driver.leader().filter(|_| all_inside), accused) else {
        return Ok(());
    };
    let Some(second) = acceptors.iter().copied().filter(|n| *n > leader).min() else { return Ok(()) };
    let address = driver.cluster.address(accused);
    driver.accuse_once(accused, second);
    let end = driver.cluster.now() + UNREPEATED_PERIODS * driver.scenario.config.timing.notice_every.0;
    while driver.cluster.now() < end && driver.step()? {}
    let died = driver.cluster.address(leader);
    driver.kill(leader)?;
    let end = driver.cluster.now() + driver.scenario.patience;
    let names = |driver: &Driver, whom| driver.oracle.newest().members.iter().any(|m| m.address == whom);
    while names(driver, died) && driver.cluster.now() <= end && driver.step()? {}
    if !names(driver, address) {
        let what = format!("node {accused} was suspected once, and removed when node {leader} died");
        broken!(21, driver.cluster.now(), "{what}")?;
    }
    if !names(driver, died) {
        driver.oracle.marks.hit(Mark::ToldOnce);
    }
    driver.restart(leader)
}
