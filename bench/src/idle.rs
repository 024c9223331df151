//! What an idle cluster costs: processor time and memory of its nine processes.

use super::Figure;
use obol_observe::figures::total;
use obol_observe::usage::{resident, used};
use obol_supervise::running::Running;
use obol_term::output::Failure;
use std::time::{Duration, Instant};

/// How long the idle cluster is watched.
const WATCH: Duration = Duration::from_secs(5);

pub(super) fn run(running: &Running) -> Result<Vec<Figure>, Failure> {
    let snapshot = running.observer()?.snapshot();
    let pids: Vec<u32> = snapshot.processes.iter().filter(|p| p.alive).map(|p| p.process.pid).collect();
    let all = || total(pids.iter().map(|pid| used(*pid)));
    let (before, began) = (all(), Instant::now());
    std::thread::sleep(WATCH);
    let share = 100.0 * all().saturating_sub(before) as f64 / began.elapsed().as_nanos() as f64;
    let largest = pids.iter().map(|pid| resident(*pid)).max().unwrap_or(0) as f64 / 1024.0;
    Ok(vec![
        Figure::at_most("idle cluster of 9 processes, share of a core", "%", share, 10.0),
        Figure::at_most("largest process, resident", "MiB", largest, 8.0),
    ])
}
