//! The same death with and without the drills' runner around it, in turns: a runner that can be
//! seen in what it measures would be measuring itself.

use super::Figure;
use super::cluster::{drill, start_over};
use super::kill::Kill;
use obol_chaos::drills::{Supervisor, Victims, choose, healthy};
use obol_fabric::Nanos;
use obol_observe::stats::Distribution;
use obol_supervise::control::{self, Request};
use obol_supervise::running::Running;
use obol_term::output::Failure;
use std::thread;

/// Runs of each kind.
const RUNS: u32 = 5;

/// Both ways in turns, with `count` repetitions of each in all.
pub(super) fn run(running: &Running, count: u32) -> Result<Vec<Figure>, Failure> {
    let share = count.div_ceil(RUNS);
    let mut ways = [Way::default(), Way::default()];
    for _ in 0..RUNS {
        ways[0].add(&bare(running, share)?);
        let by_runner = drill(running, Victims::App, share)?;
        ways[1].add(
            &by_runner.iter().map(|trial| Nanos(trial.failover_ns.unwrap_or_default())).collect::<Vec<_>>(),
        );
    }
    let [without, with] = &ways;
    let difference = Nanos(without.p50().0.abs_diff(with.p50().0));
    let spread = Nanos(without.spread().0.max(with.spread().0).max(1));
    let us = |span: Nanos| span.as_micros_f64();
    Ok(vec![
        Figure::against(
            "kill by a drill against a bare kill, p50",
            "us",
            us(with.p50()),
            us(without.p50()),
            1.5,
        ),
        Figure::against("the difference against the runs' spread", "us", us(difference), us(spread), 1.0),
    ])
}

/// What one way gave.
#[derive(Default)]
struct Way {
    all: Distribution,
    /// The median of each run.
    medians: Vec<Nanos>,
}

impl Way {
    fn add(&mut self, run: &[Nanos]) {
        let mut times = Distribution::new();
        for span in run {
            times.add(*span);
            self.all.add(*span);
        }
        self.medians.push(times.quantile(0.5));
    }

    fn p50(&self) -> Nanos {
        self.all.quantile(0.5)
    }

    /// How far the runs' medians lie apart.
    fn spread(&self) -> Nanos {
        let ends = self.medians.iter().max().zip(self.medians.iter().min());
        ends.map_or(Nanos::ZERO, |(most, least)| Nanos(most.0 - least.0))
    }
}

/// Failovers of an app that this process kills itself.
fn bare(running: &Running, count: u32) -> Result<Vec<Nanos>, Failure> {
    let mut observer = running.observer()?;
    let drill = Victims::App.drill(observer.deployment().environment, count, Nanos::ZERO);
    let step = drill.steps.first().ok_or_else(|| Failure::Failed("a drill without steps".to_owned()))?;
    let supervisor = Supervisor::of(observer.cluster(), observer.deployment());
    let timing = observer.deployment().profile.timing;
    // As often as a name may fail without its joins being put on hold.
    let gap = Nanos(timing.join_window.0 / u64::from(timing.join_burst.max(1)));
    start_over(running)?;
    let mut spans = Vec::new();
    for number in 1..=count {
        let before = healthy(&mut observer).map_err(Failure::failed)?;
        let chosen = choose(&drill, step, &before, &supervisor, number).map_err(Failure::failed)?;
        let victim =
            &chosen.first().ok_or_else(|| Failure::Failed("no victim was chosen".to_owned()))?.process;
        let name = victim.name;
        let phases = Kill::of(name, before.processes)?.run(std::slice::from_mut(&mut observer))?;
        spans.extend(phases.map(|phases| phases.total()));
        let start = Request::Start { name: name.to_string() };
        control::request(observer.cluster().dir(), &start).map_err(Failure::failed)?;
        thread::sleep(gap.to_std());
    }
    Ok(spans)
}
