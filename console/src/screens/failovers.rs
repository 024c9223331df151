//! Screen 3: failovers, and the time line of the selected one.
//!
//! ```text
//! ┌─ Failovers 3 ────────────────────────────────────────────── median 156us ─┐
//! │   TIME             VIEW  DEAD        DETECTOR  DECIDED BY  TOTAL   LAST    │
//! │ ▸ 14:02:11.431277  7     app-2 (7)   deadbeat  coord-1     156us   app-1   │
//! └────────────────────────────────────────────────────────────────────────────┘
//! ┌─ Time line of view 7 ──────────── 2.00us/column  +/- zoom  h/l pan ───────┐
//! │ us        0         20        40        60                                 │
//! │ coord-1   N─P───D─F C                                                      │
//! │ app-1                                 A S                                  │
//! │ N notice  P propose  D decide  F fenced  C CLEAR sent  A active            │
//! │ path      =propose=-- decide --###fence###=clear=---- active ----          │
//! │ phases    propose 5.00us  decide 13.0us  fence 12.0us  clear 1.00us ...    │
//! │ median 3  ...                                                              │
//! │ critical path: coord-1 decides, app-1 is active last, 125us after CLEAR    │
//! └────────────────────────────────────────────────────────────────────────────┘
//! ```

use crate::input::Action;
use crate::screens::{About, Screen, events};
use crate::state::filter::Filter;
use crate::state::table::Move;
use crate::state::{Effect, Model, RowId, ScreenId};
use crate::theme::Tone;
use crate::widgets::canvas::{Canvas, Cell, time_of_day};
use crate::widgets::grid::{Column, Grid};
use crate::widgets::trend::{self, Trend};
use obol_fabric::{Instant, Name, Nanos};
use obol_membership::recorder::EventKind;
use obol_observe::failovers::{self, Failover, PHASES, STEPS};
use obol_observe::sampling::data::Data;
use ratatui::layout::Rect;

const ID: ScreenId = ScreenId("Failovers");

/// Largest zoom as a power of two, relative to the scale that shows all.
const ZOOM_MAX: i8 = 12;

pub(super) struct Failovers;

impl Screen for Failovers {
    fn about(&self) -> About {
        About { can_sort: false, signs: &SIGNS, ..About::list(ID, &COLUMNS) }
    }

