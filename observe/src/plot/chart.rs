//! Charts of points over two axes, linear or logarithmic.

use super::{
    COLORS, GRID, INK, LABEL_TEXT, PlotError, SERIES_MAX, Sample, Scale, WIDTH, drawing, legend, text, ticks,
};
use plotters::prelude::*;
use plotters::series::DashedLineSeries;

const HEIGHT: u32 = 420;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// What it shows, with its unit.
    pub title: String,
    pub scale: Scale,
}

impl Axis {
    pub fn linear(title: &str) -> Self {
        Self { title: title.to_owned(), scale: Scale::Linear }
    }

    /// A logarithmic axis.
    pub fn log(title: &str) -> Self {
        Self { title: title.to_owned(), scale: Scale::Log }
    }
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A line with a dot at each point.
    Line,
    /// A dashed line.
    Dashes,
    /// Dots alone.
    Dots,
}

/// Points that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Their name, for the legend.
    pub name: String,
    /// `(x, y)`, in the order in which a line connects them.
    pub points: Vec<(f64, f64)>,
    /// How they are drawn.
    pub style: Style,
}

impl Series {
    /// A line with a dot at each point.
    pub fn line(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.to_owned(), points, style: Style::Line }
    }

    /// A dashed line, for a bound or an expectation.
    pub fn dashes(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { style: Style::Dashes, ..Self::line(name, points) }
    }

    /// Dots alone.
    pub fn dots(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { style: Style::Dots, ..Self::line(name, points) }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// From left to right.
    pub x: Axis,
    /// From bottom to top.
    pub y: Axis,
    /// In the order of the legend.
    pub series: Vec<Series>,
}

impl Chart {
    /// A chart without points.
    pub const fn new(x: Axis, y: Axis) -> Self {
        Self { x, y, series: Vec::new() }
    }

    /// Adds a series.
    #[must_use]
    pub fn with(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// Renders an SVG document.
    pub fn svg(&self) -> Result<String, PlotError> {
        if self.series.len() > SERIES_MAX {
            return Err(PlotError::Series(self.series.len()));
        }
        let points = || self.series.iter().flat_map(|series| &series.points);
        let (Some(x), Some(y)) = (
            ticks::range(self.x.scale, points().map(|p| p.0)),
            ticks::range(self.y.scale, points().map(|p| p.1)),
        ) else {
            return Err(PlotError::Empty);
        };
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
            root.fill(&WHITE).map_err(drawing)?;
            let entries: Vec<(&str, Sample)> = self
                .series
                .iter()
                .map(|series| {
                    let sample = match series.style {
                        Style::Line => Sample::Line,
                        Style::Dashes => Sample::Dashes,
                        Style::Dots => Sample::Dots,
                    };
                    (series.name.as_str(), sample)
                })
                .collect();
            let below = legend(&root, &entries)?;
            let mut chart = ChartBuilder::on(&below)
                .margin(8)
                .margin_right(24)
                .x_label_area_size(44)
                .y_label_area_size(64)
                .build_cartesian_2d(x, y)
                .map_err(drawing)?;
            chart
                .configure_mesh()
                .bold_line_style(GRID)
                .light_line_style(TRANSPARENT)
                .axis_style(INK)
                .label_style(text(LABEL_TEXT))
                .axis_desc_style(text(LABEL_TEXT + 1))
                .x_desc(self.x.title.clone())
                .y_desc(self.y.title.clone())
                .x_label_formatter(&|v| ticks::label(*v))
                .y_label_formatter(&|v| ticks::label(*v))
                .draw()
                .map_err(drawing)?;
            for (series, color) in self.series.iter().zip(COLORS) {
                let drawn = |p: &&(f64, f64)| {
                    let fits =
                        |v: f64, axis: &Axis| v.is_finite() && (axis.scale == Scale::Linear || v > 0.0);
                    fits(p.0, &self.x) && fits(p.1, &self.y)
                };
                let points: Vec<(f64, f64)> = series.points.iter().filter(drawn).copied().collect();
                let stroke = color.stroke_width(2);
                match series.style {
                    Style::Line => {
                        chart.draw_series(LineSeries::new(points.clone(), stroke)).map_err(drawing)?;
                    }
                    Style::Dashes => {
                        chart
                            .draw_series(DashedLineSeries::new(points.clone(), 6, 4, stroke))
                            .map_err(drawing)?;
                    }
                    Style::Dots => {}
                }
                if series.style != Style::Dashes {
                    let dots = points.iter().map(|p| Circle::new(*p, 3, color.filled()));
                    chart.draw_series(dots).map_err(drawing)?;
                }
            }
            root.present().map_err(drawing)?;
        }
        Ok(svg)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_of_scales_is_drawn() {
        for (x, y) in [
            (Scale::Linear, Scale::Linear),
            (Scale::Linear, Scale::Log),
            (Scale::Log, Scale::Linear),
            (Scale::Log, Scale::Log),
        ] {
            let axis = |scale| Axis { title: "time <us> & more".to_owned(), scale };
            let chart = Chart::new(axis(x), axis(y))
                .with(Series::line("a < b", vec![(8.0, 1.0), (16.0, 30.0), (0.0, f64::NAN)]))
                .with(Series::dashes("bound", vec![(8.0, 20.0), (4096.0, 20.0)]))
                .with(Series::dots("published", vec![(64.0, 50.0)]));
            let svg = chart.svg().expect("it has points");
            assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
            assert!(svg.contains("a &lt; b") && svg.contains("&amp; more"), "text is escaped");
            assert!(!svg.contains("NaN"));
        }
    }

    #[test]
    fn invalid_charts_are_rejected() {
        let chart = Chart::new(Axis::log("x"), Axis::linear("y"));
        assert_eq!(chart.svg(), Err(PlotError::Empty));
        assert_eq!(chart.clone().with(Series::line("a", vec![(0.0, 1.0)])).svg(), Err(PlotError::Empty));
        let many = (0..9).fold(chart, |chart, _| chart.with(Series::line("a", vec![(1.0, 1.0)])));
        assert_eq!(many.svg(), Err(PlotError::Series(9)));
    }
}
