//! Durations in drill files.

use obol_config::duration::PATTERN;
use obol_fabric::Nanos;
use serde_json::{Value, json};

/// The shortest duration.
pub const SPAN_MIN: Nanos = Nanos::from_micros(1);

/// The JSON Schema of a duration.
pub fn span_schema() -> Value {
    json!({ "type": "string", "pattern": PATTERN })
}
