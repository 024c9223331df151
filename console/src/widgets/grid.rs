//! Lists with columns: which columns fit, their widths, and the shown page.

use crate::state::filter::Filter;
use crate::state::table::{List, page};
use crate::theme::Tone;
use crate::widgets::canvas::{Canvas, Cell, Hit, width};
use ratatui::layout::Rect;
use std::ops::Range;

/// A column of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) head: &'static str,
    /// Its least width, so that it is stable while values change.
    pub(crate) least: u16,
    /// Whether it is right-aligned, for numbers.
    pub(crate) right: bool,
    /// Columns with higher numbers are hidden first.
    pub(crate) fold: u8,
    /// Whether sorting begins with the largest, as for most numbers.
    pub(crate) falls: bool,
    /// Whether it has only its least width where others need the room, and all that is left otherwise.
    pub(crate) fills: bool,
    /// Its explanation in the help, with the unit.
    pub(crate) means: &'static str,
}

impl Column {
    /// A column of text.
    pub(crate) const fn text(head: &'static str, least: u16, fold: u8) -> Self {
        Self { head, least, right: false, fold, falls: false, fills: false, means: "" }
    }

    /// A column of right-aligned numbers.
    pub(crate) const fn number(head: &'static str, least: u16, fold: u8) -> Self {
        Self { right: true, falls: true, ..Self::text(head, least, fold) }
    }

    /// Its explanation.
    pub(crate) const fn means(self, means: &'static str) -> Self {
        Self { means, ..self }
    }

    /// A column of long texts, which are cut before they hide others.
    pub(crate) const fn filling(self) -> Self {
        Self { fills: true, ..self }
    }

    /// A column of which small values are bad, so sorting begins with the smallest.
    pub(crate) const fn small_first(self) -> Self {
        Self { falls: false, ..self }
    }
}

/// Between two columns.
const GAP: u16 = 2;
/// Before the first column: the selected row's mark.
const MARK: u16 = 2;

/// A list as it is drawn.
pub(crate) struct Grid<'a> {
    pub(crate) columns: &'a [Column],
    /// The shown ones in order.
    pub(crate) order: Vec<usize>,
    /// The sort column, and whether it is descending.
    pub(crate) sort: Option<(usize, bool)>,
    /// How many rows there are.
    pub(crate) rows: usize,
    /// The selected row's place.
    pub(crate) place: usize,
    /// Whether anything was selected; only then the mark is shown.
    pub(crate) marked: bool,
    /// Whether the end is shown without a selection.
    pub(crate) tail: bool,
}

/// The rows that fit into a pane of this size.
pub(crate) fn page_rows(area: Rect) -> usize {
    usize::from(if area.height < 4 { area.height.saturating_sub(1).max(1) } else { area.height - 3 })
}

impl<'a> Grid<'a> {
    /// A list in its user's state, of these columns and rows.
    pub(crate) fn of<Id: Clone + PartialEq>(columns: &'a [Column], list: &List<Id>, ids: &[Id]) -> Self {
        Self {
            columns,
            order: list.shown(columns.len()),
            sort: list.sort.and_then(|at| Some((at, columns.get(at)?.falls ^ list.reverse))),
            rows: ids.len(),
            place: list.place(ids),
            marked: list.selected.as_ref().is_some_and(|id| ids.contains(id)),
            tail: false,
        }
    }

    /// Draws the frame of its pane if there is room: the title; the filter, notes, and the range of
    /// shown rows. Returns the inside.
    pub(crate) fn frame(
        &self,
        canvas: &mut Canvas<'_>,
        area: Rect,
        title: &[Cell],
        filter: &Filter,
        notes: impl IntoIterator<Item = String>,
    ) -> Rect {
        if area.height < 4 {
            return area;
        }
        let filter = (!filter.is_empty()).then(|| format!("filter {}", filter.text()));
        let shown = self.shown(page_rows(area));
        let cut = shown.len() < self.rows;
        let range = cut.then(|| format!("{}-{} of {}", shown.start + 1, shown.end, self.rows));
        let right: Vec<String> = filter.into_iter().chain(notes).chain(range).collect();
        canvas.frame(area, title, &[Cell::new(right.join("  "), Tone::Dim)])
    }

