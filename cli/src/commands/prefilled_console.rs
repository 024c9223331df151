//! `obol prefilled-console`: the console that `bench console` measures.

use clap::Args;
use obol_fabric::Name;
use obol_node::ClusterLocation;
use obol_term::output::Failure;
use std::path::Path;
use std::process::ExitCode;

/// A console that has an hour of history (started by `bench console`)
#[derive(Debug, Args)]
pub(crate) struct PrefilledConsole;

pub(crate) fn run(root: &Path, cluster: Name, _: &PrefilledConsole) -> Result<ExitCode, Failure> {
    obol_console::aged(ClusterLocation { root: root.to_owned(), cluster })
}
