//! Screen 2: whether leases are renewed in time, and their margins.
//!
//! ```text
//! ┌─ Leases 3  20.0ms each  on time 375/s  late 0/s  failed 0/s ───────────────────────────┐
//! │   NAME    STATE  LEASE   MARGIN   LEAST  SLOWEST  ON TIME/s  LATE/s  FAILED/s  LATE  .. │
//! │ ▸ node-1  ok     active  14.9ms  12.0ms   91.0us        125       0         0     0     │
//! └────────────────────────────────────────────────────────────────────────────────────────┘
//! ┌─ Left of the lease at a renewal, 60s ─────┐┌─ A renewal took, 60s ─────────────────────┐
//! │   10.0ms ████████████████████████    7200  ││    5.00us █████████████████████    5220   │
//! └────────────────────────────────────────────┘└───────────────────────────────────────────┘
//! ```
//!
//! LEAST and SLOWEST are over the last minute. The bars are of all processes together; each line
//! counts from its value on.

use crate::screens::members::{self, lease, margin, renews, tone};
use crate::screens::{About, Screen};
use crate::state::table::Key;
use crate::state::{Model, RowId, ScreenId};
use crate::theme::Tone;
use crate::widgets::bars::{self, Side};
use crate::widgets::canvas::{Canvas, Cell, count, rate};
use crate::widgets::grid::{Column, Grid};
use crate::widgets::trend::{self, Trend};
use obol_fabric::{Instant, Nanos};
use obol_membership::metrics::{Counter, Histogram};
use obol_observe::histograms::Counts;
use obol_observe::sampling::data::Data;
use obol_observe::sampling::sample::{Life, ProcessRow};
use ratatui::layout::Rect;

const ID: ScreenId = ScreenId("Leases");

pub(super) struct Leases;

impl Screen for Leases {
    fn about(&self) -> About {
        About { signs: &bars::SIGNS, ..About::list(ID, &COLUMNS) }
    }

    fn what(&self) -> &'static str {
        "A lease lets programs act for a short time; agents renew it many times before it ends. LATE and FAILED should not grow; a small MARGIN means that a short pause ends the lease."
    }

    fn rows(&self, model: &Model) -> Vec<RowId> {
        rows(model).iter().map(|row| RowId::Process(row.name)).collect()
    }

    fn list_area(&self, model: &Model, area: Rect) -> Rect {
        split(model, area).0
    }

    fn trends(&self) -> &'static [&'static Trend] {
        const SHOWN: &[&Trend] = &[&trend::LATE, &trend::MARGIN, &trend::ON_TIME];
        SHOWN
    }

    fn draw(&self, model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
        let data = model.data();
        let rows = rows(model);
        let list = model.list(ID);
        let ids = self.rows(model);
        let (above, below) = split(model, area);
        let grid = Grid::of(&COLUMNS, list, &ids);
        let inside = grid.frame(canvas, above, &title(&rows, data), &list.filter, None);
        if rows.is_empty() {
            let why = ("process", "no process renews a lease yet");
            super::draw_none(model, canvas, inside, &list.filter, why);
        } else {
            let all: Vec<Vec<Cell>> = {
                let shown = grid.shown(usize::from(inside.height.saturating_sub(1)).max(1));
                let cells =
                    |at: usize| if shown.contains(&at) { cells(rows[at], data, canvas) } else { Vec::new() };
                (0..rows.len()).map(cells).collect()
            };
            grid.draw(canvas, inside, |row| all[row].clone());
        }
        let Some(below) = below else { return };
        let set = data.windows.last();
        let (margins, renewals) = (&set[Histogram::Margin as usize], &set[Histogram::Renewal as usize]);
        let two = area.width >= TWO_FROM;
        let half = if two { below.width / 2 } else { below.width };
        let left = Rect { width: half, ..below };
        chart(canvas, left, "Lease margin at renewal, last 60s", margins);
        if two {
            let right = Rect { x: below.x + half, width: below.width - half, ..below };
            chart(canvas, right, "Renewal latency, last 60s", renewals);
        }
    }
}

