//! Details of one member, over the middle of screen 1: identity, lease, counters, latest events.
//!
//! ```text
//! ┌─ app-1  ok ────────────────────────────── Enter its events  Esc closes ─┐
//! │ process    app, pid 107, region 5, seat 1, at agent node-1              │
//! │ lease      active, 14.9ms of 20.0ms left, view 6, base 6, fence 6       │
//! │ counted    served 3600000                                               │
//! │ 23:13:25.999356  active  view 7                                         │
//! └─────────────────────────────────────────────────────────────────────────┘
//! ```

use crate::poll::sample::ProcessRow;
use crate::screens::{Screen as _, events, members};
use crate::state::Model;
use crate::state::data::Data;
use crate::theme::Role;
use crate::widgets::canvas::{Canvas, Cell, NONE, age, rate, wrapped};
use obol_fabric::{Incarnation, Instant};
use obol_membership::Kind;
use obol_membership::consensus::Ballot;
use obol_membership::metrics::Counter;
use obol_membership::view::coordinator_name;
use ratatui::layout::Rect;

/// Largest width.
const WIDE_MOST: u16 = 110;
/// Width of the names at the left.
const HEADS_WIDE: u16 = 11;

/// A value, or that there is none.
fn or_none(value: Option<impl ToString>) -> String {
    value.map_or(NONE.to_owned(), |value| value.to_string())
}

fn lease(row: &ProcessRow, data: &Data, at: Instant) -> String {
    let Some(lease) = row.lease else { return "none of its own".to_owned() };
    let left = members::margin(row, at).map_or(NONE.to_owned(), |left| left.to_string());
    let all = or_none(data.lease());
    format!(
        "{}, {left} of {all} left; view {}, compatible from {} on, fence {}",
        members::lease(row, at).0,
        lease.view,
        lease.base,
        lease.fence
    )
}

/// The details of a member: names and texts.
fn facts(row: &ProcessRow, data: &Data, at: Instant) -> Vec<(&'static str, String)> {
    let track = data.tracks.get(&row.name);
    let host = members::host(row, data).map_or(String::new(), |host| format!(", at agent {}", host.name));
    let mut all = vec![(
        "process",
        format!("{}, pid {}, region {}, seat {}{host}", row.kind.name(), row.pid, row.region, row.seat),
    )];
    let member = (row.incarnation != Incarnation::NONE).then_some(row.incarnation);
    let since = track.and_then(|track| track.since(at)).map(age);
    all.push((
        "member",
        format!(
            "incarnation {}, knows view {}, so for {}",
            or_none(member),
            or_none(row.view),
            or_none(since)
        ),
    ));
    if row.kind != Kind::Coordinator {
        all.push(("lease", lease(row, data, at)));
    }
    if members::renews(row) {
        let per_second = track.and_then(|track| track.rate(Counter::RenewalsOnTime)).map(rate);
        all.push((
            "renewals",
            format!(
                "{} per second; in the last minute the least margin was {}, the slowest took {}",
                or_none(per_second),
                or_none(track.and_then(|track| track.least())),
                or_none(track.and_then(|track| track.slowest()))
            ),
        ));
    }
    if let Some(acceptor) = &row.acceptor {
        let ballot = |ballot: Ballot| {
            format!(
                "slot {} by {} with ballot {}",
                ballot.slot,
                coordinator_name(ballot.proposer),
                ballot.number
            )
        };
        all.push((
            "memory",
            format!(
                "accepted {}; prepared {}",
                or_none(acceptor.accepted.map(ballot)),
                or_none(acceptor.prepared.map(ballot))
            ),
        ));
    }
    let state = match track.map(|track| track.still(at)) {
        None => String::new(),
        Some(still) if still < members::STILL => ", advancing".to_owned(),
        Some(still) => format!(", has not moved for {}", age(still)),
    };
    all.push(("heartbeat", format!("at {}{state}", row.heartbeat)));
    let counted: Vec<String> = Counter::ALL
        .iter()
        .map(|counter| (counter, row.counter(*counter)))
        .filter(|(_, n)| *n > 0)
        .map(|(counter, n)| format!("{} {n}", counter.name()))
        .collect();
    let counted = if counted.is_empty() { "nothing yet".to_owned() } else { counted.join(",  ") };
    all.push(("counted", counted));
    all
}

/// Draws the pane over an area.
pub(crate) fn draw(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let data = model.data();
    let rows = members::rows(model);
    let Some(row) = rows.get(model.list(members::ID).place(&members::Members.rows(model))) else { return };
    let at = data.sample.as_ref().map_or(Instant::ZERO, |sample| sample.at);
    let wide = area.width.min(WIDE_MOST);
    let place = Rect { x: area.x + (area.width - wide) / 2, width: wide, ..area };
    for y in place.top()..place.bottom() {
        canvas.blank(place, y);
    }
    let status = data.status(row);
    let title = [
        Cell::new(row.name.to_string(), Role::Title),
        Cell::new(format!("  {}", status.words().1), members::role(status)),
    ];
    let hint = Cell::new(model.keymap.fill("{open} its events  {back} closes"), Role::Dim);
    let inside = canvas.frame(place, &title, &[hint]);
    let room = usize::from(inside.width.saturating_sub(HEADS_WIDE + 2));
    let mut y = inside.y;
    for (head, text) in facts(row, data, at) {
        canvas.put(inside, inside.x + 1, y, head, Role::Dim);
        for line in wrapped(&text, room.max(1)) {
            canvas.put(inside, inside.x + 1 + HEADS_WIDE, y, &line, Role::Text);
            y += 1;
        }
    }
    y += 1;
    let left = usize::from(inside.bottom().saturating_sub(y));
    let mine: Vec<_> =
        data.events.iter().rev().filter(|event| event.process == row.name).take(left).collect();
    if mine.is_empty() {
        canvas.put(inside, inside.x + 1, y, "no events of it were read", Role::Dim);
    }
    for event in mine.into_iter().rev() {
        let text =
            format!("{}  {:<14} {}", events::time(event, data), event.event.name(), data.describe(event));
        canvas.put(inside, inside.x + 1, y, &text, Role::Text);
        y += 1;
    }
}
