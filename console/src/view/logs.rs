//! The log lines of a process over the middle of the screen, the newest below.

use crate::state::{Logs, Model};
use crate::theme::Tone;
use crate::widgets::canvas::{Canvas, Cell};
use ratatui::layout::Rect;

pub(crate) fn draw(model: &Model, logs: &Logs, canvas: &mut Canvas<'_>, area: Rect) {
    for y in area.top()..area.bottom() {
        canvas.blank(area, y);
    }
    let state = if logs.back == 0 { "following".to_owned() } else { format!("{} newer below", logs.back) };
    let title = Cell::new(format!("Log lines of {} and about it", logs.who), Tone::Title);
    let hint = model.keymap.fill(&format!("{state}  {{up}} {{down}} {{last}}  {{back}} closes"));
    let inside = canvas.frame(area, &[title], &[Cell::new(hint, Tone::Dim)]);
    if logs.lines.is_empty() {
        canvas.put(inside, inside.x + 1, inside.y, "no line was read yet", Tone::Dim);
    }
    let end = logs.lines.len().saturating_sub(logs.back);
    let begin = end.saturating_sub(usize::from(inside.height));
    for (y, line) in (inside.y..inside.bottom()).zip(logs.lines.range(begin..end)) {
        let tone = match line {
            line if line.contains(" ERROR ") => Tone::Bad,
            line if line.contains(" WARN ") => Tone::Warn,
            _ => Tone::Text,
        };
        canvas.put(inside, inside.x + 1, y, line, tone);
    }
}
