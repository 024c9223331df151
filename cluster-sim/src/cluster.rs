//! The cluster: a world of processes that begin with one configuration and one first view.

use crate::process::ClusterMachine;
use obol_fabric::{Address, Group, Instant, Name, Nanos, ViewId, memory, page, recorder};
use obol_fabric_sim::{Clock, Network, State, World};
use obol_membership::recorder::Stamped;
use obol_membership::view::coordinator_name;
use obol_membership::{Config, Coordinator, Start, View, poll};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A simulated cluster. It dereferences to its [`World`], which has the faults of single processes and
/// links, true time, and all memory.
#[derive(Debug)]
pub struct Cluster<M> {
    world: World<M>,
    config: Config,
    genesis: Arc<View>,
}

/// When, in true time, a process may act by its lease page, if neither the page nor its fence changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLease {
    pub from: u64,
    pub until: u64,
    pub base: ViewId,
    pub view: ViewId,
}

/// The first view of a cluster whose coordinators 1 and so on are at nodes 0 and so on.
fn first_view(coordinators: u32, lease: Nanos, cache_lease: Nanos) -> View {
    let seat =
        |node: u32| (coordinator_name(node as u16 + 1), Address { generation: 1, ..Address::region(node) });
    let seats: Vec<(Name, Address)> = (0..coordinators).map(seat).collect();
    View::genesis(&seats, lease, cache_lease)
}

impl<M: ClusterMachine> Cluster<M> {
    /// A cluster without processes, whose first view names coordinators 1 and so on at nodes 0 and so
    /// on. The same seed and the same calls give the same run.
    pub fn new(config: Config, coordinators: u32, network: Network, seed: u64) -> Self {
        let genesis = first_view(coordinators, config.timing.lease, config.timing.cache_lease);
        Self { world: World::new(config.layout, network, seed), config, genesis: Arc::new(genesis) }
    }

    /// Has all processes that are created from now on begin with a later first view.
    pub fn begin_with(&mut self, change: impl FnOnce(View) -> View) {
        self.genesis = Arc::new(change(View::clone(&self.genesis)));
    }

    pub const fn config(&self) -> &Config {
        &self.config
    }

    pub const fn genesis(&self) -> &Arc<View> {
        &self.genesis
    }

    /// What a process begins with that finds no other view; `seed` differs between processes and lives.
    pub fn start(&self, seed: u64) -> Start {
        self.start_with([], seed)
    }

    /// What a process begins with that finds these views.
    pub fn start_with(&self, found: impl IntoIterator<Item = View>, seed: u64) -> Start {
        Start::new(self.config, &self.genesis, found, seed)
    }

    /// Adds a process, which starts with the next steps; returns its node.
    pub fn add_process(&mut self, machine: M, clock: Clock) -> u32 {
        let groups = groups(&machine);
        self.world.add(machine, clock, groups)
    }

    /// Adds a process that accepts nothing and publishes no view, so that thousands take little memory.
    pub fn add_small_process(&mut self, machine: M, clock: Clock) -> u32 {
        let groups = groups(&machine);
        self.world.add_small(machine, clock, groups)
    }

    /// Runs for this true time.
    pub fn run_for(&mut self, nanos: u64) {
        let end = self.world.now() + nanos;
        self.world.run_until(end);
    }

    /// Whether a node's process runs.
    pub fn runs(&self, node: u32) -> bool {
        self.world.state(node) == State::Running
    }

    /// Whether a node's process has ended.
    pub fn is_dead(&self, node: u32) -> bool {
        self.world.state(node) == State::Dead
    }

    /// The newest view that a node's process knows, or knew last.
    pub fn view(&self, node: u32) -> &Arc<View> {
        self.world.machine(node).process().view()
    }

    /// The coordinator at a node.
    pub fn coordinator(&self, node: u32) -> Option<&Coordinator> {
        self.world.machine(node).process().coordinator()
    }

