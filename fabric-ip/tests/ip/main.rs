//! Gateways: who is let in, what costs them nothing, and how they fail.

mod budgets;
mod contract;
mod devices;
mod failures;
mod hosts;
#[path = "../../../identity/tests/support/keys.rs"]
mod keys;
mod losses;
#[path = "../support/network.rs"]
#[allow(dead_code, reason = "the tests of whole clusters use the rest")]
mod network;
#[path = "../../../fabric-sim/tests/contract/planted.rs"]
#[allow(dead_code, reason = "the tests of the simulator use the rest")]
mod planted;
mod pulses;
mod strangers;
#[path = "../../../fabric/tests/contract/suite.rs"]
mod suite;
#[path = "../../../fabric/tests/support/mod.rs"]
#[allow(dead_code, reason = "the tests of shared memory use the rest")]
mod support;
