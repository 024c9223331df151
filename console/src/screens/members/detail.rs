//! Details of one member, over the middle of screen 1: what is wrong with it and what to do, identity,
//! lease, counters, the latest events of it and about it.
//!
//! ```text
//! ┌─ app-1  ok ────────────────────────────── Enter its events  Esc closes ─┐
//! │ process    app, pid 107, region 5, seat 1, at agent node-1              │
//! │ lease      active, 14.9ms of 20.0ms left, view 6, base 6, fence 6       │
//! │ counted    served 3600000                                               │
//! │ 23:13:25.999356  app-1     active  view 7                               │
//! └─────────────────────────────────────────────────────────────────────────┘
//! ```

use crate::screens::{Screen as _, events, members};
use crate::state::Model;
use crate::state::act::Verb;
use crate::theme::Tone;
use crate::widgets::canvas::{Canvas, Cell, NONE, rate};
use obol_fabric::{Incarnation, Instant};
use obol_membership::Kind;
use obol_membership::consensus::Ballot;
use obol_membership::metrics::Counter;
use obol_membership::recorder::EventKind;
use obol_membership::view::coordinator_name;
use obol_observe::calendar::age;
use obol_observe::event_text;
use obol_observe::sampling::data::{Data, Status};
use obol_observe::sampling::sample::{ChangeRow, EventRow, Life, ProcessRow};
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

/// Who suspected a member, and which view removed it.
fn troubles(row: &ProcessRow, data: &Data) -> Vec<(&'static str, String)> {
    let who = row.incarnation;
    if who == Incarnation::NONE {
        return Vec::new();
    }
    let accuses =
        |event: &&EventRow| matches!(event.event, EventKind::Suspect | EventKind::Notice) && event.a == who.0;
    let retracts = |event: &&EventRow| event.event == EventKind::Retract && event.a == who.0;
    let retracted = data.events.iter().rposition(|event| retracts(&event)).map_or(0, |at| at + 1);
    let mut all = Vec::new();
    if let Some(first) = data.events.iter().skip(retracted).find(accuses) {
        // The accuser of a notice is the process that noticed it, wherever it was recorded.
        let by = match first.event {
            EventKind::Notice => data.who(Incarnation(first.b)),
            _ => first.process.to_string(),
        };
        let detector = first.reason.map_or(String::new(), |reason| format!(" ({})", reason.name()));
        all.push(("suspected", format!("by {by}{detector} at {}", events::time(first, data))));
    }
    let view = data.sample.as_ref().and_then(|sample| sample.view.as_ref());
    if let Some(gone) = view.and_then(|view| view.departed.iter().find(|gone| gone.who == who)) {
        let decided = |event: &&EventRow| {
            matches!(event.event, EventKind::Decide | EventKind::ViewReceived) && event.a == gone.at.0
        };
        let when = data.events.iter().find(decided);
        let when = when.map_or(String::new(), |event| format!(" at {}", events::time(event, data)));
        all.push((if gone.left { "left" } else { "removed" }, format!("by view {}{when}", gone.at)));
    }
    all
}

/// What to do about a member in this state.
fn remedy(row: &ProcessRow, data: &Data, status: Status) -> Option<String> {
    let ProcessRow { name, pid, .. } = row;
    Some(match status {
        Status::Down => format!(
            "`obol start {name}` or its supervisor starts it again; `obol forget {name}` if it is gone for good"
        ),
        Status::Frozen => {
            format!("`kill -CONT {pid}` on its host lets it continue, `obol kill {name}` ends it")
        }
        Status::Stale => format!("`obol logs {name}` has its last steps; restart it if it does not continue"),
        Status::NoAgent => match members::host(row, data) {
            Some(agent) => format!("`obol start {}`: without its agent it cannot act", agent.name),
            None => "start its agent: without it, it cannot act".to_owned(),
        },
        Status::NoLease | Status::Behind => format!("`obol logs {name} --since 1m` says what it waits for"),
        Status::OnHold => format!("`obol logs {name}` says why members of its name ended again and again"),
        Status::Joining | Status::Ok | Status::Left => return None,
    })
}

/// The views that admitted and removed a member.
fn views(row: &ProcessRow, data: &Data) -> Option<String> {
    let me = row.incarnation;
    let how = |change: &ChangeRow| match *change {
        ChangeRow::Joined { who } if who == me => Some("joined by"),
        ChangeRow::Left { who } if who == me => Some("left by"),
        ChangeRow::Failed { who, .. } if who == me => Some("removed by"),
        _ => None,
    };
    let each =
        data.changes.iter().flat_map(|(view, changes)| changes.iter().map(move |change| (view, change)));
    let all: Vec<String> =
        each.filter_map(|(view, change)| Some(format!("{} view {view}", how(change)?))).collect();
    (me != Incarnation::NONE && !all.is_empty()).then(|| all.join(", "))
}

