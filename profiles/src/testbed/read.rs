//! Reads a text into a testbed, or into all of its errors.

use super::keys::{KEYS, Key, Kind, LONGEST, tables};
use super::{SCHEMA, Testbed};
use obol_config::{FileError, Problem, Problems, Section, found, is_line, number, span};
use obol_fabric::Nanos;
use obol_fabric_sim::{BILLION, Quantiles};
use toml::Spanned;
use toml::de::DeValue;

/// The maximum number of points of a distribution.
const POINTS_MAX: usize = 64;
/// The bounds of any duration.
const SPAN: (Nanos, Nanos) = (Nanos::ZERO, LONGEST);
/// The maximum length of a source.
const SOURCE_CHARS_MAX: usize = 400;

/// Reads `text`; every problem is reported with its line and column in `origin`.
pub(super) fn read(text: &str, origin: &str) -> Result<Testbed, FileError> {
    obol_config::read(text, origin, |top, problems| {
        let mut testbed = Testbed::default();
        top.schema(SCHEMA, problems);
        let name = top.parsed("name", "a name", problems);
        if let Some(name) = top.need("name", "a name", name) {
            testbed.name = name.value;
        }
        let line = top.take("description", "a line of text", problems, |_, value| line(value).map(Ok));
        if let Some(line) = top.need("description", "a line of text", line) {
            testbed.description = line.value;
        }
        for table in tables() {
            let Some(section) = top.needed_section(table, problems) else { continue };
            section.read(problems, |section, problems| {
                for key in KEYS.iter().filter(|key| key.table() == table) {
                    let parts = section.section_as(key.name(), &key.wanted(), problems);
                    if let Some(parts) = section.need(key.name(), &key.wanted(), parts) {
                        parts.read(problems, |parts, problems| parameter(&mut testbed, key, parts, problems));
                    }
                }
            });
        }
        Some(testbed)
    })
}

fn parameter(testbed: &mut Testbed, key: &'static Key, parts: &mut Section<'_, '_>, problems: &mut Problems) {
    match parts.value("source").and_then(|source| line(source.get_ref())) {
        Some(source) => {
            testbed.sources.insert(key.path, source);
        }
        None => problems.wrong(parts.at, key.path, "without a source", key.wanted()),
    }
    match (parts.value("value"), parts.value("points")) {
        (Some(place), None) => {
            problems.take(place.span().start, value(testbed, key, place.get_ref()));
        }
        (None, Some(place)) => {
            problems.take(place.span().start, points(testbed, key, place.get_ref()));
        }
        (None, None) => problems.wrong(parts.at, key.path, "without a value", key.wanted()),
        (Some(_), Some(place)) => {
            problems.wrong(place.span().start, key.path, "both a value and points", key.wanted());
        }
    }
}

fn value(testbed: &mut Testbed, key: &Key, value: &DeValue<'_>) -> Result<(), Problem> {
    let wrong = || Problem::WrongType { key: key.path.into(), found: found(value), wanted: key.wanted() };
    match key.kind {
        Kind::Span(at) => *at(testbed) = span(key.path, value, SPAN).ok_or_else(wrong)??,
        Kind::Spread(at) => {
            let span = span(key.path, value, SPAN).ok_or_else(wrong)??;
            *at(testbed) = Quantiles::fixed(span);
        }
        Kind::Number { low, high, at, .. } => {
            *at(testbed) = number(key.path, value, (low, high)).ok_or_else(wrong)??;
        }
    }
    Ok(())
}

fn points(testbed: &mut Testbed, key: &Key, value: &DeValue<'_>) -> Result<(), Problem> {
    let wrong = |found: String| Problem::WrongType { key: key.path.into(), found, wanted: key.wanted() };
    let Kind::Spread(at) = key.kind else { return Err(wrong("a distribution".to_owned())) };
    let list = value.as_array().ok_or_else(|| wrong(found(value)))?;
    if list.len() > POINTS_MAX {
        return Err(wrong(format!("a list of {} points, more than {POINTS_MAX}", list.len())));
    }
    let mut points = Vec::new();
    for point in list {
        let pair: Vec<&DeValue<'_>> =
            point.get_ref().as_array().into_iter().flatten().map(Spanned::get_ref).collect();
        let [at, long] = pair[..] else {
            return Err(wrong(format!("a list with {}", found(point.get_ref()))));
        };
        let at = quantile(at).ok_or_else(|| wrong(format!("a quantile that is {}", found(at))))?;
        points.push((at, span(key.path, long, SPAN).ok_or_else(|| wrong(found(long)))??));
    }
    *at(testbed) = Quantiles::new(points).map_err(|error| wrong(format!("not a distribution ({error})")))?;
    Ok(())
}

/// A number from 0 to 1 in billionths.
fn quantile(value: &DeValue<'_>) -> Option<u32> {
    let text = match value {
        DeValue::Integer(number) => number.as_str(),
        DeValue::Float(number) => number.as_str(),
        _ => return None,
    };
    let share: f64 = text.parse().ok().filter(|share| (0.0..=1.0).contains(share))?;
    Some((share * f64::from(BILLION)).round() as u32)
}

/// A text that is one line.
fn line(value: &DeValue<'_>) -> Option<String> {
    value.as_str().filter(|text| is_line(text, SOURCE_CHARS_MAX)).map(str::to_owned)
}
