//! Values of options.

use obol_fabric::Nanos;
use obol_profiles::duration;
use std::time::Duration;

/// A time with its unit.
pub(crate) fn span(text: &str) -> Result<Nanos, String> {
    duration::parse(text).map_err(|error| error.to_string())
}

/// A pause between polls: 0 is none.
pub(crate) fn pause(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { duration::argument(text) }
}
