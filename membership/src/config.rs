//! What all machines of a cluster agree on.

use crate::{ActiveMutant, Timing};
use obol_fabric::{Layout, Release};

/// The configuration of every machine of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// The release of the process.
    pub release: Release,
    /// Durations and counts.
    pub timing: Timing,
    /// The layout of a region.
    pub layout: Layout,
    /// The planted bug, in builds that support one.
    pub mutant: ActiveMutant,
}
