//! Reads a text into a testbed, or into all of its errors.

use super::keys::{KEYS, Key, Kind, LONGEST, tables};
use super::{SCHEMA, Testbed};
use crate::document::{Faults, bare, found, nearest, number, shortened, span};
use crate::error::{Fault, FileError};
use crate::kind::not_a_table;
use obol_fabric::{Name, Nanos};
use obol_fabric_sim::{BILLION, Quantiles};
use std::collections::{BTreeMap, BTreeSet};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// The top-level keys.
const TOP: [&str; 3] = ["schema", "name", "description"];
/// The keys of a parameter's table.
const PARTS: [&str; 3] = ["value", "points", "source"];
/// The maximum number of points of a distribution.
const POINTS_MAX: usize = 64;
/// The bounds of any duration.
const SPAN: (Nanos, Nanos) = (Nanos::ZERO, LONGEST);
/// The maximum length of a source.
const SOURCE_CHARS_MAX: usize = 400;

type Value<'i> = Spanned<DeValue<'i>>;

struct Reader {
    testbed: Testbed,
    faults: Faults,
}

/// Reads `text`; every fault is reported with its line and column in `origin`.
pub(super) fn read(text: &str, origin: &str) -> Result<Testbed, FileError> {
    let (document, syntax) = DeTable::parse_recoverable(text);
    let mut reader = Reader { testbed: Testbed::default(), faults: Faults::default() };
    if syntax.is_empty() {
        reader.document(document.get_ref());
    }
    // Possible consequences of a syntax error are not reported.
    reader.faults.with_syntax(text, &syntax);
    reader.faults.judge(Some(reader.testbed), text, origin)
}

impl Reader {
    fn fault(&mut self, at: usize, fault: Fault) {
        self.faults.add(at, fault);
    }

    fn document(&mut self, document: &DeTable<'_>) {
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        let mut keys: BTreeSet<&str> = BTreeSet::new();
        for (name, value) in document {
            let at = name.span().start;
            if let Some(top) = TOP.into_iter().find(|top| top == name.get_ref()) {
                seen.insert(top, at);
                if let Err(fault) = self.top(top, value) {
                    self.fault(value.span().start, fault);
                }
            } else if let Some(table) = tables().find(|table| table == name.get_ref()) {
                seen.insert(table, at);
                match value.get_ref() {
                    DeValue::Table(inner) => {
                        inner
                            .iter()
                            .for_each(|(name, value)| keys.extend(self.parameter(table, name, value)));
                    }
                    other => self.fault(value.span().start, not_a_table(table, other)),
                }
            } else if value.get_ref().is_table() {
                let nearest = nearest(name.get_ref(), tables());
                self.fault(
                    at,
                    Fault::UnknownTable { table: bare(name.get_ref()), nearest: nearest.map(Into::into) },
                );
            } else {
                let nearest = nearest(name.get_ref(), TOP);
                self.fault(
                    at,
                    Fault::UnknownKey { key: bare(name.get_ref()), nearest: nearest.map(Into::into) },
                );
            }
        }
        for top in TOP.into_iter().filter(|top| !seen.contains_key(top)) {
            self.fault(0, Fault::MissingKey { key: top.into(), wanted: "a value".to_owned() });
        }
        for table in tables().filter(|table| !seen.contains_key(table)) {
            self.fault(0, Fault::MissingTable(table));
        }
        for key in KEYS.iter().filter(|key| !keys.contains(key.path)) {
            if let Some(&at) = seen.get(key.table()) {
                self.fault(at, Fault::MissingKey { key: key.path.into(), wanted: key.wanted() });
            }
        }
    }

