//! Parses a text into a configuration, or into a list of all problems.

use super::{AUTO, Config, RENAMED_TABLES, Shown, screens};
use crate::contexts::Context;
use crate::input::{Action, BINDINGS, NAMED, Press};
use crate::screens::Screen;
use crate::theme::Theme;
use obol_config::{At, FileError, Problem, Problems, Section, index_of, is_line, nearest, shortened};
use obol_fabric::Name;
use obol_node::ClusterLocation;
use std::path::PathBuf;
use toml::Spanned;
use toml::de::DeValue;

/// The table of clusters.
pub(super) const CONTEXTS: &str = "contexts";
/// The table of keys.
const KEYS: &str = "keys";
/// The cluster of a context that names none.
const DEFAULT: &str = "default";
/// Length limit of a context's name.
const NAME_MAX: usize = 40;
/// Columns that had another name, which older configurations still have.
const RENAMED: [(&str, &str); 1] = [("LEVEL", "DETECTOR")];
/// Parses `text`; problems are reported with line and column in `origin`.
pub(super) fn read(text: &str, origin: &str) -> Result<Config, FileError> {
    obol_config::recover(text, origin, |top, problems| {
        let mut reader = Reader::default();
        reader.document(top, problems);
        Some(reader.config)
    })
}

#[derive(Default)]
struct Reader {
    config: Config,
}

/// The index of a text among the options of a key.
fn choice(key: &str, text: &str, options: &[&str]) -> Result<usize, Problem> {
    let present = RENAMED.iter().find(|(former, _)| *former == text).map_or(text, |(_, present)| present);
    index_of(key, present, options)
}

impl Reader {
    fn document(&mut self, top: &mut Section<'_, '_>, problems: &mut Problems) {
        let names: Vec<&str> = [AUTO].into_iter().chain(Theme::NAMES.iter().copied()).collect();
        let theme = top
            .take("theme", "a string", problems, |path, value| Some(choice(path, value.as_str()?, &names)));
        if let Some(theme) = theme {
            self.config.theme = names[theme.value].parse().ok();
        }
        if let Some(mouse) = top.flag("mouse", problems) {
            self.config.no_mouse = !mouse;
        }
        if let Some(section) = top.section(KEYS, problems) {
            section.read(problems, |section, problems| self.keys(section, problems));
        }
        if let Some(section) = top.section(CONTEXTS, problems) {
            section.read(problems, |section, problems| {
                for (name, _) in section.entries() {
                    if let Some(one) = section.section(name, problems) {
                        let read = one.read(problems, |one, problems| context(name, one, problems));
                        self.config.contexts.extend(read);
                    }
                }
            });
        }
        for screen in screens() {
            let name = screen.name();
            let former = RENAMED_TABLES.iter().find(|(_, present)| *present == name);
            // The table with the present name counts if there are both.
            let former = former.filter(|(former, _)| !top.has(&name) && top.has(former));
            let section = top.section(former.map_or(name.as_str(), |(former, _)| former), problems);
            top.accept([name.as_str()]);
            if let Some(section) = section {
                section.read(problems, |section, problems| self.screen(screen, section, problems));
            }
        }
    }

