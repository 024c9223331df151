//! Screen 0: incidents, the newest first, those that are not over before the others; below the list all
//! about the selected one.
//!
//! ```text
//! ┌─ Incidents 1  over 4 ────────────────────────────────────────────────────────────┐
//! │   SINCE      FOR   STATE         ABOUT           WHAT                             │
//! │ ▸ 12:35:07Z  4.2s  lasts         node-2, app-2   node-2 is frozen (stopped)       │
//! └──────────────────────────────────────────────────────────────────────────────────┘
//! ┌─ node-2 ───────────────────────────────────────────────────── a acknowledges it ─┐
//! │ what     node-2 is frozen (stopped) and was removed                               │
//! │ done     reported by coord-1 (operation), removed by view 41 with app-2 ...       │
//! │ to do    `kill -CONT 2377` lets it continue, `obol kill node-2` ends it           │
//! │ read     docs/alerts.md#obolprocessfrozen                                         │
//! └──────────────────────────────────────────────────────────────────────────────────┘
//! ```

use crate::input::Action;
use crate::screens::{About, Screen, events, members};
use crate::state::{Effect, Model, RowId, ScreenId};
use crate::theme::Tone;
use crate::widgets::canvas::{Canvas, Cell, wrapped};
use crate::widgets::grid::{Column, Grid};
use crate::widgets::trend::{self, Trend};
use obol_fabric::{Incarnation, Nanos};
use obol_observe::calendar::age;
use obol_observe::event_text;
use obol_observe::incidents::incident::Incident;
use obol_observe::sampling::data::Data;
use obol_observe::sampling::sample::{EventRow, Sample};
use ratatui::layout::Rect;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

pub(crate) const ID: ScreenId = ScreenId("Incidents");

/// Least height of what is said of the selected one.
const ABOUT_LEAST: u16 = 8;
/// Least height of the events of the selected one.
const EVENTS_LEAST: u16 = 5;
/// Events from this time before it began are of it: what it began with was noticed before it was seen.
const BEFORE: Nanos = Nanos::from_secs(1);
/// Width of the names at the left.
const HEADS_WIDE: u16 = 9;

const COLUMNS: [Column; 5] = [
    Column::text("SINCE", 9, 1).means("when it began, time of day in UTC"),
    Column::number("FOR", 6, 2).means("for how long it has lasted, or lasted"),
    Column::text("STATE", 12, 3)
        .means("lasts; over; acknowledged: someone knows, and it is not shown above the screens"),
    Column::text("ABOUT", 8, 4).means("the members that it is about"),
    Column::text("WHAT", 20, 0)
        .filling()
        .means("what is wrong; below the list what was done, what it caused, and what to do"),
];

pub(super) struct Incidents;

impl Screen for Incidents {
    fn about(&self) -> About {
        About { can_sort: false, ..About::list(ID, &COLUMNS) }
    }

    fn what(&self) -> &'static str {
        "What is wrong now and what was, grouped by what it began with: since when, who, what the cluster did, what it caused, and what to do."
    }

    fn hints(&self, _: &Model) -> &'static str {
        "{down}/{up} select   {alerts} acknowledge   {open} the member   {filter} filter   {incident-back} to its moment"
    }

    fn rows(&self, model: &Model) -> Vec<RowId> {
        rows(model).iter().map(id).collect()
    }

    fn list_area(&self, model: &Model, area: Rect) -> Rect {
        split(model, area).0
    }

    fn trends(&self) -> &'static [&'static Trend] {
        const SHOWN: &[&Trend] = &[&trend::FAILOVERS, &trend::LATE, &trend::MARGIN];
        SHOWN
    }

    fn draw(&self, model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
        let rows = rows(model);
        let list = model.list(ID);
        let ids: Vec<RowId> = rows.iter().map(id).collect();
        let grid = Grid::of(&COLUMNS, list, &ids);
        let (above, below) = split(model, area);
        let open = rows.iter().filter(|one| !one.is_over).count();
        let title = [
            Cell::new(format!("Incidents {open}"), Tone::Title),
            Cell::new(format!("  over {}", rows.len() - open), Tone::Dim),
        ];
        let inside = grid.frame(canvas, above, &title, &list.filter, None);
        let Some(sample) = model.data().sample.as_deref().filter(|_| !rows.is_empty()) else {
            let none = ("incident", "nothing is wrong, and nothing was since this console began");
            return super::draw_none(model, canvas, inside, &list.filter, none);
        };
        grid.draw(canvas, inside, |row| cells(&rows[row], sample));
        if let (Some(below), Some(one)) = (below, rows.get(grid.place)) {
            about(model, canvas, below, one, sample);
        }
    }

    fn act(&self, model: &mut Model, action: Action, effects: &mut Vec<Effect>) -> Option<bool> {
        match action {
            Action::Alerts => Some(acknowledge(model, effects)),
            Action::Open => Some(open(model)),
            _ => None,
        }
    }
}

