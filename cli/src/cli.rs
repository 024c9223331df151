//! Reads the command line.

mod daemon;
#[cfg(test)]
mod former;
#[cfg(test)]
mod reference;

use crate::commands::root::{Cli, command};
use clap::FromArgMatches;
use clap::error::{ContextKind, ContextValue};
use daemon::Daemon;
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
        let parsed = command.clone().try_get_matches();
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

/// Whether help and errors may be coloured. Left to itself, the library also colours on terminals
/// that know no escape codes as soon as the variable CI is set.
fn colours() -> clap::ColorChoice {
    match std::env::var_os("TERM") {
        Some(term) if term == "dumb" => clap::ColorChoice::Never,
        _ => clap::ColorChoice::Auto,
    }
}
