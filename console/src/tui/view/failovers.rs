//! Screen 3: failovers, and the time line of the selected one.
//!
//! ```text
//! ┌─ Failovers 3 ────────────────────────────────────────────── median 156us ─┐
//! │   TIME             VIEW  DEAD        LEVEL     DECIDED BY  TOTAL   LAST    │
//! │ ▸ 14:02:11.431277  7     app-2 (7)   deadbeat  coord-1     156us   app-1   │
//! └────────────────────────────────────────────────────────────────────────────┘
//! ┌─ Time line of view 7 ──────────── 2.00us/column  +/- zoom  h/l pan ───────┐
//! │ us        0         20        40        60                                 │
//! │ coord-1   N─P───D─F C                                                      │
//! │ app-1                                 A S                                  │
//! │ N notice  P propose  D decide  F fenced  C CLEAR sent  A active            │
//! │ path      =propose=-- decide --===fence===-clear-==== active ====          │
//! │ phases    propose 5.00us  decide 13.0us  fence 12.0us  clear 1.00us ...    │
//! │ median 3  ...                                                              │
//! │ critical path: coord-1 decides, app-1 is active last, 125us after CLEAR    │
//! └────────────────────────────────────────────────────────────────────────────┘
//! ```

use crate::tui::state::Model;
use crate::tui::state::data::Data;
use crate::tui::state::failovers::{self, Failover, PHASES};
use crate::tui::theme::Role;
use crate::tui::view::canvas::{Canvas, Cell, time_of_day};
use crate::tui::view::grid::{Column, Grid};
use obol_fabric::recorder::Kind as Event;
use obol_fabric::{Instant, Nanos};
use ratatui::layout::Rect;

pub(crate) const COLUMNS: [Column; 7] = [
    Column { head: "TIME", least: 16, right: false, fold: 3 },
    Column { head: "VIEW", least: 4, right: true, fold: 0 },
    Column { head: "DEAD", least: 12, right: false, fold: 0 },
    Column { head: "LEVEL", least: 9, right: false, fold: 2 },
    Column { head: "DECIDED BY", least: 10, right: false, fold: 4 },
    Column { head: "TOTAL", least: 6, right: true, fold: 1 },
    Column { head: "LAST", least: 8, right: false, fold: 5 },
];

/// The list leaves the time line at least this height, or there is none.
const LINE_LEAST: u16 = 9;
/// The list is at most so high while there is a time line.
const LIST_MOST: u16 = 10;
/// And at least, if it has so many rows: two failovers can be compared.
const LIST_LEAST: u16 = 5;
/// Columns of the time line's names.
const NAMES_WIDE: u16 = 10;
/// Columns of a phase's name and time.
const PHASE_WIDE: u16 = 16;
/// The names where there is no room for the whole ones.
const PHASES_SHORT: [&str; 5] = ["prop", "dec", "fence", "clear", "act"];
/// Columns between two marks of the axis.
const MARK_EVERY: u16 = 10;

/// The failovers that are shown, oldest first.
pub(crate) fn rows(model: &Model) -> Vec<Failover> {
    let data = model.data();
    let filter = &model.failovers.filter;
    let mut all = failovers::all(data);
    if !filter.is_empty() {
        all.retain(|failover| {
            let level = failover.dead.first().and_then(|dead| dead.level);
            filter.keeps(&[
                ("dead", &dead(failover, data)),
                ("level", level.map_or("", |level| level.name())),
                ("coordinator", failover.decider.as_str()),
            ])
        });
    }
    all
}

/// The list, and what is left for the time line below it.
pub(crate) fn split(model: &Model, body: Rect) -> (Rect, Option<Rect>) {
    let rows = u16::try_from(rows(model).len()).unwrap_or(u16::MAX);
    // A long list leaves room for the time line, and keeps a few rows.
    let wanted = rows.saturating_add(3).clamp(4, LIST_MOST);
    let wanted = wanted.min(body.height.saturating_sub(LINE_LEAST)).max(wanted.min(LIST_LEAST));
    if rows == 0 || body.height < wanted + LINE_LEAST {
        return (body, None);
    }
    let below = Rect { y: body.y + wanted, height: body.height - wanted, ..body };
    (Rect { height: wanted, ..body }, Some(below))
}

