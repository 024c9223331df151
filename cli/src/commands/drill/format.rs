//! How `obol drill run` prints its result.

use super::text::print;
use clap::ValueEnum;
use obol_chaos::drillfile::{self, Drill};
use obol_chaos::drills::Journal;
use obol_chaos::drills::report::{annotated_faults, annotated_refusal, annotations, junit, junit_refused};
use obol_observe::calendar::unix_now;
use obol_term::output::{self, Failure};
use std::io;

/// A format of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
    Junit,
    Github,
}

/// The drill file as its repository knows it; `None` for a drill that ships.
fn path(drill: &str) -> Option<&str> {
    let is_path = drill.contains('/') || drill.ends_with(".toml");
    is_path.then(|| drill.strip_prefix("./").unwrap_or(drill))
}

impl Format {
    /// Prints the result of a run. `name` is the drill as it was named, `text` its file's.
    pub(super) fn print(self, name: &str, drill: &Drill, text: &str, journal: &Journal) -> io::Result<()> {
        match self {
            Self::Text => print(journal),
            Self::Json => output::json(journal),
            Self::Junit => output::text(&junit(journal)),
            Self::Github => {
                print(journal)?;
                annotations(journal, drill, path(name), text).into_iter().try_for_each(output::line)
            }
        }
    }

    /// Prints that a run did not begin, or gave no result, where the format has a form for that.
    pub(super) fn refused(self, name: &str, failure: &Failure) -> io::Result<()> {
        match self {
            Self::Text | Self::Json => Ok(()),
            Self::Junit => {
                output::text(&junit_refused(name, unix_now() / 1_000_000_000, &failure.to_string()))
            }
            Self::Github => match drillfile::load(name) {
                Err(error) => annotated_faults(&error).into_iter().try_for_each(output::line),
                Ok(_) => output::line(annotated_refusal(&failure.to_string())),
            },
        }
    }
}
