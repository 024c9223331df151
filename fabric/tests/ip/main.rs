//! Gateways: who is let in, what costs them nothing, and how they fail.

mod budgets;
mod failures;
#[path = "../support/hosts.rs"]
#[allow(dead_code, reason = "the tests of the contract use the rest")]
mod hosts;
#[path = "../support/keys.rs"]
mod keys;
mod losses;
#[path = "../support/network.rs"]
#[allow(dead_code, reason = "the tests of whole clusters use the rest")]
mod network;
mod pulses;
mod strangers;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "the tests of shared memory use the rest")]
mod support;

mod ip {
    /// Where the processes of a cluster start, if they have a role.
    #[test]
    fn child() {
        crate::hosts::play();
    }
}
