//! The processes of a host: starts, watches and ends them.
//!
//! [`control`] is the protocol by which commands ask the `obol up` that supervises a cluster;
//! [`running`] keeps a cluster that a command makes for itself.

pub mod alone;
pub mod clients;
pub mod control;
pub mod coordinators;
pub mod daemons;
pub mod directory;
pub mod down;
pub mod ending;
pub mod host;
pub mod hosts;
pub mod leaving;
pub mod logging;
pub mod processes;
pub mod run;
pub mod running;
pub mod saved;
pub mod signals;
pub mod up;
pub mod upgrade;
