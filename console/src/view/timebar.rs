//! The time bar of a console that shows a past moment: all that is kept from left to right, with incidents,
//! marks, and the shown moment.

use crate::state::Model;
use crate::theme::Tone;
use crate::widgets::canvas::{Canvas, clock, width};
use obol_fabric::Instant;
use ratatui::layout::Rect;

/// Least height of a screen with a time bar.
pub(super) const FROM: u16 = 16;

/// Explanations for the help.
pub(super) const SIGNS: (&str, &str) = (
    "time bar",
    "at a past moment: what is kept, from left to right; ! an incident begins, | a mark, @ the shown moment",
);

/// Whether there is one.
pub(super) fn is_shown(model: &Model) -> bool {
    model.frozen.is_some() && model.size.1 >= FROM
}

pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>, area: Rect) {
    let (Some((first, last)), Some(shown)) = (model.reach(), model.data().sample.as_deref()) else { return };
    let [from, to] = [first, last].map(|at| clock(shown.unix_at(at)));
    let left = canvas.put(area, area.x + 1, area.y, &from, Tone::Dim) + 1;
    let right = area.right().saturating_sub(width(&to) + 2);
    if area.height == 0 || right <= left + 1 {
        return;
    }
    canvas.put(area, right + 1, area.y, &to, Tone::Dim);
    let wide = right - left;
    canvas.put(area, left, area.y, &canvas.glyphs.across.repeat(usize::from(wide)), Tone::Dim);
    let span = u128::from(last.since(first).0.max(1));
    let column = |at: Instant| {
        let place = u128::from(at.since(first).0) * u128::from(wide - 1) / span;
        left + u16::try_from(place).unwrap_or(wide - 1).min(wide - 1)
    };
    let (incidents, marks) = model.past_moments();
    let signs = marks.into_iter().map(|at| (at, "|", Tone::Title));
    let signs = signs.chain(incidents.into_iter().map(|at| (at, "!", Tone::Warn)));
    for (at, sign, tone) in signs.filter(|(at, ..)| *at >= first) {
        canvas.put(area, column(at), area.y, sign, tone);
    }
    canvas.put(area, column(shown.at), area.y, "@", Tone::Armed);
}
