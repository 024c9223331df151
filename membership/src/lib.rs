//! Views, the CAS engine, detectors, leases and fencing as plain state machines.

pub mod timing;

pub use timing::Timing;