fn dead(failover: &Failover, data: &Data) -> String {
    let names: Vec<String> = failover.dead.iter().map(|dead| data.who(dead.who)).collect();
    names.join(", ")
}

/// A span, or that it is not known.
fn span(value: Option<Nanos>) -> String {
    value.map_or("--".to_owned(), |value| value.to_string())
}

fn cells(failover: &Failover, data: &Data) -> Vec<Cell> {
    let level = failover.dead.first().and_then(|dead| dead.level);
    let time = data.sample.as_deref().map(|sample| {
        let unix = sample.unix.saturating_sub(sample.at.since(failover.began).0);
        time_of_day(unix)
    });
    vec![
        Cell::new(time.unwrap_or_default(), Role::Dim),
        Cell::text(failover.view.to_string()),
        Cell::new(dead(failover, data), Role::Bad),
        Cell::maybe(level.map(|level| level.name())),
        Cell::text(failover.decider.to_string()),
        Cell::maybe(failover.total().map(|total| total.to_string())),
        Cell::maybe(failover.last_active().map(|(name, _)| name.to_string())),
    ]
}

/// Draws the screen. Without a selection it is about the newest failover.
pub(crate) fn draw(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let data = model.data();
    let rows = rows(model);
    let list = &model.failovers;
    let views: Vec<_> = rows.iter().map(|failover| failover.view).collect();
    let grid = Grid { tail: true, ..Grid::of(&COLUMNS, list, &views) };
    let place = if grid.marked { grid.place } else { rows.len().saturating_sub(1) };
    let (above, below) = split(model, area);
    let (phases, total) = failovers::medians(&rows);
    let title = Cell::new(format!("Failovers {}", rows.len()), Role::Title);
    let median = total.map(|total| format!("median {total}"));
    let inside = grid.frame(canvas, above, &[title], &list.filter, median);
    if rows.is_empty() {
        let why = if model.replay.is_some() && list.filter.is_empty() {
            "no failover up to this moment of the recording; {event-forward} goes to the next view change"
        } else if list.filter.is_empty() {
            "no failover in the events that were read; `obol kill app-1` makes one"
        } else {
            "the filter keeps no failover; {back} clears it"
        };
        canvas.put(inside, inside.x + 2, inside.y, &model.keymap.fill(why), Role::Dim);
        return;
    }
    grid.draw(canvas, inside, |row| cells(&rows[row], data));
    if let (Some(below), Some(failover)) = (below, rows.get(place)) {
        line(model, canvas, below, failover, &rows, phases);
    }
}

/// The sign of a moment.
const fn sign(event: Event) -> &'static str {
    match event {
        Event::Notice => "N",
        Event::Propose => "P",
        Event::Decide => "D",
        Event::Fenced => "F",
        Event::Clear => "C",
        Event::ViewReceived => "v",
        Event::Active => "A",
        Event::Service => "S",
        _ => "*",
    }
}

/// What the signs of a time line mean, as far as it has them and there is room.
fn legend(failover: &Failover, columns: u16) -> String {
    const ALL: [(Event, &str); 8] = [
        (Event::Notice, "notice"),
        (Event::Propose, "propose"),
        (Event::Decide, "decide"),
        (Event::Fenced, "fenced"),
        (Event::Clear, "CLEAR sent"),
        (Event::ViewReceived, "view received"),
        (Event::Active, "active"),
        (Event::Service, "first service"),
    ];
    let used = ALL.iter().filter(|(event, _)| failover.moments.iter().any(|m| m.event == *event));
    let mut words: Vec<String> = used.map(|(event, word)| format!("{} {word}", sign(*event))).collect();
    if failover.doubt() > Nanos::ZERO {
        words.push("( ) may be anywhere in between".to_owned());
    }
    while words.len() > 1 && words.join("  ").len() > usize::from(columns + NAMES_WIDE) {
        words.pop();
    }
    words.join("  ")
}

/// How much a moment says, beside others.
const fn weight(event: Event) -> u8 {
    match event {
        Event::ViewReceived => 0,
        Event::Service => 1,
        Event::Propose => 2,
        Event::Fenced => 3,
        Event::Notice => 4,
        Event::Clear => 5,
        Event::Active => 6,
        _ => 7,
    }
}

