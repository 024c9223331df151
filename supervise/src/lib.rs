//! The processes of a host: who starts, watches and ends them.
//!
//! [`up`] keeps a cluster, [`run`] a program that is a member, and [`daemons`] are the processes of the
//! cluster itself. [`control`] is the protocol by which other commands ask the `obol up` that supervises a
//! cluster. [`processes`] finds, ends and starts one process, [`down`] ends a cluster whatever became of its
//! supervisor, and [`running`] keeps a cluster that a command makes for itself. What operators do to a
//! cluster that runs is in [`coordinators`], [`leases`], [`upgrade`] and [`host`].
//!
//! It writes remarks on standard error only: what these functions return is printed by the commands.

mod alone;
pub mod clients;
pub mod control;
pub mod coordinators;
pub mod daemons;
mod directory;
pub mod down;
pub mod ending;
pub mod host;
pub mod hosts;
pub mod leases;
pub mod leaving;
pub mod logging;
pub mod processes;
pub mod run;
pub mod running;
mod saved;
pub mod signals;
pub mod up;
pub mod upgrade;
