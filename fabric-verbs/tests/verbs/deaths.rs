//! The module deadbeat reports deaths to other hosts.

use crate::cluster::Plan;
use crate::links::{TWO, Two};
use crate::support::until;
use obol_checks::skipped;
use obol_deaths::deadbeat::Deadbeat;
use obol_fabric::{Evidence, Fabric};

/// The module's counters; root can read them.
const COUNTERS: &str = "/sys/kernel/debug/deadbeat/counters";
/// Each process is registered for its own host and for the others.
const REGISTRATIONS: u64 = 2;

fn counter(name: &str) -> u64 {
    let text = std::fs::read_to_string(COUNTERS).expect("root reads the module's counters");
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.and_then(|value| value.parse().ok()).expect("the module counts it")
}

#[test]
fn the_kernel_of_another_host_proves_a_death_without_survivors_there() {
    if let Err(error) = Deadbeat::open() {
        assert_ne!(std::env::var("OBOL_DEADBEAT").as_deref(), Ok("require"), "{error}");
        skipped("module-here", error);
        return;
    }
    let (Some(plain), Some((authenticated, _))) = (Plan::new(), Plan::with_keys()) else { return };
    for plan in [plain, authenticated] {
        let before = counter("registered");
        let mut two = Two::of(plan);
        two.me.watch(TWO);
        until(&mut two.me, &mut two.probe, |_| counter("registered") >= before + 2 * REGISTRATIONS);
        drop(two.peer.take());
        // There is no successor, so a broken link would remain a suspicion.
        until(&mut two.me, &mut two.probe, |probe| probe.deaths.len() == 2);
        assert_eq!(two.probe.deaths, [(TWO, Evidence::Suspicion), (TWO, Evidence::Proof)]);
        assert_eq!(counter("send_failed"), 0);
    }
}
