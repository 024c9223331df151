//! `obol profile`: show and check profiles.

use clap::Subcommand;
use obol_config::PlacedProblem;
use obol_fabric::Name;
use obol_profiles::{BUILTIN, KeyMeaning, Profile};
use obol_term::output::{self, Failure};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show and check profiles: every constant of a deployment
#[derive(Debug, Subcommand)]
pub(crate) enum ProfileCommand {
    /// List the built-in profiles
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a profile with every constant
    Show {
        /// Profile: a name that `obol profile list` knows, or a file
        profile: String,
        /// Print one JSON object, with the keys and values of the file
        #[arg(long)]
        json: bool,
    },
    /// Check a profile file; every mistake is named with line and column
    Check {
        /// The file
        file: PathBuf,
        /// Print one JSON object for scripts
        #[arg(long)]
        json: bool,
    },
    /// Print what each constant means, its unit and bounds
    Reference {
        /// Print one JSON object for scripts
        #[arg(long)]
        json: bool,
    },
}

/// A built-in profile, in JSON.
#[derive(Serialize)]
struct ListedJson {
    name: &'static str,
    description: String,
}

/// What `profile check` found, in JSON.
#[derive(Serialize)]
struct CheckJson<'a> {
    file: String,
    /// Its name; none if it has faults.
    name: Option<String>,
    problems: &'a [PlacedProblem],
}

#[derive(Serialize)]
struct ReferenceJson {
    keys: Vec<KeyMeaning>,
    /// Between keys.
    rules: Vec<String>,
}

fn list(json: bool) -> Result<(), Failure> {
    let mut all = Vec::new();
    for name in BUILTIN {
        let Profile { description, .. } = Profile::builtin(name).map_err(Failure::failed)?;
        all.push(ListedJson { name, description });
    }
    output::json_or(json, &all, |all| {
        all.iter().try_for_each(|one| output::line(format_args!("{:<12} {}", one.name, one.description)))
    })?;
    Ok(())
}

fn check(file: &Path, json: bool) -> Result<(), Failure> {
    let path = file.to_string_lossy().into_owned();
    let found = Profile::load(&path);
    let (name, problems) = match &found {
        Ok(profile) => (Some(profile.name.to_string()), &[][..]),
        Err(error) => (None, error.problems()),
    };
    // What cannot be read at all has an error and no faults.
    if json && (name.is_some() || !problems.is_empty()) {
        output::json(&CheckJson { file: path, name, problems })?;
    }
    let profile = found.map_err(Failure::refused)?;
    if !json {
        output::line(format_args!("{} is a good profile ({})", file.display(), profile.name))?;
    }
    Ok(())
}

pub(crate) fn run(_: &Path, _: Name, command: &ProfileCommand) -> Result<ExitCode, Failure> {
    match command {
        ProfileCommand::List { json } => list(*json)?,
        ProfileCommand::Show { profile, json } => {
            let profile = Profile::load(profile).map_err(Failure::refused)?;
            output::toml_or_json(*json, &profile.to_toml())?;
        }
        ProfileCommand::Check { file, json } => check(file, *json)?,
        ProfileCommand::Reference { json: true } => {
            output::json(&ReferenceJson { keys: Profile::keys(), rules: Profile::rules() })?;
        }
        ProfileCommand::Reference { json: false } => output::bytes(Profile::reference().as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}
