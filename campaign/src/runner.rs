//! Runs one seed: a safety phase with faults, then a liveness phase without.

use super::act::Act;
use super::crash_loop::{self, End};
use super::divided;
use super::driver::Driver;
use super::fault_schedule::{FaultSchedule, lease};
use super::faults::until;
use super::flap;
use super::marks::{Mark, Marks};
use super::oracle::{Cue, Verdict, Violation};
use super::pulses::{self, PulsePlan};
use super::repeated_loss::lose_coordinators;
use super::scenario::{Scenario, Trial};
use super::script::{Script, ScriptReplay};
use super::split;
use obol_fabric::Nanos;
use obol_membership::metrics::Counter;
use obol_membership::{ActiveMutant, Coordinator};

/// Steps between two health checks.
const POLL_INTERVAL: u32 = 64;
/// How long a canary, or a step of the sweep, continues after its fault, in leases.
const CANARY_LEASES: u64 = 60;

/// The result of a seed.
#[derive(Clone, Debug)]
pub struct Run {
    pub seed: u64,
    /// Its kind.
    pub trial: Trial,
    /// Overlaps that do not count: see [`Trial::Sweep`].
    pub overlaps: u64,
    /// The violation, if any.
    pub violation: Option<Violation>,
    /// The acts that led to it.
    pub script: Option<Box<Script>>,
    /// Views that removed a failed member.
    pub failovers: u64,
    /// Views decided.
    pub views: u64,
    /// Simulated time in nanoseconds.
    pub time: u64,
    /// Recovery time, in permille of the allowed time.
    pub recovery_permille: u64,
    /// Paths taken.
    pub marks: Marks,
    /// Hash of all events.
    pub hash: u64,
    /// The event log, if requested.
    pub log: Vec<String>,
}

/// Runs a seed. `log` requests an event log.
#[must_use]
pub fn run(seed: u64, plant: ActiveMutant, log: bool) -> Run {
    play(Scenario::draw(seed, plant), None, log)
}

/// Replays a script instead of what its seed would draw. `log` requests an event log.
#[must_use]
pub fn replay(script: &Script, plant: ActiveMutant, log: bool) -> Run {
    let mut scenario = Scenario::draw(script.seed, plant);
    if script.calm {
        scenario.rough = scenario.calm;
        scenario.pulses = scenario.pulses.map(|plan| PulsePlan { loss_permille: 0, ..plan });
    }
    play(scenario, Some(script), log)
}

fn play(scenario: Scenario, script: Option<&Script>, log: bool) -> Run {
    let (seed, trial) = (scenario.seed, scenario.trial);
    let absent = script.map_or(&[][..], |s| &s.absent);
    let mut driver = Driver::new(scenario, absent, log);
    if log {
        let s = driver.scenario.clone();
        driver.log(format_args!(
            "{} coordinators, {} agents, {} embedded apps; {:?}; {:?}",
            s.coordinators, s.agents, s.embedded, s.config.timing, s.rough
        ));
    }
    let mut recovery = 0;
    let mut survivors = script.map(|s| s.survivors.clone()).unwrap_or_default();
    let torn = match script {
        Some(script) => until(&mut driver, &mut ScriptReplay::new(&script.acts), script.faults_end),
        None if trial == Trial::Faults => inject_faults(&mut driver),
        None => canary(&mut driver),
    };
    let faults_end = driver.cluster.now();
    let verdict = match torn {
        Ok(()) if trial.clocks_keep() => without_faults(&mut driver, &mut survivors, &mut recovery),
        torn => torn,
    };
    driver.oracle.finish(&driver.cluster);
    if let Err(violation) = &verdict {
        let text = format!("VIOLATION {violation}");
        driver.log(format_args!("{text}"));
    }
    let script = verdict.as_ref().err().map(|violation| {
        Box::new(Script {
            why: violation.what.clone(),
            seed,
            cluster: Some(Scenario::draw(seed, driver.scenario.config.mutant).fingerprint()),
            row: Some(violation.row),
            mutant: script.and_then(|s| s.mutant.clone()),
            calm: script.is_some_and(|s| s.calm),
            absent: absent.to_vec(),
            faults_end,
            survivors,
            acts: std::mem::take(&mut driver.record),
        })
    });
    Run {
        seed,
        trial,
        overlaps: driver.oracle.overlaps,
        violation: verdict.err(),
        script,
        failovers: driver.oracle.failovers(),
        views: driver.oracle.decisions.count(),
        time: driver.cluster.now(),
        recovery_permille: recovery,
        marks: driver.oracle.marks,
        hash: driver.hash(),
        log: driver.log.unwrap_or_default(),
    }
}

