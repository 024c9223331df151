//! The search for the trees of one sender, after FiDe, appendix B: layer by layer, from the
//! receivers up.
//!
//! Nodes at one distance from the sender that lead to the same receivers form a class, and every
//! tree passes each class at exactly one node. For a set X of K nodes of a class, the cheapest K
//! disjoint trees with these roots are found from those of the classes below: for each class below,
//! all sets Y of K of its nodes and all ways to attach them to X are tried.
//!
//! The cost is a sum over trees and receivers, not the maximum over receivers. With a maximum the
//! choices for two classes below would not be independent, which the algorithm relies on: what is
//! cheapest for each by itself may burden the same tree twice.

use super::plan_error::PlanError;
use super::topology::{Direction, Network};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::rc::Rc;

/// An edge of a multicast tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) parent: usize,
    pub(crate) child: usize,
    /// The link from one to the other.
    pub(crate) link: Direction,
}

/// A multicast tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// A parent comes before its children.
    pub(crate) edges: Vec<Edge>,
}

/// The trees of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SenderPlan {
    /// The member.
    pub sender: usize,
    pub trees: Vec<Tree>,
    /// Their cost when they were chosen, in nanoseconds: see the search.
    pub cost: u64,
}

impl Tree {
    /// The links from the root to a node, in this order; empty if the tree does not lead there.
    pub(crate) fn path(&self, to: usize) -> Vec<Direction> {
        let mut path = Vec::new();
        let mut at = to;
        while let Some(edge) = self.edges.iter().find(|edge| edge.child == at) {
            path.push(edge.link);
            at = edge.parent;
        }
        path.reverse();
        path
    }

    /// Its edges, as parent and child, by number of node.
    pub fn edges(&self) -> impl Iterator<Item = (usize, usize)> {
        self.edges.iter().map(|edge| (edge.parent, edge.child))
    }

    /// The nodes that it passes, without the sender.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = usize> {
        self.edges.iter().map(|edge| edge.child)
    }
}

/// Trees that already use each link in each direction.
pub(crate) type Load = FxHashMap<Direction, u32>;

/// Combinations that the search of one class may try.
const TRIES_MAX: u64 = 4_000_000;

/// Nodes at one distance that lead to the same receivers.
#[derive(Debug)]
struct Layer {
    nodes: Vec<usize>,
    receivers: BTreeSet<usize>,
    distance: u32,
}

/// The cheapest trees below given roots.
#[derive(Debug)]
struct Best {
    cost: u64,
    /// For each class below: its number, and for each root its node there.
    below: Vec<(usize, Vec<usize>)>,
}

pub(crate) struct Search<'n> {
    network: &'n Network,
    load: &'n Load,
    links: FxHashMap<(usize, usize), Direction>,
    layers: Vec<Layer>,
    sender: usize,
    trees: usize,
    known: FxHashMap<(usize, Vec<usize>), Option<Rc<Best>>>,
}

impl<'n> Search<'n> {
    /// Sorts the nodes into classes.
    pub(crate) fn new(
        network: &'n Network,
        sender: usize,
        receivers: &BTreeSet<usize>,
        load: &'n Load,
    ) -> Result<Self, PlanError> {
        let name = |node: usize| network.nodes[node].name.clone();
        let from = network.distances(sender);
        let to: Vec<_> = receivers.iter().map(|r| (*r, network.distances(*r))).collect();
        if let Some(lost) = receivers.iter().find(|r| from[**r].is_none()) {
            return Err(PlanError::Unreachable { from: name(sender), to: name(*lost) });
        }
        let mut layers: Vec<Layer> = Vec::new();
        for (node, distance) in from.iter().enumerate() {
            let Some(distance) = *distance else { continue };
            if network.nodes[node].host && node != sender && !receivers.contains(&node) {
                continue;
            }
            let leads_to = |r: &usize, back: &[Option<u32>]| {
                back[node].is_some_and(|rest| Some(distance + rest) == from[*r])
            };
            let reached: BTreeSet<usize> =
                to.iter().filter(|(r, back)| leads_to(r, back)).map(|(r, _)| *r).collect();
            if reached.is_empty() {
                continue;
            }
            let mut same = layers.iter_mut().filter(|layer| layer.distance == distance);
            if let Some(layer) = same.find(|layer| !layer.receivers.is_disjoint(&reached)) {
                if layer.receivers != reached {
                    let (one, other) = (name(layer.nodes[0]), name(node));
                    return Err(PlanError::Irregular { from: name(sender), one, other, distance });
                }
                layer.nodes.push(node);
            } else {
                layers.push(Layer { nodes: vec![node], receivers: reached, distance });
            }
        }
        let mut links = FxHashMap::default();
        for (number, link) in network.links.iter().enumerate() {
            let [a, b] = link.ends;
            links.insert((a, b), (number, false));
            links.insert((b, a), (number, true));
        }
        let trees = network.wanted.trees;
        Ok(Self { network, load, links, layers, sender, trees, known: FxHashMap::default() })
    }