    fn what(&self) -> &'static str {
        "Each time that members failed: who, what noticed it, and how long it took until all survivors were active without them. Below, the selected failover moment by moment."
    }

    fn hints(&self, _: &Model) -> &'static str {
        "{down}/{up} select   {open} its events   {zoom-in}/{zoom-out} zoom   {pan-left}/{pan-right} pan   {zoom-reset} show all   {line-up}/{line-down} processes   {mark} mark, to compare   {filter} filter"
    }

    fn rows(&self, model: &Model) -> Vec<RowId> {
        rows(model).iter().map(|failover| RowId::View(failover.view)).collect()
    }

    fn list_area(&self, model: &Model, area: Rect) -> Rect {
        split(model, area).0
    }

    fn trends(&self) -> &'static [&'static Trend] {
        const SHOWN: &[&Trend] = &[&trend::FAILOVERS, &trend::VIEWS];
        SHOWN
    }

    /// Without a selection it is about the newest failover.
    fn draw(&self, model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
        let data = model.data();
        let rows = rows(model);
        let list = model.list(ID);
        let ids = self.rows(model);
        let grid = Grid { tail: true, ..Grid::of(&COLUMNS, list, &ids) };
        let place = if grid.marked { grid.place } else { rows.len().saturating_sub(1) };
        let (above, below) = split(model, area);
        let (phases, total) = failovers::medians(&rows);
        let mut title = vec![Cell::new(format!("Failovers {}", rows.len()), Tone::Title)];
        title.extend(data.unread_views().map(|unread| {
            let all = format!("  without {} of {} view changes, see ?", unread.missing, unread.of);
            Cell::new(all, Tone::Dim)
        }));
        let median = total.map(|total| format!("median {total}"));
        let inside = grid.frame(canvas, above, &title, &list.filter, median);
        if rows.is_empty() {
            let none = if model.replay.is_some() {
                "no failover up to this moment of the recording; {event-forward} goes to the next view change"
            } else {
                "no failover in the events that were read; try `obol kill app-1`"
            };
            return super::draw_none(model, canvas, inside, &list.filter, ("failover", none));
        }
        grid.draw(canvas, inside, |row| cells(&rows[row], data));
        if let (Some(below), Some(failover)) = (below, rows.get(place)) {
            line(model, canvas, below, failover, &rows, phases);
        }
    }

    fn select(&self, model: &mut Model, to: Move) -> bool {
        let rows = self.rows(model);
        (model.pan, model.scroll) = (Nanos::ZERO, 0);
        let list = model.list_mut(ID);
        // The newest is shown by default.
        list.selected = list.selected.or(rows.last().copied());
        list.go(to, &rows);
        true
    }

    fn act(&self, model: &mut Model, action: Action, _effects: &mut Vec<Effect>) -> Option<bool> {
        match action {
            Action::Open => Some(open(model)),
            Action::Mark => Some(mark(model)),
            Action::ZoomIn
            | Action::ZoomOut
            | Action::ZoomReset
            | Action::PanLeft
            | Action::PanRight
            | Action::LineUp
            | Action::LineDown => Some(look_at(model, action)),
            Action::Copy => {
                // The newest is shown, so it is copied.
                let newest = self.rows(model).last().copied();
                let list = model.list_mut(ID);
                list.selected = list.selected.or(newest);
                None
            }
            _ => None,
        }
    }
}

/// Shows the events of a failover.
fn open(model: &mut Model) -> bool {
    let all = rows(model);
    let first = chosen(model, &all).and_then(|failover| failover.moments.first());
    let selected = first.map(|first| RowId::Event(first.process, first.at));
    let list = model.list_mut(events::ID);
    (list.filter, list.selected) = (Filter::none(), selected);
    model.screen = events::ID;
    true
}

/// Marks the selected failover for comparison, or removes the mark.
fn mark(model: &mut Model) -> bool {
    let all = rows(model);
    let Some(here) = chosen(model, &all).map(|failover| failover.view) else { return false };
    model.marked = (model.marked != Some(here)).then_some(here);
    let said = model.marked.map(|view| format!("view {view} is marked; others are compared with it"));
    model.note = Some(said.unwrap_or("no failover is marked".to_owned()));
    true
}

/// Moves or scales the time line.
fn look_at(model: &mut Model, action: Action) -> bool {
    let before = (model.zoom, model.pan, model.scroll);
    let Some((step, end)) = pan(model) else { return false };
    match action {
        Action::ZoomIn => model.zoom = (model.zoom + 1).min(ZOOM_MAX),
        Action::ZoomOut => model.zoom = (model.zoom - 1).max(-ZOOM_MAX),
        Action::ZoomReset => (model.zoom, model.pan, model.scroll) = (0, Nanos::ZERO, 0),
        Action::PanLeft => model.pan = Nanos(model.pan.0.saturating_sub(step.0)),
        // There is nothing to show after the last moment.
        Action::PanRight => model.pan = model.pan.saturating_add(step).min(end.max(model.pan)),
        Action::LineUp => model.scroll = model.scroll.saturating_sub(1),
        _ => model.scroll = (model.scroll + 1).min(processes(model)),
    }
    before != (model.zoom, model.pan, model.scroll)
}

