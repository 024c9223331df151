//! Clusters of replicas and clients in the simulator, under kills, freezes, cuts and restarts: the
//! invariants of `docs/design/smr.md` after every step, and histories that are linearizable, for each
//! preset; and each mutant, which the same checks have to catch.

mod cluster;
mod history;
mod locks;
mod oracle;

use cluster::{Faults, Plan, Run, Store};
use obol_smr::{Active, Beats, Departure, Detector, Grants, Guard, PullScore, ReplicaState, Views, Votes};
use std::ops::Range;

/// The guard of the preset `mu`.
type Unleased = Grants<false>;

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

/// Runs all seeds; what they reached.
fn all<D: Detector, G: Guard>(faults: Faults) -> Run {
    let mut sum = Run::default();
    for seed in seeds() {
        let run = Run::of::<D, G>(seed, Plan::of(seed, faults))
            .unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        sum.operations += run.operations;
        sum.failovers += run.failovers;
        sum.configs += run.configs;
        sum.recycled += run.recycled;
        sum.yields += run.yields;
    }
    println!("{}, {faults:?}, seeds {:?}: {sum:?}", std::any::type_name::<(D, G)>(), seeds());
    sum
}

fn every_history_is_linearizable<D: Detector, G: Guard>() {
    let (sum, count) = (all::<D, G>(Faults::Single), seeds().count() as u64);
    // The faults take effect, the log laps, and clients are served: each of the three has up to 60
    // operations.
    assert!(sum.operations as u64 > 140 * count, "{sum:?}");
    assert!(sum.failovers >= count / 2, "{sum:?}");
    assert!(sum.configs > 2 * count, "{sum:?}");
    assert!(sum.recycled > 10_000 * count, "{sum:?}");
}

/// The same for clients that are beside replicas, and die with them.
fn clients_beside_replicas_are_served<D: Detector, G: Guard>() {
    let mut operations = 0;
    for (seed, faults) in seeds().step_by(2).zip([Faults::Single, Faults::Overlapping].into_iter().cycle()) {
        let plan = Plan { beside: true, ..Plan::of(seed, faults) };
        let run =
            Run::of::<D, G>(seed, plan).unwrap_or_else(|fault| panic!("seed {seed}, {faults:?}: {fault}"));
        operations += run.operations;
    }
    assert!(operations > 70 * seeds().count(), "{operations}");
}

fn nothing_is_lost<D: Detector, G: Guard>() {
    let (sum, count) = (all::<D, G>(Faults::Overlapping), seeds().count() as u64);
    assert!(sum.operations as u64 > 100 * count && sum.failovers >= count / 2, "{sum:?}");
}

fn no_read_is_stale<D: Detector, G: Guard>() {
    let (sum, count) = (all::<D, G>(Faults::Deaf), seeds().count() as u64);
    assert!(sum.operations as u64 > 140 * count && sum.failovers >= count / 2, "{sum:?}");
}

fn the_same_seed_repeats<D: Detector, G: Guard>() {
    let once = || Run::of::<D, G>(7, Plan::of(7, Faults::Single)).map(|run| (run.operations, run.trace));
    assert_eq!(once(), once());
}

#[test]
fn every_history_is_linearizable_and_redundancy_comes_back() {
    every_history_is_linearizable::<Views, Active>();
}

#[test]
fn histories_of_clients_beside_replicas_are_linearizable() {
    clients_beside_replicas_are_served::<Views, Active>();
}

#[test]
fn with_mu_histories_of_clients_beside_replicas_are_linearizable() {
    clients_beside_replicas_are_served::<PullScore, Unleased>();
}

#[test]
fn nothing_is_lost_when_a_majority_is_lost_and_found() {
    nothing_is_lost::<Views, Active>();
}

#[test]
fn no_read_is_stale_while_a_leader_does_not_know_that_it_is_excluded() {
    no_read_is_stale::<Views, Active>();
}

