//! Durations in human-readable form: a number with its unit, `20ms`, `1.5s`. Conversion is exact in
//! both directions, without floating point.

use crate::name::shortened;
use std::time::Duration;

/// Nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// Units and their length in nanoseconds, longest first.
const UNITS: [(&str, u64); 4] = [("s", SECOND), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// Units that are read but never printed: not every span is a finite decimal number of them.
const LONG: [(&str, u64); 7] = [
    ("m", 60 * SECOND),
    ("min", 60 * SECOND),
    ("h", 3600 * SECOND),
    ("d", 86_400 * SECOND),
    ("w", 604_800 * SECOND),
    // The mean month and year of the Julian calendar.
    ("mo", 2_629_800 * SECOND),
    ("y", 31_557_600 * SECOND),
];

/// What a duration looks like, as the regular expression of a JSON Schema.
pub const PATTERN: &str = "^[0-9]+(\\.[0-9]+)?(ns|us|ms|s|m|min|h|d|w|mo|y)$";

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Does not begin with a plain decimal number.
    #[error("{0:?} is not a duration; write a number and a unit, as in \"20ms\"")]
    Number(String),
    /// A number and nothing else.
    #[error("{0:?} has no unit; write ns, us, ms, s, m, h, d, w, mo or y behind the number, as in \"20ms\"")]
    NoUnit(String),
    /// A number and an unknown unit.
    #[error(
        "{text:?} has the unknown unit {unit:?}; units are ns, us, ms, s, m, h, d, w, mo and y{}",
        did_you_mean(.meant.as_deref())
    )]
    Unit {
        text: String,
        /// As written.
        unit: String,
        /// The probable intention, as it is accepted.
        meant: Option<String>,
    },
    /// Several numbers, each with its unit.
    #[error(
        "{text:?} is not a duration; write one number and one unit, without spaces{}",
        did_you_mean(.meant.as_deref())
    )]
    Several {
        text: String,
        /// Their sum.
        meant: Option<String>,
    },
    /// Has a part of a nanosecond.
    #[error("{0:?} is finer than a nanosecond")]
    TooFine(String),
    /// Longer than 2^64 nanoseconds (584 years).
    #[error("{0:?} is longer than 584 years")]
    TooLong(String),
}

fn did_you_mean(spelling: Option<&str>) -> String {
    spelling.map_or(String::new(), |spelling| format!("; did you mean {spelling:?}?"))
}

/// Units as other programs and people write them.
const OTHERS: [(&str, &[&str]); 10] = [
    ("ns", &["nsec", "nanosecond", "nanoseconds"]),
    ("us", &["\u{b5}s", "\u{3bc}s", "usec", "microsecond", "microseconds"]),
    ("ms", &["msec", "millisecond", "milliseconds"]),
    ("s", &["sec", "secs", "second", "seconds"]),
    ("m", &["mins", "minute", "minutes"]),
    ("h", &["hr", "hrs", "hour", "hours"]),
    ("d", &["day", "days"]),
    ("w", &["week", "weeks"]),
    ("mo", &["month", "months"]),
    ("y", &["yr", "year", "years"]),
];

/// The unit of this name, as it is read, with its length.
fn unit_of(name: &str) -> Option<(&'static str, u64)> {
    let name = name.to_lowercase();
    let other = OTHERS.into_iter().find(|(_, others)| others.contains(&name.as_str())).map(|(unit, _)| unit);
    UNITS.into_iter().chain(LONG).find(|(unit, _)| *unit == other.unwrap_or(name.as_str()))
}

/// Whether the text has several numbers, each with a unit, and how its sum is written with the
/// shortest of these units; that of one number with a unit that others write so.
fn meant(text: &str) -> (bool, Option<String>) {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let mut rest = text.trim();
    let (mut several, mut spelled, mut sum) = (0, None, Some(0_u64));
    let mut shortest: Option<(&str, u64)> = None;
    while !rest.is_empty() {
        let (number, unit) = rest.split_at(rest.find(|c: char| !is_number(c)).unwrap_or(rest.len()));
        let (unit, next) = unit.split_at(unit.find(is_number).unwrap_or(unit.len()));
        let Some((unit, scale)) = unit_of(unit.trim()) else { return (several > 0, None) };
        let one = format!("{number}{unit}");
        let Ok(span) = parse(&one) else { return (several > 0, None) };
        sum = sum.and_then(|sum| sum.checked_add(u64::try_from(span.as_nanos()).ok()?));
        shortest = shortest.filter(|(_, before)| *before <= scale).or(Some((unit, scale)));
        (several, spelled, rest) = (several + 1, Some(one), next);
    }
    if several <= 1 {
        return (false, spelled.filter(|spelled| shortened(spelled) == *spelled));
    }
    let sum = sum.zip(shortest).map(|(nanos, (unit, scale))| {
        let whole = nanos.is_multiple_of(scale);
        if whole { format!("{}{unit}", nanos / scale) } else { print(Duration::from_nanos(nanos)) }
    });
    (true, sum)
}

