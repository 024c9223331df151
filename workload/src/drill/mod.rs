//! Drills of stores: each in clusters of its own, which end with it.

pub mod presets;
pub mod script;

/// The name of the clusters, before the process's id.
const CLUSTER: &str = "drill-smr";
/// Apps of each cluster beside replicas and clients.
const APPS: u16 = 1;
/// Poll interval of the replicas.
const POLL_EVERY: &str = "20us";
