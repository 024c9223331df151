//! Probes of things outside of the cluster, as drill files declare them: a query to Prometheus, an
//! HTTP request, a command. Each kind is a row of [`KINDS`], from which the parser and the JSON
//! Schema are made.

use super::Key;
use super::limits::COUNT_MAX;
use super::probe::Probe;
use crate::faults::span_schema;
use obol_config::{At, Problem, Problems, Section, chosen, shortened};
use obol_fabric::Nanos;
use serde_json::json;
use std::fmt;

/// Longest URL.
const URL_CHARS_MAX: usize = 2000;
/// Longest query.
const QUERY_CHARS_MAX: usize = 4000;
/// Arguments of a command.
const ARGUMENTS_MAX: usize = 64;
/// How long a probe may take. A drill waits for it.
const TIMEOUT: (Nanos, Nanos) = (Nanos::from_millis(10), Nanos::from_secs(60));
const TIMEOUT_DEFAULT: Nanos = Nanos::from_secs(5);
/// Pause between two looks at an abort condition.
const EVERY: (Nanos, Nanos) = (Nanos::from_millis(100), Nanos::from_secs(600));
const EVERY_DEFAULT: Nanos = Nanos::from_secs(1);

/// A probe of something outside of the cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum External {
    /// An instant query holds for every series of its result.
    PromQl {
        /// The server, without `/api/v1/query`.
        url: String,
        query: String,
        /// What each value must be.
        comparison: Comparison,
        /// Limit of the whole request.
        timeout: Nanos,
    },
    /// A GET request is answered with this status.
    Http {
        url: String,
        status: u16,
        /// Limit of the whole request.
        timeout: Nanos,
    },
    /// A command ends with exit code 0.
    Command {
        /// The program and its arguments; there is no shell.
        argv: Vec<String>,
        /// After this time it is killed.
        timeout: Nanos,
    },
}

/// How a value compares with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    More,
    /// `>=`
    AtLeast,
    /// `==`
    Equal,
    /// `!=`
    Unequal,
}

const OPERATORS: [(&str, Operator); 6] = [
    ("<", Operator::Less),
    ("<=", Operator::AtMost),
    (">", Operator::More),
    (">=", Operator::AtLeast),
    ("==", Operator::Equal),
    ("!=", Operator::Unequal),
];

/// A comparison such as `< 0.01`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    operator: Operator,
    number: f64,
}

impl Comparison {
    /// Whether it holds for a value. No comparison holds for NaN.
    #[expect(clippy::float_cmp, reason = "the file asks for equality")]
    pub fn holds(self, value: f64) -> bool {
        match self.operator {
            _ if value.is_nan() => false,
            Operator::Less => value < self.number,
            Operator::AtMost => value <= self.number,
            Operator::More => value > self.number,
            Operator::AtLeast => value >= self.number,
            Operator::Equal => value == self.number,
            Operator::Unequal => value != self.number,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (operator, number) = text.trim().split_once(char::is_whitespace)?;
        let (_, operator) = OPERATORS.into_iter().find(|(sign, _)| *sign == operator)?;
        let number: f64 = number.trim().parse().ok()?;
        number.is_finite().then_some(Self { operator, number })
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = OPERATORS.iter().find(|(_, operator)| *operator == self.operator);
        write!(f, "{} {}", sign.map_or("", |(sign, _)| sign), self.number)
    }
}

/// An abort condition that is looked at while the drill runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Watch {
    /// The probe.
    pub external: External,
    /// Its required result.
    pub tolerance: bool,
    /// Pause between two looks.
    pub every: Nanos,
    /// The drill is aborted if this many looks in a row do not have the required result.
    pub samples: u32,
}

/// A kind of probe.
struct Kind {
    probe: Probe,
    keys: fn() -> Vec<Key>,
    parse: fn(&mut Section<'_, '_>, &mut Problems) -> Option<External>,
}

const KINDS: [Kind; 3] = [
    Kind { probe: Probe::PromQl, keys: promql_keys, parse: promql },
    Kind { probe: Probe::Http, keys: http_keys, parse: http },
    Kind { probe: Probe::Command, keys: command_keys, parse: command },
];

