//! `obol man`: manual pages, made of the command line's own help.

use crate::cli::Cli;
use crate::output::{self, Failure};
use clap::CommandFactory as _;
use clap_mangen::Man;
use std::path::Path;
use std::process::ExitCode;

/// Prints the page of obol, or writes the pages of all commands.
pub(crate) fn run(dir: Option<&Path>) -> Result<ExitCode, Failure> {
    let command = Cli::command();
    match dir {
        Some(dir) => {
            let failed = |error| Failure::Failed(format!("{}: {error}", dir.display()));
            clap_mangen::generate_to(command, dir).map_err(failed)?;
        }
        None => {
            let mut page = Vec::new();
            Man::new(command).render(&mut page)?;
            output::bytes(&page)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
