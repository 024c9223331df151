//! Values of options.

use obol_config::duration;
use obol_fabric::Nanos;

/// A time with its unit.
pub(crate) fn span(text: &str) -> Result<Nanos, String> {
    duration::parse(text).map(Nanos::from).map_err(|error| error.to_string())
}
