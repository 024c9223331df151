//! `obol man`: manual pages, made of the command line's own help.

use super::root::command;
use clap::builder::Resettable;
use clap::{Args, Command};
use clap_mangen::Man;
use obol_fabric::Name;
use obol_term::output::{self, Failure};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Print the manual page of obol, or write those of all its commands
#[derive(Debug, Args)]
#[command(
    after_help = "To read it: obol man | man -l -\n\nTo install all: obol man --out /usr/local/share/man/man1"
)]
pub(crate) struct ManPages {
    /// Write a page for obol and one for each command into this directory, which must exist
    #[arg(long = "out", alias = "dir", value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// What the foot of a page says.
const SOURCE: &str = concat!("obol ", env!("CARGO_PKG_VERSION"));

/// The page of every command that operators see, obol's own first: the file that it goes to, and
/// what is in it.
pub(crate) fn pages() -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let mut whole = command().disable_help_subcommand(true);
    whole.build();
    let mut all = Vec::new();
    walk(&whole, &mut all)?;
    Ok(all)
}

fn walk(command: &Command, to: &mut Vec<(String, Vec<u8>)>) -> Result<(), Failure> {
    let page = Man::new(described(command)).source(SOURCE).manual("obol");
    let mut text = Vec::new();
    page.render(&mut text)?;
    to.push((page.get_filename(), breakable(&text)));
    command.get_subcommands().filter(|one| !one.is_hide_set()).try_for_each(|one| walk(one, to))
}

/// Lets lines end within a group of options in the synopsis, which is one word, and adds no blanks to
/// them: they are too few words for that.
fn breakable(page: &[u8]) -> Vec<u8> {
    let mut of_synopsis = false;
    let line = |line: &[u8]| {
        let text = String::from_utf8_lossy(line);
        let shown = match of_synopsis {
            true => format!(".na\n{}.ad\n", text.replace("|\\fB", "|\\:\\fB")),
            false => text.into_owned(),
        };
        of_synopsis = line.starts_with(b".SH SYNOPSIS");
        shown.into_bytes()
    };
    page.split_inclusive(|byte| *byte == b'\n').flat_map(line).collect()
}

/// The command with the help text after the options as its description, where readers of
/// manuals look.
fn described(command: &Command) -> Command {
    let Some(more) = command.get_after_help() else { return command.clone() };
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    command.clone().long_about(format!("{about}.\n\n{more}")).after_help(Resettable::Reset)
}

/// Prints the page of obol, or writes the pages of all commands.
pub(crate) fn run(_: &Path, _: Name, args: &ManPages) -> Result<ExitCode, Failure> {
    let pages = pages()?;
    match &args.dir {
        Some(dir) => {
            for (name, page) in pages {
                output::file(&dir.join(name), page)?;
            }
        }
        None => {
            if let Some((_, page)) = pages.first() {
                output::bytes(page)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_that_describes_it() {
        let pages = pages().expect("pages");
        assert!(pages.iter().any(|(name, _)| name == "obol-drill-run.1"));
        for (name, page) in pages {
            let page = String::from_utf8(page).expect("text");
            // What follows the options in the help is where readers of manuals look first.
            assert!(page.contains("DESCRIPTION") && !page.contains(".SH EXTRA"), "{name}:\n{page}");
            let synopsis = page.lines().skip_while(|line| *line != ".SH SYNOPSIS").nth(2).unwrap_or_default();
            assert!(!synopsis.contains("|\\fB"), "{name} has a word without an end: {synopsis}");
        }
    }
}
