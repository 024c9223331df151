//! The run of the paper's table: clusters of real processes, one after the other.

use super::table2::{self, Cell, Found, Table, Wanted};
use crate::drillfile::{Drill, Metric};
use crate::drills::engine::attended::How;
use crate::drills::{Host, Journal, Verdict};
use crate::floor::Floors;
use obol_fabric::host::sched::Slice;
use obol_profiles::Profile;
use obol_supervise::running::{Running, Shape};
use obol_term::output::{self, Failure};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Apps of each cluster.
const APPS: u16 = 3;
/// Lease caches of those clusters that have some: one may die, one must be left.
const CACHES: u16 = 2;
/// Failovers of the floor beside each cluster, so that a drift of the machine meets both.
const FLOORS: u32 = 25;

/// Clusters that the cells are measured on.
struct Setting<'a> {
    profile: &'a Profile,
    caches: bool,
    fencing: bool,
}

/// Runs the drills of the table, and keeps what they found.
pub trait Drills {
    /// Runs one on a cluster.
    fn run(&mut self, cluster: &Running, drill: &Drill, how: How) -> Result<Journal, Failure>;
    fn keep(&mut self, drill: &Drill, journal: &Journal);
}

/// Measures the cells, each `count` times, on clusters of the profile `fenced`; with `no_fence` again on
/// clusters without fences.
pub fn run(
    root: &Path,
    fenced: &Profile,
    wanted: &[Wanted],
    count: u32,
    no_fence: bool,
    stop: &AtomicBool,
    drills: &mut dyn Drills,
) -> Result<Table, Failure> {
    let mut waited = fenced.clone();
    waited.timing.fencing = false;
    let mut floors = Floors::default();
    let mut cells: Vec<Cell> = wanted.iter().map(|wanted| Cell::new(&wanted.scenario)).collect();
    let settings = [(false, true), (false, false), (true, true), (true, false)];
    for (caches, fencing) in settings.into_iter().filter(|(_, fencing)| *fencing || no_fence) {
        let profile = if fencing { fenced } else { &waited };
        floors.run(root, FLOORS.min(count), Slice::Default)?;
        let setting = Setting { profile, caches, fencing };
        let last = setting.measure(root, count, wanted, &mut cells, stop, drills)?;
        if last == Some(Verdict::Interrupted) || stop.load(Ordering::Relaxed) {
            break;
        }
    }
    let timing = &fenced.timing;
    Ok(Table {
        repetitions: count,
        floor_us: floors.last.summary(),
        heartbeat_us: timing.heartbeat_period.as_micros_f64() * f64::from(timing.heartbeat_confirm),
        profile: fenced.name.to_string(),
        host: Host::this(),
        cells,
    })
}

impl Setting<'_> {
    /// Measures the cells that such a cluster can stand for. The verdict is that of the last one.
    fn measure(
        &self,
        root: &Path,
        count: u32,
        wanted: &[Wanted],
        cells: &mut [Cell],
        stop: &AtomicBool,
        drills: &mut dyn Drills,
    ) -> Result<Option<Verdict>, Failure> {
        let mut last = None;
        let mut cluster = None;
        let of_this = wanted.iter().zip(cells).filter(|(wanted, _)| wanted.scenario.caches == self.caches);
        for (wanted, cell) in of_this {
            if stop.load(Ordering::Relaxed) {
                return Ok(Some(Verdict::Interrupted));
            }
            let drill = self.drill(&wanted.drill, count);
            let running = match cluster.take() {
                Some(running) => running,
                None => self.start(root)?,
            };
            // Progress is informative only: the table continues without it.
            let how = if self.fencing { "fenced" } else { "without fences" };
            let _ =
                output::remark(format_args!("table2: {} by {}, {how}", cell.failed, cell.detector.name()));
            let how_to_run = How { count: Some(count), undo_early: true, ..How::default() };
            match drills.run(&running, &drill, how_to_run) {
                Ok(journal) => {
                    drills.keep(&drill, &journal);
                    last = Some(journal.verdict);
                    let found = Some(Found::of(&journal));
                    *(if self.fencing { &mut cell.fenced } else { &mut cell.waited }) = found;
                    if journal.verdict == Verdict::Interrupted {
                        return Ok(last);
                    }
                    // After a failed drill the cluster may be in any state.
                    cluster = (journal.verdict != Verdict::Failed).then_some(running);
                }
                Err(error) => cell.errors.push(format!("{how}: {error}")),
            }
        }
        Ok(last)
    }

    fn start(&self, root: &Path) -> Result<Running, Failure> {
        let caches = if self.caches { CACHES } else { 0 };
        Running::start(root, &Shape { caches, ..Shape::new(table2::NAME, self.profile, APPS) })
    }

    /// The drill as it runs here.
    fn drill(&self, shipped: &Drill, count: u32) -> Drill {
        let mut drill = shipped.clone();
        drill.repeat.warmup = drill.repeat.warmup.min(count);
        if !self.fencing {
            // Bounds of a drill are for clusters that fence.
            drill.expect.retain(|expect| expect.metric == Metric::FalselyFailed);
            drill.id.push_str("-waited");
        }
        drill
    }
}
