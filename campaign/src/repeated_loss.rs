//! Row 23 if coordinators fail for good, one at a time: each is replaced by a spare automatically,
//! as long as there are spares. Otherwise the last of these failures would end every lease.

use super::driver::Driver;
use super::marks::Mark;
use super::oracle::{Verdict, Violation, broken};
use obol_membership::Coordinator;
use obol_rng::Rng;

/// Steps between two checks.
const POLL_INTERVAL: u32 = 64;

/// Lets acceptors fail until no spare is left and one more has failed. The cluster is healthy at
/// the beginning; returns the longest wait, in permille of the allowed time.
pub(super) fn lose_coordinators(driver: &mut Driver) -> Result<u64, Violation> {
    let mut rng = Rng::new(driver.scenario.seed ^ 0x50cc_e551_0400_0000);
    restart_departed(driver)?;
    assemble(driver)?;
    // A leave request from the last round of faults may have taken effect only now.
    restart_departed(driver)?;
    let mut gone: Vec<u32> = Vec::new();
    let mut longest = 0;
    // An operator may have left more acceptors than there were at first.
    let spares = driver.scenario.coordinators as usize - driver.acceptors().len();
    for left in (0..=spares).rev() {
        let all = driver.acceptors();
        let Some(&victim) = all.get(rng.below(all.len() as u64) as usize) else { break };
        if rng.coin() {
            driver.freeze(victim);
        } else {
            driver.kill(victim)?;
        }
        gone.push(victim);
        longest = longest.max(settle(driver, &gone, (left > 0).then_some(victim))?);
    }
    // The memory of a frozen one may have helped.
    for node in gone.clone() {
        driver.kill(node)?;
    }
    longest = longest.max(settle(driver, &gone, None)?);
    if spares > 0 {
        driver.oracle.marks.hit(Mark::RepeatedLoss);
    }
    Ok(longest)
}

/// Restarts those that left on request after the faults had stopped.
fn restart_departed(driver: &mut Driver) -> Verdict {
    for node in 0..driver.scenario.coordinators {
        if driver.cluster.machine(node).coordinator().is_some_and(Coordinator::has_left) {
            driver.kill(node)?;
            driver.restart(node)?;
        }
    }
    settle(driver, &[], None).map(|_| ())
}

/// An operator adds acceptors up to this number, because fewer tolerate no failure. Then the last
/// request expires.
const LEAST: usize = 3;
/// More than the multiple of `Timing::join_every` for which coordinators follow a request.
const REQUEST_JOINS: u64 = 5;

fn assemble(driver: &mut Driver) -> Verdict {
    let timing = driver.scenario.config.timing;
    let (began, patience) = (driver.cluster.now(), driver.scenario.patience);
    while driver.acceptors().len() < LEAST {
        let present = driver.acceptors();
        if let Some(absent) = (0..driver.scenario.coordinators).find(|n| !present.contains(n)) {
            driver.set_acceptor(absent, true);
        }
        let next = driver.cluster.now() + timing.join_every.0;
        while driver.cluster.now() < next && driver.step()? {}
        if driver.cluster.now() > began + patience {
            timed_out(driver, &[], None)?;
        }
    }
    let end = driver.cluster.now() + REQUEST_JOINS * timing.join_every.0;
    while driver.cluster.now() < end && driver.step()? {}
    driver.oracle.decisions.expire_requests();
    Ok(())
}

/// Waits until all remaining processes are active, and until the missing one is not an acceptor any
/// more.
fn settle(driver: &mut Driver, gone: &[u32], replaced: Option<u32>) -> Result<u64, Violation> {
    let began = driver.cluster.now();
    let patience = driver.scenario.patience;
    let mut checks = 0;
    loop {
        if !driver.step()? || driver.cluster.now() > began + patience {
            timed_out(driver, gone, replaced)?;
        }
        driver.confirm_all();
        checks += 1;
        let still = |victim: u32| driver.acceptors().contains(&victim);
        if checks % POLL_INTERVAL == 0 && !replaced.is_some_and(still) && problem(driver, gone).is_none() {
            break;
        }
    }
    let acceptors = driver.acceptors();
    driver.log(format_args!(
        "nodes {gone:?} are gone for good, nodes {acceptors:?} are acceptors, and all are active"
    ));
    Ok((driver.cluster.now() - began) * 1000 / patience)
}

fn problem(driver: &Driver, gone: &[u32]) -> Option<String> {
    driver.problem_of(|node| !gone.contains(&node))
}

fn timed_out(driver: &Driver, gone: &[u32], replaced: Option<u32>) -> Verdict {
    let acceptors = driver.acceptors();
    let problem = problem(driver, gone)
        .or_else(|| replaced.map(|node| format!("node {node} has not been replaced")))
        .unwrap_or_default();
    broken!(
        23,
        driver.cluster.now(),
        "nodes {gone:?} failed for good, one at a time, nodes {acceptors:?} are acceptors: {problem}"
    )
}
