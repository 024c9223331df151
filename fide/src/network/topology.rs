//! What a file describes: nodes, links, and the placement to plan.

use obol_fabric::Nanos;
use std::collections::VecDeque;

/// A host or a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name in the file.
    pub name: String,
    /// Whether it is a host. Hosts do not forward.
    pub host: bool,
}

/// What all links of a class have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Its name in the file.
    pub name: String,
    /// Bandwidth in each direction, in Mbit/s.
    pub rate_mbit: u32,
    /// The shortest delay of a frame, the forwarding of the switch behind it included.
    pub latency: Nanos,
    /// What other traffic adds to it at most.
    pub jitter: Nanos,
    /// The probability that such a link fails at least once in a year.
    pub failure: f64,
}

/// A link, which carries frames in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The nodes that it connects.
    pub ends: [usize; 2],
    pub class: usize,
}

/// An event that takes several nodes at once, such as the loss of a power feed.
#[derive(Clone, Debug, PartialEq)]
pub struct CommonCause {
    /// Its name in the file.
    pub name: String,
    /// The probability that it happens at least once in a year.
    pub failure: f64,
    /// The nodes that fail with it.
    pub takes: Vec<usize>,
}

/// The placement to plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// The hosts that watch each other.
    pub members: Vec<usize>,
    /// Vertex-disjoint trees for each of them.
    pub trees: usize,
    /// The pause between two frames of a host.
    pub period: Nanos,
    /// The bytes of a frame on the wire.
    pub frame_bytes: u32,
    /// The shortest delay in the sending and the receiving host together.
    pub host_latency: Nanos,
    /// What the two hosts add to it at most.
    pub host_jitter: Nanos,
    /// The probability that a link that fails does so together with others.
    pub grouped: f64,
}

/// A network. Created by [`Network::parse`], which checks it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Network {
    pub name: String,
    /// Its description, in one line.
    pub description: String,
    /// Hosts, then switches, in the order of the file.
    pub nodes: Vec<Node>,
    /// The classes of links.
    pub classes: Vec<Class>,
    /// All links; no two connect the same nodes.
    pub links: Vec<Link>,
    /// Common causes of failures.
    pub causes: Vec<CommonCause>,
    /// The placement to plan.
    pub wanted: Wanted,
}

/// A link in one direction: its number, and whether from its second end to its first.
pub(crate) type Direction = (usize, bool);

impl Network {
    /// For each node its neighbours, each with the link to it.
    pub(crate) fn neighbours(&self) -> Vec<Vec<(usize, Direction)>> {
        let mut all = vec![Vec::new(); self.nodes.len()];
        for (number, link) in self.links.iter().enumerate() {
            let [a, b] = link.ends;
            all[a].push((b, (number, false)));
            all[b].push((a, (number, true)));
        }
        all
    }

    /// The class of a link.
    pub(crate) fn class_of(&self, link: usize) -> &Class {
        &self.classes[self.links[link].class]
    }

    /// How long a link is busy with one frame: sigma / beta.
    pub(crate) fn frame_time(&self, link: usize) -> Nanos {
        let bits = u64::from(self.wanted.frame_bytes) * 8;
        Nanos((bits * 1000).div_ceil(u64::from(self.class_of(link).rate_mbit)))
    }

    /// Hops from a node to all others; hosts are not passed through.
    pub(crate) fn distances(&self, from: usize) -> Vec<Option<u32>> {
        let neighbours = self.neighbours();
        let mut distances = vec![None; self.nodes.len()];
        distances[from] = Some(0);
        let mut queue = VecDeque::from([(from, 0)]);
        while let Some((at, hops)) = queue.pop_front() {
            if self.nodes[at].host && at != from {
                continue;
            }
            for &(next, _) in &neighbours[at] {
                if distances[next].is_none() {
                    distances[next] = Some(hops + 1);
                    queue.push_back((next, hops + 1));
                }
            }
        }
        distances
    }
}
