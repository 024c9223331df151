//! When a coordinator is replaced automatically: the results of [`Vacancies`] for sequences of
//! views. `acceptors.rs` tests whole clusters.

use crate::instant::{LIMITS, TIMING};
use obol_fabric::{Address, Incarnation, Instant, Layout, Nanos};
use obol_membership::replace::Vacancies;
use obol_membership::view::{Edit, Member, coordinator_name};
use obol_membership::{ActiveMutant, Change, Config, Reason, Timing, View};

const AFTER: Nanos = Nanos(100);
const PAUSE: Nanos = Nanos(1000);

fn config(replace: bool) -> Config {
    let timing = Timing { replace, replace_after: AFTER, replace_pause: PAUSE, ..TIMING };
    Config {
        release: obol_fabric::Release::THIS,
        timing,
        layout: Layout::new(LIMITS).expect("in bounds"),
        mutant: ActiveMutant::NONE,
    }
}

/// A view of `all` coordinators; the first `deciders` of them decide.
fn view(deciders: u16, all: u16) -> View {
    let seats: Vec<_> = (1..=all)
        .map(|n| (coordinator_name(n), Address { generation: 1, ..Address::region(n.into()) }))
        .collect();
    let mut view = View::genesis(&seats, Nanos(10), Nanos(10));
    view.acceptors.truncate(deciders.into());
    view
}

fn without(view: &View, gone: &[u16]) -> View {
    let failed = |n: &u16| {
        let accused = Incarnation(u64::from(*n));
        Change::Failed { accused, accuser: accused, reason: Reason::Heartbeat }
    };
    let edit = Edit { remove: gone.iter().map(failed).collect(), ..Edit::default() };
    view.successor(&edit, view.cleared, ActiveMutant::NONE)
}

fn follow(changes: Option<Change>, view: &View) -> View {
    view.successor(&Edit { acceptor: changes, ..Edit::default() }, view.cleared, ActiveMutant::NONE)
}

fn numbers(view: &View) -> Vec<u16> {
    view.acceptors.iter().map(|a| a.proposer).collect()
}

const fn lives(_: &Member) -> bool {
    true
}

#[test]
fn the_longest_vacant_seat_goes_to_the_oldest_spare_in_two_steps() {
    let config = config(true);
    let first = view(3, 5);
    let mut seen = Vacancies::begin(&first, Instant(5000));
    let second = without(&first, &[3]);
    seen.follow(&first, &second, &config, Instant(7000));
    let third = without(&second, &[1]);
    seen.follow(&second, &third, &config, Instant(7050));
    assert_eq!(seen.due(&third, &config, Instant(7050), lives), Instant(7100));
    assert_eq!(seen.change(&third, &config, Instant(7099), lives), None);
    let fourth = follow(seen.change(&third, &config, Instant(7100), lives), &third);
    assert_eq!(numbers(&fourth), [1, 2, 3, 4]);
    seen.follow(&third, &fourth, &config, Instant(7101));
    // The second step does not wait.
    let fifth = follow(seen.change(&fourth, &config, Instant(7101), lives), &fourth);
    assert_eq!(numbers(&fifth), [1, 2, 4]);
    seen.follow(&fourth, &fifth, &config, Instant(7102));
    // The next one does.
    assert_eq!(seen.change(&fifth, &config, Instant(8101), lives), None);
    assert_eq!(seen.due(&fifth, &config, Instant(8101), lives), Instant(8102));
    let sixth = follow(seen.change(&fifth, &config, Instant(8102), lives), &fifth);
    assert_eq!(numbers(&sixth), [1, 2, 4, 5]);
}

