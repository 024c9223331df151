//! `obol replay`: a recording on the console's screens.

use clap::Args;
use obol_console::options::Look;
use obol_fabric::Name;
use obol_term::output::Failure;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show a recording on the console's screens
#[derive(Debug, Args)]
#[command(
    after_help = "Space plays and stops, < and > change the speed, [ and ] step, { and } jump to view changes, ? shows all keys."
)]
pub(crate) struct Replay {
    /// The recording
    file: PathBuf,
    #[command(flatten)]
    look: Look,
}

pub(crate) fn run(_: &Path, _: Name, args: &Replay) -> Result<ExitCode, Failure> {
    obol_console::replay(&args.file, &args.look)
}
