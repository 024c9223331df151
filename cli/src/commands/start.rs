//! `obol start`.

use crate::ending::{self, Target};
use clap::Args;
use obol_console::output::Failure;
use obol_fabric::Name;
use std::path::Path;
use std::process::ExitCode;

/// Start a process of the cluster that is down
#[derive(Debug, Args)]
pub(crate) struct Start {
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(root: &Path, cluster: Name, args: &Start) -> Result<ExitCode, Failure> {
    ending::start(root, cluster, &args.target.target)
}
