//! Row 22: a program that crashes as soon as it is a member, and is restarted at once, or that leaves
//! and joins again, joins no more often than the limit for its name, and others can act nearly all the
//! time.

use super::driver::{Driver, PROGRAMS};
use super::marks::Mark;
use super::oracle::{Verdict, broken};
use obol_fabric::{Incarnation, SeatStatus};
use obol_membership::holds::leaves_per_failure;
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

/// How the program stops being a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It crashes, and is restarted.
    Crashes,
    /// It leaves gracefully, and joins again.
    Leaves,
}

impl End {
    /// Whether a change is such an end, and whose.
    fn of(self, change: &Change) -> Option<Incarnation> {
        match *change {
            // A member that was only suspected may live: its removal does not count as a crash.
            Change::Failed { accused, reason: Reason::Deadbeat | Reason::Replaced, .. } => {
                (self == Self::Crashes).then_some(accused)
            }
            Change::Left(who) => (self == Self::Leaves).then_some(who),
            _ => None,
        }
    }

    /// How many of these ends are free, and the time in which as many more become so.
    fn free(self, timing: &Timing) -> (u64, u64) {
        let burst = u64::from(timing.join_burst);
        match self {
            Self::Crashes => (burst, timing.join_window.0),
            Self::Leaves => (burst * leaves_per_failure(timing), timing.join_window.0),
        }
    }
}

/// How often members of a name may end within that time: until it is put on hold as often as is
/// `free`, in that window, for `unheld` long, and once after each hold.
pub(super) fn allowed(timing: &Timing, (free, window): (u64, u64), time: u64, unheld: u64) -> u64 {
    let (mut allowed, mut held, mut hold) = (free + 1 + unheld * free / window, 0, timing.join_hold.0);
    while held < time {
        held += hold;
        hold = (2 * hold).min(timing.join_hold_max.0);
        allowed += 1;
    }
    allowed
}

/// Holds that leaders have counted.
pub(super) fn holds_counted(driver: &Driver) -> u64 {
    (0..driver.scenario.coordinators).map(|n| driver.cluster.counter(n, Counter::JoinHolds)).sum()
}

/// Lets the program do its next step: it ends as soon as it is a member, and is back at once. `left` is
/// the member that has requested to leave.
fn turn(driver: &mut Driver, end: End, agent: u32, seat: u16, left: &mut Option<Incarnation>) -> Verdict {
    let Some(program) = driver.cluster.program(agent, seat) else { return Ok(()) };
    let address = program.address();
    match (program.status(), end) {
        _ if !program.is_alive() => {
            // A seat is free when its agent knows that its occupant is not a member any more.
            let known = driver.cluster.machine(agent).view();
            if !known.members.iter().any(|member| member.address == address) {
                driver.attach(agent, seat)?;
            }
        }
        (Some(SeatStatus::Member(_)), End::Crashes) => driver.kill_program(agent, seat)?,
        (Some(SeatStatus::Member(who)), End::Leaves) if *left != Some(who) => {
            *left = Some(who);
            driver.leave_program(agent, seat);
        }
        (Some(SeatStatus::Left), End::Leaves) if left.take().is_some() => {
            driver.join_again(agent, seat);
        }
        _ => {}
    }
    Ok(())
}

pub(super) fn run(driver: &mut Driver, end: End) -> Verdict {
    let timing = driver.scenario.config.timing;
    let unit = timing.lease.0;
    let is_agent = |n: &u32| driver.scenario.is_agent(*n) && driver.is_inside(*n) && driver.cluster.runs(*n);
    let free = |n: u32| (1..=PROGRAMS).find(|seat| !driver.programs(n).contains(seat));
    let place = (0..driver.scenario.nodes()).filter(is_agent).find_map(|n| Some((n, free(n)?)));
    let Some((agent, seat)) = place else { return Ok(()) };
    let holds = |n: &u32| *n >= driver.scenario.coordinators && !driver.scenario.is_cache(*n);
    let others: Vec<u32> =
        (0..driver.scenario.nodes()).filter(|n| holds(n) && driver.is_inside(*n)).collect();
    driver.log(format_args!("the program in seat {seat} of node {agent} {end:?} repeatedly"));
    let began = driver.cluster.now();
    let over = began + LEASES * unit;
    let (mut look, mut checks, mut active) = (began, 0, 0);
    let (mut newest, mut ends, mut left) = (Arc::clone(driver.oracle.newest()), 0, None);
    let (counted, mut first_hold) = (holds_counted(driver), None);
    driver.attach(agent, seat)?;
    let Some(name) = driver.cluster.program(agent, seat).map(|program| program.name()) else { return Ok(()) };
    while driver.cluster.now() < over && driver.step()? {
        let view = driver.oracle.newest();
        if view.id != newest.id {
            let is_its = |who| newest.member(who).is_some_and(|member| member.name == name);
            ends += view.changes.iter().filter_map(|change| end.of(change)).filter(|who| is_its(*who)).count()
                as u64;
            newest = Arc::clone(view);
            if first_hold.is_none() && holds_counted(driver) > counted {
                first_hold = Some(driver.cluster.now());
            }
        }
        turn(driver, end, agent, seat, &mut left)?;
        if look <= driver.cluster.now() {
            look += unit / CHECKS_PER_LEASE;
            checks += others.len() as u64;
            active += others.iter().filter(|n| driver.may_act(**n)).count() as u64;
        }
    }
    driver.kill_program(agent, seat)?;
    let unheld = first_hold.unwrap_or(over) - began;
    let allowed = allowed(&timing, end.free(&timing), LEASES * unit, unheld);
    let (time, share) = (driver.cluster.now(), active * 1_000 / checks.max(1));
    if ends > allowed {
        broken!(22, time, "members of one name ended {ends} times ({end:?}), {allowed} are allowed")?;
    }
    // With fences a leave costs a few round trips. More are allowed, and leases of the campaign last for
    // few round trips.
    let is_rare = end == End::Crashes || !timing.fencing;
    if is_rare && share < AVAILABLE_PERMILLE {
        let what =
            format!("others were active for {share} permille of the time during {ends} ends ({end:?})");
        broken!(22, time, "{what}")?;
    }
    if first_hold.is_some() {
        driver.oracle.marks.hit(match end {
            End::Crashes => Mark::CrashLoop,
            End::Leaves => Mark::LeaveLoop,
        });
    }
    Ok(())
}
