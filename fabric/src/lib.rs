//! One process's access to the cluster's memory, messages and time.
//!
//! The terms are RDMA's: a *region* is memory that peers read, write and compare-and-swap without
//! involving the owner's CPU; a *link* is a reliable FIFO connection to one peer; a *completion*
//! reports the result of a posted operation; a *group* is a multicast group whose datagrams may be
//! lost, repeated or reordered.
//!
//! The protocol (`obol-membership`) is written against [`Fabric`] and [`Machine`], independently of
//! the backends: [`shm`], real processes on one host that map each other's regions from `/dev/shm`,
//! and those in crates of their own, `obol-fabric-ip`, `obol-fabric-verbs` and `obol-fabric-sim`.
//! Backends for real processes bring a [`endpoint::Transport`]; all else is in [`endpoint`] and
//! [`host`].

#[cfg(test)]
extern crate self as obol_fabric;

mod atomic;
pub mod contract;
#[cfg(not(loom))]
pub mod endpoint;
#[cfg(not(loom))]
pub mod host;
pub mod layout;
pub mod memory;
pub mod metrics;
pub mod notice;
pub mod page;
pub mod recorder;
#[cfg(not(loom))]
pub mod remote;
pub mod rights;
#[cfg(not(loom))]
pub mod sealed;
#[cfg(not(loom))]
pub mod shm;
pub mod types;
pub mod version;
pub mod watches;

pub use contract::{
    Completion, Event, Evidence, Fabric, Group, LinkError, Machine, Remote, SeatRequest, SeatStatus, Token,
};
#[cfg(not(loom))]
pub use endpoint::{Endpoint, Owner, Wait};
pub use layout::{Layout, Limits};
pub use page::Page;
pub use rights::{Permission, Writers};
pub use types::{Address, Incarnation, Instant, Name, Nanos, ViewId};
pub use version::{Release, Version};

#[cfg(loom)]
#[allow(dead_code, reason = "the models use a part of it")]
#[path = "shm/lanes.rs"]
mod lanes;
#[cfg(all(loom, test))]
mod orders;
