//! Distributions as bars, side by side on one scale of time.
//!
//! ```text
//!              before                 after
//!   5.00us ████████      5220   █████████████  7100
//!   10.0us ██             600   ███             900
//! ```
//!
//! A line counts from its value up to the next line's. The length of a bar is its share of its
//! side.

use crate::theme::Tone;
use crate::widgets::canvas::{Canvas, count, width};
use obol_fabric::Nanos;
use obol_observe::histograms::{Counts, floor};
use ratatui::layout::Rect;

/// Explanation of bars for the help.
pub(crate) const SIGNS: [(&str, &str); 1] = [(
    "bars",
    "a line counts from its value up to the next line's; a bar is its share of the samples of its side",
)];

/// Width of the value at the left, and of the number right of a bar.
const VALUE_WIDE: u16 = 8;
const NUMBER_WIDE: u16 = 7;

/// One distribution.
pub(crate) struct Side<'a> {
    /// Its label; shown as head if there is more than one side.
    pub(crate) head: &'static str,
    pub(crate) counts: &'a Counts,
    pub(crate) tone: Tone,
}

/// The steps within a power of ten.
const STEPS: [u64; 3] = [1, 2, 5];

/// The largest step up to a value.
fn step_below(value: u64) -> u64 {
    let ten = 10u64.pow(value.max(1).ilog10());
    STEPS
        .iter()
        .rev()
        .filter_map(|step| step.checked_mul(ten))
        .find(|step| *step <= value.max(1))
        .unwrap_or(1)
}

fn next_step(step: u64) -> u64 {
    let ten = 10u64.pow(step.max(1).ilog10());
    let next = STEPS.iter().map(|n| n.saturating_mul(ten)).find(|n| *n > step);
    next.unwrap_or(ten.saturating_mul(10))
}

/// A line: its lower bound, and the samples of each side.
struct Line {
    from: u64,
    numbers: Vec<u64>,
}

/// The lines from the lowest step with samples to the highest, at most `most`: the smallest
/// neighbours are merged.
fn lines(sides: &[Side<'_>], most: usize) -> Vec<Line> {
    let ends = sides.iter().flat_map(|side| [side.counts.least(), side.counts.most()]).flatten();
    let (low, high) = ends.fold((u64::MAX, 0), |(low, high), end| (low.min(end.0), high.max(end.0)));
    let mut lines = Vec::new();
    let mut from = step_below(low);
    while low <= high && from <= high {
        lines.push(Line { from, numbers: vec![0; sides.len()] });
        let next = next_step(from);
        if next <= from {
            break;
        }
        from = next;
    }
    for (at, side) in sides.iter().enumerate() {
        for (bucket, n) in side.counts.pairs() {
            let place = lines.partition_point(|line| line.from <= floor(bucket).0);
            if let Some(line) = place.checked_sub(1).and_then(|place| lines.get_mut(place)) {
                line.numbers[at] = line.numbers[at].saturating_add(n);
            }
        }
    }
    let sum = |line: &Line| line.numbers.iter().fold(0u64, |sum, n| sum.saturating_add(*n));
    while lines.len() > most.max(1) {
        let least = (1..lines.len()).min_by_key(|at| sum(&lines[at - 1]).saturating_add(sum(&lines[*at])));
        let Some(at) = least else { break };
        let gone = lines.remove(at);
        for (n, more) in lines[at - 1].numbers.iter_mut().zip(gone.numbers) {
            *n = n.saturating_add(more);
        }
    }
    lines
}

/// Draws the bars, or a message if there are no samples.
pub(crate) fn draw(canvas: &mut Canvas<'_>, area: Rect, sides: &[Side<'_>]) {
    if sides.iter().all(|side| side.counts.is_empty()) {
        canvas.put(area, area.x + 2, area.y, "no samples yet", Tone::Dim);
        return;
    }
    let heads = u16::from(sides.len() > 1);
    let lines = lines(sides, usize::from(area.height.saturating_sub(heads)));
    let parts = u16::try_from(sides.len()).unwrap_or(1).max(1);
    let part = area.width.saturating_sub(VALUE_WIDE + 3) / parts;
    let room = part.saturating_sub(NUMBER_WIDE + 2);
    let left = |at: usize| area.x + VALUE_WIDE + 3 + part * u16::try_from(at).unwrap_or(0);
    let full = canvas.glyphs.levels[canvas.glyphs.levels.len() - 1];
    for (at, side) in sides.iter().enumerate() {
        if heads == 1 {
            canvas.put(area, left(at), area.y, side.head, side.tone);
        }
        let most = lines.iter().map(|line| line.numbers[at]).max().unwrap_or(0).max(1);
        for (y, line) in (area.y + heads..area.bottom()).zip(&lines) {
            let n = line.numbers[at];
            let wide = (u128::from(n) * u128::from(room)).div_ceil(u128::from(most));
            canvas.put(area, left(at), y, &full.repeat(usize::try_from(wide).unwrap_or(0)), side.tone);
            let number = count(n);
            let x = left(at) + (room + 1 + NUMBER_WIDE).saturating_sub(width(&number));
            canvas.put(area, x, y, &number, if n == 0 { Tone::Dim } else { Tone::Text });
        }
    }
    for (y, line) in (area.y + heads..area.bottom()).zip(&lines) {
        let value = Nanos(line.from).to_string();
        canvas.put(area, area.x + 1 + VALUE_WIDE.saturating_sub(width(&value)), y, &value, Tone::Dim);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric::metrics::bucket;

    #[test]
    fn steps_are_one_two_five() {
        let steps = [0, 1, 3, 9, 10, 49, 50, 99_999].map(step_below);
        assert_eq!(steps, [1, 1, 2, 5, 10, 20, 50, 50_000]);
        assert_eq!([1, 2, 5, 10, 50_000].map(next_step), [2, 5, 10, 20, 100_000]);
        assert!(next_step(step_below(u64::MAX)) >= step_below(u64::MAX));
    }

    #[test]
    fn no_sample_is_lost_in_few_lines() {
        let counts = |values: &[u64]| {
            Counts::from_pairs(values.iter().map(|v| (u16::try_from(bucket(*v)).expect("small"), 1)))
        };
        let (one, two) = (counts(&[3, 700, 700, 12_000, u64::MAX]), counts(&[90_000]));
        let side = |counts| Side { head: "", counts, tone: Tone::Text };
        for most in [0, 1, 2, 7, 1000] {
            let lines = lines(&[side(&one), side(&two)], most);
            assert!(lines.len() <= most.max(1));
            assert!(lines.windows(2).all(|pair| pair[0].from < pair[1].from));
            let sums = [0, 1].map(|at| lines.iter().map(|line| line.numbers[at]).sum::<u64>());
            assert_eq!(sums, [5, 1]);
        }
    }
}