fn all_wait_without_a_log<D: Detector, G: Guard>() {
    for seed in 0..5 {
        let (states, views) =
            Store::<D, G>::lose_all(seed).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        let waiting = states.iter().filter(|state| **state == ReplicaState::Waiting).count();
        assert_eq!((waiting, views), (1, 0), "seed {seed}: {states:?}");
        let rest = states.iter().filter(|state| **state == ReplicaState::Following { whole: false });
        assert_eq!(rest.count(), states.len() - 1, "seed {seed}: {states:?}");
    }
}

#[test]
fn replicas_that_have_all_lost_the_log_wait_and_change_no_views() {
    all_wait_without_a_log::<Views, Active>();
}

#[test]
fn with_permissions_replicas_that_have_all_lost_the_log_wait_and_change_no_views() {
    all_wait_without_a_log::<Views, Grants>();
}

#[test]
fn the_same_seed_gives_the_same_run() {
    the_same_seed_repeats::<Views, Active>();
}

/// Four replicas: three vote, then all four, then three again when one has died.
fn there_are_as_many_voters_as_asked_for<D: Detector, G: Guard>() {
    for seed in 0..4 {
        let counts = Store::<D, G>::resize(seed).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        assert_eq!(counts, [4, 4, 4, 4, 3, 3], "seed {seed}");
    }
}

/// One after the other, and no answered write is lost until the last one ends.
fn leaders_that_are_stopped_leave_the_store_to_the_others<D: Detector, G: Guard>() {
    for seed in 0..12 {
        let plan = Plan::of(seed, Faults::Single);
        let departures =
            Store::<D, G>::stop_all(seed, &plan).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        let (last, rest) = departures.split_last().expect("some");
        assert!(rest.iter().all(|one| *one == Departure::Left), "seed {seed}: {departures:?}");
        assert_eq!(*last, Departure::Last, "seed {seed}");
    }
}

#[test]
fn a_leader_that_is_stopped_leaves_the_store_to_the_others() {
    leaders_that_are_stopped_leave_the_store_to_the_others::<Views, Active>();
}

#[test]
fn with_permissions_a_leader_that_is_stopped_leaves_the_store_to_the_others() {
    leaders_that_are_stopped_leave_the_store_to_the_others::<Views, Grants>();
}

#[test]
fn with_mu_a_leader_that_is_stopped_leaves_the_store_to_the_others() {
    leaders_that_are_stopped_leave_the_store_to_the_others::<PullScore, Unleased>();
}

#[test]
fn with_dare_a_leader_that_is_stopped_leaves_the_store_to_the_others() {
    leaders_that_are_stopped_leave_the_store_to_the_others::<Beats, Votes>();
}

/// Two at once: nobody leaves while the others need it. All at once: somebody says that the store ends.
fn replicas_that_are_stopped_together_leave_the_store_to_the_others<D: Detector, G: Guard>() {
    let mut orderly = 0;
    for seed in 0..40 {
        let plan = Plan::of(seed, Faults::Single);
        let departures = |of_all| {
            Store::<D, G>::stop_together(seed, &plan, of_all)
                .unwrap_or_else(|fault| panic!("seed {seed}, all: {of_all}: {fault}"))
        };
        let two = departures(false);
        assert_eq!(two, [Departure::Left; 2], "seed {seed}");
        let all = departures(true);
        assert!(all.iter().any(|one| *one != Departure::Left), "seed {seed}: {all:?}");
        orderly += u32::from(all.iter().filter(|one| **one == Departure::Last).count() == 1);
    }
    assert!(orderly > 30, "{orderly} of 40 ended with one that had the last copy");
}

#[test]
fn replicas_that_are_stopped_together_leave_the_store_to_others() {
    replicas_that_are_stopped_together_leave_the_store_to_the_others::<Views, Active>();
}

