//! Which lines are written: a severity for all modules, and others for some.

use obol_config::nearest;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something does not work, and needs an operator.
    Error,
    /// Something is wrong, or was: an exclusion, a takeover, a refusal.
    Warn,
    /// What happens rarely and is in order: a start, a join, a view.
    Info,
    /// Each step of a view change.
    Debug,
    /// Everything else.
    Trace,
}

impl Severity {
    /// All of them, the worst first.
    pub const ALL: [Self; 5] = [Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace];

    /// Its name in logs and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }

    /// Its number in syslog and the journal.
    pub const fn priority(self) -> u8 {
        match self {
            Self::Error => 3,
            Self::Warn => 4,
            Self::Info => 6,
            Self::Debug | Self::Trace => 7,
        }
    }

    /// The severity of a number in the journal.
    pub const fn of_priority(priority: u8) -> Self {
        match priority {
            0..=3 => Self::Error,
            4 => Self::Warn,
            5 | 6 => Self::Info,
            _ => Self::Debug,
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Severity {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        let found = Self::ALL.into_iter().find(|one| one.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| {
            LevelError::unknown("level", text, Self::ALL.iter().map(|one| one.name()).chain([OFF]))
        })
    }
}

impl From<&tracing::Level> for Severity {
    fn from(level: &tracing::Level) -> Self {
        match *level {
            tracing::Level::ERROR => Self::Error,
            tracing::Level::WARN => Self::Warn,
            tracing::Level::INFO => Self::Info,
            tracing::Level::DEBUG => Self::Debug,
            tracing::Level::TRACE => Self::Trace,
        }
    }
}

/// Writes no line.
const OFF: &str = "off";

/// The modules that write lines, and what they write.
pub const MODULES: [(&str, &str); 9] = [
    ("process", "start, end and scheduling of a process"),
    ("membership", "the protocol, from the flight recorder: joins, views, suspicions, exclusions"),
    ("fabric", "connections to other hosts, refused datagrams and notices"),
    ("gateway", "who was admitted and refused at the gateway of a host"),
    ("kv", "the states of a server of the cache"),
    ("run", "the program that `obol run` keeps"),
    ("up", "the processes that `obol up` starts"),
    ("drill", "faults and verdicts"),
    ("hooks", "deliveries of hooks"),
];

/// Why a text is not a choice of levels.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LevelError {
    /// There is no such level or module.
    #[error("{text:?} is not a {what}; there are: {known}{}", .near.map(|near| format!("; did you mean {near}?")).unwrap_or_default())]
    Unknown {
        /// Level or module.
        what: &'static str,
        /// What was given.
        text: String,
        known: String,
        /// The most similar of these.
        near: Option<&'static str>,
    },
}

impl LevelError {
    fn unknown(what: &'static str, text: &str, known: impl Iterator<Item = &'static str> + Clone) -> Self {
        let near = nearest(text, known.clone());
        let known: Vec<&str> = known.collect();
        Self::Unknown { what, text: text.chars().take(40).collect(), known: known.join(", "), near }
    }
}

/// The least severity that is written; `None` for no line at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Filter(pub Option<Severity>);

impl Filter {
    fn takes(self, severity: Severity) -> bool {
        self.0.is_some_and(|least| severity <= least)
    }
}

impl FromStr for Filter {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        if text.eq_ignore_ascii_case(OFF) {
            return Ok(Self(None));
        }
        text.parse().map(|severity| Self(Some(severity)))
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0.map_or(OFF, Severity::name))
    }
}

/// A change of levels: `debug` for all modules, `membership=debug` for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    module: Option<&'static str>,
    filter: Filter,
}

impl FromStr for Change {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        let Some((module, filter)) = text.split_once('=') else {
            return Ok(Self { module: None, filter: text.parse()? });
        };
        let known = || MODULES.into_iter().map(|(name, _)| name);
        let found = known().find(|name| *name == module);
        let module = found.ok_or_else(|| LevelError::unknown("module", module, known()))?;
        Ok(Self { module: Some(module), filter: filter.parse()? })
    }
}

