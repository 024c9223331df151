//! Screen 6: drills, a preview of the selected one, and the last runs.
//!
//! ```text
//! ┌─ Drills 9 ──────────────────────────────── read-only: `obol console --arm` ─┐
//! │   NAME     REPEAT  WHAT                                                      │
//! │ ▸ freeze     20  Stop the leader for a while                                 │
//! └──────────────────────────────────────────────────────────────────────────────┘
//! ┌─ Preview of freeze ─────────────────────────────────────────── it may run ──┐
//! │ step freeze                                                                  │
//! │   freeze for 1s: coord-1 (pid 4711)                                          │
//! │ guard max_targets allows: victims: 1, at most 1                           │
//! └──────────────────────────────────────────────────────────────────────────────┘
//! ┌─ Runs ───────────────────────────────────────────────────────────────────────┐
//! │ freeze   running for 3.2s, 2 failovers so far                                 │
//! │     repetition 3 freeze: armed against coord-1; cued and injected; over in 21ms │
//! │ app      passed   20 of 20, 0 void  cue_to_active p50 156us max 214us         │
//! └──────────────────────────────────────────────────────────────────────────────┘
//! ```

use crate::input::Action;
use crate::screens::{About, Screen};
use crate::state::chaos::{Run, Running, SCREEN};
use crate::state::table::Move;
use crate::state::{Effect, Model, RowId};
use crate::theme::Tone;
use crate::widgets::canvas::{Canvas, Cell, width};
use crate::widgets::grid::{Column, Grid, page_rows};
use obol_chaos::drillfile::Metric;
use obol_chaos::drills::{Journal, Verdict};
use obol_observe::calendar::age;
use obol_observe::stats::shown as us;
use ratatui::layout::Rect;

pub(super) struct Chaos;

impl Screen for Chaos {
    fn about(&self) -> About {
        About {
            has_choice_of_columns: false,
            can_sort: false,
            can_filter: false,
            ..About::list(SCREEN, &COLUMNS)
        }
    }

    fn what(&self) -> &'static str {
        "Drills: faults that are injected on purpose, and what the cluster does about them. Previews are harmless; a run needs `obol console --arm`, the typed name of the cluster, and a key."
    }

    fn hints(&self, _: &Model) -> &'static str {
        "{down}/{up} select   {open} preview   {arm} arm, or disarm   {run-drill} run   {abort-drill} abort"
    }

    fn rows(&self, model: &Model) -> Vec<RowId> {
        (0..model.chaos.drills.len()).map(RowId::Fixed).collect()
    }

    fn list_area(&self, model: &Model, area: Rect) -> Rect {
        areas(model, area).list
    }

    fn draw(&self, model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
        let chaos = &model.chaos;
        let Areas { list, preview, runs } = areas(model, area);
        let drills = chaos.drills.len();
        let state = match (&chaos.running, &chaos.armed, chaos.may_arm) {
            (Some(_), ..) => Cell::new("a drill runs", Tone::Armed),
            (_, Some(_), _) => Cell::new("ARMED", Tone::Armed),
            (.., true) => Cell::new(model.keymap.fill("{arm} arms the selected one"), Tone::Warn),
            (.., false) => Cell::new("read-only: `obol console --arm`", Tone::Dim),
        };
        let grid = Grid { marked: true, ..Grid::of(&COLUMNS, model.list(SCREEN), &self.rows(model)) };
        let inside = if list.height < 4 {
            list
        } else {
            let shown = grid.shown(page_rows(list));
            let all = match shown.len() < drills {
                true => format!("Drills {}-{} of {}", shown.start + 1, shown.end, drills),
                false => format!("Drills {drills}"),
            };
            canvas.frame(list, &[Cell::new(all, Tone::Title)], &[state])
        };
        if drills == 0 {
            canvas.put(inside, inside.x + 2, inside.y, "no drill can be run here", Tone::Dim);
        } else {
            grid.draw(canvas, inside, |row| {
                let drill = &chaos.drills[row];
                vec![
                    Cell::text(drill.name.clone()),
                    Cell::text(drill.count.to_string()),
                    Cell::text(drill.title.clone()),
                ]
            });
        }
        if let Some(area) = preview {
            draw_preview(model, canvas, area);
        }
        if let Some(area) = runs {
            draw_runs(model, canvas, area);
        }
    }

    fn select(&self, model: &mut Model, to: Move) -> bool {
        // The first one is selected by default.
        let rows = self.rows(model);
        model.list_mut(SCREEN).go(to, &rows)
    }

    fn act(&self, model: &mut Model, action: Action, effects: &mut Vec<Effect>) -> Option<bool> {
        (action == Action::Open).then(|| model.preview(effects))
    }
}