/// The identity of a row: ids are of those that are open.
fn id(one: &Incident) -> RowId {
    let mut hasher = DefaultHasher::new();
    (&one.id, one.is_over.then_some(one.since)).hash(&mut hasher);
    RowId::Incident(hasher.finish())
}

fn names(one: &Incident) -> String {
    let names: Vec<&str> = one.names.iter().map(|name| name.as_str()).collect();
    names.join(", ")
}

/// The shown incidents in order.
fn rows(model: &Model) -> Vec<Incident> {
    let data = model.data();
    let filter = &model.list(ID).filter;
    let mut all = data.incidents();
    all.extend(data.ended_incidents());
    all.retain(|one| filter.is_empty() || filter.keeps(&[("about", &names(one)), ("what", &one.told())]));
    all
}

fn selected(model: &Model) -> Option<Incident> {
    let all = rows(model);
    let ids: Vec<RowId> = all.iter().map(id).collect();
    all.into_iter().nth(model.list(ID).place(&ids))
}

/// Shows the details of the member that the selected incident is about.
fn open(model: &mut Model) -> bool {
    let Some(name) = selected(model).and_then(|one| one.names.first().copied()) else { return false };
    members::describe(model, name)
}

fn acknowledge(model: &mut Model, effects: &mut Vec<Effect>) -> bool {
    let one = selected(model);
    model.note = Some(match one {
        _ if model.replay.is_some() => "incidents of a recording cannot be acknowledged".to_owned(),
        None => "there is nothing to acknowledge".to_owned(),
        Some(one) if one.is_over => "it is over".to_owned(),
        Some(Incident { acknowledged: Some(by), .. }) => format!("{by} acknowledged it"),
        Some(one) => {
            effects.push(Effect::Acknowledge(Box::new(one)));
            return false;
        }
    });
    true
}

fn split(model: &Model, body: Rect) -> (Rect, Option<Rect>) {
    let rows = u16::try_from(rows(model).len()).unwrap_or(u16::MAX);
    let wanted = rows.saturating_add(3).clamp(4, (body.height / 2).max(4));
    if rows == 0 { (body, None) } else { super::split(body, wanted, ABOUT_LEAST) }
}

fn state(one: &Incident) -> (&'static str, Tone) {
    match one {
        Incident { is_over: true, .. } => ("over", Tone::Dim),
        Incident { acknowledged: Some(_), .. } => ("acknowledged", Tone::Text),
        _ => ("lasts", Tone::Bad),
    }
}

fn cells(one: &Incident, sample: &Sample) -> Vec<Cell> {
    let (word, tone) = state(one);
    let text = if one.is_over { Tone::Dim } else { Tone::Text };
    let until = if one.is_over { one.last } else { sample.at };
    vec![
        Cell::new(one.time(sample), Tone::Dim),
        Cell::new(age(until.since(one.since)), text),
        Cell::new(word, tone),
        Cell::new(names(one), text),
        Cell::new(one.fact.clone(), text),
    ]
}

/// Whether an event was while it lasted, and is of its members or about them.
fn is_of(one: &Incident, event: &EventRow, data: &Data) -> bool {
    let lasted = event.at + BEFORE >= one.since && (!one.is_over || event.at <= one.last);
    let about = || {
        let (who, by) = event_text::members(event.event, event.a, event.b);
        [who, by].into_iter().flatten().filter_map(|who: Incarnation| data.name(who))
    };
    let names = &one.names;
    let is_theirs =
        || names.is_empty() || names.contains(&event.process) || about().any(|name| names.contains(&name));
    lasted && is_theirs()
}

