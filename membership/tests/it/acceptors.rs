//! Row 16: coordinators are added, removed and replaced while the cluster runs, with crashes at any
//! event. Every view is decided by a majority of the acceptors that its predecessor names.

use crate::instant::{Cluster, Role, TIMING};
use obol_fabric::{Nanos, ViewId};
use obol_membership::metrics::Counter;
use obol_membership::wire::Message;
use obol_membership::{ActiveMutant, Kind, Timing, View};
use std::collections::BTreeMap;

/// Three coordinators (nodes 0 to 2), an agent (node 3), and room for seven coordinators.
fn cluster(mutant: ActiveMutant) -> Cluster {
    Cluster::with_room(3, 7, mutant).with_agents(1)
}

const AGENT: usize = 3;

fn newest(cluster: &Cluster) -> View {
    let live = (0..cluster.nodes.len()).filter(|at| cluster.nodes[*at].alive && !cluster.nodes[*at].frozen);
    live.map(|at| cluster.view(at)).max_by_key(|view| view.id).expect("somebody lives").clone()
}

fn numbers(view: &View) -> Vec<u16> {
    view.acceptors.iter().map(|a| a.proposer).collect()
}

fn request(cluster: &mut Cluster, number: u16, decides: bool) {
    let as_of = newest(cluster).id;
    cluster.send_to_coordinators(&Message::SetAcceptor { number, decides, as_of }.encode());
}

/// Repeats a request for a while, as an operator does.
fn request_until_done(cluster: &mut Cluster, number: u16, decides: bool) {
    for _ in 0..40 {
        if newest(cluster).acceptor(number).is_some() == decides {
            return;
        }
        request(cluster, number, decides);
        cluster.run(TIMING.join_every);
    }
}

fn node(cluster: &Cluster, number: u16) -> usize {
    let of = |n: &crate::instant::Node| {
        n.address.region == u32::from(number) && matches!(n.role, Role::Coordinator(_))
    };
    cluster.nodes.iter().position(of).expect("it was started")
}

/// The oracle's memory: all views known to any process.
#[derive(Default)]
struct Oracle(BTreeMap<ViewId, View>);

impl Oracle {
    /// Checks that all processes know the same views, and that a new one was decided by the
    /// acceptors of its predecessor.
    fn check(&mut self, cluster: &Cluster) -> Result<(), String> {
        for at in (0..cluster.nodes.len()).filter(|at| cluster.nodes[*at].alive) {
            let view = cluster.view(at);
            match self.0.get(&view.id) {
                Some(known) if known == view => {}
                Some(_) => return Err(format!("two views {}", view.id)),
                None => {
                    self.decided(cluster, view)?;
                    self.0.insert(view.id, view.clone());
                }
            }
        }
        Ok(())
    }

    fn decided(&self, cluster: &Cluster, view: &View) -> Result<(), String> {
        let Some(before) = view.id.0.checked_sub(1).and_then(|id| self.0.get(&ViewId(id))) else {
            return Ok(());
        };
        let state = |number: u16| cluster.slot_state(node(cluster, number), view.id);
        let accepted = |number: u16| state(number).is_some_and(|state| state.accepted_proposal != 0);
        let by: Vec<u16> = numbers(before).into_iter().filter(|n| accepted(*n)).collect();
        if by.len() >= before.majority() {
            return Ok(());
        }
        Err(format!("view {} was decided by {by:?} of {:?}", view.id, numbers(before)))
    }
}

