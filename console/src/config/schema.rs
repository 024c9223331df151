//! The JSON Schema of configurations, generated from the parser's names.

use super::{AUTO, screens};
use crate::input::{BINDINGS, NAMED};
use crate::theme::Theme;
use serde_json::{Map, Value, json};

/// The JSON Schema of a configuration (draft 2020-12).
pub fn schema() -> Value {
    let named: Vec<&str> = NAMED.iter().map(|(name, _)| *name).collect();
    let pattern = format!(r"^([^\s\d]|Ctrl-[A-GKLN-Z]|F([1-9]|1[0-2])|{})$", named.join("|"));
    let keys: Map<String, Value> = BINDINGS
        .iter()
        .map(|binding| {
            let names: Vec<String> = binding.keys.iter().map(|press| press.name()).collect();
            let one = json!({ "$ref": "#/$defs/keys", "description": binding.help, "default": names });
            (binding.name.to_owned(), one)
        })
        .collect();
    let themes: Vec<&str> = [AUTO].into_iter().chain(Theme::NAMES.iter().copied()).collect();
    let theme = json!({ "enum": themes, "default": AUTO, "description": "Colours; auto: by the terminal's background, TERM and NO_COLOR" });
    let keys = json!({
        "type": "object",
        "description": "The keys of each action; a key has one action only",
        "properties": keys,
        "additionalProperties": false,
    });
    let mouse = json!({
        "type": "boolean",
        "default": true,
        "description": "Whether the console captures the mouse; if not, the terminal selects text with it",
    });
    let mut all =
        Map::from_iter([("theme".to_owned(), theme), ("mouse".to_owned(), mouse), ("keys".to_owned(), keys)]);
    let context = json!({
        "type": "object",
        "description": "A cluster in the list of clusters, by a name of one's own",
        "properties": {
            "root": { "type": "string", "pattern": "^/", "description": "The directory that holds it" },
            "cluster": { "type": "string", "default": "default", "description": "Its name there" },
            "theme": { "enum": Theme::NAMES, "description": "Its colours, unless an option names others" },
            "production": {
                "type": "boolean",
                "default": false,
                "description": "Its name has to be typed before a process is killed, stopped or started",
            },
        },
        "required": ["root"],
        "additionalProperties": false,
    });
    all.insert(
        "contexts".to_owned(),
        json!({ "type": "object", "additionalProperties": context, "propertyNames": { "maxLength": 40 } }),
    );
    for screen in screens() {
        let heads: Vec<&str> = screen.columns().iter().map(|column| column.head).collect();
        let mut properties = Map::new();
        properties.insert(
            "columns".to_owned(),
            json!({
                "type": "array",
                "items": { "enum": heads },
                "minItems": 1,
                "uniqueItems": true,
                "default": heads,
                "description": "The columns in their order; those without room are hidden",
            }),
        );
        if screen.about().can_sort {
            let sorts: Vec<&str> = [AUTO].into_iter().chain(heads).collect();
            let sort = json!({ "enum": sorts, "default": AUTO, "description": "The sort column; auto is the screen's own order" });
            properties.insert("sort".to_owned(), sort);
            let reverse = json!({ "type": "boolean", "default": false, "description": "Reversed" });
            properties.insert("reverse".to_owned(), reverse);
        }
        all.insert(
            screen.name(),
            json!({ "type": "object", "properties": properties, "additionalProperties": false }),
        );
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of obol's console",
        "type": "object",
        "properties": all,
        "additionalProperties": false,
        "$defs": {
            "keys": {
                "type": "array",
                "items": { "type": "string", "pattern": pattern },
                "uniqueItems": true,
            },
        },
    })
}
