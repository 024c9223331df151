//! `obol forget`: an operator's word that members which failed have gone for good.

use clap::Args;
use obol_fabric::Name;
use obol_fabric::host::clock;
use obol_membership::Kind;
use obol_node::{Site, ended};
use obol_observe::Observer;
use obol_observe::annotations::{Forwarded, Mark, NAMES_MAX};
use obol_supervise::leaving::forget;
use obol_term::output::{self, Failure};
use obol_workload::leaving::forget;
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

/// Expect members that failed back no more
#[derive(Debug, Args)]
#[command(
    after_help = "A member that failed makes the cluster degraded until a process of its name has joined again. Forget one that has \
    gone for good: it is missed no more, on any host. One that joins again later is expected again. What is alive is ended by `obol \
    stop`, which needs no such word; a coordinator that decides is replaced by `obol coordinator replace`.\n\
    \nExample: obol forget kv-2"
)]
pub(crate) struct Forget {
    /// Members by name
    #[arg(required = true, num_args = 1..=NAMES_MAX, value_name = "NAME")]
    names: Vec<Name>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct ForgottenJson<'a> {
    cluster: Name,
    names: &'a [Name],
    /// Why some host does not know it; none if all do.
    missed: Option<String>,
}

pub(crate) fn run(root: &Path, cluster: Name, args: &Forget) -> Result<ExitCode, Failure> {
    let mut observer = Observer::open(root, cluster).map_err(Failure::refused)?;
    let snapshot = observer.snapshot();
    let deployment = observer.deployment();
    for name in &args.names {
        let named = || snapshot.all_processes().filter(|p| p.name == *name);
        if named().any(|p| p.alive) {
            return Err(Failure::Refused(format!("{name} runs; `obol stop {name}` ends it")));
        }
        if deployment.kind(*name) == Kind::Coordinator {
            return Err(Failure::Refused(format!(
                "{name} is a coordinator: start it, or see `obol coordinator replace --help`"
            )));
        }
        let home = deployment.home_of(*name).filter(|home| *home != deployment.own_host());
        if let Some(home) = home {
            return Err(Failure::Refused(format!(
                "{name} is of host {home}: run `obol forget {name}` there"
            )));
        }
        let awaited = observer.awaited();
        if !awaited.contains(name) {
            if named().any(|p| snapshot.is_member(p)) {
                return Err(Failure::Refused(format!(
                    "{name} has ended, and is a member until it is removed: forget it when `obol status` says that it failed"
                )));
            }
            let missed: Vec<&str> = awaited.iter().map(Name::as_str).collect();
            let missed = if missed.is_empty() { "none".to_owned() } else { missed.join(", ") };
            return Err(Failure::Refused(format!("{name} is not missed; those that are: {missed}")));
        }
    }
    let site = Site::open(root, cluster).map_err(Failure::refused)?;
    let dir = site.cluster.dir();
    forget(root, cluster, |_| args.names.clone())?;
    let deployed = deployment.names();
    for name in args.names.iter().filter(|name| deployed.iter().any(|one| one == name.as_str())) {
        // As if it had left.
        ended::note(dir, *name).map_err(Failure::failed)?;
    }
    let mark = Mark::forgotten(clock::now(), &args.names);
    mark.write(dir).map_err(Failure::failed)?;
    let missed = match mark.forward(&site) {
        Forwarded::All => None,
        Forwarded::Not(why) => Some(why),
    };
    let code = if missed.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    output::json_or(args.json, &ForgottenJson { cluster, names: &args.names, missed }, |forgotten| {
        let names = forgotten.names.iter().map(Name::as_str).collect::<Vec<_>>().join(", ");
        output::line(format_args!("{names}: not expected back"))?;
        forgotten.missed.iter().try_for_each(|why| {
            output::remark(format_args!(
                "obol: said on this host, and not on all others: {why}; run it there as well"
            ))
        })
    })?;
    Ok(code)
}
