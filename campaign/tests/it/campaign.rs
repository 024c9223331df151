//! The campaign itself: it is repeatable, finds nothing in the shipped code, and can fail.

use obol_campaign::{
    CANARY_EVERY, Options, Report, SWEEP_EVERY, SWEEP_PERMILLE, Shard, ShardError, Trial, campaign,
    index_from, merge, run,
};
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

fn report(first: u64, seeds: u64) -> Report {
    report_of(Shard { first, seeds }, Shard { first, seeds })
}

/// The report of a shard of a campaign.
fn report_of(Shard { first, seeds }: Shard, of: Shard) -> Report {
    let (build, plant) = ("one".to_owned(), ActiveMutant::NONE);
    campaign(&Options { build, seeds, first, of, threads: 2, plant }, &|_| {})
}

#[test]
fn a_small_campaign_finds_nothing() {
    let report = report(1, SEEDS);
    assert!(report.is_clean(), "{:?}", report.failures);
    assert!(report.failovers > SEEDS);
}

/// Four shards, merged in any order from their JSON, are the campaign in one run.
#[test]
fn shards_add_up_to_one_run() {
    let whole = Shard { first: 5, seeds: SEEDS - 2 };
    let shards: Vec<Report> = [2, 0, 3, 1]
        .map(|index| {
            let shard = Shard::new(whole, index, 4).expect("one of four");
            let json = serde_json::to_vec(&report_of(shard, whole)).expect("JSON");
            serde_json::from_slice(&json).expect("a report")
        })
        .into();
    let untimed = |report: Report| {
        let report =
            Report { wall_seconds: 0.0, cpu_seconds: 0.0, failovers_per_second_per_core: 0.0, ..report };
        serde_json::to_value(report).expect("JSON")
    };
    let merged = merge(shards.clone()).expect("whole");
    assert_eq!(untimed(merged), untimed(report(5, SEEDS - 2)));

    let without = |index: usize| {
        let mut left = shards.clone();
        left.remove(index);
        left
    };
    for (index, from, to) in [(3, 15, 24), (1, 5, 14), (2, 34, 42)] {
        assert_eq!(merge(without(index)).expect_err("a gap"), ShardError::Missing { from, to });
    }
    let mut other = shards.clone();
    other[2].of.seeds += 1;
    assert_eq!(merge(other).expect_err("another"), ShardError::Campaigns { first: 5, other: 34 });
    let shorter = shards.iter().cloned().map(|report| Report { of: Shard { first: 5, seeds: 30 }, ..report });
    assert!(matches!(merge(shorter.collect()), Err(ShardError::NoSuchSeeds { first: 34, .. })));
    let later = shards.iter().cloned().map(|report| Report { of: Shard { first: 6, seeds: 37 }, ..report });
    assert!(matches!(merge(later.collect()), Err(ShardError::NoSuchSeeds { first: 5, .. })));
    let twice = [shards.clone(), vec![shards[0].clone()]].concat();
    assert_eq!(merge(twice).expect_err("an overlap"), ShardError::Overlap { seed: 25 });
    let mut other = shards.clone();
    other[2].build = "other".to_owned();
    assert!(matches!(merge(other), Err(ShardError::Builds { .. })));
    let mut other = shards.clone();
    other[2].marks.pop();
    assert_eq!(merge(other).expect_err("another list"), ShardError::Marks { first: 5, other: 34 });
    let mut endless = shards;
    endless[2].seeds = u64::MAX;
    assert!(matches!(merge(endless), Err(ShardError::NoSuchSeeds { first: 34, .. })));
    assert_eq!(merge(Vec::new()).expect_err("nothing"), ShardError::NoReport);
}

#[test]
fn a_violation_of_one_shard_is_one_of_the_whole() {
    let of = Shard { first: 1, seeds: 2 };
    let [mut shard, other] = [1, 2].map(|first| report_of(Shard { first, seeds: 1 }, of));
    assert!(shard.is_clean());
    shard.violations = 1;
    assert!(!merge(vec![shard, other]).expect("whole").is_clean());
}

#[test]
fn batch_engines_number_their_tasks() {
    let index = |set: &[(&str, &str)]| {
        index_from(|name| set.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned()))
    };
    assert_eq!(index(&[("JOB_COMPLETION_INDEX", "3")]), Ok(3));
    assert_eq!(index(&[("SLURM_ARRAY_TASK_ID", "7"), ("SLURM_ARRAY_TASK_MIN", "1")]), Ok(6));
    assert_eq!(index(&[("NOMAD_ALLOC_INDEX", "0")]), Ok(0));
    assert_eq!(index(&[]), Err(ShardError::NoIndex));
    assert!(matches!(index(&[("NOMAD_ALLOC_INDEX", "one")]), Err(ShardError::NotANumber { .. })));
    let shard = |seeds, index, shards| Shard::new(Shard { first: 1, seeds }, index, shards);
    assert!(matches!(shard(10, 4, 4), Err(ShardError::NoSuchShard { .. })));
    assert!(shard(10, 0, 0).expect_err("none of none").to_string().contains("task 0 of 0"));
    assert!(matches!(shard(3, 0, 4), Err(ShardError::TooFewSeeds { .. })));
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
