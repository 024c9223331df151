//! Row 22: a program that crashes as soon as it is a member, and is restarted at once, joins no
//! more often than the limit for its name, and others can act nearly all the time.

use super::driver::{Driver, PROGRAMS};
use super::marks::Mark;
use super::oracle::{Verdict, broken};
use obol_fabric::SeatStatus;
use obol_membership::metrics::Counter;
use obol_membership::{Change, Reason, Timing};
use std::sync::Arc;

/// Duration in leases: much longer than it takes to use up the allowed failures.
const LEASES: u64 = 160;
/// How often per lease the others are checked.
const CHECKS_PER_LEASE: u64 = 8;
/// Others must be able to act for this share of the time. Without fences each failure costs them a
/// lease, one of a cache, and the detection time; some 15 are allowed in this time.
const AVAILABLE_PERMILLE: u64 = 600;

/// How often a name may fail within that time: until it is put on hold as the window allows, `free`
/// long, and once after each hold.
fn failures_allowed(timing: &Timing, time: u64, free: u64) -> u64 {
    let burst = u64::from(timing.join_burst);
    let (mut allowed, mut held, mut hold) =
        (burst + 1 + free * burst / timing.join_window.0, 0, timing.join_hold.0);
    while held < time {
        held += hold;
        hold = (2 * hold).min(timing.join_hold_max.0);
        allowed += 1;
    }
    allowed
}

/// Holds that leaders have counted.
fn holds_counted(driver: &Driver) -> u64 {
    (0..driver.scenario.coordinators).map(|n| driver.world.counter(n, Counter::JoinHolds)).sum()
}

pub(super) fn run(driver: &mut Driver) -> Verdict {
    let timing = driver.scenario.config.timing;
    let unit = timing.lease.0;
    let is_agent = |n: &u32| driver.scenario.is_agent(*n) && driver.is_inside(*n) && driver.runs(*n);
    let free = |n: u32| (1..=PROGRAMS).find(|seat| !driver.programs(n).contains(seat));
    let place = (0..driver.scenario.nodes()).filter(is_agent).find_map(|n| Some((n, free(n)?)));
    let Some((agent, seat)) = place else { return Ok(()) };
    let holds = |n: &u32| *n >= driver.scenario.coordinators && !driver.scenario.is_cache(*n);
    let others: Vec<u32> =
        (0..driver.scenario.nodes()).filter(|n| holds(n) && driver.is_inside(*n)).collect();
    driver.log(format_args!("the program in seat {seat} of node {agent} crashes repeatedly"));
    let began = driver.world.now();
    let end = began + LEASES * unit;
    let (mut look, mut checks, mut active) = (began, 0, 0);
    let (mut newest, mut failures) = (Arc::clone(driver.oracle.newest()), 0);
    let (counted, mut first_hold) = (holds_counted(driver), None);
    driver.attach(agent, seat)?;
    let Some(name) = driver.world.program(agent, seat).map(|program| program.name()) else { return Ok(()) };
    while driver.world.now() < end && driver.step()? {
        let view = driver.oracle.newest();
        if view.id != newest.id {
            // A member that was only suspected may live: that is no crash.
            let is_its = |who| newest.member(who).is_some_and(|member| member.name == name);
            let crashed = |change: &&Change| matches!(change, Change::Failed { accused, reason: Reason::Deadbeat | Reason::Replaced, .. } if is_its(*accused));
            failures += view.changes.iter().filter(crashed).count() as u64;
            newest = Arc::clone(view);
            if first_hold.is_none() && holds_counted(driver) > counted {
                first_hold = Some(driver.world.now());
            }
        }
        let Some(program) = driver.world.program(agent, seat) else { break };
        let (address, status) = (program.address(), program.status());
        if !program.is_alive() {
            // A seat is free when its agent knows that its occupant is not a member any more.
            let known = driver.world.machine(agent).view();
            if !known.members.iter().any(|member| member.address == address) {
                driver.attach(agent, seat)?;
            }
        } else if matches!(status, Some(SeatStatus::Member(_))) {
            driver.kill_program(agent, seat)?;
        }
        if look <= driver.world.now() {
            look += unit / CHECKS_PER_LEASE;
            checks += others.len() as u64;
            active += others.iter().filter(|n| driver.may_act(**n)).count() as u64;
        }
    }
    driver.kill_program(agent, seat)?;
    let free = first_hold.unwrap_or(end) - began;
    let allowed = failures_allowed(&timing, LEASES * unit, free);
    let (time, share) = (driver.world.now(), active * 1_000 / checks.max(1));
    if failures > allowed {
        broken!(22, time, "members of one name failed {failures} times, {allowed} are allowed")?;
    }
    if share < AVAILABLE_PERMILLE {
        let what = format!("others were active for {share} permille of the time during {failures} failures");
        broken!(22, time, "{what}")?;
    }
    if first_hold.is_some() {
        driver.oracle.marks.hit(Mark::CrashLoop);
    }
    Ok(())
}
