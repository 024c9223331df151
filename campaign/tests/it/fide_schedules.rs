//! The schedules that break FiDe's consensus outside of its assumptions (`fide/tests/it/perfect.rs`),
//! played on this program's own core: a leader whose message misses one receiver, a partition, a
//! leader that is late, and a notice that comes before what it should follow. No row of the table of
//! invariants may break.

use obol_campaign::{Act, Scenario, Script, Timed, Trial, replay};
use obol_membership::ActiveMutant;

/// Seeds that draw clusters.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=60;
/// Leases until the cluster is formed.
const FORMED: u64 = 100;

/// The nodes that a schedule concerns.
struct Nodes {
    /// The first leader.
    leader: u32,
    /// Two members.
    members: [u32; 2],
    all: u32,
    lease: u64,
}

fn nodes(seed: u64) -> Option<Nodes> {
    let scenario = Scenario::draw(seed, ActiveMutant::NONE);
    let members = scenario.agents + scenario.embedded;
    // Beyond the bound of clocks violations are expected.
    if scenario.trial != Trial::Faults || members < 2 || scenario.deciders() < 3 {
        return None;
    }
    let first = scenario.coordinators;
    let lease = scenario.config.timing.lease.0;
    Some(Nodes { leader: 0, members: [first, first + 1], all: scenario.nodes(), lease })
}

/// Plays a schedule, with times in leases after the cluster has formed, on every seed's cluster.
/// Returns the failovers in all of them.
fn survived(schedule: impl Fn(&Nodes) -> Vec<(u64, Act)>) -> u64 {
    let mut failovers = 0;
    let mut played = 0;
    for seed in SEEDS {
        let Some(nodes) = nodes(seed) else { continue };
        let timed = |(at, act)| Timed { at: (FORMED + at) * nodes.lease, after: 0, act };
        let acts: Vec<Timed> = schedule(&nodes).into_iter().map(timed).collect();
        let last = acts.last().expect("acts").at;
        let script = Script {
            why: String::new(),
            seed,
            cluster: None,
            row: None,
            mutant: None,
            calm: true,
            absent: Vec::new(),
            faults_end: last + 10 * nodes.lease,
            survivors: Vec::new(),
            acts,
        };
        // Read back, so that an act that the cluster does not have is an error.
        let script = Script::parse(&script.to_string()).expect("a script that fits its cluster");
        let run = replay(&script, ActiveMutant::NONE, false);
        assert_eq!(run.violation, None, "seed {seed}:\n{script}");
        failovers += run.failovers;
        played += 1;
    }
    assert!(played >= 20, "only {played} clusters");
    failovers
}

#[test]
fn the_core_survives_a_leader_whose_message_misses_one_receiver() {
    let failovers = survived(|n| {
        let [deaf, dies] = n.members;
        vec![
            (0, Act::Cut(n.leader, deaf)),
            (0, Act::Kill(dies)),
            (1, Act::Kill(n.leader)),
            (20, Act::Heal(n.leader, deaf)),
        ]
    });
    assert!(failovers > 0, "the schedules have an effect");
}

#[test]
fn the_core_survives_a_partition() {
    let failovers = survived(|n| {
        let others = (0..n.all).filter(|other| *other != n.leader);
        let cut = others.clone().flat_map(|o| [Act::Cut(n.leader, o), Act::Cut(o, n.leader)]);
        let heal = others.flat_map(|o| [Act::Heal(n.leader, o), Act::Heal(o, n.leader)]);
        let mut acts: Vec<(u64, Act)> = cut.map(|act| (0, act)).collect();
        acts.push((1, Act::Kill(n.members[1])));
        acts.extend(heal.map(|act| (40, act)));
        acts
    });
    assert!(failovers > 0, "the schedules have an effect");
}

#[test]
fn the_core_survives_heartbeats_that_are_late() {
    let failovers = survived(|n| {
        vec![
            (0, Act::Freeze(n.leader)),
            (0, Act::Freeze(n.members[0])),
            (40, Act::Thaw(n.leader)),
            (40, Act::Thaw(n.members[0])),
        ]
    });
    assert!(failovers > 0, "the schedules have an effect");
}

#[test]
fn the_core_survives_a_notice_that_comes_too_early() {
    let failovers = survived(|n| {
        vec![
            (0, Act::Suspect(n.members[0], 0)),
            (0, Act::Suspect(n.leader, 0)),
            (5, Act::Kill(n.leader)),
            (5, Act::Suspect(n.members[1], 0)),
        ]
    });
    assert!(failovers > 0, "the schedules have an effect");
}