#[test]
fn with_permissions_replicas_that_are_stopped_together_leave_the_store_to_others() {
    replicas_that_are_stopped_together_leave_the_store_to_the_others::<Views, Grants>();
}

#[test]
fn with_mu_replicas_that_are_stopped_together_leave_the_store_to_others() {
    replicas_that_are_stopped_together_leave_the_store_to_the_others::<PullScore, Unleased>();
}

#[test]
fn with_dare_replicas_that_are_stopped_together_leave_the_store_to_others() {
    replicas_that_are_stopped_together_leave_the_store_to_the_others::<Beats, Votes>();
}

fn a_survivor_continues_on_an_operators_word<D: Detector, G: Guard>() {
    for seed in 0..60 {
        Store::<D, G>::recover_one(seed, seed >= 8).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
    }
}

#[test]
fn a_survivor_of_three_continues_on_an_operators_word() {
    a_survivor_continues_on_an_operators_word::<Views, Active>();
}

#[test]
fn with_permissions_a_survivor_of_three_continues_on_an_operators_word() {
    a_survivor_continues_on_an_operators_word::<Views, Grants>();
}

/// A leader that has lost a majority: of those that it had committed with, and of those whose memories it
/// took over from.
fn a_leader_that_is_left_alone_continues_on_an_operators_word<D: Detector, G: Guard>() {
    let mut adopted = 0;
    for seed in 0..20 {
        let plan = Plan::of(seed, Faults::Single);
        Store::<D, G>::recover_leader(seed, &plan).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        let is_so = Store::<D, G>::recover_adopted(seed, &plan);
        adopted += u32::from(is_so.unwrap_or_else(|fault| panic!("seed {seed}, adopted: {fault}")));
    }
    assert!(adopted > 0, "no successor was left alone with what it had adopted");
    println!("{adopted} of 20 had adopted what nobody else has");
}

#[test]
fn a_leader_that_is_left_alone_of_three_continues_on_an_operators_word() {
    a_leader_that_is_left_alone_continues_on_an_operators_word::<Views, Active>();
}

#[test]
fn with_permissions_a_leader_that_is_left_alone_of_three_continues_on_an_operators_word() {
    a_leader_that_is_left_alone_continues_on_an_operators_word::<Views, Grants>();
}

fn a_log_is_kept_whose_voters_are_there<D: Detector, G: Guard>() {
    for seed in 0..20 {
        let plan = Plan::of(seed, Faults::Single);
        Store::<D, G>::keep_log(seed, &plan).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
    }
}

#[test]
fn a_log_whose_voters_are_there_is_kept_whatever_an_operator_says() {
    a_log_is_kept_whose_voters_are_there::<Views, Active>();
}

#[test]
fn with_permissions_a_log_whose_voters_are_there_is_kept_whatever_an_operator_says() {
    a_log_is_kept_whose_voters_are_there::<Views, Grants>();
}

/// Voters that are frozen while one of them continues alone, and come back.
fn voters_of_a_log_that_was_continued_end<D: Detector, G: Guard>() {
    for seed in 0..30 {
        let plan = Plan::of(seed, Faults::Single);
        Store::<D, G>::replace_by_recovery(seed, &plan)
            .unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
    }
}

/// The same while another replica begins the store anew.
fn voters_of_a_store_that_was_begun_anew_end<D: Detector, G: Guard>() {
    for seed in 0..30 {
        let plan = Plan::of(seed, Faults::Single);
        Store::<D, G>::replace_by_beginning(seed, &plan)
            .unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
    }
}

#[test]
fn voters_that_come_back_after_a_recovery_end() {
    voters_of_a_log_that_was_continued_end::<Views, Active>();
}

#[test]
fn with_permissions_voters_that_come_back_after_a_recovery_end() {
    voters_of_a_log_that_was_continued_end::<Views, Grants>();
}

#[test]
fn with_mu_voters_that_come_back_after_a_recovery_end() {
    voters_of_a_log_that_was_continued_end::<PullScore, Unleased>();
}

