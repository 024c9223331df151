//! Why there is no plan for a network.

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// No path.
    #[error("no path leads from {from} to {to}: add the missing links, or remove a member")]
    Unreachable {
        /// The sender.
        from: String,
        /// A member.
        to: String,
    },
    /// Not as regular as a data centre's network, which the search relies on.
    #[error(
        "the network is not regular: {distance} hops from {from}, {one} and {other} lead to receivers that are \
         neither the same nor entirely different (FiDe, appendix B); give the switches of a layer the same links"
    )]
    Irregular {
        /// The sender.
        from: String,
        /// A switch.
        one: String,
        /// Another one.
        other: String,
        /// Their distance from the sender.
        distance: u32,
    },
    /// A place that all trees would have to pass.
    #[error(
        "{trees} vertex-disjoint trees from {from} are impossible: the shortest paths to {to} all pass {only}; add a \
         switch beside it, connect the host to a second one, or plan fewer trees"
    )]
    Narrow {
        /// The sender.
        from: String,
        /// The receivers.
        to: String,
        /// How many trees are wanted.
        trees: usize,
        /// The switches there.
        only: String,
    },
    /// Enough switches, but without the links between them.
    #[error(
        "there are no {trees} vertex-disjoint trees of shortest paths from {from}: the links between the switches do \
         not allow them"
    )]
    None {
        /// The sender.
        from: String,
        /// How many trees are wanted.
        trees: usize,
    },
    /// Too much to try.
    #[error(
        "planning from {from} would try {tries} combinations in one layer, more than {most}: plan fewer trees, or a part \
         of the network"
    )]
    TooLarge {
        /// The sender.
        from: String,
        /// Combinations to try.
        tries: u64,
        /// The limit.
        most: u64,
    },
    /// Frames that the links cannot carry.
    #[error(
        "the link {link} would carry {percent} % of its bandwidth: lengthen plan.period or shorten plan.frame_bytes"
    )]
    Overloaded {
        link: String,
        /// The share of its bandwidth.
        percent: u64,
    },
}
