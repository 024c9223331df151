//! A recovery after a disaster, in a simulated cluster whose machines begin with the daemons' start
//! function. Coordinators are lost while agents hold leases, some of them long, and some on views
//! unknown to the operator. The operator recovers at once, and the retired coordinators come back
//! with their old memory.

use crate::disaster::{AGENTS, COORDINATORS, LEASE, LONG_LEASE, Post, Run, acceptor};
use obol_fabric::Nanos;
use obol_membership::{Coordinator, Kind, View};
use std::sync::Arc;

const SEEDS: u64 = 800;
/// The coordinator that is added after the disaster: its node, and its number.
const NEW: (u32, u16) = (COORDINATORS + AGENTS, 4);

/// Situations reached by a run.
#[derive(Default)]
struct Marks {
    /// An agent held a lease when the new coordinator started.
    held: u32,
    /// One held a lease on a view unknown to the operator.
    held_unknown: u32,
    /// One held a lease beyond the maximum of the profile.
    held_long: u32,
    /// A retired coordinator came back with its memory.
    came_back: u32,
    /// An agent on an abandoned host is alive, and stays out.
    shut_out: u32,
}

impl Run {
    /// The new coordinator decides alone, and the retired ones stay out.
    fn ends_well(&self, old: u32, seed: u64) {
        let newest = Arc::clone(self.cluster.view(NEW.0));
        assert_eq!(
            newest.acceptors,
            [acceptor(NEW.0, NEW.1)],
            "seed {seed}: the new coordinator decides alone"
        );
        assert!(newest.retired.iter().eq(1..=COORDINATORS as u16), "seed {seed}");
        assert!(newest.of_kind(Kind::Coordinator).all(|m| m.proposer == NEW.1), "seed {seed}: {newest:?}");
        // It would not start again, even without any message.
        let again = self.cluster.start_with([self.cluster.view(old).as_ref().clone()], seed);
        assert!(again.coordinator(old as u16 + 1).is_retired(), "seed {seed}");
    }
}

/// A wrong wait of the recovered view, if any: a bug that the test must find.
type Planted = Option<Nanos>;

fn run(seed: u64, planted: Planted, marks: &mut Marks) -> Option<String> {
    let mut run = Run::new(seed);
    let all_hold = |run: &Run| Run::agents().all(|node| run.holds(node).is_some());
    run.until("all agents join", all_hold);
    // The view known from an earlier observation, or a file.
    let early = run.cluster.view(COORDINATORS).as_ref().clone();
    // One host may be cut off in the end, and the operator abandons it. The others may miss earlier
    // decisions.
    let given_up = COORDINATORS + run.rng.below(u64::from(AGENTS)) as u32;
    let asks_it = run.rng.coin();
    let deaf = !asks_it && run.rng.coin();
    if deaf {
        Run::agents().filter(|node| *node != given_up).for_each(|node| run.cluster.cut_apart(&[node]));
    }
    // An operator lengthens leases; some coordinators may miss the request, and some agents the
    // result.
    let lease = if run.rng.coin() { LONG_LEASE } else { LEASE + 1 };
    run.request_lease(given_up, lease);
    run.run_below(LEASE);
    if !asks_it && !deaf {
        run.cluster.cut_apart(&[given_up]);
    }
    run.run_below(LEASE / 2);
    for node in 0..COORDINATORS {
        run.cluster.kill(node);
        run.run_below(2_000);
    }
    if deaf {
        run.cluster.heal_all();
        run.cluster.cut_apart(&[given_up]);
    }
    run.run_below(LEASE / 4);
    // The newest view of the reachable processes, or an older one from a file if none is reachable.
    let asked = Run::agents().filter(|node| asks_it || *node != given_up);
    let known = asked.map(|node| run.cluster.view(node).as_ref().clone());
    let found = known.chain([early]).max_by_key(|view| view.rank()).expect("somebody knows a view");
    for node in Run::agents() {
        let Some(holder) = run.holds(node) else { continue };
        marks.held += 1;
        marks.held_unknown += u32::from(holder > found.id);
        let view = run.cluster.view(node);
        marks.held_long += u32::from(view.id == holder && view.lease == Nanos(LONG_LEASE));
    }
    // The operator states the maximum lease of an abandoned host if it may exceed the profile's.
    let recovered = found.recovered(vec![acceptor(NEW.0, NEW.1)], Nanos(lease));
    let recovered = View { wait: planted.unwrap_or(recovered.wait), ..recovered };
    assert_eq!(run.add(Post::Coordinator(NEW.1), Some(recovered.clone())), NEW.0);
    if !asks_it {
        run.cluster.cut_apart(&[given_up]);
    }
    run.run_below(4 * LEASE);
    // A minority comes back, with its memory and without a message: its host shows the view in its
    // region.
    let old = run.rng.below(u64::from(COORDINATORS)) as u32;
    let own = run.cluster.view(old).as_ref().clone();
    let machine = run.machine(old, Some(own));
    run.cluster.restart(old, machine, true);
    marks.came_back += 1;
    run.until("the one that came back hears that it was given up", |run| {
        run.cluster.coordinator(old).is_some_and(Coordinator::is_retired)
    });
    let rest: Vec<u32> = Run::agents().filter(|node| asks_it || *node != given_up).collect();
    run.until("agents act again", |run| {
        let view = run.cluster.view(NEW.0);
        let acts = |node: &u32| run.holds(*node).is_some_and(|held| held > recovered.id);
        rest.iter().all(acts) && rest.iter().all(|node| run.cluster.view(*node).id == view.id)
    });
    run.run_for(4 * LONG_LEASE);
    if !asks_it {
        assert!(run.cluster.view(given_up).id < recovered.id, "it is cut off");
        assert_eq!(run.holds(given_up), None, "seed {seed}: nobody renews its lease");
        marks.shut_out += 1;
    }
    run.ends_well(old, seed);
    run.overlap
}

#[test]
fn no_retired_process_acts_beside_the_recovered_cluster() {
    let mut marks = Marks::default();
    for seed in 0..SEEDS {
        let overlap = run(seed, None, &mut marks);
        assert_eq!(overlap, None);
    }
    let Marks { held, held_unknown, held_long, came_back, shut_out } = marks;
    println!(
        "of {SEEDS} runs: {held} leases ran when the new coordinator began, {held_unknown} on views that the operator did \
         not know, {held_long} long ones; {came_back} came back, {shut_out} agents stayed out"
    );
    for (what, count) in [("held", held), ("unknown", held_unknown), ("long", held_long), ("out", shut_out)] {
        assert!(count > 0, "{what}: no run comes there");
    }
}

#[test]
fn a_recovered_view_that_does_not_wait_or_not_for_the_long_leases_is_found_out() {
    for wait in [0, LEASE * 2] {
        let found = (0..SEEDS).find_map(|seed| run(seed, Some(Nanos(wait)), &mut Marks::default()));
        assert!(found.is_some(), "nothing shows that a recovered view waits for {wait} ns only");
    }
}
