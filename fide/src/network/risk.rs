//! How often all trees of a member fail at once: FiDe, appendix C, for the links of the plan
//! itself, and common causes that the operator names.

use super::search::{SenderPlan, Tree};
use super::topology::Network;
use serde::Serialize;
use std::collections::BTreeSet;

/// A common cause that silences a member.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cause {
    /// Its name in the file.
    pub name: String,
    /// A member whose frames reach another one no more, although both still run.
    pub from: String,
    /// That other one.
    pub to: String,
    /// Its probability in a year.
    pub yearly: f64,
}

/// How often all trees of some member fail at once, so that a living member is taken for dead.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Risk {
    /// Links that fail together: an upper bound of the probability in a year.
    pub links_yearly: f64,
    /// Common causes that take a link or switch of every tree.
    pub causes: Vec<Cause>,
    /// The sum of both, at most 1.
    pub yearly: f64,
    /// The mean time between such failures, in years; absent if nothing that the file names causes one.
    pub once_in_years: Option<f64>,
}

/// The upper bound (4) of appendix C: `grouped` times the sum over the links of one tree, given by
/// their probabilities of failure in a year.
///
/// The general formula below it in the paper, with H - 1 trunk links, gives 0 at height 1; its
/// figures follow from min(H, 2) trunk links and max(H - 2, 0) core links for each process.
pub fn compound(grouped: f64, links: impl IntoIterator<Item = f64>) -> f64 {
    (grouped * links.into_iter().sum::<f64>()).min(1.0)
}

pub(super) fn risk(network: &Network, senders: &[SenderPlan]) -> Risk {
    let causes: Vec<Cause> = network
        .causes
        .iter()
        .filter_map(|cause| {
            let (from, to) = silenced(network, senders, &cause.takes)?;
            let [from, to] = [from, to].map(|node| network.nodes[node].name.clone());
            Some(Cause { name: cause.name.clone(), from, to, yearly: cause.failure })
        })
        .collect();
    let links_yearly = links(network, senders);
    let yearly = (links_yearly + causes.iter().map(|cause| cause.yearly).sum::<f64>()).min(1.0);
    let once_in_years = (yearly > 0.0).then(|| 1.0 / yearly);
    Risk { links_yearly, causes, yearly, once_in_years }
}

/// Whenever all trees of a member fail, a link of its n-th tree has failed together with another
/// link. So the bound holds for each n with the n-th trees of all members, and the least one counts.
/// With one tree there is nothing that a second failure would be needed for.
fn links(network: &Network, senders: &[SenderPlan]) -> f64 {
    let union = |n: usize| {
        let trees = senders.iter().filter_map(|sender| sender.trees.get(n));
        let links: BTreeSet<usize> =
            trees.flat_map(|tree| tree.edges.iter().map(|edge| edge.link.0)).collect();
        links.into_iter().map(|link| network.class_of(link).failure).collect::<Vec<_>>()
    };
    match network.wanted.trees {
        1 => union(0).into_iter().sum::<f64>().min(1.0),
        trees => (0..trees).map(|n| compound(network.wanted.grouped, union(n))).fold(1.0, f64::min),
    }
}

/// A sender and a receiver outside of `takes` between which no tree is left without these nodes.
fn silenced(network: &Network, senders: &[SenderPlan], takes: &[usize]) -> Option<(usize, usize)> {
    let lives = |node: usize| !takes.contains(&node);
    let passes = |tree: &Tree, to: usize| {
        tree.path(to).iter().all(|d| network.links[d.0].ends.iter().all(|end| lives(*end)))
    };
    let members = &network.wanted.members;
    senders.iter().filter(|sender| lives(sender.sender)).find_map(|plan| {
        let watchers = members.iter().filter(|m| **m != plan.sender && lives(**m));
        let lost = |to: &&usize| !plan.trees.iter().any(|tree| passes(tree, **to));
        watchers.copied().find(|to| lost(&to)).map(|to| (plan.sender, to))
    })
}
