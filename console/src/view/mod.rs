//! The screens: pure functions of the model. Each has a file; this one has the common parts.
//!
//! ```text
//!  OBOL default  ok healthy  view 12 (9)  leader coord-1          LIVE  14:02:11.4Z    header
//!  1 Members  8 Events                                            READ-ONLY  ? help    tabs
//!  ! coord-2 is frozen (stopped)                                                       reasons
//! ┌─ ... ────────────────────────────────────────────────────────────────────────────┐
//! │ the screen                                                                       │
//! └──────────────────────────────────────────────────────────────────────────────────┘
//!  j/k select  Enter its events  / filter                        36 reads 21kB 0.4ms   footer
//! ```
//!
//! Parts without room are dropped in this order: footer, reasons but one, tabs, frames, reasons.
//! The header stays.

pub(crate) mod areas;
mod help;
mod logs;
mod palette;
mod rollout;
#[cfg(test)]
pub(crate) mod tests;
mod timebar;

use self::areas::{Areas, zone};
use crate::input::Action;
use crate::screens::{self, Screen};
use crate::state::{Mode, Model, Prompt};
use crate::theme::Tone;
use crate::widgets::canvas::{Canvas, Cell, Hit, clock, count, width};
use crate::widgets::trend;
use obol_observe::calendar::age;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Rows of the shown list that fit on the screen.
pub(crate) fn page_rows(model: &Model) -> usize {
    screens::shown(model).page_rows(model, Areas::of(model).body)
}

/// The screen cell by cell.
pub(crate) fn buffer(model: &Model) -> Buffer {
    let (width, height) = model.size;
    let mut buffer = Buffer::empty(Rect { x: 0, y: 0, width, height });
    draw(model, &mut buffer);
    buffer
}

/// The screen as text, without trailing blanks.
pub(crate) fn text(model: &Model) -> String {
    let (width, height) = model.size;
    let buffer = buffer(model);
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    let lines: Vec<String> = (0..height).map(|y| line(y).trim_end().to_owned()).collect();
    lines.join("\n")
}

/// The selected row as shown, without the frame.
pub(crate) fn selected(model: &Model) -> Option<String> {
    let text = text(model);
    let here = model.glyphs.here;
    // The newest events on other screens have no selection.
    let row = text
        .lines()
        .find_map(|line| line.split_once(here).filter(|(before, _)| before.chars().count() < 3))?
        .1;
    let words: Vec<&str> = row.trim_end_matches(model.glyphs.down).split_whitespace().collect();
    Some(words.join(" "))
}

/// The target of a click at this place.
pub(crate) fn hit(model: &Model, x: u16, y: u16) -> Option<Hit> {
    let (width, height) = model.size;
    let mut buffer = Buffer::empty(Rect { x: 0, y: 0, width, height });
    let at = ratatui::layout::Position { x, y };
    paint(model, &mut buffer).into_iter().rev().find(|(place, _)| place.contains(at)).map(|(_, hit)| hit)
}

/// Draws everything.
pub(crate) fn draw(model: &Model, buffer: &mut Buffer) {
    paint(model, buffer);
}

/// Draws everything; returns the targets of clicks.
fn paint(model: &Model, buffer: &mut Buffer) -> Vec<(Rect, Hit)> {
    let mut canvas = Canvas { buffer, theme: model.theme, glyphs: model.glyphs, hits: Vec::new() };
    let areas = Areas::of(model);
    header(model, &mut canvas, areas.header);
    tabs(model, &mut canvas, areas.tabs);
    for (y, (line, tone)) in (areas.reasons.y..).zip(zone(model, areas.reasons.height)) {
        // A truncated count would be misleading.
        let line = if line.starts_with(['>', '*']) {
            fit(&line, "  ", areas.reasons.width.saturating_sub(1))
        } else {
            &line
        };
        canvas.put(areas.reasons, 1, y, line, tone);
    }
    screens::shown(model).draw(model, &mut canvas, areas.body);
    if areas.trends.height > 0 {
        trend::row(model, &mut canvas, areas.trends, screens::shown(model).trends());
    }
    if areas.time.height > 0 {
        timebar::draw(model, &mut canvas, areas.time);
    }
    footer(model, &mut canvas, areas.footer);
    palette::draw(model, &mut canvas, areas.tabs.union(areas.body));
    if let (Mode::Logs, Some(shown)) = (&model.mode, &model.logs) {
        logs::draw(model, shown, &mut canvas, areas.body);
    }
    if model.mode == Mode::Help {
        help::draw(model, &mut canvas, areas.tabs.union(areas.body));
    }
    canvas.hits
}

