//! Row 19: a stream of views is ordered, without repetition, resumable, and reports views that it
//! could not read.

use crate::instant::Cluster;
use obol_fabric::{Address, Name, Nanos, Remote, SeatRequest, ViewId, memory};
use obol_membership::stream::{Item, Regions, Stream};
use obol_membership::{ActiveMutant, Kind, View};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The memory of the first three nodes, as far as it is reachable.
struct Memory<'a> {
    cluster: &'a Cluster,
    unreachable: BTreeSet<usize>,
}

impl Regions for Memory<'_> {
    fn coordinators(&mut self) -> Vec<Address> {
        self.cluster.nodes[..3].iter().map(|node| node.address).collect()
    }
    fn read(&mut self, from: Remote, len: u32) -> Option<Vec<u8>> {
        let at = self.cluster.nodes.iter().position(|n| n.address == from.at)?;
        if self.unreachable.contains(&at) {
            return None;
        }
        let words = memory::span(&self.cluster.nodes[at].memory, from.offset, len as usize)?;
        let mut out = vec![0; len as usize];
        memory::copy_out(words, &mut out);
        Some(out)
    }
}

fn memory(cluster: &Cluster) -> Memory<'_> {
    Memory { cluster, unreachable: BTreeSet::new() }
}

fn stream(cluster: &Cluster, from: Option<u64>) -> Stream {
    Stream::new(from.map(ViewId), Arc::clone(&cluster.genesis), &cluster.config)
}

fn drain(stream: &mut Stream, cluster: &Cluster) -> Vec<Item> {
    std::iter::from_fn(|| stream.next(&mut memory(cluster))).collect()
}

fn cluster(mutant: ActiveMutant) -> Cluster {
    let mut cluster = Cluster::new(3, mutant);
    cluster.add_member(Kind::Agent, "node-1");
    cluster.run(Nanos::from_millis(5));
    cluster
}

/// One more view: a program joins, or leaves.
fn change(cluster: &mut Cluster, n: u64) {
    let address = Address { seat: 1, generation: 1 + n as u32 / 2, ..cluster.nodes[3].address };
    let name = Name::new("app-1").expect("a name");
    let before = cluster.view(0).id;
    let request = if n.is_multiple_of(2) {
        cluster.programs.push(address);
        SeatRequest::Join {
            name,
            token: 1_000 + n,
            address,
            progress_within: Nanos::ZERO,
            release: obol_fabric::Release::THIS,
        }
    } else {
        SeatRequest::Leave
    };
    cluster.seat(3, 1, request);
    cluster.run(Nanos::from_millis(2));
    assert_eq!(cluster.view(0).id, before.next());
}

fn views(items: &[Item]) -> Vec<Arc<View>> {
    let view = |item: &Item| match item {
        Item::View(view) => Arc::clone(view),
        Item::Gap { first, last } => panic!("a gap from {first} to {last}"),
    };
    items.iter().map(view).collect()
}

#[test]
fn a_reader_that_keeps_up_sees_every_view_once() {
    let mut cluster = cluster(ActiveMutant::NONE);
    let mut stream = stream(&cluster, None);
    let mut seen = views(&drain(&mut stream, &cluster));
    assert_eq!(seen.len(), 1, "it begins with the newest");
    for n in 0..40 {
        change(&mut cluster, n);
        if n % 3 == 2 {
            seen.extend(views(&drain(&mut stream, &cluster)));
        }
    }
    seen.extend(views(&drain(&mut stream, &cluster)));
    assert_eq!(seen.len(), 41);
    assert!(seen.windows(2).all(|pair| pair[1].id == pair[0].id.next()));
    assert_eq!(**seen.last().expect("the newest"), *cluster.view(0));
    assert_eq!(drain(&mut stream, &cluster), [], "nothing comes twice");
}

#[test]
fn a_stream_goes_on_where_another_has_ended() {
    let mut cluster = cluster(ActiveMutant::NONE);
    let mut first = stream(&cluster, Some(0));
    let mut seen = views(&drain(&mut first, &cluster));
    assert_eq!(seen[0].id, ViewId::GENESIS);
    change(&mut cluster, 0);
    change(&mut cluster, 1);
    let from = first.position().expect("it has begun");
    let mut second = stream(&cluster, Some(from.0));
    seen.extend(views(&drain(&mut second, &cluster)));
    let ids: Vec<u64> = seen.iter().map(|view| view.id.0).collect();
    assert_eq!(ids, (0..=cluster.view(0).id.0).collect::<Vec<_>>());
}

/// A reader that is slower than the ring: the gap, and the views after it.
fn late(mutant: ActiveMutant) -> (Vec<Item>, ViewId, ViewId) {
    let mut cluster = cluster(mutant);
    let from = cluster.view(0).id.next();
    let mut stream = stream(&cluster, Some(from.0));
    for n in 0..10 {
        change(&mut cluster, n);
    }
    (drain(&mut stream, &cluster), from, cluster.view(0).id)
}

#[test]
fn a_slow_reader_gets_the_gap() {
    let (items, from, newest) = late(ActiveMutant::NONE);
    let Some(Item::Gap { first, last }) = items.first() else { panic!("no gap: {items:?}") };
    assert_eq!(*first, from);
    let rest = views(&items[1..]);
    assert_eq!(rest[0].id, last.next());
    assert_eq!(rest.last().expect("the newest").id, newest);
    // Of four slots, one is prepared for the next view.
    assert_eq!(rest.len(), 3);
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_a_silent_gap_is_seen() {
    let (items, from, _) = late(ActiveMutant::new(obol_membership::Mutant::DropForSlow));
    assert!(matches!(&items[0], Item::View(view) if view.id > from), "{items:?}");
}

#[test]
fn a_dead_coordinators_memory_is_readable_and_a_minority_is_not_needed() {
    let mut cluster = cluster(ActiveMutant::NONE);
    let from = cluster.view(0).id.next();
    change(&mut cluster, 0);
    change(&mut cluster, 1);
    for lost in 0..3 {
        let mut memory = Memory { cluster: &cluster, unreachable: BTreeSet::from([lost]) };
        let mut stream = stream(&cluster, Some(from.0));
        let items: Vec<Item> = std::iter::from_fn(|| stream.next(&mut memory)).collect();
        assert_eq!(views(&items).len(), 2, "without coordinator {lost}");
    }
    let mut one = Memory { cluster: &cluster, unreachable: BTreeSet::from([0, 1]) };
    let mut stream = stream(&cluster, Some(from.0));
    assert_eq!(stream.next(&mut one), None, "one of three does not show what was decided");
    assert_eq!(views(&drain(&mut stream, &cluster)).len(), 2, "it waits for the others");
}
