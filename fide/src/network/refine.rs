//! What the rule of the search costs, that a tree passes each class at one node, is won back here
//! where the links of a layer differ: trees take nodes that no tree uses, or exchange theirs, as long
//! as that makes all of them together cheaper. The paper has nothing like it.

use super::search::{Edge, Load, Tree, edge_cost};
use super::topology::{Direction, Network};
use obol_rng::Rng;
use std::collections::BTreeSet;

/// A node behind the sender, and what may come before it, with the link.
type Reachable = (usize, Vec<(usize, Direction)>);
/// The tree of each node, if it has one.
type Owners = Vec<Option<usize>>;

/// Nodes among which trees are looked for at most: the effort grows with their square.
const NODES_MAX: usize = 48;
/// Among so few nodes the search begins several times.
const NODES_FEW: usize = 24;
const STARTS: u32 = 40;

pub(super) struct Refine<'n> {
    network: &'n Network,
    load: &'n Load,
    sender: usize,
    receivers: &'n BTreeSet<usize>,
    /// Every node behind the sender, by distance, with what may come before it.
    before: Vec<Reachable>,
}

impl<'n> Refine<'n> {
    pub(super) fn new(
        network: &'n Network,
        load: &'n Load,
        sender: usize,
        receivers: &'n BTreeSet<usize>,
    ) -> Self {
        let distances = network.distances(sender);
        let neighbours = network.neighbours();
        let mut before: Vec<(u32, Reachable)> = Vec::new();
        for (node, distance) in distances.iter().enumerate() {
            let Some(distance) = distance.filter(|distance| *distance > 0) else { continue };
            if network.nodes[node].host && !receivers.contains(&node) {
                continue;
            }
            let forwards = |other: usize| other == sender || !network.nodes[other].host;
            let from = neighbours[node]
                .iter()
                .filter(|(other, _)| forwards(*other) && distances[*other] == Some(distance - 1));
            // The links are numbered from this node; the frames come the other way.
            let from = from.map(|(other, (link, back))| (*other, (*link, !*back))).collect();
            before.push((distance, (node, from)));
        }
        before.sort();
        let before = before.into_iter().map(|(_, reachable)| reachable).collect();
        Self { network, load, sender, receivers, before }
    }

    /// Trees at most as expensive as these, which cost `cost`, and their cost.
    pub(super) fn run(&self, trees: Vec<Tree>, cost: u64) -> (Vec<Tree>, u64) {
        let inner: Vec<usize> =
            self.before.iter().map(|(node, _)| *node).filter(|node| !self.receivers.contains(node)).collect();
        if inner.len() > NODES_MAX || trees.len() < 2 {
            return (trees, cost);
        }
        let mut owners: Owners = vec![None; self.network.nodes.len()];
        for (number, tree) in trees.iter().enumerate() {
            for node in tree.nodes().filter(|node| !self.receivers.contains(node)) {
                owners[node] = Some(number);
            }
        }
        let mut best = self.descend(&inner, owners, (trees, cost));
        // A search that only descends ends in the nearest valley; others begin elsewhere.
        let mut rng = Rng::new(self.sender as u64);
        let starts = if inner.len() <= NODES_FEW { STARTS } else { 0 };
        for _ in 0..starts {
            let count = best.0.len();
            let mut drawn: Owners = vec![None; self.network.nodes.len()];
            for node in &inner {
                drawn[*node] = Some(rng.below(count as u64) as usize);
            }
            let Some(trees) = self.grow_all(&drawn, count) else { continue };
            let cost = trees.iter().map(|tree| self.cost(tree)).sum();
            let found = self.descend(&inner, drawn, (trees, cost));
            if found.1 < best.1 {
                best = found;
            }
        }
        best
    }

    fn descend(&self, inner: &[usize], mut owners: Owners, mut best: (Vec<Tree>, u64)) -> (Vec<Tree>, u64) {
        while let Some((changed, trees, cost)) = self.step(inner, &owners, &best) {
            owners = changed;
            best = (trees, cost);
        }
        best
    }

    fn grow_all(&self, owners: &Owners, count: usize) -> Option<Vec<Tree>> {
        (0..count).map(|tree| self.grow(owners, tree)).collect()
    }

    /// The first change of at most two nodes' trees that is cheaper.
    fn step(
        &self,
        inner: &[usize],
        owners: &Owners,
        best: &(Vec<Tree>, u64),
    ) -> Option<(Owners, Vec<Tree>, u64)> {
        let count = best.0.len();
        // Each of two nodes, or one twice, is given to a tree or to none.
        let given = |(node, tree): (usize, usize), changed: &mut Owners| {
            changed[node] = (tree < count).then_some(tree);
        };
        let new = |node: usize, tree: usize| owners[node] != (tree < count).then_some(tree);
        let gifts = || {
            let all = inner.iter().flat_map(|node| (0..=count).map(|tree| (*node, tree)));
            all.filter(|(node, tree)| new(*node, *tree))
        };
        let mut two = gifts().flat_map(|one| {
            gifts().filter(move |other| other.0 <= one.0).map(move |other| {
                let mut changed = owners.clone();
                given(one, &mut changed);
                given(other, &mut changed);
                changed
            })
        });
        two.find_map(|changed| {
            let trees = self.grow_all(&changed, count)?;
            let cost = trees.iter().map(|tree| self.cost(tree)).sum();
            (cost < best.1).then_some((changed, trees, cost))
        })
    }

    /// The tree over the nodes that it owns in which every node is reached as cheaply as possible.
    fn grow(&self, owners: &Owners, tree: usize) -> Option<Tree> {
        let mut reached: Vec<Option<(u64, usize, Direction)>> = vec![None; self.network.nodes.len()];
        for (node, from) in &self.before {
            if !self.receivers.contains(node) && owners[*node] != Some(tree) {
                continue;
            }
            let cheapest = from.iter().filter_map(|(parent, link)| {
                let so_far = match &reached[*parent] {
                    Some((cost, ..)) => *cost,
                    None if *parent == self.sender => 0,
                    None => return None,
                };
                Some((so_far + edge_cost(self.network, self.load, *link, 1), *parent, *link))
            });
            reached[*node] = cheapest.min();
        }
        let mut used = vec![false; self.network.nodes.len()];
        for receiver in self.receivers {
            let mut at = *receiver;
            while at != self.sender {
                used[at] = true;
                at = reached[at].as_ref()?.1;
            }
        }
        let order = self.before.iter().map(|(node, _)| node).filter(|node| used[**node]);
        let edges = order
            .filter_map(|node| reached[*node].map(|(_, parent, link)| Edge { parent, child: *node, link }));
        Some(Tree { edges: edges.collect() })
    }

    /// What a tree costs: see `search`.
    fn cost(&self, tree: &Tree) -> u64 {
        let mut behind = vec![0; self.network.nodes.len()];
        let mut sum = 0;
        // From the receivers to the root: children come after their parents.
        for edge in tree.edges.iter().rev() {
            let own = u64::from(self.receivers.contains(&edge.child));
            let receivers: u64 = behind[edge.child] + own;
            behind[edge.parent] += receivers;
            sum += edge_cost(self.network, self.load, edge.link, receivers);
        }
        sum
    }
}
