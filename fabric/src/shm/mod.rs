//! Shared memory on one host: real processes that map each other's regions.
//!
//! A process joins as an [`Endpoint`](crate::Endpoint), which owns a region and runs a machine, or as an
//! [`Attachment`](crate::host::Attachment), which takes a seat in the region of its agent.

mod delay_queue;
pub(crate) mod lanes;
pub(crate) mod link;
mod memory;
mod permits;

pub use link::Links;
pub use memory::Memory;
