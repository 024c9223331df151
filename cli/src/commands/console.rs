//! `obol console`: the console on a cluster that runs.

use clap::Args;
use obol_console::options::Look;
use obol_fabric::Name;
use obol_node::ClusterLocation;
use obol_term::output::Failure;
use std::path::Path;
use std::process::ExitCode;

/// Watch a cluster live: members, leases, events
#[derive(Debug, Args)]
#[command(
    after_help = "Reads the cluster's memory without involving its processes, so it can be opened and closed at any time.\n\
    In it, ? shows the keys. q quits; the cluster continues."
)]
pub(crate) struct Console {
    #[command(flatten)]
    look: Look,
    /// Let drills be armed on screen 6: a preview, the cluster's name typed, and a key
    #[arg(long)]
    arm: bool,
}

pub(crate) fn run(root: &Path, cluster: Name, args: &Console) -> Result<ExitCode, Failure> {
    obol_console::run(ClusterLocation { root: root.to_owned(), cluster }, args.look.clone(), args.arm)
}
