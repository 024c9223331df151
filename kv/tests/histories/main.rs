//! Histories of clients in the simulator, under kills, frozen primaries, lost datagrams and cut
//! links, checked for linearizability; and each mutant, which the same check has to catch.

mod cluster;
mod history;

use cluster::{Faults, Plan, Run};
use obol_kv::ServerState;
use std::ops::Range;

/// Number of runs without mutant, unless `OBOL_HISTORIES` selects seeds: `5000`, or `1466..1467`.
const SEEDS: u64 = 40;
const CHOSEN: &str = "OBOL_HISTORIES";

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var(CHOSEN) else { return 0..SEEDS };
    let (first, end) = text.split_once("..").unwrap_or(("0", &text));
    let number =
        |text: &str| text.parse().unwrap_or_else(|_| panic!("OBOL_HISTORIES: {text} is not a number"));
    number(first)..number(end)
}

/// What the runs must reach for the test to be meaningful.
#[derive(Default, Debug)]
struct Coverage {
    operations: usize,
    failovers: u64,
    /// Runs that ended without a backup that has everything, and the servers' states.
    not_redundant: Vec<(u64, String)>,
}

#[test]
fn every_history_is_linearizable_and_redundancy_comes_back() {
    let (mut coverage, seeds) = (Coverage::default(), seeds());
    let many = seeds.end - seeds.start;
    for seed in seeds {
        let run = Run::of(seed, Plan::faults(seed)).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        coverage.operations += run.operations;
        coverage.failovers += run.failovers;
        if !run.is_redundant {
            coverage.not_redundant.push((seed, run.server_states));
        }
    }
    // The faults take effect: most runs have a failover, and all end with a backup that has
    // everything. All clients are served: each of the three has up to 60 operations.
    assert!(coverage.operations as u64 > 140 * many, "{coverage:?}");
    assert!(coverage.failovers >= many / 2, "{coverage:?}");
    assert!(coverage.not_redundant.is_empty(), "{coverage:?}");
}

#[test]
fn no_put_is_lost_when_a_server_is_frozen_and_another_dies() {
    for seed in seeds() {
        let run = Run::of(seed, Plan::of(seed, Faults::Overlapping));
        let run = run.unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        assert_eq!(run.stopped, 0, "seed {seed}: {}", run.server_states);
        assert!(run.is_redundant, "seed {seed}: {}", run.server_states);
    }
}

#[test]
fn a_cache_without_a_whole_copy_stops_until_a_server_returns_with_the_state() {
    let (mut stopped, mut yields) = (0, 0);
    let seeds = seeds();
    let seeds = seeds.start..if std::env::var_os(CHOSEN).is_some() { seeds.end } else { 4 * seeds.end };
    for seed in seeds.clone() {
        let run = Run::of(seed, Plan::of(seed, Faults::Catastrophic));
        let run = run.unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        assert!(run.stopped > 0 || run.is_redundant, "seed {seed}: {}", run.server_states);
        stopped += run.stopped as u64;
        yields += run.yields;
    }
    // Both occur: no server has the state, and a stopped server yields to one that has.
    assert!(
        stopped > 0 && yields > 0,
        "{stopped} shards stopped, {yields} servers yielded, in seeds {seeds:?}"
    );
    println!("{stopped} shards stopped, {yields} servers yielded, in seeds {seeds:?}");
}

#[test]
fn a_server_that_alone_has_the_state_brings_it_back() {
    let mut yields = 0;
    for seed in seeds() {
        let run = cluster::only_copy(seed).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        let serves = |state: &Option<ServerState>| *state == Some(ServerState::Primary { redundant: true });
        assert_eq!(run.1.iter().filter(|state| serves(state)).count(), 1, "seed {seed}: {:?}", run.1);
        yields += run.0;
    }
    assert!(yields > 0);
}

#[test]
fn a_server_with_another_number_of_shards_does_not_serve() {
    for seed in 0..5 {
        let (odd, others) = cluster::misfit(seed).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        assert_eq!(odd, Some(ServerState::Misfit { shards: 1 }), "seed {seed}");
        assert!(others.contains(&Some(ServerState::Primary { redundant: true })), "seed {seed}: {others:?}");
    }
}

#[test]
fn a_node_run_once_does_not_rejoin_after_an_exclusion() {
    for seed in 0..5 {
        assert_eq!(cluster::excluded(seed), Ok((true, true, 0)), "seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let once = || Run::of(7, Plan::faults(7)).map(|run| (run.operations, run.trace));
    assert_eq!(once(), once());
}

#[cfg(feature = "mutants")]
mod mutants {
    use super::*;
    use obol_kv::Mutant;

    /// A mutant has to be caught within this many runs.
    const BUDGET: u64 = 3_000;

    fn is_caught(mutant: Mutant) {
        is_caught_by(mutant, Faults::Single);
    }

    fn is_caught_by(mutant: Mutant, faults: Faults) {
        let caught = (0..BUDGET).find_map(|seed| {
            let plan = Plan { mutant: Some(mutant), ..Plan::of(seed, faults) };
            Run::of(seed, plan).err().map(|fault| (seed, fault))
        });
        let (seed, fault) = caught.unwrap_or_else(|| panic!("{mutant:?} survives {BUDGET} runs"));
        assert!(fault.contains("not linearizable"), "{mutant:?}, seed {seed}: {fault}");
        println!("{mutant:?}: seed {seed}");
    }

    #[test]
    fn an_answer_without_a_second_lease_check() {
        is_caught(Mutant::NoSecondCheck);
    }

    #[test]
    fn a_backup_that_serves_early() {
        is_caught(Mutant::ServeEarly);
    }

    #[test]
    fn a_log_that_is_not_drained() {
        is_caught(Mutant::LogNotDrained);
    }

    #[test]
    fn a_log_of_an_earlier_life() {
        // After one failure, the new primary gets what it lacks from the other backup's tail.
        is_caught_by(Mutant::LogsAlike, Faults::Overlapping);
    }

    #[test]
    fn an_answer_before_replication() {
        is_caught(Mutant::AnswerFirst);
    }

    #[test]
    fn a_get_that_shows_what_is_not_replicated() {
        is_caught(Mutant::ShowSpeculative);
    }

    #[test]
    fn an_answer_when_only_one_of_two_backups_has_the_put() {
        is_caught_by(Mutant::OneCopyIsEnough, Faults::Overlapping);
    }

    #[test]
    fn a_server_that_serves_a_state_with_holes() {
        is_caught_by(Mutant::ServeWithHoles, Faults::Catastrophic);
    }

    #[test]
    fn a_server_that_wakes_up_and_serves_what_it_had() {
        is_caught_by(Mutant::StaleCopy, Faults::Catastrophic);
    }

    #[test]
    fn a_new_primary_that_does_not_resend_what_a_backup_lacks() {
        is_caught_by(Mutant::TailForgotten, Faults::Overlapping);
    }
}
