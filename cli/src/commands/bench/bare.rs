//! The same death with and without the drills' runner around it, in turns: a runner that can be
//! seen in what it measures would be measuring itself.

use super::Figure;
use super::failover::{drill, start_over};
use crate::running::Running;
use obol_chaos::control::{self, Request};
use obol_chaos::drills::{Supervisor, Victims, choose, healthy};
use obol_console::output::Failure;
use obol_fabric::host::clock;
use obol_fabric::{Name, Nanos};
use obol_observe::stats::Distribution;
use obol_observe::timeline::{History, Phases};
use std::thread;
use std::time::{Duration, Instant};

/// Runs of each kind.
const RUNS: u32 = 5;
/// After a fault the cluster is not polled for this time: nearly every failover is over by then.
const REST: Duration = Duration::from_millis(20);
/// Between two looks after that.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// A failover that is not over by then has failed.
const TIMEOUT: Duration = Duration::from_secs(10);

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

/// Failovers of an app that this process kills itself: without a fault agent, a cue, or polling
/// before it is over.
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
        let held = victim.process.hold().map_err(Failure::failed)?;
        let survivors: Vec<Name> = before
            .processes
            .iter()
            .filter(|p| p.alive && p.kind.acts() && p.name != victim.name)
            .map(|p| p.name)
            .collect();
        observer.events();
        let killed_at = clock::now();
        held.kill().map_err(Failure::failed)?;
        thread::sleep(REST);
        let mut history = History::default();
        let end = Instant::now() + TIMEOUT;
        let phases = loop {
            // Once more after the view is known: what its decider wrote may lie in a part that was
            // read just before.
            history.take(&observer.events());
            let view = observer.snapshot().view;
            history.take(&observer.events());
            let at = view.as_ref().and_then(|view| {
                view.departed.iter().find(|gone| gone.incarnation == victim.incarnation).map(|gone| gone.at)
            });
            if let Some(phases) =
                at.and_then(|at| Phases::of(&history, at, &[victim.incarnation], killed_at, &survivors))
            {
                break Some(phases);
            }
            // As in the runner, an incomplete time line is not used.
            if at.is_some_and(|id| survivors.iter().all(|name| history.active_from(id, *name).is_some())) {
                break None;
            }
            if Instant::now() > end {
                return Err(Failure::Failed(format!("the failover from {} did not end", victim.name)));
            }
            thread::sleep(POLL_INTERVAL);
        };
        spans.extend(phases.map(|phases| phases.total()));
        let name = victim.name.to_string();
        control::request(observer.cluster().dir(), &Request::Start { name }).map_err(Failure::failed)?;
        thread::sleep(gap.to_std());
    }
    Ok(spans)
}
