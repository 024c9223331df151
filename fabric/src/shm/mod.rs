//! Shared memory on one host: real processes that map each other's regions.
//!
//! A cluster is a directory of files ([`Cluster`]): a table of who holds which region, and one file per region. A
//! process joins as an [`Endpoint`], which owns a region and runs a machine, or as an [`Attachment`], which takes a
//! seat in the region of its agent. Whatever another process may have written is checked before it is used.

mod attach;
pub(crate) mod cluster;
pub(crate) mod death;
pub(crate) mod error;
mod glance;
mod hearing;
mod impair;
mod late;
pub(crate) mod link;
mod map;
mod memory;
mod occupancy;
pub mod peer;
pub(crate) mod process;
pub mod program;
pub(crate) mod reader;
pub(crate) mod region;
pub mod sched;
pub(crate) mod seats;
pub mod supervise;
pub(crate) mod table;
#[cfg(test)]
pub(crate) mod test;
mod trust;
pub(crate) mod watch;
pub(crate) mod witness;

pub mod clock;
mod fork;
pub mod futex;
pub(crate) mod lanes;

pub use crate::endpoint::{Owner, Wait, Waker};
pub use attach::{Attachment, Beat, Presence};
pub use cluster::{Cluster, MADE_MODE, RegionInfo, default_root, is_made};
pub use error::ShmError;
pub use glance::{Glance, Source, Wanted};
pub use impair::Impairment;
pub use memory::Memory;
pub use process::{Held, Lives, Process, children, fork, reap};
pub use reader::{Reader, SeatInfo};
pub use region::{Observed, Region};
pub use table::{HOST_MAX, Origin, PER_HOST, REGIONS};

/// A process's access to a cluster in shared memory.
pub type Endpoint = crate::endpoint::Endpoint<Memory>;