/// The log lines that fit on the screen.
pub(crate) fn log_rows(model: &Model) -> u16 {
    Areas::of(model).body.height.saturating_sub(2)
}

/// The number of pages of the help.
pub(crate) fn help_pages(model: &Model) -> usize {
    let areas = Areas::of(model);
    let area = areas.tabs.union(areas.body);
    help::count(model, area)
}

/// Signs on every screen.
const EVERYWHERE: [(&str, &str); 5] = [
    trend::SIGNS,
    timebar::SIGNS,
    ("--", "not read, or no such value; not zero"),
    ("units", "ns, us, ms, s, m, h; k and M are thousands and millions; B is bytes"),
    (
        "n READs",
        "lower right: the cost of the newest sample on this host: READs of regions, bytes, READs repeated because of a \
         concurrent writer, and duration",
    ),
];

/// The explanations of a screen's columns and signs.
pub(crate) fn glossary(screen: &dyn Screen) -> Vec<(&'static str, &'static str)> {
    let columns = screen.columns().into_iter().map(|column| (column.head, column.means));
    columns.chain(screen.about().signs.iter().copied()).chain(EVERYWHERE).collect()
}

/// As many whole parts of a line as fit, at least the first.
fn fit<'a>(text: &'a str, between: &str, room: u16) -> &'a str {
    let mut end = 0;
    for part in text.split(between) {
        let next = if end == 0 { part.len() } else { end + between.len() + part.len() };
        if end > 0 && width(&text[..next]) > room {
            break;
        }
        end = next;
    }
    &text[..end]
}

/// The header, and which parts are dropped first.
fn header(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let sample = model.data().sample.as_deref();
    let health = match sample.map(|sample| sample.health) {
        _ if model.lost.is_some() || sample.is_none() => Cell::new("? not read", Tone::Stale),
        Some(health) => {
            let (text, tone) = screens::health(health);
            Cell::new(text, tone)
        }
        None => Cell::none(),
    };
    let view = sample.and_then(|sample| sample.view.as_ref());
    let view =
        view.map_or("view --".to_owned(), |view| format!("view {} ({} members)", view.id, view.members));
    let leader = sample.and_then(|sample| sample.leader).map_or("--".to_owned(), |name| name.to_string());
    let feed = match (&model.frozen, model.stale()) {
        _ if model.replay.is_some() => Cell::new("REPLAY", Tone::Title),
        (Some(_), _) => Cell::new("FROZEN", Tone::Armed),
        (None, Some(old)) => Cell::new(format!("STALE {}", age(old)), Tone::Stale),
        (None, None) if sample.is_none() => Cell::new("WAITING", Tone::Stale),
        (None, None) => Cell::new("LIVE", Tone::Good),
    };
    let time = sample.map_or(String::new(), |sample| clock(sample.unix));
    let recording = Cell::new(if model.recording.is_some() { "REC" } else { "" }, Tone::Armed);
    // Parts with smaller numbers are kept longer.
    let mut parts = vec![
        (5, Cell::new("OBOL", Tone::Title)),
        (3, Cell::new(model.called(), if model.is_production() { Tone::Armed } else { Tone::Title })),
        (0, health),
        (2, Cell::text(view)),
        (4, Cell::text(format!("leader {leader}"))),
        (7, recording),
        (1, feed),
        (6, Cell::new(time, Tone::Dim)),
    ];
    parts.retain(|(_, cell)| !cell.text.is_empty());
    let total = |parts: &[(u8, Cell)]| parts.iter().map(|(_, cell)| cell.width() + 2).sum::<u16>();
    while parts.len() > 1 && total(&parts) > area.width.saturating_add(1) {
        let Some(most) = (0..parts.len()).max_by_key(|at| parts[*at].0) else { break };
        parts.remove(most);
    }
    // Source and time are right-aligned.
    let right = parts.iter().position(|(rank, _)| matches!(rank, 1 | 6 | 7)).unwrap_or(parts.len());
    let mut x = area.x + u16::from(area.width > 12);
    for (at, (_, cell)) in parts.iter().enumerate() {
        if at == right {
            let wide: u16 = parts[at..].iter().map(|(_, cell)| cell.width() + 2).sum::<u16>() - 1;
            x = x.max(area.right().saturating_sub(wide));
        }
        x = canvas.put(area, x, area.y, &cell.text, cell.tone) + 2;
    }
}

