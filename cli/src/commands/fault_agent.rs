//! `obol fault-agent`: what injects the faults of a drill, and what undoes them if that is killed.

use crate::logging::LogOptions;
use clap::Args;
use obol_chaos::drills::agent::fault_agent::{self, ReachedBy};
use obol_chaos::drills::agent::warden;
use obol_chaos::faults::Undone;
use obol_fabric::Name;
use obol_fabric::host::this_program;
use obol_supervise::signals;
use obol_term::output::{self, Failure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// What breaks things on a drill's cue (started by `drill run`)
#[derive(Debug, Args)]
pub(crate) struct FaultAgent {
    /// Hear the runner on standard input, as under ssh, and not on a socket
    #[arg(long)]
    stdio: bool,
    /// Undo the faults of the fault agent that starts this, if it is killed
    #[arg(long, hide = true, conflicts_with = "stdio")]
    warden: bool,
    #[command(flatten)]
    log: LogOptions,
}

pub(crate) fn run(root: &Path, cluster: Name, args: &FaultAgent) -> Result<ExitCode, Failure> {
    // What ends the runner must not end its fault agent, which undoes.
    signals::flag(&[SIGINT, SIGTERM, SIGHUP])?;
    if args.warden {
        return watch(root, cluster, &args.log);
    }
    args.log.start_command(root, cluster, "fault-agent");
    let program = this_program::file().map_err(Failure::failed)?;
    let way = if args.stdio { ReachedBy::Standard } else { ReachedBy::Socket };
    fault_agent::run(root, cluster, &program, way).map_err(Failure::failed)?;
    Ok(ExitCode::SUCCESS)
}

/// Waits for the end of the fault agent. It writes a log only if something was left.
fn watch(root: &Path, cluster: Name, log: &LogOptions) -> Result<ExitCode, Failure> {
    let Undone { done, failed } =
        warden::watch(root, cluster, io::stdin().lock()).map_err(Failure::failed)?;
    if done.is_empty() && failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    log.start_command(root, cluster, "fault-warden");
    for text in &done {
        tracing::warn!(target: "drill", "a fault agent was killed: {text}");
    }
    if failed.is_empty() {
        // There may be no runner any more that reads this.
        let _ = output::remark(format_args!("obol: a fault agent was killed; undone: {}", done.join("; ")));
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::Failed(format!(
        "a fault agent was killed, and faults are still in force: {}; see `obol drill recover`",
        failed.join("; ")
    )))
}
