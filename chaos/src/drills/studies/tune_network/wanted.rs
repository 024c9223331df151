//! What is wanted of a timeout, as a user writes it: how often it may be exceeded, and how sure that is.

use std::time::Duration;

/// The shortest time that can be wanted between two false suspicions: the longest gap of each such time
/// is kept.
pub const EVERY_MIN: Duration = Duration::from_secs(1);

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
    fn a_confidence_is_one_that_samples_can_claim() {
        assert_eq!(confidence("95"), Ok(95.0));
        assert!(["49", "99.9", "x"].iter().all(|wrong| confidence(wrong).is_err()));
    }
}
