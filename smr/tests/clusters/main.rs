//! Clusters of replicas and clients in the simulator, under kills, freezes, cuts and restarts: the
//! invariants of `docs/design/smr.md` after every step, and histories that are linearizable; and
//! each mutant, which the same checks have to catch.

mod cluster;
mod history;
mod oracle;

use cluster::{Faults, Plan, Run};
use std::ops::Range;

/// Number of runs without mutant, unless `OBOL_HISTORIES` selects seeds: `5000`, or `1466..1467`.
const SEEDS: u64 = 40;
const CHOSEN: &str = "OBOL_HISTORIES";

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var(CHOSEN) else { return 0..SEEDS };
    let (first, end) = text.split_once("..").unwrap_or(("0", &text));
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("OBOL_HISTORIES: {text} is no number"));
    number(first)..number(end)
}

/// Runs all seeds; what they reached.
fn all(faults: Faults) -> Run {
    let mut sum = Run::default();
    for seed in seeds() {
        let run =
            Run::of(seed, Plan::of(seed, faults)).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        sum.operations += run.operations;
        sum.failovers += run.failovers;
        sum.configs += run.configs;
        sum.recycled += run.recycled;
        sum.yields += run.yields;
    }
    println!("{faults:?}, seeds {:?}: {sum:?}", seeds());
    sum
}

#[test]
fn every_history_is_linearizable_and_redundancy_comes_back() {
    let (sum, count) = (all(Faults::Single), seeds().count() as u64);
    // The faults take effect, the log laps, and clients are served: each of the three has up to 60
    // operations.
    assert!(sum.operations as u64 > 140 * count, "{sum:?}");
    assert!(sum.failovers >= count / 2, "{sum:?}");
    assert!(sum.configs > 2 * count, "{sum:?}");
    assert!(sum.recycled > 10_000 * count, "{sum:?}");
}

#[test]
fn nothing_is_lost_when_a_majority_is_lost_and_found() {
    let (sum, count) = (all(Faults::Overlapping), seeds().count() as u64);
    assert!(sum.operations as u64 > 100 * count && sum.failovers >= count / 2, "{sum:?}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let once = || Run::of(7, Plan::of(7, Faults::Single)).map(|run| (run.operations, run.trace));
    assert_eq!(once(), once());
}

#[cfg(feature = "mutants")]
mod mutants {
    use super::*;
    use obol_smr::Mutant;

    /// A mutant has to be caught within this many seeds.
    const BUDGET: u64 = 400;

    /// By a violation of one of these invariants.
    fn is_caught(mutant: Mutant, invariants: &[u32]) {
        let run = |seed, faults| Run::of(seed, Plan { mutant: Some(mutant), ..Plan::of(seed, faults) });
        let caught = (0..BUDGET).find_map(|seed| {
            let faults = [Faults::Single, Faults::Overlapping];
            faults.into_iter().find_map(|faults| run(seed, faults).err().map(|fault| (seed, fault)))
        });
        let (seed, fault) = caught.unwrap_or_else(|| panic!("{mutant:?} survives {BUDGET} seeds"));
        let is_listed = invariants.iter().any(|number| fault.starts_with(&format!("invariant {number}:")));
        assert!(is_listed, "{mutant:?}, seed {seed}: {fault}");
        println!("{mutant:?}: seed {seed}: {fault}");
    }

    #[test]
    fn an_answer_without_a_look() {
        is_caught(Mutant::AnswerWithoutLook, &[1, 2, 7]);
    }

    #[test]
    fn a_takeover_before_the_view_is_active() {
        is_caught(Mutant::TakeoverBeforeActive, &[1, 2, 7]);
    }

    #[test]
    fn a_successor_that_does_not_read_the_logs_of_others() {
        is_caught(Mutant::NoDrain, &[1, 2, 7]);
    }

    #[test]
    fn one_ring_for_all_leaders() {
        is_caught(Mutant::SharedRing, &[1, 2, 7, 12]);
    }

    #[test]
    fn a_majority_of_the_view() {
        is_caught(Mutant::ViewsAsQuorum, &[1, 2, 7]);
    }

    #[test]
    fn sessions_that_are_forgotten() {
        is_caught(Mutant::SessionsForgotten, &[6]);
    }

    #[test]
    fn an_entry_of_an_earlier_lap() {
        is_caught(Mutant::StaleLap, &[1, 3]);
    }

    #[test]
    fn a_joiner_that_counts_early() {
        is_caught(Mutant::JoinerCountsEarly, &[8]);
    }

    #[test]
    fn places_that_are_used_again_when_a_majority_applied_them() {
        is_caught(Mutant::RecycleByMajority, &[5]);
    }

    #[test]
    fn a_follower_that_applies_what_is_not_committed() {
        is_caught(Mutant::ApplyUncommitted, &[1, 3]);
    }
}