    /// The cheapest disjoint trees and their cost in nanoseconds.
    pub(crate) fn run(mut self) -> Result<(Vec<Tree>, u64), PlanError> {
        let name = |node: usize| self.network.nodes[node].name.clone();
        if self.trees > 1 {
            let narrow = |layer: &&Layer| {
                let inner = layer.distance > 0 && !self.is_leaf(layer);
                inner && layer.nodes.len() < self.trees
            };
            if let Some(layer) = self.layers.iter().find(narrow) {
                return Err(PlanError::Narrow {
                    from: name(self.sender),
                    to: layer.receivers.iter().map(|r| name(*r)).collect::<Vec<_>>().join(", "),
                    trees: self.trees,
                    only: layer.nodes.iter().map(|n| name(*n)).collect::<Vec<_>>().join(", "),
                });
            }
        }
        let none = PlanError::None { from: name(self.sender), trees: self.trees };
        let Some(root) = self.layers.iter().position(|layer| layer.distance == 0) else { return Err(none) };
        if let Some(tries) = self.layers.iter().map(|l| self.tries(l)).find(|tries| *tries > TRIES_MAX) {
            return Err(PlanError::TooLarge { from: name(self.sender), tries, most: TRIES_MAX });
        }
        let roots = vec![self.sender; self.trees];
        let Some(best) = self.best(root, &roots) else { return Err(none) };
        let mut trees = vec![Tree::default(); self.trees];
        self.collect(&best, &roots, &mut trees);
        Ok((trees, best.cost))
    }

    fn is_leaf(&self, layer: &Layer) -> bool {
        self.network.nodes[layer.nodes[0]].host && layer.distance > 0
    }

    /// Combinations of roots and nodes below that a class may need.
    fn tries(&self, layer: &Layer) -> u64 {
        let choose =
            |n: usize| (0..self.trees).fold(1_u64, |all, k| all.saturating_mul((n - k.min(n)) as u64));
        let widest = self.below(layer).map(|l| self.layers[l].nodes.len()).max().unwrap_or(0);
        choose(layer.nodes.len()).max(1).saturating_mul(choose(widest))
    }

    /// The classes one hop below.
    fn below(&self, layer: &Layer) -> impl Iterator<Item = usize> {
        let is_below = |(_, l): &(usize, &Layer)| {
            l.distance == layer.distance + 1 && l.receivers.is_subset(&layer.receivers)
        };
        self.layers
            .iter()
            .enumerate()
            .filter(is_below)
            .map(|(number, _)| number)
            .collect::<Vec<_>>()
            .into_iter()
    }

    /// The cheapest trees whose roots are `roots`, in this order.
    fn best(&mut self, layer: usize, roots: &[usize]) -> Option<Rc<Best>> {
        if let Some(known) = self.known.get(&(layer, roots.to_vec())) {
            return known.clone();
        }
        let found = self.find(layer, roots).map(Rc::new);
        self.known.insert((layer, roots.to_vec()), found.clone());
        found
    }