    /// Draws the page that shows the selected row: a line of heads, then rows.
    pub(crate) fn draw(&self, canvas: &mut Canvas<'_>, area: Rect, row: impl Fn(usize) -> Vec<Cell>) {
        if area.height == 0 {
            return;
        }
        // Without room for both, a row is more useful than the heads.
        let heads = u16::from(area.height > 1);
        let shown = self.shown(usize::from(area.height - heads));
        let first = shown.start;
        let cells: Vec<Vec<Cell>> = shown.map(row).collect();
        let fits = self.fit(area.width, &cells);
        let mut x = area.x + MARK;
        for &(at, wide) in &fits {
            let column = &self.columns[at];
            let sorted = self.sort.filter(|(sorted, _)| *sorted == at);
            if heads == 1 {
                let from = if column.right { x + wide.saturating_sub(width(column.head)) } else { x };
                if let Some((_, falls)) = sorted {
                    // In the gap before the column, where it needs no room.
                    canvas.put(area, from - 1, area.y, if falls { "v" } else { "^" }, Tone::Title);
                }
                let tone = if sorted.is_some() { Tone::Title } else { Tone::Dim };
                canvas.put(area, from, area.y, column.head, tone);
                let head = Rect { x: x - 1, y: area.y, width: wide + 1, height: 1 };
                canvas.hits.push((head, Hit::Head(at)));
            }
            for (y, cells) in (area.y + heads..).zip(&cells) {
                let Some(cell) = cells.get(at) else { continue };
                let from = if column.right { x + wide.saturating_sub(cell.width()) } else { x };
                let cut = Rect { width: (x + wide).min(area.right()).saturating_sub(area.x), ..area };
                canvas.put(cut, from, y, &cell.text, cell.tone);
            }
            x += wide + GAP;
        }
        for (y, at) in (area.y + heads..area.bottom()).zip(first..first + cells.len()) {
            canvas.hits.push((Rect { y, height: 1, ..area }, Hit::Row(at)));
        }
        if self.marked && (first..first + cells.len()).contains(&self.place) {
            let y = area.y + heads + u16::try_from(self.place - first).unwrap_or(0);
            canvas.shade(area, y, Tone::Selected);
            let here = canvas.glyphs.here;
            canvas.put(area, area.x, y, here, Tone::Selected);
        }
    }

    /// The rows of a page of this height.
    pub(crate) fn shown(&self, height: usize) -> Range<usize> {
        if self.tail && !self.marked {
            return self.rows.saturating_sub(height)..self.rows;
        }
        page(self.place, self.rows, height)
    }

    /// The columns that fit, with their widths.
    fn fit(&self, room: u16, rows: &[Vec<Cell>]) -> Vec<(usize, u16)> {
        let wide = |at: usize| {
            let column = &self.columns[at];
            let cells = rows.iter().filter_map(|row| Some(row.get(at)?.width())).max().unwrap_or(0);
            let least = width(column.head).max(column.least);
            if column.fills { least.min(room) } else { least.max(cells).min(room) }
        };
        let known = self.order.iter().copied().filter(|at| *at < self.columns.len());
        let mut fits: Vec<(usize, u16)> = known.map(|at| (at, wide(at))).collect();
        let total = |fits: &[(usize, u16)]| {
            fits.iter().fold(MARK, |sum, (_, wide)| sum.saturating_add(wide.saturating_add(GAP)))
        };
        while fits.len() > 1 && total(&fits) > room + GAP {
            let last = (0..fits.len()).rev().max_by_key(|at| self.columns[fits[*at].0].fold);
            let Some(last) = last else { break };
            fits.remove(last);
        }
        let spare = (room + GAP).saturating_sub(total(&fits));
        if let Some((_, wide)) = fits.iter_mut().find(|(at, _)| self.columns[*at].fills) {
            *wide = wide.saturating_add(spare);
        }
        fits
    }
}