#[test]
fn a_replacement_requires_a_live_majority_in_the_end() {
    let config = config(true);
    let first = view(5, 6);
    let late = Instant(1_000_000);
    let change = |gone: &[u16], lives: &dyn Fn(&Member) -> bool| {
        let view = without(&first, gone);
        Vacancies::begin(&view, Instant(0)).change(&view, &config, late, lives)
    };
    let added = |change| matches!(change, Some(Change::AcceptorAdded(a)) if a.proposer == 6);
    assert!(added(change(&[3, 4, 5], &lives)));
    assert_eq!(change(&[2, 3, 4, 5], &lives), None);
    assert_eq!(change(&[3, 4, 5], &|m| m.proposer != 2), None, "who is suspected counts as gone");
    assert_eq!(change(&[3], &|m| m.proposer != 6), None, "nor does a spare help that is suspected");
    assert_eq!(change(&[3, 6], &lives), None, "nobody can take the seat");
    let four = view(4, 4);
    let of_four = |gone: &[u16]| {
        let view = without(&four, gone);
        Vacancies::begin(&view, Instant(0)).change(&view, &config, late, lives)
    };
    let removed = |change| matches!(change, Some(Change::AcceptorRemoved(a)) if a.proposer == 3);
    assert!(removed(of_four(&[3])), "one less fails no sooner");
    assert!(removed(of_four(&[3, 4])));
    assert_eq!(of_four(&[2, 3, 4]), None);
}

#[test]
fn without_the_profiles_consent_nothing_is_replaced() {
    let view = without(&view(3, 4), &[3]);
    let (off, seen) = (config(false), Vacancies::begin(&view, Instant(0)));
    assert_eq!(seen.change(&view, &off, Instant::NEVER, lives), None);
    assert_eq!(seen.due(&view, &off, Instant(1), lives), Instant::NEVER);
    assert_eq!(seen.missing_spare(&view, &off, Instant::NEVER, None, 7, |_| false), None);
}

#[test]
fn missed_views_may_have_had_every_seat_taken() {
    let config = config(true);
    let first = without(&view(3, 4), &[3]);
    let mut seen = Vacancies::begin(&first, Instant(0));
    let later = follow(None, &follow(None, &first));
    seen.follow(&first, &later, &config, Instant(90));
    assert_eq!(seen.due(&later, &config, Instant(90), lives), Instant(90) + PAUSE);
}

#[test]
fn absences_add_up_until_the_coordinator_has_been_a_member_for_long_enough() {
    let config = config(true);
    let there = view(3, 4);
    let gone = without(&there, &[3]);
    let back = |view: &View| View { id: view.id.next(), ..there.clone() };
    let again = |view: &View| View { id: view.id.next(), ..gone.clone() };
    // It is missing for 40 and a member for `stay`, again and again.
    let due = |stay: u64, confirmed: bool| {
        let (mut seen, mut view, mut now) = (Vacancies::begin(&there, Instant(5000)), there.clone(), 7000);
        for _ in 0..10 {
            let next = again(&view);
            seen.follow(&view, &next, &config, Instant(now));
            if seen.change(&next, &config, Instant(now + 39), lives).is_some() {
                return Some(now + 39);
            }
            if confirmed {
                seen.confirm(Instant(now + 40));
            }
            let member = back(&next);
            seen.follow(&next, &member, &config, Instant(now + 40));
            assert_eq!(seen.change(&member, &config, Instant(now + 40), lives), None, "it is a member");
            (view, now) = (member, now + 40 + stay);
        }
        None
    };
    assert_eq!(due(10, true), Some(7000 + 2 * 50 + 39), "79 and 39");
    assert_eq!(due(99, true), Some(7000 + 2 * 139 + 39));
    assert_eq!(due(100, true), None, "it is back");
    // A process that did not hear of the return in time counts no absence up to when it did.
    assert_eq!(due(10, false), None);
}

#[test]
fn a_spare_is_started_when_a_coordinator_is_missing_without_one() {
    let config = config(true);
    let missing = without(&view(3, 3), &[2]);
    let seen = Vacancies::begin(&missing, Instant(0));
    let wanted =
        |view: &View, now, started| seen.missing_spare(view, &config, Instant(now), started, 7, |n| n == 4);
    assert_eq!(wanted(&missing, 99, None), None);
    assert_eq!(wanted(&missing, 100, None), Some(5), "4 has a process");
    assert_eq!(wanted(&missing, 1099, Some(Instant(100))), None, "one of them has just been started");
    assert_eq!(wanted(&missing, 1100, Some(Instant(100))), Some(5));
    assert_eq!(wanted(&without(&view(3, 4), &[2]), 100, None), None, "4 is a spare");
    assert_eq!(wanted(&without(&view(4, 4), &[2]), 100, None), None, "three are as good as four");
    assert_eq!(seen.missing_spare(&missing, &config, Instant(100), None, 3, |_| false), None);
}
