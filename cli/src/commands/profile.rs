//! `obol profile`: show and check profiles.

use clap::Subcommand;
use obol_console::output::{self, Failure};
use obol_fabric::Name;
use obol_profiles::{BUILTIN, Profile};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show and check profiles: every constant of a deployment
#[derive(Debug, Subcommand)]
pub(crate) enum ProfileCommand {
    /// List the built-in profiles
    List,
    /// Print a profile with every constant
    Show {
        /// Profile: a name that `obol profile list` knows, or a file
        profile: String,
    },
    /// Check a profile file; every mistake is named with line and column
    Check {
        /// The file
        file: PathBuf,
    },
    /// Print what each constant means, its unit and bounds
    Reference,
}

pub(crate) fn run(_: &Path, _: Name, command: &ProfileCommand) -> Result<ExitCode, Failure> {
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
