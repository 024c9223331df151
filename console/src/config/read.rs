//! Parses a text into a configuration, or into a list of all problems.

use super::{AUTO, Config, RENAMED_TABLES, Shown, screens};
use crate::input::{Action, BINDINGS, NAMED, Press};
use crate::theme::Theme;
use obol_profiles::document::{Faults, bare, found, nearest, shortened};
use obol_profiles::{Fault, FileError};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The table of keys.
const KEYS: &str = "keys";
/// Keys of a screen's table if its rows can be sorted, and if not.
const LIST: [&str; 3] = ["columns", "sort", "reverse"];
/// Columns that had another name, which older configurations still have.
const RENAMED: [(&str, &str); 1] = [("LEVEL", "DETECTOR")];
type Value<'i> = Spanned<DeValue<'i>>;

/// Parses `text`; problems are reported with line and column in `origin`.
pub(super) fn read(text: &str, origin: &str) -> Result<Config, FileError> {
    let (document, syntax) = DeTable::parse_recoverable(text);
    let mut reader = Reader::default();
    reader.document(document.get_ref());
    if !syntax.is_empty() {
        reader.faults.with_syntax(text, &syntax);
    }
    reader.faults.judge(Some(reader.config), text, origin)
}

#[derive(Default)]
struct Reader {
    config: Config,
    faults: Faults,
}

impl Reader {
    fn document(&mut self, document: &DeTable<'_>) {
        let tables = || [KEYS.to_owned()].into_iter().chain(screens().map(|screen| screen.name()));
        for (name, value) in document {
            let written = name.get_ref().as_ref();
            let present = RENAMED_TABLES.iter().find(|(former, _)| *former == written);
            // The table with the present name counts if there are both.
            let present = present.filter(|(_, present)| !document.contains_key(*present));
            let written = present.map_or(written, |(_, present)| *present);
            match value.get_ref() {
                _ if written == "theme" => self.theme(value),
                DeValue::Boolean(mouse) if written == "mouse" => self.config.no_mouse = !*mouse,
                other if written == "mouse" => self.wrong(value, written, other, "true or false"),
                DeValue::Table(table) if written == KEYS => self.keys(table),
                DeValue::Table(table) if tables().any(|known| known == written) => {
                    self.screen(written, table);
                }
                other if tables().any(|known| known == written) => {
                    self.wrong(value, written, other, "a table");
                }
                other => {
                    let known: Vec<String> =
                        tables().chain(["theme".to_owned(), "mouse".to_owned()]).collect();
                    let nearest =
                        nearest(written, known.iter().map(String::as_str)).map(|n| n.to_owned().into());
                    let fault = if other.is_table() {
                        Fault::UnknownTable { table: bare(written), nearest }
                    } else {
                        Fault::UnknownKey { key: bare(written), nearest }
                    };
                    self.faults.add(name.span().start, fault);
                }
            }
        }
    }

    fn wrong(&mut self, at: &Value<'_>, key: &str, value: &DeValue<'_>, wanted: &str) {
        let fault =
            Fault::WrongType { key: key.to_owned().into(), found: found(value), wanted: wanted.to_owned() };
        self.faults.add(at.span().start, fault);
    }

    fn unknown(&mut self, at: usize, table: &str, written: &str, known: &[&str]) {
        let nearest = nearest(written, known.iter().copied()).map(|name| format!("{table}.{name}").into());
        self.faults.add(at, Fault::UnknownKey { key: format!("{table}.{}", bare(written)), nearest });
    }

    /// The index of a text among the options of a key.
    fn choice(&mut self, key: &str, value: &Value<'_>, options: &[&str]) -> Option<usize> {
        let Some(text) = value.get_ref().as_str() else {
            self.wrong(value, key, value.get_ref(), "a string");
            return None;
        };
        let present = RENAMED.iter().find(|(former, _)| *former == text).map_or(text, |(_, present)| present);
        let place = options.iter().position(|option| *option == present);
        if place.is_none() {
            let fold = |option: &&&str| option.eq_ignore_ascii_case(text);
            let near = options.iter().find(fold).copied().or_else(|| nearest(text, options.iter().copied()));
            let fault = Fault::Choice {
                key: key.to_owned().into(),
                found: shortened(text),
                options: options.iter().map(|option| (*option).to_owned().into()).collect(),
                nearest: near.map(|name| name.to_owned().into()),
            };
            self.faults.add(value.span().start, fault);
        }
        place
    }

    fn theme(&mut self, value: &Value<'_>) {
        let names: Vec<&str> = [AUTO].into_iter().chain(Theme::NAMES.iter().copied()).collect();
        if let Some(at) = self.choice("theme", value, &names) {
            self.config.theme = names[at].parse().ok();
        }
    }

