//! The fabric's contract, held against the simulator; each defect that is planted in it is found.

mod broken;
mod planted;
mod sim;
#[path = "../../../fabric/tests/contract/suite.rs"]
#[allow(unused_imports, unused_macros, reason = "testbeds of processes use the rest")]
mod suite;
#[path = "../../../fabric/tests/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the tests of real processes use the rest")]
mod support;
