//! Draws text and lines into cells, clipped to any size; truncated text has a sign.

use crate::state::ScreenId;
use crate::theme::{Glyphs, Theme, Tone};
use obol_observe::calendar;
use obol_term::plain;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::borrow::Cow;

/// The screen's cells and the style.
pub(crate) struct Canvas<'a> {
    pub(crate) buffer: &'a mut Buffer,
    pub(crate) theme: Theme,
    pub(crate) glyphs: Glyphs,
    /// Click targets; later ones lie above.
    pub(crate) hits: Vec<(Rect, Hit)>,
}

/// A click target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hit {
    Screen(ScreenId),
    /// A row of the list, by its place.
    Row(usize),
    /// The head of a column.
    Head(usize),
    /// A choice while a name is typed.
    Choice(usize),
}

/// A piece of text with its tone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) text: Cow<'static, str>,
    pub(crate) tone: Tone,
}

/// Shown for a missing value, which is not zero.
pub(crate) const NONE: &str = "--";

impl Cell {
    pub(crate) fn new(text: impl Into<Cow<'static, str>>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }

    pub(crate) fn text(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(text, Tone::Text)
    }

    /// A value, or the sign for none.
    pub(crate) fn maybe(text: Option<impl Into<Cow<'static, str>>>) -> Self {
        text.map_or(Self::none(), Self::text)
    }

    pub(crate) const fn none() -> Self {
        Self { text: Cow::Borrowed(NONE), tone: Tone::Dim }
    }

    /// Its width in columns.
    pub(crate) fn width(&self) -> u16 {
        width(&self.text)
    }
}

/// The width of a text. The console prints one column per character.
pub(crate) fn width(text: &str) -> u16 {
    u16::try_from(text.chars().count()).unwrap_or(u16::MAX)
}

/// Text truncated to the room, with a sign.
pub(crate) fn short<'t>(text: &'t str, room: u16, cut: &str) -> Cow<'t, str> {
    let room = usize::from(room);
    // Ignores trailing blanks.
    if text.trim_end().chars().count() <= room {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().take(room.saturating_sub(1)).chain(cut.chars()).collect())
}

/// Text wrapped to lines of at most `wide` columns.
pub(crate) fn wrapped(text: &str, wide: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= wide => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

impl Canvas<'_> {
    /// Writes text at a place within an area; returns the column after it.
    pub(crate) fn put(&mut self, area: Rect, x: u16, y: u16, text: &str, tone: Tone) -> u16 {
        let area = area.intersection(self.buffer.area);
        if y < area.top() || y >= area.bottom() || x < area.left() || x >= area.right() {
            return x.saturating_add(width(text));
        }
        let style = self.theme.style(tone);
        // All drawing passes here.
        let text = plain::line(text);
        let text = short(&text, area.right() - x, self.glyphs.cut);
        let (end, _) = self.buffer.set_stringn(x, y, text, usize::from(area.right() - x), style);
        end
    }

    /// Writes pieces from the left; returns the column after them.
    pub(crate) fn line(&mut self, area: Rect, x: u16, y: u16, cells: &[Cell]) -> u16 {
        cells.iter().fold(x, |x, cell| self.put(area, x, y, &cell.text, cell.tone))
    }

    /// Changes the style of a row, keeping its text.
    pub(crate) fn shade(&mut self, area: Rect, y: u16, tone: Tone) {
        let row = Rect { y, height: 1, ..area }.intersection(self.buffer.area);
        self.buffer.set_style(row, self.theme.style(tone));
    }

    /// Clears the text and style of a row.
    pub(crate) fn blank(&mut self, area: Rect, y: u16) {
        let row = Rect { y, height: 1, ..area }.intersection(self.buffer.area);
        for x in row.left()..row.right() {
            self.buffer[(x, row.y)].reset();
        }
    }

    /// Writes a head and its text in lines of their own columns; returns the row below them.
    pub(crate) fn entry(
        &mut self,
        area: Rect,
        y: u16,
        heads: u16,
        head: &str,
        text: &str,
        tone: Tone,
    ) -> u16 {
        let room = usize::from(area.width.saturating_sub(heads + 2)).max(1);
        self.put(area, area.x + 1, y, head, Tone::Dim);
        let mut below = y;
        for line in wrapped(text, room) {
            self.put(area, area.x + 1 + heads, below, &line, tone);
            below = below.saturating_add(1);
        }
        below
    }

    /// Draws a frame with a title on its upper line and one at that line's end; returns the inside.
    pub(crate) fn frame(&mut self, area: Rect, title: &[Cell], right: &[Cell]) -> Rect {
        let area = area.intersection(self.buffer.area);
        if area.width < 2 || area.height < 2 {
            return Rect { height: 0, ..area };
        }
        let Glyphs { across, down, corners, .. } = self.glyphs;
        let (left, top) = (area.left(), area.top());
        let (end, bottom) = (area.right() - 1, area.bottom() - 1);
        let line = across.repeat(usize::from(area.width - 2));
        for (y, [first, last]) in [(top, [corners[0], corners[1]]), (bottom, [corners[2], corners[3]])] {
            self.put(area, left, y, first, Tone::Dim);
            self.put(area, left + 1, y, &line, Tone::Dim);
            self.put(area, end, y, last, Tone::Dim);
        }
        for y in top + 1..bottom {
            self.put(area, left, y, down, Tone::Dim);
            self.put(area, end, y, down, Tone::Dim);
        }
        let titled = Rect { x: left + 1, width: area.width - 2, ..area };
        let mut from = titled.left();
        if !title.is_empty() {
            from = self.line(titled, from + 1, top, &[Cell::text(" ")]);
            from = self.line(titled, from, top, title);
            from = self.put(titled, from, top, " ", Tone::Text);
        }
        let wide = right.iter().map(Cell::width).fold(3, u16::saturating_add);
        if wide > 3 && from.saturating_add(wide) <= titled.right() {
            let x = self.put(titled, titled.right() - wide, top, " ", Tone::Text);
            let x = self.line(titled, x, top, right);
            self.put(titled, x, top, " ", Tone::Text);
        }
        Rect { x: left + 1, y: top + 1, width: area.width - 2, height: area.height - 2 }
    }
}

