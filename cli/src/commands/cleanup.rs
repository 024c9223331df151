//! `obol cleanup`, which commands start that make clusters of their own.

use clap::Args;
use obol_fabric::Name;
use obol_supervise::running;
use obol_term::output::Failure;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Removes a cluster when the command that made it has ended (started by commands with a
/// cluster of their own)
#[derive(Debug, Args)]
pub(crate) struct Cleanup {
    /// A folder of files that goes with it
    #[arg(long)]
    folder: Option<PathBuf>,
}

pub(crate) fn run(root: &Path, cluster: Name, args: &Cleanup) -> Result<ExitCode, Failure> {
    running::clean_up(root, cluster, args.folder.as_deref())?;
    Ok(ExitCode::SUCCESS)
}
