//! The fabric's contract, held against the simulator and shared memory. RDMA is held against it in
//! the binary `verbs`, which runs where there is a device.

mod broken;
mod shm;
mod sim;
mod suite;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "the tests of shared memory use the rest")]
mod support;

/// Where every process of these tests starts if it has a role.
#[test]
fn child() {
    support::play();
}
