//! Drills from files on a live cluster: who would be hit, what forbids it, and whether the steady state holds.

pub mod guard;
pub mod plan;
pub mod probe;
pub mod select;

pub use guard::Answer;
pub use plan::{Plan, plan};
pub use probe::{Probed, probe};
pub use select::{Chosen, SelectError, choose};