    /// What a node runs that is not a coordinator.
    pub fn member(&self, node: u32) -> Option<&M::Member> {
        self.world.machine(node).process().member()
    }

    /// Cuts the link between two nodes, in both directions.
    pub fn cut_link(&mut self, one: u32, other: u32) {
        self.world.partition(one, other);
        self.world.partition(other, one);
    }

    /// Cuts these nodes off from all others, and not from each other.
    pub fn cut_apart(&mut self, nodes: &[u32]) {
        for other in (0..self.world.len()).filter(|other| !nodes.contains(other)) {
            nodes.iter().for_each(|node| self.cut_link(*node, other));
        }
    }

    /// Restores all links, and has all nodes reached again.
    pub fn heal_all(&mut self) {
        for node in 0..self.world.len() {
            self.world.open(node);
            for peer in 0..self.world.len() {
                self.world.heal(node, peer);
            }
        }
    }

    /// The views in the memory of these nodes, as a process finds them that starts on their host.
    pub fn published_views(&self, nodes: impl IntoIterator<Item = u32>) -> Vec<View> {
        nodes.into_iter().filter_map(|node| self.published_view(node)).collect()
    }

    fn published_view(&self, node: u32) -> Option<View> {
        let layout = &self.config.layout;
        let area = memory::span(self.world.memory(node), layout.view(), layout.view_bytes() as usize)?;
        let mut bytes = vec![0; layout.view_bytes() as usize];
        memory::copy_out(area, &mut bytes);
        poll::decode_view_area(&bytes)
    }

    /// Whether `active(view)` is true at a node now.
    pub fn is_active(&self, node: u32, view: ViewId) -> bool {
        page::active(self.world.page(node), view, || self.world.local_now(node))
    }

    /// The lease of a node's page, also if it is over or has yet to begin; not if it is fenced.
    pub fn lease(&self, node: u32) -> Option<HeldLease> {
        let words = self.world.page(node);
        let page = page::load(words).filter(|page| page::fenced(words) <= page.view)?;
        let (from, until) = (self.world.to_true(node, page.start), self.world.to_true(node, page.end));
        (from < until).then_some(HeldLease { from, until, base: page.base, view: page.view })
    }

    /// The true time at which `active` of a view with this base or a later one becomes (or is) true at
    /// a node if its page does not change.
    pub fn active_at(&self, node: u32, base: ViewId) -> Option<u64> {
        let lease = self.lease(node).filter(|lease| lease.base >= base)?;
        Some(self.world.now().max(lease.from)).filter(|from| *from < lease.until)
    }

    /// The events of a node's flight recorder from number `next` on, which becomes that of the event
    /// after them. A later life of the process begins with number 0.
    pub fn records_since(&self, node: u32, next: &mut u64) -> Vec<Stamped> {
        let words = self.world.recorder(node);
        let written = words[0].load(Ordering::Relaxed);
        let from = std::mem::replace(next, written);
        recorder::read(words, if from > written { 0 } else { from })
    }

    /// The events of a node's flight recorder, in true time.
    pub fn records(&self, node: u32) -> impl Iterator<Item = Stamped> {
        let in_true_time =
            move |event: Stamped| Stamped { at: Instant(self.world.to_true(node, event.at)), ..event };
        recorder::read(self.world.recorder(node), 0).into_iter().map(in_true_time)
    }
}

/// The groups whose datagrams a process gets.
fn groups(machine: &impl ClusterMachine) -> u32 {
    let decides = machine.process().coordinator().is_some();
    Group::Everyone.bit() | if decides { Group::Coordinators.bit() } else { 0 }
}

impl<M> Deref for Cluster<M> {
    type Target = World<M>;

    fn deref(&self) -> &World<M> {
        &self.world
    }
}

impl<M> DerefMut for Cluster<M> {
    fn deref_mut(&mut self) -> &mut World<M> {
        &mut self.world
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Process, service};
    use obol_fabric::{Layout, Limits};
    use obol_membership::{ActiveMutant, Kind, Member};

