//! The help: all keys, then the columns and signs of the screen, in pages over the middle of the
//! screen.

use crate::input::{Binding, Group, Press};
use crate::screens::{self, Screen, clusters};
use crate::state::Model;
use crate::theme::Tone;
use crate::view::glossary;
use crate::widgets::canvas::{Canvas, Cell, width, wrapped};
use ratatui::layout::Rect;
use strum::VariantArray;

/// Column of the explanations.
const KEYS_WIDE: u16 = 12;
/// A column of keys.
const GROUP_WIDE: u16 = 38;
/// Largest width of a page of explanations.
const MEANS_MOST: u16 = 110;

/// A line of the help.
enum Line {
    Title(&'static str),
    /// A term and its explanation; a continued line has no term.
    Entry(String, String, Tone),
    Empty,
}

/// Lines of one kind, with their layout.
struct Page {
    title: String,
    /// Above the lines.
    what: Vec<String>,
    /// Side by side.
    columns: usize,
    lines: Vec<Line>,
}

/// Every key that can do anything, by its group.
fn keys(model: &Model, gaps: bool) -> Vec<Line> {
    let mut all = Vec::new();
    let entry = |keys: String, help: &str| Line::Entry(keys, help.to_owned(), Tone::Key);
    for &group in Group::VARIANTS {
        let offered =
            |(binding, _): &(&Binding, &[Press])| binding.group == group && model.offers(binding.action);
        let mut bound = model.keymap.iter().filter(offered).peekable();
        if bound.peek().is_none() {
            continue;
        }
        if gaps && !all.is_empty() {
            all.push(Line::Empty);
        }
        all.push(Line::Title(group.into_str()));
        if group == Group::Screens {
            all.extend(screens::all().map(|s| entry(s.number().to_string(), &s.name())));
        }
        for (binding, keys) in bound {
            all.push(entry(names(keys), binding.help));
        }
    }
    all
}

/// As many keys as fit before the explanation, the main one first.
fn names(keys: &[Press]) -> String {
    let mut all = keys.first().map_or("(none)".to_owned(), |press| press.name());
    for press in keys.iter().skip(1) {
        let more = format!("{all} {}", press.name());
        if width(&more) >= KEYS_WIDE {
            break;
        }
        all = more;
    }
    all
}

/// The explanations of the screen's columns and signs.
fn meanings(screen: &dyn Screen, wide: u16) -> Vec<Line> {
    let all = glossary(screen);
    let heads = all.iter().map(|(head, _)| width(head)).max().unwrap_or(0);
    let room = usize::from(wide.saturating_sub(heads + 2).max(10));
    let mut lines = Vec::new();
    for (head, means) in all {
        for (at, part) in wrapped(means, room).into_iter().enumerate() {
            let head = if at == 0 { head } else { "" };
            lines.push(Line::Entry(format!("{head:<heads$}", heads = usize::from(heads)), part, Tone::Title));
        }
    }
    lines
}

/// All pages for this area.
fn pages(model: &Model, area: Rect) -> Vec<Page> {
    let height = usize::from(area.height.saturating_sub(2)).max(1);
    let columns = if area.width >= 2 * GROUP_WIDE + 4 { 2 } else { 1 };
    let wide = usize::from(area.width.min(if columns == 2 { 2 * GROUP_WIDE + 4 } else { GROUP_WIDE + 4 }));
    let mut what = wrapped(screens::shown(model).what(), wide.saturating_sub(4).max(10));
    // Without room for both, the keys are more useful.
    if what.len() + 1 > height / 2 {
        what.clear();
    }
    let first = height - what.len() - usize::from(!what.is_empty());
    let room = first * columns;
    let with_gaps = keys(model, true);
    let mut lines = if with_gaps.len() <= room { with_gaps } else { keys(model, false) };
    let mut all = Vec::new();
    while !lines.is_empty() {
        let room = if all.is_empty() { room } else { height * columns };
        let rest = lines.split_off(room.min(lines.len()));
        let lines = std::mem::replace(&mut lines, rest);
        let title = if all.is_empty() { screens::shown(model).id().0 } else { "Keys" };
        all.push(Page { title: title.to_owned(), what: std::mem::take(&mut what), columns, lines });
    }
    let mut lines = meanings(screens::shown(model), area.width.min(MEANS_MOST).saturating_sub(4));
    let number = match screens::shown(model) {
        screen if screen.id() == clusters::ID => String::new(),
        screen => format!("{} ", screen.number()),
    };
    let title = format!("What screen {number}{} shows", model.screen.0);
    while !lines.is_empty() {
        let rest = lines.split_off(height.min(lines.len()));
        let lines = std::mem::replace(&mut lines, rest);
        all.push(Page { title: title.clone(), what: Vec::new(), columns: 1, lines });
    }
    all
}

/// The number of pages.
pub(crate) fn count(model: &Model, area: Rect) -> usize {
    pages(model, area).len()
}

/// Draws the open page over an area.
pub(crate) fn draw(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let pages = pages(model, area);
    let at = model.help_page.min(pages.len() - 1);
    let Page { title, what, columns, lines } = &pages[at];
    let is_keys = matches!(lines.first(), Some(Line::Title(_) | Line::Entry(_, _, Tone::Key)));
    let wide = match (is_keys, columns) {
        (true, 2) => 2 * GROUP_WIDE + 4,
        (true, _) => GROUP_WIDE + 4,
        (false, _) => MEANS_MOST,
    };
    let rows = lines.len().div_ceil(*columns);
    let wide = wide.min(area.width);
    let above = what.len() + usize::from(!what.is_empty());
    let height = u16::try_from(rows + above + 2).unwrap_or(u16::MAX).min(area.height);
    let place = Rect {
        x: area.x + (area.width - wide) / 2,
        y: area.y + (area.height - height) / 2,
        width: wide,
        height,
    };
    for y in place.top()..place.bottom() {
        canvas.blank(place, y);
    }
    let title = format!("{title}  {} of {}", at + 1, pages.len());
    let hint = model.keymap.fill("{help} next page, any other key closes");
    let inside = canvas.frame(place, &[Cell::new(title, Tone::Title)], &[Cell::new(hint, Tone::Dim)]);
    for (y, line) in (inside.y..inside.bottom()).zip(what) {
        canvas.put(inside, inside.x + 1, y, line, Tone::Text);
    }
    let top = inside.y + u16::try_from(above).unwrap_or(0);
    for (at, line) in lines.iter().enumerate() {
        let column = u16::try_from(at / rows.max(1)).unwrap_or(0);
        let x = inside.x + 1 + column * GROUP_WIDE;
        let y = top + u16::try_from(at % rows.max(1)).unwrap_or(0);
        if y >= inside.bottom() {
            continue;
        }
        match line {
            Line::Title(title) => {
                canvas.put(inside, x, y, title, Tone::Title);
            }
            Line::Entry(head, means, tone) => {
                canvas.put(inside, x, y, head, *tone);
                let from = if is_keys { x + KEYS_WIDE } else { x + width(head) + 2 };
                canvas.put(inside, from, y, means, Tone::Text);
            }
            Line::Empty => {}
        }
    }
}
