//! Every mark can be reached: a few seeds take all required paths.

use obol_campaign::{Mark, Marks, run};
use obol_membership::ActiveMutant;
use std::thread;

/// Seeds, each with marks that no earlier seed has. `obol sim campaign --json` lists the seeds of
/// each mark; update this if what seeds draw changes.
const SEEDS: &[u64] =
    &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15, 20, 23, 25, 32, 33, 38, 56, 63, 74, 110, 128, 130, 350];

#[test]
fn a_few_seeds_take_every_path() {
    let (left, right) = SEEDS.split_at(SEEDS.len() / 2);
    let all = |seeds: &[u64]| {
        let mut marks = Marks::NONE;
        seeds.iter().for_each(|seed| marks.merge(run(*seed, ActiveMutant::NONE, false).marks));
        marks
    };
    let marks = thread::scope(|scope| {
        let right = scope.spawn(|| all(right));
        let mut marks = all(left);
        marks.merge(right.join().expect("no run panics"));
        marks
    });
    let missing: Vec<&str> =
        Mark::ALL.iter().filter(|(_, m)| !marks.has(*m)).map(|(name, _)| *name).collect();
    assert!(missing.is_empty(), "no seed reaches {missing:?}");
}
