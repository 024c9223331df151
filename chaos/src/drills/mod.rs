//! Drills from files on a live cluster: selection of victims, guards, steady states, and the run.
//!
//! A runner arms a fault agent, sends the cue by multicast, and follows the flight recorders; the
//! fault agent injects, stamps and undoes. Neither depends on the other: what one leaves behind,
//! its warden undoes at once, and otherwise the next one, from the undo record.
//!
//! Each room uses those above it in this list, and none below: `victims`, `audit`, `agent`, `engine`,
//! `report`, `studies`.

pub mod agent;
pub mod audit;
pub mod engine;
pub mod report;
pub mod studies;
pub mod victims;

pub use agent::halt::Halt;
pub use engine::error::RunError;
pub use engine::follow::healthy;
pub use engine::journal::{Host, Journal, Probed, Verdict};
pub use engine::plan::{Plan, plan};
pub use engine::probe::probe;
pub use engine::runner::{recover, run};
pub use engine::{Accountable, Fleet, Options, journal_schema, simulate};
pub use studies::quick::Victims;
pub use studies::replay::{ReplayPlan, Replayed, plan_script, replay_script};
pub use victims::guard::Answer;
pub use victims::select::{Chosen, SelectError, Supervisor, choose};
