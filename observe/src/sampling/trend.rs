//! What changed in the last hour, in cells of some seconds: for charts. A cell without a sample is a gap.

use crate::sampling::sample::Sample;
use obol_fabric::{Instant, Nanos, ViewId};
use std::collections::VecDeque;

/// Duration of one cell of a history.
pub const CELL: Nanos = Nanos::from_secs(5);
/// Cells of a minute, as rows show it.
pub const CELLS: usize = 12;
/// Cells that are kept.
pub const CELLS_MAX: usize = 720;

/// What was measured in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Its number: its begin in [`CELL`]s.
    pub number: u64,
    /// The last sample of it, and of the one before.
    pub at: Instant,
    pub before: Instant,
    /// Renewals since the cell before, in time, late and failed.
    pub renewals: [u64; 3],
    /// The least that was left of a lease at a renewal.
    pub least: Option<Nanos>,
    /// Views that were decided, and those of them that removed a failed member.
    pub views: u64,
    pub failovers: u64,
    /// READs of a sample, at most.
    pub reads: u64,
}

impl Cell {
    /// A count of it per second.
    pub fn per_second(&self, n: u64) -> Option<f64> {
        let span = self.at.since(self.before);
        (span > Nanos::ZERO).then(|| n as f64 * 1e9 / span.0 as f64)
    }
}

/// The cells, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Trend {
    pub cells: VecDeque<Cell>,
    renewals: Option<[u64; 3]>,
    view: Option<ViewId>,
}

impl Trend {
    pub(crate) fn take(&mut self, sample: &Sample) {
        let number = sample.at.0 / CELL.0;
        let last = self.cells.back().map(|cell| cell.at);
        if self.cells.back().is_none_or(|cell| cell.number != number) {
            let before = last.unwrap_or(sample.at);
            let (renewals, at) = ([0; 3], sample.at);
            self.cells.push_back(Cell {
                number,
                at,
                before,
                renewals,
                least: None,
                views: 0,
                failovers: 0,
                reads: 0,
            });
            if self.cells.len() > CELLS_MAX {
                self.cells.pop_front();
            }
        }
        let Some(cell) = self.cells.back_mut() else { return };
        cell.at = sample.at;
        cell.reads = cell.reads.max(sample.cost.reads);
        cell.least = sample.processes.iter().filter_map(|row| row.least).chain(cell.least).min();
        let now = sample.renewals.map(|all| [all.on_time, all.late, all.failed]);
        if let Some((before, now)) = self.renewals.zip(now) {
            let grown = before.iter().zip(now).map(|(before, now)| now.saturating_sub(*before));
            cell.renewals.iter_mut().zip(grown).for_each(|(sum, more)| *sum = sum.saturating_add(more));
        }
        self.renewals = now.or(self.renewals);
        let Some(view) = &sample.view else { return };
        if let Some(before) = self.view {
            cell.views = cell.views.saturating_add(view.id.0.saturating_sub(before.0));
            let new = |at: ViewId| at > before && at <= view.id;
            let mut failed: Vec<ViewId> =
                view.departed.iter().filter(|gone| !gone.left && new(gone.at)).map(|gone| gone.at).collect();
            if view.id > before && view.changes.iter().any(|change| change.is_failure()) {
                failed.push(view.id);
            }
            failed.sort_unstable();
            failed.dedup();
            cell.failovers = cell.failovers.saturating_add(failed.len() as u64);
        }
        self.view = Some(view.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Renewals;
    use crate::samples;

    #[test]
    fn cells_have_what_was_measured_in_them_and_gaps_have_none() {
        let mut trend = Trend::default();
        let second = 1_000_000_000;
        for n in (0..20).chain(40..50) {
            let at = Instant(3600 * second + n * second);
            let mut sample = if n < 12 { samples::healthy(at) } else { samples::degraded(at) };
            sample.renewals = Some(Renewals { on_time: n * 100, late: n / 10, failed: 0 });
            trend.take(&sample);
        }
        let cells: Vec<Cell> = trend.cells.iter().copied().collect();
        assert_eq!(cells.iter().map(|cell| cell.number - 720).collect::<Vec<_>>(), [0, 1, 2, 3, 8, 9]);
        let rate = |cell: &Cell| cell.per_second(cell.renewals[0]);
        assert_eq!(cells.iter().map(rate).collect::<Vec<_>>(), [Some(100.0); 6]);
        assert_eq!(cells.iter().map(|cell| cell.renewals[1]).sum::<u64>(), 4);
        assert_eq!(cells.iter().map(|cell| (cell.views, cell.failovers)).collect::<Vec<_>>()[2], (1, 1));
        assert_eq!(cells.iter().map(|cell| cell.failovers).sum::<u64>(), 1);
        assert_eq!(cells[0].least, Some(Nanos::from_micros(12_004)));
        for n in 50..50 + 5 * CELLS_MAX as u64 {
            trend.take(&samples::healthy(Instant(3600 * second + n * second)));
        }
        assert_eq!(trend.cells.len(), CELLS_MAX);
    }
}
