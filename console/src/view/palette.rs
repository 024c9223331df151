//! The choices while a name is typed: a list above the input line, with the marked one highlighted.

use crate::state::{Mode, Model};
use crate::theme::Tone;
use crate::widgets::canvas::{Canvas, Cell, Hit, width};
use ratatui::layout::Rect;

/// Largest width.
const WIDE_MOST: u16 = 100;
/// Least height of the area.
const HEIGHT_LEAST: u16 = 4;
/// Width of the key.
const KEY_WIDE: u16 = 8;

/// Draws the list at the lower left of an area.
pub(crate) fn draw(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let Mode::Typing { what, text } = &model.mode else { return };
    let candidates = model.candidates(*what, text);
    if candidates.is_empty() || area.height < HEIGHT_LEAST {
        return;
    }
    let marked = model.marked_choice(text).filter(|at| *at < candidates.len());
    let rows = u16::try_from(candidates.len()).unwrap_or(u16::MAX).min(area.height - 2);
    let height = rows + 2;
    let place = Rect { x: area.x, y: area.bottom() - height, width: area.width.min(WIDE_MOST), height };
    for y in place.top()..place.bottom() {
        canvas.blank(place, y);
    }
    // The marked one is always visible.
    let rows = usize::from(rows);
    let first = marked.map_or(0, |at| (at + 1).saturating_sub(rows));
    let shown = first..(first + rows).min(candidates.len());
    let title = [Cell::new(format!("{} to choose from", candidates.len()), Tone::Title)];
    let hint = [Cell::new("Up and Down select, Tab completes, Enter runs it", Tone::Dim)];
    let inside = canvas.frame(place, &title, &hint);
    let names = candidates.iter().map(|choice| width(&choice.name)).max().unwrap_or(0);
    let keys = if candidates.iter().any(|choice| !choice.key.is_empty()) { KEY_WIDE } else { 0 };
    for (y, at) in (inside.y..).zip(shown) {
        let choice = &candidates[at];
        canvas.put(inside, inside.x + 2, y, &choice.name, Tone::Text);
        canvas.put(inside, inside.x + 2 + names + 2, y, &choice.key, Tone::Key);
        canvas.put(inside, inside.x + 2 + names + 2 + keys, y, &choice.help, Tone::Dim);
        canvas.hits.push((Rect { y, height: 1, ..inside }, Hit::Choice(at)));
        if marked == Some(at) {
            canvas.shade(inside, y, Tone::Selected);
            let here = canvas.glyphs.here;
            canvas.put(inside, inside.x, y, here, Tone::Selected);
        }
    }
}
