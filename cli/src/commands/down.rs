//! `obol down`.

use crate::ending;
use clap::Args;
use obol_console::output::Failure;
use obol_fabric::Name;
use std::path::Path;
use std::process::ExitCode;

/// End a cluster, and clean up what a crashed `up` left behind
#[derive(Debug, Args)]
#[command(
    after_help = "What owns memory in the cluster is killed with it: also a program with a core of its own, and a server of \
        the cache, that a user has started. A program that is attached to an agent goes on, and is told that its agent died; \
        only where no `obol up` answers it is killed, too."
)]
pub(crate) struct Down;

pub(crate) fn run(root: &Path, cluster: Name, _: &Down) -> Result<ExitCode, Failure> {
    ending::down(root, cluster)
}
