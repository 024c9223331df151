//! Recoveries in the situations that are rare: leases were shortened just before the disaster, a lost
//! view had admitted a member or a lease cache, and the coordinator of the recovery is lost as well,
//! with its memory, while leases of before still run.

use crate::disaster::{COORDINATORS, LEASE, LONG_LEASE, Post, Run, acceptor};
use obol_fabric::{Incarnation, Nanos};
use obol_membership::metrics::Counter;
use obol_membership::view::Numbers;
use obol_membership::{Coordinator, View};
use std::collections::BTreeMap;
use std::sync::Arc;

const SEEDS: u64 = 400;
const STRAGGLER_SEEDS: u64 = 100;

/// What happens before the disaster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Before {
    /// Leases were long; one agent still has one when it is cut off and the operator shortens them.
    Shortened,
    /// Only lost views name this process, which joined last.
    Joined(bool),
}

/// A bug of the recovered view, from the view that it follows and the correct one.
type Planted = fn(&View, View) -> View;

/// Who has which incarnation, of all views that any process knew.
#[derive(Default)]
struct Incarnations(BTreeMap<Incarnation, u64>);

impl Incarnations {
    /// Collects them; an incarnation of two joins is the result.
    fn collect(&mut self, run: &Run, nodes: u32) -> Option<String> {
        for node in 0..nodes {
            for member in &run.cluster.view(node).members {
                let before = *self.0.entry(member.incarnation).or_insert(member.token);
                if before != member.token {
                    return Some(format!(
                        "seed {}: incarnation {} is given out twice",
                        run.seed, member.incarnation
                    ));
                }
            }
        }
        None
    }
}

