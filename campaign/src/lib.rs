//! The simulation campaign: whole clusters in virtual time under faults, with the shipped state
//! machines, checked by an oracle that knows true time and everybody's memory.
//! `docs/design/testing.md` defines what each row proves.

// For the table of marks, whose schema is made by a recursive macro.
#![recursion_limit = "256"]

mod act;
mod cluster;
mod crash_loop;
mod divided;
mod driver;
mod fault_schedule;
mod faults;
mod flap;
mod last_cache;
mod marks;
mod oracle;
pub mod papers;
mod pulses;
mod repeated_loss;
mod report;
mod ring_wrap;
mod role;
mod runner;
mod scenario;
mod script;
mod shards;
mod shrink;
mod split;
mod targeted;

pub use act::{Act, Timed};
pub use cluster::{Cluster, NodeSeat};
pub use marks::{Mark, Marks};
pub use oracle::Violation;
pub use pulses::PulsePlan;
pub use report::{
    DriftSweepStep, Failure, Found, MutationResults, Options, Reached, Report, Shard, campaign, hunt,
    throughput,
};
pub use runner::{Run, replay, run};
pub use scenario::{CANARY_EVERY, SWEEP_EVERY, SWEEP_PERMILLE, Scenario, Trial};
pub use script::{Script, ScriptError, plant};
pub use shards::{ShardError, build, index_from, merge};
pub use shrink::{Shrunk, shrink};
