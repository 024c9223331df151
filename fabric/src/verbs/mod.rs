//! Real RDMA: devices of this host by libibverbs, connections and groups by librdmacm.
//!
//! Both libraries are loaded when they are first wanted; a host without them gets a [`VerbsError`] that says how to
//! get them. What is here, from the bottom up: `sys` (the libraries as C has them), objects that free themselves
//! ([`context`], [`registration`], [`queue`], [`pair`],
//! [`cm`], [`arena`]), the choice of a device ([`device`], [`nic`]), and a region as peers may reach it ([`exposed`]).

pub mod arena;
pub mod cm;
pub mod context;
pub mod device;
mod error;
pub mod exposed;
pub mod interfaces;
pub mod nic;
pub mod pair;
pub mod queue;
pub mod registration;
mod sys;

pub use error::{Library, VerbsError};
