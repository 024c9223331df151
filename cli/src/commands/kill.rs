//! `obol kill`, `obol stop` and `obol start`: one process of a cluster.

use clap::Args;
use obol_fabric::Name;
use obol_server::smr::departed::Departure;
use obol_supervise::coordinators;
use obol_supervise::processes::{self, Ended, Found, Member, Stopped};
use obol_term::output::{self, Failure};
use std::path::Path;
use std::process::ExitCode;

/// Which process is meant.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// A process by name (app-2, node-1, cache-1, coord-3) or by role (leader)
    target: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn kill(root: &Path, cluster: Name, args: &Target) -> Result<ExitCode, Failure> {
    let ended = Found::of(root, cluster, &args.target, "kill")?.kill()?;
    output::json_or(args.json, &ended, |Ended { name, pid, incarnation, .. }| match incarnation {
        Some(incarnation) => {
            output::line(format_args!("killed {name} (pid {pid}, incarnation {incarnation})"))
        }
        None => output::line(format_args!("killed {name} (pid {pid})")),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Lets a process leave the cluster and end, which does not count as a failure.
pub(crate) fn stop(root: &Path, cluster: Name, args: &Target) -> Result<ExitCode, Failure> {
    match Found::of(root, cluster, &args.target, "stop")? {
        Found::Gateway(gateway) => {
            output::json_or(args.json, &gateway.stop()?, |Ended { name, pid, .. }| {
                let host = gateway.host;
                let cost = if gateway.has_devices {
                    format!(
                        "until it is started again, drills, halts and annotations do not reach host {host} from others"
                    )
                } else {
                    format!(
                        "the other hosts cannot reach host {host}, and exclude it until it is started again"
                    )
                };
                output::line(format_args!("stopped {name} (pid {pid}): {cost}"))
            })?;
            Ok(ExitCode::SUCCESS)
        }
        Found::Member(member) => stop_member(root, cluster, *member, args.json),
    }
}

fn stop_member(root: &Path, cluster: Name, member: Member, json: bool) -> Result<ExitCode, Failure> {
    let departure = Departure::of(root, cluster, member.name())?;
    let Stopped { ended, after, orphans, was_coordinator, not_admitted } = member.stop()?;
    let (name, left) = (ended.name, ended.left == Some(true));
    output::json_or(json, &ended, |Ended { pid, incarnation, .. }| {
        let who = incarnation.unwrap_or_default();
        let how = if left { "it left the cluster" } else { "it ended without leaving" };
        output::line(format_args!("stopped {name} (pid {pid}, incarnation {who}): {how}"))
    })?;
    if !orphans.is_empty() {
        let them: Vec<&str> = orphans.iter().map(Name::as_str).collect();
        let them = them.join(", ");
        output::remark(format_args!(
            "obol: {them} cannot act without {name}: start it again, or stop {them} as well"
        ))?;
    }
    if let Some(why) = not_admitted {
        output::remark(format_args!("obol: {name} cannot be started again by this program: {why}"))?;
    }
    if let Some(lost) = coordinators::lost_majority(&after).filter(|_| was_coordinator) {
        output::remark(lost)?;
    }
    if let Some(warning) = departure.and_then(Departure::warning) {
        output::remark(format_args!("obol: {warning}"))?;
    }
    // The others take what they did not agree to for a failure, and pay for a failover.
    Ok(if left { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(crate) fn start(root: &Path, cluster: Name, args: &Target) -> Result<ExitCode, Failure> {
    let started = processes::start(root, cluster, &args.target)?;
    output::json_or(args.json, &started, |started| {
        output::line(format_args!("started {} (pid {})", started.name, started.pid))
    })?;
    if let Some(waits) = &started.waits {
        output::remark(format_args!("obol: {waits}"))?;
    }
    Ok(ExitCode::SUCCESS)
}
