//! `obol mark`: an annotation for every console and recording of a cluster.

use clap::Args;
use obol_console::output::Failure;
use obol_console::poll::Place;
use obol_fabric::Name;
use std::path::Path;
use std::process::ExitCode;

/// Note something for every console and recorder of the cluster: it divides before from after
#[derive(Debug, Args)]
#[command(
    after_help = "Consoles count joins, graceful leaves and failures since the newest note, and compare latencies on its two sides.\n\
    \nExample: obol mark \"deploy 1.4\""
)]
pub(crate) struct Mark {
    /// What to note, on one line
    text: String,
}

pub(crate) fn run(root: &Path, cluster: Name, args: &Mark) -> Result<ExitCode, Failure> {
    obol_console::mark(&Place { root: root.to_owned(), cluster }, &args.text)
}