const COLUMNS: [Column; 7] = [
    Column::text("TIME", 16, 3).means("when the decider received its first notice, time of day in UTC"),
    Column::number("VIEW", 4, 0).means("the view without the dead"),
    Column::text("DEAD", 12, 0).means("the removed members, with incarnations in brackets"),
    Column::text("DETECTOR", 9, 2).means("what reported the death first"),
    Column::text("DECIDED BY", 10, 4).means("the coordinator whose proposal was decided"),
    Column::number("TOTAL", 6, 1).means("from that notice to the last process that became active"),
    Column::text("LAST", 8, 5).means("the process that became active last"),
];

/// Explanations of the time line for the help.
const SIGNS: [(&str, &str); 8] = [
    (
        "without",
        "view changes that no flight recorder shows any more: recorders keep the newest events, and end with their \
         process. Failovers among them are not listed; `obol logs` may have them",
    ),
    ("time line", "a row per process; signs are its own stamps, explained below the rows if there is room"),
    ("after", "time since the decider's first notice; the frame shows the scale"),
    ("( )", "range of another host's stamp, because of its clock error"),
    (">>", "a stamp far beyond those that the line shows, such as of a dead process that came back"),
    ("path", "the critical path on the same scale: = propose  - decide  # fence  + clear  ~ active"),
    ("x", "who failed, when that was noticed first"),
    ("median n", "of each phase, over the n failovers in the list"),
];

/// Least height of the time line; with less, there is none.
const LINE_LEAST: u16 = 9;
/// Rows of a time line beside its processes: frame, axis, path, phases, medians, the slowest, and the
/// critical path.
const LINE_REST: u16 = 8;
/// Largest height of the list beside a time line.
const LIST_MOST: u16 = 10;
/// Least height of the list with enough rows, so that two failovers can be compared.
const LIST_LEAST: u16 = 5;
/// Width of the time line's names.
const NAMES_WIDE: u16 = 10;
/// Width of a phase's name and time.
const PHASE_WIDE: u16 = 16;
/// Abbreviations for narrow spaces.
const PHASES_SHORT: [&str; 5] = ["prop", "dec", "fence", "clear", "act"];
/// Columns between two ticks of the axis.
const MARK_EVERY: u16 = 10;

/// The shown failovers, oldest first.
fn rows(model: &Model) -> Vec<Failover> {
    let data = model.data();
    let filter = &model.list(ID).filter;
    let mut all = data.failovers();
    if !filter.is_empty() {
        all.retain(|failover| {
            let reason = failover.dead.first().and_then(|dead| dead.reason);
            filter.keeps(&[
                ("dead", &dead(failover, data)),
                ("detector", reason.map_or("", |reason| reason.name())),
                ("coordinator", failover.decider.as_str()),
            ])
        });
    }
    all
}

/// The failover of the time line: the selected one, or the newest.
fn chosen<'r>(model: &Model, rows: &'r [Failover]) -> Option<&'r Failover> {
    let selected = model.list(ID).selected;
    rows.iter().find(|failover| Some(RowId::View(failover.view)) == selected).or(rows.last())
}

