//! Every interleaving of renewals, decisions, fences, CLEARs, deaths and time in small clusters,
//! with the leases, clearings and views that ship.

use crate::common::hold;
use crate::leases::{Leases, Source, State, Step, TICK, Turn};
use obol_fabric::ViewId;
use obol_membership::mutants::ActiveMutant;
use stateright::{Model, Property};

impl Model for Leases {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![self.init()]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        self.steps(state, steps);
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        self.step(&mut next, step);
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let used = Property::sometimes("a program uses the next view", |_, s: &State| s.program.has_used);
        let mut properties = vec![
            Property::always("once a view was active no view of an earlier base is", |_, s: &State| {
                !s.broken
            }),
            Property::sometimes("the last view is active", |model: &Self, s: &State| {
                u64::from(s.latest) > 1 && s.decided().0 == 1 + model.turns.len() as u64
            }),
            Property::sometimes("a CLEAR is sent", |_, s: &State| !s.sent.is_empty()),
        ];
        properties.extend(self.programs.then_some(used));
        properties
    }
}

/// One holder is replaced by another.
fn replaced(mutant: ActiveMutant) -> Leases {
    Leases::new(&[true, false], false, TICK, &[Turn::Replace { gone: 0, new: 1 }], mutant)
}

/// A holder is replaced, and its successor, too.
fn relayed(mutant: ActiveMutant) -> Leases {
    let turns = [Turn::Replace { gone: 0, new: 1 }, Turn::Replace { gone: 1, new: 2 }];
    Leases::new(&[true, false, false], false, TICK, &turns, mutant)
}

/// A second holder joins, then the first one leaves.
fn joined(mutant: ActiveMutant) -> Leases {
    Leases::new(&[true, false], false, TICK, &[Turn::Join(1), Turn::Leave(0)], mutant)
}

/// A compatible view halves the lease, then the holder is replaced.
fn shortened(mutant: ActiveMutant) -> Leases {
    let turns = [Turn::Lease(TICK), Turn::Replace { gone: 0, new: 1 }];
    Leases::new(&[true, false], false, 2 * TICK, &turns, mutant)
}

/// The holder is replaced, then a compatible view makes the lease longer.
fn lengthened(mutant: ActiveMutant) -> Leases {
    let turns = [Turn::Replace { gone: 0, new: 1 }, Turn::Lease(2 * TICK)];
    Leases::new(&[true, false], false, TICK, &turns, mutant)
}

/// One of two holders leaves.
fn left(mutant: ActiveMutant) -> Leases {
    Leases::new(&[true, true], false, TICK, &[Turn::Leave(0)], mutant)
}

/// One of two holders, whose page an attached app reads as well, leaves.
fn left_with_app(mutant: ActiveMutant) -> Leases {
    Leases { deaths: 2, ..Leases::new(&[true, true], true, TICK, &[Turn::Leave(0)], mutant) }
}

/// A holder leaves, and a program learns of it before its agent.
fn program_ahead(mutant: ActiveMutant) -> Leases {
    Leases { coarse: true, ..Leases::new(&[true, true], true, TICK, &[Turn::Leave(1)], mutant) }
        .with_program()
}

/// After a compatible view, a program's agent leaves.
fn program_excluded(mutant: ActiveMutant) -> Leases {
    let turns = [Turn::Lease(TICK), Turn::Leave(0)];
    Leases { coarse: true, ..Leases::new(&[true, true], true, TICK, &turns, mutant).with_program() }
}

/// A program's agent is removed, and comes back.
fn program_of_rejoined(mutant: ActiveMutant) -> Leases {
    let turns = [Turn::Leave(0), Turn::Rejoin(0)];
    Leases { coarse: true, ..Leases::new(&[true, true], true, TICK, &turns, mutant).with_program() }
}

/// A compatible view halves the lease, then a holder leaves.
fn program_of_shorter_lease(mutant: ActiveMutant) -> Leases {
    let turns = [Turn::Lease(TICK), Turn::Leave(1)];
    Leases { coarse: true, ..Leases::new(&[true, true], true, 2 * TICK, &turns, mutant).with_program() }
}

