//! Who did what to a cluster, and who allowed it.

pub mod approval;
pub mod log;
