//! Good and bad rollouts, as snapshots of clusters that go through them.

use super::roster::{Looks, Roster};
use super::track::Track;
use super::{Ahead, Subject, judge};
use obol_fabric::{Address, Incarnation, Instant, Name, Nanos, Page, ViewId};
use obol_membership::metrics::Counter;
use obol_membership::view::{Acceptor, Departed, Member};
use obol_membership::{Kind, View};
use obol_observe::{Health, Process, Snapshot};
use std::sync::Arc;

/// A cluster of three coordinators, and whatever a rollout makes of it.
struct Cluster {
    track: Track,
    now: Instant,
    view: View,
    /// Renewals of each member in time, and late, at each step.
    renews: (u64, u64),
    counted: (u64, u64),
    reasons: Vec<String>,
    /// Whether the members have a lease of the newest view.
    renews_lease: bool,
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

impl Cluster {
    fn new(members: &[(&str, Kind)]) -> Self {
        let coordinators = [1, 2, 3].map(|n| (name(&format!("coord-{n}")), Address::region(n)));
        let mut cluster = Self {
            track: Track::default(),
            now: Instant(1_000_000_000),
            view: View::genesis(&coordinators, Nanos(1), Nanos(1)),
            renews: (10, 0),
            counted: (0, 0),
            reasons: Vec::new(),
            renews_lease: true,
        };
        members.iter().for_each(|(called, kind)| cluster.join(called, *kind));
        cluster.steps(10);
        cluster.track.begin();
        cluster
    }

    fn join(&mut self, called: &str, kind: Kind) {
        let incarnation = Incarnation(self.view.next_incarnation.0.max(10) + 1);
        self.view.next_incarnation = incarnation;
        let first = self.view.members[0];
        let mut proposer = 0;
        if kind == Kind::Coordinator {
            proposer = called.rsplit('-').next().and_then(|n| n.parse().ok()).expect("a number");
            self.view.acceptors.push(Acceptor { proposer, address: Address::region(u32::from(proposer)) });
        }
        self.view.members.push(Member { incarnation, kind, name: name(called), proposer, ..first });
        self.view.id = self.view.id.next();
    }

    fn end(&mut self, called: &str, left: bool) {
        let at = self.view.members.iter().position(|member| member.name.as_str() == called);
        let gone = self.view.members.remove(at.expect("a member"));
        self.decides_no_more(gone.proposer);
        self.view.id = self.view.id.next();
        self.view.departed.push(Departed::of(&gone, self.view.id, left));
    }

    /// The coordinator of this number becomes a spare, if it is there.
    fn decides_no_more(&mut self, proposer: u16) {
        self.view.acceptors.retain(|acceptor| acceptor.proposer != proposer);
    }

    /// Snapshots, 100 ms apart.
    fn steps(&mut self, n: u64) {
        for _ in 0..n {
            self.now += Nanos::from_millis(100);
            self.counted = (self.counted.0 + self.renews.0, self.counted.1 + self.renews.1);
            let view = Arc::new(self.view.clone());
            let lease = Page {
                view: view.id,
                base: view.base,
                start: Instant(0),
                end: if self.renews_lease { Instant::NEVER } else { Instant(0) },
                confirmed: Instant(0),
                ..Page::default()
            };
            let process = |member: &Member| {
                let mut process = Process {
                    alive: true,
                    process: obol_fabric::host::Process { pid: 1, started: member.incarnation.0 },
                    incarnation: member.incarnation,
                    view: Some(Arc::clone(&view)),
                    lease: Some((lease, ViewId(0))),
                    ..Process::missing(member.name, member.kind)
                };
                process.counters[Counter::RenewalsOnTime as usize] = self.counted.0;
                process.counters[Counter::RenewalsLate as usize] = self.counted.1;
                process
            };
            let health = if self.reasons.is_empty() { Health::Healthy } else { Health::Degraded };
            let snapshot = Snapshot {
                at: self.now,
                view: Some(Arc::clone(&view)),
                processes: view.members.iter().map(process).collect(),
                remote: Vec::new(),
                health,
                reasons: self.reasons.clone(),
            };
            self.track.take(&snapshot, Vec::new(), &[], |_| None);
        }
    }

