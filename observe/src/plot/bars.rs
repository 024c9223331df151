//! Grouped horizontal bars: one group a row, with its full name at the left.

use super::{
    COLORS, GRID, INK, LABEL_TEXT, PlotError, SERIES_MAX, Sample, Scale, WIDTH, drawing, legend, text, ticks,
};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Height of a bar, and gap between two groups, in pixels.
const BAR: u32 = 13;
const GAP: u32 = 12;
/// Height of everything but the bars, in pixels.
const FRAME: u32 = 96;
/// Longer group names are cut off.
const NAMES_MAX: u32 = WIDTH / 3;

/// One value for each group.
#[derive(Clone, Debug, PartialEq)]
pub struct Values {
    /// Their name, for the legend.
    pub name: String,
    /// One for each group; `None` if it has none.
    pub values: Vec<Option<f64>>,
    /// Drawn as a stroke across the group's bars: a published or promised value.
    pub mark: bool,
}

/// Grouped bars.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// What the lengths show, with the unit.
    pub title: String,
    /// From top to bottom.
    pub groups: Vec<String>,
    /// From top to bottom within a group, and in the legend.
    pub series: Vec<Values>,
    /// Each group is one bar whose parts are the series: phases of a whole.
    pub stacked: bool,
}

/// Drawing area: lengths to the right, groups from the top.
type Plane<'a> = DrawingArea<SVGBackend<'a>, Cartesian2d<ticks::Span, ticks::Span>>;

/// A group's value, if it can be drawn.
fn shown(values: &Values, group: usize) -> Option<f64> {
    values.values.get(group).copied().flatten().filter(|v| v.is_finite() && *v >= 0.0)
}

impl Bars {
    /// Bars side by side.
    pub fn grouped(title: &str, groups: Vec<String>) -> Self {
        Self { title: title.to_owned(), groups, series: Vec::new(), stacked: false }
    }

    /// One bar for each group, in parts.
    pub fn stacked(title: &str, groups: Vec<String>) -> Self {
        Self { stacked: true, ..Self::grouped(title, groups) }
    }

    /// Adds a bar (or part) to each group.
    #[must_use]
    pub fn with(mut self, name: &str, values: Vec<Option<f64>>) -> Self {
        self.series.push(Values { name: name.to_owned(), values, mark: false });
        self
    }

    /// Adds a stroke across the bars of each group.
    #[must_use]
    pub fn with_mark(mut self, name: &str, values: Vec<Option<f64>>) -> Self {
        self.series.push(Values { name: name.to_owned(), values, mark: true });
        self
    }

    /// The length of each group's bars and marks.
    fn reaches(&self) -> Vec<f64> {
        let reach = |group: usize| {
            let of = |mark: bool| {
                self.series.iter().filter(move |s| s.mark == mark).filter_map(move |s| shown(s, group))
            };
            let bars = if self.stacked { of(false).sum::<f64>() } else { of(false).fold(0.0, f64::max) };
            of(true).fold(bars, f64::max)
        };
        (0..self.groups.len()).map(reach).collect()
    }

    /// Bars side by side in a group.
    fn thick(&self) -> u32 {
        let side_by_side = self.series.iter().filter(|s| !s.mark).count().max(1) as u32;
        if self.stacked { 1 } else { side_by_side }
    }

    /// Height of a group in pixels.
    fn group(&self) -> u32 {
        self.thick() * BAR + GAP
    }

    /// Size of a pixel on the axis of the groups.
    fn pixel(&self) -> f64 {
        1.0 / f64::from(self.group())
    }

    /// Where a group begins: the first is at the top, where the axis ends.
    fn top(&self, group: usize) -> f64 {
        (self.groups.len() - group) as f64 - f64::from(GAP) / 2.0 * self.pixel()
    }

    fn draw_bars(&self, plane: &Plane<'_>, group: usize, high: f64) -> Result<(), PlotError> {
        // A label moves behind a mark that it would overlap.
        let beyond = |value: f64| {
            let marks = self.series.iter().filter(|s| s.mark).filter_map(|s| shown(s, group));
            marks.filter(|m| (value..value + high * 0.07).contains(m)).fold(value, f64::max)
        };
        let (mut from, mut bar) = (0.0, 0);
        for (values, color) in self.series.iter().zip(COLORS).filter(|(values, _)| !values.mark) {
            if let Some(value) = shown(values, group) {
                let upper = self.top(group) - f64::from(bar * BAR) * self.pixel();
                let lower = upper - f64::from(BAR - 1) * self.pixel();
                let block = Rectangle::new([(from, lower), (from + value, upper)], color.filled());
                plane.draw(&block).map_err(drawing)?;
                if self.stacked {
                    from += value;
                } else {
                    let style = text(LABEL_TEXT - 2).pos(Pos::new(HPos::Left, VPos::Center));
                    let place = (beyond(value) + high * 0.004, (upper + lower) / 2.0);
                    plane.draw(&Text::new(ticks::label(value), place, style)).map_err(drawing)?;
                }
            }
            bar += u32::from(!self.stacked);
        }
        Ok(())
    }

