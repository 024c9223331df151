//! Row 21 where no majority of the coordinators is connected: nobody is removed for links that are
//! judged by what was true before the network healed.

use super::driver::Driver;
use super::marks::Mark;
use super::oracle::{Verdict, broken};
use obol_fabric::sim::Rng;

/// For how long the network fails, in link timeouts: long enough for every link to be judged.
const BLACKOUT_TIMEOUTS: u64 = 3;
/// How long the members have to stay the same afterwards, in link timeouts.
const CALM_TIMEOUTS: u64 = 8;

/// The nodes that live and are members.
fn members(driver: &Driver) -> Vec<u32> {
    (0..driver.scenario.nodes()).filter(|n| driver.is_inside(*n)).collect()
}

fn run_for(driver: &mut Driver, timeouts: u64) -> Verdict {
    let end = driver.world.now() + timeouts * driver.scenario.config.timing.link_timeout.0;
    while driver.world.now() < end && driver.step()? {}
    Ok(())
}

fn heal(driver: &mut Driver) {
    let nodes = driver.scenario.nodes();
    (0..nodes).flat_map(|a| (0..nodes).map(move |b| (a, b))).for_each(|(a, b)| driver.heal(a, b));
}

/// All links are cut, and heal. Nothing can be decided meanwhile, so all members stay.
pub(super) fn blackout(driver: &mut Driver) -> Verdict {
    let mut rng = Rng::new(driver.scenario.seed ^ 0xb1ac_0000_0000_0000);
    let before = members(driver);
    for (a, b) in before.iter().flat_map(|a| before.iter().map(move |b| (*a, *b))) {
        if a != b {
            driver.cut(a, b);
        }
    }
    run_for(driver, BLACKOUT_TIMEOUTS + rng.below(BLACKOUT_TIMEOUTS))?;
    heal(driver);
    let end = driver.world.now() + CALM_TIMEOUTS * driver.scenario.config.timing.link_timeout.0;
    while driver.world.now() < end && driver.step()? {
        let now = members(driver);
        if now != before {
            let what = format!("the network failed and healed: members were nodes {before:?}, now {now:?}");
            broken!(21, driver.world.now(), "{what}")?;
        }
    }
    driver.oracle.marks.hit(Mark::Blackout);
    Ok(())
}
