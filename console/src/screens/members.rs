//! Screen 1: all processes and their leases.
//!
//! ```text
//! ┌─ Members 9  ok 7  frozen 1  down 1 ─────────────────── sort NAME up  filter app  1-7 of 9 ─┐
//! │   NAME     STATE       KIND         AGENT   INC  VIEW  LEASE   MARGIN  RENEW/s  LATE  .. │
//! │ ▸ app-1    ok          app          node-1    5    12  active  14.9ms      --    --     │
//! └──────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Processes that need attention come first, unless the list is sorted. Less important columns are hidden
//! first. Below, if there is room: the newest events.

mod detail;

use crate::input::Action;
use crate::screens::{About, Screen, events};
use crate::state::chaos;
use crate::state::filter::Filter;
use crate::state::table::{Key, page};
use crate::state::{Effect, Mode, Model, RowId, ScreenId};
use crate::theme::{Glyphs, Tone};
use crate::widgets::canvas::{Canvas, Cell, NONE, count, rate};
use crate::widgets::grid::{Column, Grid, page_rows};
use crate::widgets::trend::{self, Trend};
use obol_fabric::{Incarnation, Instant, Name, Nanos};
use obol_membership::Kind;
use obol_membership::metrics::Counter;
use obol_observe::LeaseStatus;
use obol_observe::calendar::age;
use obol_observe::sampling::data::{Data, Status};
use obol_observe::sampling::sample::{Life, ProcessRow};
use obol_observe::sampling::trend::CELLS;
use ratatui::layout::Rect;
use strum::VariantArray;

pub(crate) const ID: ScreenId = ScreenId("Members");

/// Least height of the events below the list; with less, there are none.
const EVENTS_LEAST: u16 = 5;

pub(super) struct Members;

impl Screen for Members {
    fn about(&self) -> About {
        About::list(ID, &COLUMNS)
    }

    fn what(&self) -> &'static str {
        "All processes of the cluster, and whether each may act now. A program may act while the lease of its agent is active in the newest view. What is wrong stands above, with what to do; Enter describes a row."
    }

    fn hints(&self, model: &Model) -> &'static str {
        if model.mode == Mode::Detail {
            "{open} its events   {logs} log lines   {back} closes   {down}/{up} select   {kill} kill   {stop} stop   {start} start"
        } else {
            "{down}/{up} select   {open} describe   {logs} log lines   {events-of} events   {sort}/{sort-by} sort   {filter} filter   {find-next} needs attention   {freeze} freeze"
        }
    }

    fn rows(&self, model: &Model) -> Vec<RowId> {
        rows(model).iter().map(|row| RowId::Process(row.name)).collect()
    }

    fn list_area(&self, model: &Model, area: Rect) -> Rect {
        split(model, area).0
    }

    fn trends(&self) -> &'static [&'static Trend] {
        const SHOWN: &[&Trend] = &[&trend::ON_TIME, &trend::MARGIN, &trend::FAILOVERS];
        SHOWN
    }

    fn draw(&self, model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
        let (list, below) = split(model, area);
        draw(model, canvas, list);
        if let Some(below) = below {
            events::newest(model, canvas, below);
        }
        if model.mode == Mode::Detail {
            detail::draw(model, canvas, area);
        }
    }

    fn act(&self, model: &mut Model, action: Action, effects: &mut Vec<Effect>) -> Option<bool> {
        match action {
            Action::Open => Some(open(model)),
            Action::Logs => Some(place(model).is_some_and(|name| model.follow_logs(name, effects))),
            Action::Events => Some(place(model).is_some() && show_events(model)),
            Action::Drills => Some(show_drills(model)),
            Action::FindNext => Some(find(model, true)),
            Action::FindPrevious => Some(find(model, false)),
            _ => None,
        }
    }
}

/// The selected process, if it is shown.
pub(crate) fn selected(model: &Model) -> Option<&ProcessRow> {
    let wanted = model.list(ID).selected;
    rows(model).into_iter().find(|row| Some(RowId::Process(row.name)) == wanted)
}

/// The selected member, or the first one, which is selected then.
fn place(model: &mut Model) -> Option<Name> {
    let rows = Members.rows(model);
    let list = model.list_mut(ID);
    let row = *rows.get(list.place(&rows))?;
    list.selected = Some(row);
    let RowId::Process(name) = row else { return None };
    Some(name)
}