    fn draw_marks(&self, plane: &Plane<'_>, group: usize) -> Result<(), PlotError> {
        let upper = self.top(group) + 2.0 * self.pixel();
        let lower = self.top(group) - f64::from(self.thick() * BAR + 2) * self.pixel();
        for value in self.series.iter().filter(|s| s.mark).filter_map(|s| shown(s, group)) {
            let stroke = PathElement::new(vec![(value, lower), (value, upper)], INK.stroke_width(3));
            plane.draw(&stroke).map_err(drawing)?;
        }
        Ok(())
    }

    /// Renders an SVG document.
    pub fn svg(&self) -> Result<String, PlotError> {
        if self.series.len() > SERIES_MAX {
            return Err(PlotError::Series(self.series.len()));
        }
        let lengths = ticks::range(Scale::Linear, self.reaches().into_iter().chain([0.0]))
            .filter(|_| !self.groups.is_empty() && !self.series.is_empty())
            .ok_or(PlotError::Empty)?;
        let high = lengths.high;
        let count = self.groups.len();
        let height = count as u32 * self.group() + FRAME;
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
            root.fill(&WHITE).map_err(drawing)?;
            let sample = |s: &Values| if s.mark { Sample::Mark } else { Sample::Block };
            let entries: Vec<_> = self.series.iter().map(|s| (s.name.as_str(), sample(s))).collect();
            let below = legend(&root, &entries)?;
            let style = text(LABEL_TEXT).pos(Pos::new(HPos::Right, VPos::Center));
            let mut names = 40;
            for name in &self.groups {
                names = names.max(below.estimate_text_size(name, &style).map_err(drawing)?.0);
            }
            let names = names.min(NAMES_MAX) + 16;
            let rows = ticks::Span::plain(0.0, count as f64);
            let mut chart = ChartBuilder::on(&below)
                .margin(8)
                .margin_right(48)
                .x_label_area_size(44)
                .y_label_area_size(names)
                .build_cartesian_2d(lengths, rows)
                .map_err(drawing)?;
            chart
                .configure_mesh()
                .disable_y_mesh()
                .bold_line_style(GRID)
                .light_line_style(TRANSPARENT)
                .axis_style(INK)
                .label_style(text(LABEL_TEXT))
                .axis_desc_style(text(LABEL_TEXT + 1))
                .x_desc(self.title.clone())
                .x_label_formatter(&|v| ticks::label(*v))
                .y_label_formatter(&|_| String::new())
                .draw()
                .map_err(drawing)?;
            let plane = chart.plotting_area();
            for (at, name) in self.groups.iter().enumerate() {
                let middle = self.top(at) - f64::from(self.thick() * BAR) / 2.0 * self.pixel();
                let (x, y) = plane.map_coordinate(&(0.0, middle));
                let (left, upper) = below.get_base_pixel();
                below
                    .draw(&Text::new(name.clone(), (x - left - 8, y - upper), style.clone()))
                    .map_err(drawing)?;
                self.draw_bars(plane, at, high)?;
                self.draw_marks(plane, at)?;
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
    fn groups_with_missing_values_are_drawn() {
        let groups = vec!["A, no caches".to_owned(), "A+C <2>".to_owned()];
        let bars = Bars::grouped("failover in us", groups)
            .with("waited", vec![Some(53.9), Some(64.9)])
            .with("early", vec![Some(24.3), None])
            .with_mark("published", vec![Some(50.0), Some(64.0)]);
        assert_eq!(bars.reaches(), [53.9, 64.9]);
        let svg = bars.svg().expect("it has bars");
        assert!(svg.contains("A+C &lt;2&gt;") && svg.contains("\n53.9\n") && svg.contains("published"));
        let stacked = Bars { stacked: true, ..bars };
        assert_eq!(stacked.reaches(), [53.9 + 24.3, 64.9]);
        assert!(stacked.svg().is_ok());
    }

    #[test]
    fn no_group_is_an_error() {
        assert_eq!(Bars::grouped("us", Vec::new()).svg(), Err(PlotError::Empty));
        assert_eq!(Bars::grouped("us", vec!["a".to_owned()]).svg(), Err(PlotError::Empty));
    }
}