const COLUMNS: [Column; 3] = [
    Column::text("NAME", 10, 0).means("the drill, as `obol drill run` takes it"),
    Column::number("REPEAT", 6, 2).means("its number of repetitions"),
    Column::text("WHAT", 20, 1).filling().means("what it does"),
];

/// Largest height of the list while there is room for more below.
const LIST_MOST: u16 = 13;
/// On a tall screen the list leaves this height to what is below it.
const BELOW: u16 = 16;
/// The runs take at most this fraction of the height.
const RUNS_PART: u16 = 3;
/// Failovers of the running drill that are shown.
const FAILOVERS_MOST: usize = 3;
/// Least height of a pane below the list.
const PANE_LEAST: u16 = 4;

/// List, preview and runs.
struct Areas {
    list: Rect,
    preview: Option<Rect>,
    runs: Option<Rect>,
}

fn areas(model: &Model, body: Rect) -> Areas {
    let rows = u16::try_from(model.chaos.drills.len()).unwrap_or(u16::MAX);
    let wanted = rows.saturating_add(3).min(LIST_MOST.max(body.height.saturating_sub(BELOW)));
    let Some(rest) = body.height.checked_sub(wanted).filter(|rest| *rest >= PANE_LEAST) else {
        // Without room for all, the preview takes precedence if there is one.
        let half = body.height / 2;
        if model.chaos.preview.is_some() && half >= PANE_LEAST {
            let below = Rect { y: body.y + body.height - half, height: half, ..body };
            return Areas {
                list: Rect { height: body.height - half, ..body },
                preview: Some(below),
                runs: None,
            };
        }
        return Areas { list: body, preview: None, runs: None };
    };
    let list = Rect { height: wanted, ..body };
    let some = !model.chaos.runs.is_empty() || model.chaos.running.is_some();
    let runs = if some { (rest / RUNS_PART).max(PANE_LEAST).min(rest) } else { 0 };
    // Space that is too low for a preview goes to the runs.
    let runs = if some && rest - runs < PANE_LEAST { rest } else { runs };
    let preview = rest - runs;
    let at = |y, height| (height >= PANE_LEAST).then_some(Rect { y, height, ..body });
    Areas {
        list,
        preview: at(list.bottom(), preview),
        runs: at(list.bottom() + if preview >= PANE_LEAST { preview } else { 0 }, runs),
    }
}

fn draw_preview(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let selected = model.selected_drill().map(|drill| drill.name.as_str());
    let found = model.chaos.preview.as_ref().filter(|(of, _)| Some(of.as_str()) == selected);
    let Some((drill, found)) = found else {
        let inside = canvas.frame(area, &[Cell::new("Preview", Tone::Title)], &[]);
        let text = "Enter shows the victims of the selected drill; nothing is touched";
        canvas.put(inside, inside.x + 1, inside.y, text, Tone::Dim);
        return;
    };
    let title = [Cell::new(format!("Preview of {drill}"), Tone::Title)];
    match found {
        Ok(preview) => {
            let may = if preview.allowed {
                Cell::new("ok it may run", Tone::Good)
            } else {
                Cell::new("x it may not run", Tone::Bad)
            };
            let inside = canvas.frame(area, &title, &[may]);
            let room = usize::from(inside.height);
            // Refusals are never cut off.
            let cut = preview.lines.len() > room;
            let refusing = preview.lines.iter().filter(|(_, refuses)| *refuses);
            let others = preview.lines.iter().filter(|(_, refuses)| !*refuses);
            let lines: Vec<_> = if cut {
                refusing.chain(others).take(room).collect()
            } else {
                preview.lines.iter().collect()
            };
            for (y, (text, refuses)) in (inside.y..).zip(lines) {
                canvas.put(inside, inside.x + 1, y, text, if *refuses { Tone::Bad } else { Tone::Text });
            }
        }
        Err(why) => {
            let inside = canvas.frame(area, &title, &[Cell::new("x unknown", Tone::Bad)]);
            canvas.put(inside, inside.x + 1, inside.y, why, Tone::Bad);
        }
    }
}

