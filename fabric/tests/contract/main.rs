//! The fabric's contract, held against the backends that run on one host. RDMA is held against it in
//! the binary `verbs`, which runs where there is a device, and the simulator in its own crate.

#[path = "../support/hosts.rs"]
#[allow(dead_code, reason = "the tests of gateways use the rest")]
mod hosts;
mod ip;
#[path = "../support/keys.rs"]
#[allow(dead_code, reason = "the tests of identity use the rest")]
mod keys;
#[path = "../../../fabric-sim/tests/contract/planted.rs"]
#[allow(dead_code, reason = "the tests of the simulator use the rest")]
mod planted;
mod processes;
mod suite;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "the tests of shared memory use the rest")]
mod support;

processes::backend!(shm, lacks: [
    Rights: "a process that maps a region may write all of it",
    TearsOften: "a copy of a few words is seldom interrupted"
]);