/// How much time a column stands for: the whole failover fits, times the zoom.
fn per_column(failover: &Failover, columns: u16, zoom: i8) -> f64 {
    let end = failover.moments.last().map_or(failover.began, |moment| moment.at);
    let whole = end.since(failover.began).0.max(1) as f64;
    let fit = whole / f64::from(columns.saturating_sub(2).max(1));
    (fit * 2f64.powi(i32::from(-zoom))).max(1.0)
}

/// The time line of one failover, from the notice at its decider on.
fn line(
    model: &Model,
    canvas: &mut Canvas<'_>,
    area: Rect,
    failover: &Failover,
    all: &[Failover],
    medians: [Option<Nanos>; 5],
) {
    let columns = area.width.saturating_sub(2 + NAMES_WIDE + 1);
    let unit = per_column(failover, columns, model.zoom);
    // All processes of a host stamp by one clock.
    let error = match failover.doubt() {
        Nanos::ZERO => Nanos::ZERO.to_string(),
        doubt => format!("+-{doubt}"),
    };
    let right = format!("{}/column  clock error {error}  +/- zoom  h/l pan", Nanos(unit.round() as u64));
    let title = Cell::new(format!("Time line of view {}", failover.view), Role::Title);
    let inside = canvas.frame(area, &[title], &[Cell::new(right, Role::Dim)]);
    let compared =
        model.marked.and_then(|view| all.iter().find(|f| f.view == view && f.view != failover.view));
    let foot = 4 + 2 * u16::from(compared.is_some());
    let lines = inside.height.saturating_sub(1 + foot);
    let left = inside.x + 1 + NAMES_WIDE;
    let from = f64::from(model.pan) * f64::from(MARK_EVERY) * unit;
    axis(canvas, inside, left, from, unit);
    let column = |at: Instant| {
        let x = (at.since(failover.began).0 as f64 - from) / unit;
        (x >= 0.0 && x < f64::from(columns)).then(|| left + x as u16)
    };
    let names = failover.processes();
    for (y, name) in (inside.y + 1..).zip(names.iter().take(usize::from(lines))) {
        canvas.put(inside, inside.x + 1, y, name.as_str(), Role::Text);
        let mut mine: Vec<_> = failover.moments.iter().filter(|m| m.process == *name).collect();
        let ends = (mine.first().and_then(|m| column(m.at)), mine.last().and_then(|m| column(m.at)));
        if let (Some(first), Some(last)) = ends {
            let across = canvas.glyphs.across.repeat(usize::from(last - first));
            canvas.put(inside, first, y, &across, Role::Dim);
        }
        // Where several fall into one column, the one that says most is seen.
        mine.sort_by_key(|moment| weight(moment.event));
        for moment in mine {
            if let Some(x) = column(moment.at) {
                // Anywhere within this it may have been.
                for error in [column(moment.at - moment.doubt), column(moment.at + moment.doubt)] {
                    if let Some(at) = error.filter(|at| *at != x) {
                        canvas.put(inside, at, y, if at < x { "(" } else { ")" }, Role::Dim);
                    }
                }
                let role = if moment.event == Event::Active { Role::Good } else { Role::Title };
                canvas.put(inside, x, y, sign(moment.event), role);
            }
        }
    }
    if names.len() > usize::from(lines) && lines > 0 {
        let more = format!("{} more processes", names.len() - usize::from(lines) + 1);
        let y = inside.y + lines;
        canvas.blank(Rect { x: inside.x, width: inside.width, ..area }, y);
        canvas.put(inside, inside.x + 1, y, &more, Role::Dim);
    }
    let mut y = inside.bottom().saturating_sub(foot);
    if usize::from(lines) > names.len() + 1 {
        canvas.put(inside, inside.x + 1, y - 1, &legend(failover, columns), Role::Dim);
    }
    path(canvas, inside, y, failover, column, left);
    y += 1;
    let wide = (columns / PHASES.len() as u16).min(PHASE_WIDE);
    let names = if wide < PHASE_WIDE { &PHASES_SHORT } else { &PHASES };
    let mut row = |canvas: &mut Canvas<'_>, name: &str, values: [(String, Role); 5], role| {
        canvas.put(inside, inside.x + 1, y, name, role);
        let mut x = left;
        for (phase, (value, role)) in names.iter().zip(values) {
            let cut = Rect { width: (x + wide).min(inside.right()).saturating_sub(inside.x), ..inside };
            canvas.put(cut, x, y, &format!("{phase} {value}"), role);
            x += wide;
        }
        y += 1;
    };
    let mine = failover.phases();
    row(canvas, "phases", mine.map(|value| (span(value), Role::Text)), Role::Dim);
    // Of how many the list's title says, too.
    let label = Some(format!("median {}", all.len())).filter(|label| label.len() < usize::from(NAMES_WIDE));
    let label = label.as_deref().unwrap_or("median");
    row(canvas, label, medians.map(|value| (span(value), Role::Dim)), Role::Dim);
    if let Some(other) = compared {
        let theirs = other.phases();
        row(
            canvas,
            &format!("view {}", other.view),
            theirs.map(|value| (span(value), Role::Text)),
            Role::Warn,
        );
        let changes = std::array::from_fn(|n| change(theirs[n], mine[n]));
        row(canvas, "change", changes, Role::Warn);
    }
    let last = failover.last_active().map_or("nobody became active".to_owned(), |(name, _)| {
        let after = span(failover.phases()[4]);
        let or = match failover.perhaps_last().as_slice() {
            [] => String::new(),
            [other] => format!(" or {other} (within the clock error)"),
            others => format!(" or one of {} others (within the clock error)", others.len()),
        };
        format!("critical path: {} decides, {name}{or} is active last, {after} after CLEAR", failover.decider)
    });
    canvas.put(inside, inside.x + 1, y, &last, Role::Dim);
}