/// Adds coordinator 4, then removes coordinator 1. The victim dies `after` events after the
/// request, and comes back at the end. `Ok(false)` once the step ends before the victim's time.
fn replace(mutant: ActiveMutant, remove: bool, after: usize, victim: u16) -> Result<bool, String> {
    let mut cluster = cluster(mutant);
    let mut oracle = Oracle::default();
    cluster.add_coordinator(4);
    cluster.run(Nanos::from_millis(2));
    if remove {
        request_until_done(&mut cluster, 4, true);
        assert_eq!(numbers(&newest(&cluster)), [1, 2, 3, 4]);
    }
    oracle.check(&cluster)?;
    let (number, decides) = if remove { (1, false) } else { (4, true) };
    request(&mut cluster, number, decides);
    for _ in 0..after {
        if !cluster.deliver() {
            return Ok(false);
        }
        oracle.check(&cluster)?;
    }
    let at = node(&cluster, victim);
    cluster.kill(at);
    for _ in 0..20_000 {
        if !cluster.deliver() {
            break;
        }
        oracle.check(&cluster)?;
    }
    request_until_done(&mut cluster, number, decides);
    oracle.check(&cluster)?;
    let view = newest(&cluster);
    // A newcomer that died before it was added is not; all other work is done by the remaining
    // coordinators.
    let expected: &[u16] = match (remove, victim) {
        (false, 4) if view.acceptors.len() == 3 => &[1, 2, 3],
        (false, _) => &[1, 2, 3, 4],
        (true, _) => &[2, 3, 4],
    };
    if numbers(&view) != expected {
        return Err(format!("victim {victim} after {after} events: {:?}", numbers(&view)));
    }
    cluster.restart_coordinator(at);
    for _ in 0..20 {
        cluster.run(Nanos::from_millis(1));
        oracle.check(&cluster)?;
    }
    let view = newest(&cluster);
    if !cluster.is_active(AGENT, view.id) {
        return Err(format!("victim {victim} after {after} events: no lease on view {}", view.id));
    }
    let excluded = cluster.counted(AGENT, Counter::Exclusions);
    if excluded > 0 || view.of_kind(Kind::Coordinator).count() != 4 {
        return Err(format!("victim {victim} after {after} events: {view:?}"));
    }
    Ok(true)
}

/// All victims at all events of both steps.
fn each(mutant: ActiveMutant) -> Result<usize, String> {
    let mut tried = 0;
    for remove in [false, true] {
        for victim in 1..=4 {
            let mut after = 0;
            while replace(mutant, remove, after, victim)? {
                after += 1;
                tried += 1;
            }
        }
    }
    Ok(tried)
}