    const AGENT: u32 = service::COORDINATORS;

    /// Three coordinators and two agents. All are members, and the agents are active.
    fn cluster() -> Cluster<Process<Member>> {
        let layout = Layout::new(Limits { value_bytes: 2048, ..service::LIMITS }).expect("within the bounds");
        let (timing, mutant) = (service::timing(true), ActiveMutant::NONE);
        let config = Config { release: obol_fabric::Release::THIS, timing, layout, mutant };
        let mut cluster = Cluster::new(config, service::COORDINATORS, Network::default(), 1);
        for node in 0..AGENT + 2 {
            let start = cluster.start(node.into());
            let process = if node < service::COORDINATORS {
                Process::Coordinator(Box::new(start.coordinator(node as u16 + 1)))
            } else {
                let name = Name::new(&format!("node-{node}")).expect("a name");
                Process::Member(Box::new(start.member(Kind::Agent, name)))
            };
            cluster.add_process(process, Clock::new(Instant(1_000_000 * u64::from(node + 1)), 0));
        }
        cluster.run_for(5_000_000);
        let view = cluster.view(0);
        assert_eq!(view.members.len(), 5, "{view:?}");
        cluster
    }

    #[test]
    fn a_lease_lasts_as_it_is_shown() {
        let mut cluster = cluster();
        let (now, view) = (cluster.now(), cluster.view(AGENT).id);
        let lease = cluster.lease(AGENT).expect("it holds one");
        assert!(lease.from <= now && now < lease.until && lease.view == view, "{lease:?} at {now}");
        assert_eq!(cluster.active_at(AGENT, lease.base), Some(now));
        assert_eq!(cluster.active_at(AGENT, view.next()), None);
        // No other process can fence it.
        cluster.cut_apart(&[AGENT]);
        cluster.freeze(AGENT);
        cluster.run_for(lease.until - 1 - now);
        assert!(cluster.is_active(AGENT, view));
        cluster.run_for(1);
        assert!(!cluster.is_active(AGENT, view));
        assert_eq!(cluster.active_at(AGENT, lease.base), None);
    }

    #[test]
    fn nodes_that_are_cut_apart_reach_each_other_only_and_all_after_they_are_healed() {
        let mut cluster = cluster();
        let others = [AGENT, AGENT + 1];
        cluster.cut_apart(&others);
        let is_cut = |cluster: &Cluster<_>, one: u32, other: u32| {
            assert_eq!(cluster.is_cut(one, other), cluster.is_cut(other, one));
            cluster.is_cut(one, other)
        };
        for node in 0..AGENT {
            assert!(others.iter().all(|other| is_cut(&cluster, node, *other)) && !is_cut(&cluster, 0, node));
        }
        assert!(!is_cut(&cluster, AGENT, AGENT + 1));
        cluster.close(0);
        cluster.heal_all();
        let nodes = 0..cluster.len();
        assert!(nodes.clone().all(|one| nodes.clone().all(|other| !is_cut(&cluster, one, other))));
        assert!(!cluster.is_closed(0));
    }

    #[test]
    fn records_are_given_once_and_anew_for_a_later_life() {
        let mut cluster = cluster();
        let mut next = 0;
        let first = cluster.records_since(AGENT, &mut next);
        assert!(!first.is_empty() && cluster.records_since(AGENT, &mut next).is_empty());
        let times: Vec<Instant> = cluster.records(AGENT).map(|event| event.at).collect();
        assert!(times.is_sorted() && times.iter().all(|at| at.0 <= cluster.now()), "{times:?}");
        let name = Name::new("node-again").expect("a name");
        let process = Process::Member(Box::new(cluster.start(99).member(Kind::Agent, name)));
        cluster.restart(AGENT, process, false);
        cluster.run_for(1_000);
        let again = cluster.records_since(AGENT, &mut next);
        assert_eq!(again.first().map(|event| event.number), Some(0));
    }
}
