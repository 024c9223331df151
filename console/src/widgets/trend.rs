//! Charts of the last minutes up to an hour, with incidents and marks as vertical lines.

use crate::state::Model;
use crate::theme::{self, Tone};
use crate::widgets::canvas::{Canvas, Cell, rate};
use obol_fabric::{Instant, Nanos};
use obol_observe::calendar::age;
use obol_observe::sampling::trend::{self, CELL, CELLS};
use ratatui::layout::Rect;
use ratatui::symbols::Marker;
use ratatui::text::Span;
use ratatui::widgets::{Axis, Chart, Dataset, GraphType, Widget as _};
use std::collections::VecDeque;

/// Least height of a chart: a frame, two lines of axis, and four of what it shows.
pub(crate) const LEAST: u16 = 8;
/// Largest height, so that a large terminal does not stretch it.
pub(crate) const MOST: u16 = 16;
/// Least width of a chart beside others.
const WIDE_LEAST: u16 = 50;
/// Cells per column of characters, so that a column has enough of them.
const SHORTEST: u64 = 24;

/// Explanations for the help.
pub(crate) const SIGNS: (&str, &str) = (
    "charts",
    "5 s per dot, up to an hour; a gap is a time without samples; vertical lines: incidents (in the colour of warnings) and marks",
);

/// A line of a chart.
pub(crate) struct Series {
    pub(crate) name: &'static str,
    pub(crate) tone: Tone,
    pub(crate) of: fn(&trend::Cell) -> Option<f64>,
}

/// A chart, its title, and how its values are written.
pub(crate) struct Trend {
    pub(crate) title: &'static str,
    pub(crate) series: &'static [Series],
    pub(crate) shown: fn(f64) -> String,
    /// Whether a value is the sum over the minute up to its cell.
    pub(crate) sums_a_minute: bool,
}

/// The values of a line, by their cells.
fn values(of: &Trend, series: &Series, cells: &VecDeque<trend::Cell>) -> Vec<(u64, f64)> {
    let own = |cell: &trend::Cell| Some((cell.number, (series.of)(cell)?));
    let all: Vec<(u64, f64)> = cells.iter().filter_map(own).collect();
    if !of.sums_a_minute {
        return all;
    }
    let sum = |(at, (number, _)): (usize, &(u64, f64))| {
        let lately =
            all[..=at].iter().rev().take_while(|(then, _)| number.saturating_sub(*then) < CELLS as u64);
        (*number, lately.map(|(_, value)| value).sum::<f64>())
    };
    all.iter().enumerate().map(sum).collect()
}

/// Parts of points, without gaps, in a tone.
type Line = (Vec<Vec<(f64, f64)>>, Tone);

/// The parts of a line without gaps: a cell that follows no other begins one.
fn parts(cells: &[(u64, f64)]) -> Vec<Vec<(f64, f64)>> {
    let mut parts: Vec<Vec<(f64, f64)>> = Vec::new();
    let mut before = None;
    for &(number, value) in cells {
        if before != Some(number.wrapping_sub(1)) {
            parts.push(Vec::new());
        }
        before = Some(number);
        if let Some(part) = parts.last_mut() {
            part.push((number as f64, value));
        }
    }
    parts
}

/// Draws a chart of what is shown now.
pub(crate) fn draw(model: &Model, canvas: &mut Canvas<'_>, area: Rect, of: &Trend) {
    let data = model.data();
    let cells = &data.trend.cells;
    let mut title = vec![Cell::new(of.title, Tone::Title)];
    let (Some(first), Some(last)) = (cells.front(), cells.back()) else {
        let inside = canvas.frame(area, &title, &[]);
        canvas.put(inside, inside.x + 2, inside.y, "nothing was measured yet", Tone::Dim);
        return;
    };
    for series in of.series {
        let now = values(of, series, cells).last().map(|(_, now)| *now);
        // What is bad is not while it is zero.
        let is_well = now == Some(0.0) && series.tone != Tone::Good;
        let shown = now.map_or("--".to_owned(), of.shown);
        let tone = if is_well { Tone::Dim } else { series.tone };
        title.push(Cell::new(format!(" {} {shown}", series.name), tone));
    }
    let begin = first.number.max(last.number.saturating_sub(trend::CELLS_MAX as u64));
    let begin = begin.min(last.number.saturating_sub(SHORTEST));
    let span = Nanos((last.number - begin + 1).saturating_mul(CELL.0));
    let inside = canvas.frame(area, &title, &[]);
    if inside.height < 3 || inside.width < 20 {
        return;
    }
    let lines: Vec<Line> =
        of.series.iter().map(|series| (parts(&values(of, series, cells)), series.tone)).collect();
    let points = lines.iter().flat_map(|(parts, _)| parts.iter().flatten());
    let most = points.map(|(_, value)| *value).fold(0.0, f64::max);
    let top = if most > 0.0 { most * 1.1 } else { 1.0 };
    let moment = |at: Instant, tone| {
        let x = at.0 as f64 / CELL.0 as f64;
        (x >= begin as f64).then(|| (vec![vec![(x, 0.0), (x, top)]], tone))
    };
    let shown = data.incidents().into_iter().chain(data.ended_incidents());
    let incidents = shown.filter_map(|one| moment(one.since, Tone::Warn));
    let marks = data.marks.iter().filter_map(|mark| moment(mark.at, Tone::Title));
    let all: Vec<Line> = marks.chain(incidents).chain(lines).collect();
    let theme = canvas.theme;
    let marker = if canvas.glyphs == theme::ASCII { Marker::Custom('*') } else { Marker::Braille };
    let sets = all.iter().flat_map(|(parts, tone)| {
        parts.iter().map(|part| {
            let kind = if part.len() > 1 { GraphType::Line } else { GraphType::Scatter };
            Dataset::default().data(part).marker(marker).graph_type(kind).style(theme.style(*tone))
        })
    });
    let dim = theme.style(Tone::Dim);
    let label = |text: String| Span::styled(text, dim);
    let x = Axis::default()
        .bounds([begin as f64, last.number as f64 + 1.0])
        .labels([label(format!("{} ago", age(span))), label("now".to_owned())])
        .style(dim);
    let y = Axis::default()
        .bounds([0.0, top])
        .labels([label((of.shown)(0.0)), label((of.shown)(top))])
        .style(dim);
    Chart::new(sets.collect()).x_axis(x).y_axis(y).render(inside, canvas.buffer);
    if canvas.glyphs == theme::ASCII {
        for place in inside.intersection(canvas.buffer.area).positions() {
            let cell = &mut canvas.buffer[place];
            let plain = match cell.symbol() {
                text if text.is_ascii() => continue,
                "│" => "|",
                "─" => "-",
                _ => "+",
            };
            cell.set_symbol(plain);
        }
    }
}