#[test]
fn voters_that_come_back_to_a_store_that_was_begun_anew_end() {
    voters_of_a_store_that_was_begun_anew_end::<Views, Active>();
}

#[test]
fn with_permissions_voters_that_come_back_to_a_store_that_was_begun_anew_end() {
    voters_of_a_store_that_was_begun_anew_end::<Views, Grants>();
}

#[test]
fn with_mu_voters_that_come_back_to_a_store_that_was_begun_anew_end() {
    voters_of_a_store_that_was_begun_anew_end::<PullScore, Unleased>();
}

#[test]
fn with_dare_voters_that_come_back_to_a_store_that_was_begun_anew_end() {
    voters_of_a_store_that_was_begun_anew_end::<Beats, Votes>();
}

#[test]
fn there_are_as_many_voters_as_a_client_asks_for() {
    there_are_as_many_voters_as_asked_for::<Views, Active>();
}

#[test]
fn with_mu_there_are_as_many_voters_as_a_client_asks_for() {
    there_are_as_many_voters_as_asked_for::<PullScore, Unleased>();
}

#[test]
fn with_dare_there_are_as_many_voters_as_a_client_asks_for() {
    there_are_as_many_voters_as_asked_for::<Beats, Votes>();
}

#[test]
fn a_client_whose_session_others_have_ended_goes_on_if_nothing_was_on_the_way() {
    for seed in 0..2 {
        Store::<Views, Active>::outlives_its_session(seed)
            .unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
    }
}

/// Clocks that show other times, and go at other rates; leaders that have joined since the last command.
fn time_goes_on<D: Detector, G: Guard>() {
    for seed in 0..6 {
        let plan = Plan { drifts: true, ..Plan::of(seed, Faults::Single) };
        Store::<D, G>::time_goes_on(seed, &plan).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
    }
}

#[test]
fn as_much_time_passes_in_the_log_as_in_truth_whoever_leads() {
    time_goes_on::<Views, Active>();
}

#[test]
fn with_permissions_as_much_time_passes_in_the_log_as_in_truth_whoever_leads() {
    time_goes_on::<Views, Grants>();
}

#[test]
fn with_mu_as_much_time_passes_in_the_log_as_in_truth_whoever_leads() {
    time_goes_on::<PullScore, Unleased>();
}

#[test]
fn with_dare_as_much_time_passes_in_the_log_as_in_truth_whoever_leads() {
    time_goes_on::<Beats, Votes>();
}

/// Failovers of each run, and runs: a hundred failovers. Monotonic clocks differ by days and in their rates.
const LOCK_FAILOVERS: u64 = 10;
const LOCK_SEEDS: u64 = 10;
const LOCK_THREADS: u64 = 2;

/// Locks and deadlines while leaders follow each other.
fn locks_end_in_time<D: Detector, G: Guard>() {
    let run = |seed: u64| {
        let plan = Plan { drifts: true, days: true, ..Plan::of(seed, Faults::Single) };
        let run = Store::<D, G>::locks(seed, &plan, LOCK_FAILOVERS);
        run.unwrap_or_else(|fault| panic!("seed {seed}: {fault}"))
    };
    let (mut given, mut passed, mut across) = (0, 0, 0);
    std::thread::scope(|scope| {
        let some = |first| {
            scope.spawn(move || {
                (first..LOCK_SEEDS).step_by(LOCK_THREADS as usize).map(run).collect::<Vec<_>>()
            })
        };
        let all: Vec<_> = (0..LOCK_THREADS).map(some).collect();
        for reached in all.into_iter().flat_map(|thread| thread.join().expect("each run is right")) {
            (given, passed, across) =
                (given + reached.given, passed + reached.passed, across + reached.across);
        }
    });
    println!("{given} times given, {passed} passed on, {across} seen across a failover");
    assert!(given > 150 && passed > 50 && across > 1000, "{given}, {passed}, {across}");
}

