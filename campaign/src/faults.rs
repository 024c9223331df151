//! Sources of faults: drawn while the cluster runs, or scripted.

use super::driver::Driver;
use super::oracle::Verdict;

/// A source of faults.
pub(super) trait Faults {
    /// True time of the next fault; `u64::MAX` if there is none.
    fn next(&self) -> u64;

    /// Injects what is due now.
    fn due(&mut self, driver: &mut Driver) -> Verdict;

    /// Injects what belongs right after the last step.
    fn after_step(&mut self, driver: &mut Driver) -> Verdict;
}

/// Runs the world up to a true time, with the faults that become due.
pub(super) fn until(driver: &mut Driver, faults: &mut impl Faults, end: u64) -> Verdict {
    loop {
        let next = driver.next_time().unwrap_or(u64::MAX);
        let (next_fault, work) = (faults.next(), driver.next_work());
        let fault = next_fault.min(work);
        if next.min(fault) > end {
            driver.cluster.run_until(end);
            return Ok(());
        }
        if fault < next {
            driver.cluster.run_until(fault);
            if work == fault {
                driver.finish_work()?;
            } else {
                faults.due(driver)?;
            }
            continue;
        }
        driver.step()?;
        faults.after_step(driver)?;
    }
}
