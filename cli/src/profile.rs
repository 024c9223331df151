//! `obol profile`: show and check profiles.

use crate::cli::ProfileCommand;
use obol_console::output::{self, Failure};
use obol_profiles::{BUILTIN, Profile};
use std::process::ExitCode;

pub(crate) fn run(command: &ProfileCommand) -> Result<ExitCode, Failure> {
    match command {
        ProfileCommand::List => {
            for name in BUILTIN {
                let profile = Profile::builtin(name).map_err(Failure::failed)?;
                output::line(format_args!("{name:<12} {}", profile.description))?;
            }
        }
        ProfileCommand::Show { profile } => {
            let profile = Profile::load(profile).map_err(Failure::refused)?;
            output::text(&profile.to_toml())?;
        }
        ProfileCommand::Check { file } => {
            let profile = Profile::load(&file.to_string_lossy()).map_err(Failure::refused)?;
            output::line(format_args!("{} is a good profile ({})", file.display(), profile.name))?;
        }
        ProfileCommand::Reference => output::bytes(Profile::reference().as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}
