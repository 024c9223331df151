//! Shared memory on one host: real processes that map each other's regions.
//!
//! A cluster is a directory of files ([`Cluster`]): a table of who holds which region, and one file per region. A
//! process joins as an [`Endpoint`], which owns a region and runs a machine, or as an [`Attachment`], which takes a
//! seat in the region of its agent. Whatever another process may have written is checked before it is used.

mod attach;
mod cluster;
mod death;
mod endpoint;
mod error;
mod link;
mod map;
mod occupancy;
pub(crate) mod process;
mod reader;
mod region;
mod run;
pub mod sched;
mod seats;
mod table;
#[cfg(test)]
mod test;
mod watch;

pub mod clock;
pub mod futex;
pub mod lanes;

pub use attach::{Attachment, Presence};
pub use cluster::{Cluster, RegionInfo, default_root};
pub use endpoint::{Endpoint, Owner, Waker};
pub use error::ShmError;
pub use process::{Held, Process};
pub use reader::{Reader, SeatInfo};
pub use region::{Observed, Region};
pub use run::Wait;
pub use table::{HOST_MAX, Origin, PER_HOST, REGIONS};
