//! What is wanted of a timeout, as a user writes it: how often it may be exceeded, and how sure that is.

/// Seconds of the units of `--every`.
const UNITS: [(&str, f64); 8] = [
    ("s", 1.0),
    ("m", 60.0),
    ("min", 60.0),
    ("h", 3600.0),
    ("d", 86_400.0),
    ("w", 604_800.0),
    ("mo", 2_629_800.0),
    ("y", 31_557_600.0),
];

/// A time such as `1y`, in seconds.
pub fn every(text: &str) -> Result<f64, String> {
    let wanted =
        || format!("`{text}` is not a time such as 12h, 30d or 1y; units are s, m, h, d, w, mo (months), y");
    let at = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(wanted)?;
    let (number, unit) = text.split_at(at);
    let number: f64 = number.trim().parse().map_err(|_| wanted())?;
    let (_, seconds) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wanted)?;
    let seconds = number * seconds;
    if seconds.is_finite() && seconds >= 1.0 { Ok(seconds) } else { Err(wanted()) }
}

/// A confidence that few samples can claim and no sample excludes.
pub fn confidence(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (50.0..=99.0).contains(&percent) => Ok(percent),
        _ => Err("a number from 50 to 99, such as 95".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_number_and_a_unit() {
        for (text, seconds) in [
            ("1y", 31_557_600.0),
            ("1mo", 2_629_800.0),
            ("12h", 43_200.0),
            ("0.5d", 43_200.0),
            ("90 s", 90.0),
            ("20m", 1200.0),
            ("20min", 1200.0),
        ] {
            assert_eq!(every(text), Ok(seconds), "{text}");
        }
        for wrong in ["", "1", "y", "-1d", "0s", "1fortnight", "infy", "1e400y"] {
            assert!(every(wrong).is_err(), "{wrong}");
        }
        assert_eq!(confidence("95"), Ok(95.0));
        assert!(["49", "99.9", "x"].iter().all(|wrong| confidence(wrong).is_err()));
    }
}
