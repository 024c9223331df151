//! Row 22: a process that is suspected, comes back, is suspected again and so on, is kept out longer each
//! time. The first suspicions are free, and however often it happens, the process is a member again in
//! the end: within the longest hold and the time that a recovery may take.

use super::crash_loop::{allowed, holds_counted};
use super::driver::Driver;
use super::marks::Mark;
use super::oracle::{Verdict, broken};
use obol_rng::Rng;

/// How often it is suspected: a hold that grew without a bound would by then exceed any patience.
const FLAPS: u64 = 12;
/// Suspicions of one name that are free, and drain one by one in as many of the longest holds.
const FREE: u64 = 3;

/// A process that may be missing.
fn draw(driver: &Driver) -> Option<u32> {
    let mut rng = Rng::new(driver.scenario.seed ^ 0xf1a9_0000_0000_0000);
    let acceptors = driver.acceptors();
    let live = acceptors.iter().filter(|n| driver.is_inside(**n)).count();
    // A coordinator without which no majority is left is not kept out.
    let spare = |n: u32| n >= driver.scenario.coordinators || live > acceptors.len() / 2 + 1;
    let may: Vec<u32> = (0..driver.scenario.nodes())
        .filter(|n| driver.is_inside(*n) && driver.cluster.runs(*n) && spare(*n))
        .collect();
    (!may.is_empty()).then(|| may[rng.below(may.len() as u64) as usize])
}

/// Runs until the process is a member, or is not; false if that takes longer than a recovery may.
fn until_inside(driver: &mut Driver, node: u32, inside: bool) -> Result<bool, super::oracle::Violation> {
    let end = driver.cluster.now() + driver.scenario.patience;
    while driver.is_inside(node) != inside {
        if !driver.step()? || driver.cluster.now() > end {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(super) fn run(driver: &mut Driver) -> Verdict {
    let timing = driver.scenario.config.timing;
    let window = FREE * timing.join_hold_max.0;
    // What earlier faults did is forgotten.
    let quiet = driver.cluster.now() + window + timing.join_hold_max.0 + timing.lease.0;
    while driver.cluster.now() < quiet && driver.step()? {}
    let Some(node) = draw(driver) else { return Ok(()) };
    driver.log(format_args!("node {node} is suspected repeatedly"));
    let (began, counted) = (driver.cluster.now(), holds_counted(driver));
    let mut first_hold = None;
    for flap in 1..=FLAPS {
        driver.freeze(node);
        let is_out = until_inside(driver, node, false)?;
        driver.thaw(node);
        let time = driver.cluster.now();
        if !is_out {
            broken!(22, time, "node {node} is frozen and stays a member")?;
        }
        if first_hold.is_none() && holds_counted(driver) > counted {
            if flap <= FREE {
                broken!(22, time, "suspicion {flap} of node {node} put its name on hold")?;
            }
            first_hold = Some(time);
        }
        let unheld = first_hold.unwrap_or(time) - began;
        let allowed = allowed(&timing, (FREE, window), time - began, unheld);
        if flap > allowed {
            broken!(22, time, "node {node} was suspected {flap} times, {allowed} are allowed")?;
        }
        if !until_inside(driver, node, true)? {
            broken!(
                22,
                driver.cluster.now(),
                "node {node} runs, and is not admitted after {flap} suspicions"
            )?;
        }
    }
    if first_hold.is_some() {
        driver.oracle.marks.hit(Mark::Flapped);
    }
    Ok(())
}
