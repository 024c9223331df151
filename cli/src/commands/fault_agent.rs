//! `obol fault-agent`: what injects the faults of a drill.

use crate::logging::LogOptions;
use crate::signals;
use clap::Args;
use obol_chaos::drills::fault_agent::{self, ReachedBy};
use obol_console::output::Failure;
use obol_fabric::Name;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::path::Path;
use std::process::ExitCode;

/// What breaks things on a drill's cue (started by `drill run`)
#[derive(Debug, Args)]
pub(crate) struct FaultAgent {
    /// Hear the runner on standard input, as under ssh, and not on a socket
    #[arg(long)]
    stdio: bool,
    #[command(flatten)]
    log: LogOptions,
}

pub(crate) fn run(root: &Path, cluster: Name, args: &FaultAgent) -> Result<ExitCode, Failure> {
    // What ends the runner must not end its fault agent, which undoes.
    signals::flag(&[SIGINT, SIGTERM, SIGHUP])?;
    args.log.start_command(root, cluster, "fault-agent");
    let program = std::env::current_exe().map_err(Failure::failed)?;
    let way = if args.stdio { ReachedBy::Standard } else { ReachedBy::Socket };
    fault_agent::run(root, cluster, &program, way).map_err(Failure::failed)?;
    Ok(ExitCode::SUCCESS)
}
