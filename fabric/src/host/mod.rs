//! The processes of this host, their regions of memory, and their deaths as reported by the kernel.
//!
//! A cluster is a directory of files ([`Cluster`]): a table of region owners, and one file per
//! region. Everything that another process may have written is checked before use. All backends for
//! real processes build on this module, which does not depend on how operations reach other hosts.

mod address;
mod attach;
pub mod clock;
pub(crate) mod cluster;
pub(crate) mod death;
#[cfg(test)]
mod early_notices;
pub(crate) mod error;
mod file;
pub mod floor;
mod fork;
pub mod futex;
pub(crate) mod impair;
pub(crate) mod kernel;
pub(crate) mod kernel_notifier;
mod map;
pub(crate) mod mapped;
pub mod multicast;
mod name_claim;
mod namespace;
mod notice_listener;
pub(crate) mod numbers;
pub(crate) mod occupancy;
pub mod peer;
pub(crate) mod process;
pub mod program;
pub mod reader;
pub(crate) mod region;
pub mod sched;
mod seat_words;
pub(crate) mod seats;
mod snapshot;
pub mod supervise;
pub(crate) mod table;
pub mod tcp;
#[cfg(test)]
#[path = "../../tests/support/root.rs"]
pub(crate) mod test;
pub mod this_program;
mod trust;
pub(crate) mod wake;
pub(crate) mod watch;

pub use address::is_here;
pub use attach::{Attachment, Beat, Presence};
pub use cluster::{Cluster, MADE_MODE, RegionInfo, default_root, is_made};
pub use error::HostError;
pub use file::remove_if_present;
pub use impair::Impairment;
pub use kernel::soft_limit;
pub use mapped::MappedRegions;
pub use name_claim::NameClaim;
pub use namespace::Namespace;
pub use numbers::{FIRST_FREE, HOST_MAX, PER_HOST, REGIONS};
pub use obol_deaths::poll;
pub use process::{Held, Lives, Process, fork, is_dying};
pub use reader::{Reader, SeatInfo};
pub use region::{Observed, Region, Waker};
pub use snapshot::{Buckets, RegionFile, RegionSnapshot, SnapshotParts};
pub use supervise::{children, reap};
pub use table::{GATEWAY_FLAG, MAILBOX_FLAG, Origin};
pub use wake::Wake;