fn tabs(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let hints = [
        Cell::new(model.keymap.hint(Action::Help), Tone::Key),
        Cell::new(" help  ", Tone::Dim),
        Cell::new(model.keymap.hint(Action::Quit), Tone::Key),
        Cell::new(" quit", Tone::Dim),
    ];
    let hints_wide = hints.iter().map(Cell::width).sum::<u16>();
    let names: u16 = screens::all().map(|screen| width(screen.id().0) + 4).sum::<u16>();
    // Without room for all names, only the shown screen has its name.
    let banner = model.chaos.banner(&model.keymap).map(|banner| format!(" {banner} "));
    let beside = banner.as_deref().map_or(hints_wide, width);
    let all = screens::all().len() as u16;
    let gap = if names + beside + 2 > area.width { 1 } else { 2 };
    let help_wide = if banner.is_some() { beside } else { hints[..2].iter().map(Cell::width).sum::<u16>() };
    let short = gap == 1 && names.saturating_sub(all) + help_wide + 2 > area.width;
    let mut x = area.x + 1;
    for screen in screens::all() {
        let shown = screen.id() == model.screen;
        let from = x;
        let (key, name) = if shown { (Tone::Title, Tone::Title) } else { (Tone::Key, Tone::Dim) };
        let number =
            if shown && !short { format!("[{}", screen.number()) } else { screen.number().to_string() };
        x = canvas.put(area, x, area.y, &number, key);
        if shown || !short {
            x = canvas.put(area, x, area.y, &format!(" {}", screen.id().0), name);
        }
        if shown && !short {
            x = canvas.put(area, x, area.y, "]", key);
        }
        canvas.hits.push((Rect { x: from, width: x.saturating_sub(from), ..area }, Hit::Screen(screen.id())));
        x += if short { 1 } else { gap };
    }
    // Armed drills are shown on every screen, before any hint.
    if let Some(banner) = banner {
        let from = x.min(area.right().saturating_sub(width(&banner)).max(area.x));
        canvas.put(
            area,
            from.max(area.right().saturating_sub(width(&banner) + 1)),
            area.y,
            &banner,
            Tone::Armed,
        );
        return;
    }
    // Without room for all, the one for help.
    for hints in [&hints[..], &hints[..2]] {
        let wide = hints.iter().map(Cell::width).sum::<u16>();
        if area.right() > x + wide {
            canvas.line(area, area.right() - wide - 1, area.y, hints);
            return;
        }
    }
}

/// Between two hints.
const HINT_GAP: &str = "   ";
/// The keys of a replay.
const PLAY_KEYS: &str = "{freeze} play or stop   {slower} {faster} speed   {step-back} {step-forward} step   {event-back} {event-forward} view change   {minute-back} {minute-forward} 1 min   {incident-back} {incident-forward} incident   :12:35 time";

