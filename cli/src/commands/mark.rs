//! `obol mark`: an annotation for every console and recording of a cluster.

use clap::Args;
use obol_console::ClusterLocation;
use obol_console::output::Failure;
use obol_fabric::Name;
use std::path::Path;
use std::process::ExitCode;

/// Add an annotation to consoles and recordings; statistics before and after it are compared
#[derive(Debug, Args)]
#[command(
    after_help = "Consoles count joins, graceful leaves and failures since the newest annotation, and compare latencies on its two sides.\n\
    \nExample: obol mark \"deploy 1.4\""
)]
pub(crate) struct Mark {
    /// The annotation, on one line
    text: String,
}

pub(crate) fn run(root: &Path, cluster: Name, args: &Mark) -> Result<ExitCode, Failure> {
    obol_console::mark(&ClusterLocation { root: root.to_owned(), cluster }, &args.text)
}
