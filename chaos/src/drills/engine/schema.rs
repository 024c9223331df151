//! The JSON Schema of `journal.json`, for programs that read it.

use super::journal::Journal;
use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use serde_json::Value;

/// The JSON Schema of a journal: what is not in it is not in a journal either.
pub fn journal_schema() -> Value {
    let closed = RecursiveTransform(|schema: &mut Schema| {
        if schema.get("properties").is_some() {
            schema.insert("additionalProperties".to_owned(), false.into());
        }
    });
    let settings = SchemaSettings::draft2020_12().for_serialize().with(|s| s.inline_subschemas = true);
    let mut schema = settings.with_transform(closed).into_generator().into_root_schema_for::<Journal>();
    schema.insert("title".to_owned(), "obol drill journal".into());
    schema.into()
}