/// Everything about an incident.
fn about(model: &Model, canvas: &mut Canvas<'_>, area: Rect, one: &Incident, sample: &Sample) {
    let title = if one.names.is_empty() { "the cluster".to_owned() } else { names(one) };
    let hint = if one.is_over || one.acknowledged.is_some() { "" } else { "{alerts} acknowledges it" };
    let hint = Cell::new(model.keymap.fill(hint), Tone::Dim);
    let until = if one.is_over { one.last } else { sample.at };
    let span = age(until.since(one.since));
    let mut lines = vec![("what", one.fact.clone()), ("since", format!("{}, for {span}", one.time(sample)))];
    lines.extend(one.done().map(|done| ("done", done)));
    lines.extend(one.caused.iter().map(|caused| ("also", caused.clone())));
    if one.outage.0 > 0 {
        lines.push(("impact", format!("no program could act for {}", age(one.outage))));
    }
    lines.extend(one.remedy.clone().map(|remedy| ("to do", remedy)));
    lines.push(("read", one.runbook()));
    lines.extend(one.acknowledged.clone().map(|by| ("known", format!("acknowledged by {by}"))));
    let room = usize::from(area.width.saturating_sub(HEADS_WIDE + 4)).max(1);
    let needed = lines.iter().map(|(_, text)| wrapped(text, room).len()).sum::<usize>();
    let needed = u16::try_from(needed).unwrap_or(u16::MAX).saturating_add(2);
    let (area, below) = super::split(area, needed, EVENTS_LEAST);
    if let Some(below) = below {
        let data = model.data();
        let none = "none of the events that were read is of it";
        events::list(model, canvas, below, "Its events", none, |event| is_of(one, event, data));
    }
    let inside = canvas.frame(area, &[Cell::new(title, Tone::Title)], &[hint]);
    let mut y = inside.y;
    for (head, text) in &lines {
        y = canvas.entry(
            inside,
            y,
            HEADS_WIDE,
            head,
            text,
            if *head == "to do" { Tone::Title } else { Tone::Text },
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::samples;
    use crate::state::{Effect, Event};
    use crate::view::tests::{broken, live, press};
    use crate::view::text;
    use obol_fabric::Instant;
    use obol_observe::annotations::Mark;
    use obol_observe::sampling::Update;

    #[test]
    fn an_acknowledged_incident_names_who_knows_and_leaves_the_other_screens_until_it_is_over() {
        let mut model = broken(120, 36);
        assert!(text(&model).contains("app-2 down: reported by coord-1 (deadbeat), removed by view 7"));
        press(&mut model, "0");
        let mut effects = Vec::new();
        crate::view::tests::press_for(&mut model, "ja", &mut effects);
        let [Effect::Acknowledge(one)] = &effects[..] else { panic!("{effects:?}") };
        let at = model.live.sample.as_ref().expect("read").at;
        let mark = Mark::acknowledged(at, one.acknowledge("alice".to_owned()), &one.fact);
        let mut take = |quarter: u64, marks: Vec<Mark>, is_well| {
            let at = Instant(at.0 + quarter * 250_000_000);
            let mut sample = if is_well { samples::healthy(at) } else { samples::degraded(at) };
            sample.events.clear();
            sample.marks = marks.into_iter().map(Into::into).collect();
            model.reduce(Event::Update(Update::Sample(Box::new(sample))), &mut Vec::new());
            text(&model)
        };
        let shown = take(1, vec![mark], false);
        assert!(shown.contains("acknowledged by alice") && !shown.contains("* "), "{shown}");
        let gone = one.fact.as_str();
        let zone: Vec<&str> = shown.lines().skip(2).take(3).filter(|line| line.contains(gone)).collect();
        assert!(!zone.iter().any(|line| line.starts_with(" !")), "{shown}");
        (2..8).for_each(|quarter| drop(take(quarter, Vec::new(), true)));
        let over = take(8, Vec::new(), true);
        assert!(over.contains("Incidents 0  over 2") && !over.contains("to do"), "{over}");
        let again = take(9, Vec::new(), false);
        assert!(again.lines().any(|line| line.starts_with(" !") && line.contains(gone)), "{again}");
    }

    #[test]
    fn nothing_is_said_to_be_wrong_while_nothing_is() {
        let mut model = live(100, 30);
        press(&mut model, "0");
        assert!(text(&model).contains("nothing is wrong"), "{}", text(&model));
        let mut broken = broken(100, 30);
        press(&mut broken, "0");
        assert!(!text(&broken).contains("nothing is wrong"), "{}", text(&broken));
    }
}
