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
    /// A number and an unknown unit: the text, the unit.
    #[error("{0:?} has the unknown unit {1:?}; units are ns, us, ms, s, m, h, d, w, mo and y")]
    Unit(String, String),
    /// Has a part of a nanosecond.
    #[error("{0:?} is finer than a nanosecond")]
    TooFine(String),
    /// Longer than 2^64 nanoseconds (584 years).
    #[error("{0:?} is longer than 584 years")]
    TooLong(String),
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
        return Err(DurationError::Unit(quoted(), shortened(unit)));
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
    let span = parse(text).map_err(|error| error.to_string())?;
    if span < Duration::from_micros(1) {
        return Err(format!("`{text}` is less than 1us"));
    }
    Ok(span)
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
            r#""20 ms" has the unknown unit " ms"; units are ns, us, ms, s, m, h, d, w, mo and y"#
        );
        assert_eq!(
            refused("2sec"),
            r#""2sec" has the unknown unit "sec"; units are ns, us, ms, s, m, h, d, w, mo and y"#
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

    proptest! {
        #[test]
        fn printing_and_parsing_round_trip(n in prop_oneof![any::<u64>(), 0..5_000_000_000u64]) {
            prop_assert_eq!(parse(&print(Duration::from_nanos(n))), Ok(Duration::from_nanos(n)));
        }

        #[test]
        fn no_text_is_a_panic(text in "\\PC*|[0-9.]{0,30}[a-zµ ]{0,3}") {
            if let Ok(span) = parse(&text) {
                prop_assert_eq!(parse(&print(span)), Ok(span));
            }
        }
    }
}
