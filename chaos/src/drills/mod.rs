//! Drills from files on a live cluster: selection of victims, guards, steady states, and the run.
//!
//! A runner arms a fault agent, sends the cue by multicast, and follows the flight recorders; the
//! fault agent injects, stamps and undoes. Neither depends on the other: what one leaves behind,
//! its warden undoes at once, and otherwise the next one, from the undo record.

pub mod approval;
pub mod attended;
pub mod audit;
mod audited;
pub mod channel;
pub mod clockstep;
mod core_warmer;
pub mod cue;
mod cues;
pub mod detectors;
pub mod engines;
mod external;
pub mod fault_agent;
mod fleet;
mod follow;
pub mod guard;
pub mod halt;
pub mod journal;
mod live;
pub mod load;
mod options;
pub mod overlap;
mod parts;
pub mod plan;
pub mod probe;
pub mod progress;
pub mod quick;
pub mod remote;
mod replay;
pub mod report;
mod restart;
pub mod runner;
mod schema;
pub mod select;
mod simulated;
mod skew;
pub mod ssh;
mod stop;
mod subject;
pub mod switch;
pub mod table2;
pub mod table2_run;
pub mod timeline;
pub mod tune;
pub mod tune_network;
pub mod tuning;
pub mod undo;
pub mod undo_record;
pub mod warden;

pub use audited::Accountable;
pub use fleet::Fleet;
pub use follow::healthy;
pub use guard::Answer;
pub use halt::Halt;
pub use journal::{Host, Journal, Verdict};
pub use options::Options;
pub use plan::{Plan, plan};
pub use probe::{Probed, probe};
pub use progress::{Progress, Stage};
pub use quick::Victims;
pub use replay::{ReplayPlan, Replayed, plan_script, replay_script};
pub use runner::{RunError, recover, run};
pub use schema::journal_schema;
pub use select::{Chosen, SelectError, Supervisor, choose};
pub use simulated::simulate;
