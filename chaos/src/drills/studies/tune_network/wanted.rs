//! What is wanted of a timeout, as a user writes it: how often it may be exceeded, and how sure that is.

use obol_config::duration;

/// A time such as `1y`, in seconds; at least one second.
pub fn every(text: &str) -> Result<f64, String> {
    let seconds = duration::argument(text)?.as_secs_f64();
    if seconds < 1.0 { Err(format!("`{text}` is less than 1s")) } else { Ok(seconds) }
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
            ("90s", 90.0),
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
