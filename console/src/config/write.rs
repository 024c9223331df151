//! A complete configuration as text, including defaults.

use super::read::CONTEXTS;
use super::{AUTO, Config, screens};
use crate::theme::Theme;
use std::fmt::Write as _;
use toml::Value;

/// All keys, as a template from which a user removes what should keep its default.
pub(super) fn text(config: &Config) -> String {
    let mut text =
        String::from("# What is left out has its default: `obol config schema` describes all keys.\n");
    line(&mut text, "theme", &Value::from(config.theme.map_or(AUTO, Theme::name)));
    line(&mut text, "mouse", &Value::from(!config.no_mouse));
    text.push_str("\n# Each key has one action. Digits select screens. An action without keys is run by its name, in the palette.\n[keys]\n");
    for (binding, keys) in config.keymap.iter() {
        line(
            &mut text,
            binding.name,
            &Value::from(keys.iter().map(|press| press.name()).collect::<Vec<_>>()),
        );
    }
    for screen in screens() {
        let (shown, columns) = (config.of(screen.id()), screen.columns());
        let head = |at: &usize| columns.get(*at).map(|column| column.head);
        let order = shown.columns.unwrap_or_else(|| (0..columns.len()).collect());
        // Writing to a string cannot fail.
        let _ = write!(text, "\n[{}]\n", screen.name());
        line(&mut text, "columns", &Value::from(order.iter().filter_map(head).collect::<Vec<_>>()));
        if screen.about().can_sort {
            line(&mut text, "sort", &Value::from(shown.sort.as_ref().and_then(head).unwrap_or(AUTO)));
            line(&mut text, "reverse", &Value::from(shown.reverse));
        }
    }
    for context in &config.contexts {
        let mut head = toml::Table::new();
        head.insert("root".to_owned(), Value::from(context.location.root.to_string_lossy().into_owned()));
        head.insert("cluster".to_owned(), Value::from(context.location.cluster.as_str()));
        head.extend(context.theme.map(|theme| ("theme".to_owned(), Value::from(theme.name()))));
        head.insert("production".to_owned(), Value::from(context.production));
        // A name is quoted where it needs that, as a key of a table is.
        let _ = write!(text, "\n[{CONTEXTS}.{}]\n", Value::from(context.name.as_str()));
        head.iter().for_each(|(key, value)| line(&mut text, key, value));
    }
    text
}

fn line(text: &mut String, key: &str, value: &Value) {
    let _ = writeln!(text, "{key} = {value}");
}