/// The levels of a process. As text: `info,membership=debug`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Levels {
    all: Filter,
    modules: Vec<(&'static str, Filter)>,
}

impl Default for Levels {
    fn default() -> Self {
        Self { all: Filter(Some(Severity::Info)), modules: Vec::new() }
    }
}

impl Levels {
    /// Applies a change.
    pub fn set(&mut self, Change { module, filter }: Change) {
        let Some(module) = module else {
            *self = Self { all: filter, modules: Vec::new() };
            return;
        };
        self.modules.retain(|(known, _)| *known != module);
        if filter != self.all {
            self.modules.push((module, filter));
            self.modules.sort_unstable_by_key(|(name, _)| *name);
        }
    }

    /// Applies changes that are made together: a level for all does not undo one of a module among them.
    pub fn set_all(&mut self, changes: &mut [Change]) {
        changes.sort_by_key(|change| change.module.is_some());
        changes.iter().for_each(|change| self.set(*change));
    }

    /// The level of a module. One that is not listed has that of all.
    pub fn of(&self, module: &str) -> Filter {
        let own = self.modules.iter().find(|(known, _)| *known == module);
        own.map_or(self.all, |(_, filter)| *filter)
    }

    /// Whether a line of this module is written.
    pub fn takes(&self, module: &str, severity: Severity) -> bool {
        self.of(module).takes(severity)
    }
}

impl FromStr for Levels {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        let mut levels = Self::default();
        let changes = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let mut changes: Vec<Change> = changes.map(str::parse).collect::<Result<_, _>>()?;
        levels.set_all(&mut changes);
        Ok(levels)
    }
}

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.all)?;
        self.modules.iter().try_for_each(|(name, filter)| write!(f, ",{name}={filter}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(text: &str) -> Levels {
        text.parse().expect("levels")
    }

    #[test]
    fn levels_are_read_as_they_are_shown() {
        for text in ["info", "off", "warn,fabric=trace,membership=debug"] {
            assert_eq!(levels(text).to_string(), text);
        }
        assert_eq!(levels("").to_string(), "info");
        assert_eq!(levels("membership=debug, warn").to_string(), "warn,membership=debug");
    }

    #[test]
    fn a_level_for_all_undoes_those_of_modules_unless_they_are_given_with_it() {
        let change = |text: &str| text.parse::<Change>().expect("a change");
        let mut levels = levels("info,membership=debug");
        levels.set_all(&mut [change("info")]);
        assert_eq!(levels.to_string(), "info");
        levels.set_all(&mut [change("fabric=trace"), change("warn")]);
        assert_eq!(levels.to_string(), "warn,fabric=trace");
    }

    #[test]
    fn a_module_has_its_own_level_or_that_of_all() {
        let levels = levels("warn,membership=debug,fabric=off");
        assert!(levels.takes("membership", Severity::Debug) && !levels.takes("membership", Severity::Trace));
        assert!(levels.takes("process", Severity::Warn) && !levels.takes("process", Severity::Info));
        assert!(!levels.takes("fabric", Severity::Error));
    }

    #[test]
    fn a_change_of_a_module_leaves_the_other_levels() {
        let mut levels = levels("info,membership=debug");
        for (change, then) in [
            ("fabric=trace", "info,fabric=trace,membership=debug"),
            ("membership=info", "info,fabric=trace"),
            ("error", "error"),
        ] {
            levels.set(change.parse().expect("a change"));
            assert_eq!(levels.to_string(), then);
        }
    }

    #[test]
    fn a_wrong_name_is_refused_with_the_nearest_one() {
        let refused = |text: &str| text.parse::<Change>().expect_err("refused").to_string();
        assert!(
            refused("membrship=debug").ends_with("did you mean membership?"),
            "{}",
            refused("membrship=debug")
        );
        assert!(refused("debgu").contains("not a level"), "{}", refused("debgu"));
        assert!(refused("run=loud").contains("error, warn, info, debug, trace, off"));
    }
}
