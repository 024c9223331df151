//! Reads the command line.

mod daemon;
mod elsewhere;
#[cfg(test)]
mod former;
#[cfg(test)]
mod reference;

use crate::commands::root::{Cli, command};
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind as Kind};
use clap::{Command, FromArgMatches};
use daemon::Daemon;
pub(crate) use elsewhere::elsewhere;
use elsewhere::in_two_words;
use obol_term::output::{self, Failure};
use obol_term::plain;
use std::borrow::Cow;
use std::io::ErrorKind;

impl Cli {
    /// Reads the command line, or says what is wrong with it and ends the process.
    pub(crate) fn read() -> Self {
        if let Some(daemon) = Daemon::read() {
            return daemon;
        }
        let command = command().color(colours());
        let line = in_two_words(&command, std::env::args_os().collect());
        let parsed = command.clone().try_get_matches_from(line);
        parsed.and_then(|found| Self::from_arg_matches(&found)).unwrap_or_else(|mut error| {
            let shown =
                |name: &String| command.find_subcommand(name).is_none_or(|found| !found.is_hide_set());
            // The library would list the daemons' commands, too, and propose them for a mistyped
            // one.
            for kind in [ContextKind::ValidSubcommand, ContextKind::SuggestedSubcommand] {
                match error.remove(kind) {
                    Some(ContextValue::Strings(mut names)) => {
                        names.retain(shown);
                        if !names.is_empty() {
                            error.insert(kind, ContextValue::Strings(names));
                        }
                    }
                    Some(other) => drop(error.insert(kind, other)),
                    None => {}
                }
            }
            point_elsewhere(&command, &mut error);
            // What was typed may come from a file, and the library repeats it as it is.
            let shown = error.render().to_string();
            if let Cow::Owned(neutral) = plain::lines(&shown) {
                // The exit code counts if the text cannot be written.
                let _ = output::remark(neutral.trim_end());
                std::process::exit(error.exit_code());
            }
            // The library would not say that a help could not be written.
            match error.print() {
                Err(why) if error.exit_code() == 0 && why.kind() != ErrorKind::BrokenPipe => {
                    // The exit code counts if nobody reads this.
                    let _ = output::complain(&Failure::Output(why));
                    std::process::exit(output::UNWRITTEN.into());
                }
                _ => std::process::exit(error.exit_code()),
            }
        })
    }
}

/// Adds to the error of an unknown word which commands have it.
fn point_elsewhere(command: &Command, error: &mut clap::Error) {
    let is_word = |argument: &str| argument.starts_with(['<', '[']);
    let word = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (Kind::InvalidSubcommand, _) => error.get(ContextKind::InvalidSubcommand),
        (Kind::InvalidValue, Some(ContextValue::String(argument))) if is_word(argument) => {
            error.get(ContextKind::InvalidValue)
        }
        _ => None,
    };
    let Some(ContextValue::String(word)) = word else { return };
    let tips: Vec<StyledStr> =
        elsewhere(command, word).iter().map(|line| format!("this is a command: '{line}'").into()).collect();
    if !tips.is_empty() {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
}

/// Whether help and errors may be coloured. Left to itself, the library also colours on terminals
/// that know no escape codes as soon as the variable CI is set.
fn colours() -> clap::ColorChoice {
    match std::env::var_os("TERM") {
        Some(term) if term == "dumb" => clap::ColorChoice::Never,
        _ => clap::ColorChoice::Auto,
    }
}
