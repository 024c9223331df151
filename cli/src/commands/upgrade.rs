//! `obol upgrade`: restarts the daemons of this host one at a time, and stops on trouble.

use clap::Args;
use obol_config::duration;
use obol_fabric::{Name, Version};
use obol_supervise::upgrade::{self, Options, Program, Report, Step};
use obol_term::output::{self, Failure};
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Restart the daemons of this host that are of another version, one at a time
#[derive(Debug, Args)]
#[command(
    after_help = "Run it on one host after another, as the user of the daemons, once the new version is installed there. It restarts \
gateway, lease caches, agents and coordinators in this order, the leader last, waits after each until it is a member of the new \
version and the cluster is healthy, and stops with exit code 1 if that takes too long, or on Ctrl-C once the restart that is \
under way has ended; run again, it goes on with what is left. The cluster must be healthy at the beginning. What would keep a new \
daemon from its place (the release, the memory of a coordinator, the keys of the host) is tried before the first stop, and by --plan. \
One upgrade of a host runs at a time. Programs are restarted by their owners; it names those of an older version, and daemons that do not run.\n\
\nUntil the last member is upgraded the cluster works as the older release does, and can be brought back to it; see docs/upgrade.md.\n\
\nExample: obol upgrade --restart 'sudo systemctl restart \"$OBOL_UNIT\"'"
)]
pub(crate) struct Upgrade {
    /// Print what would be restarted, in order, and restart nothing
    #[arg(long)]
    plan: bool,
    /// Restart daemons of this version, too
    #[arg(long)]
    all: bool,
    /// The command that restarts a daemon, for sh; $OBOL_NAME, $OBOL_KIND and $OBOL_UNIT say which
    /// [default: systemctl restart "$OBOL_UNIT"]; a cluster of `obol up` has no units, and needs one
    /// like 'obol stop "$OBOL_NAME" && obol start "$OBOL_NAME"'
    #[arg(long, value_name = "COMMAND")]
    restart: Option<String>,
    /// Stop if a daemon is not back, or the cluster not healthy, for this long
    #[arg(long = "timeout", alias = "within", value_name = "TIME", default_value = "60s", value_parser = duration::argument)]
    within: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Prints what there is to do, or is left to do: after restarts, without the `steps` that were made.
fn show(steps: &[Step], Report { programs, stopped, release, .. }: &Report) -> io::Result<()> {
    if steps.is_empty() {
        let running = if stopped.is_empty() { "" } else { " that run" };
        output::line(format_args!("all daemons of this host{running} are of {}", Version::own()))?;
    }
    for (n, step) in (1..).zip(steps) {
        let leads = if step.leads { ", which leads" } else { "" };
        output::line(format_args!("{n}. {} {} -> {}{leads}", step.unit, step.from, Version::own()))?;
    }
    for Program { name, version } in programs {
        output::line(format_args!("{name} is linked with {version}: restart it after its agent"))?;
    }
    for unit in stopped {
        output::line(format_args!("{unit} does not run; start it, or leave it if that is intended"))?;
    }
    if let Some(release) = release {
        output::line(format_args!("the cluster speaks {release}"))?;
    }
    Ok(())
}

fn on_back(Step { unit, took_s, .. }: &Step) -> Result<(), Failure> {
    let took_s = took_s.unwrap_or_default();
    Ok(output::line(format_args!("{unit}: back, and the cluster healthy, after {took_s:.3} s"))?)
}

pub(crate) fn run(root: &Path, cluster: Name, args: &Upgrade) -> Result<ExitCode, Failure> {
    if args.plan {
        let (report, tried) = upgrade::plan_of(root, cluster, args.all)?;
        output::json_or(args.json, &report, |report| show(&report.steps, report))?;
        tried?;
        return Ok(ExitCode::SUCCESS);
    }
    let options =
        Options { all: args.all, restart: args.restart.as_deref(), within: args.within, quiet: args.json };
    let say = |step: &Step| if args.json { Ok(()) } else { on_back(step) };
    let report = upgrade::upgrade(root, cluster, &options, say)?;
    output::json_or(args.json, &report, |report| show(&[], report))?;
    Ok(ExitCode::SUCCESS)
}