/// Opens the details of a member.
fn open(model: &mut Model) -> bool {
    let is_there = place(model).is_some();
    if is_there {
        model.mode = Mode::Detail;
    }
    is_there
}

/// Shows the drills whose victims are of the selected member's kind.
fn show_drills(model: &mut Model) -> bool {
    let Some(kind) = place(model).and_then(|_| selected(model)).map(|row| row.kind) else { return false };
    let hits = |at: &usize| model.chaos.drills[*at].hits.contains(&kind);
    let all: Vec<usize> = (0..model.chaos.drills.len()).filter(hits).collect();
    let names: Vec<&str> = all.iter().map(|at| model.chaos.drills[*at].name.as_str()).collect();
    model.note = Some(match names[..] {
        [] => format!("no drill has a victim of this kind: {}", kind.name()),
        _ => format!("drills with victims of this kind ({}): {}", kind.name(), names.join(", ")),
    });
    model.list_mut(chaos::SCREEN).selected = all.first().map(|at| RowId::Fixed(*at));
    model.screen = chaos::SCREEN;
    true
}

/// Opens the details of this member.
pub(crate) fn describe(model: &mut Model, name: Name) -> bool {
    let list = model.list_mut(ID);
    (list.filter, list.selected) = (Filter::none(), Some(RowId::Process(name)));
    (model.screen, model.mode) = (ID, Mode::Detail);
    true
}

/// Shows the events of the selected member.
pub(crate) fn show_events(model: &mut Model) -> bool {
    let Some(RowId::Process(name)) = model.list(ID).selected else { return false };
    let list = model.list_mut(events::ID);
    (list.filter, list.selected) = (Filter::new(&format!("-l process={name}")), None);
    model.screen = events::ID;
    true
}

/// Selects the next or previous member that needs attention.
fn find(model: &mut Model, forward: bool) -> bool {
    let ids = Members.rows(model);
    let needs =
        |row: &ProcessRow| !matches!(model.data().status(row), Status::Ok | Status::Joining | Status::Left);
    let wanted: Vec<usize> =
        rows(model).iter().enumerate().filter(|(_, row)| needs(row)).map(|(at, _)| at).collect();
    let list = model.list_mut(ID);
    let here = list.selected.map(|_| list.place(&ids));
    let after = wanted.iter().find(|at| here.is_none_or(|here| **at > here)).or(wanted.first());
    let before = wanted.iter().rfind(|at| here.is_none_or(|here| **at < here)).or(wanted.last());
    match if forward { after } else { before } {
        Some(at) => list.selected = Some(ids[*at]),
        None => model.note = Some("no member needs attention".to_owned()),
    }
    true
}

/// The member list, and the area of the events below it.
fn split(model: &Model, body: Rect) -> (Rect, Option<Rect>) {
    let rows = model.data().sample.as_ref().map_or(0, |sample| sample.processes.len());
    let wanted = u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(3).max(5);
    super::split(body, wanted, EVENTS_LEAST)
}

/// The columns, and which are hidden first.
const COLUMNS: [Column; 15] = [
    Column::text("NAME", 8, 0).means("the process, coordinators first"),
    Column::text("STATE", 12, 1).means("ok; ~ joining: not a member yet; ~ on hold: its join waits, because members of its name died, left or were suspected repeatedly; < behind: knows an older view; ! no lease: may not act; \
         ? stale: its memory cannot be read consistently; = frozen: stopped by a signal; x down; - left. With the time in this state, \
         or the remaining hold"),
    Column::text("KIND", 11, 7).means("coordinator, agent (one per node), app (a program), cache (of leases)"),
    Column::text("AGENT", 6, 9).means("the agent that the program is attached to, and whose lease it reads"),
    Column::number("INC", 4, 6).means("incarnation: the number of this membership; a new one with each join"),
    Column::number("VIEW", 4, 4).means("the newest view that it knows"),
    Column::text("LEASE", 7, 3).means("active: may act; waiting: begins later; fenced: revoked by a coordinator; expired: not renewed"),
    Column::number("MARGIN", 6, 2).means("time left of the lease when it was read").small_first(),
    Column::number("RENEW/s", 7, 5).means("renewals of the lease per second, over the last second"),
    Column::number("LATE", 4, 5).means("renewals after the end of the lease, since its start"),
    Column::number("FAILED", 6, 8).means("renewals that found no majority, since its start"),
    Column::number("SUSP", 4, 11).means("suspicions of others that it raised, by heartbeat or progress"),
    Column::number("SERVED", 6, 12).means("requests that the program served under an active view"),
    Column::number("BEAT", 5, 10).means("ok, or for how long its heartbeat has stalled"),
    Column::text("60s", SPARK, 13).means("renewals per second over the last minute, 5 s per bar, scaled to the row's maximum"),
];

