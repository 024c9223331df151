//! Screen 7: latency distributions, as counted by the processes, and their changes.
//!
//! ```text
//! ┌─ Latency, last 60s ───────────────────────────────── before: the minute before that ─┐
//! │   WHAT      p50     p90     p99     p99.9   WORST   N      BEFORE p50  p99     p99   │
//! │ ▸ renewal   6.00us  7.00us  9.00us  93.0us  93.0us  5760       6.00us  9.00us  +0%   │
//! └──────────────────────────────────────────────────────────────────────────────────────┘
//! ┌─ renewal: before and after ──────────────────────────────────────────────────────────┐
//! │            before                         after                                      │
//! │   5.00us   ███████████████   5220         ███████████████   5220                     │
//! └──────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The histograms are in the nodes' memory and only grow, so a window over them holds every renewal
//! and every decision, however rarely the console polls. Buckets are within 1/16; a percentile
//! needs enough samples. For the margin, small values are bad: 99 % of the renewals had at least
//! its p99 left.

use crate::screens::{About, Screen};
use crate::state::table::Move;
use crate::state::{Model, RowId, ScreenId};
use crate::theme::Tone;
use crate::widgets::bars::{self, Side};
use crate::widgets::canvas::{Canvas, Cell, count};
use crate::widgets::grid::{Column, Grid};
use crate::widgets::trend::{self, Trend};
use obol_fabric::metrics::bucket;
use obol_fabric::{Instant, Nanos};
use obol_membership::metrics::Histogram;
use obol_observe::calendar::age;
use obol_observe::histograms::Counts;
use obol_observe::sampling::data::Data;
use obol_observe::sampling::windows::{Before, PERCENTILES, Set, percentile};
use ratatui::layout::Rect;

const ID: ScreenId = ScreenId("Latency");

pub(super) struct Latency;

impl Screen for Latency {
    fn about(&self) -> About {
        About { can_sort: false, can_filter: false, signs: &bars::SIGNS, ..About::list(ID, &COLUMNS) }
    }

    fn what(&self) -> &'static str {
        "How long renewals, decisions and failovers took lately, beside the time before: the previous minute, or before the newest mark."
    }

    fn hints(&self, _: &Model) -> &'static str {
        "{down}/{up} select   {freeze} freeze   {step-back} {step-forward} step"
    }

    fn rows(&self, _: &Model) -> Vec<RowId> {
        // The histograms, and the failovers.
        (0..=Histogram::ALL.len()).map(RowId::Fixed).collect()
    }

    fn trends(&self) -> &'static [&'static Trend] {
        const SHOWN: &[&Trend] = &[&trend::MARGIN, &trend::ON_TIME];
        SHOWN
    }

    fn draw(&self, model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
        let data = model.data();
        let (which, rows) = rows(data);
        let (before, after) = sides(data, which);
        let list = model.list(ID);
        let ids = self.rows(model);
        let place = list.place(&ids);
        let wanted = u16::try_from(rows.len()).unwrap_or(u16::MAX).saturating_add(3);
        let above = match area.height.checked_sub(wanted) {
            Some(left) if left >= BARS_LEAST => Rect { height: wanted, ..area },
            _ => area,
        };
        let inside = if above.height < 4 {
            above
        } else {
            let title = Cell::new(format!("Latency, {after}"), Tone::Title);
            canvas.frame(above, &[title], &[Cell::new(format!("before: {before}"), Tone::Dim)])
        };
        let grid = Grid::of(&COLUMNS, list, &ids);
        grid.draw(canvas, inside, |row| cells(&rows[row]));
        let Some(what) = rows.get(place).filter(|_| above.height < area.height) else { return };
        let below = Rect { y: above.bottom(), height: area.height - above.height, ..area };
        let note = model.keymap.fill(if what.small_is_bad { "low is bad" } else { "{down}/{up} select" });
        let sides = if what.before.is_empty() { "" } else { ": before and after" };
        let title = Cell::new(format!("{}{sides}", what.name), Tone::Title);
        let inside = canvas.frame(below, &[title], &[Cell::new(note, Tone::Dim)]);
        let side = |head, counts, tone| Side { head, counts, tone };
        let both = [side("before", &what.before, Tone::Dim), side("after", &what.after, Tone::Good)];
        bars::draw(canvas, inside, if what.before.is_empty() { &both[1..] } else { &both });
    }

    fn select(&self, model: &mut Model, to: Move) -> bool {
        // The first row is shown by default.
        let rows = self.rows(model);
        model.list_mut(ID).go(to, &rows);
        true
    }
}