/// The list, and the area of the time line below it.
fn split(model: &Model, body: Rect) -> (Rect, Option<Rect>) {
    let all = rows(model);
    let processes = chosen(model, &all).map_or(0, |failover| rows_of(failover, model.data()).1.len());
    let rows = u16::try_from(all.len()).unwrap_or(u16::MAX);
    // A long list leaves room for the time line of all processes, and keeps a few rows.
    let line = u16::try_from(processes).unwrap_or(u16::MAX).saturating_add(LINE_REST).max(LINE_LEAST);
    let wanted = rows.saturating_add(3).clamp(4, LIST_MOST);
    let wanted = wanted.min(body.height.saturating_sub(line)).max(wanted.min(LIST_LEAST));
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

/// A span, or a sign for unknown.
fn span(value: Option<Nanos>) -> String {
    value.map_or("--".to_owned(), |value| value.to_string())
}

fn cells(failover: &Failover, data: &Data) -> Vec<Cell> {
    let reason = failover.dead.first().and_then(|dead| dead.reason);
    let time = data.sample.as_deref().map(|sample| {
        let unix = sample.unix.saturating_sub(sample.at.since(failover.began).0);
        time_of_day(unix)
    });
    vec![
        Cell::new(time.unwrap_or_default(), Tone::Dim),
        Cell::text(failover.view.to_string()),
        Cell::new(dead(failover, data), Tone::Bad),
        Cell::maybe(reason.map(|reason| reason.name())),
        Cell::text(failover.decider.to_string()),
        Cell::maybe(failover.total().map(|total| total.to_string())),
        Cell::maybe(failover.last_active().map(|(name, _)| name.to_string())),
    ]
}

/// The sign of a moment.
const fn sign(event: EventKind) -> &'static str {
    match event {
        EventKind::Notice => "N",
        EventKind::Propose => "P",
        EventKind::Decide => "D",
        EventKind::Fenced => "F",
        EventKind::Clear => "C",
        EventKind::ViewReceived => "v",
        EventKind::Active => "A",
        EventKind::Service => "S",
        _ => "*",
    }
}

/// The legend of the signs in use, as far as there is room.
fn legend(failover: &Failover, columns: u16) -> String {
    const ALL: [(EventKind, &str); 8] = [
        (EventKind::Notice, "notice"),
        (EventKind::Propose, "propose"),
        (EventKind::Decide, "decide"),
        (EventKind::Fenced, "fenced"),
        (EventKind::Clear, "CLEAR sent"),
        (EventKind::ViewReceived, "view received"),
        (EventKind::Active, "active"),
        (EventKind::Service, "first service"),
    ];
    let used = ALL.iter().filter(|(event, _)| failover.moments.iter().any(|m| m.event == *event));
    let mut words: Vec<String> = used.map(|(event, word)| format!("{} {word}", sign(*event))).collect();
    if failover.clock_error() > Nanos::ZERO {
        words.push("( ) anywhere in between".to_owned());
    }
    while words.len() > 1 && words.join("  ").len() > usize::from(columns + NAMES_WIDE) {
        words.pop();
    }
    words.join("  ")
}

/// The precedence of a moment where several share a column.
const fn weight(event: EventKind) -> u8 {
    match event {
        EventKind::ViewReceived => 0,
        EventKind::Service => 1,
        EventKind::Propose => 2,
        EventKind::Fenced => 3,
        EventKind::Notice => 4,
        EventKind::Clear => 5,
        EventKind::Active => 6,
        _ => 7,
    }
}

/// The end of what a time line shows at first: a dead process that comes back, and one that serves its
/// first request much later, have stamps far beyond the failover itself.
fn end(failover: &Failover) -> Instant {
    let decides = |process: Name| process == failover.decider;
    let is_part = |event: EventKind, process: Name| event == EventKind::Active || decides(process);
    let all = || failover.moments.iter();
    let part = all().filter(|m| is_part(m.event, m.process)).map(|m| m.at).max();
    let acts = all().any(|m| m.event == EventKind::Active);
    part.filter(|_| acts).or_else(|| all().map(|m| m.at).max()).unwrap_or(failover.began)
}

/// The next larger number of the series 1, 2, 5, 10, ...
fn round_up(n: f64) -> f64 {
    let power = 10f64.powf(n.log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|step| step * power).find(|step| *step >= n).unwrap_or(10.0 * power)
}

/// Time per column: the whole failover fits, with round figures on the axis, times the zoom.
fn per_column(failover: &Failover, columns: u16, zoom: i8) -> f64 {
    let whole = end(failover).since(failover.began).0.max(1) as f64;
    let fit = whole / f64::from(columns.saturating_sub(2).max(1));
    let marks = f64::from(MARK_EVERY);
    (round_up(fit * marks) / marks * 2f64.powi(i32::from(-zoom))).max(1.0)
}

/// Columns of a time line of this width.
fn columns_of(width: u16) -> u16 {
    width.saturating_sub(2 + NAMES_WIDE + 1)
}