    /// The keys. An action that is not named keeps its default keys, which no other may use.
    fn keys(&mut self, section: &mut Section<'_, '_>, problems: &mut Problems) {
        let mut given: Vec<(Action, Press, usize)> = Vec::new();
        for binding in BINDINGS {
            let Some(value) = section.value(binding.name) else { continue };
            let key = section.key(binding.name);
            let DeValue::Array(items) = value.get_ref() else {
                let wanted = "an array of keys, such as [\"q\", \"Ctrl-C\"]";
                problems.wrong_type(value.span().start, &key, value.get_ref(), wanted);
                continue;
            };
            let mut pressed: Vec<(Press, usize)> = Vec::new();
            for item in items.iter() {
                pressed.extend(press(&key, item, problems).map(|press| (press, item.span().start)));
            }
            // Quit and abort must always be possible.
            if items.is_empty() && matches!(binding.action, Action::Quit | Action::AbortDrill) {
                let rule = "quit and abort-drill need a key";
                problems
                    .add(value.span().start, Problem::Conflict { rule, found: format!("{key} has none") });
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
            problems.add(*at, Problem::Conflict { rule, found: other });
        }
    }

    fn screen(
        &mut self,
        screen: &'static dyn Screen,
        section: &mut Section<'_, '_>,
        problems: &mut Problems,
    ) {
        let heads: Vec<&str> = screen.columns().iter().map(|column| column.head).collect();
        let mut shown = Shown { columns: columns(section, &heads, problems), ..Shown::default() };
        if screen.about().can_sort {
            let options: Vec<&str> = [AUTO].into_iter().chain(heads.iter().copied()).collect();
            let sort = section.take("sort", "a string", problems, |path, value| {
                Some(choice(path, value.as_str()?, &options))
            });
            shown.sort = sort.and_then(|at| at.value.checked_sub(1));
            shown.reverse = section.flag("reverse", problems).unwrap_or_default();
        }
        self.config.shown.push((screen.id(), shown));
    }
}

/// A cluster by a name of the user's own.
fn context(name: &str, section: &mut Section<'_, '_>, problems: &mut Problems) -> Option<Context> {
    let at = section.at;
    let root = section.string("root", problems);
    let root = section.need("root", "a directory, such as \"/dev/shm/obol-1000\"", root);
    let cluster = section.parsed::<Name>("cluster", "a cluster's name", problems);
    let theme = section
        .take("theme", "a string", problems, |path, value| Some(choice(path, value.as_str()?, Theme::NAMES)));
    let production = section.flag("production", problems).unwrap_or_default();
    if !is_line(name, NAME_MAX) {
        let rule = "the name of a context is a line of at most 40 characters";
        problems.add(at, Problem::Conflict { rule, found: shortened(name) });
        return None;
    }
    let root = root?;
    let path = PathBuf::from(&root.value);
    if !path.is_absolute() {
        let rule = "the root of a context is an absolute path";
        problems.add(root.at, Problem::Conflict { rule, found: shortened(&root.value) });
        return None;
    }
    let cluster = cluster.map_or_else(|| Name::new(DEFAULT), |cluster| Ok(cluster.value)).ok()?;
    Some(Context {
        name: name.to_owned(),
        location: ClusterLocation { root: path, cluster },
        theme: theme.map(|at| Theme::ALL[at.value]),
        production,
    })
}

fn press(key: &str, value: &Spanned<DeValue<'_>>, problems: &mut Problems) -> Option<Press> {
    let at = value.span().start;
    let Some(text) = value.get_ref().as_str() else {
        problems.wrong_type(at, key, value.get_ref(), "a key, such as \"q\", \"Ctrl-R\" or \"PgUp\"");
        return None;
    };
    let press = Press::named(text);
    if press.is_none() {
        let named = NAMED.iter().map(|(name, _)| *name);
        let nearest = nearest(text, named.clone());
        let kinds = ["a character but no digit", "Ctrl- and a capital letter but H, I, J and M", "F1 to F12"];
        let problem = Problem::Choice {
            key: key.to_owned().into(),
            found: shortened(text),
            options: kinds.into_iter().chain(named).map(Into::into).collect(),
            nearest: nearest.map(Into::into),
        };
        problems.add(at, problem);
    }
    press
}

fn columns(section: &mut Section<'_, '_>, heads: &[&str], problems: &mut Problems) -> Option<Vec<usize>> {
    let wanted = "an array with at least one column";
    let list = section.some_list("columns", wanted, problems, |path, text| choice(path, text, heads))?;
    let mut columns = Vec::new();
    for At { at, value: column } in list {
        if columns.contains(&column) {
            let rule = "a column is shown once";
            let found = format!("{} has {} again", section.key("columns"), heads[column]);
            problems.add(at, Problem::Conflict { rule, found });
        }
        columns.push(column);
    }
    // All columns in their own order is the default.
    (!columns.iter().copied().eq(0..heads.len())).then_some(columns)
}
