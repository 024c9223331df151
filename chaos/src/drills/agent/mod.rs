//! The fault agent of a host: its protocol, how a runner reaches it, how it injects and undoes, and
//! what undoes in its place. Knows nothing of runs and journals.

pub mod channel;
mod core_warmer;
pub mod cue;
pub mod fault_agent;
pub mod halt;
pub mod invocation;
pub mod load;
pub mod lock;
pub mod remote;
mod restart;
pub mod ssh;
pub mod switch;
pub mod undo;
pub mod warden;

pub use crate::faults::undo_record;
