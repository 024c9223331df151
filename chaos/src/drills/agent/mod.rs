//! The fault agent of a host: its protocol, how a runner reaches it, how it injects and undoes, and
//! what undoes in its place. Knows nothing of runs and journals.

pub mod channel;
pub mod clockstep;
mod core_warmer;
pub mod cue;
pub mod fault_agent;
pub mod halt;
pub mod load;
pub mod remote;
pub(crate) mod restart;
pub mod ssh;
pub mod switch;
pub mod undo;
pub mod undo_record;
pub mod warden;
