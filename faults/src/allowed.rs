//! What an operator allows drills to do to a host.

use serde::{Deserialize, Serialize};

/// What a drill may do to all programs of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allowed {
    /// Step its clock.
    pub clock_step: bool,
    /// Set its interfaces down.
    pub nic_down: bool,
    /// Keep a core from them.
    pub kernel_stall: bool,
    /// The names of the hosts that the operator has agreed to crash.
    pub crash: Vec<String>,
}
