//! Numbers of regions and hosts.

use crate::layout::PROPOSERS_MAX;

/// Region numbers of a cluster, including 0, which is never assigned.
pub const REGIONS: u32 = 1024;
/// Region numbers of each host in a cluster of several hosts: host `h` assigns those from `h *
/// PER_HOST` on. The numbers below the first host's are the coordinators'.
pub const PER_HOST: u32 = 32;
/// The maximum host number. Host 0 is all of a cluster within one host.
pub const HOST_MAX: u8 = (REGIONS / PER_HOST - 1) as u8;
/// The first number that is not a coordinator's.
pub const FIRST_FREE: u32 = PROPOSERS_MAX as u32 + 1;