/// The liveness phase, and what follows in a healthy cluster. `recovery` is the longest recovery, in
/// permille of the allowed time.
fn without_faults(driver: &mut Driver, survivors: &mut Vec<u32>, recovery: &mut u64) -> Verdict {
    *recovery = heal(driver, survivors)?;
    for (is_drawn, end) in
        [(driver.scenario.crash_loop, End::Crashes), (driver.scenario.leave_loop, End::Leaves)]
    {
        if is_drawn {
            crash_loop::run(driver, end)?;
            *recovery = heal(driver, survivors)?.max(*recovery);
        }
    }
    if driver.scenario.flap {
        flap::run(driver)?;
        *recovery = heal(driver, survivors)?.max(*recovery);
    }
    if driver.scenario.split {
        // Earlier faults may still lead to removals, which do not belong to what follows.
        driver.expire_reports()?;
        *recovery = heal(driver, survivors)?.max(*recovery);
        if split::split(driver)? {
            *recovery = heal(driver, survivors)?.max(*recovery);
        }
    }
    for (is_drawn, phase) in [
        (driver.scenario.blackout, divided::blackout as fn(&mut Driver) -> Verdict),
        (driver.scenario.ring, divided::ring),
        (driver.scenario.closed_hosts, divided::closed_hosts),
        (driver.scenario.told_once, divided::told_once),
    ] {
        if is_drawn {
            // As above.
            driver.expire_reports()?;
            *recovery = heal(driver, survivors)?.max(*recovery);
            phase(driver)?;
            *recovery = heal(driver, survivors)?.max(*recovery);
        }
    }
    if driver.scenario.pulses.is_some() {
        // As above.
        driver.expire_reports()?;
        *recovery = heal(driver, survivors)?.max(*recovery);
        pulses::run_phase(driver)?;
        *recovery = heal(driver, survivors)?.max(*recovery);
    }
    if driver.scenario.config.timing.replace {
        *recovery = lose_coordinators(driver)?.max(*recovery);
    }
    Ok(())
}

/// The safety phase.
fn inject_faults(driver: &mut Driver) -> Verdict {
    let mut schedule = FaultSchedule::default();
    let unit = lease(driver);
    let warm = driver.rng.below(8 * unit);
    until(driver, &mut schedule, warm)?;
    if driver.scenario.outvoted {
        let end = driver.cluster.now() + schedule.outvote_frozen(driver);
        until(driver, &mut schedule, end)?;
        driver.oracle.merge(&driver.cluster)?;
    }
    if driver.scenario.outpaced {
        let end = driver.cluster.now() + schedule.wrap_ring_under_frozen(driver);
        until(driver, &mut schedule, end)?;
        driver.oracle.merge(&driver.cluster)?;
    }
    for round in 1..=driver.scenario.rounds {
        schedule.round(driver);
        let gap = match driver.rng.below(10) {
            0..=2 => driver.rng.below(unit / 4),
            3..=7 => unit / 2 + driver.rng.below(2 * unit),
            _ => 2 * unit + driver.rng.below(3 * unit),
        };
        let end = driver.cluster.now() + gap;
        until(driver, &mut schedule, end)?;
        driver.watch(round)?;
        driver.oracle.merge(&driver.cluster)?;
        mark(driver);
    }
    let end = driver.cluster.now() + schedule.targeted(driver);
    until(driver, &mut schedule, end)?;
    let alone = schedule.one_cache(driver);
    if alone > 0 {
        let end = driver.cluster.now() + alone;
        until(driver, &mut schedule, end)?;
        let end = driver.cluster.now() + schedule.lose_last_cache(driver);
        until(driver, &mut schedule, end)?;
    }
    driver.oracle.merge(&driver.cluster)?;
    schedule.stop();
    Ok(())
}

/// Marks that only the driver can determine.
fn mark(driver: &mut Driver) {
    let acceptors = driver.acceptors();
    if acceptors.iter().filter(|n| driver.cluster.is_dead(**n)).count() > acceptors.len() / 2 {
        driver.oracle.marks.hit(Mark::MajorityLost);
    }
    for node in driver.scenario.coordinators..driver.scenario.nodes() {
        let back = driver.cluster.runs(node)
            && driver.frozen_once[node as usize]
            && driver.cluster.machine(node).member().is_some_and(|m| {
                let view = driver.oracle.newest();
                m.incarnation().is_some_and(|who| {
                    view.departed.iter().any(|d| d.incarnation < who && d.token != 0)
                        && driver.cluster.counter(node, Counter::Exclusions) > 0
                })
            });
        if back {
            driver.oracle.marks.hit(Mark::RejoinAfterFreeze);
        }
    }
}

/// Draws the surviving coordinators: a majority, or more. All survive if there are spares, because
/// a pending change of acceptors may need any of them, or if an acceptor's numbers are used up,
/// because it decides nothing.
fn draw_survivors(driver: &mut Driver) -> Vec<u32> {
    let all = driver.scenario.coordinators;
    if driver.scenario.spares > 0 || driver.scenario.exhausted.is_some() {
        return (0..all).collect();
    }
    let majority = all / 2 + 1;
    let keep = majority + driver.rng.below(u64::from(all - majority + 1)) as u32;
    let first = driver.rng.below(u64::from(all)) as u32;
    (0..keep).map(|n| (first + n) % all).collect()
}