/// All acceptors are given up, then a holder leaves. A coordinator still shows a view that the
/// recovery did not know, with the number of that one.
fn program_of_recovered(mutant: ActiveMutant) -> Leases {
    let turns = [Turn::Recover, Turn::Leave(1)];
    let model = Leases::new(&[true, true], true, TICK, &turns, mutant);
    Leases { coarse: true, ..model.with_program().with_given_up() }
}

/// A holder is removed, comes back, and is replaced.
fn rejoined(mutant: ActiveMutant) -> Leases {
    let turns = [Turn::Leave(0), Turn::Rejoin(0), Turn::Replace { gone: 0, new: 1 }];
    Leases::new(&[true, false], false, TICK, &turns, mutant)
}

/// A lease lasts three ticks; the first holder's clock runs at half of the rate of true time, all
/// others at one and a half of it: the two ends of a drift bound of one half.
fn drifting(model: Leases) -> Leases {
    let (slow, fast) = (500, 1_500);
    let mut rates = vec![fast; model.rates.len()];
    rates[0] = slow;
    let mut drifting = Leases { rates, leader_rate: fast, ..model };
    drifting.config.timing.drift_ppm = 500_000;
    drifting
}

/// The other way round.
fn slow_heir(model: Leases) -> Leases {
    let mut drifting = drifting(model);
    drifting.rates.reverse();
    drifting.leader_rate = 500;
    drifting
}

/// As `replaced`, with a lease of three ticks.
fn replaced_in_three(mutant: ActiveMutant) -> Leases {
    Leases::new(&[true, false], false, 3 * TICK, &[Turn::Replace { gone: 0, new: 1 }], mutant)
}

/// As `shortened`, from three ticks to two.
fn shortened_to_two(mutant: ActiveMutant) -> Leases {
    let turns = [Turn::Lease(2 * TICK), Turn::Replace { gone: 0, new: 1 }];
    Leases { coarse: true, ..Leases::new(&[true, false], false, 3 * TICK, &turns, mutant) }
}

/// One of three holders leaves.
#[cfg(feature = "mutants")]
fn left_two(mutant: ActiveMutant) -> Leases {
    Leases::new(&[true, true, true], false, TICK, &[Turn::Leave(0)], mutant)
}

const NONE: ActiveMutant = ActiveMutant::NONE;

