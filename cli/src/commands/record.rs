//! `obol record`: what the console sees, to a file.

use clap::Args;
use obol_config::duration;
use obol_console::RECORDING_LEAST as LIMIT_LEAST;
use obol_fabric::Name;
use obol_node::ClusterLocation;
use obol_term::options::size;
use obol_term::output::Failure;
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
    #[arg(long = "for", value_name = "TIME", value_parser = duration::argument)]
    time: Option<Duration>,
    /// The largest size of FILE and FILE.old together, such as 500MB or 4GB: at half of it, FILE is
    /// renamed to FILE.old and another one begins
    #[arg(long, value_name = "SIZE", default_value = "4GB", value_parser = limit)]
    limit: u64,
}

/// A size of a recording.
fn limit(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    if bytes < LIMIT_LEAST {
        return Err(format!("a recording needs at least {}MB", LIMIT_LEAST / 1_000_000));
    }
    Ok(bytes)
}

pub(crate) fn run(root: &Path, cluster: Name, args: &Record) -> Result<ExitCode, Failure> {
    obol_console::record(
        ClusterLocation { root: root.to_owned(), cluster },
        &args.file,
        args.time,
        args.limit,
    )
}
