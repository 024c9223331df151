//! What the traces are of, and how their files are read.

pub(crate) mod cluster;
pub(crate) mod engine;
pub(crate) mod script;
