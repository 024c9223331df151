//! `obol record`: what the console sees, to a file.

use clap::Args;
use obol_console::ClusterLocation;
use obol_console::options::duration;
use obol_console::output::Failure;
use obol_fabric::Name;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Record a cluster to a file until Ctrl-C; `replay` shows it again
#[derive(Debug, Args)]
#[command(
    after_help = "Each sample is complete: a recording whose writer was killed can be replayed up to that point."
)]
pub(crate) struct Record {
    /// The file; one that is there already is not overwritten
    file: PathBuf,
    /// End by itself after this time, such as 20s or 1500ms
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    time: Option<Duration>,
}

pub(crate) fn run(root: &Path, cluster: Name, args: &Record) -> Result<ExitCode, Failure> {
    obol_console::record(ClusterLocation { root: root.to_owned(), cluster }, &args.file, args.time)
}