    /// The command has ended.
    fn settle(&mut self) {
        self.steps(1);
        self.track.settle();
    }

    fn roster(&self) -> Roster {
        self.track.roster()
    }

    /// Why the gate refuses it, as its members are concerned.
    fn refused(&self) -> String {
        let mut looks = Looks::default();
        looks.take(Health::Healthy, &[], Some(&self.roster()));
        looks.best().into_iter().chain(self.roster().crashes()).collect::<Vec<_>>().join("; ")
    }
}

const NODES: [(&str, Kind); 6] = [
    ("node-1", Kind::Agent),
    ("node-2", Kind::Agent),
    ("node-3", Kind::Agent),
    ("app-1", Kind::App),
    ("app-2", Kind::App),
    ("app-3", Kind::App),
];

const PODS: [(&str, Kind); 3] = [
    ("shop-7d9fbc6b5-bbbbb", Kind::App),
    ("shop-7d9fbc6b5-ccccc", Kind::App),
    ("shop-7d9fbc6b5-ddddd", Kind::App),
];

#[test]
fn two_nodes_that_are_stopped_are_missed_with_their_programs() {
    let mut cluster = Cluster::new(&NODES);
    for gone in ["app-1", "node-1", "app-2", "node-2"] {
        cluster.end(gone, true);
    }
    cluster.settle();
    cluster.steps(20);
    assert_eq!(cluster.refused(), "app-1, app-2, node-1, node-2 did not come back, or cannot act");
}

#[test]
fn two_programs_that_are_killed_are_missed() {
    let mut cluster = Cluster::new(&NODES);
    cluster.end("app-1", false);
    cluster.end("app-2", false);
    cluster.settle();
    cluster.steps(20);
    assert_eq!(cluster.refused(), "app-1, app-2 did not come back, or cannot act");
}

#[test]
fn pods_that_crash_again_and_again_are_refused_also_if_they_run_when_it_is_judged() {
    let mut cluster = Cluster::new(&PODS);
    for ((old, _), new) in PODS.iter().zip(["bbbbb", "ccccc", "ddddd"]).take(2) {
        cluster.end(old, true);
        cluster.join(&format!("shop-85c4d-{new}"), Kind::App);
    }
    cluster.settle();
    for _ in 0..3 {
        cluster.steps(10);
        for new in ["bbbbb", "ccccc"] {
            cluster.end(&format!("shop-85c4d-{new}"), false);
            cluster.join(&format!("shop-85c4d-{new}"), Kind::App);
        }
    }
    cluster.steps(2);
    assert_eq!(
        cluster.refused(),
        "shop-85c4d-bbbbb, shop-85c4d-ccccc joined again and again, the last time just now; shop-85c4d-bbbbb \
         (3 times), shop-85c4d-ccccc (3 times) joined since the command began, and failed"
    );
    // They crash no more, and are still not what was asked for.
    cluster.steps(100);
    assert!(cluster.refused().starts_with("shop-85c4d-bbbbb (3 times)"), "{}", cluster.refused());
}

#[test]
fn who_cannot_act_only_while_a_view_changes_is_not_said_not_to_have_come_back() {
    let mut cluster = Cluster::new(&NODES);
    cluster.end("app-3", false);
    cluster.settle();
    let mut looks = Looks::default();
    let mut look = |cluster: &Cluster, reason: &str| {
        let reasons = [reason.to_owned()];
        assert!(!looks.take(Health::Degraded, &reasons, Some(&cluster.roster())));
    };
    cluster.steps(1);
    look(&cluster, "app-3 failed");
    // The last look is in the middle of a view change.
    cluster.renews_lease = false;
    cluster.steps(1);
    look(&cluster, "node-1 knows view 19, the newest is 20");
    let why = ["app-3 did not come back, or cannot act", "the cluster is degraded: app-3 failed"];
    assert_eq!(looks.best(), why);
    // One good look is enough.
    let mut looks = Looks::default();
    assert!(!looks.take(Health::Unavailable, &[], None));
    assert!(looks.take(Health::Degraded, &["app-3 failed".to_owned()], None), "that is allowed");
    assert_eq!(looks.best(), [""; 0]);
}

#[test]
fn pods_that_end_well_again_and_again_are_refused_too() {
    let mut cluster = Cluster::new(&PODS);
    cluster.settle();
    for _ in 0..3 {
        cluster.steps(10);
        cluster.end("shop-7d9fbc6b5-bbbbb", true);
        cluster.join("shop-7d9fbc6b5-bbbbb", Kind::App);
    }
    cluster.steps(2);
    assert_eq!(cluster.refused(), "shop-7d9fbc6b5-bbbbb joined again and again, the last time just now");
}

#[test]
fn a_cluster_that_is_degraded_is_so_for_as_long_as_it_was() {
    let mut cluster = Cluster::new(&NODES);
    cluster.reasons = vec!["the store does not serve".to_owned()];
    cluster.steps(20);
    cluster.reasons.clear();
    cluster.steps(20);
    let since = cluster.track.periods().since;
    assert_eq!((since.degraded, since.unavailable), (Nanos::from_millis(2000), Nanos::ZERO));
}

/// Two of three replicas are restarted at once: all members are there, and the log has no majority.
#[test]
fn a_store_that_is_left_without_a_majority_is_refused_though_all_members_are_back() {
    let replicas = ["smr-1", "smr-2", "smr-3"].map(|name| (name, Kind::App));
    let mut cluster = Cluster::new(&[&NODES[..], &replicas].concat());
    for (one, kind) in &replicas[..2] {
        cluster.end(one, false);
        cluster.join(one, *kind);
    }
    let why = "the store does not serve: no replica leads, which needs a majority of its voters";
    cluster.reasons = vec![why.to_owned()];
    cluster.settle();
    cluster.steps(20);
    assert_eq!(cluster.refused(), "", "no member is missed");
    let mut looks = Looks::default();
    assert!(!looks.take(Health::Degraded, &cluster.reasons, Some(&cluster.roster())));
    assert_eq!(looks.best(), [format!("the cluster is degraded: {why}")]);
    assert!(Looks::default().take(Health::Degraded, &cluster.reasons, None), "it can be allowed");
}

#[test]
fn renewals_that_come_later_and_later_are_refused() {
    let mut cluster = Cluster::new(&NODES);
    cluster.renews = (10_000, 0);
    cluster.steps(100);
    cluster.settle();
    cluster.renews = (1000, 1);
    cluster.steps(100);
    assert_eq!(cluster.refused(), "");
    let limit = Subject::LateRenewals.limit("0.05%").expect("a limit");
    let compared = judge(&[limit], cluster.track.periods(), Ahead { longest: Nanos::ZERO }).remove(0);
    let why = compared.complaint();
    assert!(
        why.as_ref().is_some_and(|why| why.starts_with("late renewals while settling 0.0999 %")),
        "{why:?}"
    );
}

#[test]
fn rollouts_after_which_all_is_as_before_pass() {
    // Nothing changes.
    let mut cluster = Cluster::new(&NODES);
    cluster.settle();
    cluster.steps(20);
    assert_eq!(cluster.refused(), "");

    // Each is restarted, the last one right before the end of the command.
    let mut cluster = Cluster::new(&NODES);
    for (one, kind) in NODES {
        cluster.end(one, true);
        cluster.steps(5);
        cluster.join(one, kind);
    }
    cluster.settle();
    cluster.steps(20);
    assert_eq!(cluster.refused(), "");

    // Pods have other names afterwards.
    let mut cluster = Cluster::new(&PODS);
    for (at, (one, _)) in PODS.iter().enumerate() {
        cluster.join(["shop-85c4d-fffff", "shop-85c4d-ggggg", "shop-85c4d-hhhhh"][at], Kind::App);
        cluster.steps(5);
        cluster.end(one, true);
    }
    cluster.settle();
    cluster.steps(20);
    assert_eq!(cluster.refused(), "");

    // One program more; and a coordinator is replaced by another one.
    let mut cluster = Cluster::new(&NODES);
    cluster.join("app-4", Kind::App);
    cluster.end("coord-3", true);
    cluster.join("coord-4", Kind::Coordinator);
    cluster.settle();
    cluster.steps(20);
    assert_eq!(cluster.refused(), "");

    // A migration joins, does its work, and leaves.
    let mut cluster = Cluster::new(&NODES);
    cluster.join("migrate", Kind::App);
    cluster.steps(5);
    cluster.end("migrate", true);
    cluster.settle();
    cluster.steps(20);
    assert_eq!(cluster.refused(), "");

    // Kills of an exercise are not crashes, even many of them, up to the end.
    let mut cluster = Cluster::new(&NODES);
    cluster.settle();
    cluster.track.set_exercises(true);
    for _ in 0..9 {
        cluster.end("app-1", false);
        cluster.steps(2);
        cluster.join("app-1", Kind::App);
        cluster.steps(2);
    }
    cluster.track.set_exercises(false);
    cluster.steps(1);
    assert_eq!(cluster.refused(), "");
}

#[test]
fn a_coordinator_that_is_removed_without_another_in_its_place_is_missed_whichever_it_is() {
    for (at, gone) in ["coord-1", "coord-2", "coord-3"].into_iter().enumerate() {
        let mut cluster = Cluster::new(&NODES);
        cluster.end(gone, true);
        cluster.settle();
        cluster.steps(20);
        let why = format!(
            "{gone} did not come back, or cannot act; fewer coordinators decide than before (2, not 3): {gone} no more"
        );
        assert_eq!(cluster.refused(), why);
        // Two of them: those that are left do not hide it.
        let other = ["coord-2", "coord-3", "coord-1"][at];
        cluster.end(other, true);
        cluster.steps(20);
        assert!(cluster.refused().contains("than before (1, not 3)"), "{}", cluster.refused());
    }
    // It still runs, as a spare.
    let mut cluster = Cluster::new(&NODES);
    cluster.decides_no_more(2);
    cluster.view.id = cluster.view.id.next();
    cluster.settle();
    cluster.steps(20);
    assert_eq!(cluster.refused(), "fewer coordinators decide than before (2, not 3): coord-2 no more");
    // Nor is it hidden by two that came where three went.
    let mut cluster = Cluster::new(&NODES);
    for (gone, new) in [("coord-1", "coord-4"), ("coord-2", "coord-5")] {
        cluster.join(new, Kind::Coordinator);
        cluster.end(gone, true);
    }
    cluster.steps(5);
    cluster.end("coord-3", true);
    cluster.settle();
    cluster.steps(20);
    assert!(
        cluster.refused().starts_with("coord-1, coord-2, coord-3 did not come back"),
        "{}",
        cluster.refused()
    );
    // It can be allowed.
    assert!(Looks::default().take(Health::Healthy, &[], None));
}

#[test]
fn a_program_of_another_sort_takes_nobodys_place() {
    let mut cluster = Cluster::new(&NODES);
    cluster.end("app-3", true);
    cluster.join("other-1", Kind::App);
    cluster.settle();
    cluster.steps(20);
    assert_eq!(cluster.refused(), "app-3 did not come back, or cannot act");
    // Nor does one program take the places of two.
    let mut cluster = Cluster::new(&PODS);
    cluster.end(PODS[0].0, true);
    cluster.end(PODS[1].0, true);
    cluster.join("shop-85c4d-fffff", Kind::App);
    cluster.settle();
    cluster.steps(20);
    assert_eq!(cluster.refused(), "shop-7d9fbc6b5-ccccc did not come back, or cannot act");
}
