//! The campaign itself: it is repeatable, finds nothing in the shipped code, and can fail.

use obol_campaign::{CANARY_EVERY, Options, SWEEP_EVERY, SWEEP_PERMILLE, Trial, campaign, run};
use obol_membership::ActiveMutant;

/// Debug builds are slow; the command runs many more.
const SEEDS: u64 = 40;

#[test]
fn the_same_seed_gives_the_same_run() {
    // The hosts of the last one exchange pulses.
    for seed in [3, 8, 15] {
        let (once, again) = (run(seed, ActiveMutant::NONE, false), run(seed, ActiveMutant::NONE, true));
        assert_eq!((once.hash, once.time, once.views), (again.hash, again.time, again.views));
    }
    assert_ne!(run(3, ActiveMutant::NONE, false).hash, run(4, ActiveMutant::NONE, false).hash);
}

#[test]
fn a_small_campaign_finds_nothing() {
    let report =
        campaign(&Options { seeds: SEEDS, first: 1, threads: 2, plant: ActiveMutant::NONE }, &|_| {});
    assert!(report.is_clean(), "{:?}", report.failures);
    assert!(report.failovers > SEEDS);
}

#[test]
fn a_canary_fails_because_two_incompatible_views_overlap() {
    for n in 1..=3 {
        let run = run(n * CANARY_EVERY - 1, ActiveMutant::NONE, false);
        let violation = run.violation.expect("a canary breaks an invariant");
        assert!(run.trial == Trial::Canary && matches!(violation.row, 5 | 10), "{violation}");
    }
}

#[cfg(feature = "mutants")]
#[test]
fn planted_bugs_are_caught() {
    use obol_campaign::hunt;
    use obol_membership::Mutant;
    const BUDGET: u64 = 800;
    let mut survivors = Vec::new();
    for mutant in Mutant::ALL {
        let found = hunt(mutant.name(), mutant.row(), ActiveMutant::new(*mutant), 1, BUDGET, 2);
        let (name, others) = (found.name, &found.other_rows);
        println!(
            "{name:<24} row {:>2}  seeds {:?}, by other rows {others:?}",
            found.row, found.seeds_to_detection
        );
        if !found.caught {
            survivors.push((name, found.other_rows));
        }
        assert!(found.shown.is_none_or(|shown| shown.row == mutant.row()), "{name} is shown by its own row");
    }
    assert!(survivors.is_empty(), "{survivors:?} survive {BUDGET} seeds");
}

#[test]
fn views_overlap_past_the_drift_bound_and_only_there() {
    for step in 0..SWEEP_PERMILLE.len() as u64 {
        let run = run(step * SWEEP_EVERY + SWEEP_EVERY / 2, ActiveMutant::NONE, false);
        let permille = SWEEP_PERMILLE[step as usize];
        assert_eq!(run.trial, Trial::Sweep(permille));
        assert_eq!(run.violation, None, "agreement and order do not rest on clocks");
        if permille < 1_000 {
            assert_eq!(run.overlaps, 0, "at {permille} thousandths of the bound");
        } else if permille >= 2_000 {
            assert!(run.overlaps > 0, "at {permille} thousandths of the bound");
        }
    }
}
