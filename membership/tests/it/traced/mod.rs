//! The subjects of traces, and the format of their files.

pub(crate) mod cluster;
pub(crate) mod engine;
pub(crate) mod script;
