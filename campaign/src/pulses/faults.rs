//! Faults of hosts and of the paths between them. They are drawn independently of all others.

use crate::act::Act;
use crate::driver::Driver;
use crate::fault_schedule::FaultSchedule;

/// Rounds with a fault, per mille.
const SHARE_PERMILLE: u32 = 400;

impl FaultSchedule {
    /// Draws at most one fault for this round.
    pub(crate) fn hit_pulses(&mut self, driver: &mut Driver) {
        let Some(plan) = driver.scenario.pulses else { return };
        let mut rng = driver.pulse_rng.clone();
        if rng.permille(SHARE_PERMILLE) {
            let (timeout, paths) = (plan.timing.timeout.0, plan.paths as u16);
            let from = rng.below(u64::from(plan.hosts)) as u32;
            let to = (from + 1 + rng.below(u64::from(plan.hosts) - 1) as u32) % plan.hosts;
            let path = rng.below(u64::from(paths)) as u16;
            let time = timeout / 2 + rng.below(4 * timeout);
            match rng.below(8) {
                0 | 1 => {
                    let both = rng.coin();
                    self.cut_paths(driver, (0, time), &[(from, to)], path..path + 1);
                    if both {
                        self.cut_paths(driver, (0, time), &[(to, from)], path..path + 1);
                    }
                }
                2 => self.cut_paths(driver, (0, time), &[(from, to)], 0..paths),
                3 => {
                    let pairs = pairs_of(from, plan.hosts);
                    self.cut_paths(driver, (0, time), &pairs, 0..paths);
                    if rng.coin() {
                        self.cut_links(driver, from, time);
                    }
                }
                4 => {
                    let delay = timeout / 2 + rng.below(4 * timeout);
                    self.after(driver, 0, Act::DelayPath(from, to, path, delay));
                    self.after(driver, time, Act::DelayPath(from, to, path, 0));
                }
                5 => {
                    // The delayed pulses arrive when all is silent otherwise.
                    let delay = timeout + rng.below(3 * timeout);
                    self.after(driver, 0, Act::DelayPath(from, to, path, delay));
                    self.cut_paths(driver, (delay, delay + time), &[(from, to)], 0..paths);
                    self.after(driver, delay + time, Act::DelayPath(from, to, path, 0));
                }
                6 => {
                    self.after(driver, 0, Act::PauseHost(from));
                    self.after(driver, time, Act::ResumeHost(from));
                }
                _ => self.after(driver, 0, Act::RestartGateway(from)),
            }
        }
        driver.pulse_rng = rng;
    }

    /// Cuts some paths between pairs of hosts from one time to another.
    fn cut_paths(
        &mut self,
        driver: &Driver,
        (begin, end): (u64, u64),
        pairs: &[(u32, u32)],
        paths: std::ops::Range<u16>,
    ) {
        for &(from, to) in pairs {
            for path in paths.clone() {
                self.after(driver, begin, Act::CutPath(from, to, path));
                self.after(driver, end, Act::HealPath(from, to, path));
            }
        }
    }

    /// Cuts the links between the processes of a host and all others.
    fn cut_links(&mut self, driver: &Driver, host: u32, time: u64) {
        let Some(plan) = driver.scenario.pulses else { return };
        let nodes = 0..driver.scenario.nodes();
        for a in nodes.clone().filter(|node| plan.host_of(*node) == host) {
            for b in nodes.clone().filter(|node| plan.host_of(*node) != host) {
                for (from, to) in [(a, b), (b, a)] {
                    self.after(driver, 0, Act::Cut(from, to));
                    self.after(driver, time, Act::Heal(from, to));
                }
            }
        }
    }
}

/// A host and each other one, in both directions.
pub(super) fn pairs_of(host: u32, hosts: u32) -> Vec<(u32, u32)> {
    (0..hosts).filter(|other| *other != host).flat_map(|other| [(host, other), (other, host)]).collect()
}