const COLUMNS: [Column; 10] = [
    Column::text("WHAT", 9, 0).means(
        "renewal: of a lease, posted to majority; decide: proposed to decided; clear: decided to CLEAR; \
         margin: left of the lease at a renewal; failover: noticed to active",
    ),
    Column::number("p50", 6, 2).means("half took no longer; for the margin, half had at least this left"),
    Column::number("p90", 6, 5).means("90 % took no longer; for the margin, 90 % had at least this left"),
    Column::number("p99", 6, 1).means("99 % likewise; -- until there are 299 samples"),
    Column::number("p99.9", 6, 4).means("99.9 % likewise; -- until there are 2995 samples"),
    Column::number("WORST", 6, 3).means("the longest; for the margin, the least"),
    Column::number("N", 6, 6).means("samples in the window"),
    Column::number("BEFORE p50", 10, 8)
        .means("the median before: of the previous minute, or before the newest annotation"),
    Column::number("BEFORE p99", 10, 7).means("the p99 before"),
    Column::number("p99 NOW", 7, 7).means("the change of the p99"),
];

/// Percentage by which a changed percentile needs attention; the buckets alone make 6.
const CHANGE_WARNS: f64 = 20.0;

/// Least height of the bars below the table; with less, there are none.
const BARS_LEAST: u16 = 6;

/// One row, and whether small values are bad.
struct What {
    name: &'static str,
    small_is_bad: bool,
    before: Counts,
    after: Counts,
}

/// The rows: before and after.
fn rows(data: &Data) -> (Before, Vec<What>) {
    let (which, before, after): (Before, Set, Set) = data.windows.compared();
    let mut rows: Vec<What> = Histogram::ALL
        .iter()
        .zip(before.into_iter().zip(after))
        .map(|(histogram, (before, after))| What {
            name: histogram.name(),
            small_is_bad: *histogram == Histogram::Margin,
            before,
            after,
        })
        .collect();
    // Failovers are few: all known ones count, divided by the mark if there is one.
    let mark = data.note().map(|mark| mark.at);
    let mut sides = [Counts::default(), Counts::default()];
    for failover in data.failovers() {
        let Some(total) = failover.total() else { continue };
        let side = usize::from(mark.is_none_or(|mark| failover.began >= mark));
        sides[side].add(&Counts::from_pairs(u16::try_from(bucket(total.0)).map(|bucket| (bucket, 1))));
    }
    let [before, after] = sides;
    rows.push(What { name: "failover", small_is_bad: false, before, after });
    (which, rows)
}

fn cells(what: &What) -> Vec<Cell> {
    let of = |counts: &Counts, at: usize| percentile(counts, at, what.small_is_bad);
    let shown = |value: Option<Nanos>| Cell::maybe(value.map(|value| value.to_string()));
    let worst = if what.small_is_bad { what.after.least() } else { what.after.most() };
    let mut cells = vec![Cell::text(what.name)];
    cells.extend((0..PERCENTILES.len()).map(|at| shown(of(&what.after, at))));
    cells.push(shown(worst));
    cells.push(Cell::text(count(what.after.len())));
    cells.push(shown(of(&what.before, 0)));
    cells.push(shown(of(&what.before, 2)));
    cells.push(match (of(&what.before, 2), of(&what.after, 2)) {
        (Some(before), Some(after)) if before > Nanos::ZERO => {
            let change = (after.0 as f64 / before.0 as f64 - 1.0) * 100.0;
            let bad = if what.small_is_bad { -change } else { change };
            Cell::new(format!("{change:+.0}%"), if bad > CHANGE_WARNS { Tone::Warn } else { Tone::Text })
        }
        _ => Cell::none(),
    });
    cells
}

/// The two sides as text: before, and after.
fn sides(data: &Data, which: Before) -> (String, String) {
    match (which, data.note()) {
        (Before::Mark, Some(mark)) => {
            let now = data.sample.as_ref().map_or(Instant::ZERO, |sample| sample.at);
            let from = data.counted_since().unwrap_or(mark.at);
            let seen = if from > mark.at { " seen" } else { "" };
            (
                format!("the minute before \"{}\"", mark.text),
                format!("{}{seen} since \"{}\"", age(now.since(from)), mark.text),
            )
        }
        _ => ("the previous minute".to_owned(), "last 60s".to_owned()),
    }
}
