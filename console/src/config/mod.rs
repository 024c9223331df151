//! The user's configuration of a console: theme, keys, and each screen's columns and order.
//!
//! Its keys follow from the console's own tables (`input::BINDINGS`, the screens' columns), so
//! names in files and on screens agree.

mod options;
mod read;
pub mod schema;
mod write;

use crate::contexts::Context;
use crate::input::Keymap;
use crate::screens::{self, Screen};
use crate::state::{Model, ScreenId};
use crate::theme::Theme;
use obol_config::PlacedProblem;
use obol_node::user;
use obol_term::output::{self, Failure};
pub use options::ConfigCommand;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Leaves the theme to the terminal, and the order to the screen.
const AUTO: &str = "auto";
/// Kind of file, for errors.
const KIND: &str = "configuration of the console";

/// Tables of screens that had another name, which older files still have.
pub(super) const RENAMED_TABLES: [(&str, &str); 1] = [("logs", "stores")];

/// How a screen's list is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shown {
    /// Its columns in order; `None` for all of them.
    columns: Option<Vec<usize>>,
    /// The column that it is sorted by.
    sort: Option<usize>,
    reverse: bool,
}

/// A configuration; the default is the console without a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// `None`: the best that the terminal can show.
    pub(super) theme: Option<Theme>,
    keymap: Keymap,
    /// Whether the terminal keeps the mouse.
    no_mouse: bool,
    shown: Vec<(ScreenId, Shown)>,
    /// Clusters by their names in it.
    pub(super) contexts: Vec<Context>,
}

impl Config {
    /// The given file, or the user's own if there is one.
    pub fn load(asked: Option<&Path>) -> Result<Self, Failure> {
        let Some((text, origin)) = text_of(asked)? else { return Ok(Self::default()) };
        read::read(&text, &origin).map_err(Failure::refused)
    }

    /// Applies keys and lists to a console.
    pub(super) fn apply(&self, model: &mut Model) {
        model.mouse = !self.no_mouse;
        model.keymap = Arc::new(self.keymap.clone());
        for (screen, shown) in &self.shown {
            let list = model.list_mut(*screen);
            list.columns.clone_from(&shown.columns);
            // Otherwise the remembered order stays.
            if shown.sort.is_some() || shown.reverse {
                (list.sort, list.reverse) = (shown.sort, shown.reverse);
            }
        }
    }

    fn of(&self, screen: ScreenId) -> Shown {
        self.shown
            .iter()
            .find(|(of, _)| *of == screen)
            .map_or_else(Shown::default, |(_, shown)| shown.clone())
    }
}

/// The text of the given file, or of the user's own if there is one, with its origin.
fn text_of(asked: Option<&Path>) -> Result<Option<(String, String)>, Failure> {
    let Some(path) = asked.map(Path::to_owned).or_else(|| own().filter(|path| path.exists())) else {
        return Ok(None);
    };
    let origin = path.display().to_string();
    let text = obol_config::text(&origin, KIND).map_err(|error| {
        Failure::Refused(format!("{error}; `obol config print` prints one to start from"))
    })?;
    Ok(Some((text, origin)))
}

/// `$XDG_CONFIG_HOME/obol/console.toml`.
fn own() -> Option<PathBuf> {
    of_user("XDG_CONFIG_HOME", ".config")
}

/// The console's file in a user folder, given by the variable or else by its default below the home
/// directory.
pub(super) fn of_user(variable: &str, at_home: &str) -> Option<PathBuf> {
    Some(user::folder(variable, at_home)?.join("obol/console.toml"))
}

/// The screens whose lists can be configured.
pub(super) fn screens() -> impl Iterator<Item = &'static dyn Screen> {
    screens::everywhere().filter(|screen| screen.about().has_choice_of_columns)
}

/// What `config check` found, in JSON.
#[derive(Serialize)]
struct CheckJson<'a> {
    /// The file; none if the user has no place for one.
    file: Option<String>,
    /// Whether it is there; otherwise the console has its defaults.
    exists: bool,
    problems: &'a [PlacedProblem],
}

fn check(asked: Option<&Path>, json: bool) -> Result<(), Failure> {
    let path = asked.map(Path::to_owned).or_else(own);
    let file = path.as_ref().map(|path| path.display().to_string());
    let exists = path.as_ref().is_some_and(|path| path.exists());
    if let Some((text, origin)) = text_of(asked)?
        && let Err(error) = read::read(&text, &origin)
    {
        if json {
            output::json(&CheckJson { file, exists, problems: error.problems() })?;
        }
        return Err(Failure::refused(error));
    }
    output::json_or(json, &CheckJson { file, exists, problems: &[] }, |found| {
        output::line(match &found.file {
            Some(path) if exists => format!("{path} is a valid {KIND}"),
            Some(path) => format!("there is no {path}, so the console has its defaults"),
            None => "neither XDG_CONFIG_HOME nor HOME is set, so the console has its defaults".to_owned(),
        })
    })?;
    Ok(())
}

/// `obol config`.
pub fn run(command: &ConfigCommand) -> Result<ExitCode, Failure> {
    match command {
        ConfigCommand::Check { file, json } => check(file.as_deref(), *json)?,
        ConfigCommand::Print { file, json } => {
            output::toml_or_json(*json, &write::text(&Config::load(file.as_deref())?))?;
        }
        ConfigCommand::Schema => output::line(format_args!("{:#}", schema::schema()))?,
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests;

/// Entry points for the console's fuzz targets.
#[cfg(test)]
pub(super) mod fuzz {
    use super::{Config, read, write};

    /// The text of the default configuration.
    pub(crate) fn default_text() -> String {
        write::text(&Config::default())
    }

    /// Parses a text: a rejected one has a line for each error, an accepted one is written and
    /// parsed as the same.
    pub(crate) fn read(text: &str) -> u64 {
        match read::read(text, "any.toml") {
            Ok(config) => {
                let written = write::text(&config);
                let again =
                    read::read(&written, "written").unwrap_or_else(|error| panic!("{error}\n{written}"));
                assert_eq!(write::text(&again), written);
                obol_fuzz::outcome(written)
            }
            Err(error) => obol_fuzz::outcome(error.to_string().lines().count()),
        }
    }
}