/// The line that is being typed.
fn typed(canvas: &mut Canvas<'_>, area: Rect, sign: &str, text: &str, help: &str) {
    let x = canvas.put(area, area.x + 1, area.y, &format!("{sign}{text}"), Tone::Text);
    let x = canvas.put(area, x, area.y, " ", Tone::Selected);
    canvas.put(area, x + 3, area.y, help, Tone::Dim);
}

fn footer(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let line = |canvas: &mut Canvas<'_>, text: &str, tone| canvas.put(area, area.x + 1, area.y, text, tone);
    match &model.mode {
        Mode::Typing { what, text } => {
            let (sign, help) = match what {
                Prompt::Filter => ("/", "word  !word  ~regex  -l kind=app   Enter keeps it, Esc clears it"),
                Prompt::Note => ("note: ", "annotates all consoles and recordings   Enter, Esc"),
                Prompt::Arm => ("type the cluster's name to arm: ", "Enter arms, Esc"),
                Prompt::Act(verb, who) => {
                    let what = verb.means().replace("{}", who.as_str());
                    let sign = format!("{what}: type the cluster's name: ");
                    return typed(canvas, area, &sign, text, "Enter does it, Esc");
                }
                Prompt::Palette => (":", "a command or a screen by name   Enter, Esc"),
                Prompt::SortBy => ("sort by: ", "a column   Enter, Esc"),
            };
            typed(canvas, area, sign, text, help);
        }
        Mode::Leaving => {
            let text = format!("Quitting ends cluster {} and all its processes. End it? y/N", model.cluster);
            line(canvas, &text, Tone::Armed);
        }
        Mode::Confirm { verb, who } => {
            let (what, run) = (verb.means().replace("{}", who.as_str()), verb.line(*who, model.cluster));
            let text = format!("{what} of cluster {}? y/N   runs {run}", model.cluster);
            line(canvas, &text, Tone::Armed);
        }
        Mode::Normal | Mode::Help | Mode::Detail | Mode::Logs => {
            if let Some(note) = &model.note {
                line(canvas, note, Tone::Warn);
                return;
            }
            let frozen = model.frozen.as_ref().map(|frozen| {
                if let Some(replay) = &model.replay {
                    let place = frozen.at.since(replay.first().unwrap_or(frozen.at));
                    let (all, is_all) = replay.span();
                    let more = if is_all { "" } else { " or more" };
                    let sign = match (replay.moves(), replay.plays()) {
                        (true, false) => "moving",
                        (_, true) => "playing",
                        (false, false) => "stopped",
                    };
                    let keys = model.keymap.fill(PLAY_KEYS);
                    return format!("{sign} {} at {} of {}{more}   {keys}", replay.name(), age(place), age(all));
                }
                let behind = model.live.sample.as_ref().map_or(0, |s| s.at.since(frozen.at).0);
                let keys = model.keymap.fill("{freeze} live again   {second-back} {second-forward} 1 s   {minute-back} {minute-forward} 1 min   {incident-back} {incident-forward} incident   {mark-back} {mark-forward} mark   {step-back} {step-forward} step   {event-back} {event-forward} view   :12:35 time");
                format!("{keys}   {} behind", age(obol_fabric::Nanos(behind)))
            });
            let hints = frozen.unwrap_or_else(|| {
                let all = screens::shown(model).hints(model).split(HINT_GAP);
                let works = |hint: &&str| model.keymap.named_in(hint).all(|action| model.offers(action));
                model.keymap.fill(&all.filter(works).collect::<Vec<_>>().join(HINT_GAP))
            });
            let x = line(canvas, fit(&hints, HINT_GAP, area.width.saturating_sub(1)), Tone::Dim);
            if let Some(sample) = &model.data().sample {
                let cost = sample.cost;
                let again = if cost.torn > 0 { format!("  {} repeated", cost.torn) } else { String::new() };
                let text =
                    format!("{} READs  {}B{again}  {}", count(cost.reads), count(cost.bytes), cost.took);
                if area.right() > x + width(&text) + 3 {
                    canvas.put(area, area.right() - width(&text) - 1, area.y, &text, Tone::Dim);
                }
            }
        }
    }
}
