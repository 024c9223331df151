//! The clusters to choose from, without a digit: those of the configuration, and the others of this root.
//!
//! ```text
//! ┌─ Clusters 3 ───────────────────────────────────────────────────────────────────────────┐
//! │   NAME     HEALTH       VIEW  MEMBERS  FAILOVERS/h  INCIDENTS  WHAT                     │
//! │ ▸ prod     ! degraded     12        9            3          1  12:35:07Z node-2 is ..   │
//! │   beta *   ok healthy      6        9            0          0                           │
//! └─────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Each is read every two seconds while this list is shown, and not at all otherwise.

use crate::contexts::{Context, Summary};
use crate::input::Action;
use crate::screens::{About, Screen};
use crate::state::table::Key;
use crate::state::{Effect, Model, RowId, ScreenId};
use crate::theme::Tone;
use crate::widgets::canvas::{Canvas, Cell};
use crate::widgets::grid::{Column, Grid};
use obol_observe::Health;
use ratatui::layout::Rect;

pub(crate) const ID: ScreenId = ScreenId("Clusters");

const COLUMNS: [Column; 8] = [
    Column::text("NAME", 8, 0).means("its name in the configuration, else the cluster's; * is the shown one"),
    Column::text("HEALTH", 13, 1).means("as in its header; -- if it cannot be read"),
    Column::number("VIEW", 4, 5).means("its newest view"),
    Column::number("MEMBERS", 7, 4).means("the members of that view"),
    Column::number("FAILOVERS/h", 11, 6).means("failovers of the last hour that flight recorders have"),
    Column::number("INCIDENTS", 9, 2).means("incidents that nobody acknowledged"),
    Column::text("ROOT", 8, 7).means("the directory that holds it"),
    Column::text("WHAT", 20, 3).filling().means("the newest incident, or why it cannot be read"),
];

pub(super) struct Clusters;

impl Screen for Clusters {
    fn about(&self) -> About {
        About::list(ID, &COLUMNS)
    }

    fn what(&self) -> &'static str {
        "The clusters of this root and of the configuration ([contexts.NAME]). Enter shows one in place of this one; what is wrong comes first."
    }

    fn hints(&self, _: &Model) -> &'static str {
        "{down}/{up} select   {open} show it   {sort}/{sort-by} sort   {filter} filter   {back} back"
    }

    fn rows(&self, model: &Model) -> Vec<RowId> {
        rows(model).into_iter().map(RowId::Fixed).collect()
    }

    fn draw(&self, model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
        let rows = rows(model);
        let list = model.list(ID);
        let ids: Vec<RowId> = rows.iter().copied().map(RowId::Fixed).collect();
        let grid = Grid::of(&COLUMNS, list, &ids);
        let title = Cell::new(format!("Clusters {}", rows.len()), Tone::Title);
        let inside = grid.frame(canvas, area, &[title], &list.filter, None);
        if rows.is_empty() {
            let none = if model.replay.is_some() {
                "a recording has one cluster"
            } else {
                "there are none in this root, and [contexts] of the configuration names none"
            };
            return super::draw_none(model, canvas, inside, &list.filter, ("cluster", none));
        }
        grid.draw(canvas, inside, |row| cells(model, rows[row]));
    }

    fn act(&self, model: &mut Model, action: Action, effects: &mut Vec<Effect>) -> Option<bool> {
        (action == Action::Open).then(|| open(model, effects))
    }
}

/// Shows the selected cluster.
fn open(model: &mut Model, effects: &mut Vec<Effect>) -> bool {
    let rows = rows(model);
    let ids: Vec<RowId> = rows.iter().copied().map(RowId::Fixed).collect();
    let Some(at) = rows.get(model.list(ID).place(&ids)) else { return false };
    let why = if model.owner {
        "this console ends its cluster with it; `obol console` shows others"
    } else if model.chaos.running.is_some() || model.chaos.armed.is_some() {
        "a drill is armed or runs here; {abort-drill} aborts it, {arm} disarms"
    } else if model.recording.is_some() {
        "this cluster is being recorded; {record} ends that"
    } else {
        effects.push(Effect::Switch(*at));
        return false;
    };
    model.note = Some(model.keymap.fill(why));
    true
}

fn summary(model: &Model, at: usize) -> Option<&Summary> {
    model.summaries.get(at)?.as_ref()
}

