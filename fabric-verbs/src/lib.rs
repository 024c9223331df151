//! Real RDMA: devices of this host by libibverbs, connections and groups by librdmacm.
//!
//! Both libraries are loaded on first use; a host without them gets a [`VerbsError`] with
//! instructions. The modules, from the bottom up: `sys` (the C libraries), objects that free
//! themselves ([`context`], [`registration`], [`queue`], [`pair`] and [`post`], [`cm`], [`arena`]),
//! the choice of a device ([`device`], [`nic`]), a region as exposed to peers ([`exposed`]), a
//! process's [`obol_fabric::Endpoint`], and an [`Observer`].

pub mod arena;
mod buffers;
pub mod cm;
mod config;
mod connector;
pub mod context;
mod datagrams;
pub mod device;
mod endpoint;
mod error;
pub mod exposed;
pub mod found;
mod handshake;
pub mod interfaces;
mod introduction;
mod link;
pub mod nic;
mod observer;
mod ops;
mod outbox;
pub mod pair;
mod permits;
pub mod post;
pub mod queue;
pub mod registration;
mod sealing;
mod sys;
#[cfg(test)]
#[path = "../../fabric/tests/support/root.rs"]
#[allow(dead_code, reason = "the tests with real processes use the rest")]
mod test;
mod threads;

mod watch;
mod wire;

/// The largest datagram of any RDMA port: its MTU less our header. Most Ethernets support 960.
pub const DATAGRAM_PAYLOAD_MAX: u32 =
    (obol_fabric::layout::DATAGRAM_BYTES_MAX - datagrams::HEAD_BYTES) as u32;

pub use config::{Config, HostKeys, detection_of, retry_within, timeout_of};
pub use endpoint::{OpenError, open};
pub use error::{Library, VerbsError};
pub use handshake::Refusal;
pub use observer::Observer;
pub use wire::{LinkStatus, Rdma};
