//! `obol gateway`: serves the memory of this host to the other hosts of a cluster.

use crate::logging::LogOptions;
use clap::Args;
use obol_chaos::drills::agent::switch;
use obol_fabric::Name;
use obol_supervise::daemons::gateway;
use obol_term::output::Failure;
use std::path::Path;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(crate) struct Gateway {
    /// Its name among the processes of this host
    #[arg(long, default_value = "gateway")]
    name: Name,
    #[command(flatten)]
    log: LogOptions,
}

pub(crate) fn run(root: &Path, cluster: Name, args: &Gateway) -> Result<ExitCode, Failure> {
    gateway::run(root, cluster, &args.log.settings(), args.name, switch::answer)
}