/// The step by which the time line moves, and its last moment.
fn pan(model: &Model) -> Option<(Nanos, Nanos)> {
    let all = rows(model);
    let failover = chosen(model, &all)?;
    let end = failover.moments.last()?.at.since(failover.began);
    let unit = per_column(failover, columns_of(model.size.0), model.zoom);
    Some((Nanos((unit * f64::from(MARK_EVERY)) as u64), end))
}

/// The number of rows of the shown time line.
fn processes(model: &Model) -> usize {
    chosen(model, &rows(model)).map_or(0, |failover| rows_of(failover, model.data()).1.len())
}

/// Who failed, and how that was noticed; and all who have a row: these first, then those with stamps.
fn rows_of(failover: &Failover, data: &Data) -> (Vec<(Name, String)>, Vec<Name>) {
    let noticed = |dead: &failovers::Dead| {
        let by = data.accuser(dead).map_or(String::new(), |by| format!(", reported by {by}"));
        dead.reason
            .map_or("removed with its agent".to_owned(), |reason| format!("failed: {}{by}", reason.name()))
    };
    let victims: Vec<(Name, String)> =
        failover.dead.iter().filter_map(|dead| Some((data.name(dead.who)?, noticed(dead)))).collect();
    let first = victims.iter().map(|(name, _)| *name);
    let stamped =
        failover.processes().into_iter().filter(|name| victims.iter().all(|(victim, _)| victim != name));
    let all = first.chain(stamped).collect();
    (victims, all)
}

