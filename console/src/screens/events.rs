//! Screen 8: the flight recorders of all processes, merged by their own stamps, oldest first.
//!
//! ```text
//! ┌─ Events 812 ─────────────────────────────────────── filter process=app-1  30-62 of 62 ─┐
//! │     TIME           AFTER   PROCESS   EVENT          DETECTOR   WHAT                        │
//! │   14:02:11.431277  +5.5us  coord-1   decide                    view 7                      │
//! └────────────────────────────────────────────────────────────────────────────────────────┘
//! ```

use crate::screens::{About, Screen};
use crate::state::table::Move;
use crate::state::{Model, RowId, ScreenId};
use crate::theme::Tone;
use crate::widgets::canvas::{Canvas, Cell, time_of_day, width};
use crate::widgets::grid::{Column, Grid};
use obol_membership::recorder::EventKind;
use obol_observe::sampling::data::Data;
use obol_observe::sampling::sample::EventRow;
use ratatui::layout::Rect;

pub(super) const ID: ScreenId = ScreenId("Events");

pub(super) struct Events;

impl Screen for Events {
    fn about(&self) -> About {
        About { can_sort: false, ..About::list(ID, &COLUMNS) }
    }

    fn what(&self) -> &'static str {
        "What all processes noted in their flight recorders, merged by time to the microsecond. Failovers and incidents are made of these."
    }

    fn hints(&self, _: &Model) -> &'static str {
        "{down}/{up} select   {filter} filter   {back} back   {freeze} freeze   {step-back} {step-forward} step"
    }

    fn rows(&self, model: &Model) -> Vec<RowId> {
        rows(model).iter().map(|event| RowId::Event(event.process, event.at)).collect()
    }

    /// Without a selection it follows the newest event.
    fn draw(&self, model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
        let data = model.data();
        let rows = rows(model);
        let list = model.list(ID);
        let ids = self.rows(model);
        let grid = Grid { tail: true, ..Grid::of(&COLUMNS, list, &ids) };
        let title = Cell::new(format!("Events {}", data.events.len()), Tone::Title);
        let gone = (data.events_gone > 0).then(|| format!("{} older ones gone", data.events_gone));
        let inside = grid.frame(canvas, area, &[title], &list.filter, gone);
        if rows.is_empty() {
            let why = ("event", "no event has been read yet");
            return super::draw_none(model, canvas, inside, &list.filter, why);
        }
        grid.draw(canvas, inside, |row| cells(&rows, row, data));
    }

    fn select(&self, model: &mut Model, to: Move) -> bool {
        let rows = self.rows(model);
        let list = model.list_mut(ID);
        match (to, &list.selected) {
            // The newest are shown by default.
            (Move::By(_), None) => list.go(Move::Last, &rows),
            _ => list.go(to, &rows),
        }
    }
}

const COLUMNS: [Column; 6] = [
    Column::text("TIME", 16, 2).means("time of day in UTC, to the microsecond, as stamped by the process"),
    Column::number("AFTER", 8, 5)
        .means("since the event in the line above; ?: unknown, as the clocks may be off by this much"),
    Column::text("PROCESS", 8, 0).means("the process that recorded it"),
    Column::text("EVENT", 13, 0).means("what happened"),
    Column::text("DETECTOR", 9, 4).means("the detector, if a process is suspected"),
    Column::text("WHAT", 30, 1).filling().means("the view or the member, with incarnations in brackets"),
];

/// The tone of an event: consequences of failures stand out.
fn tone(event: EventKind) -> Tone {
    match event {
        EventKind::Notice | EventKind::Excluded | EventKind::LeaseLost => Tone::Bad,
        EventKind::Suspect
        | EventKind::Abort
        | EventKind::Takeover
        | EventKind::ClockFast
        | EventKind::ClockSlow => Tone::Warn,
        EventKind::Active | EventKind::Joined | EventKind::Clear => Tone::Good,
        _ => Tone::Text,
    }
}

/// The time of day of an event to the microsecond, by the sample's two clocks.
pub(super) fn time(event: &EventRow, data: &Data) -> String {
    let Some(sample) = data.sample.as_deref() else { return String::new() };
    let unix = sample.unix.saturating_sub(sample.at.since(event.at).0);
    time_of_day(unix)
}

/// The shown events, oldest first.
fn rows(model: &Model) -> Vec<&EventRow> {
    let data = model.data();
    let filter = &model.list(ID).filter;
    let kept = |event: &&EventRow| {
        filter.is_empty()
            || filter.keeps(&[
                ("process", event.process.as_str()),
                ("kind", event.kind.name()),
                ("event", event.event.name()),
                ("detector", event.reason.map_or("", |reason| reason.name())),
                ("what", &data.describe(event)),
            ])
    };
    data.events.iter().filter(kept).collect()
}

fn cells(rows: &[&EventRow], at: usize, data: &Data) -> Vec<Cell> {
    let event = rows[at];
    let after = at.checked_sub(1).map(|before| {
        let (before, doubt) = (rows[before], event.doubt.max(rows[before].doubt));
        match event.at.since(before.at) {
            // By another host's clock: the order is uncertain.
            since if doubt > obol_fabric::Nanos::ZERO && since <= doubt => format!("? <{doubt}"),
            since => format!("+{since}"),
        }
    });
    vec![
        Cell::new(time(event, data), Tone::Dim),
        Cell::maybe(after),
        Cell::text(event.process.to_string()),
        Cell::new(event.event.name(), tone(event.event)),
        Cell::text(event.reason.map_or("", |reason| reason.name())),
        Cell::text(data.describe(event)),
    ]
}

/// Names take at most this part of the pane's width, and this many columns at least.
const NAME_PART: u16 = 6;
const NAME_LEAST: u16 = 9;

/// The newest events in a pane of another screen.
pub(super) fn newest(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    list(model, canvas, area, "Newest events", "no event has been read yet", |_| true);
}

/// The newest of the events that are kept, in a pane of another screen; `none` says that there are none.
pub(super) fn list(
    model: &Model,
    canvas: &mut Canvas<'_>,
    area: Rect,
    title: &'static str,
    none: &str,
    keeps: impl Fn(&EventRow) -> bool,
) {
    let data = model.data();
    let hint = Cell::new("8 shows all", Tone::Dim);
    let inside = canvas.frame(area, &[Cell::new(title, Tone::Title)], &[hint]);
    let kept = data.events.iter().rev().filter(|event| keeps(event));
    let mut rows: Vec<&EventRow> = kept.take(usize::from(inside.height)).collect();
    rows.reverse();
    if rows.is_empty() {
        canvas.put(inside, inside.x + 2, inside.y, none, Tone::Dim);
    }
    // Names have as much room as the longest of them needs, and the pane can spare.
    let longest = rows.iter().map(|event| width(event.process.as_str())).max().unwrap_or_default();
    let name = longest.min(inside.width / NAME_PART).max(NAME_LEAST);
    for (y, at) in (inside.y..).zip(0..rows.len()) {
        let row = cells(&rows, at, data);
        let mut x = inside.x + 2;
        for (cell, (wide, right)) in row.iter().zip([
            (15, false),
            (8, true),
            (name, false),
            (13, false),
            (9, false),
            (inside.width, false),
        ]) {
            // What is too long for its column is cut there.
            let column = Rect { x, width: wide.min(inside.right().saturating_sub(x)), ..inside };
            let from = if right { x + wide.saturating_sub(cell.width()) } else { x };
            canvas.put(column, from, y, &cell.text, cell.tone);
            x = x.saturating_add(wide).saturating_add(1 + u16::from(right));
        }
    }
}
