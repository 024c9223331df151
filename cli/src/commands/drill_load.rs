//! `obol drill-load`: a load on this host; it ends with the fault agent that started it, or by itself.

use clap::Args;
use obol_fabric::host::sched;
use obol_fabric::{Name, Nanos};
use obol_term::output::Failure;
use std::path::Path;
use std::process::ExitCode;

/// A load on this host (started by a drill's fault agent)
#[derive(Debug, Args)]
pub(crate) struct DrillLoad {
    /// Threads that compute
    #[arg(long)]
    threads: u32,
    /// MiB that are written again and again
    #[arg(long)]
    mebibytes: u32,
    /// For how long
    #[arg(long)]
    nanoseconds: u64,
}

pub(crate) fn run(_: &Path, _: Name, args: &DrillLoad) -> Result<ExitCode, Failure> {
    sched::die_with_parent().map_err(Failure::failed)?;
    obol_chaos::drills::agent::load::run(args.threads, args.mebibytes, Nanos(args.nanoseconds));
    Ok(ExitCode::SUCCESS)
}
