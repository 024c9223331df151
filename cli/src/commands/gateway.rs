//! `obol gateway`: serves the memory of this host to the other hosts of a cluster.

use crate::daemons::{ended, enter};
use crate::logging::LogOptions;
use clap::Args;
use obol_console::output::{self, Failure};
use obol_fabric::Name;
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
    let (site, stop) = enter(root, cluster, &args.log, (args.name, None))?;
    let served = site.gateway(args.name, &stop, |address| {
        tracing::info!(target: "gateway", "listens on {address}");
        // A gateway serves without a reader of this message.
        let _ = output::remark(format_args!("obol: the gateway of cluster {cluster} listens on {address}"));
    });
    ended(args.name, served)
}
