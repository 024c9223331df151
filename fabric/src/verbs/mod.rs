//! Real RDMA: devices of this host by libibverbs, connections and groups by librdmacm.
//!
//! Both libraries are loaded when they are first wanted; a host without them gets a [`VerbsError`] that says how to
//! get them. What is here, from the bottom up: `sys` (the libraries as C has them), objects that free themselves
//! ([`context`], [`registration`], [`queue`], [`pair`], [`cm`]), the choice of a device, and what an endpoint opens on it.

pub mod cm;
pub mod context;
mod error;
pub mod pair;
pub mod queue;
pub mod registration;
mod sys;

pub use error::{Library, VerbsError};