/// A rate per second with at most three digits: `0`, `4.2`, `98.1k`.
pub(crate) fn rate(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        v if v < 9.95 => format!("{v:.1}"),
        v if v < 999.5 => format!("{v:.0}"),
        v if v < 99_950.0 => format!("{:.1}k", v / 1e3),
        v if v < 999_500.0 => format!("{:.0}k", v / 1e3),
        v => format!("{:.1}M", v / 1e6),
    }
}

/// A count, shortened from ten thousand on: `9999`, `31.4k`.
pub(crate) fn count(value: u64) -> String {
    if value < 10_000 { value.to_string() } else { rate(value as f64) }
}

/// The time of day in UTC of a moment in nanoseconds since 1970, to the tenth of a second.
pub(crate) fn clock(unix: u64) -> String {
    calendar::utc(unix, "%T.%1fZ")
}

/// The same to the microsecond.
pub(crate) fn time_of_day(unix: u64) -> String {
    calendar::utc(unix, "%T.%6f")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_few_columns() {
        let shown = [0.0, 4.2, 44.0, 999.0, 1000.0, 98_100.0, 999_400.0, 1_200_000.0].map(rate);
        assert_eq!(shown, ["0", "4.2", "44", "999", "1.0k", "98.1k", "999k", "1.2M"]);
        assert_eq!([9_999, 31_400].map(count), ["9999", "31.4k"]);
        assert_eq!(clock(1_700_000_000_450_000_000), "22:13:20.4Z");
    }

    #[test]
    fn truncated_text_has_a_sign() {
        assert_eq!(short("four", 4, "~"), "four");
        assert_eq!(short("four  ", 4, "~").trim_end(), "four");
        assert_eq!(short("fours", 4, "~"), "fou~");
        assert_eq!(short("fünf", 3, "…"), "fü…");
        assert_eq!(short("four", 1, "~"), "~");
    }

    #[test]
    fn nothing_is_drawn_outside() {
        for width in 0..6 {
            for height in 0..6 {
                let area = Rect { x: 0, y: 0, width, height };
                let mut buffer = Buffer::empty(area);
                let mut canvas = Canvas {
                    buffer: &mut buffer,
                    theme: Theme::Dark,
                    glyphs: crate::theme::ASCII,
                    hits: Vec::new(),
                };
                for x in 0..8 {
                    for y in 0..8 {
                        canvas.put(area, x, y, "four", Tone::Text);
                        let part = Rect { x, y, width: 5, height: 5 };
                        canvas.frame(part, &[Cell::text("title")], &[Cell::text("right")]);
                        canvas.shade(part, y, Tone::Selected);
                    }
                }
            }
        }
    }
}
