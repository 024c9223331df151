//! What logs cost a failover: the same drill on clusters that write none and on clusters that write
//! lines of every level, in turns, so that a drift of the machine affects both.

use super::cluster::drill;
use super::{Figure, PROFILE};
use obol_chaos::drills::Victims;
use obol_fabric::Nanos;
use obol_logs::State;
use obol_observe::figures::total;
use obol_observe::stats::Distribution;
use obol_profiles::Profile;
use obol_supervise::running::{Running, Shape};
use obol_term::output::{self, Failure};
use std::path::Path;

/// Pairs of clusters.
const TURNS: u32 = 4;
/// Percentiles with their names, and how much longer a failover with logs may take: what two runs
/// without logs differ by on a quiet machine.
const PERCENTILES: [(f64, &str, f64); 2] = [
    (0.5, "failover with logs against without, p50", 1.1),
    (0.9, "failover with logs against without, p90", 1.25),
];

/// The failovers of an app on a cluster of its own, and the lines that its processes could not write.
fn measure(
    root: &Path,
    profile: &Profile,
    logs: bool,
    count: u32,
    into: &mut Distribution,
) -> Result<u64, Failure> {
    let shape = Shape { logs, ..Shape::new("bench", profile, 3) };
    let running = Running::start(root, &shape)?;
    for trial in drill(&running, Victims::App, count)? {
        into.add(Nanos(trial.failover_ns.unwrap_or_default()));
    }
    let dir = running.reaper.root.join(running.reaper.cluster.as_str());
    let states: Vec<State> = obol_logs::states(&dir).map(|(_, state)| state).collect();
    if logs == states.is_empty() {
        return Err(Failure::Failed(format!(
            "a cluster with logs: {logs}, and {} processes write some",
            states.len()
        )));
    }
    Ok(total(states.iter().map(State::lost)))
}

pub(super) fn run(root: &Path, count: u32) -> Result<Vec<Figure>, Failure> {
    let profile = Profile::builtin(PROFILE).map_err(Failure::failed)?;
    let share = count.div_ceil(TURNS);
    let (mut without, mut with, mut lost) = (Distribution::new(), Distribution::new(), 0);
    for turn in 0..TURNS {
        // Informative only: the benchmark continues without it.
        let _ = output::remark(format_args!("bench: turn {} of {TURNS}", turn + 1));
        // Who comes second meets a warmer machine.
        for logs in [turn % 2 == 1, turn % 2 == 0] {
            let into = if logs { &mut with } else { &mut without };
            lost += measure(root, &profile, logs, share, into)?;
        }
    }
    let us = |of: &Distribution, q| of.quantile(q).as_micros_f64();
    let ratio = |(q, name, must)| Figure::against(name, "us", us(&with, q), us(&without, q), must);
    let mut figures: Vec<Figure> = PERCENTILES.map(ratio).into();
    figures.push(Figure::at_most("lines that were dropped or not written", "", lost as f64, 0.0));
    Ok(figures)
}
