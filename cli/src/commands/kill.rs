//! `obol kill`.

use crate::ending::{self, Target};
use clap::Args;
use obol_console::output::Failure;
use obol_fabric::Name;
use std::path::Path;
use std::process::ExitCode;

/// Kill a process with SIGKILL, by name (app-2) or by role (leader)
#[derive(Debug, Args)]
pub(crate) struct Kill {
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(root: &Path, cluster: Name, args: &Kill) -> Result<ExitCode, Failure> {
    ending::kill(root, cluster, &args.target.target)
}
