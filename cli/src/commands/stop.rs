//! `obol stop`.

use crate::ending::{self, Target};
use clap::Args;
use obol_console::output::Failure;
use obol_fabric::Name;
use std::path::Path;
use std::process::ExitCode;

/// Let a process leave the cluster gracefully and end, without counting as failed
#[derive(Debug, Args)]
pub(crate) struct Stop {
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(root: &Path, cluster: Name, args: &Stop) -> Result<ExitCode, Failure> {
    ending::stop(root, cluster, &args.target.target)
}