/// Runs one disaster; returns what is wrong, and counts what it reached.
fn run(seed: u64, planted: Planted, reached: &mut BTreeMap<String, u32>) -> Option<String> {
    let mut run = Run::new(seed);
    let mut incarnations = Incarnations::default();
    run.until("all agents join", |run| Run::agents().all(|node| run.holds(node).is_some()));
    let given_up = COORDINATORS + run.rng.below(u64::from(Run::agents().len() as u32)) as u32;
    let rest: Vec<u32> = Run::agents().filter(|node| *node != given_up).collect();
    let before = match run.rng.below(3) {
        0 => Before::Shortened,
        n => Before::Joined(n == 1),
    };
    // Of the abandoned hosts.
    let mut lost = vec![given_up];
    match before {
        Before::Shortened => {
            let long = |run: &Run, node: u32| run.cluster.view(node).lease == Nanos(LONG_LEASE);
            let all_long = |run: &Run| {
                Run::agents().all(|n| long(run, n) && run.holds(n) == Some(run.cluster.view(n).id))
            };
            assert!(run.set_lease(given_up, LONG_LEASE, all_long), "seed {seed}: leases are long");
            run.run_below(LEASE);
            run.cluster.cut_apart(&[given_up]);
            let short = |run: &Run| rest.iter().all(|n| !long(run, *n));
            assert!(run.set_lease(rest[0], LEASE, short), "seed {seed}: leases are short");
        }
        Before::Joined(cache) => {
            rest.iter().for_each(|node| run.cluster.cut_apart(&[*node]));
            let late = run.add(if cache { Post::Cache } else { Post::Agent }, None);
            rest.iter().for_each(|node| run.cluster.cut_apart(&[*node]));
            lost.push(late);
            run.until("it joins", |run| {
                let who = |node: u32| run.cluster.view(node);
                let has = |node: u32| who(node).members.iter().any(|m| m.address.region == late);
                has(late) && has(given_up) && run.holds(given_up).is_some()
            });
            let more = run.rng.below(4 * LEASE);
            run.run_for(more);
        }
    }
    for node in 0..COORDINATORS {
        run.cluster.kill(node);
    }
    run.cluster.heal_all();
    // They share a host, or at least a network.
    run.cluster.cut_apart(&lost);
    run.run_below(LEASE / 4);
    let nodes = COORDINATORS + Run::agents().len() as u32 + lost.len() as u32 - 1;
    if let Some(wrong) = incarnations.collect(&run, nodes) {
        return Some(wrong);
    }
    let newest = |run: &Run| {
        let views = rest.iter().map(|node| Arc::clone(run.cluster.view(*node)));
        views.max_by_key(|view| view.rank()).expect("an agent is left")
    };
    let found = newest(&run);
    let held = run.holds(given_up).is_some();
    let mut retired: Vec<u16> = found.acceptors.iter().map(|a| a.proposer).collect();
    let recover = |run: &mut Run, found: &View, number: u16| {
        let node = nodes + u32::from(number) - 4;
        let right = found.recovered(vec![acceptor(node, number)], Nanos(LEASE));
        let recovered = planted(found, right);
        assert_eq!(run.add(Post::Coordinator(number), Some(recovered.clone())), node);
        run.cluster.cut_apart(&lost);
        (node, recovered)
    };
    let (mut leader, mut recovered) = recover(&mut run, &found, 4);
    let twice = run.rng.coin();
    if twice {
        run.run_below(LEASE);
        run.cluster.kill(leader);
        retired.push(4);
        // The operator has the first recovery's view.
        let known = [recovered.clone(), View::clone(&newest(&run))];
        let found = known.into_iter().max_by_key(View::rank).expect("there are two");
        (leader, recovered) = recover(&mut run, &found, 5);
    }
    let key = format!(
        "{before:?}, {}, {}",
        if twice { "twice" } else { "once" },
        if held { "held" } else { "ended" }
    );
    *reached.entry(key).or_default() += 1;
    if !recovered.retired.iter().eq(retired.iter().copied()) {
        return Some(format!("seed {seed}: {:?} is retired, not {retired:?}", recovered.retired));
    }
    run.run_below(2 * LEASE);
    let fresh = run.add(Post::Agent, Some(recovered.clone()));
    run.cluster.cut_apart(&lost);
    let acting: Vec<u32> = rest.iter().copied().chain([fresh]).collect();
    run.until("agents act again", |run| {
        let acts = |node: &u32| run.holds(*node).is_some_and(|held| held > recovered.id);
        acting.iter().all(acts)
    });
    // A coordinator of the first set comes back with its memory.
    let old = run.rng.below(u64::from(COORDINATORS)) as u32;
    let own = run.cluster.view(old).as_ref().clone();
    let machine = run.machine(old, Some(own));
    run.cluster.restart(old, machine, true);
    run.until("the one that came back hears that it was given up", |run| {
        run.cluster.coordinator(old).is_some_and(Coordinator::is_retired)
    });
    run.run_for(2 * LONG_LEASE);
    let all = fresh + 1;
    let twofold = incarnations.collect(&run, all);
    let view = run.cluster.view(leader);
    assert!(view.retired.iter().eq(retired.iter().copied()), "seed {seed}: later views keep them");
    twofold.or(run.overlap)
}