/// Width of the sparkline.
pub(crate) const SPARK: u16 = CELLS as u16;

/// A heartbeat that stalls for this long is shown.
pub(crate) const STILL: Nanos = Nanos::from_secs(1);

/// The status of a process's lease.
pub(crate) fn lease(row: &ProcessRow, at: Instant) -> (&'static str, Tone) {
    match row.lease {
        None => (NONE, Tone::Dim),
        Some(_) if matches!(row.life, Life::Down | Life::Left) => (NONE, Tone::Dim),
        Some(lease) => {
            let status = LeaseStatus::of(lease.start, lease.end, row.active, lease.fence > lease.view, at);
            let tone = match status {
                LeaseStatus::Active => Tone::Good,
                LeaseStatus::Waiting => Tone::Warn,
                LeaseStatus::Fenced | LeaseStatus::Expired => Tone::Bad,
            };
            (status.name(), tone)
        }
    }
}

/// Whether a process renews a lease of its own.
pub(crate) fn renews(row: &ProcessRow) -> bool {
    row.kind != Kind::Coordinator && row.seat == 0
}

pub(crate) fn margin(row: &ProcessRow, at: Instant) -> Option<Nanos> {
    row.margin(at).filter(|_| row.active)
}

/// The agent that a program is attached to.
pub(crate) fn host<'a>(row: &ProcessRow, data: &'a Data) -> Option<&'a ProcessRow> {
    let sample = data.sample.as_deref()?;
    sample.processes.iter().find(|p| row.seat != 0 && p.region == row.region && p.seat == 0)
}

fn suspicions(row: &ProcessRow) -> u64 {
    row.counter(Counter::HeartbeatSuspicions).saturating_add(row.counter(Counter::ProgressSuspicions))
}

/// The tone of a status.
pub(crate) const fn tone(status: Status) -> Tone {
    match status {
        Status::Down => Tone::Bad,
        Status::NoLease
        | Status::NoAgent
        | Status::Frozen
        | Status::Behind
        | Status::OnHold
        | Status::Joining => Tone::Warn,
        Status::Stale => Tone::Stale,
        Status::Ok => Tone::Good,
        Status::Left => Tone::Dim,
    }
}

/// The shown rows in order.
pub(crate) fn rows(model: &Model) -> Vec<&ProcessRow> {
    let filter = &model.list(ID).filter;
    let kept = |row: &ProcessRow, data: &Data| {
        if filter.is_empty() {
            return true;
        }
        let host = host(row, data).map_or("", |host| host.name.as_str());
        let state = data.status(row).words().1;
        filter.keeps(&[
            ("name", row.name.as_str()),
            ("kind", row.kind.name()),
            ("state", state),
            ("agent", host),
            ("host", host),
        ])
    };
    let mut rows = super::processes(model, ID, &COLUMNS, kept, key);
    let list = model.list(ID);
    if list.sort.is_none() && !list.reverse {
        rows.sort_by_key(|row| {
            Some(model.data().status(row))
                .filter(|status| lasts(*status))
                .map_or((1, 0), |status| (0, status as u8))
        });
    }
    rows
}

/// Whether a process in this state needs attention and stays in it for longer than a view change takes, so
/// that rows which are ordered by it do not jump.
const fn lasts(status: Status) -> bool {
    match status {
        Status::Down
        | Status::Frozen
        | Status::Stale
        | Status::NoLease
        | Status::NoAgent
        | Status::OnHold => true,
        Status::Behind | Status::Joining | Status::Ok | Status::Left => false,
    }
}

