//! A network of hosts and switches, the redundant multicast trees over it, the timeouts that these
//! allow, and how often all of them fail at once.

mod drawing;
mod file;
mod plan;
mod plan_error;
mod refine;
mod risk;
mod search;
mod topology;

pub use drawing::draw;
pub use file::EXAMPLE;
pub use plan::{Pair, Plan, plan};
pub use plan_error::PlanError;
pub use risk::{Cause, Risk, compound};
pub use search::{SenderPlan, Tree};
pub use topology::{Class, CommonCause, Link, Network, Node, Wanted};
