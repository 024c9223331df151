//! The console: a live view of a cluster for operators.
//!
//! `poll` reads the cluster, `state` and `update` hold the console's state and its reducer, `view`
//! draws it, `input` binds keys, `theme` defines styles. `state` and `view` use no clock, no
//! terminal and no cluster.

pub mod config;
mod drill_worker;
#[cfg(test)]
mod fuzz;
pub mod incidents;
mod input;
mod message;
pub mod options;
pub mod output;
mod palette;
mod past;
pub mod poll;
mod recording;
mod remember;
mod report;
#[cfg(test)]
mod samples;
#[cfg(test)]
#[path = "../../observe/tests/support/scrambled.rs"]
mod scrambled;
mod screens;
mod session;
mod state;
mod terminal;
mod theme;
#[cfg(test)]
mod totals;
mod update;
mod view;
mod widgets;

use crate::output::Failure;
use obol_fabric::host::clock;
use obol_node::Site;
use obol_observe::annotations::{Forwarded, Mark};
pub use past::HOUR;
pub use poll::ClusterLocation;
pub use recording::{LIMIT_LEAST as RECORDING_LEAST, record};
pub use report::{iso, run as report};
pub use session::{Background, Console, aged, is_possible, replay, run};
use std::process::ExitCode;
pub use theme::Theme;
pub use widgets::canvas::age;

/// `obol mark`: adds an annotation, on all hosts.
pub fn mark(location: &ClusterLocation, text: &str) -> Result<ExitCode, Failure> {
    let site = Site::open(&location.root, location.cluster).map_err(Failure::refused)?;
    let mark = Mark::note(clock::now(), text).map_err(Failure::refused)?;
    mark.write(site.cluster.dir()).map_err(Failure::failed)?;
    output::line(format_args!("noted on cluster {}: {text}", location.cluster))?;
    if let Forwarded::Not(why) = mark.forward(&site) {
        output::remark(format_args!("obol: the annotation is on this host, and not on all others: {why}"))?;
    }
    Ok(ExitCode::SUCCESS)
}