#[test]
fn locks_end_in_time_whoever_leads_and_whatever_clocks_show() {
    locks_end_in_time::<Views, Active>();
}

#[test]
fn with_mu_locks_end_in_time_whoever_leads_and_whatever_clocks_show() {
    locks_end_in_time::<PullScore, Unleased>();
}

/// A day slow or fast, set and stopped: what a service that reads it tells clients has to be found out.
#[test]
fn a_service_that_reads_a_wall_clock_is_found_out() {
    for seed in 0..3 {
        let plan = Plan { reads_wall_clock: true, days: true, ..Plan::of(seed, Faults::Single) };
        let fault = Store::<Views, Active>::locks(seed, &plan, 6).expect_err("locks end when they want");
        assert!(fault.contains("a lock ") || fault.contains("PTTL "), "seed {seed}: {fault}");
    }
}

#[test]
fn with_permissions_every_history_is_linearizable_and_redundancy_comes_back() {
    every_history_is_linearizable::<Views, Grants>();
}

#[test]
fn with_permissions_nothing_is_lost_when_a_majority_is_lost_and_found() {
    nothing_is_lost::<Views, Grants>();
}

#[test]
fn with_permissions_no_read_is_stale_while_a_leader_does_not_know_that_it_is_excluded() {
    no_read_is_stale::<Views, Grants>();
}

#[test]
fn with_permissions_the_same_seed_gives_the_same_run() {
    the_same_seed_repeats::<Views, Grants>();
}

#[test]
fn with_mu_every_history_is_linearizable_and_redundancy_comes_back() {
    every_history_is_linearizable::<PullScore, Unleased>();
}

#[test]
fn with_mu_nothing_is_lost_when_a_majority_is_lost_and_found() {
    nothing_is_lost::<PullScore, Unleased>();
}

#[test]
fn with_mu_no_read_is_stale_while_a_leader_is_cut_off_from_the_others() {
    no_read_is_stale::<PullScore, Unleased>();
}

#[test]
fn with_mu_a_leader_whose_replication_is_stuck_is_replaced() {
    let (sum, count) = (all::<PullScore, Unleased>(Faults::Stuck), seeds().count() as u64);
    assert!(sum.operations as u64 > 140 * count && sum.failovers >= count, "{sum:?}");
}

#[test]
fn with_mu_a_leader_that_is_not_reached_leaves_the_permissions_to_its_successor() {
    let (sum, count) = (all::<PullScore, Unleased>(Faults::Unreached), seeds().count() as u64);
    assert!(sum.operations as u64 > 140 * count && sum.failovers >= count, "{sum:?}");
}

/// Places are used again after eight voters, so one that joins may have a lower place than the leader.
#[test]
fn with_mu_a_leader_stays_when_voters_are_replaced() {
    let (seeds, replaced) = (12, 12);
    let failovers: Result<Vec<u64>, String> =
        (0..seeds).map(|seed| Store::<PullScore, Unleased>::replace_voters(seed, replaced)).collect();
    let failovers = failovers.expect("all voters have everything in the end");
    // One that joins may take a leader for failed that it does not reach at first. If places said who
    // leads, about half of those that join would.
    assert!(failovers.iter().sum::<u64>() <= seeds * u64::from(replaced) / 12, "{failovers:?}");
}

#[test]
fn with_mu_replicas_that_have_all_lost_the_log_wait_and_change_no_views() {
    all_wait_without_a_log::<PullScore, Unleased>();
}

#[test]
fn with_mu_the_same_seed_gives_the_same_run() {
    the_same_seed_repeats::<PullScore, Unleased>();
}

#[test]
fn with_dare_every_history_is_linearizable_and_redundancy_comes_back() {
    every_history_is_linearizable::<Beats, Votes>();
}