#[test]
fn a_crash_at_any_event_of_a_replacement_loses_nothing() {
    let tried = each(ActiveMutant::NONE).expect("all is well");
    assert!(tried > 80, "only {tried} moments");
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_the_old_acceptors_must_not_decide_the_next_slot() {
    let found = each(ActiveMutant::new(obol_membership::Mutant::StaleAcceptors)).expect_err("caught");
    assert!(found.contains("was decided by"), "{found}");
}

/// One after the other.
fn replace_all(cluster: &mut Cluster) {
    for (old, new) in [(1, 4), (2, 5), (3, 6)] {
        cluster.add_coordinator(new);
        cluster.run(Nanos::from_millis(3));
        request_until_done(cluster, new, true);
        request_until_done(cluster, old, false);
        assert_eq!(newest(cluster).acceptors.len(), 3);
        let gone = node(cluster, old);
        cluster.kill(gone);
        cluster.run(Nanos::from_millis(3));
    }
}

#[test]
fn all_coordinators_are_replaced_and_no_lease_is_disturbed() {
    let mut cluster = cluster(ActiveMutant::NONE);
    let incarnation = cluster.incarnation(AGENT);
    let base = newest(&cluster).base;
    replace_all(&mut cluster);
    let view = newest(&cluster);
    assert_eq!((numbers(&view), view.base), (vec![4, 5, 6], base), "all views were compatible");
    assert!(cluster.is_active(AGENT, view.id));
    assert_eq!(cluster.incarnation(AGENT), incarnation);
    assert_eq!(cluster.counted(AGENT, Counter::RenewalsLate), 0);
    // A process that only knows the first view asks for the current deciders.
    let late = cluster.add_member(Kind::App, "late");
    cluster.run(Nanos::from_millis(10));
    assert!(cluster.is_active(late, newest(&cluster).id));
}

#[test]
fn a_process_that_missed_a_replacement_finds_the_current_deciders() {
    let mut cluster = cluster(ActiveMutant::NONE);
    let before = newest(&cluster);
    cluster.nodes[AGENT].frozen = true;
    replace_all(&mut cluster);
    cluster.nodes[AGENT].frozen = false;
    assert!(!cluster.is_active(AGENT, before.id));
    cluster.run(Nanos::from_millis(20));
    assert!(cluster.is_active(AGENT, newest(&cluster).id));
}

#[test]
fn no_removal_leaves_the_deciders_without_a_live_majority() {
    let mut cluster = cluster(ActiveMutant::NONE);
    cluster.kill(2);
    cluster.run(Nanos::from_millis(3));
    let before = newest(&cluster).id;
    request(&mut cluster, 2, false);
    cluster.run(Nanos::from_millis(3));
    let after = newest(&cluster);
    assert_eq!((numbers(&after), after.id), (vec![1, 2, 3], before), "of 1 and 3 only 1 lives");
    // The dead one can go; and the earlier request is forgotten.
    request_until_done(&mut cluster, 3, false);
    cluster.run(Nanos::from_millis(10));
    assert_eq!(numbers(&newest(&cluster)), [1, 2]);
}

#[test]
fn lease_requests_expire_without_a_majority() {
    let mut cluster = cluster(ActiveMutant::NONE);
    let before = newest(&cluster).lease;
    cluster.kill(1);
    cluster.kill(2);
    cluster.run(Nanos::from_millis(3));
    cluster.send_to_coordinators(&Message::SetLease(Nanos(before.0 * 2)).encode());
    cluster.run(TIMING.join_every.saturating_mul(5));
    (1..3).for_each(|at| cluster.restart_coordinator(at));
    cluster.run(Nanos::from_millis(20));
    request_until_done(&mut cluster, 3, false);
    assert_eq!((numbers(&newest(&cluster)), newest(&cluster).lease), (vec![1, 2], before));
}

fn unseen(mutant: ActiveMutant) -> (Vec<u16>, bool) {
    let mut cluster = cluster(mutant);
    request_until_done(&mut cluster, 5, true);
    let acceptors = numbers(&newest(&cluster));
    cluster.kill(0);
    cluster.run(Nanos::from_millis(20));
    (acceptors, cluster.is_active(AGENT, newest(&cluster).id))
}

#[test]
fn a_newcomer_decides_only_once_it_is_a_member() {
    assert_eq!(unseen(ActiveMutant::NONE), (vec![1, 2, 3], true));
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_an_absent_newcomer_costs_the_majority() {
    assert_eq!(unseen(ActiveMutant::new(obol_membership::Mutant::AddUnseen)), (vec![1, 2, 3, 5], false));
}

#[test]
fn a_late_copy_of_a_request_has_no_effect() {
    let mut cluster = cluster(ActiveMutant::NONE);
    let as_of = newest(&cluster).id;
    request_until_done(&mut cluster, 3, false);
    cluster.add_coordinator(4);
    cluster.run(Nanos::from_millis(3));
    request_until_done(&mut cluster, 4, true);
    request_until_done(&mut cluster, 3, true);
    assert_eq!(numbers(&newest(&cluster)), [1, 2, 3, 4]);
    cluster.send_to_coordinators(&Message::SetAcceptor { number: 3, decides: false, as_of }.encode());
    cluster.run(Nanos::from_millis(3));
    assert_eq!(numbers(&newest(&cluster)), [1, 2, 3, 4]);
}

/// An operator who has given up does not want it any more.
#[test]
fn a_request_that_nobody_repeats_expires() {
    let mut cluster = cluster(ActiveMutant::NONE);
    request(&mut cluster, 4, true);
    cluster.run(TIMING.join_every.saturating_mul(8));
    cluster.add_coordinator(4);
    cluster.run(Nanos::from_millis(3));
    let view = newest(&cluster);
    assert!(view.of_kind(Kind::Coordinator).any(|member| member.proposer == 4), "{view:?}");
    assert_eq!(numbers(&view), [1, 2, 3]);
}

const AFTER: Nanos = Nanos::from_millis(4);
const PAUSE: Nanos = Nanos::from_millis(40);

/// Three coordinators, an agent, and `spares` spares, with automatic replacement.
fn replacing(spares: u16) -> Cluster {
    let timing = Timing { replace: true, replace_after: AFTER, replace_pause: PAUSE, ..TIMING };
    let mut cluster = Cluster::with_timing(3, 7, timing, ActiveMutant::NONE);
    cluster.add_member(Kind::Agent, "node-1");
    cluster.run(Nanos::from_millis(2));
    for number in 4..4 + spares {
        cluster.add_coordinator(number);
        cluster.run(Nanos::from_millis(2));
    }
    cluster.run(PAUSE);
    cluster
}

fn replacements(cluster: &Cluster) -> u64 {
    let coordinates = |at: &usize| matches!(cluster.nodes[*at].role, Role::Coordinator(_));
    (0..cluster.nodes.len()).filter(coordinates).map(|at| cluster.counted(at, Counter::Replacements)).sum()
}

#[test]
fn coordinators_that_fail_one_after_the_other_are_replaced_while_there_are_spares() {
    let mut cluster = replacing(2);
    // The leader stands still: nobody can prove anything, and its memory answers.
    cluster.nodes[0].frozen = true;
    cluster.run(AFTER);
    assert_eq!(numbers(&newest(&cluster)), [1, 2, 3], "it may just have been started anew");
    cluster.run(Nanos::from_millis(3));
    assert_eq!(numbers(&newest(&cluster)), [2, 3, 4]);
    cluster.kill(1);
    cluster.run(Nanos(PAUSE.0 - 4_000_000));
    assert_eq!(numbers(&newest(&cluster)), [2, 3, 4], "one replacement does not follow the other at once");
    cluster.run(Nanos::from_millis(8));
    assert_eq!(numbers(&newest(&cluster)), [3, 4, 5]);
    assert_eq!(replacements(&cluster), 2);
    cluster.kill(2);
    cluster.kill(0);
    cluster.run(PAUSE.saturating_mul(2));
    let view = newest(&cluster);
    assert_eq!(numbers(&view), [3, 4, 5], "no spare is left");
    assert!(cluster.is_active(AGENT, view.id), "of five, three are dead");
}

#[test]
fn a_replaced_coordinator_that_resumes_is_a_spare() {
    let mut cluster = replacing(1);
    cluster.nodes[2].frozen = true;
    cluster.run(AFTER.saturating_mul(2));
    assert_eq!(numbers(&newest(&cluster)), [1, 2, 4]);
    cluster.nodes[2].frozen = false;
    cluster.run(Nanos::from_millis(20));
    let view = newest(&cluster);
    assert!(view.of_kind(Kind::Coordinator).any(|m| m.proposer == 3), "{view:?}");
    cluster.kill(0);
    cluster.run(PAUSE.saturating_add(AFTER.saturating_mul(2)));
    assert_eq!(numbers(&newest(&cluster)), [2, 3, 4]);
}

#[test]
fn a_coordinator_back_in_time_is_not_replaced_and_operator_requests_come_first() {
    let mut cluster = replacing(1);
    cluster.kill(1);
    cluster.run(Nanos(AFTER.0 / 2));
    cluster.restart_coordinator(1);
    cluster.run(PAUSE);
    assert_eq!((numbers(&newest(&cluster)), replacements(&cluster)), (vec![1, 2, 3], 0));
    cluster.kill(1);
    request_until_done(&mut cluster, 4, true);
    request_until_done(&mut cluster, 2, false);
    assert_eq!((numbers(&newest(&cluster)), replacements(&cluster)), (vec![1, 3, 4], 0));
}

/// Decides this many views that change nothing but the lease.
fn decide(cluster: &mut Cluster, views: u64) {
    let end = newest(cluster).id.0 + views;
    for n in 0.. {
        if newest(cluster).id.0 >= end {
            return;
        }
        assert!(n < 2 * views, "only view {} of {end} is decided", newest(cluster).id);
        cluster.send_to_coordinators(&Message::SetLease(Nanos(TIMING.lease.0 - n % 2)).encode());
        cluster.settle();
    }
}

/// Coordinator 3 misses this many views, dead and possibly removed, and comes back with its old
/// memory.
fn comes_back(views: u64, removed: bool) {
    let mut cluster = cluster(ActiveMutant::NONE);
    let slots = u64::from(cluster.config.layout.limits().slots);
    // Every place of its ring has been used, the last of them under another leader.
    decide(&mut cluster, slots);
    if removed {
        request_until_done(&mut cluster, 3, false);
    }
    cluster.kill(2);
    cluster.run(Nanos::from_millis(3));
    decide(&mut cluster, views);
    cluster.restart_coordinator(2);
    cluster.run(Nanos::from_millis(20));
    if removed {
        request_until_done(&mut cluster, 3, true);
    }
    assert_eq!(numbers(&newest(&cluster)), [1, 2, 3]);
    decide(&mut cluster, 2 * slots);
    // Without another one of three, the returned coordinator is needed for every decision.
    cluster.kill(1);
    cluster.run(Nanos::from_millis(20));
    decide(&mut cluster, 2 * slots);
    cluster.run(Nanos::from_millis(5));
    assert!(cluster.is_active(AGENT, newest(&cluster).id), "{views} views, removed: {removed}");
}

#[test]
fn an_acceptor_that_comes_back_decides_again_however_many_views_it_has_missed() {
    for views in [5, 1 << 10, (1 << 15) + 40, 1 << 16, (1 << 16) + 40] {
        comes_back(views, false);
    }
}

#[test]
fn a_number_that_was_removed_can_be_added_again_however_many_views_later() {
    for views in [5, (1 << 15) + 40, (1 << 16) - 2] {
        comes_back(views, true);
    }
}