/// The processes for which there is room: always those on the critical path, and others from
/// `scroll` on, in their order.
fn visible(names: &[Name], critical: &[Name], room: usize, scroll: usize) -> Vec<Name> {
    if names.len() <= room {
        return names.to_vec();
    }
    let pinned: Vec<Name> = critical.iter().copied().filter(|name| names.contains(name)).take(room).collect();
    let others: Vec<Name> = names.iter().copied().filter(|name| !pinned.contains(name)).collect();
    let free = room - pinned.len();
    let from = scroll.min(others.len().saturating_sub(free));
    let window = &others[from..(from + free).min(others.len())];
    names.iter().copied().filter(|name| pinned.contains(name) || window.contains(name)).collect()
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
    let columns = columns_of(area.width);
    let unit = per_column(failover, columns, model.zoom);
    // All processes of a host share one clock.
    let error = match failover.clock_error() {
        Nanos::ZERO => Nanos::ZERO.to_string(),
        error => format!("+-{error}"),
    };
    let right = format!("{}/column  clock error {error}", Nanos(unit.round() as u64));
    let compared =
        model.marked.and_then(|view| all.iter().find(|f| f.view == view && f.view != failover.view));
    let has_slowest = area.height > LINE_LEAST;
    let foot = 4 + u16::from(has_slowest) + 2 * u16::from(compared.is_some());
    let lines = area.height.saturating_sub(2 + 1 + foot);
    let (victims, all_names) = rows_of(failover, model.data());
    let mut critical = vec![failover.decider];
    critical.extend(failover.last_active().map(|(name, _)| name));
    critical.extend(victims.iter().map(|(name, _)| *name));
    let names = visible(&all_names, &critical, usize::from(lines), model.scroll);
    let mut title = vec![Cell::new(format!("Time line of view {}", failover.view), Tone::Title)];
    if names.len() < all_names.len() {
        let keys = model.keymap.fill("{line-up}/{line-down}");
        let hidden = format!("  {} of {} processes, {keys} others", names.len(), all_names.len());
        title.push(Cell::new(hidden, Tone::Warn));
    }
    let inside = canvas.frame(area, &title, &[Cell::new(right, Tone::Dim)]);
    let shown_until = end(failover);
    let left = inside.x + 1 + NAMES_WIDE;
    let from = model.pan.0 as f64;
    axis(canvas, inside, left, from, unit);
    let place = |at: Instant| (at.since(failover.began).0 as f64 - from) / unit;
    let column = |at: Instant| {
        let x = place(at);
        (x >= 0.0 && x < f64::from(columns)).then(|| left + x as u16)
    };
    // The visible part of a span: its first column, and the one after its last.
    let between = |from: Instant, to: Instant| {
        let (from, to) = (place(from), place(to));
        let clip = |x: f64| left + x.clamp(0.0, f64::from(columns)) as u16;
        (to >= 0.0 && from < f64::from(columns)).then(|| (clip(from), clip(to)))
    };
    for (y, name) in (inside.y + 1..).zip(&names) {
        canvas.put(inside, inside.x + 1, y, name.as_str(), Tone::Text);
        let mut mine: Vec<_> = failover.moments.iter().filter(|m| m.process == *name).collect();
        let ends = mine.first().zip(mine.last()).and_then(|(first, last)| between(first.at, last.at));
        if let Some((first, last)) = ends {
            let across = canvas.glyphs.across.repeat(usize::from(last - first));
            canvas.put(inside, first, y, &across, Tone::Dim);
        }
        if let Some(late) =
            mine.last().map(|last| last.at).filter(|at| *at > shown_until && column(*at).is_none())
        {
            let late = format!(">> {}", late.since(failover.began));
            let x = (left + columns).saturating_sub(late.len() as u16);
            canvas.put(inside, x, y, &late, Tone::Dim);
        }
        if let Some((_, how)) = victims.iter().find(|(victim, _)| victim == name)
            && from <= 0.0
        {
            let x = canvas.put(inside, left, y, "x", Tone::Bad);
            if mine.is_empty() {
                canvas.put(inside, x + 1, y, how, Tone::Dim);
            }
        }
        // Of several in one column, the most important is shown.
        mine.sort_by_key(|moment| weight(moment.event));
        for moment in mine {
            if let Some(x) = column(moment.at) {
                // The range of its clock error.
                for error in [column(moment.at - moment.clock_error), column(moment.at + moment.clock_error)]
                {
                    if let Some(at) = error.filter(|at| *at != x) {
                        canvas.put(inside, at, y, if at < x { "(" } else { ")" }, Tone::Dim);
                    }
                }
                let tone = if moment.event == EventKind::Active { Tone::Good } else { Tone::Title };
                canvas.put(inside, x, y, sign(moment.event), tone);
            }
        }
    }
    let y = inside.bottom().saturating_sub(foot);
    if usize::from(lines) > names.len() + 1 {
        canvas.put(inside, inside.x + 1, y - 1, &legend(failover, columns), Tone::Dim);
    }
    path(canvas, inside, y, failover, between);
    let rows = Rect { y: y + 1, height: inside.bottom().saturating_sub(y + 1), ..inside };
    let phases = Phases { failover, compared, medians, of: all.len(), has_slowest };
    phases.draw(canvas, rows, left, columns);
}

/// The lines below a time line: its phases, the medians, and those of the marked failover.
struct Phases<'f> {
    failover: &'f Failover,
    compared: Option<&'f Failover>,
    medians: [Option<Nanos>; 5],
    /// Number of failovers of the medians.
    of: usize,
    /// Whether the slowest step has a line.
    has_slowest: bool,
}