#[test]
fn with_dare_nothing_is_lost_when_a_majority_is_lost_and_found() {
    nothing_is_lost::<Beats, Votes>();
}

#[test]
fn with_dare_no_read_is_stale_while_a_leader_is_cut_off_from_the_others() {
    no_read_is_stale::<Beats, Votes>();
}

#[test]
fn with_dare_replicas_that_have_all_lost_the_log_wait_and_change_no_views() {
    all_wait_without_a_log::<Beats, Votes>();
}

#[test]
fn with_dare_the_same_seed_gives_the_same_run() {
    the_same_seed_repeats::<Beats, Votes>();
}

#[cfg(feature = "mutants")]
mod mutants {
    use super::*;
    use obol_smr::Mutant;

    /// A mutant has to be caught within this many seeds.
    const BUDGET: u64 = 800;

    fn is_caught(mutant: Mutant, invariants: &[u32]) {
        is_caught_with::<Views, Active>(mutant, &[Faults::Single, Faults::Overlapping], invariants);
    }

    fn is_caught_with_permissions(mutant: Mutant, invariants: &[u32]) {
        is_caught_with::<Views, Grants>(mutant, &[Faults::Single, Faults::Overlapping], invariants);
    }

    fn is_caught_with_mu(mutant: Mutant, invariants: &[u32]) {
        is_caught_with::<PullScore, Unleased>(mutant, &[Faults::Single, Faults::Overlapping], invariants);
    }

