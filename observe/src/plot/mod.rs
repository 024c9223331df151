//! Charts as SVG text, and reports around them in HTML or Markdown. Callers provide points, bars and
//! cells; nothing here depends on what they mean.

mod bars;
mod chart;
mod document;
mod scale;
mod ticks;

pub use bars::{Bars, Values};
pub use chart::{Axis, Chart, Series, Style};
pub use document::{Cell, Document, all_written, write_file};
pub use scale::Scale;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::fmt;

/// Width of every chart in pixels; also sets its aspect ratio when a page scales it.
const WIDTH: u32 = 860;
/// Height of a legend row and its text, in pixels.
const LEGEND_ROW: u32 = 20;
const LEGEND_TEXT: u32 = 13;
/// Width of a legend entry beside its text: the sample and the gaps.
const LEGEND_EXTRA: u32 = 48;
/// Axis titles and tick labels in pixels.
const LABEL_TEXT: u32 = 12;
/// Series that one chart distinguishes by colour.
pub const SERIES_MAX: usize = 8;

/// Colours distinguishable with any colour vision, some darkened for contrast on white (Okabe and
/// Ito, Color Universal Design, 2008).
const COLORS: [RGBColor; SERIES_MAX] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 138, 101),
    RGBColor(178, 93, 146),
    RGBColor(181, 137, 0),
    RGBColor(46, 151, 209),
    RGBColor(60, 60, 60),
    RGBColor(140, 140, 140),
];
const INK: RGBColor = RGBColor(51, 51, 51);
const GRID: RGBColor = RGBColor(226, 226, 226);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Why there is no chart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlotError {
    /// There is nothing to draw: no series has a finite point (above zero, on a logarithmic axis).
    #[error("there is no point to draw")]
    Empty,
    /// More series than [`SERIES_MAX`]: draw two charts.
    #[error("{0} series are too many for one chart (at most {SERIES_MAX}): draw two")]
    Series(usize),
    /// Error of the drawing library.
    #[error("cannot draw: {0}")]
    Drawing(String),
}

fn drawing(error: impl fmt::Display) -> PlotError {
    PlotError::Drawing(error.to_string())
}

fn text(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

/// The sample of a legend entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sample {
    Line,
    Dashes,
    Dots,
    Block,
    Mark,
}

/// Draws a legend at the top of an area, and returns the area below it.
fn legend<'a>(root: &Area<'a>, entries: &[(&str, Sample)]) -> Result<Area<'a>, PlotError> {
    let width = root.dim_in_pixel().0;
    let style = text(LEGEND_TEXT).pos(Pos::new(HPos::Left, VPos::Center));
    let (mut x, mut row) = (8, 0);
    let mut places = Vec::new();
    for (name, _) in entries {
        let takes = root.estimate_text_size(name, &style).map_err(drawing)?.0 + LEGEND_EXTRA;
        if x > 8 && x + takes > width {
            (x, row) = (8, row + 1);
        }
        places.push((x as i32, (row * LEGEND_ROW + LEGEND_ROW / 2 + 4) as i32));
        x += takes;
    }
    for ((n, (name, sample)), (x, y)) in entries.iter().enumerate().zip(places) {
        let color = COLORS[n % SERIES_MAX];
        let line = |from: i32, to: i32| {
            root.draw(&PathElement::new(vec![(x + from, y), (x + to, y)], color.stroke_width(2)))
        };
        match sample {
            Sample::Line => line(0, 24).map_err(drawing)?,
            Sample::Dashes => {
                for from in [0, 9, 18] {
                    line(from, from + 6).map_err(drawing)?;
                }
            }
            Sample::Dots => root.draw(&Circle::new((x + 12, y), 4, color.filled())).map_err(drawing)?,
            Sample::Block => root
                .draw(&Rectangle::new([(x + 4, y - 5), (x + 22, y + 5)], color.filled()))
                .map_err(drawing)?,
            Sample::Mark => root
                .draw(&PathElement::new(vec![(x + 12, y - 7), (x + 12, y + 7)], INK.stroke_width(3)))
                .map_err(drawing)?,
        }
        root.draw(&Text::new((*name).to_owned(), (x + 30, y), style.clone())).map_err(drawing)?;
    }
    Ok(root.split_vertically((row + 1) * LEGEND_ROW + 8).1)
}
