//! A recovery gave up a set of acceptors that lives on, with their memory, and decides any number of
//! views before the two sides reach each other again.

use crate::instant::{Cluster, TIMING};
use obol_fabric::{Address, Nanos, Remote, ViewId, memory};
use obol_membership::stream::{Regions, Stream};
use obol_membership::view::{Acceptor, RECOVERY_SKIP};
use obol_membership::wire::Message;
use obol_membership::{ActiveMutant, Kind, View};
use std::sync::Arc;

/// The first coordinators, which the recovery gives up.
const OLD: [usize; 3] = [0, 1, 2];
/// Long enough for a new leader, for leases, and for processes to join again.
const WHILE: Nanos = Nanos::from_millis(200);

/// The memory of coordinators of both sides.
struct Memory<'a> {
    cluster: &'a Cluster,
    order: [usize; 3],
}

impl Regions for Memory<'_> {
    fn coordinators(&mut self) -> Vec<Address> {
        self.order.iter().map(|at| self.cluster.nodes[*at].address).collect()
    }
    fn read(&mut self, from: Remote, len: u32) -> Option<Vec<u8>> {
        let node = self.cluster.nodes.iter().find(|node| node.address == from.at)?;
        let words = memory::span(&node.memory, from.offset, len as usize)?;
        let mut out = vec![0; len as usize];
        memory::copy_out(words, &mut out);
        Some(out)
    }
}

struct Sides {
    cluster: Cluster,
    /// An agent on the side of the recovery, and one on the other.
    ours: usize,
    theirs: usize,
    /// The coordinator of the recovery.
    new: usize,
    /// The view that the recovery continued from.
    found: View,
}

fn set_lease(cluster: &mut Cluster, at: usize, below: u64) {
    cluster.send_to(at, &Message::SetLease(Nanos(TIMING.lease.0 - below)).encode());
}

fn recover() -> Sides {
    let mut cluster = Cluster::with_room(3, 7, ActiveMutant::NONE);
    let ours = cluster.add_member(Kind::Agent, "node-1");
    let theirs = cluster.add_member(Kind::Agent, "node-2");
    cluster.run(Nanos::from_millis(5));
    let old = [OLD.as_slice(), &[theirs]].concat();
    cluster.cut_off(ours, &old);
    let found = cluster.view(ours).clone();
    let four = Acceptor { proposer: 4, address: Address::region(4) };
    let recovered = found.recovered(vec![four], TIMING.lease_max);
    let new = cluster.add_coordinator_from(4, &recovered, &old);
    cluster.run(Nanos::from_millis(20));
    assert!(cluster.view(ours).id >= recovered.id && cluster.is_active(ours, cluster.view(ours).id));
    Sides { cluster, ours, theirs, new, found }
}

impl Sides {
    /// The old set starts again, from this number of views after the one that was found.
    fn advance_old(&mut self, views: u64) {
        let id = ViewId(self.found.id.0 + views);
        let far = View { id, base: id, cleared: id, ..self.found.clone() };
        for at in OLD {
            self.cluster.restart_coordinator_from(at, &far);
        }
        self.cluster.run(WHILE);
        let view = self.cluster.view(0);
        assert!(view.id > id && self.numbers(0) == [1, 2, 3], "it decides: view {}", view.id);
    }

    fn numbers(&self, at: usize) -> Vec<u16> {
        self.cluster.view(at).acceptors.iter().map(|acceptor| acceptor.proposer).collect()
    }

    /// The recovered cluster has kept its views, and decides.
    fn assert_ours(&mut self, at_least: ViewId) {
        let before = self.cluster.view(self.new).id;
        assert!(before >= at_least, "no view of the recovered cluster is lost: {before}");
        set_lease(&mut self.cluster, self.new, 3_000);
        self.cluster.run(WHILE);
        for at in [self.ours, self.new] {
            let view = self.cluster.view(at);
            assert_eq!(self.numbers(at), [4], "node {at}, view {}", view.id);
            assert_eq!(view.retired.iter().collect::<Vec<_>>(), [1, 2, 3], "node {at}, view {}", view.id);
            assert_eq!(view.lease, Nanos(TIMING.lease.0 - 3_000), "it decides");
        }
        assert!(self.cluster.is_active(self.ours, self.cluster.view(self.ours).id));
    }
}

#[test]
fn a_set_that_was_given_up_and_decided_few_views_goes_over_to_the_recovered_cluster() {
    for views in [100, 4_500] {
        let mut sides = recover();
        let ours = sides.cluster.view(sides.new).id;
        sides.advance_old(views);
        sides.cluster.cuts.clear();
        set_lease(&mut sides.cluster, 0, 1_000);
        sides.cluster.run(WHILE);
        sides.assert_ours(ours);
        // Its coordinators were informed at their announcement, and its member follows.
        let view = sides.cluster.view(sides.theirs);
        assert_eq!(
            (view.id, &view.retired),
            (sides.cluster.view(sides.new).id, &sides.cluster.view(0).retired)
        );
    }
}

#[test]
fn a_set_that_was_given_up_takes_nothing_from_the_recovered_cluster_whatever_it_decided() {
    for views in [RECOVERY_SKIP, RECOVERY_SKIP + 1, RECOVERY_SKIP + 400, 2 * RECOVERY_SKIP] {
        let mut sides = recover();
        let ours = sides.cluster.view(sides.new).id;
        sides.advance_old(views);
        sides.cluster.cuts.clear();
        for below in [1_000, 2_000] {
            set_lease(&mut sides.cluster, 0, below);
            sides.cluster.run(WHILE);
        }
        sides.assert_ours(ours);
        // An observer takes its view for the newest, in whatever order it reads.
        let newest = sides.cluster.view(sides.new);
        for order in [[0, 1, sides.new], [sides.new, 0, 1]] {
            let mut regions = Memory { cluster: &sides.cluster, order };
            let stream = Stream::new(None, Arc::clone(&sides.cluster.genesis), &sides.cluster.config);
            assert_eq!(stream.newest(&mut regions).as_deref(), Some(newest));
        }
    }
}