hold! {
    a_holder_is_replaced_though_a_fence_fails:
        Leases { fence: ViewId(1), failures: 1, ..replaced(NONE) }, at least 37_000 states;
    a_stale_leader_and_a_death_disturb_nobody:
        Leases { leaders: 2, deaths: 1, ..replaced(NONE) }, at least 200_000 states;
    two_leaders_fence_pages_that_were_fenced_before:
        Leases { leaders: 2, fence: ViewId(1), ..replaced(NONE) }, at least 380_000 states;
    a_call_that_is_interrupted_sees_the_fence:
        Leases { split: true, leaders: 2, ..replaced(NONE) }, at least 600_000 states;
    a_call_that_is_interrupted_while_another_holder_stays:
        Leases { split: true, ..left(NONE) }, at least 390_000 states;
    a_holder_stays_when_another_leaves_or_dies:
        Leases { deaths: 1, failures: 1, ..left(NONE) }, at least 160_000 states;
    a_holder_stays_under_two_leaders:
        Leases { coarse: true, leaders: 2, ..left(NONE) }, at least 56_000 states;
    an_attached_app_outlives_its_agent:
        Leases { failures: 1, ..left_with_app(NONE) }, at least 500_000 states;
    an_attached_app_outlives_its_agent_under_two_leaders:
        Leases { coarse: true, leaders: 2, ..left_with_app(NONE) }, at least 660_000 states;
    a_shorter_lease_does_not_hide_a_longer_one: shortened(NONE), at least 310_000 states;
    a_longer_lease_is_no_head_start: lengthened(NONE), at least 1_090_000 states;
    holders_of_every_view_are_cleared:
        Leases { coarse: true, ..relayed(NONE) }, at least 370_000 states;
    without_fences_everybody_waits: without_fences(relayed(NONE)), at least 75_000 states;
    a_newcomer_stays_when_an_older_holder_leaves:
        Leases { coarse: true, ..joined(NONE) }, at least 210_000 states;
    a_slow_clock_outlasts_no_fast_one: drifting(replaced_in_three(NONE)), at least 460_000 states;
    a_fast_holder_is_followed_by_a_slow_one: slow_heir(replaced_in_three(NONE)), at least 400_000 states;
    without_fences_a_fast_leader_waits_for_a_slow_holder:
        without_fences(drifting(replaced_in_three(NONE))), at least 17_000 states;
    a_slow_clock_outlasts_no_fast_one_though_leases_were_longer: drifting(shortened_to_two(NONE)), at least 130_000 states;
    a_program_is_ahead_of_its_agent: program_ahead(NONE), at least 16_000 states;
    a_program_stops_between_any_two_reads: Leases { stepwise: true, ..program_ahead(NONE) }, at least 33_000 states;
    a_program_outlives_its_agent: Leases { deaths: 2, ..program_ahead(NONE) }, at least 64_000 states;
    a_program_is_told_by_two_leaders: Leases { leaders: 2, ..program_ahead(NONE) }, at least 695_000 states;
    a_program_is_excluded: program_excluded(NONE), at least 128_000 states;
    a_program_stops_while_it_is_excluded: Leases { stepwise: true, ..program_excluded(NONE) }, at least 259_000 states;
    a_program_is_excluded_though_a_fence_fails: Leases { failures: 1, ..program_excluded(NONE) }, at least 358_000 states;
    a_program_is_not_its_agents_next_life: program_of_rejoined(NONE), at least 611_000 states;
    a_program_takes_the_shorter_lease: program_of_shorter_lease(NONE), at least 687_000 states;
    a_program_uses_nothing_of_the_other_side_of_a_recovery: program_of_recovered(NONE), at least 491_000 states;
    a_holder_that_comes_back_is_another: Leases { coarse: true, ..rejoined(NONE) }, at least 180_000 states;
}

fn without_fences(mut model: Leases) -> Leases {
    model.config.timing.fencing = false;
    Leases { coarse: true, ..model }
}

/// The only lease cache goes with a holder, then the agent of a program. Its page was renewed by the
/// cache when both views were decided; one fence fails, and the wait is over when `Step::UsePage`
/// comes. Explored breadth first, the model is too large for that.
fn cache_goes(mutant: ActiveMutant) -> State {
    let (h0, other, cache, leader) = (0, 2, 3, 0);
    let turns = [Turn::LeaveWithCache(1), Turn::Leave(h0)];
    let model = Leases::new(&[true, true, true, true], true, 2 * TICK, &turns, mutant);
    let model = Leases { coarse: true, failures: 1, ..model.with_program().with_cache(cache) };
    let view = ViewId;
    let steps = [
        vec![Step::Post(h0), Step::Install(h0), Step::Post(cache), Step::Install(cache)],
        vec![Step::Propose { leader }, Step::Fence(0), Step::Fence(0), Step::Fence(0)],
        vec![Step::Accept { acceptor: 0 }, Step::LeaderLearns { leader, view: view(2) }],
        vec![Step::Look(Source::Leader(leader)), Step::Propose { leader }, Step::FenceFails(0)],
        vec![Step::Fence(1), Step::Accept { acceptor: 0 }, Step::LeaderLearns { leader, view: view(3) }],
        vec![
            Step::Tick(TICK),
            Step::Vouch(h0),
            Step::Tick(TICK),
            Step::Learn { holder: other, view: view(3) },
        ],
        vec![Step::Hear { holder: other, base: view(3) }, Step::Post(other), Step::Install(other)],
        vec![Step::UsePage],
    ];
    let mut state = model.init();
    for step in steps.into_iter().flatten() {
        let mut possible = Vec::new();
        model.steps(&state, &mut possible);
        assert!(possible.contains(&step), "{step:?} is none of {possible:?}");
        model.step(&mut state, step);
    }
    state
}

