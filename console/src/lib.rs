//! The console: a live view of a cluster for operators.
//!
//! `poll` reads the cluster, `state` and `update` hold the console's state and its reducer, `view`
//! draws it, `input` binds keys, `theme` defines styles. `state` and `view` use no clock, no
//! terminal and no cluster.

mod background;
pub mod config;
mod contexts;
mod drill_worker;
#[cfg(test)]
mod fuzz;
mod input;
#[cfg(test)]
#[path = "../../report/tests/support/logged.rs"]
mod logged;
mod message;
pub mod options;
mod palette;
mod past;
mod recording;
mod remember;
#[cfg(test)]
mod reported;
#[cfg(test)]
#[path = "../../observe/tests/support/samples.rs"]
#[allow(dead_code, reason = "tests of other crates use the rest")]
mod samples;
#[cfg(test)]
#[path = "../../observe/tests/support/scrambled.rs"]
mod scrambled;
mod screens;
mod session;
mod state;
mod svg;
mod terminal;
mod theme;
#[cfg(test)]
mod totals;
mod update;
mod view;
mod widgets;

pub use past::HOUR;
pub use recording::{LIMIT_LEAST as RECORDING_LEAST, record};
pub use session::{Background, Console, aged, is_possible, replay, run};
pub use theme::Theme;
