//! The charts of a postmortem; `None` without data.

use crate::drillfile::Metric;
use crate::drills::engine::journal::{Journal, Trial, measured, samples};
use obol_fabric::Nanos;
use obol_observe::plot::{Axis, Bars, Chart, Series};
use obol_observe::timeline::Phases;

/// How many of the slowest failovers are drawn beside the median.
const SLOWEST: usize = 5;
/// Dots of a chart; of more repetitions, every n-th is drawn.
const DOTS_MAX: usize = 2000;

fn us(ns: u64) -> f64 {
    Nanos(ns).as_micros_f64()
}

/// All repetitions in their order. Also returns their number.
pub(super) fn repetitions(journal: &Journal) -> Option<(String, usize)> {
    let points: Vec<(f64, f64)> = measured(&journal.trials)
        .filter_map(|trial| Some((f64::from(trial.number), us(trial.failover_ns?))))
        .collect();
    let every = points.len().div_ceil(DOTS_MAX).max(1);
    let drawn: Vec<(f64, f64)> = points.iter().copied().step_by(every).collect();
    let chart = Chart::new(Axis::linear("repetition"), Axis::log("us from the first fault"))
        .with(Series::dots("last survivor active", drawn));
    let errors: Vec<(f64, f64)> = measured(&journal.trials)
        .filter(|trial| trial.clock_error_ns > 0 && trial.failover_ns.is_some())
        .map(|trial| (f64::from(trial.number), us(trial.clock_error_ns)))
        .step_by(every)
        .collect();
    let chart = match errors.is_empty() {
        true => chart,
        false => chart.with(Series::line("error of the hosts' clocks", errors)),
    };
    Some((chart.svg().ok()?, points.len()))
}

/// The cumulative distribution of failovers.
pub(super) fn distribution(journal: &Journal) -> Option<String> {
    let mut sorted: Vec<Nanos> = samples(&journal.trials, Metric::CueToActive).collect();
    sorted.sort_unstable();
    let n = sorted.len();
    // Without samples, only bounds could be drawn.
    sorted.first()?;
    let every = n.div_ceil(DOTS_MAX).max(1);
    let share = |at: usize| (at + 1) as f64 / n as f64 * 100.0;
    let mut points: Vec<(f64, f64)> =
        (0..n).step_by(every).map(|at| (sorted[at].as_micros_f64(), share(at))).collect();
    points.extend(sorted.last().map(|last| (last.as_micros_f64(), 100.0)));
    let mut chart = Chart::new(Axis::log("us from the first fault"), Axis::linear("% of failovers"))
        .with(Series::line("last survivor active", points));
    let bounds = journal.judged.iter().filter(|one| one.metric == Metric::CueToActive);
    for bound in bounds {
        let line = vec![(bound.bound, 0.0), (bound.bound, 100.0)];
        chart = chart.with(Series::dashes(&format!("bound of {}", bound.of), line));
    }
    chart.svg().ok()
}

/// The phases of the median failover and of the slowest ones.
pub(super) fn phases(journal: &Journal) -> Option<String> {
    let mut sorted: Vec<&Trial> =
        measured(&journal.trials).filter(|trial| trial.failover_ns.is_some()).collect();
    sorted.sort_by_key(|trial| trial.failover_ns);
    let median = sorted.get(sorted.len().checked_sub(1)? / 2)?;
    let slowest = sorted.iter().rev().take(SLOWEST.min(sorted.len() - 1));
    let total = |trial: &Trial| trial.failover_ns.unwrap_or_default().max(1);
    let name = |what: &str, trial: &Trial| {
        let error = trial.clock_error_ns;
        let error = if error == 0 { String::new() } else { format!(" \u{b1} {}", Nanos(error)) };
        format!("{what} {}: {}{error}", trial.number, Nanos(total(trial)))
    };
    let shown: Vec<(String, &Trial)> = std::iter::once((name("median, no.", median), *median))
        .chain(slowest.map(|trial| (name("no.", trial), *trial)))
        .collect();
    let groups = shown.iter().map(|(name, _)| name.clone()).collect();
    let mut bars = Bars::stacked("% of the failover", groups);
    for phase in Phases::NAMES {
        let share = |trial: &Trial| Some(us(*trial.phases_ns.get(phase)?) / us(total(trial)) * 100.0);
        let values = shown.iter().map(|(_, trial)| share(trial));
        bars = bars.with(phase, values.collect());
    }
    bars.svg().ok()
}