/// Reads `20ms`, `23us`, `1.5s`, `100ns`: a decimal number and a unit, without spaces.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(obol_config::duration::parse("1.5ms"), Ok(Duration::from_micros(1500)));
/// ```
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let quoted = || shortened(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return Err(DurationError::Number(quoted()));
    }
    if unit.is_empty() {
        return Err(DurationError::NoUnit(quoted()));
    }
    let Some((_, scale)) = UNITS.into_iter().chain(LONG).find(|(name, _)| *name == unit) else {
        return Err(match meant(text) {
            (true, meant) => DurationError::Several { text: quoted(), meant },
            (false, meant) => DurationError::Unit { text: quoted(), unit: shortened(unit), meant },
        });
    };
    let long = || DurationError::TooLong(quoted());
    let whole = whole.parse::<u64>().ok().and_then(|n| n.checked_mul(scale)).ok_or_else(long)?;
    let mut rest = 0;
    let mut place = scale;
    for digit in fraction.trim_end_matches('0').bytes() {
        if !place.is_multiple_of(10) {
            return Err(DurationError::TooFine(quoted()));
        }
        place /= 10;
        rest += u64::from(digit - b'0') * place;
    }
    whole.checked_add(rest).map(Duration::from_nanos).ok_or_else(long)
}

/// A duration that a user gives as an argument: at least a microsecond.
pub fn argument(text: &str) -> Result<Duration, String> {
    at_least(Duration::from_micros(1))(text)
}

/// Reads one that a user gives as an argument: at least this.
pub fn at_least(least: Duration) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync {
    move |text| {
        let span = parse(text).map_err(|error| error.to_string())?;
        if span < least { Err(format!("`{text}` is less than {}", print(least))) } else { Ok(span) }
    }
}

/// The same, and `0` for none.
pub fn argument_or_zero(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { argument(text) }
}