    fn top(&mut self, key: &'static str, value: &Value<'_>) -> Result<(), Fault> {
        let wrong = |wanted: &str| Fault::WrongType {
            key: key.into(),
            found: found(value.get_ref()),
            wanted: wanted.to_owned(),
        };
        match key {
            "schema" => {
                let number = value.get_ref().as_integer().ok_or_else(|| wrong("an integer"))?;
                if number.as_str() != SCHEMA.to_string() {
                    return Err(Fault::Schema { found: shortened(number.as_str()), known: SCHEMA });
                }
            }
            "name" => {
                let text = value.get_ref().as_str().ok_or_else(|| wrong("a name"))?;
                self.testbed.name = Name::new(text).map_err(|error| Fault::Name(key.into(), error))?;
            }
            _ => self.testbed.description = line(value.get_ref()).ok_or_else(|| wrong("a line of text"))?,
        }
        Ok(())
    }

    /// Reads one parameter; returns its path if the parameter exists.
    fn parameter(
        &mut self,
        table: &'static str,
        name: &Spanned<DeString<'_>>,
        value: &Value<'_>,
    ) -> Option<&'static str> {
        let known = KEYS.iter().find(|key| key.table() == table && key.name() == name.get_ref());
        let Some(key) = known else {
            let own = || KEYS.iter().filter(|key| key.table() == table);
            let meant = nearest(name.get_ref(), own().map(Key::name));
            let nearest = own().find(|key| Some(key.name()) == meant).map(|key| key.path);
            let written = format!("{table}.{}", bare(name.get_ref()));
            self.fault(
                name.span().start,
                Fault::UnknownKey { key: written, nearest: nearest.map(Into::into) },
            );
            return None;
        };
        let wrong = |found: String| Fault::WrongType { key: key.path.into(), found, wanted: key.wanted() };
        let Some(parts) = value.get_ref().as_table() else {
            self.fault(value.span().start, wrong(found(value.get_ref())));
            return Some(key.path);
        };
        for (part, _) in parts {
            if !PARTS.iter().any(|known| known == part.get_ref()) {
                let written = format!("{}.{}", key.path, bare(part.get_ref()));
                let nearest = nearest(part.get_ref(), PARTS);
                self.fault(
                    part.span().start,
                    Fault::UnknownKey { key: written, nearest: nearest.map(Into::into) },
                );
            }
        }
        match parts.get("source").and_then(|source| line(source.get_ref())) {
            Some(source) => {
                self.testbed.sources.insert(key.path, source);
            }
            None => self.fault(value.span().start, wrong("without a source".to_owned())),
        }
        let read = match (parts.get("value"), parts.get("points")) {
            (Some(value), None) => Some((value, self.value(key, value.get_ref()))),
            (None, Some(points)) => Some((points, self.points(key, points.get_ref()))),
            (None, None) => {
                self.fault(value.span().start, wrong("without a value".to_owned()));
                None
            }
            (Some(_), Some(points)) => {
                self.fault(points.span().start, wrong("both a value and points".to_owned()));
                None
            }
        };
        if let Some((place, Err(fault))) = read {
            self.fault(place.span().start, fault);
        }
        Some(key.path)
    }

    fn value(&mut self, key: &Key, value: &DeValue<'_>) -> Result<(), Fault> {
        let wrong = || Fault::WrongType { key: key.path.into(), found: found(value), wanted: key.wanted() };
        match key.kind {
            Kind::Span(at) => *at(&mut self.testbed) = span(key.path, value, SPAN).ok_or_else(wrong)??,
            Kind::Spread(at) => {
                let span = span(key.path, value, SPAN).ok_or_else(wrong)??;
                *at(&mut self.testbed) = Quantiles::fixed(span);
            }
            Kind::Number { low, high, at, .. } => {
                *at(&mut self.testbed) = number(key.path, value, (low, high)).ok_or_else(wrong)??;
            }
        }
        Ok(())
    }

    fn points(&mut self, key: &Key, value: &DeValue<'_>) -> Result<(), Fault> {
        let wrong = |found: String| Fault::WrongType { key: key.path.into(), found, wanted: key.wanted() };
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
        *at(&mut self.testbed) =
            Quantiles::new(points).map_err(|error| wrong(format!("not a distribution ({error})")))?;
        Ok(())
    }
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
    let text = value.as_str()?;
    let fits =
        !text.is_empty() && text.chars().count() <= SOURCE_CHARS_MAX && !text.chars().any(char::is_control);
    fits.then(|| text.to_owned())
}