/// How much longer something took than before.
fn change(before: Option<Nanos>, now: Option<Nanos>) -> (String, Role) {
    match (before, now) {
        (Some(before), Some(now)) if now == before => ("same".to_owned(), Role::Dim),
        (Some(before), Some(now)) if now > before => (format!("+{}", Nanos(now.0 - before.0)), Role::Warn),
        (Some(before), Some(now)) => (format!("-{}", Nanos(before.0 - now.0)), Role::Good),
        _ => ("--".to_owned(), Role::Dim),
    }
}

/// The critical path on the scale of the time line: each phase from where it began to where it ended.
fn path(
    canvas: &mut Canvas<'_>,
    inside: Rect,
    y: u16,
    failover: &Failover,
    column: impl Fn(Instant) -> Option<u16>,
    left: u16,
) {
    canvas.put(inside, inside.x + 1, y, "path", Role::Dim);
    let mut begins = failover.began;
    for (at, (name, span)) in PHASES.iter().zip(failover.phases()).enumerate() {
        // Behind a phase that is not known, the next one's place is not known either.
        let Some(span) = span else { return };
        let ends = begins + span;
        let from = column(begins).unwrap_or(left);
        let to = column(ends).unwrap_or(if ends <= begins { from } else { inside.right() });
        let seen = column(ends).is_some() || column(begins).is_some();
        if let Some(wide) = to.checked_sub(from).filter(|wide| *wide > 0 && seen) {
            let (fill, role) = if at % 2 == 0 { ("=", Role::Title) } else { ("-", Role::Good) };
            let label = format!(" {name} ");
            let lines = usize::from(wide).saturating_sub(label.len() + 2);
            let text = if usize::from(wide) >= label.len() + 2 {
                format!("{}{label}{}", fill.repeat(1 + lines / 2), fill.repeat(1 + lines - lines / 2))
            } else {
                fill.repeat(usize::from(wide))
            };
            canvas.put(inside, from, y, &text, role);
        }
        begins = ends;
    }
}

/// The axis: a figure at every tenth column.
fn axis(canvas: &mut Canvas<'_>, inside: Rect, left: u16, from: f64, unit: f64) {
    canvas.put(inside, inside.x + 1, inside.y, "after", Role::Dim);
    let mut x = left;
    while x + MARK_EVERY <= inside.right() {
        let at = from + f64::from(x - left) * unit;
        let text = if at == 0.0 { "0".to_owned() } else { Nanos(at.round() as u64).to_string() };
        canvas.put(inside, x, inside.y, &text, Role::Dim);
        x += MARK_EVERY;
    }
}