impl Phases<'_> {
    fn draw(&self, canvas: &mut Canvas<'_>, inside: Rect, left: u16, columns: u16) {
        let Self { failover, compared, medians, of, has_slowest } = *self;
        let mut y = inside.y;
        let wide = (columns / PHASES.len() as u16).min(PHASE_WIDE);
        let names = if wide < PHASE_WIDE { &PHASES_SHORT } else { &PHASES };
        let mut row = |canvas: &mut Canvas<'_>, name: &str, values: [(String, Tone); 5], tone| {
            canvas.put(inside, inside.x + 1, y, name, tone);
            let mut x = left;
            for (phase, (value, tone)) in names.iter().zip(values) {
                let cut = Rect { width: (x + wide).min(inside.right()).saturating_sub(inside.x), ..inside };
                canvas.put(cut, x, y, &format!("{phase} {value}"), tone);
                x += wide;
            }
            y += 1;
        };
        let mine = failover.phases();
        row(canvas, "phases", mine.map(|value| (span(value), Tone::Text)), Tone::Dim);
        // The list's title has the number, too.
        let label = Some(format!("median {}", of)).filter(|label| label.len() < usize::from(NAMES_WIDE));
        let label = label.as_deref().unwrap_or("median");
        row(canvas, label, medians.map(|value| (span(value), Tone::Dim)), Tone::Dim);
        if let Some(other) = compared {
            let theirs = other.phases();
            row(
                canvas,
                &format!("view {}", other.view),
                theirs.map(|value| (span(value), Tone::Text)),
                Tone::Warn,
            );
            let changes = std::array::from_fn(|n| change(theirs[n], mine[n]));
            row(canvas, "change", changes, Tone::Warn);
        }
        let slowest = failover.slowest().map_or(
            "slowest step: unknown, its stamps are missing".to_owned(),
            |(at, span)| {
                let total = failover.total().map_or(String::new(), |total| format!(" of {total}"));
                let usual = medians[at].filter(|_| of > 1);
                let usual = usual.map_or(String::new(), |usual| format!(", median {usual}"));
                format!("slowest step: {} ({}), {span}{total}{usual}", PHASES[at], STEPS[at])
            },
        );
        if has_slowest {
            canvas.put(inside, inside.x + 1, y, &slowest, Tone::Text);
            y += 1;
        }
        let last = failover.last_active().map_or("no process became active".to_owned(), |(name, _)| {
            let after = span(failover.phases()[4]);
            let or = match failover.perhaps_last().as_slice() {
                [] => String::new(),
                [other] => format!(" or {other} (within the clock error)"),
                others => format!(" or one of {} others (within the clock error)", others.len()),
            };
            format!(
                "critical path: {} decides, {name}{or} is active last, {after} after {}",
                failover.decider,
                failover.released_by()
            )
        });
        canvas.put(inside, inside.x + 1, y, &last, Tone::Dim);
    }
}

/// The difference of two durations.
fn change(before: Option<Nanos>, now: Option<Nanos>) -> (String, Tone) {
    match (before, now) {
        (Some(before), Some(now)) if now == before => ("same".to_owned(), Tone::Dim),
        (Some(before), Some(now)) if now > before => (format!("+{}", Nanos(now.0 - before.0)), Tone::Warn),
        (Some(before), Some(now)) => (format!("-{}", Nanos(before.0 - now.0)), Tone::Good),
        _ => ("--".to_owned(), Tone::Dim),
    }
}

/// The sign and the tone of each phase. Neighbours differ by both, on 16 colours and for all
/// kinds of colour vision.
const FILLS: [(&str, Tone); PHASES.len()] =
    [("=", Tone::Title), ("-", Tone::Warn), ("#", Tone::Stale), ("+", Tone::Text), ("~", Tone::Good)];

/// The critical path on the scale of the time line, phase by phase.
fn path(
    canvas: &mut Canvas<'_>,
    inside: Rect,
    y: u16,
    failover: &Failover,
    between: impl Fn(Instant, Instant) -> Option<(u16, u16)>,
) {
    canvas.put(inside, inside.x + 1, y, "path", Tone::Dim);
    let mut begins = failover.began;
    for (at, (name, span)) in PHASES.iter().zip(failover.phases()).enumerate() {
        // After an unknown phase, the place of the next one is unknown, too.
        let Some(span) = span else { return };
        let ends = begins + span;
        if let Some((from, wide)) =
            between(begins, ends).map(|(from, to)| (from, to - from)).filter(|(_, wide)| *wide > 0)
        {
            let (fill, tone) = FILLS[at];
            let label = format!(" {name} ");
            let lines = usize::from(wide).saturating_sub(label.len() + 2);
            let text = if usize::from(wide) >= label.len() + 2 {
                format!("{}{label}{}", fill.repeat(1 + lines / 2), fill.repeat(1 + lines - lines / 2))
            } else {
                fill.repeat(usize::from(wide))
            };
            canvas.put(inside, from, y, &text, tone);
        }
        begins = ends;
    }
}

