//! RDMA devices of this host: the guarantees of the device itself, and those of an endpoint on it.
//!
//! The gate runs this binary in a VM that has a soft-RoCE device, with `OBOL_VERBS=require`;
//! elsewhere, tests that find no device say so and pass.

mod cluster;
mod connect;
mod contract;
mod costs;
mod deaths;
mod device;
mod devices;
mod identity;
#[path = "../../../identity/tests/support/keys.rs"]
mod keys;
mod links;
#[path = "../../../fabric-sim/tests/contract/planted.rs"]
#[allow(dead_code, reason = "the tests of the simulator use the rest")]
mod planted;
mod rights;
#[path = "../../../fabric/tests/contract/suite.rs"]
mod suite;
#[path = "../../../fabric/tests/support/mod.rs"]
#[allow(dead_code, reason = "the tests of shared memory use the rest")]
mod support;