/// The columns, and which are hidden first.
const COLUMNS: [Column; 14] = [
    Column::text("NAME", 8, 0).means("the process that renews a lease"),
    Column::text("STATE", 6, 1).means("as on screen 1"),
    Column::text("KIND", 11, 11).means("agent, or cache"),
    Column::text("LEASE", 7, 3).means("active, waiting, fenced or expired, as on screen 1"),
    Column::number("MARGIN", 6, 2)
        .means("time left of the lease when it was read; !: below the alert threshold")
        .small_first(),
    Column::number("LEAST", 6, 4).means("the least time left at a renewal of the last minute").small_first(),
    Column::number("SLOWEST", 7, 8).means("the longest renewal of the last minute"),
    Column::number("ON TIME/s", 9, 5).means("renewals per second before the end of the lease"),
    Column::number("LATE/s", 6, 6).means("renewals per second after its end"),
    Column::number("FAILED/s", 8, 7).means("renewals per second that found no majority"),
    Column::number("LATE", 4, 9).means("late renewals since the process began"),
    Column::number("FAILED", 6, 9).means("failed renewals since the process began"),
    Column::number("BY CACHE", 8, 12).means("renewals through a lease cache, since the process began"),
    Column::text("60s", members::SPARK, 13)
        .means("renewals per second over the last minute, 5 s per bar, scaled to the row's maximum"),
];

/// Least height of the bars below the list; with less, there are none.
const BARS_LEAST: u16 = 6;
/// Least width for two sets of bars side by side.
const TWO_FROM: u16 = 90;

/// The shown rows in order.
fn rows(model: &Model) -> Vec<&ProcessRow> {
    let filter = &model.list(ID).filter;
    let kept = |row: &ProcessRow, data: &Data| {
        let state = data.status(row).words().1;
        renews(row)
            && filter.keeps(&[("name", row.name.as_str()), ("kind", row.kind.name()), ("state", state)])
    };
    super::processes(model, ID, &COLUMNS, kept, key)
}

fn key(column: usize, row: &ProcessRow, data: &Data, at: Instant) -> Key {
    let number = |value: Option<f64>| value.map_or(Key::Missing, Key::Number);
    let span = |value: Option<Nanos>| number(value.map(|value| value.0 as f64));
    let track = data.tracks.get(&row.name);
    let per_second = |counter| number(track.and_then(|track| track.rate(counter)));
    match COLUMNS[column].head {
        "NAME" => Key::Text(row.name.to_string()),
        "STATE" => Key::Number(f64::from(data.status(row) as u8)),
        "KIND" => Key::Text(row.kind.name().to_owned()),
        "LEASE" => Key::Text(lease(row, at).0.to_owned()),
        "MARGIN" => span(margin(row, at)),
        "LEAST" => span(track.and_then(|track| track.least())),
        "SLOWEST" => span(track.and_then(|track| track.slowest())),
        "ON TIME/s" | "60s" => per_second(Counter::RenewalsOnTime),
        "LATE/s" => per_second(Counter::RenewalsLate),
        "FAILED/s" => per_second(Counter::RenewalsFailed),
        "LATE" => Key::Number(row.counter(Counter::RenewalsLate) as f64),
        "FAILED" => Key::Number(row.counter(Counter::RenewalsFailed) as f64),
        "BY CACHE" => Key::Number(row.counter(Counter::RenewalsCached) as f64),
        _ => Key::Missing,
    }
}

