//! Keys of tables in drill files, as the schema and the reference list them.

use serde_json::Value;

/// A key, with its JSON Schema and description.
#[derive(Clone, Debug)]
pub struct Key {
    pub name: &'static str,
    /// Its JSON Schema.
    pub schema: Value,
    /// Its description.
    pub doc: &'static str,
}