    fn find(&mut self, layer: usize, roots: &[usize]) -> Option<Best> {
        let mut best = Best { cost: 0, below: Vec::new() };
        if self.is_leaf(&self.layers[layer]) {
            return Some(best);
        }
        let classes: Vec<usize> = self.below(&self.layers[layer]).collect();
        for class in classes {
            let leaf = self.is_leaf(&self.layers[class]);
            let nodes = self.layers[class].nodes.clone();
            let receivers = self.layers[class].receivers.len() as u64;
            let attached = if leaf {
                // A second tree over the same link to the receiver would be no redundancy.
                if roots.len() > 1 && roots.iter().all(|root| *root == self.sender) {
                    return None;
                }
                vec![vec![nodes[0]; roots.len()]]
            } else {
                arrangements(&nodes, roots.len())
            };
            let mut cheapest: Option<(u64, Vec<usize>)> = None;
            for chosen in attached {
                let Some(edges) = self.edges(roots, &chosen, receivers) else { continue };
                let below = if leaf { Some(0) } else { self.sorted_best(class, &chosen) };
                let Some(below) = below else { continue };
                let cost = edges + below;
                if cheapest.as_ref().is_none_or(|(least, _)| cost < *least) {
                    cheapest = Some((cost, chosen));
                }
            }
            let (cost, chosen) = cheapest?;
            best.cost += cost;
            best.below.push((class, chosen));
        }
        Some(best)
    }

    /// The cost below nodes in any order, on which it does not depend.
    fn sorted_best(&mut self, class: usize, chosen: &[usize]) -> Option<u64> {
        let mut sorted = chosen.to_vec();
        sorted.sort_unstable();
        self.best(class, &sorted).map(|best| best.cost)
    }

    /// What the links from roots to nodes cost, if they exist.
    fn edges(&self, roots: &[usize], nodes: &[usize], receivers: u64) -> Option<u64> {
        let mut cost = 0;
        for (root, node) in roots.iter().zip(nodes) {
            let direction = *self.links.get(&(*root, *node))?;
            cost += edge_cost(self.network, self.load, direction, receivers);
        }
        Some(cost)
    }

    fn collect(&mut self, best: &Best, roots: &[usize], trees: &mut [Tree]) {
        for (class, chosen) in &best.below {
            for (tree, (root, node)) in trees.iter_mut().zip(roots.iter().zip(chosen)) {
                if let Some(link) = self.links.get(&(*root, *node)) {
                    tree.edges.push(Edge { parent: *root, child: *node, link: *link });
                }
            }
            if self.is_leaf(&self.layers[*class]) {
                continue;
            }
            // The search keeps what is below in ascending order of the roots.
            let mut order: Vec<usize> = (0..chosen.len()).collect();
            order.sort_by_key(|n| chosen[*n]);
            let sorted: Vec<usize> = order.iter().map(|n| chosen[*n]).collect();
            let Some(below) = self.best(*class, &sorted) else { continue };
            let mut parts = vec![Tree::default(); order.len()];
            self.collect(&below, &sorted, &mut parts);
            for (part, n) in parts.into_iter().zip(order) {
                trees[n].edges.extend(part.edges);
            }
        }
    }
}

/// What a link costs in a tree that leads to `receivers` behind it: its largest delay for each, and
/// the delay that the new tree adds to each of those that use it.
pub(crate) fn edge_cost(network: &Network, load: &Load, direction: Direction, receivers: u64) -> u64 {
    let class = network.class_of(direction.0);
    let others = u64::from(load.get(&direction).copied().unwrap_or(0));
    receivers * (class.latency.0 + class.jitter.0) + others * network.frame_time(direction.0).0
}

/// All ordered choices of `count` of `nodes`.
fn arrangements(nodes: &[usize], count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let shorter = arrangements(nodes, count - 1);
    let longer = |chosen: &Vec<usize>| {
        let rest = nodes.iter().filter(|node| !chosen.contains(node));
        rest.map(|node| chosen.iter().copied().chain([*node]).collect()).collect::<Vec<_>>()
    };
    shorter.iter().flat_map(longer).collect()
}