fn cells(row: &ProcessRow, data: &Data, canvas: &Canvas<'_>) -> Vec<Cell> {
    let at = data.sample.as_ref().map_or(Instant::ZERO, |sample| sample.at);
    let status = data.status(row);
    let (sign, word) = status.words();
    let track = data.tracks.get(&row.name).filter(|_| !matches!(row.life, Life::Down | Life::Left));
    let (held, held_role) = lease(row, at);
    // The cause of an alert is marked here as well.
    let percent =
        data.sample.as_ref().and_then(|sample| sample.thresholds).map(|t| u64::from(t.margin_percent));
    let limit = data.lease().zip(percent).map(|(lease, percent)| lease.0.saturating_mul(percent) / 100);
    let left = |value: Option<Nanos>| match (value, limit) {
        (Some(value), Some(limit)) if value.0 < limit => Cell::new(format!("{value}!"), Tone::Warn),
        (value, _) => Cell::maybe(value.map(|value| value.to_string())),
    };
    let per_second = |counter, warns: bool| {
        track.and_then(|track| track.rate(counter)).map_or(Cell::none(), |n| {
            Cell::new(rate(n), if warns && n > 0.0 { Tone::Warn } else { Tone::Text })
        })
    };
    let total = |counter| {
        let n = row.counter(counter);
        Cell::new(count(n), if n > 0 { Tone::Warn } else { Tone::Text })
    };
    vec![
        Cell::text(row.name.to_string()),
        Cell::new(format!("{sign} {word}").trim_start().to_owned(), tone(status)),
        Cell::text(row.kind.name()),
        Cell::new(held, held_role),
        left(margin(row, at)),
        left(track.and_then(|track| track.least())),
        Cell::maybe(track.and_then(|track| track.slowest()).map(|value| value.to_string())),
        per_second(Counter::RenewalsOnTime, false),
        per_second(Counter::RenewalsLate, true),
        per_second(Counter::RenewalsFailed, true),
        total(Counter::RenewalsLate),
        total(Counter::RenewalsFailed),
        Cell::text(count(row.counter(Counter::RenewalsCached))),
        Cell::new(members::spark(row, data, &canvas.glyphs), Tone::Dim),
    ]
}

/// The list, and the area of the bars below it.
fn split(model: &Model, body: Rect) -> (Rect, Option<Rect>) {
    let rows = u16::try_from(rows(model).len()).unwrap_or(u16::MAX);
    let wanted = rows.saturating_add(3).max(4);
    // With many rows the bars keep their place: the list has pages.
    let most = body.height.saturating_sub(BARS_LEAST);
    if most < 4 || wanted > most && body.height < 2 * BARS_LEAST + 4 {
        return (body, None);
    }
    let above = wanted.min(most);
    let below = Rect { y: body.y + above, height: body.height - above, ..body };
    (Rect { height: above, ..body }, Some(below))
}

fn chart(canvas: &mut Canvas<'_>, area: Rect, title: &'static str, counts: &Counts) {
    let right = [Cell::new(format!("{} renewals", count(counts.len())), Tone::Dim)];
    let inside = canvas.frame(area, &[Cell::new(title, Tone::Title)], &right);
    bars::draw(canvas, inside, &[Side { head: "", counts, tone: Tone::Good }]);
}

/// Totals of all leases.
fn title(rows: &[&ProcessRow], data: &Data) -> Vec<Cell> {
    let mut title = vec![Cell::new(format!("Leases {}", rows.len()), Tone::Title)];
    if let Some(length) = data.lease() {
        title.push(Cell::text(format!("  {length} each")));
    }
    for (word, counter) in [
        ("on time", Counter::RenewalsOnTime),
        ("late", Counter::RenewalsLate),
        ("failed", Counter::RenewalsFailed),
    ] {
        let rates = rows.iter().filter_map(|row| data.tracks.get(&row.name)?.rate(counter));
        let all = rates.fold(None, |sum: Option<f64>, one| Some(sum.unwrap_or(0.0) + one));
        let tone = if counter != Counter::RenewalsOnTime && all.is_some_and(|n| n > 0.0) {
            Tone::Warn
        } else {
            Tone::Dim
        };
        title.push(Cell::new(format!("  {word} {}", all.map_or("--".to_owned(), |n| rate(n) + "/s")), tone));
    }
    title
}