/// How much it needs attention: an outage first, what was not read yet last.
fn rank(summary: Option<&Summary>) -> u8 {
    match summary.map(|found| found.health) {
        Some(Some(Health::Unavailable | Health::Unreachable)) => 0,
        Some(Some(Health::Unknown)) => 1,
        Some(Some(Health::Degraded)) => 2,
        Some(Some(Health::Healthy)) => 3,
        Some(None) => 4,
        None => 5,
    }
}

fn health(summary: Option<&Summary>) -> (String, Tone) {
    summary.and_then(|found| found.health).map_or(("--".to_owned(), Tone::Dim), super::health)
}

/// The places of the shown ones in order.
fn rows(model: &Model) -> Vec<usize> {
    let list = model.list(ID);
    let root = |context: &Context| context.location.root.display().to_string();
    let keeps = |at: &usize| {
        let (context, found) = (&model.contexts[*at], summary(model, *at));
        list.filter.is_empty()
            || list.filter.keeps(&[
                ("name", context.name.as_str()),
                ("cluster", context.location.cluster.as_str()),
                ("root", root(context).as_str()),
                ("health", health(found).0.as_str()),
                ("what", found.map_or("", |found| found.what.as_str())),
            ])
    };
    let mut rows: Vec<usize> = (0..model.contexts.len()).filter(keeps).collect();
    if list.sort.is_none() {
        rows.sort_by_key(|at| rank(summary(model, *at)));
    }
    let number = |n: Option<usize>| n.map_or(Key::Missing, |n| Key::Number(n as f64));
    let falls = |column: usize| COLUMNS[column].falls;
    list.arrange(&mut rows, falls, |column, at| {
        let (context, found) = (&model.contexts[*at], summary(model, *at));
        let read = found.filter(|found| found.health.is_some());
        match COLUMNS[column].head {
            "HEALTH" => Key::Number(f64::from(rank(found))),
            "VIEW" => {
                found.and_then(|found| found.view).map_or(Key::Missing, |view| Key::Number(view as f64))
            }
            "MEMBERS" => number(found.and_then(|found| found.members)),
            "FAILOVERS/h" => number(read.map(|found| found.failovers)),
            "INCIDENTS" => number(read.map(|found| found.incidents)),
            "ROOT" => Key::Text(root(context)),
            "WHAT" => found.map_or(Key::Missing, |found| Key::Text(found.what.clone())),
            _ => Key::Text(context.name.clone()),
        }
    });
    rows
}

fn cells(model: &Model, at: usize) -> Vec<Cell> {
    let (context, found) = (&model.contexts[at], summary(model, at));
    let read = found.filter(|found| found.health.is_some());
    let is_shown = model.context.as_ref().is_some_and(|shown| shown.location == context.location);
    let name = if is_shown { format!("{} *", context.name) } else { context.name.clone() };
    let (word, tone) = health(found);
    let counted = |n: Option<usize>| match n {
        None => Cell::none(),
        Some(n) => Cell::new(n.to_string(), if n > 0 { Tone::Warn } else { Tone::Text }),
    };
    vec![
        Cell::new(name, if context.production { Tone::Title } else { Tone::Text }),
        Cell::new(word, tone),
        Cell::maybe(found.and_then(|found| found.view).map(|view| view.to_string())),
        Cell::maybe(found.and_then(|found| found.members).map(|members| members.to_string())),
        counted(read.map(|found| found.failovers)),
        counted(read.map(|found| found.incidents)),
        Cell::new(context.location.root.display().to_string(), Tone::Dim),
        Cell::new(found.map_or(String::new(), |found| found.what.clone()), tone),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_is_not_healthy_or_not_read_is_not_listed_as_ok() {
        let said = |read: Option<Health>| {
            let found = Summary {
                health: read,
                view: None,
                members: None,
                failovers: 0,
                incidents: 0,
                what: String::new(),
            };
            health(Some(&found)).0
        };
        assert_eq!(said(Some(Health::Healthy)), "ok healthy");
        let others = [Health::Degraded, Health::Unavailable, Health::Unreachable, Health::Unknown];
        let others = others.map(Some).into_iter().chain([None]).map(said).chain([health(None).0]);
        others.for_each(|said| assert!(!said.contains("ok") && !said.contains("healthy"), "{said}"));
    }
}
