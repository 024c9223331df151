//! Ticks of an axis and their labels.

use super::Scale;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use std::ops::Range;

/// An axis for the drawing library: its ends and ticks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Span {
    scale: Scale,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) marks: Vec<f64>,
}

impl Ranged for Span {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let place = |v: f64| if self.scale == Scale::Log { v.max(f64::MIN_POSITIVE).ln() } else { v };
        let (low, high) = (place(self.low), place(self.high));
        let part = (place(*value) - low) / (high - low);
        from + (part * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.marks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl Span {
    /// A linear axis without ticks.
    pub(super) const fn plain(low: f64, high: f64) -> Self {
        Self { scale: Scale::Linear, low, high, marks: Vec::new() }
    }
}

/// Most ticks of an axis.
const TICKS_MAX: f64 = 8.0;

/// A logarithmic axis up to this ratio has even steps, because it has too few round powers.
const EVEN_MAX: f64 = 4.0;

/// The range of an axis around its values, widened to whole steps, and its ticks. `None` without
/// values.
pub(super) fn range(scale: Scale, values: impl Iterator<Item = f64>) -> Option<Span> {
    let fits = |v: &f64| v.is_finite() && (scale == Scale::Linear || *v > 0.0);
    let (low, high) = values
        .filter(fits)
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    if low > high {
        return None;
    }
    let (low, high, marks) = match scale {
        Scale::Linear => linear(low, high),
        Scale::Log => logarithmic(low, high),
    };
    Some(Span { scale, low, high, marks })
}

/// Steps of 1, 2 or 5 times a power of ten; from zero unless that wastes most of the axis.
fn linear(low: f64, high: f64) -> (f64, f64, Vec<f64>) {
    steps(if low >= 0.0 && low < 0.6 * high { 0.0 } else { low }, high)
}

fn steps(low: f64, high: f64) -> (f64, f64, Vec<f64>) {
    let span = if high > low { high - low } else { high.abs().max(1.0) };
    let rough = span / TICKS_MAX;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * power).into_iter().find(|s| *s >= rough).unwrap_or(rough);
    let (first, mut last) = ((low / step).floor(), (high / step).ceil());
    if last <= first {
        last = first + 1.0;
    }
    let marks = (0..=(last - first) as u32).map(|n| (first + f64::from(n)) * step).collect();
    (first * step, last * step, marks)
}

/// Even steps if the ratio is small; powers of two if the values are whole powers of two over few
/// octaves; else powers of ten, with 2 and 5 over few decades.
fn logarithmic(low: f64, high: f64) -> (f64, f64, Vec<f64>) {
    let octaves = (high / low).log2();
    let whole = |v: f64| (v.log2() - v.log2().round()).abs() < 1e-9;
    if octaves > 0.5 && octaves <= 12.0 && whole(low) && whole(high) {
        let first = low.log2().round() as i32;
        let marks = (0..=octaves.round() as i32).map(|n| 2f64.powi(first + n)).collect();
        return (low, high, marks);
    }
    let even = steps(low, high);
    if high <= EVEN_MAX * low && even.0 > 0.0 {
        return even;
    }
    let (first, mut last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    if last <= first {
        last = first + 1;
    }
    let within: &[f64] = if last - first <= 3 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let all = (first..=last).flat_map(|n| within.iter().map(move |w| w * 10f64.powi(n)));
    let marks: Vec<f64> = all.collect();
    let below = marks.iter().copied().filter(|m| *m <= low * 1.000_001).fold(10f64.powi(first), f64::max);
    let above = marks.iter().copied().filter(|m| *m >= high * 0.999_999).fold(10f64.powi(last), f64::min);
    let above = if above > below { above } else { below * 10.0 };
    (below, above, marks.into_iter().filter(|m| (below..=above).contains(m)).collect())
}

/// A short tick label: no more digits than needed, thousands as `k`, millions as `M`.
pub(super) fn label(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, "G"),
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        v if v >= 100.0 || v == 0.0 => 0,
        v if v >= 1.0 => 2,
        v => (2.0 - v.log10().floor()) as usize,
    };
    let text = format!("{scaled:.digits$}");
    let short = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{short}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_enclose_the_values() {
        let Span { low, high, marks, .. } = range(Scale::Linear, [3.0, 97.0].into_iter()).expect("values");
        assert_eq!((low, high), (0.0, 100.0));
        assert_eq!(marks, [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        let Span { low, high, .. } = range(Scale::Linear, [98.2, 99.9].into_iter()).expect("values");
        assert!(low > 97.0 && low <= 98.2 && high >= 99.9, "{low} {high}");
        let Span { marks, .. } = range(Scale::Log, [8.0, 4096.0].into_iter()).expect("values");
        assert_eq!(marks, [8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0]);
        let Span { low, high, marks, .. } = range(Scale::Log, [23.0, 180.0].into_iter()).expect("values");
        assert_eq!((low, high), (20.0, 200.0));
        assert_eq!(marks, [20.0, 50.0, 100.0, 200.0]);
        let Span { marks, .. } = range(Scale::Log, [20.9, 36.2].into_iter()).expect("values");
        assert_eq!(marks, [20.0, 22.0, 24.0, 26.0, 28.0, 30.0, 32.0, 34.0, 36.0, 38.0]);
        assert_eq!(range(Scale::Log, [0.0, f64::NAN].into_iter()), None);
    }

    #[test]
    fn one_value_makes_an_axis_too() {
        for scale in [Scale::Linear, Scale::Log] {
            for value in [0.5, 1.0, 7.0, 1000.0] {
                let Span { low, high, marks, .. } = range(scale, [value].into_iter()).expect("a value");
                assert!(low <= value && value <= high && low < high && marks.len() > 1, "{value} {scale:?}");
            }
        }
    }

    #[test]
    fn labels_are_short() {
        let labels = [0.0, 0.05, 1.5, 20.0, 4096.0, 10_000.0, 2_500_000.0, 3e9].map(label);
        assert_eq!(labels, ["0", "0.05", "1.5", "20", "4096", "10k", "2.5M", "3G"]);
    }
}
