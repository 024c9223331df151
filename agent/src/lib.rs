//! The per-node daemon, and the library that applications link.