/// Writes a span exactly, in the largest unit that does not exceed it: `20ms`, `1.5s`, `0ns`.
pub fn print(span: impl Into<Duration>) -> String {
    let nanos = span.into().as_nanos();
    let units = UNITS.map(|(unit, scale)| (unit, u128::from(scale)));
    let (unit, scale) = units.into_iter().find(|(_, scale)| nanos >= *scale).unwrap_or(("ns", 1));
    let (whole, mut rest) = (nanos / scale, nanos % scale);
    let mut text = whole.to_string();
    let mut place = scale;
    while rest > 0 {
        if place == scale {
            text.push('.');
        }
        place /= 10;
        text.push(char::from(b'0' + (rest / place) as u8));
        rest %= place;
    }
    text + unit
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_read_exactly() {
        for (text, nanos) in [
            ("20ms", 20_000_000),
            ("23us", 23_000),
            ("1.5s", 1_500_000_000),
            ("0.25ms", 250_000),
            ("1.000us", 1_000),
            ("7ns", 7),
            ("0s", 0),
            ("30m", 1_800_000_000_000),
            ("0.5m", 30_000_000_000),
            ("12h", 43_200_000_000_000),
            ("1.5h", 5_400_000_000_000),
            ("0.00000000001h", 36),
            ("2d", 172_800_000_000_000),
            ("20min", 1_200_000_000_000),
            ("1w", 604_800_000_000_000),
            ("1mo", 2_629_800_000_000_000),
            ("1y", 31_557_600_000_000_000),
            ("18446744073.709551615s", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn the_pattern_has_every_unit() {
        let units: Vec<&str> = UNITS.into_iter().rev().chain(LONG).map(|(unit, _)| unit).collect();
        assert!(PATTERN.ends_with(&format!("({})$", units.join("|"))), "{PATTERN}");
    }

    #[test]
    fn times_need_a_unit() {
        assert_eq!(argument("20s"), Ok(Duration::from_secs(20)));
        assert_eq!(argument("1.5ms"), Ok(Duration::from_micros(1500)));
        assert!(argument("20").is_err());
        assert_eq!(argument("12h"), Ok(Duration::from_secs(43_200)));
        assert!(argument("20x").is_err());
        assert!(argument("0s").is_err());
        let of_a_second = at_least(Duration::from_secs(1));
        assert_eq!(of_a_second("1mo"), Ok(Duration::from_secs(2_629_800)));
        assert_eq!(of_a_second("1s"), argument("1s"));
        assert_eq!(of_a_second("999ms"), Err("`999ms` is less than 1s".to_owned()));
        assert_eq!(of_a_second("1h5m"), argument("1h5m"), "it is refused alike");
    }

    #[test]
    fn a_refusal_says_what_to_write() {
        let refused = |text| parse(text).expect_err(text).to_string();
        assert_eq!(
            refused("20"),
            r#""20" has no unit; write ns, us, ms, s, m, h, d, w, mo or y behind the number, as in "20ms""#
        );
        assert_eq!(
            refused("20 ms"),
            r#""20 ms" has the unknown unit " ms"; units are ns, us, ms, s, m, h, d, w, mo and y; did you mean "20ms"?"#
        );
        assert_eq!(
            refused("2sec"),
            r#""2sec" has the unknown unit "sec"; units are ns, us, ms, s, m, h, d, w, mo and y; did you mean "2s"?"#
        );
        let no_number = r#" is not a duration; write a number and a unit, as in "20ms""#;
        for text in ["", "ms", "-5ms", "+5ms", ".5s", "5.s", "1.2.3s", "1e3s"] {
            if text == "1e3s" {
                assert_eq!(
                    refused(text),
                    r#""1e3s" has the unknown unit "e3s"; units are ns, us, ms, s, m, h, d, w, mo and y"#
                );
            } else {
                assert_eq!(refused(text), format!("{text:?}{no_number}"));
            }
        }
        assert_eq!(refused("0.000000000001h"), r#""0.000000000001h" is finer than a nanosecond"#);
        assert_eq!(refused("1.5ns"), r#""1.5ns" is finer than a nanosecond"#);
        assert_eq!(refused("18446744073.709551616s"), r#""18446744073.709551616s" is longer than 584 years"#);
    }

    #[test]
    fn a_refusal_names_the_nearest_spelling_that_is_accepted() {
        for (text, meant) in [
            ("1h5m", "65m"),
            ("1h 5m", "65m"),
            ("1.5h30m", "120m"),
            ("0.5m0.5s", "30.5s"),
            ("1m30s", "90s"),
            ("2s 500ms", "2500ms"),
            ("1 day 12 hours", "36h"),
            ("5 minutes", "5m"),
            ("10\u{b5}s", "10us"),
            ("3MS", "3ms"),
            ("1.5 hours", "1.5h"),
        ] {
            let refused = parse(text).expect_err(text).to_string();
            assert!(refused.ends_with(&format!("; did you mean {meant:?}?")), "{refused}");
            parse(meant).expect("it is accepted");
        }
        assert_eq!(
            parse("1h5m").expect_err("refused").to_string(),
            r#""1h5m" is not a duration; write one number and one unit, without spaces; did you mean "65m"?"#
        );
        for text in ["1h5", "1h5x", "5x", "400y400y", "1h.m"] {
            let refused = parse(text).expect_err(text).to_string();
            assert!(!refused.contains("did you mean"), "{refused}");
        }
    }

    proptest! {
        #[test]
        fn printing_and_parsing_round_trip(n in prop_oneof![any::<u64>(), 0..5_000_000_000u64]) {
            prop_assert_eq!(parse(&print(Duration::from_nanos(n))), Ok(Duration::from_nanos(n)));
        }

        #[test]
        fn no_text_is_a_panic(text in "\\PC*|[0-9.]{0,30}[a-zµ ]{0,3}|([0-9.]{1,20} ?(ns|us|s|m|h|y)){0,4}") {
            if let Ok(span) = parse(&text) {
                prop_assert_eq!(parse(&print(span)), Ok(span));
            }
        }
    }
}
