//! The floor of a failover ([`obol_fabric::host::floor`]), measured by a process of its own, which has
//! one thread and can fork: `obol floor`.

use obol_fabric::Nanos;
use obol_fabric::host::sched::Slice;
use obol_fabric::host::this_program;
use obol_fabric::host::{floor, sched};
use obol_observe::stats::Distribution;
use obol_term::output::Failure;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Stdio;

/// What the floor measured, in nanoseconds.
#[derive(Debug, Deserialize, Serialize)]
pub struct Measured {
    /// From the kill until the deciding coordinator saw it.
    detected_ns: Vec<u64>,
    /// From the kill until the last app knew.
    last_ns: Vec<u64>,
    /// Whether the measuring process ran at real-time priority.
    real_time: bool,
}

impl Measured {
    /// Measures `count` failovers, in the process that has one thread.
    pub fn measure(count: u32, slice: Slice) -> Result<Self, Failure> {
        sched::die_with_parent().map_err(Failure::failed)?;
        let (times, real_time) = floor::failovers(count, slice).map_err(Failure::failed)?;
        let (detected_ns, last_ns) = times.iter().map(|time| (time.detected.0, time.last.0)).unzip();
        Ok(Self { detected_ns, last_ns, real_time })
    }
}

/// The floors of several turns.
#[derive(Default)]
pub struct Floors {
    /// From the kill until the deciding coordinator saw it.
    pub detected: Distribution,
    /// From the kill until the last app knew.
    pub last: Distribution,
    /// A measuring process had no right to real-time priority, so the figures are above the floor.
    pub ordinary: bool,
}

impl Floors {
    /// Runs the floor `count` times, and adds what it measured.
    pub fn run(&mut self, root: &Path, count: u32, slice: Slice) -> Result<(), Failure> {
        let mut command = this_program::command().map_err(Failure::failed)?;
        let ended = sched::pass_parent_id(&mut command)
            .arg("--root")
            .arg(root)
            .args(["floor", "--count", &count.to_string()])
            .args((slice == Slice::Short).then_some("--short-slices"))
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .map_err(Failure::failed)?;
        if !ended.status.success() {
            return Err(Failure::Failed(format!("the floor of the benchmark: {}", ended.status)));
        }
        let measured: Measured = serde_json::from_slice(&ended.stdout).map_err(Failure::failed)?;
        measured.detected_ns.into_iter().for_each(|time| self.detected.add(Nanos(time)));
        measured.last_ns.into_iter().for_each(|time| self.last.add(Nanos(time)));
        self.ordinary |= !measured.real_time;
        Ok(())
    }
}
