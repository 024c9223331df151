//! Shared memory on one host: real processes that map each other's regions.
pub mod futex;