fn key(column: usize, row: &ProcessRow, data: &Data, at: Instant) -> Key {
    let number = |value: Option<f64>| value.map_or(Key::Missing, Key::Number);
    let n = |value: Option<u64>| number(value.map(|value| value as f64));
    let track = data.tracks.get(&row.name);
    let renewal = |counter| n(renews(row).then(|| row.counter(counter)));
    match COLUMNS[column].head {
        "STATE" => n(Some(data.status(row) as u64)),
        "KIND" => Key::Text(row.kind.name().to_owned()),
        "AGENT" => host(row, data).map_or(Key::Missing, |host| Key::Text(host.name.to_string())),
        "INC" => n((row.incarnation != Incarnation::NONE).then_some(row.incarnation.0)),
        "VIEW" => n(row.view.map(|view| view.0)),
        "LEASE" => Key::Text(lease(row, at).0.to_owned()),
        "MARGIN" => n(margin(row, at).map(|margin| margin.0)),
        "RENEW/s" | "60s" if renews(row) => number(track.and_then(|t| t.rate(Counter::RenewalsOnTime))),
        "LATE" => renewal(Counter::RenewalsLate),
        "FAILED" => renewal(Counter::RenewalsFailed),
        "SUSP" => n(Some(suspicions(row))),
        "SERVED" => n((row.kind == Kind::App).then(|| row.counter(Counter::Served))),
        "BEAT" => n(track.map(|track| track.still(at).0)),
        "NAME" => Key::Text(row.name.to_string()),
        _ => Key::Missing,
    }
}

/// For how long it has been wrong, by what is said of it alone: also before this console began.
fn known_since(row: &ProcessRow, data: &Data) -> Option<Nanos> {
    let sample = data.sample.as_deref()?;
    let of_it = sample.advice.iter().filter(|said| said.names == [row.name]);
    let since = of_it.filter_map(|said| said.since).min()?;
    Some(sample.at.since(sample.instant_at(since)))
}

fn cells(row: &ProcessRow, data: &Data, at: Instant, glyphs: &Glyphs) -> Vec<Cell> {
    let status = data.status(row);
    let track = data.tracks.get(&row.name);
    let down = matches!(row.life, Life::Down | Life::Left);
    let (sign, word) = status.words();
    let state = match (status, track) {
        (Status::Ok, _) => word.to_owned(),
        (Status::OnHold, _) => {
            format!("{sign} {word} {}", row.hold_left(at).map_or(NONE.to_owned(), age))
        }
        (Status::Stale, Some(track)) => format!("{sign} {word} {}", age(track.age(at))),
        // The time is that of the process's state, not of its view or lease.
        (Status::Down | Status::Frozen | Status::Joining, Some(track)) => {
            match known_since(row, data).or_else(|| track.since(at)) {
                Some(Nanos::ZERO) => format!("{sign} {word}"),
                since => format!("{sign} {word} {}", since.map_or(NONE.to_owned(), age)),
            }
        }
        _ => format!("{sign} {word}"),
    };
    let (lease, lease_role) = lease(row, at);
    // Late or failed renewals need attention.
    let bad = |counter| {
        if !renews(row) || down {
            return Cell::none();
        }
        let n = row.counter(counter);
        Cell::new(count(n), if n > 0 { Tone::Warn } else { Tone::Text })
    };
    let renewals = track.filter(|_| renews(row) && !down).and_then(|t| t.rate(Counter::RenewalsOnTime));
    let beat = track.map(|track| track.still(at)).filter(|_| !down);
    vec![
        Cell::text(row.name.to_string()),
        Cell::new(state, tone(status)),
        Cell::text(row.kind.name()),
        Cell::maybe(host(row, data).map(|host| host.name.to_string())),
        Cell::maybe((row.incarnation != Incarnation::NONE).then(|| row.incarnation.to_string())),
        Cell::maybe(row.view.filter(|_| !down).map(|view| view.to_string())),
        Cell::new(lease, lease_role),
        Cell::maybe(margin(row, at).map(|margin| margin.to_string())),
        Cell::maybe(renewals.map(rate)),
        bad(Counter::RenewalsLate),
        bad(Counter::RenewalsFailed),
        Cell::text(count(suspicions(row))),
        Cell::maybe((row.kind == Kind::App).then(|| count(row.counter(Counter::Served)))),
        beat.map_or(Cell::none(), |still| match still {
            still if still < STILL => Cell::text("ok"),
            still => Cell::new(age(still), Tone::Warn),
        }),
        Cell::new(spark(row, data, glyphs), Tone::Dim),
    ]
}