#[test]
fn a_program_relies_on_no_cache() {
    let state = cache_goes(NONE);
    assert!(state.latest == 3 && state.now < state.holders[0].lease.page().end, "its page has not run out");
    assert!(!state.broken && !state.program.has_used);
}

#[cfg(feature = "mutants")]
mod mutants {
    use super::*;
    use crate::common::caught;
    use obol_membership::Mutant;

    /// The campaign catches it, where such a view is forged.
    #[test]
    fn use_recovered_comes_too_late_because_its_clear_waits_for_every_lease() {
        let model = program_of_recovered(ActiveMutant::new(Mutant::UseRecovered));
        crate::common::holds("use-recovered", model, 491_000);
    }

    #[test]
    fn use_page_end_is_caught() {
        assert!(cache_goes(ActiveMutant::new(Mutant::UsePageEnd)).broken);
    }

    caught! {
        drop_wait_is_caught: DropWait in replaced;
        short_wait_is_caught: ShortWait in |mutant| Leases { ticks: vec![1, TICK - 1], ..replaced(mutant) };
        wait_over_neighbours_is_caught: WaitOverNeighbours in shortened;
        wait_of_new_view_is_caught: WaitOfNewView in shortened;
        inherit_unheld_is_caught: InheritUnheld in lengthened;
        wait_from_proposal_is_caught: WaitFromProposal in replaced;
        end_from_start_is_caught: EndFromStart in relayed;
        all_compatible_is_caught: AllCompatible in left;
        date_from_completion_is_caught: DateFromCompletion in replaced;
        carry_from_learning_is_caught: CarryFromLearning in joined;
        minority_renewal_is_caught: MinorityRenewal in replaced;
        clear_on_majority_is_caught: ClearOnMajority in |mutant| Leases { coarse: true, ..left_two(mutant) };
        suspicion_is_proof_is_caught: SuspicionIsProof in replaced;
        forget_readers_is_caught: ForgetReaders in left_with_app;
        forget_older_holders_is_caught: ForgetOlderHolders in |mutant| Leases { coarse: true, ..relayed(mutant) };
        trust_takeover_is_caught: TrustTakeover in |mutant| Leases { leaders: 2, ..replaced(mutant) };
        timer_from_proposal_is_caught: TimerFromProposal in replaced;
        renewal_lowers_fence_is_caught: RenewalLowersFence in replaced;
        clear_any_view_is_caught: ClearAnyView in |mutant| Leases { coarse: true, ..relayed(mutant) };
        fence_by_write_is_caught: FenceByWrite in replaced;
        failed_fence_is_ack_is_caught: FailedFenceIsAck in |mutant| Leases { fence: ViewId(1), ..replaced(mutant) };
        fence_before_page_is_caught: FenceBeforePage in program_excluded;
        use_before_clear_is_caught: UseBeforeClear in program_ahead;
        use_unnamed_is_caught: UseUnnamed in program_excluded;
        use_over_gap_is_caught: UseOverGap in program_of_shorter_lease;
        use_view_before_is_caught: UseViewBefore in |mutant| Leases { failures: 1, ..program_ahead(mutant) };
        use_given_up_is_caught: UseGivenUp in program_of_recovered;
        ignore_fence_is_caught: IgnoreFence in replaced;
        undrifted_wait_is_caught: UndriftedWait in |mutant| drifting(replaced_in_three(mutant));
        undrifted_clear_is_caught: UndriftedClear in |mutant| without_fences(drifting(replaced_in_three(mutant)));
        undrifted_end_is_caught: UndriftedEnd in |mutant| drifting(replaced_in_three(mutant));
        reinitialise_page_is_caught: ReinitialisePage in |mutant| Leases { coarse: true, ..rejoined(mutant) };
    }
}
