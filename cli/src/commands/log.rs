//! `obol log level`: what the processes of a cluster log, shown and changed while they run.

use clap::{Args, Subcommand};
use obol_fabric::Name;
use obol_logs::{Change, ControlError, Levelled, MODULES, State};
use obol_node::Site;
use obol_observe::Observer;
use obol_supervise::hosts::further_hosts;
use obol_supervise::processes::of_other_hosts;
use obol_term::output::{self, Failure};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Show or change what a process logs, while it runs
#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Show the levels of a process, or change them
    Level(Level),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Levels are error, warn, info, debug, trace and off. Modules are process, membership, fabric, gateway, kv, run, up, drill \
    and hooks; membership is the flight recorder.\n\
    \nA change holds until the cluster ends, also for a process that is started again. A frozen process has it when it continues.\n\
    \nExamples:\n  obol log level node-2\n  obol log level node-2 membership=debug\n  obol log level coord-1 warn fabric=trace\n\
    \nExit codes: 0 done, 1 the process has not answered yet, 2 no such cluster, process, module or level."
)]
pub(crate) struct Level {
    /// The process
    process: Name,
    /// A level for all modules (debug), or for one (membership=debug)
    #[arg(value_name = "[MODULE=]LEVEL")]
    changes: Vec<Change>,
    /// Print one JSON object for scripts
    #[arg(long)]
    json: bool,
}

/// How long a process may take to see a change.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Serialize)]
struct LevelJson<'a> {
    process: &'a str,
    levels: &'a str,
    /// Whether the process has them; none if nothing was changed.
    applied: Option<bool>,
    to: Option<&'a str>,
    dropped: Option<u64>,
    unwritten: Option<u64>,
}

pub(crate) fn run(
    root: &Path,
    cluster: Name,
    LogCommand::Level(options): &LogCommand,
) -> Result<ExitCode, Failure> {
    let site = home(root, cluster, options.process)?;
    let dir = site.cluster.dir();
    let process = options.process.as_str();
    let asked = !options.changes.is_empty();
    // Nothing to change also reports who has no log.
    let now = if asked { None } else { obol_logs::state(dir, process).map_err(Failure::failed)? };
    let levelled = match now {
        Some(state) => Levelled::Now(state),
        None => {
            let patience = if asked { CHANGE_TIMEOUT } else { Duration::ZERO };
            obol_logs::request(dir, options.process, &options.changes, patience)
                .map_err(|error| Failure::Refused(format!("{error}{}", elsewhere(root, cluster, &error))))?
        }
    };
    match levelled {
        Levelled::Now(state) => show(options, &state, asked.then_some(true))?,
        Levelled::Later(levels) => {
            let levels = levels.to_string();
            if options.json {
                let (to, dropped, unwritten) = (None, None, None);
                let applied = Some(false);
                output::json(&LevelJson { process, levels: &levels, applied, to, dropped, unwritten })?;
            } else {
                output::remark(format_args!(
                    "obol: {process} has not answered within {} s; it has the levels {levels} when it runs again (see `obol status`)",
                    CHANGE_TIMEOUT.as_secs()
                ))?;
            }
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The cluster on the host where the process logs, among the hosts that are this one; the first one is
/// asked for all of them, as `obol logs` is.
fn home(root: &Path, cluster: Name, process: Name) -> Result<Site, Failure> {
    let site = Site::open(root, cluster).map_err(Failure::refused)?;
    let logs = |site: &Site| matches!(obol_logs::state(site.cluster.dir(), process.as_str()), Ok(Some(_)));
    if logs(&site) {
        return Ok(site);
    }
    let mut further = further_hosts(root, cluster).into_iter().filter_map(|name| Site::open(root, name).ok());
    if let Some(home) = further.find(logs) {
        return Ok(home);
    }
    match site.deployment.home_of(process).filter(|host| *host != site.deployment.own_host()) {
        Some(host) => Err(Failure::Refused(format!(
            "{process} is of host {host}, and has its log there: run `obol log level {process}` on that host"
        ))),
        // The answer says which processes have logs.
        None => Ok(site),
    }
}

/// Whom else a name may mean that has no log here.
fn elsewhere(root: &Path, cluster: Name, error: &ControlError) -> String {
    // The cluster may have ended since.
    let (ControlError::NoLog { .. }, Ok(observer)) = (error, Observer::open(root, cluster)) else {
        return String::new();
    };
    let mut observer = observer.of_this_host();
    let snapshot = observer.snapshot();
    let others = of_other_hosts(observer.deployment(), &snapshot);
    if others.is_empty() { String::new() } else { format!("; on other hosts: {}", others.join(", ")) }
}

fn show(options: &Level, state: &State, applied: Option<bool>) -> Result<(), Failure> {
    let process = options.process.as_str();
    if options.json {
        let State { levels, to, dropped, unwritten, .. } = state;
        let (to, dropped, unwritten) = (Some(to.as_str()), Some(*dropped), Some(*unwritten));
        return Ok(output::json(&LevelJson { process, levels, applied, to, dropped, unwritten })?);
    }
    output::line(format_args!("{process} logs {} to {}", state.levels, state.to))?;
    if state.dropped > 0 || state.unwritten > 0 {
        let why = state.trouble.as_ref().map_or(String::new(), |why| format!(" ({why})"));
        output::line(format_args!(
            "  ! {} lines were dropped because too many waited, {} could not be written{why}",
            state.dropped, state.unwritten
        ))?;
    }
    if applied.is_none() {
        for (module, what) in MODULES {
            let level = levels(state).of(module);
            output::line(format_args!("  {module:<12} {level:<6} {what}"))?;
        }
    }
    Ok(())
}

fn levels(state: &State) -> obol_logs::Levels {
    // A process of a later version may have levels that this one does not know.
    state.levels.parse().unwrap_or_default()
}