/// The tone of a verdict.
const fn tone(verdict: Verdict) -> Tone {
    match verdict {
        Verdict::Passed => Tone::Good,
        Verdict::Void | Verdict::Interrupted => Tone::Warn,
        Verdict::Deviated | Verdict::Failed | Verdict::Aborted => Tone::Bad,
    }
}

/// The most important figure as text.
fn figures(journal: &Journal) -> String {
    let Some(figure) = journal.figures_us.get(Metric::CueToActive.name()) else {
        return String::new();
    };
    let [p50, p99] = [figure.p50, figure.p99].map(|claimed| claimed.map_or("--".to_owned(), us));
    format!("  failover p50 {p50}  p99 {p99}  max {}  n {}", us(figure.max), figure.n)
}

/// The stages of a repetition, in as many lines as necessary.
fn fill(head: &str, parts: &[String], room: u16) -> Vec<(String, Tone)> {
    const INDENT: &str = "    ";
    let mut lines = vec![format!("{INDENT}{head}")];
    for (n, words) in parts.iter().enumerate() {
        let words = if n + 1 < parts.len() { format!("{words}; ") } else { words.clone() };
        match lines.last_mut() {
            Some(line) if n == 0 || width(line) + width(words.trim_end()) + 1 < room => line.push_str(&words),
            _ => lines.push(format!("{INDENT}{INDENT}{words}")),
        }
    }
    lines.into_iter().map(|line| (line, Tone::Text)).collect()
}

fn draw_runs(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let chaos = &model.chaos;
    let inside =
        canvas.frame(area, &[Cell::new("Runs", Tone::Title)], &[Cell::new("newest first", Tone::Dim)]);
    let mut lines: Vec<(String, Tone)> = Vec::new();
    if let Some(Running { drill, since, is_aborted }) = &chaos.running {
        let all = model.live.failovers();
        let mine: Vec<_> = all.iter().filter(|failover| failover.began >= *since).collect();
        let word = if *is_aborted { "aborting" } else { "running" };
        let done = chaos.done.map_or(String::new(), |(done, of)| format!("  {done} of {of} repetitions,"));
        let so_far = match mine.len() {
            1 => "1 failover".to_owned(),
            n => format!("{n} failovers"),
        };
        let text = format!("{drill}  {word},{done} for {}, {so_far} so far", age(model.now.since(*since)));
        lines.push((text, Tone::Armed));
        if let Some((step, parts)) = &chaos.stages {
            lines.extend(fill(&format!("repetition {step}: "), parts, inside.width));
        }
        // The newest ones, as they occur.
        for failover in mine.iter().rev().take(FAILOVERS_MOST) {
            let dead: Vec<String> = failover.dead.iter().map(|dead| model.live.who(dead.who)).collect();
            let reason =
                failover.dead.first().and_then(|dead| dead.reason).map_or("--", |reason| reason.name());
            let total =
                failover.total().map_or("not over yet".to_owned(), |total| format!("over in {total}"));
            let text = format!("    view {}: {} dead by {reason}, {total}", failover.view, dead.join(", "));
            lines.push((text, Tone::Text));
        }
    }
    for Run { drill, began, ended, found } in &chaos.runs {
        let (ago, took) = (age(model.now.since(*ended)), age(ended.since(*began)));
        match found {
            Ok(journal) => {
                let Journal { verdict, count, void, .. } = &**journal;
                let text = format!(
                    "{drill}  {verdict}  {count} repetitions, {void} void, in {took}, {ago} ago{}",
                    figures(journal)
                );
                lines.push((text, tone(*verdict)));
                for judged in &journal.judged {
                    let (word, tone) = match judged.holds {
                        Some(true) => ("holds", Tone::Dim),
                        Some(false) => ("DEVIATES", Tone::Bad),
                        None => ("not judged: too few samples", Tone::Dim),
                    };
                    lines.push((format!("    {}: {word}", judged.expectation()), tone));
                }
                lines.extend(journal.remarks.iter().map(|remark| (format!("    {remark}"), Tone::Warn)));
            }
            Err(why) => lines.push((format!("{drill}  not run, {ago} ago: {why}"), Tone::Bad)),
        }
    }
    for (y, (text, tone)) in (inside.y..inside.bottom()).zip(lines) {
        canvas.put(inside, inside.x + 1, y, &text, tone);
    }
}