/// Draws charts side by side, as many as have room.
pub(crate) fn row(model: &Model, canvas: &mut Canvas<'_>, area: Rect, all: &[&Trend]) {
    let n = all.len().min(usize::from(area.width / WIDE_LEAST)).max(1);
    let wide = area.width / u16::try_from(n).unwrap_or(1);
    for (of, at) in all.iter().take(n).zip(0u16..) {
        let left = area.x + wide * at;
        let width = if usize::from(at) + 1 == n { area.right().saturating_sub(left) } else { wide };
        draw(model, canvas, Rect { x: left, width, ..area }, of);
    }
}

fn per_second(value: f64) -> String {
    format!("{}/s", rate(value))
}

fn span(value: f64) -> String {
    Nanos(value as u64).to_string()
}

/// Renewals of leases that were in time.
pub(crate) static ON_TIME: Trend = Trend {
    title: "Renewals",
    series: &[Series { name: "on time", tone: Tone::Good, of: |cell| cell.per_second(cell.renewals[0]) }],
    shown: per_second,
    sums_a_minute: false,
};

/// Those that were not.
pub(crate) static LATE: Trend = Trend {
    title: "Renewals",
    series: &[
        Series { name: "late", tone: Tone::Stale, of: |cell| cell.per_second(cell.renewals[1]) },
        Series { name: "failed", tone: Tone::Bad, of: |cell| cell.per_second(cell.renewals[2]) },
    ],
    shown: per_second,
    sums_a_minute: false,
};

pub(crate) static MARGIN: Trend = Trend {
    title: "Least lease margin",
    series: &[Series { name: "", tone: Tone::Good, of: |cell| cell.least.map(|least| least.0 as f64) }],
    shown: span,
    sums_a_minute: false,
};

pub(crate) static FAILOVERS: Trend = Trend {
    title: "Failovers a minute",
    series: &[Series { name: "", tone: Tone::Bad, of: |cell| Some(cell.failovers as f64) }],
    shown: rate,
    sums_a_minute: true,
};

pub(crate) static VIEWS: Trend = Trend {
    title: "Views a minute",
    series: &[Series { name: "", tone: Tone::Good, of: |cell| Some(cell.views as f64) }],
    shown: rate,
    sums_a_minute: true,
};

pub(crate) static READS: Trend = Trend {
    title: "READs of a sample",
    series: &[Series { name: "", tone: Tone::Good, of: |cell| Some(cell.reads as f64) }],
    shown: rate,
    sums_a_minute: false,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_a_minute_is_a_sum_over_twelve_cells() {
        let cell = |number: u64| trend::Cell {
            number,
            at: Instant((number + 1) * CELL.0),
            before: Instant(number * CELL.0),
            renewals: [0; 3],
            least: None,
            views: 0,
            failovers: u64::from(number.is_multiple_of(10)),
            reads: 0,
        };
        let cells: VecDeque<trend::Cell> = (100..140).map(cell).collect();
        let all = values(&FAILOVERS, &FAILOVERS.series[0], &cells);
        let of = |number: u64| all.iter().find(|(at, _)| *at == number).map(|(_, sum)| *sum);
        assert_eq!([100, 109, 110, 111, 112, 139].map(of), [1.0, 1.0, 2.0, 2.0, 1.0, 1.0].map(Some));
        assert_eq!(cells[0].per_second(5), Some(1.0), "over {CELL}");
    }

    #[test]
    fn a_gap_divides_a_line() {
        let cells = [(5, 1.0), (6, 2.0), (9, 3.0), (10, 4.0), (12, 5.0)];
        let lengths: Vec<usize> = parts(&cells).iter().map(Vec::len).collect();
        assert_eq!(lengths, [2, 2, 1]);
    }
}