fn mark_healed(driver: &mut Driver, multicast_lost: bool, survivors: u32) {
    if multicast_lost {
        driver.oracle.marks.hit(Mark::NoMulticast);
    }
    if driver.scenario.far {
        driver.oracle.marks.hit(Mark::FarNetwork);
    }
    if driver.scenario.slow && driver.oracle.newest().lease > Nanos(lease(driver)) {
        driver.oracle.marks.hit(Mark::SlowNetwork);
    }
    if survivors == driver.scenario.coordinators / 2 + 1 {
        driver.oracle.marks.hit(Mark::BareMajority);
    }
    if !driver.acceptors().into_iter().eq(0..driver.scenario.deciders()) {
        driver.oracle.marks.hit(Mark::AcceptorsChanged);
    }
}

/// The liveness phase: row 21. Returns the recovery time, in permille of the allowed time.
/// `survivors` are the surviving coordinators; they are drawn if empty.
fn heal(driver: &mut Driver, survivors: &mut Vec<u32>) -> Result<u64, Violation> {
    driver.heal_pulses()?;
    let nodes = driver.scenario.nodes();
    for a in 0..nodes {
        for b in 0..nodes {
            driver.heal(a, b);
        }
        driver.open(a);
        driver.thaw(a);
        for seat in driver.programs(a) {
            driver.thaw_program(a, seat);
            driver.cluster.unhang_program(a, seat);
        }
    }
    driver.finish_work()?;
    let mut calm = driver.scenario.calm;
    let multicast_lost = driver.scenario.rough.multicast_loss_permille == 1000;
    if multicast_lost {
        // Row 11.
        calm.multicast_loss_permille = 1000;
    }
    driver.set_network(calm);
    let all = driver.scenario.coordinators;
    if survivors.is_empty() {
        *survivors = draw_survivors(driver);
    }
    let first = survivors[0];
    for node in (0..all).map(|n| (first + n) % all) {
        let stays = survivors.contains(&node);
        if !stays || driver.cluster.machine(node).coordinator().is_some_and(Coordinator::has_left) {
            driver.kill(node)?;
        }
        if stays {
            driver.restart(node)?;
        }
    }
    let usual = lease(driver);
    let began = driver.cluster.now();
    let end = began + driver.scenario.patience;
    let mut checks = 0;
    let timing = driver.scenario.config.timing;
    // Adaptive leases get time to shrink before an operator intervenes.
    let adapts =
        driver.oracle.newest().lease > timing.lease && driver.oracle.newest().lease <= timing.lease_max;
    let mut retry_at = if adapts { began + 2 * timing.lease_calm.0 } else { 0 };
    loop {
        let lease = driver.oracle.newest().lease;
        let fits = lease == Nanos(usual) || driver.scenario.slow && lease > Nanos(usual);
        if !fits && retry_at <= driver.cluster.now() {
            // Members renew at a third of the usual lease: a shorter one would lapse repeatedly.
            driver.set_lease(usual, (1 << all) - 1);
            retry_at = driver.cluster.now() + 2 * usual;
        }
        if !driver.step()? || driver.cluster.now() > end {
            driver.unhealthy(began)?;
        }
        driver.confirm_all();
        checks += 1;
        if checks % POLL_INTERVAL == 0 && fits && driver.problem().is_none() {
            break;
        }
    }
    mark_healed(driver, multicast_lost, survivors.len() as u32);
    driver.watched_all()?;
    driver.oracle.timelines(&driver.cluster)?;
    let newest = driver.oracle.newest().id;
    driver.log(format_args!("all that live are active in view {newest}"));
    Ok((driver.cluster.now() - began) * 1000 / driver.scenario.patience)
}

/// A canary, or a step of the sweep: a slow holder is cut off right after a renewal and another one
/// dies. Beyond the bound, waits on fast clocks end before its lease does, which the oracle must
/// detect.
fn canary(driver: &mut Driver) -> Verdict {
    let mut schedule = FaultSchedule::default();
    let unit = lease(driver);
    until(driver, &mut schedule, 12 * unit)?;
    let hidden = 3;
    // Without a majority it can neither renew nor read the next view, and it does not receive what the
    // leader announces: its lease would go over to that view. It still answers its neighbours, so it
    // is not removed before the lease ends.
    let (leader, majority) = (0, driver.scenario.coordinators / 2 + 1);
    let mut acts: Vec<(u64, Act)> = (0..majority).map(|peer| (0, Act::Cut(hidden, peer))).collect();
    acts.push((0, Act::Cut(leader, hidden)));
    acts.push((0, Act::Kill(5)));
    schedule.on_cue(Cue::Renewed(hidden), u64::MAX, acts);
    let end = driver.cluster.now() + CANARY_LEASES * unit;
    until(driver, &mut schedule, end)
}
