//! Plans and runs drills: the runner, what it runs on, and the journal of a run.

pub mod attended;
mod audited;
mod cues;
pub mod error;
mod external;
mod fleet;
pub(crate) mod follow;
pub mod journal;
mod live;
mod options;
mod overlap;
mod parts;
pub mod plan;
pub mod probe;
pub mod progress;
pub mod runner;
mod schema;
mod simulated;
mod skew;
mod stop;
mod subject;

pub use audited::Accountable;
pub use fleet::Fleet;
pub use options::Options;
pub use schema::journal_schema;
pub use simulated::simulate;