    /// By a violation of one of these invariants.
    fn is_caught_with<D: Detector, G: Guard>(mutant: Mutant, faults: &[Faults], invariants: &[u32]) {
        let run =
            |seed, faults| Run::of::<D, G>(seed, Plan { mutant: Some(mutant), ..Plan::of(seed, faults) });
        let caught = (0..BUDGET).find_map(|seed| {
            faults.iter().find_map(|faults| run(seed, *faults).err().map(|fault| (seed, fault)))
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
        // A follower whose entries are not those of its leader may never get on.
        is_caught(Mutant::TakeoverBeforeActive, &[1, 2, 7, 12]);
    }

    #[test]
    fn a_successor_that_does_not_read_the_logs_of_others() {
        is_caught(Mutant::NoDrain, &[1, 2, 7]);
    }

    #[test]
    fn a_successor_that_does_not_read_the_newest_ring() {
        is_caught(Mutant::FloorUnread, &[1, 2, 7]);
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
    fn a_configuration_that_does_not_wait_for_the_one_before() {
        is_caught(Mutant::OneMajorityInTransition, &[8]);
    }

    #[test]
    fn a_read_before_the_leaders_first_entry() {
        is_caught(Mutant::ReadBeforeBlank, &[7]);
    }

    #[test]
    fn a_follower_that_applies_what_is_not_committed() {
        is_caught(Mutant::ApplyUncommitted, &[1, 3]);
    }

    #[test]
    fn a_leader_that_leaves_before_the_others_can_go_on() {
        let run = |seed| {
            let plan = Plan { mutant: Some(Mutant::LeavesAtOnce), ..Plan::of(seed, Faults::Single) };
            Store::<Views, Active>::stop_all(seed, &plan).err()
        };
        let fault = (0..BUDGET).find_map(run).expect("caught");
        assert!(fault.starts_with("invariant 12:") || fault.starts_with("invariant 2:"), "{fault}");
    }

    /// A violation of invariant 2 when an operator has said that a replica is to continue alone.
    fn recovers_badly(mutant: Mutant, run: impl Fn(u64, &Plan) -> Result<(), String>) {
        let run = |seed| run(seed, &Plan { mutant: Some(mutant), ..Plan::of(seed, Faults::Single) }).err();
        let fault = (0..BUDGET).find_map(run).unwrap_or_else(|| panic!("{mutant:?} survives {BUDGET} seeds"));
        assert!(fault.starts_with("invariant 2:"), "{mutant:?}: {fault}");
        println!("{mutant:?}: {fault}");
    }

    #[test]
    fn a_replica_that_continues_alone_beside_others() {
        recovers_badly(Mutant::ContinuesBesideOthers, Store::<Views, Active>::keep_log);
    }

    #[test]
    fn a_leader_that_continues_alone_from_what_it_had_applied() {
        let run = |seed, plan: &Plan| Store::<Views, Active>::recover_adopted(seed, plan).map(drop);
        recovers_badly(Mutant::ContinuesFromApplied, run);
    }

    #[test]
    fn replicas_that_go_on_with_a_log_that_was_replaced() {
        let mutant = Mutant::OlderLogStays;
        recovers_badly(mutant, Store::<Views, Active>::replace_by_recovery);
        recovers_badly(mutant, Store::<Views, Active>::replace_by_beginning);
        recovers_badly(mutant, Store::<PullScore, Unleased>::replace_by_recovery);
        recovers_badly(mutant, Store::<Beats, Votes>::replace_by_beginning);
    }

    #[test]
    fn a_save_that_sees_what_was_applied_after_it_began() {
        is_caught(Mutant::SaveLate, &[14]);
    }

    #[test]
    fn a_snapshot_that_is_continued_with_that_of_another_provider() {
        // What it loads may be no state at all, so that it never has one.
        is_caught(Mutant::SnapshotsMixed, &[1, 3, 6, 12, 14]);
    }

    #[test]
    fn a_leader_whose_clock_is_behind_the_log() {
        is_caught(Mutant::StampsOfOneClock, &[13]);
    }

    /// A violation of invariant 13 while nothing is written and replicas are replaced.
    fn changes_time(mutant: Mutant) {
        let run = |seed| {
            let plan = Plan { mutant: Some(mutant), ..Plan::of(seed, Faults::Single) };
            Store::<Views, Active>::time_goes_on(seed, &plan).err()
        };
        let fault = (0..6).find_map(run).unwrap_or_else(|| panic!("{mutant:?} survives"));
        assert!(fault.starts_with("invariant 13:"), "{mutant:?}: {fault}");
        println!("{mutant:?}: {fault}");
    }

    #[test]
    fn a_successor_for_which_time_stands_still() {
        changes_time(Mutant::TimeStandsStill);
    }

    #[test]
    fn a_joiner_that_learns_of_no_time() {
        changes_time(Mutant::ConfigsWithoutTime);
    }

    #[test]
    fn a_leader_that_takes_the_clock_of_its_host_for_the_time_of_the_log() {
        changes_time(Mutant::StampsOfOneClock);
    }

    #[test]
    fn a_time_that_a_client_wrote() {
        is_caught(Mutant::StampsOfClients, &[13]);
    }

    #[test]
    fn a_grant_without_a_revocation() {
        is_caught_with_permissions(Mutant::GrantWithoutRevoke, &[1, 2, 7]);
    }

    #[test]
    fn an_owner_that_answers_before_its_change_is_in_force() {
        // The change may never be in force: then the owner refuses its leader for ever.
        is_caught_with_permissions(Mutant::AnswerBeforePermit, &[1, 2, 7, 12]);
    }

    #[test]
    fn a_leader_that_counts_a_refused_write() {
        is_caught_with_permissions(Mutant::RefusalCounts, &[1, 2, 3, 7]);
    }

    #[test]
    fn a_successor_that_waits_for_all_voters() {
        is_caught_with_permissions(Mutant::WaitsForAll, &[12]);
    }

    #[test]
    fn a_leader_that_answers_before_its_view_is_active() {
        is_caught_with::<Views, Grants>(Mutant::AnswerBeforeActive, &[Faults::Deaf], &[7]);
    }

    #[test]
    fn with_permissions_a_read_without_a_look() {
        is_caught_with::<Views, Grants>(Mutant::AnswerWithoutLook, &[Faults::Deaf], &[7]);
    }

    #[test]
    fn with_permissions_a_successor_that_reads_the_logs_too_early() {
        is_caught_with_permissions(Mutant::TakeoverBeforeActive, &[1, 2, 7, 12]);
    }

    #[test]
    fn with_permissions_a_successor_that_does_not_read_the_logs_of_others() {
        is_caught_with_permissions(Mutant::NoDrain, &[1, 2, 7]);
    }

    #[test]
    fn with_permissions_a_majority_of_the_view() {
        is_caught_with_permissions(Mutant::ViewsAsQuorum, &[1, 2, 7]);
    }

    #[test]
    fn with_permissions_a_joiner_that_counts_early() {
        is_caught_with_permissions(Mutant::JoinerCountsEarly, &[8]);
    }

    #[test]
    fn with_permissions_places_that_are_used_again_too_early() {
        is_caught_with_permissions(Mutant::RecycleByMajority, &[5]);
    }

    #[test]
    fn a_leader_that_counts_on_while_its_replication_is_stuck() {
        is_caught_with::<PullScore, Unleased>(Mutant::FateUnshared, &[Faults::Stuck], &[12]);
    }

    #[test]
    fn a_replica_that_leads_although_others_do_not_reach_it() {
        is_caught_with::<PullScore, Unleased>(Mutant::LeadsUnreached, &[Faults::Unreached], &[12]);
    }

    #[test]
    fn with_mu_a_read_without_an_entry() {
        is_caught_with::<PullScore, Unleased>(Mutant::ReadsUnreplicated, &[Faults::Deaf], &[7]);
    }

    #[test]
    fn with_mu_a_grant_without_a_revocation() {
        is_caught_with_mu(Mutant::GrantWithoutRevoke, &[1, 2, 7]);
    }

    #[test]
    fn with_mu_a_leader_that_counts_a_refused_write() {
        is_caught_with_mu(Mutant::RefusalCounts, &[1, 2, 3, 7]);
    }

    #[test]
    fn with_mu_a_successor_that_waits_for_all_voters() {
        is_caught_with_mu(Mutant::WaitsForAll, &[12]);
    }

    #[test]
    fn with_mu_a_successor_that_does_not_read_the_logs_of_others() {
        is_caught_with_mu(Mutant::NoDrain, &[1, 2, 7]);
    }

    fn is_caught_with_dare(mutant: Mutant, invariants: &[u32]) {
        is_caught_with::<Beats, Votes>(mutant, &[Faults::Single, Faults::Overlapping], invariants);
    }

    #[test]
    fn a_vote_of_a_server_whose_log_the_old_leader_still_writes() {
        // A server whose entries are not those of its leader may never answer a client.
        is_caught_with_dare(Mutant::VoteWithOpenLog, &[1, 2, 3, 7, 12]);
    }

    #[test]
    fn a_vote_for_a_candidate_that_lacks_entries() {
        is_caught_with_dare(Mutant::VoteWithoutLogCheck, &[1, 2, 7]);
    }

    #[test]
    fn a_tail_before_its_entries() {
        is_caught_with_dare(Mutant::TailBeforeEntries, &[1, 2, 3, 7, 12]);
    }

    #[test]
    fn with_dare_a_configuration_that_does_not_wait_for_the_one_before() {
        is_caught_with_dare(Mutant::OneMajorityInTransition, &[8]);
    }

    #[test]
    fn entries_that_are_given_up_before_they_are_known_to_be_committed() {
        is_caught_with_dare(Mutant::HeadUncommitted, &[5]);
    }

    #[test]
    fn entries_that_are_given_up_by_the_report_of_another_replica() {
        is_caught_with_dare(Mutant::PruneWrongIndex, &[5]);
    }

    #[test]
    fn a_read_without_the_terms_of_others() {
        is_caught_with::<Beats, Votes>(Mutant::ReadWithoutTerms, &[Faults::Deaf], &[7]);
    }
}
