//! The fabric's contract, held against the simulator and the backends that run on one host. RDMA is
//! held against it in the binary `verbs`, which runs where there is a device.

mod broken;
#[path = "../support/hosts.rs"]
#[allow(dead_code, reason = "the tests of gateways use the rest")]
mod hosts;
mod ip;
#[path = "../support/keys.rs"]
#[allow(dead_code, reason = "the tests of identity use the rest")]
mod keys;
mod planted;
mod processes;
mod sim;
mod suite;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "the tests of shared memory use the rest")]
mod support;

processes::backend!(shm, lacks: [
    Rights: "a process that maps a region may write all of it",
    TearsOften: "a copy of a few words is seldom interrupted"
]);