    /// The keys. An action that is not named keeps its default keys, which no other may use.
    fn keys(&mut self, table: &DeTable<'_>) {
        let names: Vec<&str> = BINDINGS.iter().map(|binding| binding.name).collect();
        let mut given: Vec<(Action, Press, usize)> = Vec::new();
        for (name, value) in table {
            let Some(binding) = BINDINGS.iter().find(|binding| binding.name == name.get_ref()) else {
                self.unknown(name.span().start, KEYS, name.get_ref(), &names);
                continue;
            };
            let key = format!("{KEYS}.{}", binding.name);
            let DeValue::Array(items) = value.get_ref() else {
                self.wrong(value, &key, value.get_ref(), "an array of keys, such as [\"q\", \"Ctrl-C\"]");
                continue;
            };
            let pressed: Vec<(Press, usize)> =
                items.iter().filter_map(|item| Some((self.press(&key, item)?, item.span().start))).collect();
            // Quit and abort must always be possible.
            if items.is_empty() && matches!(binding.action, Action::Quit | Action::AbortDrill) {
                let rule = "quit and abort-drill need a key";
                self.faults
                    .add(value.span().start, Fault::Conflict { rule, found: format!("{key} has none") });
            }
            given.extend(pressed.iter().map(|(press, at)| (binding.action, *press, *at)));
            self.config.keymap.bind(binding.action, pressed.into_iter().map(|(press, _)| press).collect());
        }
        for (n, (action, press, at)) in given.iter().enumerate() {
            let again = given[..n].iter().any(|(other, same, _)| (other, same) == (action, press));
            let mut others =
                self.config.keymap.iter().filter(|(of, keys)| of.action != *action && keys.contains(press));
            // Of two in the file, the later one is reported.
            let other = others.find(|(of, _)| {
                let place = given.iter().position(|(a, p, _)| *a == of.action && p == press);
                place.is_none_or(|place| given[place].2 < *at)
            });
            let other = other.map(|(of, _)| format!("{KEYS}.{}", of.name));
            let of =
                BINDINGS.iter().find(|binding| binding.action == *action).map_or("", |binding| binding.name);
            let other = match other {
                Some(other) => format!("{} is of {KEYS}.{of} and of {other}", press.name()),
                None if again => format!("{} is twice in {KEYS}.{of}", press.name()),
                None => continue,
            };
            let rule = "a key has one action; give the other action other keys, or none";
            self.faults.add(*at, Fault::Conflict { rule, found: other });
        }
    }

    fn press(&mut self, key: &str, value: &Value<'_>) -> Option<Press> {
        let Some(text) = value.get_ref().as_str() else {
            self.wrong(value, key, value.get_ref(), "a key, such as \"q\", \"Ctrl-R\" or \"PgUp\"");
            return None;
        };
        let press = Press::named(text);
        if press.is_none() {
            let named = NAMED.iter().map(|(name, _)| *name);
            let nearest = named
                .clone()
                .find(|name| name.eq_ignore_ascii_case(text))
                .or_else(|| nearest(text, named.clone()));
            let kinds =
                ["a character but no digit", "Ctrl- and a capital letter but H, I, J and M", "F1 to F12"];
            let fault = Fault::Choice {
                key: key.to_owned().into(),
                found: shortened(text),
                options: kinds.into_iter().chain(named).map(Into::into).collect(),
                nearest: nearest.map(Into::into),
            };
            self.faults.add(value.span().start, fault);
        }
        press
    }

    fn screen(&mut self, table: &str, entries: &DeTable<'_>) {
        let Some(screen) = screens().find(|screen| screen.name() == table) else { return };
        let heads: Vec<&str> = screen.columns().iter().map(|column| column.head).collect();
        let known = if screen.about().can_sort { &LIST[..] } else { &LIST[..1] };
        let mut shown = Shown::default();
        for (name, value) in entries {
            let written = name.get_ref().as_ref();
            let key = format!("{table}.{written}");
            match written {
                _ if !known.contains(&written) => self.unknown(name.span().start, table, written, known),
                "columns" => shown.columns = self.columns(&key, value, &heads),
                "sort" => {
                    let options: Vec<&str> = [AUTO].into_iter().chain(heads.iter().copied()).collect();
                    shown.sort = self.choice(&key, value, &options).and_then(|at| at.checked_sub(1));
                }
                _ => match value.get_ref() {
                    DeValue::Boolean(reverse) => shown.reverse = *reverse,
                    other => self.wrong(value, &key, other, "true or false"),
                },
            }
        }
        self.config.shown.push((screen.id(), shown));
    }

    fn columns(&mut self, key: &str, value: &Value<'_>, heads: &[&str]) -> Option<Vec<usize>> {
        let items = match value.get_ref() {
            DeValue::Array(items) if items.iter().next().is_some() => items,
            other => {
                self.wrong(value, key, other, "an array with at least one column");
                return None;
            }
        };
        let mut columns = Vec::new();
        for item in items.iter() {
            let Some(at) = self.choice(key, item, heads) else { continue };
            if columns.contains(&at) {
                let rule = "a column is shown once";
                let found = format!("{key} has {} again", heads[at]);
                self.faults.add(item.span().start, Fault::Conflict { rule, found });
            }
            columns.push(at);
        }
        // All columns in their own order is the default.
        (!columns.iter().copied().eq(0..heads.len())).then_some(columns)
    }
}
