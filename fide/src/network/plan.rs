//! The trees of all members, and the timeouts that these allow.

use super::plan_error::PlanError;
use super::refine::Refine;
use super::risk::{Risk, risk};
use super::search::{Load, Search, SenderPlan};
use super::topology::Network;
use obol_fabric::Nanos;
use serde::Serialize;
use std::collections::BTreeSet;

/// What one member may assume about frames of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// The host that sends.
    pub from: String,
    /// The host that watches it.
    pub to: String,
    /// The shortest delay, lambda.
    pub latency_ns: u64,
    /// What is added to it at most, delta, whichever of the trees delivers.
    pub jitter_ns: u64,
    /// Period + lambda + 2 delta (FiDe 3.3).
    pub timeout_ns: u64,
}

/// A plan for all members.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The trees, by member.
    pub senders: Vec<SenderPlan>,
    /// Timeouts between members.
    pub pairs: Vec<Pair>,
    /// The largest share of a link's bandwidth that the frames take, in percent.
    pub busiest_percent: f64,
    /// How often all trees of a member fail at once.
    pub risk: Risk,
}

/// Plans the trees of all members, one after the other; later ones avoid links that are in use.
pub fn plan(network: &Network) -> Result<Plan, PlanError> {
    let members = &network.wanted.members;
    let mut load = Load::default();
    let mut senders = Vec::new();
    for &sender in members {
        let receivers: BTreeSet<usize> = members.iter().copied().filter(|m| *m != sender).collect();
        let (trees, cost) = Search::new(network, sender, &receivers, &load)?.run()?;
        let (trees, cost) = Refine::new(network, &load, sender, &receivers).run(trees, cost);
        for edge in trees.iter().flat_map(|tree| &tree.edges) {
            *load.entry(edge.link).or_default() += 1;
        }
        senders.push(SenderPlan { sender, trees, cost });
    }
    let busiest_percent = busiest(network, &load)?;
    let pairs = pairs(network, &senders, &load);
    let risk = risk(network, &senders);
    Ok(Plan { senders, pairs, busiest_percent, risk })
}

/// The largest share of a link's bandwidth, in percent.
fn busiest(network: &Network, load: &Load) -> Result<f64, PlanError> {
    let percent = |link: usize, trees: u32| {
        (u64::from(trees) * network.frame_time(link).0) as f64 / network.wanted.period.0 as f64 * 100.0
    };
    let most = load.iter().map(|(direction, trees)| (percent(direction.0, *trees), direction.0));
    let Some((most, link)) = most.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1))) else {
        return Ok(0.0);
    };
    if most > 100.0 {
        let [a, b] = network.links[link].ends.map(|end| &network.nodes[end].name);
        return Err(PlanError::Overloaded { link: format!("{a} - {b}"), percent: most as u64 });
    }
    Ok(most)
}

/// Derives timeouts from all trees together (FiDe, appendix B, the parameters of a set of trees).
fn pairs(network: &Network, senders: &[SenderPlan], load: &Load) -> Vec<Pair> {
    let wanted = &network.wanted;
    let mut pairs = Vec::new();
    for plan in senders {
        for &to in wanted.members.iter().filter(|m| **m != plan.sender) {
            let bounds: Vec<(u64, u64)> = plan
                .trees
                .iter()
                .map(|tree| {
                    let path = tree.path(to);
                    let latency: u64 = path.iter().map(|d| network.class_of(d.0).latency.0).sum();
                    let queued = |d: &(usize, bool)| {
                        u64::from(load.get(d).map_or(0, |n| n - 1)) * network.frame_time(d.0).0
                    };
                    let jitter: u64 = path.iter().map(|d| network.class_of(d.0).jitter.0 + queued(d)).sum();
                    let latency = latency + wanted.host_latency.0;
                    (latency, latency + jitter + wanted.host_jitter.0)
                })
                .collect();
            let latency = bounds.iter().map(|(low, _)| *low).min().unwrap_or(0);
            let jitter = bounds.iter().map(|(_, high)| *high).max().unwrap_or(0) - latency;
            pairs.push(Pair {
                from: network.nodes[plan.sender].name.clone(),
                to: network.nodes[to].name.clone(),
                latency_ns: latency,
                jitter_ns: jitter,
                timeout_ns: wanted.period.0 + latency + 2 * jitter,
            });
        }
    }
    pairs
}

impl Plan {
    /// The longest timeout of any pair.
    pub fn timeout(&self) -> Nanos {
        Nanos(self.pairs.iter().map(|pair| pair.timeout_ns).max().unwrap_or(0))
    }
}
