//! The suite detects defects: each defect of a fabric, wrapped around the simulator, is caught by
//! the test named with it. Those of permissions are caught over IP and over RDMA, too, in the tests
//! of these backends.

use crate::planted::{Broken, Defect, PRESENT, Sound};
use crate::sim::Simulator;
use crate::suite::{self, Case, each_contract_test};
use obol_fabric::Nanos;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Each with the test that catches it.
const DEFECTS: &[(Defect, &str)] = &[
    (Defect::Reorders, "operations_are_executed_and_complete_in_the_order_of_their_posts"),
    (Defect::ForgetsFailures, "what_is_posted_before_a_failure_was_taken_fails_with_it"),
    (Defect::LosesCompletions, "a_burst_keeps_its_order"),
    (Defect::RepeatsCompletions, "a_burst_keeps_its_order"),
    (Defect::LosesUnsignaledWrites, "an_unsignaled_write_is_executed_in_its_place"),
    (Defect::SwapsAlways, "the_own_region_takes_the_same_path"),
    (Defect::TearsWords, "a_word_is_read_whole_and_more_may_be_torn"),
    (Defect::WrapsOffsets, "an_operation_outside_of_a_region_or_on_none_fails"),
    (Defect::IgnoresGenerations, "a_successor_is_not_its_predecessor_and_a_coordinators_memory_outlives_it"),
    (Defect::AnswersForTheDead, "operations_on_the_dead_fail"),
    (
        Defect::LosesMemoryOfTheDead,
        "a_successor_is_not_its_predecessor_and_a_coordinators_memory_outlives_it",
    ),
    (Defect::IgnoresFences, "a_fence_is_seen_by_who_is_fenced"),
    (Defect::CutsDatagramsShort, "a_datagram_arrives_whole_with_its_sender"),
    (Defect::ForgetsSenders, "a_datagram_arrives_whole_with_its_sender"),
    (Defect::LosesNothing, "a_lossy_link_loses_some_datagrams_and_no_operation"),
    (Defect::IgnoresCuts, "over_a_link_that_is_cut_nothing_gets_through_and_no_death_is_reported"),
    (Defect::IgnoresGroups, "a_multicast_reaches_its_group_and_not_its_sender"),
    (Defect::EchoesMulticast, "a_multicast_reaches_its_group_and_not_its_sender"),
    (Defect::ReportsTheFrozen, "a_frozen_process_is_read_written_and_swapped_and_not_reported"),
    (Defect::RepeatsDeaths, "a_death_is_reported_once_as_a_suspicion_and_once_as_a_proof"),
    (Defect::LosesProofs, "a_death_is_reported_once_as_a_suspicion_and_once_as_a_proof"),
    (Defect::IgnoresUnwatch, "a_process_that_is_not_watched_any_more_is_not_reported"),
    (Defect::DeclaresRightsThatItHasNot, "a_peer_without_the_right_changes_nothing"),
    (Defect::IgnoresPermits, "no_revoked_write_is_executed_after_the_permits_completion"),
    (Defect::PermitsEarly, "no_revoked_write_is_executed_after_the_permits_completion"),
    (Defect::GrantsFirst, "changes_of_permissions_take_effect_in_the_order_of_their_posts"),
    (Defect::IgnoresParts, "a_permission_concerns_its_part_of_the_memory_alone"),
];

impl Sound for Simulator {
    const LATE_BY: u32 = 20;
    const HANGS_AFTER: Nanos = Nanos::from_millis(50);

    fn lose_memory(&mut self) {
        self.keeps_memory = false;
    }
}

type Test = (&'static str, fn(&mut Case<Broken<Simulator>>));

macro_rules! table {
    ($testbed:ty, $($test:ident)+) => {
        const TESTS: &[Test] = &[$((stringify!($test), suite::$test::<$testbed>),)+];
    };
}
each_contract_test!(table! Broken<Simulator>,);

fn failing(defect: Option<Defect>) -> Vec<&'static str> {
    PRESENT.set(defect);
    let fails = |(_, test): &&Test| catch_unwind(AssertUnwindSafe(|| suite::run(*test))).is_err();
    TESTS.iter().filter(fails).map(|(name, _)| *name).collect()
}

#[test]
fn each_defect_is_caught_by_its_test() {
    let sound = failing(None);
    // The simulator has no rights, and this wrapper says that it has.
    assert_eq!(sound, ["a_peer_without_the_right_changes_nothing"]);
    for (defect, test) in DEFECTS {
        let caught = failing(Some(*defect));
        assert!(caught.contains(test), "{defect:?} is caught by {caught:?} only");
    }
}