/// The axis: a figure at every tenth column.
fn axis(canvas: &mut Canvas<'_>, inside: Rect, left: u16, from: f64, unit: f64) {
    canvas.put(inside, inside.x + 1, inside.y, "after", Tone::Dim);
    let mut x = left;
    while x + MARK_EVERY <= inside.right() {
        let at = from + f64::from(x - left) * unit;
        let text = if at == 0.0 { "0".to_owned() } else { Nanos(at.round() as u64).to_string() };
        canvas.put(inside, x, inside.y, &text, Tone::Dim);
        x += MARK_EVERY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::name;
    use obol_fabric::ViewId;
    use obol_observe::failovers::Moment;

    #[test]
    fn the_critical_path_is_visible_and_others_can_be_scrolled_to() {
        let names: Vec<Name> = (1..=9).map(|n| name(&format!("p-{n}"))).collect();
        let critical = [names[2], names[8]];
        assert_eq!(visible(&names, &critical, 9, 3), names, "there is room for all");
        for room in 2..9 {
            let mut seen = Vec::new();
            for scroll in 0..12 {
                let shown = visible(&names, &critical, room, scroll);
                assert_eq!(shown.len(), room);
                assert!(critical.iter().all(|name| shown.contains(name)));
                assert!(shown.is_sorted(), "in the order in which they are");
                seen.extend(shown);
            }
            assert!(room == 2 || names.iter().all(|name| seen.contains(name)), "{room}");
        }
    }

    fn moment(process: &str, event: EventKind, us: u64) -> Moment {
        let at = Instant(1_000_000_000 + us * 1000);
        Moment { process: name(process), event, at, clock_error: Nanos::ZERO }
    }

    fn failover(moments: Vec<Moment>) -> Failover {
        Failover {
            view: ViewId(7),
            decider: name("coord-1"),
            dead: Vec::new(),
            began: moments[0].at,
            moments,
            compatible: false,
        }
    }

    #[test]
    fn what_comes_long_after_the_failover_does_not_stretch_its_time_line() {
        let mut moments = vec![
            moment("coord-1", EventKind::Notice, 0),
            moment("coord-1", EventKind::Decide, 50),
            moment("node-2", EventKind::Active, 120),
            moment("app-2", EventKind::Active, 456),
        ];
        let whole = failover(moments.clone());
        // A member that was frozen learns of its exclusion, and a survivor has its first request.
        moments.push(moment("app-2", EventKind::Service, 4_000_000));
        moments.push(moment("node-1", EventKind::ViewReceived, 25_800_000));
        let late = failover(moments);
        assert_eq!(end(&late), end(&whole));
        for columns in [20, 60, 180] {
            let unit = per_column(&late, columns, 0);
            assert!(unit * f64::from(columns - 2) >= 456_000.0, "all of it is shown");
            assert!(unit * f64::from(columns - 2) <= 456_000.0 * 2.5, "and little else: {unit}");
            assert_eq!(unit * 10.0, round_up(unit * 10.0), "the figures on the axis are round");
        }
        // Without any that acts, everything is shown.
        let none = failover(vec![
            moment("coord-1", EventKind::Notice, 0),
            moment("node-1", EventKind::ViewReceived, 900),
        ]);
        assert_eq!(end(&none).since(none.began), Nanos::from_micros(900));
    }
}