/// The names of these probes.
pub(super) fn probes() -> Vec<(&'static str, Probe)> {
    KINDS.iter().map(|kind| (kind.probe.name(), kind.probe)).collect()
}

/// The keys of all kinds, each once, with the names of the kinds that have it.
pub(super) fn keys() -> Vec<(Key, Vec<&'static str>)> {
    let mut all: Vec<(Key, Vec<&'static str>)> = Vec::new();
    for kind in &KINDS {
        for key in (kind.keys)() {
            match all.iter_mut().find(|(known, _)| known.name == key.name) {
                Some((_, users)) => users.push(kind.probe.name()),
                None => all.push((key, vec![kind.probe.name()])),
            }
        }
    }
    all
}

/// Reads the keys of a probe, if it is one of these.
pub(super) fn parse(
    probe: Probe,
    section: &mut Section<'_, '_>,
    problems: &mut Problems,
) -> Option<External> {
    let kind = KINDS.iter().find(|kind| kind.probe == probe)?;
    (kind.parse)(section, problems)
}

fn timeout_key() -> Key {
    Key { name: "timeout", schema: span_schema(), doc: "limit of the probe; \"5s\" by default" }
}

fn url_key() -> Key {
    let schema = json!({ "type": "string", "pattern": "^https?://", "maxLength": URL_CHARS_MAX });
    Key { name: "url", schema, doc: "an http or https URL; of promql, the server without /api/v1/query" }
}

fn promql_keys() -> Vec<Key> {
    let signs: Vec<&str> = OPERATORS.iter().map(|(sign, _)| *sign).collect();
    let query = json!({ "type": "string", "minLength": 1, "maxLength": QUERY_CHARS_MAX });
    let pattern = format!("^({}) +-?[0-9.eE+-]+$", signs.join("|"));
    vec![
        url_key(),
        Key { name: "query", schema: query, doc: "an instant query" },
        Key {
            name: "comparison",
            schema: json!({ "type": "string", "pattern": pattern }),
            doc: "what every value of the result must be, such as \"< 0.01\"",
        },
        timeout_key(),
    ]
}

fn http_keys() -> Vec<Key> {
    let status = json!({ "type": "integer", "minimum": 100, "maximum": 599 });
    vec![url_key(), Key { name: "status", schema: status, doc: "the status; 200 by default" }, timeout_key()]
}

fn command_keys() -> Vec<Key> {
    let argv = json!({
        "type": "array", "items": { "type": "string" }, "minItems": 1, "maxItems": ARGUMENTS_MAX
    });
    vec![
        Key { name: "argv", schema: argv, doc: "the program and its arguments, without a shell" },
        timeout_key(),
    ]
}

fn timeout(section: &mut Section<'_, '_>, problems: &mut Problems) -> Nanos {
    section.span("timeout", TIMEOUT, problems).map_or(TIMEOUT_DEFAULT, |at| at.value)
}

fn url(section: &mut Section<'_, '_>, problems: &mut Problems) -> Option<String> {
    let wanted = "an http or https URL such as \"http://prometheus:9090\"";
    let read = section.text("url", URL_CHARS_MAX, problems);
    let At { at, value } = section.need("url", wanted, read)?;
    let uri = value.parse::<ureq::http::Uri>().ok();
    let fits = uri.is_some_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
    });
    if fits {
        return Some(value);
    }
    problems.wrong(at, &section.key("url"), format!("{:?}", shortened(&value)), wanted);
    None
}

fn promql(section: &mut Section<'_, '_>, problems: &mut Problems) -> Option<External> {
    let url = url(section, problems);
    let query = section.text("query", QUERY_CHARS_MAX, problems).map(|at| at.value);
    let query = section.need("query", "an instant query", query);
    let wanted = "a comparison such as \"< 0.01\"; <, <=, >, >=, == and != are known";
    let text = section.line("comparison", problems);
    let text = section.need("comparison", wanted, text);
    let comparison = text.and_then(|At { at, value }| {
        let comparison = Comparison::parse(&value);
        if comparison.is_none() {
            problems.wrong(at, &section.key("comparison"), format!("{:?}", shortened(&value)), wanted);
        }
        comparison
    });
    let timeout = timeout(section, problems);
    Some(External::PromQl { url: url?, query: query?, comparison: comparison?, timeout })
}