/// Renewals per second over the last minute. A gap is a dot, not empty.
pub(crate) fn spark(row: &ProcessRow, data: &Data, glyphs: &Glyphs) -> String {
    let Some(track) = data.tracks.get(&row.name).filter(|_| renews(row)) else { return String::new() };
    let most = track.cells().flatten().fold(0.0, f64::max);
    let shown: String =
        track.cells().map(|cell| cell.map_or(glyphs.dot, |value| glyphs.level(value, most))).collect();
    format!("{shown:>CELLS$}")
}

/// Draws the list.
fn draw(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let data = model.data();
    let rows = rows(model);
    let list = model.list(ID);
    let ids: Vec<RowId> = rows.iter().map(|row| RowId::Process(row.name)).collect();
    let place = list.place(&ids);
    let all = data.sample.as_ref().map_or(0, |sample| sample.processes.len());
    let inside = if area.height < 4 {
        area
    } else {
        let mut title = vec![Cell::new(format!("Members {all}"), Tone::Title)];
        title.extend(tally(data));
        let shown = page(place, rows.len(), page_rows(area));
        let mut right = Vec::new();
        if let Some(column) = list.sort {
            let falls = COLUMNS[column].falls ^ list.reverse;
            right.push(format!("sort {} {}", COLUMNS[column].head, if falls { "down" } else { "up" }));
        }
        if !list.filter.is_empty() {
            right.push(format!("filter {}", list.filter.text()));
        }
        if rows.len() > shown.len() || rows.len() < all {
            right.push(format!("{}-{} of {}", (shown.start + 1).min(shown.end), shown.end, rows.len()));
        }
        canvas.frame(area, &title, &[Cell::new(right.join("  "), Tone::Dim)])
    };
    if rows.is_empty() {
        let none = match data.sample {
            None if model.replay.is_some() => "there is no sample in this recording",
            None => "nothing has been read yet",
            Some(_) => "no process has come up yet",
        };
        // No filter hides a missing sample.
        let filter = if data.sample.is_some() { &list.filter } else { &Filter::none() };
        return super::draw_none(model, canvas, inside, filter, ("member", none));
    }
    let at = data.sample.as_ref().map_or(Instant::ZERO, |sample| sample.at);
    let glyphs = canvas.glyphs;
    let grid = Grid { marked: list.selected.is_some(), ..Grid::of(&COLUMNS, list, &ids) };
    grid.draw(canvas, inside, |row| cells(rows[row], data, at, &glyphs));
}

/// The number of processes in each state, those that need attention last.
fn tally(data: &Data) -> Vec<Cell> {
    let Some(sample) = data.sample.as_deref() else { return Vec::new() };
    let others = Status::VARIANTS.iter().rev().copied().filter(|status| *status != Status::Ok);
    std::iter::once(Status::Ok)
        .chain(others)
        .filter_map(|status| {
            let n = sample.processes.iter().filter(|row| data.status(row) == status).count();
            (n > 0).then(|| Cell::new(format!("  {} {n}", status.words().1), tone(status)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::{broken, press};

    fn names(model: &Model) -> Vec<&str> {
        rows(model).iter().map(|row| row.name.as_str()).collect()
    }

    #[test]
    fn who_needs_attention_comes_first() {
        let mut small = broken(40, 10);
        assert_eq!(names(&small)[..3], ["app-2", "node-3", "coord-1"], "down, frozen, then the others");
        assert_eq!(names(&small).len(), names(&broken(120, 36)).len());
        assert_eq!(names(&broken(120, 36))[..3], ["app-2", "node-3", "coord-1"]);
        // An order that the user asks for is kept.
        press(&mut small, "s");
        assert_ne!(names(&small)[..2], ["app-2", "node-3"]);
    }
}