/// A majority of the first set lives on, cut off with an agent, and decides beside the recovered cluster,
/// which is not safe. Then the network heals, and it announces another view. Returns what is wrong, and
/// counts the runs in which the recovered cluster refused something.
fn stragglers(seed: u64, planted: Planted, refused: &mut u32) -> Option<String> {
    let mut run = Run::new(seed);
    run.until("all agents join", |run| Run::agents().all(|node| run.holds(node).is_some()));
    let given_up = COORDINATORS + run.rng.below(u64::from(Run::agents().len() as u32)) as u32;
    let rest: Vec<u32> = Run::agents().filter(|node| *node != given_up).collect();
    let theirs = [0, 1, given_up];
    run.cluster.cut_apart(&theirs);
    run.cluster.kill(2);
    run.run_below(LEASE / 4);
    let found = rest.iter().map(|node| Arc::clone(run.cluster.view(*node))).max_by_key(|view| view.rank())?;
    let node = COORDINATORS + Run::agents().len() as u32;
    let recovered = planted(&found, found.recovered(vec![acceptor(node, 4)], Nanos(LEASE)));
    assert_eq!(run.add(Post::Coordinator(4), Some(recovered.clone())), node);
    run.cluster.cut_apart(&theirs);
    let acts = |run: &Run, node: u32| run.holds(node).is_some_and(|held| held > recovered.id);
    run.until("the recovered cluster acts", |run| rest.iter().all(|node| acts(run, *node)));
    run.until("the other side decides", |run| run.cluster.view(0).id > found.id);
    run.run_below(4 * LEASE);
    let before = run.cluster.view(node).id;
    run.cluster.heal_all();
    let comes = run.set_lease(given_up, LEASE / 2, |run| {
        let is_retired = |old| run.cluster.coordinator(old).is_some_and(Coordinator::is_retired);
        is_retired(0) && is_retired(1) && Run::agents().all(|node| acts(run, node))
    });
    // From here on all are of one cluster.
    run.overlap = None;
    run.run_for(2 * LONG_LEASE);
    let recovered_side = rest.iter().chain([&node]);
    let count = recovered_side.map(|node| run.cluster.counter(*node, Counter::DatagramsRefused)).sum::<u64>();
    *refused += u32::from(count > 0);
    let view = run.cluster.view(node);
    let keeps = view.id >= before && view.acceptors == [acceptor(node, 4)] && view.retired.iter().eq(1..=3);
    let wrong = || format!("seed {seed}: retired and follow: {comes}; view {before}, now {view:?}");
    (!comes || !keeps).then(wrong).or(run.overlap.clone())
}

fn right(_: &View, view: View) -> View {
    view
}

fn without_the_wait_of_before(found: &View, view: View) -> View {
    let wait = found.lease.max(Nanos(LEASE)).saturating_add(found.cache_lease);
    View { wait, ..view }
}

fn without_the_lease_of_caches(found: &View, view: View) -> View {
    let wait = found.lease.max(Nanos(LEASE)).max(found.wait).max(found.run_reach);
    View { wait, ..view }
}

fn without_retired_ones(_: &View, view: View) -> View {
    View { retired: Numbers::NONE, ..view }
}

fn without_earlier_retired_ones(found: &View, view: View) -> View {
    View { retired: found.acceptors.iter().map(|a| a.proposer).collect(), ..view }
}

fn without_skipped_incarnations(found: &View, view: View) -> View {
    View { next_incarnation: found.next_incarnation, ..view }
}

#[test]
fn nothing_of_before_acts_beside_a_recovery_however_rare_the_situation() {
    let mut reached = BTreeMap::new();
    for seed in 0..SEEDS {
        assert_eq!(run(seed, right, &mut reached), None);
    }
    println!("{reached:#?}");
    for before in [Before::Shortened, Before::Joined(false), Before::Joined(true)] {
        for often in ["once", "twice"] {
            let key = format!("{before:?}, {often}, held");
            assert!(reached.contains_key(&key), "{key}: no run comes there");
        }
    }
}

#[test]
fn a_majority_that_was_given_up_and_lives_goes_over_to_the_recovered_cluster() {
    let mut refused = 0;
    for seed in 0..STRAGGLER_SEEDS {
        assert_eq!(stragglers(seed, right, &mut refused), None);
    }
    println!("of {STRAGGLER_SEEDS} runs, {refused} refused what the given-up set announced");
    assert!(refused > 0, "no run comes there");
    let found = (0..STRAGGLER_SEEDS).find_map(|seed| stragglers(seed, without_retired_ones, &mut refused));
    println!("without retired numbers: {found:?}");
    assert!(found.is_some(), "nothing shows that a recovered view retires the set before");
}

#[test]
fn each_part_of_a_recovered_view_is_needed() {
    let bugs: [(&str, Planted); 4] = [
        ("the wait of before", without_the_wait_of_before),
        ("the lease of caches", without_the_lease_of_caches),
        ("earlier retired numbers", without_earlier_retired_ones),
        ("skipped incarnations", without_skipped_incarnations),
    ];
    for (what, planted) in bugs {
        let found = (0..SEEDS).find_map(|seed| run(seed, planted, &mut BTreeMap::new()));
        println!("without {what}: {found:?}");
        assert!(found.is_some(), "nothing shows that {what} is needed");
    }
}