fn http(section: &mut Section<'_, '_>, problems: &mut Problems) -> Option<External> {
    let url = url(section, problems);
    let status = section.number("status", (100, 599), problems).map_or(200, |at| at.value);
    let timeout = timeout(section, problems);
    Some(External::Http { url: url?, status: u16::try_from(status).ok()?, timeout })
}

fn command(section: &mut Section<'_, '_>, problems: &mut Problems) -> Option<External> {
    let argv = section.some_texts("argv", problems);
    let argv =
        section.need("argv", "a program and its arguments, such as [\"./smoke-test\", \"--quick\"]", argv);
    if let Some(beyond) = argv.as_ref().and_then(|argv| argv.get(ARGUMENTS_MAX)) {
        let (low, high) = ("1".to_owned(), ARGUMENTS_MAX.to_string());
        let found = format!("{} arguments", argv.as_ref().map_or(0, Vec::len));
        problems.add(beyond.at, Problem::Bounds { key: section.key("argv").into(), found, low, high });
    }
    if let Some(first) = argv.as_ref().and_then(|argv| argv.first()).filter(|first| first.value.is_empty()) {
        problems.wrong(first.at, &section.key("argv"), "an empty string", "the name of a program");
    }
    let timeout = timeout(section, problems);
    Some(External::Command { argv: argv?.into_iter().map(|at| at.value).collect(), timeout })
}

/// `{ probe = "http", url = "http://shop/health", samples = 3 }` among the abort conditions.
pub(super) fn watch(section: &mut Section<'_, '_>, problems: &mut Problems) -> Option<Watch> {
    let samples = section.number("samples", (1, COUNT_MAX), problems).map_or(1, |at| at.value);
    let every = section.span("every", EVERY, problems).map_or(EVERY_DEFAULT, |at| at.value);
    let tolerance = section.flag("tolerance", problems).unwrap_or(true);
    let path = section.key("probe");
    let named = section.line("probe", problems);
    let named = section.need("probe", "the probe, such as \"http\"", named);
    let probe = named.and_then(|At { at, value }| problems.take(at, chosen(&path, &value, &probes())));
    let Some(probe) = probe else {
        section.accept(keys().iter().map(|(key, _)| key.name));
        return None;
    };
    Some(Watch { external: parse(probe, section, problems)?, tolerance, every, samples })
}

/// The keys of an abort condition by a probe, beside those of the probe.
pub(super) fn watch_keys() -> Vec<Key> {
    vec![
        Key { name: "every", schema: span_schema(), doc: "pause between two looks; \"1s\" by default" },
        Key {
            name: "tolerance",
            schema: json!({ "type": "boolean" }),
            doc: "the required result of the probe; true by default",
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_are_those_of_numbers() {
        let holds = |text: &str, value| Comparison::parse(text).map(|comparison| comparison.holds(value));
        for (text, value, expected) in [
            ("< 0.01", 0.009, true),
            ("< 0.01", 0.01, false),
            ("<= 0.01", 0.01, true),
            ("> -1", 0.0, true),
            (">= 5", 4.9, false),
            ("== 0", 0.0, true),
            ("!=  1e3", 1000.0, false),
            ("!= 1", f64::NAN, false),
            ("< 1", f64::NEG_INFINITY, true),
        ] {
            assert_eq!(holds(text, value), Some(expected), "{text} {value}");
        }
        for text in ["", "<", "<0.01", "= 1", "< x", "< NaN", "< inf", "0.01 <"] {
            assert_eq!(Comparison::parse(text), None, "{text}");
        }
        assert_eq!(Comparison::parse("<=  0.50").map(|it| it.to_string()).as_deref(), Some("<= 0.5"));
    }
}