/// What a replica of the store has.
fn store(row: &ProcessRow, data: &Data) -> Option<String> {
    let replicas = data.sample.as_ref()?.replicas.as_ref()?;
    let one = replicas.replicas.iter().find(|one| one.name == row.name)?;
    let role = if one.leads { "leads" } else { "does not lead" };
    let log = one.log.as_ref();
    let behind =
        log.map_or(String::new(), |log| format!(", applied up to {}, {} behind", log.applied, log.lag));
    Some(format!("{role}{behind}"))
}

/// The details of a member: names and texts.
fn facts(row: &ProcessRow, data: &Data, at: Instant) -> Vec<(&'static str, String)> {
    let track = data.tracks.get(&row.name);
    let host = members::host(row, data).map_or(String::new(), |host| format!(", at agent {}", host.name));
    let status = data.status(row);
    let mut all = Vec::new();
    let incidents = data.incidents();
    let incident = incidents.iter().find(|one| one.names.contains(&row.name)).zip(data.sample.as_deref());
    all.extend(incident.map(|(one, sample)| ("incident", one.sentence(sample))));
    if !matches!(status, Status::Ok | Status::Joining) {
        all.extend(troubles(row, data));
        if incident.is_none_or(|(one, _)| one.remedy.is_none()) {
            all.extend(remedy(row, data, status).map(|remedy| ("to do", remedy)));
        }
    }
    all.push((
        "process",
        format!("{}, pid {}, region {}, seat {}{host}", row.kind.name(), row.pid, row.region, row.seat),
    ));
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
    all.extend(views(row, data).map(|views| ("views", views)));
    all.extend(store(row, data).map(|store| ("store", store)));
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

/// What the keys of a console that may act would run.
fn commands(model: &Model, row: &ProcessRow) -> String {
    let one = |verb: Verb, key: &str| {
        model.keymap.fill(&format!("{key} runs `{}`", verb.line(row.name, model.cluster)))
    };
    let runs = [one(Verb::Kill, "{kill}"), one(Verb::Stop, "{stop}")];
    let is_down = matches!(row.life, Life::Down | Life::Left);
    if is_down { one(Verb::Start, "{start}") } else { runs.join(";  ") }
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
        Cell::new(row.name.to_string(), Tone::Title),
        Cell::new(format!("  {}", status.words().1), members::tone(status)),
    ];
    let hint = Cell::new(model.keymap.fill("{open} its events  {back} closes"), Tone::Dim);
    let inside = canvas.frame(place, &title, &[hint]);
    let mut y = inside.y;
    let keys = model.chaos.may_arm.then(|| ("keys", commands(model, row)));
    for (head, text) in facts(row, data, at).into_iter().chain(keys) {
        y = canvas.entry(inside, y, HEADS_WIDE, head, &text, Tone::Text);
    }
    y += 1;
    let left = usize::from(inside.bottom().saturating_sub(y));
    // Its own, and those of others that name it.
    let is_about = |event: &&EventRow| {
        let (who, _) = event_text::members(event.event, event.a, event.b);
        event.process == row.name || who.is_some_and(|who| who == row.incarnation)
    };
    let mine: Vec<_> = data.events.iter().rev().filter(is_about).take(left).collect();
    if mine.is_empty() {
        canvas.put(inside, inside.x + 1, y, "no events of it were read", Tone::Dim);
    }
    for event in mine.into_iter().rev() {
        let (time, kind) = (events::time(event, data), event.event.name());
        let text = format!("{time}  {:<9} {kind:<14} {}", event.process, data.describe(event));
        canvas.put(inside, inside.x + 1, y, &text, Tone::Text);
        y += 1;
    }
}

#[cfg(test)]
mod tests {
    use crate::view::tests::{broken, press};
    use crate::view::text;

    /// The details after this number of steps down.
    fn details(steps: usize, width: u16, height: u16) -> String {
        let mut model = broken(width, height);
        press(&mut model, &"j".repeat(steps));
        press(&mut model, "\n");
        text(&model)
    }

    #[test]
    fn a_member_in_trouble_says_who_suspected_it_and_what_to_do() {
        let frozen = details(2, 120, 36);
        assert!(frozen.contains("node-3  frozen"), "{frozen}");
        assert!(frozen.contains("to do: `kill -CONT 108` lets it continue"), "{frozen}");
        let down = details(1, 120, 36);
        assert!(down.contains("app-2  down"), "{down}");
        assert!(down.contains("suspected  by coord-1 (1) (deadbeat) at 23:13:25.999200"), "{down}");
        assert!(down.contains("`obol start app-2`"), "{down}");
        assert!(down.contains("coord-1   notice         app-2 (7), reported by coord-1 (1)"), "{down}");
        let well = details(3, 120, 36);
        assert!(!well.contains("to do  ") && !well.contains("suspected  "), "{well}");
    }
}
