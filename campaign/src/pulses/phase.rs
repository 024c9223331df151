//! Row 24 in a healthy cluster without other faults: one lost path is named, within three periods,
//! and nothing follows from it; a host that is silent on all paths is suspected by all others.

use super::faults::pairs_of;
use super::plan::PulsePlan;
use crate::driver::Driver;
use crate::oracle::{Verdict, broken};
use obol_fabric::ViewId;
use obol_fabric_ip::pulse::{PATH_BACK_AFTER, PATH_BEHIND, PathState};
use obol_membership::Change;
use obol_rng::Rng;

/// Periods within which all paths have to deliver, beyond the time of a gateway that connects.
const PATHS_PERIODS: u64 = 4 * PATH_BACK_AFTER as u64;
/// Lease durations for which the cluster is watched after a path was lost.
const WATCHED_LEASES: u64 = 3;

/// Loses a path, then a host.
pub(crate) fn run(driver: &mut Driver) -> Verdict {
    let Some(plan) = driver.scenario.pulses else { return Ok(()) };
    let mut rng = Rng::new(driver.scenario.seed ^ 0x9015_e5fa_0000_0000);
    await_stragglers(driver)?;
    await_paths(driver, &plan)?;
    if plan.paths > 1 {
        lose_path(driver, &plan, &mut rng)?;
        await_paths(driver, &plan)?;
    }
    silence(driver, &plan, &mut rng)
}

/// All pairs of hosts: the one that sends first.
fn pairs(plan: &PulsePlan) -> Vec<(u32, u32)> {
    let hosts = plan.hosts;
    (0..hosts).flat_map(|a| (0..hosts).filter(move |b| *b != a).map(move |b| (a, b))).collect()
}

fn state(driver: &Driver, (from, to): (u32, u32), path: usize) -> PathState {
    driver.pulses.as_ref().map_or(PathState::Up, |pulses| pulses.state(to, from, path))
}

/// A period of the slowest clock.
const fn period_max(driver: &Driver, plan: &PulsePlan) -> u64 {
    let (period, drift_ppm) = (plan.timing.period.0, driver.scenario.config.timing.drift_ppm as u64);
    period + period * 2 * drift_ppm / 1_000_000 + 1
}

fn pass(driver: &mut Driver, until: u64) -> Verdict {
    while driver.cluster.now() < until && driver.step()? {}
    Ok(())
}

/// Waits until all pulses have arrived that are on their way. A fault may have delayed some by more
/// than a lost path takes to be named; it would seem to deliver meanwhile.
fn await_stragglers(driver: &mut Driver) -> Verdict {
    let last = driver.pulses.as_ref().map_or(0, |pulses| pulses.last_arrival());
    pass(driver, last)
}

/// Waits until all paths deliver.
fn await_paths(driver: &mut Driver, plan: &PulsePlan) -> Verdict {
    let end = driver.cluster.now() + PATHS_PERIODS * plan.timing.period.0 + 4 * plan.timing.timeout.0;
    let all: Vec<_> =
        pairs(plan).into_iter().flat_map(|pair| (0..plan.paths).map(move |p| (pair, p))).collect();
    loop {
        let down = all.iter().find(|(pair, path)| state(driver, *pair, *path) != PathState::Up);
        let Some(((from, to), path)) = down else { return Ok(()) };
        if driver.cluster.now() > end {
            return broken!(
                24,
                driver.cluster.now(),
                "path {path} from host {from} to host {to} is not up, though nothing has been lost for long"
            );
        }
        driver.step()?;
    }
}

/// One path is lost, between two hosts or all, in one direction or both.
fn lose_path(driver: &mut Driver, plan: &PulsePlan, rng: &mut Rng) -> Verdict {
    let path = rng.below(plan.paths as u64) as u16;
    let all = pairs(plan);
    let (from, to) = all[rng.below(all.len() as u64) as usize];
    let lost = match rng.below(4) {
        0 => vec![(from, to)],
        1 => vec![(from, to), (to, from)],
        2 => pairs_of(from, plan.hosts),
        _ => all.clone(),
    };
    let before = driver.oracle.newest().id;
    let silences = driver.oracle.pulses.as_ref().map(|pulsed| pulsed.silences);
    lost.iter().for_each(|(from, to)| driver.set_path(*from, *to, path, true));
    // The last pulse on the path may arrive after the next one on another path.
    let alarm = (PATH_BEHIND + 1) * period_max(driver, plan) + 2 * plan.way_max();
    let began = driver.cluster.now();
    pass(driver, began + alarm)?;
    let now = driver.cluster.now();
    for (pair, by) in all.iter().flat_map(|pair| (0..plan.paths).map(move |by| (*pair, by))) {
        let expected =
            if by == usize::from(path) && lost.contains(&pair) { PathState::Lost } else { PathState::Up };
        let found = state(driver, pair, by);
        if found != expected {
            let (from, to) = pair;
            broken!(24, now, "host {to} finds path {by} from host {from} {found:?}, it is {expected:?}")?;
        }
    }
    let watched = 2 * plan.timing.timeout.0 + WATCHED_LEASES * driver.scenario.config.timing.lease.0;
    pass(driver, began + alarm + watched)?;
    if driver.oracle.pulses.as_ref().map(|pulsed| pulsed.silences) != silences {
        broken!(24, driver.cluster.now(), "a host is suspected after one lost path")?;
    }
    let newest = driver.oracle.newest().id;
    for id in before.0 + 1..=newest.0 {
        let Some(decided) = driver.oracle.decisions.get(ViewId(id)) else { continue };
        if decided.view.changes.iter().any(|change| matches!(change, Change::Failed { .. })) {
            let changes = &decided.view.changes;
            broken!(24, driver.cluster.now(), "view {id} follows one lost path: {changes:?}")?;
        }
    }
    lost.iter().for_each(|(from, to)| driver.set_path(*from, *to, path, false));
    Ok(())
}

/// A host falls silent: it is stopped, or all paths are lost. A path may have been late before, so
/// that old pulses go on arriving.
fn silence(driver: &mut Driver, plan: &PulsePlan, rng: &mut Rng) -> Verdict {
    let host = rng.below(u64::from(plan.hosts)) as u32;
    let timeout = plan.timing.timeout.0;
    let others = || (0..plan.hosts).filter(|other| *other != host);
    if plan.paths > 1 && rng.coin() {
        let (path, delay) = (rng.below(plan.paths as u64) as u16, timeout + rng.below(3 * timeout));
        others().for_each(|other| driver.delay_path(host, other, path, delay));
        let now = driver.cluster.now();
        pass(driver, now + delay + plan.timing.period.0)?;
    }
    if rng.coin() {
        driver.pause_host(host);
    } else {
        for (from, to) in pairs_of(host, plan.hosts) {
            (0..plan.paths as u16).for_each(|path| driver.set_path(from, to, path, true));
        }
    }
    let now = driver.cluster.now();
    let most = timeout + timeout * 2 * u64::from(driver.scenario.config.timing.drift_ppm) / 1_000_000;
    pass(driver, now + most + 2 * plan.way_max() + plan.timing.period.0)?;
    for other in others() {
        if !driver.oracle.pulses.as_ref().is_some_and(|pulsed| pulsed.suspects(other, host)) {
            broken!(24, driver.cluster.now(), "host {other} does not suspect host {host}, which is silent")?;
        }
    }
    Ok(())
}
